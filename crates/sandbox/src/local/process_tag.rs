//! Tags every command in its environment, and finds and ends processes by their tag.
//!
//! Linux only: other systems do not show a process's environment, so there the search finds nothing. A process that
//! cleared its environment is not found either.

use std::time::{Duration, Instant};

/// The name of the variable; its value is a [`ProcessTag`].
pub(super) const TAG_VARIABLE: &str = "RALPH_SANDBOX_MARK";
/// How long killed processes may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// The process that owns commands, identified exactly: its number alone may be reused by another process later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TagOwner {
    pub(super) pid: u32,
    /// When it started, in the kernel's ticks; 0 where the kernel does not report it.
    pub(super) started: u64,
    /// Distinguishes two backends of one process.
    pub(super) token: String,
}

/// The sandbox, the owner and the command that a process belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessTag {
    pub(super) key: String,
    pub(super) owner: TagOwner,
    pub(super) exec: u64,
}

/// How processes are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndMode {
    Now,
    /// Terminated first, and killed after this long.
    Within(Duration),
}

impl TagOwner {
    pub(super) fn current(token: String) -> Self {
        let pid = std::process::id();
        Self { pid, started: proc::start_time(pid).unwrap_or(0), token }
    }

    pub(super) fn is_alive(&self) -> bool {
        proc::start_time(self.pid) == Some(self.started)
    }
}

impl ProcessTag {
    pub(super) fn value(&self) -> String {
        let TagOwner { pid, started, token } = &self.owner;
        format!("{}.{pid}.{started}.{token}.{}", self.key, self.exec)
    }

    #[cfg(any(target_os = "linux", test))]
    fn parse(value: &str) -> Option<Self> {
        let mut parts = value.split('.');
        let key = parts.next()?.to_owned();
        let pid = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        let token = parts.next()?.to_owned();
        let exec = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { key, owner: TagOwner { pid, started, token }, exec })
    }

    /// Returns the tag in an environment as Linux shows it in `/proc`.
    #[cfg(any(target_os = "linux", test))]
    fn find(environ: &[u8]) -> Option<Self> {
        environ.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(TAG_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
            Self::parse(std::str::from_utf8(value).ok()?)
        })
    }
}

/// Ends every process whose tag matches; the error is the number that is left after the timeout.
///
/// Blocks for as long as that takes.
pub(super) fn end_tagged(matches_tag: impl Fn(&ProcessTag) -> bool, how: EndMode) -> Result<(), usize> {
    if let EndMode::Within(grace) = how {
        let until = Instant::now() + grace;
        let mut asked = false;
        loop {
            let found = proc::find_tagged(&matches_tag);
            if found.is_empty() {
                return Ok(());
            }
            if !std::mem::replace(&mut asked, true) {
                found.iter().for_each(proc::TaggedProcess::terminate);
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    let until = Instant::now() + KILL_TIMEOUT;
    loop {
        // Repeated, because the processes found may have started others since.
        let found = proc::find_tagged(&matches_tag);
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(found.len());
        }
        found.iter().for_each(proc::TaggedProcess::kill);
        std::thread::sleep(PAUSE);
    }
}

#[cfg(target_os = "linux")]
mod proc {
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    use super::ProcessTag;

    const ENVIRON_CAP: u64 = 8 << 20;

    #[derive(Debug)]
    pub(super) struct TaggedProcess {
        pid: Pid,
        /// Refers to the process itself, so that a signal cannot reach another one that got its number. `None` on old
        /// kernels.
        held: Option<OwnedFd>,
    }

    impl TaggedProcess {
        pub(super) fn terminate(&self) {
            self.signal(Signal::TERM);
        }

        pub(super) fn kill(&self) {
            self.signal(Signal::KILL);
        }

        fn signal(&self, signal: Signal) {
            // It may have ended by itself, which is fine; one that survives is found by the next search.
            let _ = match &self.held {
                Some(held) => pidfd_send_signal(held, signal),
                None => kill_process(self.pid, signal),
            };
        }
    }

    pub(super) fn find_tagged(matches_tag: impl Fn(&ProcessTag) -> bool) -> Vec<TaggedProcess> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let own = std::process::id();
        let pids = processes
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| u32::try_from(*pid) != Ok(own));
        pids.filter_map(|pid| {
            let pid = Pid::from_raw(pid)?;
            // Opened before its environment is read, so the process that is checked is the one that is signalled.
            let held = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(held) => Some(held),
                Err(Errno::NOSYS | Errno::PERM) => None,
                Err(_) => return None,
            };
            let mut environ = Vec::new();
            let file = File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
            file.take(ENVIRON_CAP).read_to_end(&mut environ).ok()?;
            matches_tag(&ProcessTag::find(&environ)?).then_some(TaggedProcess { pid, held })
        })
        .collect()
    }

    /// Returns when a process started, in the kernel's ticks; `None` when it has ended or is only waiting to be reaped.
    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, even parentheses: the fields start after the last one.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
    }
}

#[cfg(not(target_os = "linux"))]
mod proc {
    use super::ProcessTag;

    #[derive(Debug)]
    pub(super) struct TaggedProcess;

    impl TaggedProcess {
        pub(super) fn terminate(&self) {}

        pub(super) fn kill(&self) {}
    }

    pub(super) fn find_tagged(_: impl Fn(&ProcessTag) -> bool) -> Vec<TaggedProcess> {
        Vec::new()
    }

    pub(super) fn start_time(_: u32) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag() -> ProcessTag {
        let owner = TagOwner { pid: 7, started: 99, token: "beef".into() };
        ProcessTag { key: "cafe".into(), owner, exec: 3 }
    }

    #[track_caller]
    fn check(environ: &[u8], want: Option<&ProcessTag>) {
        assert_eq!(ProcessTag::find(environ).as_ref(), want);
    }

    #[test]
    fn tags_are_written_and_found() {
        assert_eq!(tag().value(), "cafe.7.99.beef.3");
        check(b"A=1\0RALPH_SANDBOX_MARK=cafe.7.99.beef.3\0B=\xff\0", Some(&tag()));
        check(b"RALPH_SANDBOX_MARK=cafe.7.99.beef.3", Some(&tag()));
        check(b"", None);
        check(b"XRALPH_SANDBOX_MARK=cafe.7.99.beef.3\0", None);
        check(b"RALPH_SANDBOX_MARKS=cafe.7.99.beef.3\0", None);
        check(b"RALPH_SANDBOX_MARK=cafe.7.99.beef\0", None);
        check(b"RALPH_SANDBOX_MARK=cafe.7.99.beef.3.4\0", None);
        check(b"RALPH_SANDBOX_MARK=cafe.-7.99.beef.3\0", None);
        check(b"RALPH_SANDBOX_MARK=\xff\0", None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn owners_are_alive_only_with_the_same_pid_and_start_time() {
        let owner = TagOwner::current("t".into());
        assert!(owner.is_alive());
        assert!(!TagOwner { started: owner.started + 1, ..owner.clone() }.is_alive());
        assert!(!TagOwner { pid: u32::MAX, ..owner }.is_alive());
    }
}
