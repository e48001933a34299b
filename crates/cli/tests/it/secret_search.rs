//! Inspects `ralph sandbox exec` from outside while it runs: its processes, their environments and memory, and every
//! file they can write. Used to search for a secret that must not be there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ralph_testkit::home::TestHome;

/// Long enough for a large program on a slow machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Reports a test that could not run: in CI it is a failure, elsewhere a message.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a test that did not try something must not look like one that did")]
pub(crate) fn report_not_run(what: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0");
    assert!(!ci, "{what}");
    eprintln!("\nNOT RUN: {what}\n");
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct SandboxExecOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A shell line that runs in a sandbox of its own; at its end it waits to be released.
#[derive(Debug)]
pub(crate) struct SandboxExecProcess {
    child: Child,
    folder: tempfile::TempDir,
    state: PathBuf,
}

impl Drop for SandboxExecProcess {
    fn drop(&mut self) {
        // It has usually ended by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl SandboxExecProcess {
    pub(crate) fn start(home: &TestHome, env: &[(&str, String)], args: &[&str], line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The wait is bounded, so that nothing is left over when a test dies.
        let gate =
            "code=$?; : > .ended; n=0; while [ ! -e .released ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done";
        let line = format!("{line}\n{gate}; exit $code");
        let mut command = home.command(env!("CARGO_BIN_EXE_ralph"));
        command.args(["sandbox", "exec"]).args(args).args(["--", "sh", "-c", &line]);
        command.envs(env.iter().map(|(name, value)| (name, value.as_str())));
        let create = |name| File::create(folder.path().join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(create("out")).stderr(create("err"));
        let child = command.spawn().unwrap();
        Self { child, folder, state: home.state() }
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join(name)).unwrap()).into_owned()
    }

    /// Returns the folder of its sandbox.
    fn sandbox_dir(&self) -> Option<PathBuf> {
        sandbox_dir(&self.state)
    }

    /// Waits for a condition that holds while it runs.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds() {
            let over = self.child.try_wait().unwrap();
            let streams = || format!("{}\n{}", self.text("out"), self.text("err"));
            assert!(over.is_none(), "it ended before {what}: {over:?}\n{}", streams());
            assert!(Instant::now() < deadline, "waited in vain for {what}\n{}", streams());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the line has ended; its sandbox still exists.
    #[track_caller]
    pub(crate) fn await_end(&mut self) {
        let mark = self.sandbox_dir().expect("a sandbox").join("workspace/.ended");
        self.wait_until("the end of the line", || mark.exists());
    }

    /// Releases it, and waits until it has ended.
    #[track_caller]
    pub(crate) fn release(mut self) -> SandboxExecOutput {
        fs::write(self.sandbox_dir().expect("a sandbox").join("workspace/.released"), "").unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return SandboxExecOutput { code: status.code(), stdout: self.text("out"), stderr: self.text("err") };
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.text("err"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns every process of the cage, including its init.
    fn processes(&self) -> Vec<PathBuf> {
        let name = self.sandbox_dir().expect("a sandbox").file_name().unwrap().to_string_lossy().into_owned();
        let mark = format!("RALPH_SANDBOX={name}");
        let all: Vec<PathBuf> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit()))
            .collect();
        let space = |path: &Path| fs::read_link(path.join("ns/pid")).ok();
        let marked = |path: &&PathBuf| environment(path).contains(&mark);
        let spaces: BTreeSet<PathBuf> = all.iter().filter(marked).filter_map(|path| space(path)).collect();
        assert!(!spaces.contains(&fs::read_link("/proc/self/ns/pid").unwrap()), "the cage has our own processes");
        all.into_iter().filter(|path| space(path).is_some_and(|one| spaces.contains(&one))).collect()
    }

    /// Returns a file of the workspace, as soon as it exists.
    #[track_caller]
    pub(crate) fn await_file(&mut self, name: &str) -> String {
        let mut text = String::new();
        let state = self.state.clone();
        self.wait_until(name, || {
            text = sandbox_dir(&state)
                .and_then(|place| fs::read_to_string(place.join("workspace").join(name)).ok())
                .unwrap_or_default();
            !text.is_empty()
        });
        text
    }

    /// Searches for a secret in the environment and the memory of every process. As a control, it also searches for a
    /// text that must be in the memory of the process named `who`: a search that finds nothing at all proves nothing.
    #[track_caller]
    pub(crate) fn search_memory(&self, secret: &SecretPattern, there: &SecretPattern, who: &str) {
        let (mut found, mut control, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let processes = self.processes();
        for process in &processes {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
            let id = format!("{} {name}", process.display());
            let pairs = environment(process).join("\0");
            assert!(!secret.is_in(pairs.as_bytes()), "the key is in the environment of {id}");
            let searched = each_page_run(process, secret.longest().max(there.longest()), |at, bytes| {
                if secret.is_in(bytes) {
                    found.push(format!("{id} at {at:#x}"));
                }
                if there.is_in(bytes) {
                    control.push(name.clone());
                }
            });
            match searched {
                Ok(()) => (),
                // The process ended meanwhile.
                Err(_) if has_exited(process) => (),
                Err(error) => refused.push(format!("{id}: {error}")),
            }
        }
        assert_eq!(found, Vec::<String>::new(), "the key is in memory of the cage");
        if processes.is_empty() || !refused.is_empty() {
            assert!(!rustix::process::geteuid().is_root(), "root could not search {processes:?}: {refused:?}");
            report_not_run(&format!("memory of the cage was not searched for the key, this user may not: {refused:?}"));
        } else {
            assert!(control.iter().any(|name| name == who), "the phantom is not in `{who}`, only in {control:?}");
        }
    }

    /// Searches for a secret in every file that the cage can write, on disk and in memory, and in all that ralph
    /// stores.
    pub(crate) fn search_files(&self, secret: &SecretPattern) -> Vec<String> {
        let mut found = Vec::new();
        secret.search_folder(&self.state, &mut found);
        let inside = self.processes().into_iter().find(|process| process.join("root/workspace").is_dir());
        match inside {
            Some(process) => {
                for place in writable_mounts(&process) {
                    secret.search_folder(&place, &mut found);
                }
            }
            None => report_not_run("files in memory of the cage were not searched for the key, this user may not"),
        }
        found
    }
}

fn sandbox_dir(state: &Path) -> Option<PathBuf> {
    let boxes = fs::read_dir(state.join("embedded/boxes")).ok()?;
    boxes.flatten().map(|entry| entry.path()).find(|path| path.is_dir())
}

/// Returns whether a process has ended: it may still be listed, but has no program any more.
fn has_exited(process: &Path) -> bool {
    fs::read_link(process.join("exe")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn environment(process: &Path) -> Vec<String> {
    let bytes = fs::read(process.join("environ")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|pair| String::from_utf8_lossy(pair).into_owned()).collect()
}

/// Returns where a process can write, as seen from outside: every mount that is not read-only and has files.
fn writable_mounts(process: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let mut places = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut fields = before.split(' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { continue };
        let kind = after.split(' ').next().unwrap_or_default();
        let files = !["proc", "sysfs", "devpts", "cgroup2", "mqueue"].contains(&kind);
        if files && options.split(',').any(|option| option == "rw") {
            places.push(process.join("root").join(point.trim_start_matches('/')));
        }
    }
    places
}

/// Passes all present memory of a process to `each`, in runs of pages that overlap by the length of the pattern.
fn each_page_run(process: &Path, overlap: usize, mut each: impl FnMut(u64, &[u8])) -> io::Result<()> {
    const PAGE: u64 = 4096;
    const RUN: usize = 1 << 20;
    let maps = fs::read_to_string(process.join("maps"))?;
    let (memory, pages) = (File::open(process.join("mem"))?, File::open(process.join("pagemap"))?);
    let mut buffer = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let kernel = line.ends_with("[vvar]") || line.ends_with("[vsyscall]") || line.ends_with("[vvar_vclock]");
        let Some((from, to)) = range.split_once('-').filter(|_| rights.starts_with('r') && !kernel) else { continue };
        let (from, to) = (parse_hex(from), parse_hex(to));
        let mut entries = vec![0; 8 << 16];
        let (mut at, mut end) = (from, from);
        buffer.clear();
        while at < to {
            let count = ((to - at) / PAGE).min(1 << 16);
            let wanted = &mut entries[..usize::try_from(count * 8).unwrap()];
            pages.read_exact_at(wanted, at / PAGE * 8)?;
            for (n, entry) in wanted.as_chunks::<8>().0.iter().enumerate() {
                // In memory or swapped out; other pages were never touched.
                if u64::from_ne_bytes(*entry) >> 62 == 0 {
                    continue;
                }
                let page = at + n as u64 * PAGE;
                if page != end || buffer.len() >= RUN {
                    each(end - buffer.len() as u64, &buffer);
                    let kept = if page == end { overlap.min(buffer.len()) } else { 0 };
                    buffer.drain(..buffer.len() - kept);
                }
                let old = buffer.len();
                buffer.resize(old + 4096, 0);
                // A page may disappear at any time, and some belong to devices.
                if memory.read_exact_at(&mut buffer[old..], page).is_err() {
                    buffer.truncate(old);
                    buffer.extend([0; 4096]);
                }
                end = page + PAGE;
            }
            at += count * PAGE;
        }
        each(end - buffer.len() as u64, &buffer);
    }
    Ok(())
}

fn parse_hex(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).unwrap()
}

/// A text to search for, plain and in the encodings in which programs keep text in memory.
#[derive(Debug)]
pub(crate) struct SecretPattern(Vec<Vec<u8>>);

impl SecretPattern {
    pub(crate) fn new(text: &str) -> Self {
        let wide = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Self(vec![text.as_bytes().to_vec(), wide])
    }

    fn longest(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|form| contains(bytes, form))
    }

    /// Searches every file below a folder, and their names.
    pub(crate) fn search_folder(&self, folder: &Path, found: &mut Vec<String>) {
        let mut open = vec![folder.to_owned()];
        while let Some(path) = open.pop() {
            let Ok(meta) = path.symlink_metadata() else { continue };
            let name = path.file_name().unwrap_or_default();
            let content = if meta.is_dir() {
                open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes()).unwrap_or_default()
            } else if meta.is_file() {
                fs::read(&path).unwrap_or_default()
            } else {
                assert!(!meta.file_type().is_block_device(), "{} is a disk", path.display());
                Vec::new()
            };
            if self.is_in(name.as_encoded_bytes()) || self.is_in(&content) {
                found.push(path.display().to_string());
            }
        }
    }
}

/// Searches with Horspool's algorithm: the input is large, and most of it can be skipped.
fn contains(bytes: &[u8], form: &[u8]) -> bool {
    let Some(last) = form.len().checked_sub(1) else { return true };
    let mut shift = [form.len(); 256];
    for (n, byte) in form[..last].iter().enumerate() {
        shift[usize::from(*byte)] = last - n;
    }
    let mut at = 0;
    while at + last < bytes.len() {
        if &bytes[at..=at + last] == form {
            return true;
        }
        at += shift[usize::from(bytes[at + last])];
    }
    false
}

#[test]
fn the_search_finds() {
    #[track_caller]
    fn check(bytes: &str, text: &str, want: bool) {
        assert_eq!(SecretPattern::new(text).is_in(bytes.as_bytes()), want, "{text:?} in {bytes:?}");
    }
    for text in ["needle", "eedlen", "n"] {
        check(text, text, true);
        check(&format!("{text}xx"), text, true);
        check(&format!("xx{text}"), text, true);
        check(&format!("nee{text}dle"), text, true);
    }
    check("needl", "needle", false);
    check("needlneedl eneedl", "needle", false);
    check("", "needle", false);
    check("n\0e\0e\0", "nee", true);
}
