//! Controls a running cage: the launcher's process, the socket to it, its directories and its egress sockets.
//! Dropping it ends the cage with everything in it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;

use super::cage_owner_processes::CagePidFile;
use super::cgroup::{CageCgroups, CgroupEvents};
use super::disk_watch::DiskWatch;
use super::egress_sockets::sort_sockets;
use super::launcher_process::LauncherProcess;
use super::launcher_protocol::{self, LauncherMessage};
use crate::files::RootDir;
use crate::{EgressServer, Error, ResourceLimit, ServeGuard};

/// How long a cage may take to build; a host that is slower than this has a fault.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long process 1 may take to exit by itself.
const EXIT_GRACE: Duration = Duration::from_secs(3);
/// How long a killed cage may take to disappear.
const END_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RunningCage {
    ctl: Arc<UnixStream>,
    child: tokio::sync::Mutex<Child>,
    /// The volumes in the order of the plan, as directories inside.
    pub(super) roots: Vec<Arc<RootDir>>,
    pub(super) landlock: u8,
    ended: watch::Receiver<bool>,
    limits_reached: Arc<Mutex<Vec<(Instant, ResourceLimit)>>>,
    /// The host resources that it holds until it has ended.
    host_resources: Mutex<Option<(Option<CageCgroups>, CagePidFile)>>,
    /// What the kernel had counted when its control groups were released.
    final_cgroup_events: Mutex<CgroupEvents>,
    /// The watch on its disk usage, if there is one.
    pub(super) disk: Option<Arc<DiskWatch>>,
    ending: AtomicBool,
    /// Keeps the egress sockets served while the cage exists.
    _egress_guard: Option<ServeGuard>,
}

impl RunningCage {
    /// Waits until a launcher has built its cage.
    pub(super) async fn build(
        id: &str,
        labels: &BTreeMap<String, String>,
        launched: LauncherProcess,
        volumes: usize,
        held: (Option<CageCgroups>, CagePidFile),
        disk: Option<Arc<DiskWatch>>,
        egress_server: Option<&dyn EgressServer>,
    ) -> Result<Self, Error> {
        let LauncherProcess { mut child, ctl } = launched;
        let failed = |step: &str, source: io::Error| Error::Cage { id: id.to_owned(), step: step.to_owned(), source };
        // Not a stream socket, but tokio waits for it in the same way.
        let ctl = UnixStream::from_std(ctl.into()).map_err(|source| failed("watch the launcher", source))?;
        let message = match tokio::time::timeout(BUILD_TIMEOUT, receive_message(&ctl)).await {
            Ok(Ok(message)) => message,
            Ok(Err(source)) => return Err(failed("receive from the launcher", source)),
            Err(_) => {
                // It may hang in the kernel, so do not wait for its death.
                let _ = child.start_kill();
                return Err(failed("receive from the launcher in time", io::ErrorKind::TimedOut.into()));
            }
        };
        let (landlock, sockets, mut descriptors) = match message {
            Some((LauncherMessage::Ready { landlock, sockets }, descriptors)) => (landlock, sockets, descriptors),
            Some((LauncherMessage::Failed { step, errno }, _)) => {
                return Err(failed(&step, io::Error::from_raw_os_error(errno)));
            }
            _ => return Err(failed("receive from the launcher", io::ErrorKind::UnexpectedEof.into())),
        };
        if descriptors.len() != volumes + sockets.len() {
            return Err(failed("receive from the launcher", io::ErrorKind::InvalidData.into()));
        }
        let listeners = descriptors.split_off(volumes);
        let roots = descriptors.into_iter().map(|fd| Arc::new(RootDir::new(id, fd))).collect();
        let egress_guard = match egress_server {
            Some(server) if !listeners.is_empty() => {
                let sorted = sort_sockets(sockets, listeners).map_err(|source| failed("serve the egress", source))?;
                Some(server.serve(id, labels, sorted).map_err(|source| failed("serve the egress", source))?)
            }
            _ => None,
        };
        let (ended_sender, ended) = watch::channel(false);
        let reached = Arc::new(Mutex::new(Vec::new()));
        let ctl = Arc::new(ctl);
        tokio::spawn(follow_messages(Arc::downgrade(&ctl), reached.clone(), ended_sender));
        let child = tokio::sync::Mutex::new(child);
        Ok(Self {
            ctl,
            child,
            roots,
            landlock,
            ended,
            limits_reached: reached,
            host_resources: Mutex::new(Some(held)),
            final_cgroup_events: Mutex::default(),
            disk,
            ending: AtomicBool::new(false),
            _egress_guard: egress_guard,
        })
    }

    /// Returns whether commands can still be started.
    pub(super) fn is_running(&self) -> bool {
        !*self.ended.borrow() && !self.ending.load(Ordering::Acquire)
    }

