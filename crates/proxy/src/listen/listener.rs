//! Starts, supervises and stops the listeners of one sandbox.
//!
//! The listener that a connection came by says which sandbox it belongs to; nothing that the client sends does. The
//! sockets are made elsewhere, inside the sandbox's own network; no port of the host is opened here.

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
use crate::connection_context::ConnectionContext;
use crate::dns;
use crate::egress_events::{DecisionReason, EgressEntry, EgressEvent, EgressObserver};
use crate::grant::ProxyGrant;
use crate::limits::ProxyLimits;
use crate::model_gateway::DrainTasks;
use crate::refusal_reply::ProxyReply;
use crate::upstream_network::EgressResolver;
use crate::wrapped_streams::{ActivityClock, ActivityStream};

const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The sockets of one sandbox, made inside its network namespace.
#[derive(Debug, Default)]
pub struct ListenerSockets {
    /// For clients that are configured to use a proxy: `CONNECT`, plain HTTP and SOCKS5 on one port.
    pub explicit: Option<net::TcpListener>,
    /// For all other clients: a connection's local address is the one that the client wanted.
    pub transparent: Vec<net::TcpListener>,
    pub dns_udp: Option<net::UdpSocket>,
    pub dns_tcp: Option<net::TcpListener>,
}

/// Keeps the listeners of one sandbox open. Dropping it ends everything of this sandbox at once.
#[derive(Debug)]
#[must_use = "dropping the handle closes the listeners"]
pub struct ProxyHandle {
    context: Arc<ConnectionContext>,
    shutdown: ProxyShutdown,
    /// Stops the tasks that currently serve the listeners.
    serving: watch::Receiver<CancellationToken>,
}

/// Stops the listeners of one sandbox and waits for their end, even after the handle is gone.
#[derive(Debug, Clone)]
pub struct ProxyShutdown {
    stop: CancellationToken,
    tasks: TaskTracker,
    drains: DrainTasks,
}

impl ProxyShutdown {
    /// Stops everything and waits until it has ended. Nothing is reported afterwards: answers that are read only for
    /// their usage are charged by what was seen of them.
    pub async fn stop_and_wait(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        self.drains.abort_all().await;
    }

    /// Says whether no task is left that could report anything.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() && self.tasks.is_empty() && self.drains.is_empty()
    }
}

impl ProxyHandle {
    /// Changes the policy. Connections that it no longer allows are cut, synthetic addresses of such names forgotten.
    pub fn set_policy(&self, policy: Policy) {
        self.context.set_policy(policy);
    }

    /// Makes every phantom worthless from now on; using one raises an alarm.
    pub fn revoke(&self) {
        self.context.credentials.revoke_phantoms();
    }

    /// Ends the tasks that serve the listeners, as a failure would: all connections are cut, and the tasks are
    /// restarted.
    pub fn restart(&self) {
        let serving = self.serving.borrow();
        if !serving.is_cancelled() {
            self.context.observer.listeners_failed();
            serving.cancel();
        }
    }

    /// Returns what stops everything and waits for the end.
    pub fn shutdown(&self) -> ProxyShutdown {
        self.shutdown.clone()
    }

    /// Stops everything and waits until it has ended.
    pub async fn close(self) {
        self.shutdown.stop_and_wait().await;
    }
}

impl Drop for ProxyHandle {
    /// Grants are kept: the next cage of the same sandbox is served with the same grant. The owner of the grant
    /// revokes it.
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
    }
}

/// Serves the listeners until the handle is dropped. It must be called within a tokio runtime.
pub fn serve(
    sockets: ListenerSockets,
    grant: impl Into<ProxyGrant>,
    resolver: Arc<dyn EgressResolver>,
    observer: Arc<dyn EgressObserver>,
) -> io::Result<ProxyHandle> {
    serve_with_limits(ProxyLimits::default(), sockets, grant, resolver, observer)
}

/// As [`serve`], with the caller's limits.
pub fn serve_with_limits(
    limits: ProxyLimits,
    sockets: ListenerSockets,
    grant: impl Into<ProxyGrant>,
    resolver: Arc<dyn EgressResolver>,
    observer: Arc<dyn EgressObserver>,
) -> io::Result<ProxyHandle> {
    Handle::try_current().map_err(io::Error::other)?;
    let context = Arc::new(ConnectionContext::new(limits, grant.into(), resolver, observer));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    // The first start fails here, so that the caller gets the error; later starts are retried.
    let sockets = Arc::new(sockets);
    let first = ListenerTasks::open(&context, &stop, &sockets)?;
    let (serving, watched) = watch::channel(first.stop.clone());
    let end = ProxyShutdown { stop: stop.clone(), tasks: tasks.clone(), drains: context.drains.clone() };
    let guard = ProxyHandle { context: Arc::clone(&context), shutdown: end, serving: watched };
    tasks.spawn(supervise(context, stop, sockets, first, serving));
    tasks.close();
    Ok(guard)
}

