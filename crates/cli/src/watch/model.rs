//! Holds the state of the screen: a fold of events, keys and answers. No clock, no file, no terminal.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ralph_core::control_request::Control;
use ralph_core::diagnosis::ProposalList;
use ralph_core::event::EventLine;
use ralph_core::run::{RunState, RunStatus};
use ralph_web::view::RunView;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::{Rect, Size};

use super::keys::{self, TextPrompt};
use super::layout;
use super::log_panel::LogPanel;

/// An input to the model.
#[derive(Debug)]
pub(super) enum WatchMessage {
    Line(Box<EventLine>),
    /// Every event that is currently in the file was passed on.
    CaughtUp,
    /// The rest of the file cannot be read, with the reason.
    Unreadable(String),
    Tick {
        now: Timestamp,
    },
    /// Whether a process works on the run.
    Live(bool),
    /// The run's folder was removed.
    FolderGone,
    Key(KeyEvent),
    Pasted(String),
    Resized(Size),
    /// What the diagnoses of the run propose, or why it cannot be read.
    Proposals(Result<ProposalList, String>),
    /// The result of a control.
    Answered {
        kind: &'static str,
        outcome: Result<(), String>,
    },
}

/// An effect that the model requests from the event loop.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WatchEffect {
    Send(Control),
    /// Resumes a resting run: by its process if that waits, else by a new one in the background.
    ResumeRun,
    /// Reads what the diagnoses propose.
    LoadProposals,
    Suspend,
    Exit(WatchExit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchExit {
    Requested,
    Interrupted,
}

/// What key presses currently mean.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum InputMode {
    Browse,
    Help,
    /// The user is asked whether to stop for good.
    ConfirmStop,
    EnterText {
        what: TextPrompt,
        text: String,
    },
    Choose {
        what: ChoiceKind,
        items: Vec<ChoiceItem>,
        at: usize,
    },
}

/// An item of a list to choose from, and the control that is sent when it is chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChoiceItem {
    pub(super) words: String,
    pub(super) control: Control,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChoiceKind {
    Profile,
    Proposal,
}

/// A part of the screen that can fill all of it.
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

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct WatchModel {
    pub(super) id: String,
    pub(super) run: RunView,
    pub(super) log: LogPanel,
    pub(super) mode: InputMode,
    /// The one panel that is shown, when only one is.
    pub(super) maximized: Option<Panel>,
    pub(super) live: bool,
    pub(super) folder_gone: bool,
    pub(super) unreadable: Option<String>,
    pub(super) caught_up: bool,
    pub(super) size: Size,
    pub(super) now: Timestamp,
    pub(super) zone: TimeZone,
    pub(super) colour: bool,
}

impl WatchModel {
    pub(super) fn new(id: &str, now: Timestamp, zone: TimeZone, colour: bool) -> Self {
        Self {
            id: id.to_owned(),
            run: RunView::default(),
            log: LogPanel::default(),
            mode: InputMode::Browse,
            maximized: None,
            live: true,
            folder_gone: false,
            unreadable: None,
            caught_up: false,
            size: Size::new(80, 24),
            now,
            zone,
            colour,
        }
    }

    /// Applies an input and returns the effect that it requests, if any.
    pub(super) fn update(&mut self, message: WatchMessage) -> Option<WatchEffect> {
        match message {
            WatchMessage::Line(line) => self.apply_event(*line),
            WatchMessage::CaughtUp => {
                self.caught_up = true;
                self.log.render_new(self.run.state.as_ref());
            }
            WatchMessage::Unreadable(why) => {
                self.unreadable = Some(why);
                return self.update(WatchMessage::CaughtUp);
            }
            WatchMessage::Tick { now } => {
                self.now = now;
                self.run.controls.expire_notice(now);
            }
            WatchMessage::Live(driven) => self.live = driven,
            WatchMessage::FolderGone => self.folder_gone = true,
            WatchMessage::Key(key) => return keys::handle_key(self, key),
            WatchMessage::Pasted(text) => keys::handle_paste(self, &text),
            WatchMessage::Resized(size) => self.size = size,
            WatchMessage::Proposals(Ok(list)) => self.choose_proposal(&list),
            WatchMessage::Proposals(Err(why)) => self.run.controls.refuse(why, self.now),
            WatchMessage::Answered { kind, outcome } => {
                let resting = self.run.state.as_ref().is_some_and(|state| !state.status.is_active());
                self.run.controls.on_answer(kind, outcome, resting, self.now);
            }
        }
        None
    }

