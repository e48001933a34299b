//! Who stands at the doors of the cages of this machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ralph_core::event::Event;
use ralph_core::policy::Policy;
use ralph_core::redact::Redactor;
use ralph_proxy::door::{self, Doors, End, Guard};
use ralph_proxy::limits::Limits;
use ralph_proxy::notice::{Keeping, Notice, Told};
use ralph_proxy::resolve::{Resolve, System};
use ralph_proxy::terms::Terms;
use ralph_sandbox::Label;
use ralph_sandbox::embedded::{self, Door, Keeper};
use tokio::time::timeout;

use super::POLICY;
use crate::audit::{Book, Denials, is_refusal};
use crate::error::Error;
use crate::secret::Store;
use crate::store::{Folder, Home};

/// The way out for all sandboxes of this machine.
#[derive(Debug)]
pub struct Egress {
    home: Home,
    secrets: Store,
    /// Knows every secret of the user. Asking for them can take a while, so it is done once.
    redactor: OnceLock<Redactor>,
    outside: Arc<dyn Resolve>,
    limits: Limits,
    /// Terms that were agreed on before a sandbox was made, by its name.
    agreed: Mutex<HashMap<String, Arc<Agreed>>>,
    /// The doors of runs that were opened and may not be closed yet.
    opened: Mutex<Vec<Opened>>,
}

/// Doors of a run. What may go on behind them outlives whoever kept them open, for a moment.
#[derive(Debug)]
struct Opened {
    run: String,
    standing: Weak<Standing>,
    end: End,
}

/// Doors that stand open.
#[derive(Debug)]
struct Standing {
    guard: Guard,
    ears: Arc<Ears>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.ears.closed();
    }
}

/// What a sandbox was promised, and who keeps it at the moment.
#[derive(Debug)]
struct Agreed {
    terms: Mutex<Terms>,
    standing: Mutex<Weak<Standing>>,
    /// How often whoever served the doors has died.
    restarts: AtomicU64,
    /// Where it is written down, for a sandbox that belongs to no run.
    paper: Option<Folder>,
    /// What was refused and what raised an alarm, for a sandbox that has no run to tell it.
    heard: Mutex<Hearing>,
    /// Hosts that were refused, each once, for whoever wants to know what a command asked for.
    refused: Mutex<BTreeSet<String>>,
}

/// Sorts what is heard: a program can be refused as often as it likes, and must not hide an alarm by that.
#[derive(Debug)]
struct Hearing {
    denials: Denials,
    refusals: Vec<Event>,
    /// Refusals beyond what is read.
    more: u64,
    /// Of everything else there is one of a kind, and one for every tenfold.
    others: Vec<Event>,
}

impl Hearing {
    fn new() -> Self {
        Self { denials: Denials::new(Redactor::new([])), refusals: Vec::new(), more: 0, others: Vec::new() }
    }

    fn hear(&mut self, told: &Told) {
        match self.denials.hear_all(told) {
            Some(event @ Event::PolicyDenied { .. }) if self.refusals.len() < HEARD => self.refusals.push(event),
            Some(Event::PolicyDenied { .. }) => self.more += 1,
            Some(event) => self.others.push(event),
            None => (),
        }
    }
}

/// What was heard of a sandbox.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub refusals: Vec<Event>,
    /// How many refusals there were beyond these.
    pub more: u64,
    /// Alarms, and what else is worth telling.
    pub others: Vec<Event>,
}

/// More refusals than this nobody reads.
const HEARD: usize = 20;
/// How long doors may take to be closed.
const CLOSING: Duration = Duration::from_secs(5);

impl Egress {
    pub(crate) fn new(home: Home, secrets: Store) -> Arc<Self> {
        Self::with_outside(home, secrets, Arc::new(System), Limits::default())
    }