/// Restarts the listeners when one of their tasks fails, until the sandbox ends.
async fn supervise(
    context: Arc<ConnectionContext>,
    stop: CancellationToken,
    sockets: Arc<ListenerSockets>,
    first: ListenerTasks,
    serving: watch::Sender<CancellationToken>,
) {
    let mut current = first;
    loop {
        let ended = current.stop.clone();
        let why = tokio::select! {
            // Checked first: when the sandbox ends, its tasks end too, and that is not a failure.
            biased;
            () = stop.cancelled() => None,
            () = ended.cancelled() => Some("its tasks were stopped".to_owned()),
            why = current.wait_for_failure() => {
                // Reported before connections are cut: a request that fails because of the cut asks for the reason at
                // once.
                context.observer.listeners_failed();
                Some(why)
            }
        };
        // The sandbox may have ended between the two checks.
        let why = why.filter(|_| !stop.is_cancelled());
        current.stop.cancel();
        current.tasks.close();
        current.tasks.wait().await;
        let Some(why) = why else { return };
        current = loop {
            if stop.run_until_cancelled(sleep(RETRY_DELAY)).await.is_none() {
                return;
            }
            match ListenerTasks::open(&context, &stop, &sockets) {
                Ok(current) => break current,
                Err(error) => tracing::warn!(%error, "could not reopen the listeners of a sandbox"),
            }
        };
        // The receiver is gone once the handle is dropped; then the loop ends in its next round.
        serving.send_replace(current.stop.clone());
        context.observer.observe(EgressEvent::Restarted { why });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    Explicit,
    Transparent,
    Dns,
}

/// The tasks that serve the listeners of one sandbox.
#[derive(Debug)]
struct ListenerTasks {
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The tasks that must not end while the listeners are open.
    vital: JoinSet<()>,
}

impl ListenerTasks {
    /// Clones the sockets and serves them. All are cloned before the first is served, so that a sandbox never has
    /// only some of its listeners.
    fn open(context: &Arc<ConnectionContext>, stop: &CancellationToken, sockets: &ListenerSockets) -> io::Result<Self> {
        let (stop, tasks) = (stop.child_token(), TaskTracker::new());
        let slots = Arc::new(Semaphore::new(context.limits.connections));
        let shared = ListenerContext { slots, context: Arc::clone(context), stop: stop.clone(), tasks: tasks.clone() };
        let explicit = sockets.explicit.iter().map(|listener| (ListenerKind::Explicit, listener));
        let transparent = sockets.transparent.iter().map(|listener| (ListenerKind::Transparent, listener));
        let dns = sockets.dns_tcp.iter().map(|listener| (ListenerKind::Dns, listener));
        let listeners: Vec<(ListenerKind, TcpListener)> = explicit
            .chain(transparent)
            .chain(dns)
            .map(|(kind, listener)| {
                let listener = listener.try_clone()?;
                listener.set_nonblocking(true)?;
                Ok((kind, TcpListener::from_std(listener)?))
            })
            .collect::<io::Result<_>>()?;
        let udp = sockets.dns_udp.as_ref().map(|socket| {
            let socket = socket.try_clone()?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        });
        let mut vital = JoinSet::new();
        if let Some(socket) = udp.transpose()? {
            vital.spawn(dns::serve_udp(Arc::clone(context), socket));
        }
        for (kind, listener) in listeners {
            vital.spawn(shared.clone().accept_loop(kind, listener));
        }
        Ok(Self { stop, tasks, vital })
    }

    /// Waits until one of the vital tasks has ended, which none does unless it fails.
    async fn wait_for_failure(&mut self) -> String {
        match self.vital.join_next().await {
            Some(Ok(())) => "a listener stopped".to_owned(),
            Some(Err(error)) => format!("a listener failed: {error}"),
            // A sandbox without listeners has nothing that could fail.
            None => std::future::pending().await,
        }
    }
}

/// What all listeners of one sandbox share.
#[derive(Debug, Clone)]
struct ListenerContext {
    slots: Arc<Semaphore>,
    context: Arc<ConnectionContext>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl ListenerContext {
    /// Runs a task until it ends or the sandbox does.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(work));
    }

    async fn accept_loop(self, kind: ListenerKind, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.spawn_connection(kind, stream),
                // For example too many open files: only waiting helps.
                Err(error) => {
                    tracing::warn!(?kind, %error, "could not accept a connection");
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    fn spawn_connection(&self, kind: ListenerKind, stream: TcpStream) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.context.report_refused_text(EgressEntry::Unknown, "", 0, &DecisionReason::TooManyConnections);
            if kind == ListenerKind::Explicit {
                let reply = ProxyReply::new(
                    hyper::StatusCode::SERVICE_UNAVAILABLE,
                    DecisionReason::TooManyConnections.to_string(),
                );
                // A new connection has buffer space for a few bytes; if it has none left, the reply is dropped rather
                // than waited for.
                stream.try_write(&reply.bytes()).ok();
            }
            return;
        };
        let context = Arc::clone(&self.context);
        self.spawn(async move {
            serve_connection(&context, kind, stream).await;
            drop(slot);
        });
    }
}

async fn serve_connection(context: &Arc<ConnectionContext>, kind: ListenerKind, stream: TcpStream) {
    // Failure costs only speed.
    stream.set_nodelay(true).ok();
    let Ok(wanted) = stream.local_addr() else { return };
    let activity = ActivityClock::new();
    let client = ActivityStream::new(stream, activity.clone());
    let work = async {
        match kind {
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
