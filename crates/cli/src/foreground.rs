//! Drives a run in the foreground and shows it: events above, one pinned status line below.
//!
//! It reads the run's event file as every other reader does; the run only wakes it, so that a slow terminal does not
//! slow
//! the run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph_core::event::EventLine;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::run::RunState;
use ralph_engine::run::{Runner, StopSignals};
use ralph_engine::store::{AnnouncePhase, EventLogReader, EventObserver};
use ralph_web::view::RunView;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::error::CliError;
use crate::render::{events, sparkline};
use crate::terminal_output::Ui;

/// Wakes the reader when there is a new event.
#[derive(Debug, Clone, Default)]
pub(crate) struct DisplayNotifier(Arc<Notify>);

impl EventObserver for DisplayNotifier {
    fn on_event(&self, moment: AnnouncePhase, _: &EventLine) {
        if moment == AnnouncePhase::After {
            self.0.notify_one();
        }
    }
}

/// How often the status line is redrawn while nothing happens.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// How long an action may take after a request to end: service managers typically kill a program ten seconds after it.
const TERMINATE_GRACE: Duration = Duration::from_secs(5);

/// The signals by which the system, or a terminal that closes, asks a program to end.
struct TerminationSignals {
    terminate: Signal,
    /// `None` where the parent process set it to be ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl TerminationSignals {
    fn new() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup =
            (!is_signal_ignored(&status, SignalKind::hangup())).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate: signal(SignalKind::terminate())?, hangup })
    }

    async fn recv(&mut self) {
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

/// Returns whether a signal is ignored, from a process's `/proc` status.
fn is_signal_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal.as_raw_value() - 1).unwrap_or(u32::MAX);
    mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
}

/// Drives a run until it rests and shows it meanwhile. The first Ctrl-C pauses it after the action, the second at
/// once.
pub(crate) async fn drive(
    mut runner: Runner,
    wake: &DisplayNotifier,
    stops: StopSignals,
    after: u64,
    ui: &mut Ui,
) -> Result<RunState, CliError> {
    let folder = runner.folder().clone();
    let mut view = ForegroundView {
        follow: EventLogReader::new(&folder.events_path(), &folder.id()),
        run: RunView::default(),
        activity_read: Instant::now(),
        after,
    };
    // On the heap, because it contains the run's whole state.
    let mut driving = Box::pin(async move {
        let outcome = runner.drive().await.cloned();
        // Closed here, so that the run's lock is released before the final messages are printed.
        let closed = runner.close().await;
        outcome.and_then(|state| closed.map(|()| state))
    });
    ui.tolerate_broken_pipe();
    // Created once: a listener that is created in every round would miss signals in between.
    let mut pressed =
        signal(SignalKind::interrupt()).map_err(|error| CliError::from_error(RalphExitCode::NotReady, &error))?;
    let mut leave = TerminationSignals::new().map_err(|error| CliError::from_error(RalphExitCode::NotReady, &error))?;
    let mut interrupts = 0_u32;
    let outcome = loop {
        tokio::select! {
            outcome = &mut driving => break outcome,
            () = wake.0.notified() => {
                view.show(ui)?;
                if ui.is_output_closed() && !stops.soon.is_cancelled() {
                    ui.print_message("the output was closed: finishing the action under way, then saving");
                    stops.soon.cancel();
                }
            }
            () = tokio::time::sleep(STATUS_INTERVAL) => view.draw_status(ui),
            () = leave.recv() => {
                if stops.soon.is_cancelled() {
                    stops.now.cancel();
                } else {
                    ui.print_message("asked to end: finishing the action under way if that is soon, then saving");
                    stops.soon.cancel();
                    let now = stops.now.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(TERMINATE_GRACE).await;
                        now.cancel();
                    });
                }
            }
            _ = pressed.recv() => {
                interrupts += 1;
                if interrupts == 1 {
                    ui.print_message("finishing the action under way, then saving; Ctrl-C again stops it now");
                    stops.soon.cancel();
                } else {
                    stops.now.cancel();
                }
            }
        }
    };
    view.show(ui)?;
    ui.clear_status();
    outcome.map_err(|error| {
        let mut failure = CliError::from(error);
        failure.log = Some(folder.events_path().display().to_string());
        if failure.hint.is_none() {
            failure.hint = Some(format!("ralph resume {}", folder.id()));
        }
        failure
    })
}

struct ForegroundView {
    follow: EventLogReader,
    run: RunView,
    /// When the activity was read; not when it began, which may have been before a crash.
    activity_read: Instant,
    after: u64,
}

impl ForegroundView {
    fn show(&mut self, ui: &mut Ui) -> Result<(), CliError> {
        while let Some(line) = self.follow.next()? {
            let before = self.run.activity.clone();
            self.run.apply(&line, Timestamp::now());
            if self.run.activity != before {
                self.activity_read = Instant::now();
            }
            if line.seq <= self.after {
                continue;
            }
            if ui.json() {
                ui.print_data(&line.to_json());
            } else if let Some(text) = events::event_line(&line, self.run.state.as_ref()) {
                ui.print_message(&text);
            }
        }
        self.draw_status(ui);
        Ok(())
    }

    fn draw_status(&self, ui: &mut Ui) {
        if !ui.shows_status_line() {
            return;
        }
        if let (Some(state), Some(activity)) = (&self.run.state, &self.run.activity) {
            ui.set_status(&status_line(state, &activity.text, self.activity_read.elapsed()));
        }
    }
}

/// Formats the status line: iteration, cost, time, loop score, current activity.
pub(crate) fn status_line(state: &RunState, what: &str, since: Duration) -> String {
    let cost = match state.budget.cost {
        Some(cap) => format!("${:.2}/{}", state.spent.cost.as_usd(), cap.as_usd()),
        None => format!("${:.2}", state.spent.cost.as_usd()),
    };
    let scores: Vec<f64> = state.scores.iter().rev().take(8).rev().copied().collect();
    format!(
        "#{}/{}  {cost}  {}/{}  loop {:.1} {}  ▸ {} {}s",
        state.spent.iterations,
        state.budget.iterations,
        // Events carry the time that was worked; add what has passed since the last one.
        format_duration(state.spent.wall_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(0))),
        format_duration(state.budget.wall_ms),
        scores.last().copied().unwrap_or(0.0),
        sparkline(&scores),
        crate::terminal_output::one_line(what, 60),
        since.as_secs(),
    )
}

/// Formats a duration for people.
pub(crate) fn format_duration(ms: u64) -> String {
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
        assert!(is_signal_ignored(status, SignalKind::hangup()));
        assert!(!is_signal_ignored(status, SignalKind::terminate()));
        assert!(!is_signal_ignored("", SignalKind::hangup()));
    }
}