    /// Leads to a world of the caller's making instead of the one outside, within limits of its choice.
    pub(crate) fn with_outside(home: Home, secrets: Store, outside: Arc<dyn Resolve>, limits: Limits) -> Arc<Self> {
        let (redactor, agreed, opened) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { home, secrets, redactor, outside, limits, agreed, opened })
    }

    /// Agrees on the terms of a sandbox that is going to be made, for as long as the pass is held.
    pub fn agree(self: &Arc<Self>, sandbox: &str, terms: Terms) -> Pass {
        self.agree_with(sandbox, terms, None)
    }

    /// As [`Self::agree`], for a sandbox that belongs to no run and has what leaves it written down in a folder that is
    /// there.
    pub fn agree_on_paper(self: &Arc<Self>, sandbox: &str, terms: Terms, paper: Folder) -> Pass {
        self.agree_with(sandbox, terms, Some(paper))
    }

    fn agree_with(self: &Arc<Self>, sandbox: &str, terms: Terms, paper: Option<Folder>) -> Pass {
        let agreed = Arc::new(Agreed {
            terms: Mutex::new(terms),
            standing: Mutex::new(Weak::new()),
            restarts: AtomicU64::new(0),
            paper,
            heard: Mutex::new(Hearing::new()),
            refused: Mutex::default(),
        });
        self.agreed().insert(sandbox.to_owned(), Arc::clone(&agreed));
        Pass { egress: Arc::clone(self), sandbox: sandbox.to_owned(), agreed }
    }

    /// Ends whoever serves the doors of a sandbox, as its death would: all is cut, and they are served anew.
    pub fn fail(&self, sandbox: &str) {
        let agreed = self.agreed().get(sandbox).cloned();
        if let Some(standing) = agreed.and_then(|agreed| lock(&agreed.standing).upgrade()) {
            standing.guard.fail();
        }
    }

    /// Closes all doors of a run and waits until whatever came by them has been told. Cages that stand go on without.
    pub async fn close(&self, run: &str) {
        let of_run: Vec<Opened> = lock(&self.opened).extract_if(.., |opened| opened.run == run).collect();
        for Opened { standing, end, .. } in of_run {
            if timeout(CLOSING, end.reach()).await.is_err() {
                tracing::warn!(run, "the doors of a sandbox could not be closed in time");
            }
            if let Some(standing) = standing.upgrade() {
                standing.ears.closed();
            }
        }
    }

    /// As [`Pass::restarts`], for a sandbox by its name.
    pub fn restarts(&self, sandbox: &str) -> u64 {
        self.agreed().get(sandbox).map_or(0, |agreed| agreed.restarts.load(Ordering::Acquire))
    }

    /// Returns the hosts that a sandbox was refused since this was last asked.
    pub fn refused(&self, sandbox: &str) -> BTreeSet<String> {
        let agreed = self.agreed().get(sandbox).cloned();
        agreed.map(|agreed| std::mem::take(&mut *lock(&agreed.refused))).unwrap_or_default()
    }

    fn redactor(&self) -> Redactor {
        self.redactor.get_or_init(|| Redactor::new(self.secrets.all_values())).clone()
    }

    fn agreed(&self) -> MutexGuard<'_, HashMap<String, Arc<Agreed>>> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agreement about one sandbox. Dropping it ends the agreement, and makes what was lent worthless.
#[derive(Debug)]
pub struct Pass {
    egress: Arc<Egress>,
    sandbox: String,
    agreed: Arc<Agreed>,
}

impl Pass {
    /// Changes the policy, at once and for every cage that will stand over the sandbox.
    pub fn set_policy(&self, policy: Policy) {
        lock(&self.agreed.terms).policy = policy.clone();
        if let Some(standing) = lock(&self.agreed.standing).upgrade() {
            standing.guard.set_policy(policy);
        }
    }

    /// Returns what was refused and what raised an alarm since this was last asked.
    pub fn heard(&self) -> Heard {
        let mut heard = lock(&self.agreed.heard);
        let (refusals, others) = (std::mem::take(&mut heard.refusals), std::mem::take(&mut heard.others));
        Heard { refusals, more: std::mem::take(&mut heard.more), others }
    }

    /// Has the disk keep what was written down of a sandbox that belongs to no run; returns where it stands, if there is
    /// anything.
    pub fn written(&self) -> Result<Option<PathBuf>, Error> {
        let Some(paper) = self.agreed.paper.as_ref().filter(|paper| !is_blank(paper)) else { return Ok(None) };
        Book::open(paper, self.egress.redactor())?.settle()?;
        Ok(Some(crate::audit::path(paper)))
    }

    /// As [`Egress::fail`], for this sandbox.
    pub fn fail(&self) {
        self.egress.fail(&self.sandbox);
    }

    /// Returns how often whoever served the doors has died: what was under way then was cut. It is counted before the
    /// cut, so that whoever failed for it finds it counted.
    pub fn restarts(&self) -> u64 {
        self.agreed.restarts.load(Ordering::Acquire)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        for credential in lock(&self.agreed.terms).lent() {
            credential.revoke();
        }
        if let Some(paper) = self.agreed.paper.as_ref().filter(|paper| is_blank(paper)) {
            // If it stays, it stays empty.
            let _ = std::fs::remove_dir_all(paper.path());
        }
        let mut all = self.egress.agreed();
        if all.get(&self.sandbox).is_some_and(|known| Arc::ptr_eq(known, &self.agreed)) {
            all.remove(&self.sandbox);
        }
    }
}

