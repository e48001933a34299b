//! Runs the event loop around the model: reads the event file as it grows, handles keys and signals, sends controls,
//! draws.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ralph_core::control_request::Control;
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::host_environment::HostContext;
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
use crate::terminal_output::Ui;

/// How often the file is polled while no key is pressed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time that reading a long history may delay the next frame.
const READ_BUDGET: Duration = Duration::from_millis(50);

/// How often to check whether a process drives the run.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

/// A run with an event this recent counts as driven.
const RECENT_MS: u64 = 2000;

/// How long quitting waits for a control to reach a live run.
const SEND_TIMEOUT: Duration = Duration::from_millis(300);

/// How long quitting waits for a control on a run at rest before it prints that it waits.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shows a run until the user quits.
pub(crate) async fn watch(host: &HostContext, folder: &RunFolder, colour: bool, ui: &mut Ui) -> CliResult {
    let cannot = |error: io::Error| {
        CliError::new(RalphExitCode::NotReady, "could not draw on this terminal")
            .with_cause(&error)
            .hint(format!("ralph logs -f {}", folder.id()))
    };
    let listen = |kind: SignalKind| signal(kind).map_err(cannot);
    let mut ends = [listen(SignalKind::terminate())?, listen(SignalKind::hangup())?, listen(SignalKind::interrupt())?];
    let mut app = WatchApp::new(host, folder, colour);
    let mut screen = TerminalScreen::open().map_err(cannot)?;
    let (keys, mut typed) = KeyReader::spawn();
    let leave = loop {
        let more = app.poll();
        app.update(WatchMessage::Resized(screen.size().map_err(cannot)?));
        screen.draw(&app.model).map_err(cannot)?;
        let wait = if more { Duration::ZERO } else { POLL_INTERVAL };
        let effect = tokio::select! {
            // Keys first, so that the keyboard responds while a long history is read.
            biased;
            signal = any_signal(&mut ends) => {
                tracing::debug!(signal, "leaving");
                break WatchExit::Interrupted;
            }
            event = typed.recv() => match event {
                Some(event) => app.handle_terminal_event(event),
                None => {
                    tracing::debug!("the terminal is gone");
                    break WatchExit::Interrupted;
                }
            },
            Some(answer) = app.pending_answers.join_next(), if !app.pending_answers.is_empty() => app.handle_answer(answer),
            () = sleep(wait) => None,
        };
        match effect {
            None => (),
            Some(WatchEffect::Exit(leave)) => break leave,
            Some(WatchEffect::Suspend) => screen.suspend().map_err(cannot)?,
            Some(WatchEffect::LoadProposals) => app.load_proposals(),
            Some(WatchEffect::Send(control)) => app.send_control(control),
            Some(WatchEffect::ResumeRun) => app.send_control(Control::Resume),
        }
    };
    drop(screen);
    drop(keys);
    app.finish(&mut ends, ui).await;
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

/// The model and the sources it is updated from.
struct WatchApp {
    model: WatchModel,
    folder: RunFolder,
    tail: EventTail,
    checked: Option<Instant>,
    sender: WatchControlSender,
    /// Controls that were sent and not answered yet, which may take as long as an action.
    pending_answers: JoinSet<ControlAnswer>,
}

impl WatchApp {
    fn new(host: &HostContext, folder: &RunFolder, colour: bool) -> Self {
        Self {
            model: WatchModel::new(&folder.id(), Timestamp::now(), TimeZone::system(), colour),
            sender: WatchControlSender::new(host, folder),
            folder: folder.clone(),
            tail: EventTail::new(folder),
            checked: None,
            pending_answers: JoinSet::new(),
        }
    }

    fn update(&mut self, message: WatchMessage) -> Option<WatchEffect> {
        self.model.update(message)
    }

    /// Reads what is new; returns `true` when there was too much for one turn.
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
            let driven = self.folder.is_live();
            self.update(WatchMessage::Live(driven));
        }
    }

    fn handle_terminal_event(&mut self, event: Event) -> Option<WatchEffect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.update(WatchMessage::Key(key)),
            Event::Paste(text) => self.update(WatchMessage::Pasted(text)),
            // Ignored: the size is read before every frame.
            Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
        }
    }

    fn load_proposals(&mut self) {
        let proposals = read_proposals(&self.folder).map_err(|error| error.to_string());
        self.update(WatchMessage::Proposals(proposals));
    }

    fn send_control(&mut self, control: Control) {
        let asker = self.sender.clone();
        self.pending_answers.spawn(async move { (control.kind(), asker.send(control).await) });
    }

    fn handle_answer(&mut self, answer: Result<ControlAnswer, tokio::task::JoinError>) -> Option<WatchEffect> {
        // A task that panicked has restored the terminal, which the next frame notices.
        let (kind, outcome) = answer.ok()?;
        // The event is in the file before the answer arrives.
        self.read_events();
        self.update(WatchMessage::Answered { kind, outcome })
    }

    /// Waits for controls on a run at rest, until they are done or a signal ends the wait. A live run only has to
    /// receive the control; it answers by events.
    async fn finish(mut self, ends: &mut [Signal; 3], ui: &mut Ui) {
        let sender = self.sender.clone();
        let delivered = async { while self.pending_answers.join_next().await.is_some() {} };
        let _ = timeout(SEND_TIMEOUT, delivered).await;
        if timeout(FINISH_TIMEOUT, sender.wait_idle()).await.is_err() {
            ui.print_message(
                "finishing what was asked of the run; Ctrl-C leaves it unfinished, and the run stays usable",
            );
            // Interrupting here has the effect of killing the process, which a run survives.
            tokio::select! {
                () = sender.wait_idle() => (),
                signal = any_signal(ends) => tracing::debug!(signal, "leaving what was asked unfinished"),
            }
        }
    }
}
