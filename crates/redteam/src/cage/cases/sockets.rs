//! Attacks with socket families that reach other parts of the kernel, one case each.
//!
//! Most use a socket type that does not exist: the filter refuses the family anyway, and without it the kernel
//! returns an error before it would load a module for such a socket.

use ralph_sandbox::embedded::IsolationMechanism::{Capabilities, InnerUser, Seccomp};

use super::super::case::PayloadControl::{self, Without};
use super::super::case::SandboxAttack;

const FILTER: PayloadControl = Without(&[Seccomp]);
const FILTER_AND_CAPABILITIES: PayloadControl = Without(&[Seccomp, Capabilities, InnerUser]);

const fn family(id: &'static str, words: &'static str, control: PayloadControl) -> SandboxAttack {
    SandboxAttack::call(id, "a socket family that no program inside needs", words, "EPERM", control)
}

pub(super) const CASES: &[SandboxAttack] = &[
    family("KS-12.packet", "call socket 17 15 0", FILTER),
    family("KS-12.key", "call socket 15 15 2", FILTER),
    family("KS-12.rds", "call socket 21 15 0", FILTER),
    family("KS-12.can", "call socket 29 15 1", FILTER),
    family("KS-12.tipc", "call socket 30 15 0", FILTER),
    family("KS-12.bluetooth", "call socket 31 15 1", FILTER),
    family("KS-12.ax25", "call socket 3 15 0", FILTER),
    family("KS-12.alg", "call socket 38 15 0", FILTER),
    family("KS-12.vsock", "call socket 40 15 0", FILTER),
    family("KS-12.kcm", "call socket 41 15 0", FILTER),
    family("KS-12.qipcrtr", "call socket 42 15 0", FILTER),
    family("KS-12.smc", "call socket 43 15 0", FILTER),
    family("KS-12.xdp", "call socket 44 15 0", FILTER),
    family("KS-12.mctp", "call socket 45 15 0", FILTER),
    family("KS-12.unknown", "call socket 63 15 0", FILTER),
    family("KS-12.raw", "call socket 2 3 255", FILTER_AND_CAPABILITIES),
    family("KS-12.raw-flags", "call socket 2 0x80803 255", FILTER_AND_CAPABILITIES),
    family("KS-12.raw6", "call socket 10 3 255", FILTER_AND_CAPABILITIES),
    family("KS-12.inet-packet", "call socket 2 10 0x300", FILTER_AND_CAPABILITIES),
    family("KS-12.netlink-diag", "call socket 16 15 4", FILTER),
    family("KS-12.netlink-xfrm", "call socket 16 15 6", FILTER),
    family("KS-12.netlink-audit", "call socket 16 15 9", FILTER),
    family("KS-12.netlink-netfilter", "call socket 16 15 12", FILTER),
    family("KS-12.netlink-uevent", "call socket 16 15 15", FILTER),
    family("KS-12.netlink-generic", "call socket 16 15 16", FILTER),
    family("KS-12.netlink-crypto", "call socket 16 15 21", FILTER),
    family("KS-12.sctp", "call socket 2 15 132", FILTER),
    family("KS-12.sctp6", "call socket 10 15 132", FILTER),
    family("KS-12.dccp", "call socket 2 15 33", FILTER),
    family("KS-12.udplite", "call socket 2 15 136", FILTER),
    family("KS-12.l2tp", "call socket 2 15 115", FILTER),
    family("KS-12.pair-tipc", "call socketpair 30 15 0 buf", FILTER),
    family("KS-12.pair-inet", "call socketpair 2 15 0 buf", FILTER),
    family("KS-12.pair-vsock", "call socketpair 40 15 0 buf", FILTER),
    SandboxAttack::call(
        "KS-16.loopback",
        "taking the loopback down",
        "loopback-down",
        "EPERM",
        Without(&[Capabilities, InnerUser]),
    ),
];
