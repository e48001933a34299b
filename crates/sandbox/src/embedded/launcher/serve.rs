//! What process 1 does all its life: starts programs when the supervisor asks, lets the kernel reap, watches memory where
//! nobody else does, and ends, with everything in the cage, when the supervisor is gone.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::plan::{Limits, Plan};
use super::super::wire::{self, Word};
use super::watch::Watch;
use super::{keeper, sys};

pub(super) fn forever(ctl: &OwnedFd, plan: &Plan) {
    sys::ignore_children();
    let mut watch = Watch::new(plan);
    loop {
        let mut fds = [PollFd::new(ctl, PollFlags::IN)];
        let patience = watch.as_ref().map(|watch| Timespec::try_from(watch.rest()).expect("a short time"));
        let ready = poll(&mut fds, patience.as_ref());
        // Whether or not something else is to be done: requests must not keep us from looking.
        if let Some(watch) = &mut watch {
            watch.look(ctl);
        }
        match ready {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => match wire::receive(ctl.as_fd()) {
                Ok((bytes, _)) if bytes.is_empty() => return,
                Ok((_, descriptors)) => start(descriptors, &plan.limits),
                Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

/// Starts a keeper for what the supervisor asks to run.
fn start(descriptors: Vec<OwnedFd>, limits: &Limits) {
    let mut descriptors = descriptors.into_iter();
    let (Some(request), Some(line)) = (descriptors.next(), descriptors.next()) else { return };
    match sys::fork() {
        Ok(None) => keeper::main(request, &line, descriptors.collect(), limits),
        Ok(Some(_)) => (),
        Err(error) => {
            let word = Word::NotStarted(error.raw_os_error().unwrap_or(0));
            // A supervisor that has gone away meanwhile ends this cage anyway.
            let _ = wire::send(line.as_fd(), &word.bytes(), &[]);
        }
    }
}
