//! Process 1 of a cage, from its first breath to the loop it spends its life in.

use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::system::sethostname;

use super::super::plan::{Birth, Plan, Wall};
use super::super::wire::{self, Said};
use super::fault::{At as _, Fault, fault};
use super::helper::report;
use super::{NAME, network, root, serve, sys, walls};

/// Builds the cage and serves in it. The process is the first of its namespaces and never returns.
pub(super) fn main(ctl: &OwnedFd, birth: &Birth, go: PipeReader) -> ! {
    match build(ctl, birth, go) {
        Ok(Some(plan)) => serve::forever(ctl, &plan),
        Ok(None) => sys::exit(0),
        Err(fault) => report(ctl, &fault),
    }
    sys::exit(125)
}

/// Returns the plan it has built, or nothing when nobody wants a cage any more.
fn build(ctl: &OwnedFd, birth: &Birth, mut go: PipeReader) -> Result<Option<Plan>, Fault> {
    let mut word = [0];
    if go.read(&mut word).at("wait for the users' numbers")? == 0 {
        return Err(fault("wait for the users' numbers", "they were not given"));
    }
    rustix::thread::set_name(c"ralph-init").at("take a name")?;
    if birth.ids.apart() {
        sys::leave_groups().at("leave the host's groups")?;
    }
    // What needs no plan is done while it is made.
    if birth.network {
        network::up()?;
    }
    let filters = walls::filters().map_err(std::io::Error::other).at("write the filters on system calls")?;
    let (_, descriptors) = wire::receive(ctl).at("wait for the plan")?;
    let mut descriptors = descriptors.into_iter();
    let Some(plan) = descriptors.next() else { return Ok(None) };
    let plan = wire::unsealed(plan).at("read the plan")?;
    let plan: Plan = serde_json::from_slice(&plan).map_err(std::io::Error::from).at("read the plan")?;
    let has = |wall: Wall| !plan.without.contains(&wall);
    for mut group in descriptors.map(File::from) {
        group.write_all(b"0").at("join a control group")?;
    }
    sethostname(plan.hostname.as_bytes()).at("set the host name")?;
    let volumes = root::build(&plan)?;
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
    let landlock = walls::stand(&plan, &filters)?;
    let kinds = sockets.iter().map(|(kind, _)| *kind).collect();
    let fds: Vec<BorrowedFd<'_>> =
        volumes.iter().map(File::as_fd).chain(sockets.iter().map(|(_, socket)| socket.as_fd())).collect();
    let ready = serde_json::to_vec(&Said::Ready { landlock, sockets: kinds }).map_err(std::io::Error::from);
    wire::send(ctl.as_fd(), &ready.at("say that the cage stands")?, &fds).at("say that the cage stands")?;
    debug_assert!(ctl.as_raw_fd() == 0 && NAME.len() < 16);
    Ok(Some(plan))
}

/// Returns whether the helper lives, which holds the other end of this pipe for as long as it does.
fn has_helper(go: &PipeReader) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(go, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).map(|ended| ended == 0)
}
