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

use super::count::Usage;
use super::launcher::{COUNTER, NAME};
use super::plan::{Birth, Plan};
use super::wire;

/// The program that becomes the launcher.
#[derive(Debug)]
pub(super) struct Launcher {
    program: PathBuf,
    copy: OnceLock<OwnedFd>,
}

/// A launcher that was started, and the socket to it.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) child: Child,
    pub(super) ctl: OwnedFd,
}

impl Launched {
    /// Hands the launcher its plan and the files by which its cage joins control groups.
    pub(super) fn tell(&self, plan: &Plan, groups: &[File]) -> io::Result<()> {
        let plan = wire::sealed("plan", &serde_json::to_vec(plan)?)?;
        let descriptors: Vec<_> = std::iter::once(plan.as_fd()).chain(groups.iter().map(File::as_fd)).collect();
        wire::send(self.ctl.as_fd(), b"plan", &descriptors)
    }
}

impl Launcher {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, copy: OnceLock::new() }
    }

    /// Starts a launcher, which makes its namespaces and waits for its plan: meanwhile the plan is made.
    pub(super) fn start(&self, birth: Birth) -> io::Result<Launched> {
        let copy = self.copy()?;
        let (ctl, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // Theirs waits; ours is waited for together with everything else.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        let child = Command::new(format!("/proc/self/fd/{}", copy.as_raw_fd()))
            .arg0(NAME)
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        wire::send(ctl.as_fd(), &serde_json::to_vec(&birth)?, &[])?;
        Ok(Launched { child, ctl })
    }

    /// Lets a folder be counted by somebody who may look everywhere in it. To be called where waiting keeps nobody.
    pub(super) fn count(&self, folder: OwnedFd, most: u64) -> io::Result<Usage> {
        let output = std::process::Command::new(format!("/proc/self/fd/{}", self.copy()?.as_raw_fd()))
            .arg0(COUNTER)
            .arg(most.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(folder)
            .stderr(Stdio::null())
            .output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn copy(&self) -> io::Result<&OwnedFd> {
        if let Some(copy) = self.copy.get() {
            return Ok(copy);
        }
        let mut from = File::open(&self.program)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Newer kernels ask to be told that it is a program; older ones do not know the question.
        let fd = memfd_create(NAME, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(NAME, flags))?;
        let mut copy = File::from(fd);
        io::copy(&mut from, &mut copy)?;
        fcntl_add_seals(&copy, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        // Two that came here at once have made two copies, and one of them is enough.
        let _ = self.copy.set(copy.into());
        self.copy.get().ok_or_else(|| io::Error::other("the copy of the program is gone"))
    }
}