    fn apply_event(&mut self, line: EventLine) {
        self.run.apply(&line, self.now);
        self.log.push(line);
    }

    /// Requests a control and shows it as pending, unless the run cannot take controls.
    pub(super) fn request_control(&mut self, control: Control) -> Option<WatchEffect> {
        self.can_request().then_some(())?;
        self.run.controls.add(&control, self.now).then_some(WatchEffect::Send(control))
    }

    fn can_request(&mut self) -> bool {
        if self.folder_gone {
            self.run.controls.refuse("the folder of the run is gone: nothing can be asked of it".to_owned(), self.now);
        }
        !self.folder_gone
    }

    /// Pauses an active run or resumes a resting one: one key does both.
    pub(super) fn pause_or_resume(&mut self) -> Option<WatchEffect> {
        let status = &self.run.state.as_ref()?.status;
        if status.is_active() && self.live {
            return self.request_control(Control::Pause);
        }
        if let Some(why) = ended_reason(status) {
            self.run.controls.refuse(why, self.now);
            return None;
        }
        self.can_request().then_some(())?;
        self.run.controls.add(&Control::Resume, self.now).then_some(WatchEffect::ResumeRun)
    }

    pub(super) fn offer_profiles(&mut self) {
        let Some(state) = &self.run.state else { return };
        let names = state.started.profiles.iteration_profiles(state.started.agent.as_ref());
        let at = names.iter().position(|name| *name == state.profile).unwrap_or(0);
        let item =
            |name: &str| ChoiceItem { words: name.to_owned(), control: Control::SetProfile { name: name.to_owned() } };
        let items = names.into_iter().map(item).collect();
        self.mode = InputMode::Choose { what: ChoiceKind::Profile, items, at };
    }

    /// Returns whether a diagnosis has proposed something that is not applied yet.
    pub(super) fn has_open_proposals(&self) -> bool {
        self.run.state.as_ref().is_some_and(|state| state.diagnoses.open_proposals().next().is_some())
    }

    pub(super) fn offer_proposals(&mut self) -> Option<WatchEffect> {
        if self.has_open_proposals() {
            return Some(WatchEffect::LoadProposals);
        }
        self.run.controls.refuse("there is no proposal to apply; d asks for a diagnosis".to_owned(), self.now);
        None
    }

    /// Offers the open proposals with their descriptions, those of the newest diagnosis first.
    fn choose_proposal(&mut self, list: &ProposalList) {
        let Some(state) = &self.run.state else { return };
        let item = |number: u32| {
            let words = format!("proposal {number}: {}", list.get(number)?.proposal.describe());
            Some(ChoiceItem { words, control: Control::ApplyProposal { number } })
        };
        let items: Vec<ChoiceItem> = state.diagnoses.open_proposals().filter_map(item).collect();
        if items.is_empty() {
            self.run
                .controls
                .refuse("what the diagnosis proposed is not in the folder of the run".to_owned(), self.now);
            return;
        }
        self.mode = InputMode::Choose { what: ChoiceKind::Proposal, items, at: 0 };
    }

    /// Returns how many rows of the log are visible at once.
    pub(super) fn log_page_rows(&self) -> usize {
        layout::log_page_rows(self, Rect::new(0, 0, self.size.width, self.size.height))
    }

    /// Returns the milliseconds since a point in time.
    pub(super) fn elapsed_ms(&self, at: Timestamp) -> u64 {
        u64::try_from(self.now.as_millisecond() - at.as_millisecond()).unwrap_or(0)
    }

    /// Returns the time the run has worked: the time of the last event plus what has passed since.
    pub(super) fn worked_ms(&self, state: &RunState) -> u64 {
        let passing = if state.status.is_active() && self.live { self.elapsed_ms(state.last_at) } else { 0 };
        state.spent.wall_ms.saturating_add(passing)
    }
}

/// Returns why there is nothing left to pause or resume.
fn ended_reason(status: &RunStatus) -> Option<String> {
    match status {
        RunStatus::Succeeded => Some("it has succeeded: there is nothing left to do".to_owned()),
        RunStatus::Failed { next, .. } | RunStatus::Stopped { next, .. } => {
            Some(format!("it has {}; next: {next}", status.past_tense()))
        }
        RunStatus::Queued | RunStatus::Preparing | RunStatus::Running | RunStatus::Paused { .. } => None,
    }
}
