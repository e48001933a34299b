//! Attacks on what `/proc`, `/sys` and `/dev` reveal or allow to change.

use ralph_sandbox::embedded::IsolationMechanism::{Capabilities, InnerUser, ProcMasks, Seccomp};

use super::super::case::PayloadControl::{Host, IfSupported, Without};
use super::super::case::SandboxAttack;

const NOT_DISCLOSED: &str = "this kernel does not disclose it to any user";

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::line(
        "KS-18.sys",
        "the kernel's objects in /sys",
        "[ -e /sys/kernel ] || [ -e /sys/class ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-18.cgroup",
        "the control groups",
        "ls -A /sys/fs/cgroup 2>/dev/null | grep -q . && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-18.cgroup-fs",
        "a control group filesystem anywhere",
        "grep -q ' - cgroup' /proc/self/mountinfo && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-19.core_pattern",
        "the program that gets core dumps",
        "( : >> /proc/sys/kernel/core_pattern ) 2>/dev/null && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-19.modprobe",
        "the program that loads modules",
        "( : >> /proc/sys/kernel/modprobe ) 2>/dev/null && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-19.sysrq",
        "the SysRq trigger",
        "( : >> /proc/sysrq-trigger ) 2>/dev/null && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-19.swappiness",
        "how memory is used",
        "( : >> /proc/sys/vm/swappiness ) 2>/dev/null && echo GOT",
        Host,
    ),
    SandboxAttack::call(
        "KS-19.net",
        "the network's settings, with every capability",
        "call openat -100 s:/proc/sys/net/ipv4/ip_forward 1",
        "EROFS",
        Without(&[ProcMasks]),
    )
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::call(
        "KS-19.limits",
        "the limits on namespaces, with every capability",
        "call openat -100 s:/proc/sys/user/max_user_namespaces 1",
        "EROFS",
        Without(&[ProcMasks]),
    )
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::line(
        "KS-20.kallsyms",
        "the kernel's symbols",
        "[ -n \"$(head -c 16 /proc/kallsyms 2>/dev/null)\" ] && echo GOT",
        IfSupported(&[ProcMasks], NOT_DISCLOSED),
    ),
    SandboxAttack::line(
        "KS-20.key-users",
        "the kernel's list of keys",
        "[ -n \"$(head -c 16 /proc/key-users 2>/dev/null)\" ] && echo GOT",
        IfSupported(&[ProcMasks], NOT_DISCLOSED),
    ),
    SandboxAttack::line(
        "KS-20.interrupts",
        "the host's interrupts, which reveal keystrokes",
        "[ -n \"$(head -c 16 /proc/interrupts 2>/dev/null)\" ] && echo GOT",
        IfSupported(&[ProcMasks], NOT_DISCLOSED),
    ),
    SandboxAttack::line(
        "KS-20.softirqs",
        "the host's soft interrupts",
        "[ -n \"$(head -c 16 /proc/softirqs 2>/dev/null)\" ] && echo GOT",
        IfSupported(&[ProcMasks], NOT_DISCLOSED),
    ),
    SandboxAttack::line(
        "KS-20.config",
        "how the kernel was built",
        "[ \"$(head -c 16 /proc/config.gz 2>/dev/null | wc -c)\" = 16 ] && echo GOT",
        IfSupported(&[ProcMasks], NOT_DISCLOSED),
    ),
    SandboxAttack::line(
        "KS-20.kcore",
        "the host's memory",
        "[ -r /proc/kcore ] && [ \"$(head -c 16 /proc/kcore 2>/dev/null | wc -c)\" = 16 ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-20.timers",
        "the host's timers",
        "[ -n \"$(head -c 16 /proc/timer_list 2>/dev/null)\" ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-20.slabs",
        "the kernel's slab usage",
        "[ -n \"$(head -c 16 /proc/slabinfo 2>/dev/null)\" ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-20.vmalloc",
        "the kernel's memory layout",
        "[ -n \"$(head -c 16 /proc/vmallocinfo 2>/dev/null)\" ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-21.lsm",
        "rules of other security modules",
        "ls /sys/kernel/security 2>/dev/null | grep -q . && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-22.host-name",
        "the host's name",
        "[ \"$(cat /proc/sys/kernel/hostname)\" != ralph ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "KS-23.disks",
        "the host's disks by number",
        "for d in /dev/block /dev/disk /dev/mapper /dev/loop0; do [ -e $d ] && echo GOT $d; done; true",
        Host,
    ),
];
