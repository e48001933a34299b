//! Attacks with single system calls that no program in a cage needs, one case each.
//!
//! The arguments are chosen so that the kernel would return a different error than the filter: the error then shows
//! which of the two refused. If the kernel would return the same error anyway, the control runs with every
//! capability.

use ralph_sandbox::embedded::IsolationMechanism::{Capabilities, InnerUser, NamespaceLimit, Seccomp};

use super::super::case::PayloadControl::{self, Host, IfSupported, Without};
use super::super::case::SandboxAttack;

/// Only the filter refuses the call.
const FILTER: PayloadControl = Without(&[Seccomp]);
/// The filter refuses the call, and so would the mechanisms behind it.
const FILTER_AND_CAPABILITIES: PayloadControl = Without(&[Seccomp, Capabilities, InnerUser]);

const fn call(id: &'static str, words: &'static str, control: PayloadControl) -> SandboxAttack {
    SandboxAttack::call(id, "a system call that no program inside needs", words, "EPERM", control)
}

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::call("KS-01.unshare", "a new user namespace", "call unshare 0x10000000", "EPERM", FILTER),
    SandboxAttack::call(
        "KS-01.clone",
        "a process in a new user namespace",
        "call clone 0x10000011 0 0 0 0",
        "EPERM",
        FILTER,
    ),
    SandboxAttack::call(
        "KS-01.clone3",
        "`clone3`, whose flags a filter cannot see",
        "call clone3 buf 0",
        "ENOSYS",
        FILTER,
    ),
    SandboxAttack::call(
        "KS-01.mix",
        "a user namespace hidden among harmless flags",
        "call unshare 0x10020600",
        "EPERM",
        FILTER,
    ),
    SandboxAttack::call("KS-01.setns", "entering another namespace", "call setns -1 0", "EPERM", FILTER),
    SandboxAttack::call(
        "KS-02.user",
        "the limit on user namespaces, without the filter",
        "call unshare 0x10000000",
        "ENOSPC",
        Without(&[NamespaceLimit]),
    )
    .without_walls(&[Seccomp]),
    SandboxAttack::call(
        "KS-02.mount",
        "the limit on mount namespaces, with every capability",
        "call unshare 0x00020000",
        "ENOSPC",
        Without(&[NamespaceLimit]),
    )
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::call(
        "KS-02.net",
        "the limit on network namespaces, with every capability",
        "call unshare 0x40000000",
        "ENOSPC",
        Without(&[NamespaceLimit]),
    )
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::call(
        "KS-02.pid",
        "the limit on PID namespaces, with every capability",
        "call unshare 0x20000000",
        "ENOSPC",
        Without(&[NamespaceLimit]),
    )
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::call(
        "KS-03.mount",
        "a new mount namespace",
        "call unshare 0x00020000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.cgroup",
        "a new cgroup namespace",
        "call unshare 0x02000000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.uts",
        "a new UTS namespace",
        "call unshare 0x04000000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.ipc",
        "a new IPC namespace",
        "call unshare 0x08000000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.pid",
        "a new PID namespace",
        "call unshare 0x20000000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.net",
        "a new network namespace",
        "call unshare 0x40000000",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call("KS-03.time", "a new time namespace", "call unshare 0x80", "EPERM", FILTER_AND_CAPABILITIES),
    SandboxAttack::call(
        "KS-03.clone",
        "a process in a new network namespace",
        "call clone 0x40000011 0 0 0 0",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    SandboxAttack::call(
        "KS-03.all",
        "all namespaces at once",
        "call unshare 0x6e020080",
        "EPERM",
        FILTER_AND_CAPABILITIES,
    ),
    call("KS-04.mount", "call mount bad s:/tmp s:tmpfs 0 0", FILTER),
    call("KS-04.umount2", "call umount2 s:/tmp 0x10000", FILTER),
    call("KS-04.pivot_root", "call pivot_root s:/nowhere s:/nowhere", FILTER_AND_CAPABILITIES),
    call("KS-04.open_tree", "call open_tree -100 s:/nowhere 0", FILTER),
    call("KS-04.open_tree_attr", "number 467 -100 s:/nowhere 0 0 0", FILTER),
    call("KS-04.move_mount", "call move_mount -1 s: -1 s: 0x44", FILTER_AND_CAPABILITIES),
    call("KS-04.fsopen", "call fsopen s:nofs 0", FILTER_AND_CAPABILITIES),
    call("KS-04.fsconfig", "call fsconfig -1 0 0 0 0", FILTER),
    call("KS-04.fsmount", "call fsmount -1 0 0", FILTER_AND_CAPABILITIES),
    call("KS-04.fspick", "call fspick -100 s:/nowhere 0", FILTER_AND_CAPABILITIES),
    call("KS-04.mount_setattr", "call mount_setattr -1 s: 0x40000000 buf 32", FILTER),
    call("KS-04.chroot", "call chroot s:/nowhere", FILTER),
    call("KS-05.setup", "call io_uring_setup 1 bad", IfSupported(&[Seccomp], "io_uring is disabled on the host")),
    call("KS-05.enter", "call io_uring_enter -1 0 0 0 0 0", FILTER),
    call(
        "KS-05.register",
        "call io_uring_register 1000 0 0 0",
        IfSupported(&[Seccomp], "io_uring is disabled on the host"),
    ),
    call("KS-06.bpf", "call bpf 0 buf 0x100000", FILTER),
    call("KS-06.perf", "call perf_event_open buf 0 0 -1 0x40000000", FILTER),
    call("KS-06.userfaultfd", "call userfaultfd 1", FILTER),
    call("KS-06.fanotify-init", "call fanotify_init 0x200 0", FILTER),
    call("KS-06.fanotify-mark", "call fanotify_mark -1 0x40000000 0 -1 0", FILTER),
    call("KS-08.kexec_load", "call kexec_load 0 100000 0 0xffff0000", Host),
    call("KS-08.kexec_file_load", "call kexec_file_load -1 -1 0 0 0x80000000", Host),
    call("KS-08.init_module", "call init_module bad 8 s:", Host),
    call("KS-08.finit_module", "call finit_module -1 s: 0x40000000", Host),
    call("KS-08.delete_module", "call delete_module s:ralph_no_such_module 0x800", Host),
    call("KS-08.reboot", "call reboot 1 2 3 0", FILTER_AND_CAPABILITIES),
    call("KS-08.swapon", "call swapon s:/nowhere 0x40000000", FILTER),
    call("KS-08.swapoff", "call swapoff s:/nowhere", Host),
    call("KS-08.acct", "call acct s:/nowhere/at/all", Host),
    call("KS-08.quotactl", "call quotactl 0x800000ff 0 0 0", FILTER),
    call("KS-08.quotactl_fd", "call quotactl_fd -1 0x80000000 0 0", FILTER),
    #[cfg(target_arch = "x86_64")]
    call("KS-08.iopl", "call iopl 9", FILTER),
    #[cfg(target_arch = "x86_64")]
    call("KS-08.ioperm", "call ioperm -1 2 1", FILTER),
    #[cfg(target_arch = "x86_64")]
    call("KS-08.modify_ldt", "call modify_ldt 77 0 0", FILTER),
    call("KS-08.syslog", "call syslog 10 0 0", Host),
    call("KS-08.settimeofday", "call settimeofday bad 0", FILTER),
    call("KS-08.clock_settime", "call clock_settime 0 bad", FILTER),
    call("KS-08.clock_adjtime", "call clock_adjtime 0 bad", FILTER),
    call("KS-08.adjtimex", "call adjtimex bad", FILTER),
    call("KS-08.sethostname", "call sethostname s:x -1", FILTER_AND_CAPABILITIES),
    call("KS-08.setdomainname", "call setdomainname s:x -1", FILTER_AND_CAPABILITIES),
    call("KS-09.keyctl", "call keyctl 9999 0 0 0 0", FILTER),
    call("KS-09.add_key", "call add_key bad bad 0 0 0", FILTER),
    call("KS-09.request_key", "call request_key bad bad 0 0", FILTER),
    call("KS-09.session", "call keyctl 0 -4 1 0 0", FILTER),
    call("KS-09.name_to_handle", "call name_to_handle_at -1 s:x buf buf 0x40000000", FILTER),
    call(
        "KS-09.open_by_handle",
        "call open_by_handle_at -1 bad 0",
        IfSupported(&[Seccomp], "the kernel refuses it first"),
    ),
    call("KS-15.kcmp", "call kcmp 999999 999999 0 0 0", FILTER),
    call("KS-15.pidfd_getfd", "call pidfd_getfd -1 0 0x40000000", FILTER),
    call("KS-15.process_madvise", "call process_madvise -1 0 0 0 0x40000000", FILTER),
    call("KS-15.process_mrelease", "call process_mrelease -1 0x40000000", FILTER),
    call("KS-15.migrate_pages", "call migrate_pages 999999 0 0 0", FILTER),
    call("KS-15.move_pages", "call move_pages 0 1 0 0 0 0x40000000", FILTER),
    call("KS-15.mbind", "call mbind 0x1000 4096 9999 0 0 0x40000000", FILTER),
    call("KS-15.set_mempolicy", "call set_mempolicy 9999 0 0", FILTER),
    call("KS-15.home_node", "call set_mempolicy_home_node 0 0 0 0x40000000", FILTER),
    call("KS-15.ioprio_set", "call ioprio_set 9999 0 0", FILTER),
    call("KS-15.memfd_secret", "call memfd_secret 0x40000000", FILTER),
    call("KS-15.lsm_set", "call lsm_set_self_attr 0 0 0 0x40000000", FILTER),
    call("KS-15.file_setattr", "call file_setattr -1 s:x 0 0 0x40000000", FILTER),
    call("KS-15.lookup_dcookie", "call lookup_dcookie 0 0 0", FILTER),
    call("KS-15.nfsservctl", "call nfsservctl 0 0 0", IfSupported(&[Seccomp], "the kernel refuses it first")),
    call("KS-15.personality", "call personality 0x0400000", FILTER),
    SandboxAttack::call("PR-10.TIOCSTI", "typing into the terminal", "call ioctl 0 0x5412 s:x", "EPERM", FILTER),
    SandboxAttack::call(
        "PR-10.high",
        "typing into the terminal, with a high bit set",
        "call ioctl 0 0x100005412 s:x",
        "EPERM",
        FILTER,
    ),
    SandboxAttack::call("PR-10.TIOCLINUX", "pasting into the console", "call ioctl 0 0x541c buf", "EPERM", FILTER),
    SandboxAttack::call("PR-10.TIOCSETD", "another line discipline", "call ioctl 0 0x5423 buf", "EPERM", FILTER),
    SandboxAttack::call("PR-10.TIOCCONS", "taking the console's output", "call ioctl 0 0x541d 0", "EPERM", FILTER),
    #[cfg(target_arch = "x86_64")]
    SandboxAttack::call(
        "KS-11.x32",
        "calls by their x32 numbers",
        "number 0x400000a5 bad 0 0 0 0",
        "ENOSYS",
        IfSupported(&[Seccomp], "this kernel has no x32 calls"),
    ),
    #[cfg(target_arch = "x86_64")]
    SandboxAttack::call(
        "KS-10.int80",
        "calls through the 32-bit entry",
        "old-call 20",
        "signal 31",
        IfSupported(&[Seccomp], "this kernel has no 32-bit calls"),
    ),
];