/// Says whether nothing was written down in a folder.
fn is_blank(paper: &Folder) -> bool {
    !crate::audit::path(paper).metadata().is_ok_and(|file| file.len() > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door for Egress {
    fn stand(&self, sandbox: &str, labels: &BTreeMap<String, String>, doors: embedded::Doors) -> io::Result<Keeper> {
        let agreed = self.agreed().get(sandbox).cloned();
        let mut terms = match &agreed {
            Some(agreed) => lock(&agreed.terms).clone(),
            // Without a policy that can be read nobody may pass: an empty one denies.
            None => match labels.get(POLICY) {
                Some(text) => serde_json::from_str::<Policy>(text)?.into(),
                None => Policy::default().into(),
            },
        };
        let folder = labels.get(Label::RUN).map(|run| self.home.folder(run)).filter(|folder| folder.path().is_dir());
        terms.run = folder.as_ref().map(Folder::id);
        let of_run = folder.is_some();
        let folder = folder.or_else(|| agreed.as_ref().and_then(|agreed| agreed.paper.clone()));
        // What cannot be written down is not let out.
        let book = folder
            .map(|folder| Book::open(&folder, self.redactor()).map_err(|error| io::Error::other(error.to_string())))
            .transpose()?;
        if let Some(book) = &book {
            terms.outflow = book.outflow(&terms.outflow);
        }
        let told = AtomicBool::new(false);
        let ears = Arc::new(Ears { sandbox: sandbox.to_owned(), book, of_run, agreed: agreed.clone(), told });
        let embedded::Doors { explicit, transparent, dns_udp, dns_tcp } = doors;
        let doors = Doors { explicit, transparent, dns_udp, dns_tcp };
        let (outside, notice) = (Arc::clone(&self.outside), Arc::clone(&ears) as Arc<dyn Notice>);
        let guard = door::serve_within(self.limits, doors, terms, outside, notice)?;
        let end = guard.end();
        let standing = Arc::new(Standing { guard, ears });
        if let Some(agreed) = &agreed {
            *lock(&agreed.standing) = Arc::downgrade(&standing);
            // The policy may have changed while the doors were opened.
            let policy = lock(&agreed.terms).policy.clone();
            standing.guard.set_policy(policy);
        }
        if let Some(run) = labels.get(Label::RUN) {
            let mut opened = lock(&self.opened);
            opened.retain(|opened| !opened.end.is_reached());
            opened.push(Opened { run: run.clone(), standing: Arc::downgrade(&standing), end });
        }
        Ok(Keeper::new(standing))
    }
}

/// Hears what happens at the doors of one cage.
#[derive(Debug)]
struct Ears {
    sandbox: String,
    book: Option<Arc<Book>>,
    /// A run tells what is in the book.
    of_run: bool,
    agreed: Option<Arc<Agreed>>,
    /// Something was told, so its end is worth telling too.
    told: AtomicBool,
}

impl Ears {
    /// Says at the end that it is the end.
    fn closed(&self) {
        if let Some(book) = self.book.as_ref().filter(|_| self.told.swap(false, Ordering::Relaxed)) {
            book.close(&self.sandbox);
        }
    }
}

impl Notice for Ears {
    fn tell(&self, told: Told) {
        tracing::debug!(sandbox = self.sandbox, ?told, "egress");
        if let (Told::Decided(decided), Some(agreed)) = (&told, &self.agreed)
            && is_refusal(decided)
        {
            let mut refused = lock(&agreed.refused);
            if refused.len() < HEARD {
                refused.insert(decided.host.clone());
            }
        }
        if let Some(book) = &self.book {
            self.told.store(true, Ordering::Relaxed);
            book.write(&self.sandbox, &told);
        }
        if let Some(agreed) = self.agreed.as_ref().filter(|_| !self.of_run) {
            lock(&agreed.heard).hear(&told);
        }
    }

    fn died(&self) {
        if let Some(agreed) = &self.agreed {
            agreed.restarts.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn keep(&self, calling: Told) -> Keeping<'_> {
        tracing::debug!(sandbox = self.sandbox, ?calling, "egress");
        let Some(book) = &self.book else { return Box::pin(std::future::ready(Ok(()))) };
        self.told.store(true, Ordering::Relaxed);
        Box::pin(Book::keep(book, &self.sandbox, calling))
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::Level;
    use ralph_core::policy::Mode;
    use ralph_proxy::notice::{Alarm, Decided, Entry, Why, Wrong};

    use super::*;

    #[test]
    fn refusals_hide_no_alarm() {
        let mut hearing = Hearing::new();
        for n in 0..30 {
            let (entry, host, why) = (Entry::Dns, format!("x{n}.evil.test"), Why::Mode(Mode::Allowlist));
            let decided = Decided { entry, host, port: 0, request: None, allowed: false, why, address: None };
            hearing.hear(&Told::Decided(decided));
        }
        let (what, credential, host) = (Wrong::PhantomAstray, "KEY".to_owned(), "evil.test".to_owned());
        hearing.hear(&Told::Alarm(Alarm { what, credential, host, port: 80 }));
        let text =
            "alarm: a stand-in for a credential was sent to a host it is not for (`KEY`, evil.test:80)".to_owned();
        assert_eq!(hearing.others, [Event::Log { level: Level::Error, text }]);
        assert_eq!((hearing.refusals.len(), hearing.more), (HEARD, 10));
    }
}
