//! Starts the launcher: this program again, from a sealed copy in memory.
//!
//! A copy, because a process inside must never hold a reference to the file on the host (the program could be
//! overwritten through it), and because an upgrade may replace the file while cages run.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::process::{Child, Command};

use super::disk_usage::DiskUsage;
use super::launcher::{COUNTER_NAME, LAUNCHER_NAME};
use super::plan::{CagePlan, LauncherConfig};
use super::{launcher_protocol, transient_retry};

/// The program that becomes the launcher.
#[derive(Debug)]
pub(super) struct LauncherProgram {
    program: PathBuf,
    sealed_copy: OnceLock<OwnedFd>,
}

/// A launcher that was started, and the socket to it.
#[derive(Debug)]
pub(super) struct LauncherProcess {
    pub(super) child: Child,
    pub(super) ctl: OwnedFd,
}

impl LauncherProcess {
    /// Sends the launcher its plan and the files by which its cage joins control groups.
    pub(super) fn send_plan(&self, plan: &CagePlan, groups: &[File]) -> io::Result<()> {
        let plan = launcher_protocol::write_sealed("plan", &serde_json::to_vec(plan)?)?;
        let descriptors: Vec<_> = std::iter::once(plan.as_fd()).chain(groups.iter().map(File::as_fd)).collect();
        launcher_protocol::send(self.ctl.as_fd(), b"plan", &descriptors)
    }
}

impl LauncherProgram {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, sealed_copy: OnceLock::new() }
    }

    /// Starts a launcher, which creates its namespaces while the caller prepares the plan.
    pub(super) fn start(&self, config: LauncherConfig) -> io::Result<LauncherProcess> {
        let copy = self.sealed_copy()?;
        let (ctl, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // The launcher blocks on its end; ours is polled by the async executor.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        let child = Command::new(format!("/proc/self/fd/{}", copy.as_raw_fd()))
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        launcher_protocol::send(ctl.as_fd(), &serde_json::to_vec(&config)?, &[])?;
        Ok(LauncherProcess { child, ctl })
    }

    /// Counts a folder in a process that may read all of it. Blocks until that process has ended.
    pub(super) fn count_disk_usage(&self, folder: OwnedFd, most: u64) -> io::Result<DiskUsage> {
        let output = std::process::Command::new(format!("/proc/self/fd/{}", self.sealed_copy()?.as_raw_fd()))
            .arg0(COUNTER_NAME)
            .arg(most.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(folder)
            .stderr(Stdio::null())
            .output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn sealed_copy(&self) -> io::Result<&OwnedFd> {
        if let Some(copy) = self.sealed_copy.get() {
            return Ok(copy);
        }
        let mut from = File::open(&self.program)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Newer kernels want the flag for executable content; older ones do not know it.
        let fd =
            memfd_create(LAUNCHER_NAME, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(LAUNCHER_NAME, flags))?;
        let mut copy = File::from(fd);
        io::copy(&mut from, &mut copy)?;
        transient_retry::seal(&copy)?;
        // If two threads made a copy at the same time, one of them is dropped.
        let _ = self.sealed_copy.set(copy.into());
        self.sealed_copy.get().ok_or_else(|| io::Error::other("the copy of the program is gone"))
    }
}
