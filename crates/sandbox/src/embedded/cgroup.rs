//! Limits the kernel holds: a control group per cage where this user may make one, and an honest `None` where not.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::Limit;

/// The groups of one cage, removed with the value.
#[derive(Debug)]
pub(super) struct Groups {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    newer: bool,
}

/// What to hold a cage to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) memory: u64,
    pub(super) pids: u64,
    /// Thousandths of a processor.
    pub(super) cpus: Option<u32>,
}

/// Where this process may make groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    newer: bool,
}

/// What the kernel has counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    out_of_memory: u64,
    too_many: u64,
}

impl Counted {
    /// Returns which limit was reached since an earlier count.
    pub(super) fn since(self, earlier: Self) -> Option<Limit> {
        if self.out_of_memory > earlier.out_of_memory {
            Some(Limit::Memory)
        } else if self.too_many > earlier.too_many {
            Some(Limit::Processes)
        } else {
            None
        }
    }
}

impl Places {
    /// Nowhere: what is held is then held without the kernel's groups.
    pub(super) fn none() -> Self {
        Self { memory: None, pids: None, cpu: None, newer: true }
    }

    /// Reads where the groups of this process are and whether it may make more below them.
    pub(super) fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut places = Self::read(&mounts, &own);
        for place in [&mut places.memory, &mut places.pids, &mut places.cpu] {
            *place = place.take().filter(|dir| may_write(dir));
        }
        if places.newer && !places.memory.as_ref().is_some_and(|dir| hand_down(dir)) {
            places = Self::none();
        }
        places
    }

    /// Decides from the two tables alone.
    fn read(mounts: &str, own: &str) -> Self {
        let controller = |name: &str| -> Option<PathBuf> {
            let path = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (names, path) = (parts.next()?, parts.next()?);
                names.split(',').any(|one| one == name).then_some(path)
            })?;
            let (root, mount) = mounts.lines().find_map(|line| {
                let (place, kind) = line.split_once(" - ")?;
                let mut words = place.split(' ').skip(3);
                let (root, mount) = (words.next()?, words.next()?);
                let mut kind = kind.split(' ');
                let group = kind.next()? == if name.is_empty() { "cgroup2" } else { "cgroup" };
                let named = name.is_empty() || kind.nth(1)?.split(',').any(|one| one == name);
                (group && named).then_some((root, mount))
            })?;
            let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
            Some(Path::new(mount).join(below.trim_start_matches('/')))
        };
        if let (Some(memory), pids, cpu) = (controller("memory"), controller("pids"), controller("cpu")) {
            return Self { memory: Some(memory), pids, cpu, newer: false };
        }
        let one = controller("");
        Self { memory: one.clone(), pids: one.clone(), cpu: one, newer: true }
    }

    /// Returns whether memory can be held at all.
    pub(super) fn memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Makes the groups of one cage. `None` when this process may make none.
    pub(super) fn make(&self, name: &str, held: &Held) -> io::Result<Option<Groups>> {
        if !self.memory() && !self.pids() {
            return Ok(None);
        }
        let below = |dir: &Option<PathBuf>| dir.as_ref().map(|dir| dir.join(name));
        let mut groups = Groups { memory: None, pids: None, cpu: None, newer: self.newer };
        let make = |dir: Option<PathBuf>| -> io::Result<Option<PathBuf>> {
            let Some(dir) = dir else { return Ok(None) };
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(Some(dir)),
            }
        };
        groups.memory = make(below(&self.memory))?;
        groups.pids = make(below(&self.pids))?;
        groups.cpu = if held.cpus.is_some() { make(below(&self.cpu))? } else { None };
        groups.hold(held)?;
        Ok(Some(groups))
    }
}

impl Groups {
    fn hold(&self, held: &Held) -> io::Result<()> {
        let set = |dir: &Option<PathBuf>, file: &str, value: String| -> io::Result<()> {
            match dir {
                Some(dir) => fs::write(dir.join(file), value),
                None => Ok(()),
            }
        };
        let (memory, pids) = (held.memory.to_string(), held.pids.to_string());
        if self.newer {
            set(&self.memory, "memory.max", memory)?;
            // Absent where there is no swap to forbid.
            let _ = set(&self.memory, "memory.swap.max", "0".to_owned());
            let _ = set(&self.memory, "memory.oom.group", "0".to_owned());
        } else {
            set(&self.memory, "memory.limit_in_bytes", memory.clone())?;
            let _ = set(&self.memory, "memory.memsw.limit_in_bytes", memory);
        }
        set(&self.pids, "pids.max", pids)?;
        if let Some(cpus) = held.cpus {
            let quota = u64::from(cpus) * 100;
            if self.newer {
                set(&self.cpu, "cpu.max", format!("{quota} 100000"))?;
            } else {
                set(&self.cpu, "cpu.cfs_period_us", "100000".to_owned())?;
                set(&self.cpu, "cpu.cfs_quota_us", quota.to_string())?;
            }
        }
        Ok(())
    }

