//! Records which files a command uses: what it opens, executes and lists, and what it looks for without finding it.
//!
//! The kernel stops every process of the command at such a call and tells this process, which reads the path from its
//! memory and lets it go on. A hostile process could change the path in between; that is no protection, and commands
//! are observed only where nothing hostile has run yet.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use ralph_core::proof_files::ObservedFiles;
use rustix::fs::{Mode, OFlags};
use seccompiler::sock_filter;

use super::super::launcher_protocol;
use super::syscalls::{self, StoppedCall};

/// How many paths of one kind are recorded.
const MAX_PATHS: usize = 50_000;

/// Where installed programs and modules end, of which only some are of interest.
const MODULE_ENDS: [&str; 10] = ["py", "pyc", "so", "rb", "pm", "pl", "lua", "h", "hh", "hpp"];

/// As the low half of an argument.
const AT_FDCWD: u64 = libc::AT_FDCWD.cast_unsigned() as u64;

/// The observer of one command.
#[derive(Debug)]
pub(super) struct FileObserver {
    listener: OwnedFd,
    workspace: PathBuf,
    seen: HashSet<(PathBuf, FileUse)>,
    found: ObservedFiles,
}

/// How a call uses a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FileUse {
    Open,
    /// It creates what is missing.
    Create,
    Execute,
    Look,
}

/// Installs the filter in this process, and sends the descriptor with which it is observed.
pub(super) fn install(to: &OwnedFd) -> io::Result<()> {
    let listener = syscalls::install_listener(&filter())?;
    launcher_protocol::send(to, b"L", &[listener.as_fd()])
}

impl FileObserver {
    /// Waits for the descriptor; `None` if the process ended before it sent it.
    pub(super) fn receive(from: &OwnedFd, workspace: &str) -> io::Result<Option<Self>> {
        let (_, descriptors) = launcher_protocol::receive_up_to(from, 1)?;
        Ok(descriptors.into_iter().next().map(|listener| Self {
            listener,
            workspace: PathBuf::from(workspace),
            seen: HashSet::new(),
            found: ObservedFiles::default(),
        }))
    }

    /// The descriptor that becomes readable when a process is stopped.
    pub(super) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Records one call and lets its process go on.
    pub(super) fn handle_call(&mut self) {
        // The process may have been killed in the meantime.
        let Ok(call) = syscalls::receive_stopped_call(&self.listener) else { return };
        // Before the first program has started, its memory cannot be read; what it executes is known.
        if self.record(&call).is_none() && call.number != libc::SYS_execve {
            self.found.not_listed += 1;
        }
        // As above.
        let _ = syscalls::continue_call(&self.listener, call.id);
    }

    /// Returns what was found, in a sealed file.
    pub(super) fn finish(self) -> io::Result<OwnedFd> {
        launcher_protocol::write_sealed("observed", &serde_json::to_vec(&self.found)?)
    }

    /// Records the path of a call; `None` if it could not be read.
    fn record(&mut self, call: &StoppedCall) -> Option<()> {
        let (folder, address, usage) = path_argument(call)?;
        let path = syscalls::read_text(call.pid, address)?;
        if path.is_empty() {
            return Some(());
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        let whole = if path.is_absolute() {
            normalize(path)
        } else {
            let base = if folder & 0xffff_ffff == AT_FDCWD {
                format!("/proc/{}/cwd", call.pid)
            } else {
                format!("/proc/{}/fd/{}", call.pid, folder & 0xffff_ffff)
            };
            normalize(&fs::read_link(base).ok()?.join(path))
        };
        if !self.seen.insert((whole.clone(), usage)) {
            return Some(());
        }
        match whole.strip_prefix(&self.workspace) {
            Ok(inside) => self.record_inside(&whole, inside.to_str()?, usage, call.pid),
            Err(_) => self.record_outside(&whole, usage),
        }
    }

    fn record_inside(&mut self, whole: &Path, inside: &str, usage: FileUse, pid: i32) -> Option<()> {
        let Ok(found) = rustix::fs::stat(whole) else {
            if usage != FileUse::Create && self.found.missing.len() < MAX_PATHS {
                let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                self.found.missing.entry(inside.to_owned()).or_default().insert(program.trim_end().to_owned());
            }
            return (self.found.missing.len() < MAX_PATHS).then_some(());
        };
        let is_folder = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
        let list = match (usage, is_folder) {
            (FileUse::Look, _) => return Some(()),
            (_, true) => &mut self.found.listed,
            (_, false) => &mut self.found.read,
        };
        if list.len() >= MAX_PATHS {
            return None;
        }
        list.insert(inside.to_owned());
        // The file behind a link is what was read.
        if let Some(real) = real_path(whole)
            && let Ok(real) = real.strip_prefix(&self.workspace)
        {
            list.insert(real.to_str()?.to_owned());
        }
        Some(())
    }

    fn record_outside(&mut self, whole: &Path, usage: FileUse) -> Option<()> {
        let is_module = whole.extension().and_then(|end| end.to_str()).is_some_and(|end| MODULE_ENDS.contains(&end));
        // Headers of C++ have no end.
        let is_header = whole.extension().is_none() && whole.to_str().is_some_and(|path| path.contains("/include/"));
        let wanted = usage == FileUse::Execute || (usage == FileUse::Open && (is_module || is_header));
        if !wanted || rustix::fs::stat(whole).is_err() {
            return Some(());
        }
        if self.found.outside.len() >= MAX_PATHS {
            return None;
        }
        self.found.outside.insert(whole.to_str()?.to_owned());
        Some(())
    }
}

/// Returns the path of an existing file without links.
fn real_path(path: &Path) -> Option<PathBuf> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&fd);
    fs::read_link(format!("/proc/self/fd/{number}")).ok()
}

