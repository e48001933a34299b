//! Runs process 1 of a cage: builds the cage and then serves requests.

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
use super::{LAUNCHER_NAME, confinement, network, request_loop, root_builder, syscalls};
use crate::isolation_mechanism::IsolationMechanism;

/// Builds the cage and serves requests in it. The process is the first of its namespaces and never returns.
pub(super) fn main(ctl: &OwnedFd, config: &LauncherConfig, go: PipeReader) -> ! {
    match build(ctl, config, go) {
        Ok(Some(plan)) => request_loop::run(ctl, &plan),
        Ok(None) => syscalls::exit(0),
        Err(fault) => report_failure(ctl, &fault),
    }
    syscalls::exit(125)
}

/// Builds the cage and returns its plan, or nothing if the supervisor has closed its socket without sending a plan.
fn build(ctl: &OwnedFd, config: &LauncherConfig, mut go: PipeReader) -> Result<Option<CagePlan>, StepError> {
    let mut signal = [0];
    if go.read(&mut signal).at_step("wait for the id maps")? == 0 {
        return Err(step_error("wait for the id maps", "they were not written"));
    }
    rustix::thread::set_name(c"ralph-init").at_step("set the process name")?;
    limit_inotify();
    if config.ids.agent_differs() {
        syscalls::drop_groups().at_step("leave the host's groups")?;
    }
    // Done while the supervisor prepares the plan, because this does not need it.
    if config.network {
        network::bring_loopback_up()?;
    }
    let filters =
        confinement::seccomp_filters().map_err(std::io::Error::other).at_step("write the filters on system calls")?;
    let (_, descriptors) = launcher_protocol::receive(ctl).at_step("wait for the plan")?;
    let mut descriptors = descriptors.into_iter();
    let Some(plan) = descriptors.next() else { return Ok(None) };
    let plan = launcher_protocol::read_sealed(plan).at_step("read the plan")?;
    let plan: CagePlan = serde_json::from_slice(&plan).map_err(std::io::Error::from).at_step("read the plan")?;
    let has = |mechanism: IsolationMechanism| !plan.without.contains(&mechanism);
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
    // The agent can neither read the memory of this process nor follow the links in its `/proc` entry.
    let hidden =
        if has(IsolationMechanism::Dumpable) { DumpableBehavior::NotDumpable } else { DumpableBehavior::Dumpable };
    set_dumpable_behavior(hidden).at_step("hide the memory of process 1")?;
    set_parent_process_death_signal(Some(Signal::KILL)).at_step("die with the outer process")?;
    if !is_outer_process_alive(&go).at_step("check the outer process")? {
        return Err(step_error("check the outer process", "it is gone already"));
    }
    let landlock = confinement::apply(&plan, &filters)?;
    let kinds = sockets.iter().map(|(kind, _)| *kind).collect();
    let fds: Vec<BorrowedFd<'_>> =
        volumes.iter().map(File::as_fd).chain(sockets.iter().map(|(_, socket)| socket.as_fd())).collect();
    let ready = serde_json::to_vec(&LauncherMessage::Ready { landlock, sockets: kinds }).map_err(std::io::Error::from);
    launcher_protocol::send(ctl.as_fd(), &ready.at_step("report that the cage is ready")?, &fds)
        .at_step("report that the cage is ready")?;
    debug_assert!(ctl.as_raw_fd() == 0 && LAUNCHER_NAME.len() < 16);
    Ok(Some(plan))
}

/// Limits how much of the user's inotify instances and watches a cage can take: they count for the user's other programs
/// too. A kernel without these settings leaves them to the user's own limit.
fn limit_inotify() {
    const MAX_INSTANCES: u64 = 64;
    let watches = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok();
    let watches = watches.and_then(|text| text.trim().parse::<u64>().ok()).map(|all| all / 2);
    let _ = std::fs::write("/proc/sys/user/max_inotify_instances", MAX_INSTANCES.to_string());
    if let Some(watches) = watches {
        let _ = std::fs::write("/proc/sys/user/max_inotify_watches", watches.to_string());
    }
}

/// Returns whether the outer process is alive; it holds the other end of this pipe for as long as it lives.
fn is_outer_process_alive(go: &PipeReader) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(go, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).map(|ended| ended == 0)
}
