//! Runs the process outside the cage: creates the namespaces, maps their user ids, and waits.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, setsid, umask, waitpid};

use super::super::launcher_protocol::{self, LauncherMessage};
use super::super::plan::{AGENT_ID, IdMapping, LauncherConfig};
use super::step_error::{StepContext as _, StepError};
use super::{init, syscalls};

/// Runs the launcher in a process that was started as one.
pub(in super::super) fn main() -> ExitCode {
    let Ok(ctl) = syscalls::take_inherited_fd(0) else { return ExitCode::from(125) };
    match launch(&ctl) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            report_failure(&ctl, &fault);
            ExitCode::from(125)
        }
    }
}

pub(super) fn report_failure(ctl: &OwnedFd, fault: &StepError) {
    let errno = fault.source.raw_os_error().unwrap_or(0);
    let step = if errno == 0 { fault.to_string() } else { fault.step.clone() };
    let message = serde_json::to_vec(&LauncherMessage::Failed { step, errno }).unwrap_or_default();
    // The supervisor may be gone, and then nobody receives the message.
    let _ = launcher_protocol::send(ctl.as_fd(), &message, &[]);
}

fn launch(ctl: &OwnedFd) -> Result<(), StepError> {
    syscalls::reset_signals();
    umask(Mode::from_raw_mode(0o077));
    // A session of its own: the supervisor alone handles Ctrl-C at its terminal.
    setsid().at_step("begin a session")?;
    let (config, _) = launcher_protocol::receive(ctl).at_step("wait for the launcher's configuration")?;
    if config.is_empty() {
        // The supervisor has closed the socket, so it expects no answer.
        return Ok(());
    }
    let config: LauncherConfig =
        serde_json::from_slice(&config).map_err(io::Error::from).at_step("read the configuration")?;
    if config.descriptors {
        syscalls::close_from(3).at_step("close inherited descriptors")?;
    }
    // When memory runs out on the host, the processes of a cage are killed first; all of them inherit this.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    let (wait, go) = io::pipe().at_step("make a pipe")?;
    let namespaces =
        if config.network { syscalls::NAMESPACES } else { syscalls::NAMESPACES & !syscalls::NETWORK_NAMESPACE };
    let Some(cage) = syscalls::clone(namespaces).at_step("make namespaces")? else {
        drop(go);
        init::main(ctl, &config, wait);
    };
    drop(wait);
    if let Err(fault) =
        write_id_maps(cage, config.ids).and_then(|()| io::Write::write_all(&mut &go, b"g").at_step("release the cage"))
    {
        // It would wait for a byte that is never sent.
        let _ = kill_process(cage, Signal::KILL);
        let _ = waitpid(Some(cage), WaitOptions::empty());
        return Err(fault);
    }
    // From here on the open pipe only shows that this process is alive.
    let _alive = go;
    loop {
        match waitpid(Some(cage), WaitOptions::empty()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno).at_step("wait for the cage"),
        }
    }
}

/// Writes the user and group id maps of the cage.
fn write_id_maps(cage: Pid, ids: IdMapping) -> Result<(), StepError> {
    let of = |name: &str| format!("/proc/{}/{name}", cage.as_raw_nonzero());
    let IdMapping { uid, gid, agent_uid, agent_gid } = ids;
    let map = |own: u32, agent: u32| {
        if ids.agent_differs() { format!("0 {own} 1\n{AGENT_ID} {agent} 1\n") } else { format!("0 {own} 1\n") }
    };
    if !ids.agent_differs() {
        // Without privileges on the host, the kernel requires that groups cannot be changed any more.
        fs::write(of("setgroups"), "deny").at_step("write setgroups")?;
    }
    fs::write(of("uid_map"), map(uid, agent_uid)).at_step("write uid_map")?;
    fs::write(of("gid_map"), map(gid, agent_gid)).at_step("write gid_map")
}
