//! The loop of a run: decide, do, write down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ralph_core::action::Reply;
use ralph_core::decide::{self, Step};
use ralph_core::event::{Event, Level, RESET_TIME, Reason, WAITED};
use ralph_core::gutter::{self, Cause, Rung};
use ralph_core::money::Micros;
use ralph_core::redact::Redactor;
use ralph_core::run::{State, Status};
use ralph_core::text;
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_sandbox::Sandbox;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::close::Protected;
use super::files::Files;
use crate::audit::Book;
use crate::control::{Asked, Door};
#[cfg(target_os = "linux")]
use crate::egress::Pass;
use crate::egress::Way;
use crate::error::Error;
use crate::git::inside::Look;
use crate::git::{self, Bare};
use crate::host::Host;
use crate::model::Model;
use crate::store::{Announce, Events, Folder};

/// How a person ends a run from outside.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    /// Finish the action under way, save, rest.
    pub soon: CancellationToken,
    /// End the action under way too.
    pub now: CancellationToken,
}

/// What happens to the sandbox of a run that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Never,
    Always,
}

/// A run in the hands of this process.
#[derive(Debug)]
pub struct Runner {
    pub(super) host: Host,
    pub(super) folder: Folder,
    pub(super) events: Events,
    pub(super) bare: Bare,
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    /// What was agreed on for the way out of the sandbox.
    #[cfg(target_os = "linux")]
    pub(super) pass: Option<Pass>,
    /// The ways to models that its agent is lent.
    pub(super) ways: Vec<Way>,
    pub(super) ledger: Ledger,
    pub(super) models: BTreeMap<String, Arc<dyn Model>>,
    pub(super) redactor: Redactor,
    /// The answer the open iteration works through.
    pub(super) reply: Option<(u32, Reply)>,
    /// The tree as it was last looked at, while nothing has touched it since.
    pub(super) survey: Option<Look>,
    /// What the model must not change, once read.
    pub(super) protected: Option<Arc<Protected>>,
    pub(super) files: Files,
    pub(super) stops: Stops,
    /// Cancelled by a `stop` that somebody asked for.
    pub(super) halt: CancellationToken,
    pub(super) controls: mpsc::Receiver<Asked>,
    /// What was asked while a command ran, and waits for its end.
    pub(super) waiting: Vec<Asked>,
    pub(super) pause_asked: bool,
    pub(super) stop_asked: bool,
    pub(super) keep: Keep,
    /// The sandbox was made anew and nothing has gone well in it since.
    pub(super) anew: bool,
    /// Where everything is written down that its sandboxes ask of the network.
    pub(super) book: Arc<Book>,
    /// The iteration after which the book was last anchored.
    pub(super) anchored_after: u32,
    _door: Door,
}

impl Runner {
    /// Takes hold of a run: its lock, its door, its state.
    pub(super) async fn take(
        host: Host,
        folder: Folder,
        announce: Box<dyn Announce>,
        stops: Stops,
        keep: Keep,
    ) -> Result<Self, Error> {
        let events = Events::open(&folder, announce)?;
        let halt = CancellationToken::new();
        let (door, controls) = Door::open(&folder, halt.clone())?;
        let redactor = host.redactor();
        let book = Book::open(&folder, redactor.clone())?;
        let bare = Bare::open(&host.tool, &folder.bare_path()).await?;
        bare.sweep();
        // Nothing may be bought until it is known what was bought before.
        let nothing = Caps { cost: Some(Micros::ZERO), tokens: Some(0) };
        let ledger = Ledger::new(nothing, Micros::ZERO, 0);
        let mut runner = Self {
            host,
            files: Files::new(folder.clone(), redactor.clone()),
            folder,
            events,
            bare,
            sandbox: None,
            #[cfg(target_os = "linux")]
            pass: None,
            ways: Vec::new(),
            ledger,
            models: BTreeMap::new(),
            redactor,
            reply: None,
            survey: None,
            protected: None,
            stops,
            halt,
            controls,
            waiting: Vec::new(),
            pause_asked: false,
            stop_asked: false,
            keep,
            anew: false,
            book,
            anchored_after: 0,
            _door: door,
        };
        // A run that succeeded has told all before its end.
        if runner.events.begun() && runner.state().status != Status::Succeeded {
            runner.charge_left_behind()?;
            runner.renew_ledger();
        }
        Ok(runner)
    }

