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
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::explicit;
use super::transparent;
use crate::context::ConnectionContext;
use crate::dns;
use crate::grant::ProxyGrant;
use crate::limits::ProxyLimits;
use crate::model_gateway::DrainTasks;
use crate::observer::{DecisionReason, EgressEntry, EgressEvent, EgressObserver};
use crate::reply::ProxyReply;
use crate::resolver::EgressResolver;
use crate::stream::{ActivityClock, ActivityStream};

const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The sockets of one sandbox, made inside its network namespace.
#[derive(Debug, Default)]
pub struct ListenerSockets {
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
pub struct ProxyHandle {
    context: Arc<ConnectionContext>,
    shutdown: ProxyShutdown,
    /// What serves the doors at the moment.
    serving: watch::Receiver<CancellationToken>,
}

/// How the service of one sandbox's doors is ended, and its end waited for, even after its guard is gone.
#[derive(Debug, Clone)]
pub struct ProxyShutdown {
    stop: CancellationToken,
    tasks: TaskTracker,
    drains: DrainTasks,
}

impl ProxyShutdown {
    /// Ends everything and waits until it has ended. Nothing is told afterwards: answers that are read on only for their
    /// count are charged by what was seen of them.
    pub async fn stop_and_wait(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        self.drains.abort_all().await;
    }

    /// Says whether nothing is left that could tell anything.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() && self.tasks.is_empty() && self.drains.is_empty()
    }
}

impl ProxyHandle {
    /// Changes the policy. Connections that it no longer allows are cut, synthetic addresses of such names forgotten.
    pub fn set_policy(&self, policy: Policy) {
        self.context.set_policy(policy);
    }

    /// Makes every stand-in worthless from now on; whoever uses one raises an alarm.
    pub fn revoke(&self) {
        self.context.credentials.revoke_phantoms();
    }

    /// Ends whatever serves the doors, as its death would: all connections are cut, and it is started anew.
    pub fn restart(&self) {
        let serving = self.serving.borrow();
        if !serving.is_cancelled() {
            self.context.observer.listeners_failed();
            serving.cancel();
        }
    }

    /// Returns the way to end everything and to wait for that.
    pub fn shutdown(&self) -> ProxyShutdown {
        self.shutdown.clone()
    }

    /// Ends everything and waits until it has ended.
    pub async fn close(self) {
        self.shutdown.stop_and_wait().await;
    }
}

impl Drop for ProxyHandle {
    /// What was lent stays lent: the next cage of the same sandbox is served on the same terms. Whoever made the terms
    /// takes it back.
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
    }
}

/// Serves the doors until the guard is dropped. It must be called within a tokio runtime.
pub fn serve(
    doors: ListenerSockets,
    terms: impl Into<ProxyGrant>,
    resolver: Arc<dyn EgressResolver>,
    notice: Arc<dyn EgressObserver>,
) -> io::Result<ProxyHandle> {
    serve_with_limits(ProxyLimits::default(), doors, terms, resolver, notice)
}

/// As [`serve`], with limits of the caller's choice.
pub fn serve_with_limits(
    limits: ProxyLimits,
    doors: ListenerSockets,
    terms: impl Into<ProxyGrant>,
    resolver: Arc<dyn EgressResolver>,
    notice: Arc<dyn EgressObserver>,
) -> io::Result<ProxyHandle> {
    Handle::try_current().map_err(io::Error::other)?;
    let context = Arc::new(ConnectionContext::new(limits, terms.into(), resolver, notice));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    // The first start fails here, in the caller's hands; later ones are tried again.
    let doors = Arc::new(doors);
    let first = ListenerTasks::open(&context, &stop, &doors)?;
    let (serving, watched) = watch::channel(first.stop.clone());
    let end = ProxyShutdown { stop: stop.clone(), tasks: tasks.clone(), drains: context.drains.clone() };
    let guard = ProxyHandle { context: Arc::clone(&context), shutdown: end, serving: watched };
    tasks.spawn(supervise(context, stop, doors, first, serving));
    tasks.close();
    Ok(guard)
}

