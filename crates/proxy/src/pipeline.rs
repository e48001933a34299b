//! The one pipeline of a sandbox: every entry asks here, and nothing leaves that was not asked for here.
//!
//! Name before DNS, one resolution, the address filter, then a dial of exactly the checked address. Credentials,
//! budget and audit join between the dial and the first byte, or read the notices; they are not here.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_core::policy::Policy;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::{self, Kind};
use crate::dns::Table;
use crate::judge::{Ask, admit, judge, judge_name};
use crate::limits::Limits;
use crate::notice::{Decided, Entry, Notice, Told, Why};
use crate::resolve::Resolve;
use crate::target::{Target, shown};

/// More addresses of one name are not tried.
const MOST_ADDRESSES: usize = 8;

/// What all connections of one sandbox share.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) limits: Limits,
    policy: watch::Sender<Arc<Policy>>,
    resolver: Arc<dyn Resolve>,
    notice: Arc<dyn Notice>,
    names: Mutex<Table>,
}

/// An open way to a target, and the leave to use it.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) stream: TcpStream,
    pub(crate) permit: Permit,
}

/// The leave to use a connection, as long as the policy grants it.
#[derive(Debug)]
pub(crate) struct Permit {
    policy: watch::Receiver<Arc<Policy>>,
    target: Target,
    ask: Ask,
    address: IpAddr,
}

impl Permit {
    /// Waits until the policy no longer allows the connection.
    pub(crate) async fn revoked(&mut self) {
        loop {
            // Without a sender the sandbox is over.
            if self.policy.changed().await.is_err() {
                return;
            }
            let policy = Arc::clone(&self.policy.borrow_and_update());
            let kind = address::kind_here(self.address);
            if judge(&policy, &self.target, &self.ask).is_err()
                || admit(&policy, kind, self.address, self.target.port()).is_err()
            {
                return;
            }
        }
    }
}

/// What stood in the way of a target, and the address it was about.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: Why,
    pub(crate) address: Option<IpAddr>,
}

impl From<Why> for Refused {
    fn from(why: Why) -> Self {
        Self { why, address: None }
    }
}

impl Pipeline {
    pub(crate) fn new(limits: Limits, policy: Policy, resolver: Arc<dyn Resolve>, notice: Arc<dyn Notice>) -> Self {
        let policy = watch::Sender::new(Arc::new(policy));
        Self { limits, policy, resolver, notice, names: Mutex::default() }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy.send_replace(Arc::clone(&policy));
        // After the new policy is in force: an answer given a moment ago under the old one is forgotten as well.
        self.lock_names().retain(|name| judge_name(&policy, name).is_ok());
    }

    /// Judges by name only and tells nobody, unless the answer is no.
    pub(crate) fn judge(&self, entry: Entry, target: &Target, ask: &Ask) -> Result<(), Why> {
        let policy = Arc::clone(&self.policy.borrow());
        judge(&policy, target, ask).map(drop).inspect_err(|why| self.refused(entry, target, why))
    }

    /// Takes a target all the way: judged, resolved once, filtered, dialled. The decision is told either way.
    pub(crate) async fn open(&self, entry: Entry, target: &Target, ask: Ask) -> Result<Way, Refused> {
        match self.reach(target, ask).await {
            Ok((way, why)) => {
                self.tell(entry, target, true, &why, Some(way.permit.address));
                Ok(way)
            }
            Err(refused) => {
                self.tell(entry, target, false, &refused.why, refused.address);
                Err(refused)
            }
        }
    }

    async fn reach(&self, target: &Target, ask: Ask) -> Result<(Way, Why), Refused> {
        // Subscribed before the judgement, so that no change falls between the two.
        let mut changes = self.policy.subscribe();
        judge(&Arc::clone(&changes.borrow_and_update()), target, &ask)?;
        let addresses = self.addresses(target).await?;
        // Looking a name up takes a while, and the policy may have changed meanwhile.
        let policy = Arc::clone(&changes.borrow_and_update());
        let why = judge(&policy, target, &ask)?;
        for address in &addresses {
            // One inner address spoils them all: an honest public name has none.
            admit(&policy, address::kind_here(*address), *address, target.port())
                .map_err(|kind: Kind| Refused { why: Why::Inner(kind), address: Some(*address) })?;
        }
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = None;
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            last = Some(address);
            let dial = self.resolver.dial(SocketAddr::new(address, target.port()));
            if let Ok(Ok(stream)) = timeout_at(deadline, dial).await {
                // Only speed is lost without it.
                stream.set_nodelay(true).ok();
                let permit = Permit { policy: changes, target: target.clone(), ask, address };
                return Ok((Way { stream, permit }, why));
            }
        }
        Err(Refused { why: Why::Unreachable, address: last })
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<IpAddr>, Refused> {
        if let Some(address) = target.literal() {
            return Ok(vec![address]);
        }
        match timeout(self.limits.resolve_time, self.resolver.resolve(target.host())).await {
            // A mapped address is dialled as the one it maps, so it is judged as that one too.
            Ok(Ok(found)) if !found.is_empty() => Ok(found.into_iter().map(|address| address.to_canonical()).collect()),
            _ => Err(Why::Unresolved.into()),
        }
    }

    /// Gives an allowed name its synthetic address.
    pub(crate) fn name_address(&self, host: &str) -> Result<std::net::Ipv4Addr, Why> {
        // The policy is read under the lock: see `set_policy`.
        let mut names = self.lock_names();
        let policy = Arc::clone(&self.policy.borrow());
        let judged = judge_name(&policy, host);
        let address = judged.is_ok().then(|| names.give(host));
        drop(names);
        let (allowed, why) = match &judged {
            Ok(why) => (true, why),
            Err(why) => (false, why),
        };
        self.notice.tell(Told::Decided(Decided {
            entry: Entry::Dns,
            host: host.to_owned(),
            port: 0,
            allowed,
            why: why.clone(),
            address: address.map(IpAddr::V4),
        }));
        address.ok_or_else(|| why.clone())
    }

    /// Returns the name that a synthetic address was given out for.
    pub(crate) fn named(&self, address: IpAddr) -> Option<String> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.lock_names().name(v4),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn refused(&self, entry: Entry, target: &Target, why: &Why) {
        self.tell(entry, target, false, why, None);
    }

    /// Tells of something that was refused before it named a proper target.
    pub(crate) fn refused_text(&self, entry: Entry, host: &str, port: u16, why: &Why) {
        let host = shown(host);
        self.notice.tell(Told::Decided(Decided { entry, host, port, allowed: false, why: why.clone(), address: None }));
    }

    fn tell(&self, entry: Entry, target: &Target, allowed: bool, why: &Why, address: Option<IpAddr>) {
        let (host, port) = (target.host().to_owned(), target.port());
        self.notice.tell(Told::Decided(Decided { entry, host, port, allowed, why: why.clone(), address }));
    }

    /// No code under the lock can panic, so a poisoned table is still a true one.
    fn lock_names(&self) -> MutexGuard<'_, Table> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