    pub fn state(&self) -> &State {
        self.events.state()
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Runs until the run rests: it ended, it is paused, or somebody ended this process's part in it.
    pub async fn drive(&mut self) -> Result<&State, Error> {
        self.renew_ledger();
        loop {
            self.take_controls().await?;
            if self.stop_asked && !self.state().status.ended() {
                self.stop().await?;
            }
            if self.state().status.active() && self.interrupted() {
                self.pause(Reason::Interrupted)?;
            }
            if self.pause_asked && self.state().status.active() {
                self.pause_asked = false;
                self.pause(Reason::Asked)?;
            }
            if let Err(error) = self.audited() {
                self.troubled(error)?;
            }
            match decide::next(self.state()) {
                Step::Rest => {
                    if !self.rest().await? {
                        self.depart().await?;
                        // Whoever goes on with it opens them again.
                        if !self.state().status.ended() {
                            self.close_doors().await?;
                        }
                        return Ok(self.state());
                    }
                }
                step => {
                    if let Err(error) = self.perform(step).await {
                        self.troubled(error)?;
                    }
                }
            }
        }
    }

    async fn perform(&mut self, step: Step) -> Result<(), Error> {
        tracing::debug!(run = self.state().id(), ?step, "next step");
        let at_work = matches!(
            step,
            Step::StartIteration { .. }
                | Step::CallModel { .. }
                | Step::Session { .. }
                | Step::Act { .. }
                | Step::Close { .. }
                | Step::Score { .. }
                | Step::Mitigate { .. }
                | Step::Diagnose { .. }
                | Step::Apply { .. }
        );
        match self.carry(step).await {
            // What is done inside the work sandbox can fail by what the model did to it.
            Err(error) if at_work => self.after_damage(error).await,
            other => other,
        }
    }

    async fn carry(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Prepare => self.prepare().await,
            Step::Baseline => self.baseline().await,
            Step::StartIteration { n, profile } => self.start_iteration(n, profile).await,
            Step::CallModel { n, call, reask } => self.call_model(n, call, reask).await,
            Step::Session { n, cut } => self.session(n, cut).await,
            Step::Act { n, index, again } => self.act(n, index, again).await,
            Step::Close { n } => self.close(n).await,
            Step::Score { n } => self.score(n).await,
            Step::Mitigate { n, rung } => self.mitigate(n, rung).await,
            Step::Diagnose { n, doing } => self.diagnose(n, doing).await,
            Step::Apply { number } => self.apply_due(number).await,
            Step::Publish { why } => self.publish(why).await,
            Step::Prove => self.prove().await,
            Step::Pause { reason } => self.pause(reason),
            Step::Finish { verdict } => self.finish(verdict).await,
            Step::Rest => Ok(()),
        }
    }

