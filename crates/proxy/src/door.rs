//! The doors of one sandbox: its listening sockets, who serves them, and who ends it.
//!
//! Which door a connection came by says which sandbox it is; nothing the client sends does. The sockets are made
//! elsewhere, inside the sandbox's own network; there is no port of the host here.

use std::io;
use std::net;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::policy::Policy;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::Limits;
use crate::notice::{Entry, Notice, Why};
use crate::pipeline::Pipeline;
use crate::reply::Reply;
use crate::resolve::Resolve;
use crate::stream::{Activity, Watched};
use crate::{dns, explicit, transparent};

const PAUSE: Duration = Duration::from_millis(50);

/// The sockets of one sandbox, made inside its network namespace.
#[derive(Debug, Default)]
pub struct Doors {
    /// For clients that know of a proxy: `CONNECT`, plain HTTP and SOCKS5 on one port.
    pub explicit: Option<net::TcpListener>,
    /// For clients that do not: a connection's local address is the one the client wanted.
    pub transparent: Vec<net::TcpListener>,
    pub dns_udp: Option<net::UdpSocket>,
    pub dns_tcp: Option<net::TcpListener>,
}

/// Keeps the doors of one sandbox open. Dropping it ends everything of this sandbox at once.
#[derive(Debug)]
#[must_use = "dropping the guard closes the doors"]
pub struct Guard {
    pipeline: Arc<Pipeline>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Guard {
    /// Changes the policy. Connections that it no longer allows are cut, synthetic addresses of such names forgotten.
    pub fn set_policy(&self, policy: Policy) {
        self.pipeline.set_policy(policy);
    }

    /// Ends everything and waits until it has ended.
    pub async fn close(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves the doors until the guard is dropped. It must be called within a tokio runtime.
pub fn serve(doors: Doors, policy: Policy, resolver: Arc<dyn Resolve>, notice: Arc<dyn Notice>) -> io::Result<Guard> {
    serve_within(Limits::default(), doors, policy, resolver, notice)
}

/// As [`serve`], with limits of the caller's choice.
pub fn serve_within(
    limits: Limits,
    doors: Doors,
    policy: Policy,
    resolver: Arc<dyn Resolve>,
    notice: Arc<dyn Notice>,
) -> io::Result<Guard> {
    Handle::try_current().map_err(io::Error::other)?;
    let pipeline = Arc::new(Pipeline::new(limits, policy, resolver, notice));
    let guard = Guard { pipeline: Arc::clone(&pipeline), stop: CancellationToken::new(), tasks: TaskTracker::new() };
    let hall = Hall {
        slots: Arc::new(Semaphore::new(limits.connections)),
        pipeline: Arc::clone(&pipeline),
        stop: guard.stop.clone(),
        tasks: guard.tasks.clone(),
    };
    // All sockets are taken over before the first is served: half a sandbox is none.
    let explicit = doors.explicit.into_iter().map(|listener| (Door::Explicit, listener));
    let transparent = doors.transparent.into_iter().map(|listener| (Door::Transparent, listener));
    let dns = doors.dns_tcp.into_iter().map(|listener| (Door::Dns, listener));
    let listeners: Vec<(Door, TcpListener)> = explicit
        .chain(transparent)
        .chain(dns)
        .map(|(door, listener)| {
            listener.set_nonblocking(true)?;
            Ok((door, TcpListener::from_std(listener)?))
        })
        .collect::<io::Result<_>>()?;
    let udp = doors.dns_udp.map(|socket| {
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    });
    if let Some(socket) = udp.transpose()? {
        hall.spawn(dns::udp(pipeline, socket));
    }
    for (door, listener) in listeners {
        hall.spawn(hall.clone().receive(door, listener));
    }
    guard.tasks.close();
    Ok(guard)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Explicit,
    Transparent,
    Dns,
}

/// What all doors of one sandbox share.
#[derive(Debug, Clone)]
struct Hall {
    slots: Arc<Semaphore>,
    pipeline: Arc<Pipeline>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Hall {
    /// Runs something until it ends or the sandbox does.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(work));
    }

    async fn receive(self, door: Door, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(door, stream),
                // Such as too many open files: waiting is all that helps.
                Err(error) => {
                    tracing::warn!(?door, %error, "could not accept a connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, door: Door, stream: TcpStream) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.pipeline.refused_text(Entry::Unknown, "", 0, &Why::Crowded);
            if door == Door::Explicit {
                let reply = Reply::new(hyper::StatusCode::SERVICE_UNAVAILABLE, Why::Crowded.to_string());
                // A fresh connection has room for a few bytes; whoever has none left is not waited for.
                stream.try_write(&reply.bytes()).ok();
            }
            return;
        };
        let pipeline = Arc::clone(&self.pipeline);
        self.spawn(async move {
            converse(&pipeline, door, stream).await;
            drop(slot);
        });
    }
}

async fn converse(pipeline: &Arc<Pipeline>, door: Door, stream: TcpStream) {
    // Only speed is lost without it.
    stream.set_nodelay(true).ok();
    let Ok(wanted) = stream.local_addr() else { return };
    let activity = Activity::new();
    let client = Watched::new(stream, activity.clone());
    let work = async {
        match door {
            Door::Explicit => explicit::serve(pipeline, client).await,
            Door::Transparent => transparent::serve(pipeline, client, wanted).await,
            Door::Dns => dns::tcp(pipeline, client).await,
        }
    };
    tokio::select! {
        () = work => (),
        () = activity.idle(pipeline.limits.idle_time) => (),
    }
}
