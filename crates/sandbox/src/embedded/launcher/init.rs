//! Process 1 of a cage, from its first breath to the loop it spends its life in.

use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::system::sethostname;

use super::super::plan::{Plan, Wall};
use super::super::wire::{self, Said};
use super::fault::{At as _, Fault, fault};
use super::helper::report;
use super::{NAME, network, root, serve, sys, walls};

/// Builds the cage and serves in it. The process is the first of its namespaces and never returns.
pub(super) fn main(ctl: &OwnedFd, plan: &Plan, groups: Vec<File>, go: PipeReader) -> ! {
    match build(ctl, plan, groups, go) {
        Ok(()) => serve::forever(ctl, plan),
        Err(fault) => report(ctl, &fault),
    }
    sys::exit(125)
}

fn build(ctl: &OwnedFd, plan: &Plan, groups: Vec<File>, mut go: PipeReader) -> Result<(), Fault> {
    let has = |wall: Wall| !plan.without.contains(&wall);
    let mut word = [0];
    if go.read(&mut word).at("wait for the users' numbers")? == 0 {
        return Err(fault("wait for the users' numbers", "they were not given"));
    }
    for mut group in groups {
        group.write_all(b"0").at("join a control group")?;
    }
    rustix::thread::set_name(c"ralph-init").at("take a name")?;
    if plan.ids.apart() {
        sys::leave_groups().at("leave the host's groups")?;
    }
    sethostname(plan.hostname.as_bytes()).at("set the host name")?;
    let volumes = root::build(plan)?;
    let sockets = if has(Wall::Network) { network::open(&plan.network)? } else { Vec::new() };
    walls::enter_inner_user(&plan.ids, has(Wall::InnerUser), has(Wall::Capabilities))?;
    walls::drop_capabilities(has(Wall::Capabilities))?;
    // The agent cannot look into this process, and neither can it follow the links in its `/proc` entry.
    let hidden = if has(Wall::Dumpable) { DumpableBehavior::NotDumpable } else { DumpableBehavior::Dumpable };
    set_dumpable_behavior(hidden).at("hide the memory of process 1")?;
    set_parent_process_death_signal(Some(Signal::KILL)).at("die with the helper")?;
    if !has_helper(&go).at("look for the helper")? {
        return Err(fault("look for the helper", "it is gone already"));
    }
    let landlock = walls::stand(plan)?;
    let kinds = sockets.iter().map(|(kind, _)| *kind).collect();
    let fds: Vec<BorrowedFd<'_>> =
        volumes.iter().map(File::as_fd).chain(sockets.iter().map(|(_, socket)| socket.as_fd())).collect();
    let ready = serde_json::to_vec(&Said::Ready { landlock, sockets: kinds }).map_err(std::io::Error::from);
    wire::send(ctl.as_fd(), &ready.at("say that the cage stands")?, &fds).at("say that the cage stands")?;
    debug_assert!(ctl.as_raw_fd() == 0 && NAME.len() < 16);
    Ok(())
}

/// Returns whether the helper lives, which holds the other end of this pipe for as long as it does.
fn has_helper(go: &PipeReader) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(go, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).map(|ended| ended == 0)
}