    /// Waits where waiting makes sense; false when this process has nothing more to do.
    async fn rest(&mut self) -> Result<bool, Error> {
        let (until, by) = match &self.state().status {
            Status::Paused { reason: Reason::Quota { until }, .. } => (*until, RESET_TIME),
            Status::Paused { reason: Reason::Outage { until, .. }, .. } => (*until, WAITED),
            _ => return Ok(false),
        };
        let wait = u64::try_from(until.as_millisecond() - Timestamp::now().as_millisecond()).unwrap_or(0);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait)) => {
                self.events.append(Event::Resumed { by: by.to_owned() })?;
            }
            () = self.stops.soon.cancelled() => return Ok(false),
            () = self.stops.now.cancelled() => return Ok(false),
            asked = self.controls.recv() => match asked {
                Some(asked) => self.control(asked).await?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Rests the run when something around it failed; what cannot even be written down is passed on.
    fn troubled(&mut self, error: Error) -> Result<(), Error> {
        let why = self.redactor.redact(&chain(&error)).into_owned();
        let reason = match &error {
            Error::BadEvent { .. } | Error::BadHistory { .. } | Error::Locked { .. } | Error::CannotResume { .. } => {
                return Err(error);
            }
            Error::NoKey { profile, .. } => Reason::Auth { profile: profile.clone() },
            Error::Sandbox(ralph_sandbox::Error::Gone { .. }) => Reason::SandboxLost,
            Error::Git(git::Error::Inside { .. } | git::Error::Odd { .. }) => Reason::SandboxBroken { why },
            _ => Reason::Host { why },
        };
        if !self.state().status.active() {
            return Err(error);
        }
        self.pause(reason)
    }

    fn interrupted(&self) -> bool {
        self.stops.soon.is_cancelled() || self.stops.now.is_cancelled()
    }

    pub(super) fn pause(&mut self, reason: Reason) -> Result<(), Error> {
        let mut next = self.state().next_for(&reason);
        if let Reason::Auth { profile } = &reason
            && let Some(key) = self.key_of(profile)
        {
            next = format!("ralph secret set {key}, then ralph resume {}", self.state().id());
        }
        self.events.append(Event::Paused { reason, next })
    }

    /// Returns the name of the key that a profile's provider takes.
    fn key_of(&self, profile: &str) -> Option<String> {
        let profile = self.state().started.profiles.get(profile)?;
        self.host.endpoint(profile).ok()?.key_envs.first().cloned()
    }

    pub(super) fn log(&mut self, level: Level, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.redact(&text::plain(&text.into())).into_owned();
        self.events.append(Event::Log { level, text })
    }

    /// Logs what belongs to the open iteration, unless a process before this one did.
    pub(super) fn log_once(&mut self, level: Level, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.redact(&text::plain(&text.into())).into_owned();
        let told = self.state().open.as_ref().is_some_and(|open| open.told.contains(&text));
        if told { Ok(()) } else { self.events.append(Event::Log { level, text }) }
    }

    async fn score(&mut self, n: u32) -> Result<(), Error> {
        let state = self.state();
        let window: Vec<gutter::Sample> = state.window.iter().cloned().collect();
        let score = gutter::score(&window, state.started.min_changed_lines);
        self.write_metrics(n, &score).await?;
        let line = format!("iteration {n}: loop score {:.2}", score.total);
        self.note_activity(&line).await?;
        self.events.append(Event::GutterScored { n, score })
    }

    async fn mitigate(&mut self, n: u32, rung: Rung) -> Result<(), Error> {
        let state = self.state();
        let profile = match (rung, &state.started.profiles.fallback) {
            (Rung::Fallback, Some(fallback)) => fallback.name.clone(),
            _ => state.profile.clone(),
        };
        let why = gutter::why(state.climb.verdicts, state.last_score.as_ref());
        self.note_activity(&format!("iteration {n}: gutter, {} with profile {profile}: {why}", rung.word())).await?;
        self.events.append(Event::MitigationApplied { n, rung, profile, why, cause: Cause::Gutter })
    }

    /// Opens the account book with what the events say was spent and may be spent.
    pub(super) fn renew_ledger(&mut self) {
        if self.events.begun() {
            let state = self.state();
            let caps = Caps { cost: state.budget.cost, tokens: state.budget.tokens };
            let spent = state.spent;
            // The same book, since whoever serves the way out holds it too.
            self.ledger.renew(caps, spent.cost, spent.tokens);
        }
    }

    /// Tells the ledger of a larger budget. What it has charged meanwhile stays as it is: calls may be under way.
    pub(super) fn raise_caps(&mut self) {
        let budget = &self.state().budget;
        self.ledger.raise(Caps { cost: budget.cost, tokens: budget.tokens });
    }

    /// Warns once for each share of a budget that was passed.
    pub(super) fn warn_of_budgets(&mut self) -> Result<(), Error> {
        let state = self.state();
        let due: Vec<_> = state
            .budget
            .warnings(&state.spent)
            .into_iter()
            .filter(|(limit, percent)| state.warned.get(limit).is_none_or(|warned| warned < percent))
            .collect();
        for (limit, percent) in due {
            self.events.append(Event::BudgetWarned { limit, percent })?;
        }
        Ok(())
    }

    /// Returns how much longer the run may take, now.
    pub(super) fn time_left(&self) -> Duration {
        let state = self.state();
        let since = u64::try_from(self.events.since_last().as_millis()).unwrap_or(u64::MAX);
        let used = state.spent.wall_ms.saturating_add(since);
        // One second at least, so that what is started can still end properly.
        Duration::from_millis(state.budget.wall_ms.saturating_sub(used)).max(Duration::from_secs(1))
    }

    pub(super) fn sandbox(&self) -> Result<Arc<dyn Sandbox>, Error> {
        self.sandbox.clone().ok_or_else(|| Error::CannotResume {
            run: self.folder.id(),
            why: "its sandbox is not open".to_owned(),
            hint: format!("ralph resume {}", self.folder.id()),
        })
    }
}

/// Writes an error and all its causes on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
