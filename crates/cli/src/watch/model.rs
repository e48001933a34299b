//! What the screen knows: a fold of events, keys and answers. No clock, no file, no terminal.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ralph_core::control::Control;
use ralph_core::diagnosis::Book;
use ralph_core::event::{Answer, Event, Line, Stage};
use ralph_core::run::{State, Status};
use ralph_core::text::first_line;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::{Rect, Size};

use super::burn::Burn;
use super::iterations::Rows;
use super::keys::{self, Words};
use super::log::Log;
use super::pending::Asked;
use super::plan;
use crate::render::awaited;

/// Something the screen hears of.
#[derive(Debug)]
pub(super) enum Heard {
    Line(Box<Line>),
    /// Everything that is in the file for now was told.
    CaughtUp,
    /// The rest of the file cannot be read, and why.
    Unreadable(String),
    Tick {
        now: Timestamp,
    },
    /// Whether a process works on the run.
    Driven(bool),
    /// The run's folder was removed.
    Gone,
    Key(KeyEvent),
    Pasted(String),
    Resized(Size),
    /// What the diagnoses of the run propose, or why that cannot be read.
    Proposals(Result<Book, String>),
    /// What became of a control.
    Answered {
        kind: &'static str,
        outcome: Result<(), String>,
    },
}

/// Something only the world can do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    Ask(Control),
    /// Lets a run that rests go on: by its process if it waits, else by a new one in the background.
    GoOn,
    /// Reads what the diagnoses propose.
    Proposals,
    Suspend,
    Leave(Leave),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    Asked,
    Interrupted,
}

/// What the keyboard is for at the moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mode {
    Look,
    Help,
    /// Whether to stop for good is being asked.
    Stop,
    Words {
        what: Words,
        text: String,
    },
    Choose {
        what: Choice,
        items: Vec<Item>,
        at: usize,
    },
}

/// Something to choose, in words, and what is asked for when it is chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) words: String,
    pub(super) control: Control,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Profile,
    Proposal,
}

/// A part of the screen that can have all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Log,
    Iterations,
    Boxes,
    Budgets,
}

impl Panel {
    const ALL: [Self; 4] = [Self::Log, Self::Iterations, Self::Boxes, Self::Budgets];

    pub(super) fn after(panel: Option<Self>) -> Option<Self> {
        let next = panel.and_then(|panel| Self::ALL.iter().position(|one| *one == panel)).map_or(0, |at| at + 1);
        Self::ALL.get(next).copied()
    }

    pub(super) fn before(panel: Option<Self>) -> Option<Self> {
        let at = panel.and_then(|panel| Self::ALL.iter().position(|one| *one == panel)).unwrap_or(Self::ALL.len());
        at.checked_sub(1).and_then(|at| Self::ALL.get(at)).copied()
    }
}

/// The last result of a box's own proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proved {
    Passed,
    Failed { code: i32 },
    TimedOut,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) id: String,
    pub(super) state: Option<State>,
    pub(super) iterations: Rows,
    pub(super) burn: Burn,
    pub(super) log: Log,
    pub(super) proved: BTreeMap<String, Proved>,
    /// What the run is at, and since when.
    pub(super) doing: Option<(String, Timestamp)>,
    /// The next step that the end of the run named.
    pub(super) next: Option<String>,
    pub(super) asked: Asked,
    pub(super) mode: Mode,
    /// The one panel that is shown, when only one is.
    pub(super) alone: Option<Panel>,
    pub(super) driven: bool,
    pub(super) gone: bool,
    pub(super) unreadable: Option<String>,
    pub(super) caught_up: bool,
    pub(super) read: u64,
    pub(super) size: Size,
    pub(super) now: Timestamp,
    pub(super) zone: TimeZone,
    pub(super) colour: bool,
}

