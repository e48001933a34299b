//! Limits cages with the kernel's control groups: one group per cage where this user may create one, and `None` where
//! not.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::ResourceLimit;

/// The groups of one cage, removed when this value is dropped.
#[derive(Debug)]
pub(super) struct CageCgroups {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    is_v2: bool,
}

/// The limits of one cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CgroupLimits {
    pub(super) memory: u64,
    pub(super) pids: u64,
    /// Thousandths of a processor.
    pub(super) cpus: Option<u32>,
}

/// The groups below which this process may create others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupParents {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    is_v2: bool,
}

/// The limit events that the kernel has counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupEvents {
    oom_kills: u64,
    process_limit_hits: u64,
}

impl CgroupEvents {
    /// Returns which limit was reached since an earlier count.
    pub(super) fn limit_since(self, earlier: Self) -> Option<ResourceLimit> {
        if self.oom_kills > earlier.oom_kills {
            Some(ResourceLimit::Memory)
        } else if self.process_limit_hits > earlier.process_limit_hits {
            Some(ResourceLimit::Processes)
        } else {
            None
        }
    }
}

impl CgroupParents {
    /// Returns no parents: limits then hold without the kernel's groups.
    pub(super) fn none() -> Self {
        Self { memory: None, pids: None, cpu: None, is_v2: true }
    }

    /// Reads where the groups of this process are and whether it may create others below them.
    pub(super) fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut places = Self::read(&mounts, &own);
        for place in [&mut places.memory, &mut places.pids, &mut places.cpu] {
            *place = place.take().filter(|dir| may_write(dir));
        }
        if places.is_v2 && !places.memory.as_ref().is_some_and(|dir| delegate_controllers(dir)) {
            places = Self::none();
        }
        places
    }

    /// Decides from the content of `mountinfo` and `cgroup` alone.
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
            return Self { memory: Some(memory), pids, cpu, is_v2: false };
        }
        let one = controller("");
        Self { memory: one.clone(), pids: one.clone(), cpu: one, is_v2: true }
    }

    /// Returns whether memory can be limited.
    pub(super) fn memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Creates the groups of one cage. `None` when this process may create none.
    pub(super) fn make(&self, name: &str, limits: &CgroupLimits) -> io::Result<Option<CageCgroups>> {
        if !self.memory() && !self.pids() {
            return Ok(None);
        }
        let below = |dir: &Option<PathBuf>| dir.as_ref().map(|dir| dir.join(name));
        let mut groups = CageCgroups { memory: None, pids: None, cpu: None, is_v2: self.is_v2 };
        let make = |dir: Option<PathBuf>| -> io::Result<Option<PathBuf>> {
            let Some(dir) = dir else { return Ok(None) };
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(Some(dir)),
            }
        };
        groups.memory = make(below(&self.memory))?;
        groups.pids = make(below(&self.pids))?;
        groups.cpu = if limits.cpus.is_some() { make(below(&self.cpu))? } else { None };
        groups.apply_limits(limits)?;
        Ok(Some(groups))
    }
}

impl CageCgroups {
    fn apply_limits(&self, limits: &CgroupLimits) -> io::Result<()> {
        let set = |dir: &Option<PathBuf>, file: &str, value: String| -> io::Result<()> {
            match dir {
                Some(dir) => fs::write(dir.join(file), value),
                None => Ok(()),
            }
        };
        let (memory, pids) = (limits.memory.to_string(), limits.pids.to_string());
        if self.is_v2 {
            set(&self.memory, "memory.max", memory)?;
            // The file is absent on hosts without swap.
            let _ = set(&self.memory, "memory.swap.max", "0".to_owned());
            let _ = set(&self.memory, "memory.oom.group", "0".to_owned());
        } else {
            set(&self.memory, "memory.limit_in_bytes", memory.clone())?;
            let _ = set(&self.memory, "memory.memsw.limit_in_bytes", memory);
        }
        set(&self.pids, "pids.max", pids)?;
        if let Some(cpus) = limits.cpus {
            let quota = u64::from(cpus) * 100;
            if self.is_v2 {
                set(&self.cpu, "cpu.max", format!("{quota} 100000"))?;
            } else {
                set(&self.cpu, "cpu.cfs_period_us", "100000".to_owned())?;
                set(&self.cpu, "cpu.cfs_quota_us", quota.to_string())?;
            }
        }
        Ok(())
    }

