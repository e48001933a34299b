//! The loop around the model: reads the event file as it grows, hears keys and signals, asks, and draws.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ralph_core::control::Control;
use ralph_core::exit::RalphExitCode;
use ralph_engine::run::read_proposals;
use ralph_engine::store::RunFolder;
use ratatui::crossterm::event::{Event, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::control_sender::WatchControlSender;
use super::event_tail::EventTail;
use super::model::{WatchEffect, WatchExit, WatchMessage, WatchModel};
use super::terminal::{KeyReader, TerminalScreen};
use crate::error::{CliError, CliResult};

/// How often the file is looked at while nothing is typed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long reading a long history may keep the screen waiting.
const READ_BUDGET: Duration = Duration::from_millis(50);

/// How often it is asked whether somebody drives the run.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

/// A run that said something this recently is driven: asking would take its lock for a moment.
const RECENT_MS: u64 = 2000;

/// How long leaving waits for a control to reach a live run.
const SEND_TIMEOUT: Duration = Duration::from_millis(300);

/// How long leaving waits for what was asked of a run at rest.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shows a run until somebody leaves.
pub(crate) async fn watch(folder: &RunFolder, colour: bool) -> CliResult {
    let cannot = |error: io::Error| {
        CliError::new(RalphExitCode::NotReady, "could not draw on this terminal")
            .with_cause(&error)
            .hint(format!("ralph logs -f {}", folder.id()))
    };
    let listen = |kind: SignalKind| signal(kind).map_err(cannot);
    let mut ends = [listen(SignalKind::terminate())?, listen(SignalKind::hangup())?, listen(SignalKind::interrupt())?];
    let mut world = WatchApp::new(folder, colour);
    let mut screen = TerminalScreen::open().map_err(cannot)?;
    let (keys, mut typed) = KeyReader::spawn();
    let leave = loop {
        let more = world.poll();
        world.update(WatchMessage::Resized(screen.size().map_err(cannot)?));
        screen.draw(&world.model).map_err(cannot)?;
        let wait = if more { Duration::ZERO } else { POLL_INTERVAL };
        let effect = tokio::select! {
            // Keys first: a long history does not make the keyboard deaf.
            biased;
            signal = any_signal(&mut ends) => {
                tracing::debug!(signal, "leaving");
                break WatchExit::Interrupted;
            }
            event = typed.recv() => match event {
                Some(event) => world.handle_terminal_event(event),
                None => {
                    tracing::debug!("the terminal is gone");
                    break WatchExit::Interrupted;
                }
            },
            Some(answer) = world.pending_answers.join_next(), if !world.pending_answers.is_empty() => world.handle_answer(answer),
            () = sleep(wait) => None,
        };
        match effect {
            None => (),
            Some(WatchEffect::Exit(leave)) => break leave,
            Some(WatchEffect::Suspend) => screen.suspend().map_err(cannot)?,
            Some(WatchEffect::LoadProposals) => world.load_proposals(),
            Some(WatchEffect::Send(control)) => world.send_control(control),
            Some(WatchEffect::ResumeRun) => world.send_control(Control::Resume),
        }
    };
    drop(screen);
    drop(keys);
    world.finish().await;
    Ok(match leave {
        WatchExit::Requested => RalphExitCode::Success,
        WatchExit::Interrupted => RalphExitCode::Interrupted,
    })
}

async fn any_signal(signals: &mut [Signal; 3]) -> &'static str {
    let [terminate, hangup, interrupt] = signals;
    tokio::select! {
        _ = terminate.recv() => "terminate",
        _ = hangup.recv() => "hangup",
        _ = interrupt.recv() => "interrupt",
    }
}

type ControlAnswer = (&'static str, Result<(), String>);

/// The model and what it looks at.
struct WatchApp {
    model: WatchModel,
    folder: RunFolder,
    tail: EventTail,
    checked: Option<Instant>,
    sender: WatchControlSender,
    /// What was asked and is not answered; that may take as long as an action.
    pending_answers: JoinSet<ControlAnswer>,
}

impl WatchApp {
    fn new(folder: &RunFolder, colour: bool) -> Self {
        Self {
            model: WatchModel::new(&folder.id(), Timestamp::now(), TimeZone::system(), colour),
            sender: WatchControlSender::new(folder),
            folder: folder.clone(),
            tail: EventTail::new(folder),
            checked: None,
            pending_answers: JoinSet::new(),
        }
    }

    fn update(&mut self, heard: WatchMessage) -> Option<WatchEffect> {
        self.model.update(heard)
    }

    /// Takes in what is new; `true` when there was too much for one turn.
    fn poll(&mut self) -> bool {
        self.update(WatchMessage::Tick { now: Timestamp::now() });
        let more = self.read_events();
        if !more && self.checked.is_none_or(|at| at.elapsed() >= LIVENESS_INTERVAL) {
            self.checked = Some(Instant::now());
            self.check_liveness();
        }
        more
    }

    fn read_events(&mut self) -> bool {
        self.tail.read(&mut self.model, READ_BUDGET)
    }

    fn check_liveness(&mut self) {
        if !self.folder.path().exists() {
            self.update(WatchMessage::FolderGone);
            return;
        }
        let silent = |model: &WatchModel| {
            model
                .run
                .state
                .as_ref()
                .is_some_and(|state| state.status.is_active() && model.elapsed_ms(state.last_at) >= RECENT_MS)
        };
        if silent(&self.model) {
            let driven = self.folder.is_locked();
            self.update(WatchMessage::Live(driven));
        }
    }

    fn handle_terminal_event(&mut self, event: Event) -> Option<WatchEffect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.update(WatchMessage::Key(key)),
            Event::Paste(text) => self.update(WatchMessage::Pasted(text)),
            // The size is asked for before every drawing.
            Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
        }
    }

    fn load_proposals(&mut self) {
        let book = read_proposals(&self.folder).map_err(|error| error.to_string());
        self.update(WatchMessage::Proposals(book));
    }

    fn send_control(&mut self, control: Control) {
        let asker = self.sender.clone();
        self.pending_answers.spawn(async move { (control.kind(), asker.send(control).await) });
    }

    fn handle_answer(&mut self, answer: Result<ControlAnswer, tokio::task::JoinError>) -> Option<WatchEffect> {
        // A task that panicked has given the screen back; drawing notices that.
        let (kind, outcome) = answer.ok()?;
        // The event is in the file before the answer is given.
        self.read_events();
        self.update(WatchMessage::Answered { kind, outcome })
    }

    /// Waits for what is being done to a run at rest. A live one only has to hear what was asked; it answers by events.
    async fn finish(mut self) {
        let all = async { while self.pending_answers.join_next().await.is_some() {} };
        let _ = timeout(SEND_TIMEOUT, all).await;
        // What takes longer is put down as if its process had been killed, which a run survives.
        let _ = timeout(FINISH_TIMEOUT, self.sender.wait_idle()).await;
    }
}
