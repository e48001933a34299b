//! Mounts the `/proc` of a cage: its own processes, and as little about the host as programs can work with. Also checks
//! the table of mounts before anything untrusted runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::root_builder::{FilesystemContext, PROC_RIGHTS, RootBuilder};
use super::step_error::{StepContext as _, StepError, step_error};

/// Entries that reveal the host or its keys, covered with an empty file or directory.
const COVERED_ENTRIES: [&str; 20] = [
    "acpi",
    "asound",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "kmsg",
    "latency_stats",
    "modules",
    "sched_debug",
    "scsi",
    "slabinfo",
    "softirqs",
    "timer_list",
    "vmallocinfo",
    "config.gz",
];

/// Entries that are mounted read-only.
const READ_ONLY_ENTRIES: [&str; 5] = ["sys", "irq", "bus", "fs", "sysrq-trigger"];

/// Namespaces of which no process in the cage may create another one.
const NAMESPACES: [&str; 7] = ["mnt", "net", "pid", "ipc", "uts", "cgroup", "time"];

/// The open files of the limits on namespaces, written once every mount is made: cloning a mount needs a namespace too.
pub(super) struct NamespaceLimits(Vec<(fs::File, &'static str)>);

impl NamespaceLimits {
    fn open(builder: &RootBuilder) -> Result<Self, StepError> {
        let root = builder.staging_path("/proc/sys/user");
        let open = |name: &str| fs::File::options().write(true).open(root.join(format!("max_{name}_namespaces")));
        // One more user namespace, the inner one, and none of any other kind.
        let mut caps = vec![(open("user").at_step("limit user namespaces")?, "1")];
        for name in NAMESPACES {
            match open(name) {
                // Older kernels have fewer kinds.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
                file => caps.push((file.at_step(format_args!("limit {name} namespaces"))?, "0")),
            }
        }
        Ok(Self(caps))
    }

    /// Sets the limits.
    pub(super) fn apply(self) -> Result<(), StepError> {
        self.0.into_iter().try_for_each(|(mut file, most)| file.write_all(most.as_bytes())).at_step("limit namespaces")
    }
}

pub(super) fn mount(builder: &mut RootBuilder, masks: bool, limit: bool) -> Result<Option<NamespaceLimits>, StepError> {
    let mount = FilesystemContext::new("proc", PROC_RIGHTS)?.mount()?;
    builder.attach("/proc", mount, true)?;
    // Opened before `/proc/sys` becomes read-only.
    let caps = if limit { Some(NamespaceLimits::open(builder)?) } else { None };
    if masks {
        for name in READ_ONLY_ENTRIES {
            builder.read_only(&format!("/proc/{name}"))?;
        }
        for name in COVERED_ENTRIES {
            builder.cover(&format!("/proc/{name}"))?;
        }
    }
    Ok(caps)
}

/// Checks the table of mounts: every mount is one we made, or is below one we bound.
pub(super) fn check_mounts(targets: &BTreeSet<PathBuf>) -> Result<(), StepError> {
    let step = "read the mounts back";
    let table = fs::read_to_string("/proc/self/mountinfo").at_step(step)?;
    let mut seen = BTreeSet::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (Some(target), Some(options)) = (words.nth(4), words.next()) else {
            return Err(step_error(step, "a line of mountinfo is too short"));
        };
        let target = PathBuf::from(target.replace("\\040", " "));
        let known = targets.contains(&target);
        if !known && !targets.iter().any(|ours| ours != Path::new("/") && target.starts_with(ours)) {
            return Err(step_error(step, format!("`{}` is mounted and should not be", target.display())));
        }
        if !options.split(',').any(|option| option == "nosuid") {
            return Err(step_error(step, format!("`{}` lets programs change their user", target.display())));
        }
        seen.insert(target);
    }
    match targets.iter().find(|target| !seen.contains(*target)) {
        Some(missing) => Err(step_error(step, format!("`{}` is not mounted", missing.display()))),
        None => Ok(()),
    }
}
