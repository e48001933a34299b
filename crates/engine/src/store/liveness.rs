//! Detects whether a process works on a run, without side effects.
//!
//! The process that works on a run listens on its control socket, and the kernel refuses connections once it does not.
//! The lock is left alone: trying it means taking it for a moment, in which a process that opens the run would fail.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect};

use super::RunFolder;

/// Returns a path to the control socket that is short enough for a socket address (about 100 bytes), and the folder's
/// descriptor that the path goes through.
pub(crate) fn short_socket_path(folder: &RunFolder) -> io::Result<(Option<File>, PathBuf)> {
    if cfg!(target_os = "linux") {
        let dir = File::open(folder.path())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd()));
        return Ok((Some(dir), path));
    }
    Ok((None, folder.socket_path()))
}

pub(super) fn is_listening(folder: &RunFolder) -> bool {
    let probe = || -> io::Result<()> {
        let (_dir, path) = short_socket_path(folder)?;
        let address = SocketAddrUnix::new(&path)?;
        match connect(probe_socket()?, &address) {
            // The backlog is full, so a process is listening.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    };
    probe().is_ok()
}

/// Returns a socket that never blocks and is not inherited by programs started meanwhile.
#[cfg(target_os = "linux")]
fn probe_socket() -> rustix::io::Result<OwnedFd> {
    use rustix::net::{SocketFlags, socket_with};
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

#[cfg(not(target_os = "linux"))]
fn probe_socket() -> rustix::io::Result<OwnedFd> {
    let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&probe, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    Ok(probe)
}