    /// Opens the files to which a single-threaded process writes `0` to join the groups itself.
    ///
    /// In version 1 that is the file of threads: a thread that moves itself does not wait, whereas moving a process
    /// makes the kernel block every fork on the machine for some milliseconds.
    pub(super) fn open_join_files(&self) -> io::Result<Vec<File>> {
        let name = if self.is_v2 { "cgroup.procs" } else { "tasks" };
        self.directories().iter().map(|dir| File::options().write(true).open(dir.join(name))).collect()
    }

    fn directories(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = [&self.memory, &self.pids, &self.cpu].into_iter().flatten().cloned().collect();
        all.dedup();
        all
    }

    pub(super) fn events(&self) -> CgroupEvents {
        let number = |dir: &Option<PathBuf>, file: &str, key: &str| -> u64 {
            let text = dir.as_ref().and_then(|dir| fs::read_to_string(dir.join(file)).ok()).unwrap_or_default();
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            found.unwrap_or(0)
        };
        let memory = if self.is_v2 { "memory.events" } else { "memory.oom_control" };
        CgroupEvents {
            oom_kills: number(&self.memory, memory, "oom_kill "),
            process_limit_hits: number(&self.pids, "pids.events", "max "),
        }
    }
}

impl Drop for CageCgroups {
    fn drop(&mut self) {
        let busy: Vec<PathBuf> = self.directories().into_iter().filter(|dir| !remove(dir)).collect();
        if !busy.is_empty() {
            // A group becomes empty once the kernel has released its last process. A separate thread waits for that,
            // because this may be a thread of the async executor. A group that stays busy is removed by another process
            // after this one has ended.
            std::thread::spawn(move || busy.iter().for_each(|dir| remove_with_retries(dir)));
        }
    }
}

/// Removes a group; returns false if it is busy and worth another try.
fn remove(dir: &Path) -> bool {
    let busy = Some(rustix::io::Errno::BUSY.raw_os_error());
    !fs::remove_dir(dir).is_err_and(|error| error.raw_os_error() == busy)
}

fn remove_with_retries(dir: &Path) {
    for _ in 0..1000 {
        if remove(dir) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Removes groups whose owners are dead, according to their names.
pub(super) fn remove_dead_cgroups(places: &CgroupParents, is_ours_and_dead: impl Fn(&str) -> bool) {
    for dir in [&places.memory, &places.pids, &places.cpu].into_iter().flatten() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(&is_ours_and_dead) {
                // A group that is still in use stays until the next time.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Enables controllers for groups below this one; only possible when no process is left in it.
fn delegate_controllers(dir: &Path) -> bool {
    let wanted = "+memory +pids +cpu";
    if fs::write(dir.join("cgroup.subtree_control"), wanted).is_ok() {
        return true;
    }
    // A group with processes cannot delegate controllers: this process moves into a child group, if it is the only one.
    let own_group = dir.join("ralph-host");
    let created = fs::create_dir(&own_group).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    let own = std::process::id().to_string();
    created.and_then(|()| fs::write(own_group.join("cgroup.procs"), own)).is_ok()
        && fs::write(dir.join("cgroup.subtree_control"), wanted).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mounts: &str, own: &str, want: [Option<&str>; 3], newer: bool) {
        let want = want.map(|path| path.map(PathBuf::from));
        let places = CgroupParents::read(mounts, own);
        assert_eq!((&[places.memory, places.pids, places.cpu], places.is_v2), (&want, newer));
    }

    #[test]
    fn parents_are_found_in_both_versions() {
        let older = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 25 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let own = "4:memory:/jobs/7\n3:pids:/\n2:cpu,cpuacct:/\n0::/\n";
        let want = ["/sys/fs/cgroup/memory/jobs/7", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu,cpuacct"];
        check(older, own, want.map(Some), false);
        let newer = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let want = [Some("/sys/fs/cgroup/user.slice/app.scope"); 3];
        check(newer, "0::/user.slice/app.scope\n", want, true);
        // A mount that exposes only a part of the tree.
        let part = "30 25 0:26 /jobs/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        check(part, "4:memory:/jobs/7\n", [Some("/sys/fs/cgroup/memory"), None, None], false);
        check("", "", [None; 3], true);
    }

    #[test]
    fn new_events_name_the_limit_that_was_reached() {
        let count = |out_of_memory, too_many| CgroupEvents { oom_kills: out_of_memory, process_limit_hits: too_many };
        assert_eq!(count(1, 1).limit_since(count(1, 1)), None);
        assert_eq!(count(2, 1).limit_since(count(1, 1)), Some(ResourceLimit::Memory));
        assert_eq!(count(1, 5).limit_since(count(1, 1)), Some(ResourceLimit::Processes));
    }
}