/// Starts the doors anew when whoever serves them dies, until the sandbox ends.
async fn supervise(
    context: Arc<ConnectionContext>,
    stop: CancellationToken,
    doors: Arc<ListenerSockets>,
    first: ListenerTasks,
    serving: watch::Sender<CancellationToken>,
) {
    let mut hall = first;
    loop {
        let ended = hall.stop.clone();
        let why = tokio::select! {
            // First: the end of the sandbox is the end of whoever serves it too, and no death.
            biased;
            () = stop.cancelled() => None,
            () = ended.cancelled() => Some("whoever served them was ended".to_owned()),
            why = hall.wait_for_failure() => {
                // Who fails for this fails as soon as it is cut, and asks at once.
                context.observer.listeners_failed();
                Some(why)
            }
        };
        // It may have come between the two questions.
        let why = why.filter(|_| !stop.is_cancelled());
        hall.stop.cancel();
        hall.tasks.close();
        hall.tasks.wait().await;
        let Some(why) = why else { return };
        hall = loop {
            if stop.run_until_cancelled(sleep(RETRY_DELAY)).await.is_none() {
                return;
            }
            match ListenerTasks::open(&context, &stop, &doors) {
                Ok(hall) => break hall,
                Err(error) => tracing::warn!(%error, "the doors of a sandbox could not be opened anew"),
            }
        };
        // Nobody listens when the guard is gone, and then the loop ends at its next turn.
        serving.send_replace(hall.stop.clone());
        context.observer.observe(EgressEvent::Restarted { why });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    Explicit,
    Transparent,
    Dns,
}

/// Whoever serves the doors of one sandbox, and what that takes.
#[derive(Debug)]
struct ListenerTasks {
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The tasks that have to live for the doors to be open.
    vital: JoinSet<()>,
}

impl ListenerTasks {
    /// Takes copies of the sockets and serves them. All are taken over before the first is served: half a sandbox is
    /// none.
    fn open(context: &Arc<ConnectionContext>, stop: &CancellationToken, doors: &ListenerSockets) -> io::Result<Self> {
        let (stop, tasks) = (stop.child_token(), TaskTracker::new());
        let slots = Arc::new(Semaphore::new(context.limits.connections));
        let room = ListenerContext { slots, context: Arc::clone(context), stop: stop.clone(), tasks: tasks.clone() };
        let explicit = doors.explicit.iter().map(|listener| (ListenerKind::Explicit, listener));
        let transparent = doors.transparent.iter().map(|listener| (ListenerKind::Transparent, listener));
        let dns = doors.dns_tcp.iter().map(|listener| (ListenerKind::Dns, listener));
        let listeners: Vec<(ListenerKind, TcpListener)> = explicit
            .chain(transparent)
            .chain(dns)
            .map(|(door, listener)| {
                let listener = listener.try_clone()?;
                listener.set_nonblocking(true)?;
                Ok((door, TcpListener::from_std(listener)?))
            })
            .collect::<io::Result<_>>()?;
        let udp = doors.dns_udp.as_ref().map(|socket| {
            let socket = socket.try_clone()?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        });
        let mut vital = JoinSet::new();
        if let Some(socket) = udp.transpose()? {
            vital.spawn(dns::serve_udp(Arc::clone(context), socket));
        }
        for (door, listener) in listeners {
            vital.spawn(room.clone().accept_loop(door, listener));
        }
        Ok(Self { stop, tasks, vital })
    }

    /// Waits until one of the vital tasks has ended, which none does by itself.
    async fn wait_for_failure(&mut self) -> String {
        match self.vital.join_next().await {
            Some(Ok(())) => "a door stopped listening".to_owned(),
            Some(Err(error)) => format!("a door failed: {error}"),
            // A sandbox without doors has nothing that could die.
            None => std::future::pending().await,
        }
    }
}

/// What all doors of one sandbox share.
#[derive(Debug, Clone)]
struct ListenerContext {
    slots: Arc<Semaphore>,
    context: Arc<ConnectionContext>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl ListenerContext {
    /// Runs something until it ends or the sandbox does.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(work));
    }

    async fn accept_loop(self, door: ListenerKind, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.spawn_connection(door, stream),
                // Such as too many open files: waiting is all that helps.
                Err(error) => {
                    tracing::warn!(?door, %error, "could not accept a connection");
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    fn spawn_connection(&self, door: ListenerKind, stream: TcpStream) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.context.report_refused_text(EgressEntry::Unknown, "", 0, &DecisionReason::TooManyConnections);
            if door == ListenerKind::Explicit {
                let reply = ProxyReply::new(
                    hyper::StatusCode::SERVICE_UNAVAILABLE,
                    DecisionReason::TooManyConnections.to_string(),
                );
                // A fresh connection has room for a few bytes; whoever has none left is not waited for.
                stream.try_write(&reply.bytes()).ok();
            }
            return;
        };
        let context = Arc::clone(&self.context);
        self.spawn(async move {
            serve_connection(&context, door, stream).await;
            drop(slot);
        });
    }
}

async fn serve_connection(context: &Arc<ConnectionContext>, door: ListenerKind, stream: TcpStream) {
    // Only speed is lost without it.
    stream.set_nodelay(true).ok();
    let Ok(wanted) = stream.local_addr() else { return };
    let activity = ActivityClock::new();
    let client = ActivityStream::new(stream, activity.clone());
    let work = async {
        match door {
            ListenerKind::Explicit => explicit::serve(context, client).await,
            ListenerKind::Transparent => transparent::serve(context, client, wanted).await,
            ListenerKind::Dns => dns::serve_tcp(context, client).await,
        }
    };
    tokio::select! {
        () = work => (),
        () = activity.wait_idle(context.limits.idle_time) => (),
    }
}
