//! Starting the launcher: this very program again, from a sealed copy in memory.
//!
//! A copy, because what runs inside must never hold a way back to the file on the host (the program could be overwritten
//! through it), and because the file may be replaced by an upgrade while cages stand.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::process::{Child, Command};

use super::disk_usage::DiskUsage;
use super::launcher::{COUNTER_NAME, LAUNCHER_NAME};
use super::launcher_protocol;
use super::plan::{CagePlan, LauncherConfig};

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
    /// Hands the launcher its plan and the files by which its cage joins control groups.
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

    /// Starts a launcher, which makes its namespaces and waits for its plan: meanwhile the plan is made.
    pub(super) fn start(&self, birth: LauncherConfig) -> io::Result<LauncherProcess> {
        let copy = self.sealed_copy()?;
        let (ctl, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // Theirs waits; ours is waited for together with everything else.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        let child = Command::new(format!("/proc/self/fd/{}", copy.as_raw_fd()))
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        launcher_protocol::send(ctl.as_fd(), &serde_json::to_vec(&birth)?, &[])?;
        Ok(LauncherProcess { child, ctl })
    }

    /// Lets a folder be counted by somebody who may look everywhere in it. To be called where waiting keeps nobody.
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
        // Newer kernels ask to be told that it is a program; older ones do not know the question.
        let fd =
            memfd_create(LAUNCHER_NAME, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(LAUNCHER_NAME, flags))?;
        let mut copy = File::from(fd);
        io::copy(&mut from, &mut copy)?;
        fcntl_add_seals(&copy, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        // Two that came here at once have made two copies, and one of them is enough.
        let _ = self.sealed_copy.set(copy.into());
        self.sealed_copy.get().ok_or_else(|| io::Error::other("the copy of the program is gone"))
    }
}
