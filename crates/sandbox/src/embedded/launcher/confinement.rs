//! Confines everything that runs in a cage: the inner user namespace, no capabilities, Landlock, seccomp.
//!
//! The restrictions are applied to process 1 once, and every process it starts inherits them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::super::plan::{AGENT_ID, CagePlan, IdMapping, RootBase};
use super::step_error::{StepContext as _, StepError, step_error};
use super::syscalls;
use crate::isolation_mechanism::IsolationMechanism;

/// Leaves the namespace that owns the mounts for one that owns nothing.
pub(super) fn enter_inner_user(ids: &IdMapping, wanted: bool, capabilities: bool) -> Result<(), StepError> {
    if ids.agent_differs() {
        // Only a cage without one of these two mechanisms still needs the capabilities: the inner namespace brings its
        // own.
        if !wanted || !capabilities {
            rustix::thread::set_keep_capabilities(true).at_step("keep capabilities")?;
        }
        syscalls::become_user(AGENT_ID, AGENT_ID).at_step("become the agent")?;
    }
    if !wanted {
        return Ok(());
    }
    syscalls::unshare_user().at_step("make the inner user namespace")?;
    // Changing the user makes a process's own `/proc` entry inaccessible to it.
    set_dumpable_behavior(DumpableBehavior::Dumpable).at_step("write the inner uid_map")?;
    let map = format!("{AGENT_ID} {} 1\n", ids.agent_outer_id());
    fs::write("/proc/self/setgroups", "deny").at_step("write the inner setgroups")?;
    fs::write("/proc/self/uid_map", &map).at_step("write the inner uid_map")?;
    fs::write("/proc/self/gid_map", &map).at_step("write the inner gid_map")
}

/// Drops all capabilities, for this process and all its descendants, and verifies that they are gone.
pub(super) fn drop_capabilities(wanted: bool) -> Result<(), StepError> {
    if !wanted {
        return keep_capabilities().at_step("keep capabilities");
    }
    let step = "drop capabilities";
    let held = capabilities(None).at_step(step)?;
    // Becoming the agent has cleared the effective set; it is needed once more to lock the capabilities.
    set_capabilities(None, CapabilitySets { effective: held.permitted, ..held }).at_step(step)?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits).at_step("lock the capabilities")?;
    syscalls::drop_bounding_set().at_step(step)?;
    rustix::thread::clear_ambient_capability_set().at_step(step)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).at_step(step)?;
    let left = capabilities(None).at_step(step)?;
    let status = fs::read_to_string("/proc/self/status").at_step(step)?;
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).map(str::trim);
    if left.effective.is_empty()
        && left.permitted.is_empty()
        && bounding.is_some_and(|set| set.trim_matches('0').is_empty())
    {
        Ok(())
    } else {
        Err(step_error(step, "some capabilities are left"))
    }
}

/// Keeps the capabilities, for a cage without this mechanism: every program has all capabilities that process 1 started
/// with.
fn keep_capabilities() -> rustix::io::Result<()> {
    let all = capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all })?;
    all.iter().try_for_each(|one| rustix::thread::configure_capability_in_ambient_set(one, true))
}

/// Applies Landlock and the seccomp filters; returns the version of Landlock, 0 if the kernel has none.
pub(super) fn apply(plan: &CagePlan, filters: &[BpfProgram]) -> Result<u8, StepError> {
    rustix::thread::set_no_new_privs(true).at_step("give up new privileges")?;
    let has = |mechanism: IsolationMechanism| !plan.without.contains(&mechanism);
    disable_core_dumps().at_step("limit core dumps")?;
    if let Some(most) = plan.limits.processors {
        limit_processors(most).at_step("limit the processors")?;
    }
    let version = if has(IsolationMechanism::Landlock) { syscalls::landlock_version() } else { 0 };
    if version > 0 {
        restrict_files(plan, version).map_err(io::Error::other).at_step("apply Landlock")?;
    }
    if has(IsolationMechanism::Seccomp) {
        let fixed = plan.limits.processors.map(|_| affinity_filter().map_err(io::Error::other));
        let fixed = fixed.transpose().at_step("write the filters on system calls")?;
        for filter in filters.iter().chain(&fixed) {
            seccompiler::apply_filter(filter).map_err(io::Error::other).at_step("apply the filters on system calls")?;
        }
    }
    Ok(version)
}

