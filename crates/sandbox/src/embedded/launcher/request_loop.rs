//! Runs the main loop of process 1: starts programs on request, lets the kernel reap children, watches memory where no
//! control group does, and ends, with everything in the cage, when the supervisor is gone.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::launcher_protocol::{self, CommandMessage};
use super::super::plan::{CageLimits, CagePlan};
use super::memory_watch::MemoryWatch;
use super::{command_supervisor, syscalls};

pub(super) fn run(ctl: &OwnedFd, plan: &CagePlan) {
    syscalls::ignore_children();
    let mut watch = MemoryWatch::new(plan);
    loop {
        let mut fds = [PollFd::new(ctl, PollFlags::IN)];
        let timeout = watch.as_ref().map(|watch| Timespec::try_from(watch.time_until_check()).expect("a short time"));
        let ready = poll(&mut fds, timeout.as_ref());
        // Checked in every round, so that a stream of requests cannot prevent it.
        if let Some(watch) = &mut watch {
            watch.check(ctl);
        }
        match ready {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => match launcher_protocol::receive(ctl.as_fd()) {
                Ok((bytes, _)) if bytes.is_empty() => return,
                Ok((_, descriptors)) => start_supervisor(descriptors, &plan.limits),
                Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

/// Starts a command supervisor for a requested program.
fn start_supervisor(descriptors: Vec<OwnedFd>, limits: &CageLimits) {
    let mut descriptors = descriptors.into_iter();
    let (Some(request), Some(line)) = (descriptors.next(), descriptors.next()) else { return };
    match syscalls::fork() {
        Ok(None) => command_supervisor::main(request, &line, descriptors.collect(), limits),
        Ok(Some(_)) => (),
        Err(error) => {
            let message = CommandMessage::NotStarted(error.raw_os_error().unwrap_or(0));
            // If the supervisor is gone meanwhile, the cage ends anyway.
            let _ = launcher_protocol::send(line.as_fd(), &message.bytes(), &[]);
        }
    }
}