impl Model {
    pub(super) fn new(id: &str, now: Timestamp, zone: TimeZone, colour: bool) -> Self {
        Self {
            id: id.to_owned(),
            state: None,
            iterations: Rows::default(),
            burn: Burn::default(),
            log: Log::default(),
            proved: BTreeMap::new(),
            doing: None,
            next: None,
            asked: Asked::default(),
            mode: Mode::Look,
            alone: None,
            driven: true,
            gone: false,
            unreadable: None,
            caught_up: false,
            read: 0,
            size: Size::new(80, 24),
            now,
            zone,
            colour,
        }
    }

    /// Takes in what was heard; some of it asks for something to be done.
    pub(super) fn update(&mut self, heard: Heard) -> Option<Effect> {
        match heard {
            Heard::Line(line) => self.fold(*line),
            Heard::CaughtUp => {
                self.caught_up = true;
                self.log.settle(self.state.as_ref());
            }
            Heard::Unreadable(why) => {
                self.unreadable = Some(why);
                return self.update(Heard::CaughtUp);
            }
            Heard::Tick { now } => {
                self.now = now;
                self.asked.tick(now);
            }
            Heard::Driven(driven) => self.driven = driven,
            Heard::Gone => self.gone = true,
            Heard::Key(key) => return keys::press(self, key),
            Heard::Pasted(text) => keys::paste(self, &text),
            Heard::Resized(size) => self.size = size,
            Heard::Proposals(Ok(book)) => self.choose_proposal(&book),
            Heard::Proposals(Err(why)) => self.asked.refuse(why, self.now),
            Heard::Answered { kind, outcome } => {
                let resting = self.state.as_ref().is_some_and(|state| !state.status.active());
                self.asked.answered(kind, outcome, resting, self.now);
            }
        }
        None
    }

    fn fold(&mut self, line: Line) {
        self.read += 1;
        match &mut self.state {
            // What does not fit the history is still worth showing in the log.
            Some(state) => drop(state.apply(&line)),
            None => self.state = State::begin(line.clone()).ok(),
        }
        self.iterations.fold(&line);
        if let (Event::IterationFinished { .. }, Some(state)) = (&line.event, &self.state) {
            self.burn.push(state.spent);
        }
        self.notice(&line);
        self.asked.hear(&line.event, self.now);
        self.log.push(line);
    }

    /// Keeps what only the screen wants to know.
    fn notice(&mut self, line: &Line) {
        if let Some(what) = self.state.as_ref().and_then(|state| awaited::diagnosis(state, &line.event)) {
            self.doing = Some((what, line.at));
            return;
        }
        let what = match &line.event {
            Event::RunStarted(_) => Some("preparing the sandbox".to_owned()),
            Event::SandboxReady { .. } => Some("checking the proofs on the base commit".to_owned()),
            Event::IterationStarted { profile, .. } => Some(format!("waiting for {profile}")),
            Event::ActionStarted { brief, .. } => Some(first_line(brief, 200).to_owned()),
            // An agent goes on after each of its calls.
            Event::ModelCalled { answer: Answer::Through { .. }, .. } => return,
            Event::ActionFinished { .. } | Event::ModelCalled { .. } => Some("checking".to_owned()),
            Event::CheckFinished { stage, proves, code, timed_out, .. } => {
                let result = match (*timed_out, *code) {
                    (true, _) => Proved::TimedOut,
                    (false, 0) => Proved::Passed,
                    (false, code) => Proved::Failed { code },
                };
                self.proved.extend(proves.iter().map(|id| (id.clone(), result)));
                Some(if *stage == Stage::Proof { "proving in a fresh sandbox" } else { "checking" }.to_owned())
            }
            Event::Pushed { .. } => Some("proving in a fresh sandbox".to_owned()),
            Event::Resumed { .. } => Some("going on".to_owned()),
            Event::DiagnosisWritten { .. } => {
                self.state.as_ref().filter(|state| state.status.active()).map(|_| "going on".to_owned())
            }
            Event::RunFinished { next, .. } => {
                self.next = Some(next.clone());
                None
            }
            Event::Paused { .. } => None,
            _ => return,
        };
        self.doing = what.map(|what| (what, line.at));
    }