    /// Waits until the cage has ended.
    pub(super) async fn wait_ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the sender is dropped, which also means that the cage has ended.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Sends a request to process 1.
    pub(super) async fn send_request(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            self.ctl.writable().await?;
            match self
                .ctl
                .try_io(Interest::WRITABLE, || launcher_protocol::send(self.ctl.as_fd(), b"start", descriptors))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                sent => return sent,
            }
        }
    }

    pub(super) fn cgroup_events(&self) -> CgroupEvents {
        let held = self.host_resources.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_ref() {
            Some((groups, _)) => groups.as_ref().map(CageCgroups::events).unwrap_or_default(),
            None => *self.final_cgroup_events.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Releases the host resources of the cage. Commands that have not noticed its end yet must not keep them.
    fn release(&self) {
        *self.final_cgroup_events.lock().unwrap_or_else(PoisonError::into_inner) = self.cgroup_events();
        drop(self.host_resources.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Records a limit that the supervisor has seen reached.
    pub(super) fn record_limit(&self, limit: ResourceLimit) {
        record_limit(&self.limits_reached, limit);
    }

    /// Returns the limit that was reached since a point in time, if any.
    pub(super) fn limit_reached_since(&self, since: Instant, counted: CgroupEvents) -> Option<ResourceLimit> {
        let noted = self.limits_reached.lock().unwrap_or_else(PoisonError::into_inner);
        // A reached memory limit explains more than a full process table.
        let noted = noted.iter().filter(|(at, _)| *at >= since).map(|(_, limit)| *limit);
        let strongest = noted.min_by_key(|limit| match limit {
            ResourceLimit::Disk => 0,
            ResourceLimit::Memory => 1,
            ResourceLimit::Processes => 2,
        });
        strongest.or_else(|| self.cgroup_events().limit_since(counted))
    }

    /// Ends the cage at once, with everything in it, and waits until it has disappeared.
    pub(super) async fn end(&self) {
        self.ending.store(true, Ordering::Release);
        let mut child = self.child.lock().await;
        // Process 1 sees its socket closed and exits, which ends every process in the cage. The outer process waits for
        // that, so its exit shows that all are gone; killing it would show nothing.
        let _ = shutdown(&*self.ctl, Shutdown::Write);
        if tokio::time::timeout(EXIT_GRACE, child.wait()).await.is_err() {
            let _ = child.start_kill();
            let _ = tokio::time::timeout(END_TIMEOUT, child.wait()).await;
        }
        let _ = tokio::time::timeout(END_TIMEOUT, self.wait_ended()).await;
        if let Some(disk) = self.disk.clone() {
            // If the count fails, the excess is not recorded.
            let _ = tokio::task::spawn_blocking(move || disk.save_excess()).await;
        }
        self.release();
    }
}

impl Drop for RunningCage {
    fn drop(&mut self) {
        if let Ok(mut child) = self.child.try_lock() {
            // Usually it has exited already; otherwise the closed socket ends it as well.
            let _ = child.start_kill();
        }
    }
}

/// Records that a limit was reached just now, replacing an earlier record of the same limit.
fn record_limit(reached: &Mutex<Vec<(Instant, ResourceLimit)>>, limit: ResourceLimit) {
    let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
    reached.retain(|(_, noted)| *noted != limit);
    reached.push((Instant::now(), limit));
}

/// Receives one message; `None` when the launcher is gone.
async fn receive_message(ctl: &UnixStream) -> io::Result<Option<(LauncherMessage, Vec<OwnedFd>)>> {
    // The last message can still be read after the error that reports the closed connection.
    let mut reset = false;
    loop {
        ctl.readable().await?;
        match ctl.try_io(Interest::READABLE, || launcher_protocol::receive(ctl.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !reset => reset = true,
            Ok((bytes, _)) if bytes.is_empty() => return Ok(None),
            received => {
                let (bytes, descriptors) = received?;
                return Ok(Some((serde_json::from_slice(&bytes)?, descriptors)));
            }
        }
    }
}

/// Handles the messages of process 1 until it is gone.
async fn follow_messages(
    ctl: std::sync::Weak<UnixStream>,
    reached: Arc<Mutex<Vec<(Instant, ResourceLimit)>>>,
    ended: watch::Sender<bool>,
) {
    // Only the owner holds the socket permanently: when it drops it, the launcher must see the socket close.
    while let Some(ctl) = ctl.upgrade() {
        let received = tokio::time::timeout(Duration::from_millis(200), receive_message(&ctl)).await;
        drop(ctl);
        match received {
            Err(_) => (),
            Ok(Ok(Some((LauncherMessage::Limit { processes, .. }, _)))) => {
                let limit = if processes { ResourceLimit::Processes } else { ResourceLimit::Memory };
                record_limit(&reached, limit);
            }
            Ok(_) => break,
        }
    }
    let _ = ended.send(true);
}

/// Returns whether a path of the sandbox is in the exchange directory, and the path below its volume.
pub(super) fn split_exchange_path<'a>(path: &'a Path, exchange: &Path) -> (bool, &'a Path) {
    match path.strip_prefix(exchange) {
        Ok(below) => (true, if below.as_os_str().is_empty() { Path::new(".") } else { below }),
        Err(_) => (false, path),
    }
}