/// Keeps core dumps away from the host: most hosts pipe every core dump to a program that runs as root, and a limit
/// of 0 does not stop that. A limit of 1 does, and the seccomp filter prevents a lower one.
fn disable_core_dumps() -> rustix::io::Result<()> {
    match getrlimit(Resource::Core).maximum {
        // Already lower than that, and a hard limit cannot be raised.
        Some(0) => Ok(()),
        _ => setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) }),
    }
}

/// Restricts this process and its descendants to a part of the processors.
fn limit_processors(most: u32) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let mut set: CpuSet = sched_getaffinity(None)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    for cpu in allowed.iter().skip(usize::try_from(most).unwrap_or(usize::MAX).max(1)) {
        set.unset(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Restricts files as far as this kernel can; a weaker restriction than the kernel offers is a failure.
fn restrict_files(plan: &CagePlan, version: u8) -> Result<(), landlock::RulesetError> {
    let abi = match version {
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    };
    use landlock::Access as _;
    let all = AccessFs::from_all(abi);
    let look = AccessFs::from_read(abi);
    let nodes = AccessFs::MakeChar | AccessFs::MakeBlock;
    let own = all & !nodes & !BitFlags::from(AccessFs::IoctlDev);
    let device = (look | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev) & all;
    let mut set = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if abi >= ABI::V6 {
        set = set.scope(Scope::AbstractUnixSocket)?.scope(Scope::Signal)?;
    }
    let mut set = set.create()?;
    let mut allow = |path: &str, rights: BitFlags<AccessFs>| -> Result<(), landlock::RulesetError> {
        // A missing path needs no rule.
        let Ok(fd) = PathFd::new(path) else { return Ok(()) };
        let file = !fs::metadata(path).is_ok_and(|found| found.is_dir());
        let rights = if file { rights & AccessFs::from_file(abi) } else { rights };
        (&mut set).add_rule(PathBeneath::new(fd, rights)).map(drop)
    };
    match plan.base {
        // The names in the root directory are visible; this allows nothing below it.
        RootBase::Empty => allow("/", AccessFs::ReadDir.into())?,
        RootBase::Image { .. } => allow("/", own)?,
    }
    let system = ["/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var"];
    for path in system {
        allow(path, look)?;
    }
    // A rule also applies to mounts below its path, so they need no rule of their own.
    let covered = |target: &str| system.iter().any(|path| Path::new(target).starts_with(path));
    for bind in plan.binds.iter().filter(|bind| !bind.device && !covered(&bind.target)) {
        allow(&bind.target, look)?;
    }
    allow("/dev", device)?;
    // The memory of another process can be written there.
    allow("/proc", look)?;
    for scratch in plan.scratch.iter().filter(|scratch| scratch.target != "/dev") {
        allow(&scratch.target, own)?;
    }
    for volume in &plan.volumes {
        allow(&volume.target, own)?;
    }
    set.restrict_self()?;
    Ok(())
}

/// Returns the seccomp filters: one program for calls that seem missing and calls that are refused, since each program
/// costs its own compilation, and one for calls that succeed without an effect.
pub(super) fn seccomp_filters() -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompFilter::new(
        refused_syscalls()?,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        arch,
    )?;
    let refused: BpfProgram = refused.try_into()?;
    // Many programs turn off core dumps. The filter reports success without doing it, because they are off already.
    let kept = SeccompFilter::new(core_limit_rules()?, SeccompAction::Allow, SeccompAction::Errno(0), arch)?;
    Ok(vec![missing_syscalls_filter().into_iter().chain(refused).collect(), kept.try_into()?])
}

/// Returns the filter for a command whose processes may not look into or change each other: a program that a test starts
/// must not reach the test.
pub(super) fn separation_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let calls = [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
    ];
    let rules = calls.map(|call| (call, Vec::new())).into();
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.unsigned_abs()), arch)?.try_into()
}