    /// Asks for a control and shows it as pending, unless nothing can be asked.
    pub(super) fn ask(&mut self, control: Control) -> Option<Effect> {
        self.can_ask().then_some(())?;
        self.asked.ask(&control, self.now).then_some(Effect::Ask(control))
    }

    fn can_ask(&mut self) -> bool {
        if self.gone {
            self.asked.refuse("the folder of the run is gone: nothing can be asked of it".to_owned(), self.now);
        }
        !self.gone
    }

    /// One key for both: what it does is what makes sense.
    pub(super) fn pause_or_resume(&mut self) -> Option<Effect> {
        let status = &self.state.as_ref()?.status;
        if status.active() && self.driven {
            return self.ask(Control::Pause);
        }
        if let Some(why) = over(status) {
            self.asked.refuse(why, self.now);
            return None;
        }
        self.can_ask().then_some(())?;
        self.asked.ask(&Control::Resume, self.now).then_some(Effect::GoOn)
    }

    pub(super) fn offer_profiles(&mut self) {
        let Some(state) = &self.state else { return };
        let names = state.started.profiles.working(state.started.agent.as_ref());
        let at = names.iter().position(|name| *name == state.profile).unwrap_or(0);
        let item = |name: &str| Item { words: name.to_owned(), control: Control::SetProfile { name: name.to_owned() } };
        let items = names.into_iter().map(item).collect();
        self.mode = Mode::Choose { what: Choice::Profile, items, at };
    }

    /// Tells whether a diagnosis has proposed something that nobody has carried out.
    pub(super) fn proposed(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.diagnoses.open().next().is_some())
    }

    pub(super) fn offer_proposals(&mut self) -> Option<Effect> {
        if self.proposed() {
            return Some(Effect::Proposals);
        }
        self.asked.refuse("there is no proposal to apply; d asks for a diagnosis".to_owned(), self.now);
        None
    }

    /// Offers what is open, in its own words, those of the newest diagnosis first.
    fn choose_proposal(&mut self, book: &Book) {
        let Some(state) = &self.state else { return };
        let item = |number: u32| {
            let words = format!("proposal {number}: {}", book.get(number)?.proposal.words());
            Some(Item { words, control: Control::ApplyProposal { number } })
        };
        let items: Vec<Item> = state.diagnoses.open().filter_map(item).collect();
        if items.is_empty() {
            self.asked.refuse("what the diagnosis proposed is not in the folder of the run".to_owned(), self.now);
            return;
        }
        self.mode = Mode::Choose { what: Choice::Proposal, items, at: 0 };
    }

    /// Returns how many rows of the log are seen at once.
    pub(super) fn page(&self) -> usize {
        plan::page(self, Rect::new(0, 0, self.size.width, self.size.height))
    }

    /// Returns the time that passed since something, in milliseconds.
    pub(super) fn since(&self, at: Timestamp) -> u64 {
        u64::try_from(self.now.as_millisecond() - at.as_millisecond()).unwrap_or(0)
    }

    /// Returns the time the run has worked: events carry it, and between two of them it still passes.
    pub(super) fn worked_ms(&self, state: &State) -> u64 {
        let passing = if state.status.active() && self.driven { self.since(state.last_at) } else { 0 };
        state.spent.wall_ms.saturating_add(passing)
    }
}

/// Says why there is nothing to pause or resume any more.
fn over(status: &Status) -> Option<String> {
    match status {
        Status::Succeeded => Some("it has succeeded: there is nothing left to do".to_owned()),
        Status::Failed { next, .. } | Status::Stopped { next, .. } => {
            Some(format!("it has {}; next: {next}", status.past()))
        }
        Status::Queued | Status::Preparing | Status::Running | Status::Paused { .. } => None,
    }
}