/// Removes `.` and `..` by the text alone.
fn normalize(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir | Component::Prefix(_) => (),
            Component::RootDir => out.push("/"),
            Component::Normal(name) => out.push(name),
        }
    }
    out
}

/// Returns the folder, the address of the path and its use in a call.
fn path_argument(call: &StoppedCall) -> Option<(u64, u64, FileUse)> {
    let [first, second, third, ..] = call.args;
    let open = |flags: u64| {
        if flags & u64::from(libc::O_CREAT.unsigned_abs()) == 0 { FileUse::Open } else { FileUse::Create }
    };
    #[cfg(target_arch = "x86_64")]
    match call.number {
        libc::SYS_open => return Some((AT_FDCWD, first, open(second))),
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => {
            return Some((AT_FDCWD, first, FileUse::Look));
        }
        _ => (),
    }
    Some(match call.number {
        libc::SYS_openat => (first, second, open(third)),
        // Its flags are in memory, and a path that it creates is rarely looked for otherwise.
        libc::SYS_openat2 => (first, second, FileUse::Open),
        libc::SYS_execve => (AT_FDCWD, first, FileUse::Execute),
        libc::SYS_execveat => (first, second, FileUse::Execute),
        libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_faccessat | libc::SYS_faccessat2 | libc::SYS_readlinkat => {
            (first, second, FileUse::Look)
        }
        _ => return None,
    })
}

/// The calls that use a path, besides those that may use a descriptor alone.
#[cfg(target_arch = "x86_64")]
const PATH_CALLS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
];
#[cfg(not(target_arch = "x86_64"))]
const PATH_CALLS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
];

/// Returns the filter that stops a process at calls that use a path.
fn filter() -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const NOTIFY: u32 = 0x7fc0_0000;
    const NUMBER: u32 = 0;
    const MACHINE: u32 = 4;
    const OURS: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // The low half of an argument.
    const fn argument(n: u32) -> u32 {
        16 + 8 * n
    }
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    // With an empty path these ask about an open file, which was recorded when it was opened.
    let with_flags = [(libc::SYS_newfstatat, 3), (libc::SYS_statx, 2)];
    let mut code = vec![line(LOAD, 0, 0, MACHINE)];
    let calls = u8::try_from(PATH_CALLS.len()).unwrap_or(0);
    let flagged = u8::try_from(with_flags.len()).unwrap_or(0) * 3;
    // The two last lines are ALLOW and NOTIFY.
    code.push(line(JUMP_IF_EQUAL, 0, 1 + calls + flagged, OURS));
    code.push(line(LOAD, 0, 0, NUMBER));
    for (n, call) in (0..).zip(PATH_CALLS) {
        code.push(line(JUMP_IF_EQUAL, calls - n - 1 + flagged + 1, 0, number(*call)));
    }
    for (n, (call, flags)) in (0_u8..).zip(with_flags) {
        let rest = flagged - 3 * n - 3;
        code.push(line(JUMP_IF_EQUAL, 0, 2, number(call)));
        code.push(line(LOAD, 0, 0, argument(flags)));
        code.push(line(JUMP_IF_SET, rest, rest + 1, libc::AT_EMPTY_PATH.unsigned_abs()));
    }
    code.push(line(RETURN, 0, 0, ALLOW));
    code.push(line(RETURN, 0, 0, NOTIFY));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_by_their_text() {
        for (path, want) in [("/a/./b/../c", "/a/c"), ("/../a", "/a"), ("/a//b/", "/a/b"), ("/", "/")] {
            assert_eq!(normalize(Path::new(path)), Path::new(want));
        }
    }

    #[test]
    fn every_jump_of_the_filter_stays_inside() {
        let code = filter();
        for (at, line) in code.iter().enumerate().filter(|(_, line)| line.code & 0x07 == 0x05) {
            for jump in [line.jt, line.jf] {
                assert!(at + 1 + usize::from(jump) < code.len(), "line {at}");
            }
        }
    }
}