/// Returns the filter that keeps processes from choosing other processors than they were given.
fn affinity_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules = BTreeMap::from([(libc::SYS_sched_setaffinity, Vec::new())]);
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.unsigned_abs()), arch)?.try_into()
}

/// Returns the rules for the calls that change the limit on core dumps.
fn core_limit_rules() -> Result<SeccompRules, seccompiler::BackendError> {
    let core = u64::from(libc::RLIMIT_CORE);
    let given = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let which = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, core)?;
    let rules = [(libc::SYS_prlimit64, vec![SeccompRule::new(vec![which, given])?])];
    let mut rules = BTreeMap::from(rules);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    rules.insert(libc::SYS_setrlimit, vec![rule(&[(0, SeccompCmpOp::Eq, core)])?]);
    Ok(rules)
}

/// Returns the part of the filter that answers as if a call did not exist; for other calls the next part decides.
///
/// `clone3` keeps its flags in memory, where no filter can read them; libraries fall back to `clone`. x32 calls have
/// other numbers for the same operations. Calls of another architecture are left to the next part, which kills the
/// process.
fn missing_syscalls_filter() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    const NUMBER: u32 = 0;
    const MACHINE: u32 = 4;
    const OURS: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // No call of another architecture has a number that large.
    const X32: u32 = 0x4000_0000;
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        sock_filter { code: LOAD, jt: 0, jf: 0, k: MACHINE },
        sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 4, k: OURS },
        sock_filter { code: LOAD, jt: 0, jf: 0, k: NUMBER },
        sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: clone3 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: ERRNO | libc::ENOSYS.unsigned_abs() },
    ]
}

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the refused calls; an empty list of rules means always.
fn refused_syscalls() -> Result<SeccompRules, seccompiler::BackendError> {
    let mut rules: SeccompRules = ALWAYS_REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt].map(|call| (call, Vec::new())));
    let any_namespace = NAMESPACE_FLAGS.iter().map(|flag| rule(&[(0, SeccompCmpOp::MaskedEq(*flag), *flag)]));
    let any_namespace = any_namespace.collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_unshare, any_namespace.clone());
    rules.insert(libc::SYS_clone, any_namespace);
    // The kernel uses only the low half of the command, so only that is compared.
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD, libc::TIOCCONS];
    let terminal = terminal.iter().map(|command| rule(&[(1, SeccompCmpOp::Eq, *command & 0xffff_ffff)]));
    rules.insert(libc::SYS_ioctl, terminal.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, socket_rules()?);
    // A socket pair must not get around the rules for sockets.
    rules.insert(libc::SYS_socketpair, vec![rule(&[(0, SeccompCmpOp::Ne, u64::from(libc::AF_UNIX.unsigned_abs()))])?]);
    let plain = [0, 8, 0xffff_ffff].map(|kind| (0, SeccompCmpOp::Ne, kind));
    rules.insert(libc::SYS_personality, vec![rule(&plain)?]);
    Ok(rules)
}

/// Returns the rules for sockets: only IP, Unix sockets, and netlink for routes are allowed.
fn socket_rules() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const KIND: u64 = 0xf;
    let number = |number: i32| u64::from(number.unsigned_abs());
    let (unix, inet, inet6) = (number(libc::AF_UNIX), number(libc::AF_INET), number(libc::AF_INET6));
    let netlink = number(libc::AF_NETLINK);
    let mut rules = vec![
        rule(&[unix, inet, inet6, netlink].map(|family| (0, SeccompCmpOp::Ne, family)))?,
        rule(&[(0, SeccompCmpOp::Eq, netlink), (2, SeccompCmpOp::Ne, number(libc::NETLINK_ROUTE))])?,
    ];
    // Streams, datagrams and pings: for other protocols one call would load whole kernel modules.
    let plain =
        [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6, libc::IPPROTO_MPTCP];
    for family in [inet, inet6] {
        let others = plain.iter().map(|protocol| (2, SeccompCmpOp::Ne, number(*protocol)));
        rules.push(rule(&[(0, SeccompCmpOp::Eq, family)].into_iter().chain(others).collect::<Vec<_>>())?);
        for kind in [libc::SOCK_RAW, SOCK_PACKET] {
            rules.push(rule(&[(0, SeccompCmpOp::Eq, family), (1, SeccompCmpOp::MaskedEq(KIND), number(kind))])?);
        }
    }
    Ok(rules)
}

fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, op, value)| SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// An obsolete socket type that receives whole packets.
const SOCK_PACKET: i32 = 10;

const NAMESPACE_FLAGS: [u64; 8] = [
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWCGROUP as u64,
    // The libc crate has no constant for time namespaces.
    0x80,
];

/// Calls that no program in a cage needs.
const ALWAYS_REFUSED: [i64; 60] = [
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    // Kernel internals and administration.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_lookup_dcookie,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    QUOTACTL_FD,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_nfsservctl,
    // Keys, which belong to no namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Files by handle, which bypass every path rule.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Internals of other processes, beyond what a debugger needs.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    PROCESS_MADVISE,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    SET_MEMPOLICY_HOME_NODE,
    // Not needed in a cage.
    libc::SYS_ioprio_set,
    libc::SYS_memfd_secret,
    LSM_SET_SELF_ATTR,
    FILE_SETATTR,
];

// Numbers that the libc crate does not define on every system; they are the same on all.
const KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") { 320 } else { 294 };
const QUOTACTL_FD: i64 = 443;
const PROCESS_MADVISE: i64 = 440;
const SET_MEMPOLICY_HOME_NODE: i64 = 450;
const LSM_SET_SELF_ATTR: i64 = 460;
const FILE_SETATTR: i64 = 469;
const OPEN_TREE_ATTR: i64 = 467;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_within_the_kernel_limit() {
        let filter = seccomp_filters().expect("filters").swap_remove(0);
        // The kernel accepts programs of at most 4096 steps.
        assert!(filter.len() > 100 && filter.len() < 4096, "{}", filter.len());
    }

    /// Interprets a filter program as the kernel does.
    fn answer(program: &[sock_filter], machine: u32, call: u32) -> Option<u32> {
        let (mut at, mut held) = (0, 0);
        loop {
            let step = program.get(at)?;
            let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
            at += 1 + match step.code {
                0x20 => {
                    held = match step.k {
                        0 => call,
                        4 => machine,
                        // All arguments are 0.
                        _ => 0,
                    };
                    0
                }
                0x05 => usize::try_from(step.k).ok()?,
                0x15 => jump(held == step.k),
                0x25 => jump(held > step.k),
                0x35 => jump(held >= step.k),
                0x54 => {
                    held &= step.k;
                    0
                }
                0x06 => return Some(step.k),
                _ => return None,
            };
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn filter_allows_refuses_and_kills_as_intended() {
        const HERE: u32 = 0xc000_003e;
        const I386: u32 = 0x4000_0003;
        const KILL: u32 = 0x8000_0000;
        const ALLOW: u32 = 0x7fff_0000;
        let errno = |errno: i32| 0x0005_0000 | errno.unsigned_abs();
        let filter = seccomp_filters().expect("filters").swap_remove(0);
        let check = |machine, call: i64, want| {
            let call = u32::try_from(call).expect("a number");
            assert_eq!(answer(&filter, machine, call), Some(want), "{machine:#x} {call:#x}");
        };
        check(HERE, libc::SYS_read, ALLOW);
        check(HERE, libc::SYS_clone, ALLOW);
        check(HERE, libc::SYS_clone3, errno(libc::ENOSYS));
        check(HERE, 0x4000_0000 | libc::SYS_read, errno(libc::ENOSYS));
        check(HERE, 0x4000_0000 | libc::SYS_mount, errno(libc::ENOSYS));
        check(HERE, libc::SYS_mount, errno(libc::EPERM));
        check(HERE, libc::SYS_bpf, errno(libc::EPERM));
        check(I386, libc::SYS_read, KILL);
        check(I386, libc::SYS_clone3, KILL);
    }
}
