//! Process 1 of a cage, from its first breath to the loop it spends its life in.

use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::system::sethostname;

use super::super::launcher_protocol::{self, LauncherMessage};
use super::super::plan::{CagePlan, LauncherConfig};
use super::outer_process::report_failure;
use super::step_error::{StepContext as _, StepError, step_error};
use super::{LAUNCHER_NAME, confinement, network, request_loop, root_builder, sys};
use crate::isolation_mechanism::IsolationMechanism;

/// Builds the cage and serves in it. The process is the first of its namespaces and never returns.
pub(super) fn main(ctl: &OwnedFd, birth: &LauncherConfig, go: PipeReader) -> ! {
    match build(ctl, birth, go) {
        Ok(Some(plan)) => request_loop::run(ctl, &plan),
        Ok(None) => sys::exit(0),
        Err(fault) => report_failure(ctl, &fault),
    }
    sys::exit(125)
}

/// Returns the plan it has built, or nothing when nobody wants a cage any more.
fn build(ctl: &OwnedFd, birth: &LauncherConfig, mut go: PipeReader) -> Result<Option<CagePlan>, StepError> {
    let mut word = [0];
    if go.read(&mut word).at_step("wait for the users' numbers")? == 0 {
        return Err(step_error("wait for the users' numbers", "they were not given"));
    }
    rustix::thread::set_name(c"ralph-init").at_step("take a name")?;
    if birth.ids.agent_differs() {
        sys::drop_groups().at_step("leave the host's groups")?;
    }
    // What needs no plan is done while it is made.
    if birth.network {
        network::bring_loopback_up()?;
    }
    let filters =
        confinement::seccomp_filters().map_err(std::io::Error::other).at_step("write the filters on system calls")?;
    let (_, descriptors) = launcher_protocol::receive(ctl).at_step("wait for the plan")?;
    let mut descriptors = descriptors.into_iter();
    let Some(plan) = descriptors.next() else { return Ok(None) };
    let plan = launcher_protocol::read_sealed(plan).at_step("read the plan")?;
    let plan: CagePlan = serde_json::from_slice(&plan).map_err(std::io::Error::from).at_step("read the plan")?;
    let has = |wall: IsolationMechanism| !plan.without.contains(&wall);
    for mut group in descriptors.map(File::from) {
        group.write_all(b"0").at_step("join a control group")?;
    }
    sethostname(plan.hostname.as_bytes()).at_step("set the host name")?;
    let volumes = root_builder::build(&plan)?;
    let sockets = if has(IsolationMechanism::Network) { network::open_sockets(&plan.network)? } else { Vec::new() };
    confinement::enter_inner_user(
        &plan.ids,
        has(IsolationMechanism::InnerUser),
        has(IsolationMechanism::Capabilities),
    )?;
    confinement::drop_capabilities(has(IsolationMechanism::Capabilities))?;
    // The agent cannot look into this process, and neither can it follow the links in its `/proc` entry.
    let hidden =
        if has(IsolationMechanism::Dumpable) { DumpableBehavior::NotDumpable } else { DumpableBehavior::Dumpable };
    set_dumpable_behavior(hidden).at_step("hide the memory of process 1")?;
    set_parent_process_death_signal(Some(Signal::KILL)).at_step("die with the helper")?;
    if !is_helper_alive(&go).at_step("look for the helper")? {
        return Err(step_error("look for the helper", "it is gone already"));
    }
    let landlock = confinement::apply(&plan, &filters)?;
    let kinds = sockets.iter().map(|(kind, _)| *kind).collect();
    let fds: Vec<BorrowedFd<'_>> =
        volumes.iter().map(File::as_fd).chain(sockets.iter().map(|(_, socket)| socket.as_fd())).collect();
    let ready = serde_json::to_vec(&LauncherMessage::Ready { landlock, sockets: kinds }).map_err(std::io::Error::from);
    launcher_protocol::send(ctl.as_fd(), &ready.at_step("say that the cage stands")?, &fds)
        .at_step("say that the cage stands")?;
    debug_assert!(ctl.as_raw_fd() == 0 && LAUNCHER_NAME.len() < 16);
    Ok(Some(plan))
}

/// Returns whether the helper lives, which holds the other end of this pipe for as long as it does.
fn is_helper_alive(go: &PipeReader) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(go, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).map(|ended| ended == 0)
}
