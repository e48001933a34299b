//! A run on the terminal while it is under way: events above, one pinned line below.
//!
//! It reads the run's event file like every other reader does; the run only wakes it. A slow terminal slows nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_core::event::{Answer, Event, Line};
use ralph_core::exit::Exit;
use ralph_core::run::State;
use ralph_core::text::first_line;
use ralph_engine::run::{Runner, Stops};
use ralph_engine::store::{Announce, Follow, Moment};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::error::Failure;
use crate::render::{awaited, events, spark};
use crate::ui::Ui;

/// Wakes the reader when there is something new.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Announce for Wake {
    fn announce(&self, moment: Moment, _: &Line) {
        if moment == Moment::After {
            self.0.notify_one();
        }
    }
}

/// How often the pinned line is drawn anew while nothing happens.
const TICK: Duration = Duration::from_millis(500);

/// Whoever asks a program to end waits about ten seconds before ending it by force.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The signals by which a system or a terminal that goes away asks a program to end.
struct Leave {
    terminate: Signal,
    /// Not heard where whoever started us wants us to stay, as `nohup` does.
    hangup: Option<Signal>,
}

impl Leave {
    fn new() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = (!ignored(&status, SignalKind::hangup())).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate: signal(SignalKind::terminate())?, hangup })
    }

    async fn heard(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => (),
            () = hangup => (),
        }
    }
}

/// Reads from what the kernel says of a process whether it was started with a signal ignored.
fn ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal.as_raw_value() - 1).unwrap_or(u32::MAX);
    mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
}

/// Drives a run to where it rests, showing it meanwhile; the first Ctrl-C rests it after the action, the second at once.
pub(crate) async fn drive(
    mut runner: Runner,
    wake: &Wake,
    stops: Stops,
    after: u64,
    ui: &mut Ui,
) -> Result<State, Failure> {
    let folder = runner.folder().clone();
    let mut view = View { follow: Follow::new(&folder.events_path(), &folder.id()), state: None, doing: None, after };
    // On the heap: a run's whole state is in it.
    let mut driving = Box::pin(async move {
        let outcome = runner.drive().await.cloned();
        // Dropping the runner here gives up the lock before the last words are printed.
        drop(runner);
        outcome
    });
    ui.go_on_unread();
    // Listening all the time: one that is asked for anew in every round misses what comes in between.
    let mut pressed = signal(SignalKind::interrupt()).map_err(|error| Failure::of(Exit::NotReady, &error))?;
    let mut leave = Leave::new().map_err(|error| Failure::of(Exit::NotReady, &error))?;
    let mut interrupts = 0_u32;
    let outcome = loop {
        tokio::select! {
            outcome = &mut driving => break outcome,
            () = wake.0.notified() => {
                view.show(ui)?;
                if ui.unread() && !stops.soon.is_cancelled() {
                    ui.say("nobody reads the output any more: finishing the action under way, then saving");
                    stops.soon.cancel();
                }
            }
            () = tokio::time::sleep(TICK) => view.pin(ui),
            () = leave.heard() => {
                if stops.soon.is_cancelled() {
                    stops.now.cancel();
                } else {
                    ui.say("asked to end: finishing the action under way if that is soon, then saving");
                    stops.soon.cancel();
                    let now = stops.now.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(LEAVE_WITHIN).await;
                        now.cancel();
                    });
                }
            }
            _ = pressed.recv() => {
                interrupts += 1;
                if interrupts == 1 {
                    ui.say("finishing the action under way, then saving; Ctrl-C again stops it now");
                    stops.soon.cancel();
                } else {
                    stops.now.cancel();
                }
            }
        }
    };
    view.show(ui)?;
    ui.unpin();
    outcome.map_err(|error| {
        let mut failure = Failure::from(error);
        failure.log = Some(folder.events_path().display().to_string());
        if failure.hint.is_none() {
            failure.hint = Some(format!("ralph resume {}", folder.id()));
        }
        failure
    })
}

struct View {
    follow: Follow,
    state: Option<State>,
    doing: Option<(String, Instant)>,
    after: u64,
}

impl View {
    fn show(&mut self, ui: &mut Ui) -> Result<(), Failure> {
        while let Some(line) = self.follow.next()? {
            match &mut self.state {
                // A line that does not fit the history was written by the run itself; it is shown all the same.
                Some(state) => drop(state.apply(&line)),
                None => self.state = State::begin(line.clone()).ok(),
            }
            self.notice(&line.event);
            if line.seq <= self.after {
                continue;
            }
            if ui.json() {
                ui.data(&line.to_json());
            } else if let Some(text) = events::line(&line, self.state.as_ref()) {
                ui.say(&text);
            }
        }
        self.pin(ui);
        Ok(())
    }

    fn notice(&mut self, event: &Event) {
        if let Some(what) = self.state.as_ref().and_then(|state| awaited::diagnosis(state, event)) {
            self.doing = Some((what, Instant::now()));
            return;
        }
        let what = match event {
            Event::RunStarted(_) => Some("preparing the sandbox".to_owned()),
            Event::SandboxReady { .. } => Some("checking the proofs on the base commit".to_owned()),
            Event::IterationStarted { profile, .. } => Some(format!("waiting for {profile}")),
            Event::ActionStarted { brief, .. } => Some(first_line(brief, 60).to_owned()),
            // An agent goes on after each of its calls.
            Event::ModelCalled { answer: Answer::Through { .. }, .. } => return,
            Event::ActionFinished { .. } | Event::ModelCalled { .. } => Some("checking".to_owned()),
            Event::Pushed { .. } => Some("proving in a fresh sandbox".to_owned()),
            Event::Paused { .. } | Event::RunFinished { .. } => None,
            _ => return,
        };
        self.doing = what.map(|what| (what, Instant::now()));
    }

    fn pin(&self, ui: &mut Ui) {
        if !ui.live() {
            return;
        }
        if let (Some(state), Some((what, since))) = (&self.state, &self.doing) {
            ui.pin(&status(state, what, since.elapsed()));
        }
    }
}

/// Writes the pinned line: iteration, cost, time, loop score, what is awaited.
pub(crate) fn status(state: &State, what: &str, since: Duration) -> String {
    let cost = match state.budget.cost {
        Some(cap) => format!("${:.2}/{}", state.spent.cost.as_usd(), cap.as_usd()),
        None => format!("${:.2}", state.spent.cost.as_usd()),
    };
    let scores: Vec<f64> = state.scores.iter().rev().take(8).rev().copied().collect();
    format!(
        "#{}/{}  {cost}  {}/{}  loop {:.1} {}  ▸ {} {}s",
        state.spent.iterations,
        state.budget.iterations,
        // Events carry the time; between two of them it still passes.
        minutes(state.spent.wall_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(0))),
        minutes(state.budget.wall_ms),
        scores.last().copied().unwrap_or(0.0),
        spark(&scores),
        crate::ui::one_line(what, 60),
        since.as_secs(),
    )
}

/// Writes a duration as people say it.
pub(crate) fn minutes(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..7200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_were_ignored_before() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t1\n";
        assert!(ignored(status, SignalKind::hangup()));
        assert!(!ignored(status, SignalKind::terminate()));
        assert!(!ignored("", SignalKind::hangup()));
    }
}