    /// Opens the files by which a process of one thread joins, itself, with a `0`.
    ///
    /// In the older kind that is the file of threads: one that moves itself waits for nobody, where moving a process
    /// makes the kernel hold every fork on the machine, for some milliseconds.
    pub(super) fn joins(&self) -> io::Result<Vec<File>> {
        let name = if self.newer { "cgroup.procs" } else { "tasks" };
        self.directories().iter().map(|dir| File::options().write(true).open(dir.join(name))).collect()
    }

    fn directories(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = [&self.memory, &self.pids, &self.cpu].into_iter().flatten().cloned().collect();
        all.dedup();
        all
    }

    pub(super) fn counted(&self) -> Counted {
        let number = |dir: &Option<PathBuf>, file: &str, key: &str| -> u64 {
            let text = dir.as_ref().and_then(|dir| fs::read_to_string(dir.join(file)).ok()).unwrap_or_default();
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            found.unwrap_or(0)
        };
        let memory = if self.newer { "memory.events" } else { "memory.oom_control" };
        Counted {
            out_of_memory: number(&self.memory, memory, "oom_kill "),
            too_many: number(&self.pids, "pids.events", "max "),
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let busy: Vec<PathBuf> = self.directories().into_iter().filter(|dir| !remove(dir)).collect();
        if !busy.is_empty() {
            // Empty as soon as the kernel has buried the last process, which is waited for elsewhere: this may be a
            // thread that others need. What resists even so is swept when this process is dead.
            std::thread::spawn(move || busy.iter().for_each(|dir| remove_patiently(dir)));
        }
    }
}

/// Removes a group; returns whether it is gone, or will not be by trying again.
fn remove(dir: &Path) -> bool {
    let busy = Some(rustix::io::Errno::BUSY.raw_os_error());
    !fs::remove_dir(dir).is_err_and(|error| error.raw_os_error() == busy)
}

fn remove_patiently(dir: &Path) {
    for _ in 0..1000 {
        if remove(dir) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Removes groups whose makers are dead, as told by their names.
pub(super) fn sweep(places: &Places, is_ours_and_dead: impl Fn(&str) -> bool) {
    for dir in [&places.memory, &places.pids, &places.cpu].into_iter().flatten() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(&is_ours_and_dead) {
                // One that is still in use stays for the next time.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Lets groups below this one have controllers; only possible when no process is left in it.
fn hand_down(dir: &Path) -> bool {
    let wanted = "+memory +pids +cpu";
    if fs::write(dir.join("cgroup.subtree_control"), wanted).is_ok() {
        return true;
    }
    // A group with processes cannot hand anything down: this process steps aside, if it is the only one.
    let aside = dir.join("ralph-host");
    let stepped = fs::create_dir(&aside).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    let own = std::process::id().to_string();
    stepped.and_then(|()| fs::write(aside.join("cgroup.procs"), own)).is_ok()
        && fs::write(dir.join("cgroup.subtree_control"), wanted).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mounts: &str, own: &str, want: [Option<&str>; 3], newer: bool) {
        let want = want.map(|path| path.map(PathBuf::from));
        let places = Places::read(mounts, own);
        assert_eq!((&[places.memory, places.pids, places.cpu], places.newer), (&want, newer));
    }

    #[test]
    fn places() {
        let older = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 25 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let own = "4:memory:/jobs/7\n3:pids:/\n2:cpu,cpuacct:/\n0::/\n";
        let want = ["/sys/fs/cgroup/memory/jobs/7", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu,cpuacct"];
        check(older, own, want.map(Some), false);
        let newer = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let want = [Some("/sys/fs/cgroup/user.slice/app.scope"); 3];
        check(newer, "0::/user.slice/app.scope\n", want, true);
        // A mount that shows only a part of the tree.
        let part = "30 25 0:26 /jobs/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        check(part, "4:memory:/jobs/7\n", [Some("/sys/fs/cgroup/memory"), None, None], false);
        check("", "", [None; 3], true);
    }

    #[test]
    fn counts() {
        let count = |out_of_memory, too_many| Counted { out_of_memory, too_many };
        assert_eq!(count(1, 1).since(count(1, 1)), None);
        assert_eq!(count(2, 1).since(count(1, 1)), Some(Limit::Memory));
        assert_eq!(count(1, 5).since(count(1, 1)), Some(Limit::Processes));
    }
}
