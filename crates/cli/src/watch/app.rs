//! The loop around the model: reads the event file as it grows, hears keys and signals, asks, and draws.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ralph_core::control::Control;
use ralph_core::exit::Exit;
use ralph_engine::run::proposals;
use ralph_engine::store::Folder;
use ratatui::crossterm::event::{Event, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::ask::Asker;
use super::model::{Effect, Heard, Leave, Model};
use super::screen::{Keys, Screen};
use super::tail::Tail;
use crate::error::{Failure, Outcome};

/// How often the file is looked at while nothing is typed.
const LOOK: Duration = Duration::from_millis(100);

/// How long reading a long history may keep the screen waiting.
const SLICE: Duration = Duration::from_millis(50);

/// How often it is asked whether somebody drives the run.
const CHECK: Duration = Duration::from_secs(1);

/// A run that said something this recently is driven: asking would take its lock for a moment.
const RECENT_MS: u64 = 2000;

/// How long leaving waits for a control to reach a live run.
const TELL: Duration = Duration::from_millis(300);

/// How long leaving waits for what was asked of a run at rest.
const FINISH: Duration = Duration::from_secs(5);

/// Shows a run until somebody leaves.
pub(crate) async fn watch(folder: &Folder, colour: bool) -> Outcome {
    let cannot = |error: io::Error| {
        Failure::new(Exit::NotReady, "could not draw on this terminal")
            .because(&error)
            .hint(format!("ralph logs -f {}", folder.id()))
    };
    let listen = |kind: SignalKind| signal(kind).map_err(cannot);
    let mut ends = [listen(SignalKind::terminate())?, listen(SignalKind::hangup())?, listen(SignalKind::interrupt())?];
    let mut world = World::new(folder, colour);
    let mut screen = Screen::take().map_err(cannot)?;
    let (keys, mut typed) = Keys::listen();
    let leave = loop {
        let more = world.look();
        world.hear(Heard::Resized(screen.size().map_err(cannot)?));
        screen.draw(&world.model).map_err(cannot)?;
        let wait = if more { Duration::ZERO } else { LOOK };
        let effect = tokio::select! {
            // Keys first: a long history does not make the keyboard deaf.
            biased;
            signal = any(&mut ends) => {
                tracing::debug!(signal, "leaving");
                break Leave::Interrupted;
            }
            event = typed.recv() => match event {
                Some(event) => world.event(event),
                None => {
                    tracing::debug!("the terminal is gone");
                    break Leave::Interrupted;
                }
            },
            Some(answer) = world.asks.join_next(), if !world.asks.is_empty() => world.answered(answer),
            () = sleep(wait) => None,
        };
        match effect {
            None => (),
            Some(Effect::Leave(leave)) => break leave,
            Some(Effect::Suspend) => screen.suspend().map_err(cannot)?,
            Some(Effect::Proposals) => world.proposals(),
            Some(Effect::Ask(control)) => world.ask(control),
            Some(Effect::GoOn) => world.ask(Control::Resume),
        }
    };
    drop(screen);
    drop(keys);
    world.finish().await;
    Ok(match leave {
        Leave::Asked => Exit::Success,
        Leave::Interrupted => Exit::Interrupted,
    })
}

async fn any(signals: &mut [Signal; 3]) -> &'static str {
    let [terminate, hangup, interrupt] = signals;
    tokio::select! {
        _ = terminate.recv() => "terminate",
        _ = hangup.recv() => "hangup",
        _ = interrupt.recv() => "interrupt",
    }
}

type Answer = (&'static str, Result<(), String>);

/// The model and what it looks at.
struct World {
    model: Model,
    folder: Folder,
    tail: Tail,
    checked: Option<Instant>,
    asker: Asker,
    /// What was asked and is not answered; that may take as long as an action.
    asks: JoinSet<Answer>,
}

impl World {
    fn new(folder: &Folder, colour: bool) -> Self {
        Self {
            model: Model::new(&folder.id(), Timestamp::now(), TimeZone::system(), colour),
            asker: Asker::new(folder),
            folder: folder.clone(),
            tail: Tail::of(folder),
            checked: None,
            asks: JoinSet::new(),
        }
    }

    fn hear(&mut self, heard: Heard) -> Option<Effect> {
        self.model.update(heard)
    }

    /// Takes in what is new; `true` when there was too much for one turn.
    fn look(&mut self) -> bool {
        self.hear(Heard::Tick { now: Timestamp::now() });
        let more = self.read();
        if !more && self.checked.is_none_or(|at| at.elapsed() >= CHECK) {
            self.checked = Some(Instant::now());
            self.check();
        }
        more
    }

    fn read(&mut self) -> bool {
        self.tail.read(&mut self.model, SLICE)
    }

    fn check(&mut self) {
        if !self.folder.path().exists() {
            self.hear(Heard::Gone);
            return;
        }
        let silent = |model: &Model| {
            model.state.as_ref().is_some_and(|state| state.status.active() && model.since(state.last_at) >= RECENT_MS)
        };
        if silent(&self.model) {
            let driven = self.folder.in_use();
            self.hear(Heard::Driven(driven));
        }
    }

    fn event(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.hear(Heard::Key(key)),
            Event::Paste(text) => self.hear(Heard::Pasted(text)),
            // The size is asked for before every drawing.
            Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
        }
    }

    fn proposals(&mut self) {
        let book = proposals(&self.folder).map_err(|error| error.to_string());
        self.hear(Heard::Proposals(book));
    }

    fn ask(&mut self, control: Control) {
        let asker = self.asker.clone();
        self.asks.spawn(async move { (control.kind(), asker.ask(control).await) });
    }

    fn answered(&mut self, answer: Result<Answer, tokio::task::JoinError>) -> Option<Effect> {
        // A task that panicked has given the screen back; drawing notices that.
        let (kind, outcome) = answer.ok()?;
        // The event is in the file before the answer is given.
        self.read();
        self.hear(Heard::Answered { kind, outcome })
    }

    /// Waits for what is being done to a run at rest. A live one only has to hear what was asked; it answers by events.
    async fn finish(mut self) {
        let all = async { while self.asks.join_next().await.is_some() {} };
        let _ = timeout(TELL, all).await;
        // What takes longer is put down as if its process had been killed, which a run survives.
        let _ = timeout(FINISH, self.asker.idle()).await;
    }
}
