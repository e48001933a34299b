//! What can interrupt a run: stop signals of this process, and the controls that users send to the run.
//!
//! It holds them and says what is due. Carrying a control out is in `controls`.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::control::IncomingControl;

/// How the user ends this process's work on a run, for example with Ctrl-C.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Finish the action under way, save, and pause.
    pub soon: CancellationToken,
    /// Abort the action under way too.
    pub now: CancellationToken,
}

/// The stop signals and controls of one run.
#[derive(Debug)]
pub(super) struct Interrupts {
    stops: StopSignals,
    /// Cancelled by the control socket as soon as it receives a `stop`.
    halt: CancellationToken,
    controls: mpsc::Receiver<IncomingControl>,
    /// Controls that arrived during an action and are carried out after it.
    deferred: VecDeque<IncomingControl>,
    pause_asked: bool,
    stop_asked: bool,
}

/// Clones of the tokens of [`Interrupts`], for a step that waits for them while it also receives controls.
#[derive(Debug, Clone)]
pub(super) struct StopTokens {
    pub(super) halt: CancellationToken,
    pub(super) stops: StopSignals,
}

/// Why a wait ended.
#[derive(Debug)]
pub(super) enum WaitEnd {
    Elapsed,
    /// The run is to stop, or nothing can reach it any more.
    Stopped,
    Control(IncomingControl),
}

impl Interrupts {
    pub(super) fn new(stops: StopSignals, halt: CancellationToken, controls: mpsc::Receiver<IncomingControl>) -> Self {
        Self { stops, halt, controls, deferred: VecDeque::new(), pause_asked: false, stop_asked: false }
    }

    pub(super) fn tokens(&self) -> StopTokens {
        StopTokens { halt: self.halt.clone(), stops: self.stops.clone() }
    }

    /// Says whether this process is to leave the run, after the action under way or at once.
    pub(super) fn is_process_stopping(&self) -> bool {
        self.stops.soon.is_cancelled() || self.stops.now.is_cancelled()
    }

    /// Says whether this process is to leave the run without waiting for anything.
    pub(super) fn is_process_aborting(&self) -> bool {
        self.stops.now.is_cancelled()
    }

    /// Says whether the action under way is to be aborted, by a `stop` control or by this process.
    pub(super) fn is_action_aborted(&self) -> bool {
        self.halt.is_cancelled() || self.stops.now.is_cancelled()
    }

    /// Waits for the next control; `None` when none can arrive any more.
    pub(super) async fn next_control(&mut self) -> Option<IncomingControl> {
        self.controls.recv().await
    }

    /// Returns the next control that is to be carried out between two steps: the deferred ones first.
    pub(super) fn take_waiting_control(&mut self) -> Option<IncomingControl> {
        self.deferred.pop_front().or_else(|| self.controls.try_recv().ok())
    }

    /// Keeps a control until the action under way has ended.
    pub(super) fn defer(&mut self, control: IncomingControl) {
        self.deferred.push_back(control);
    }

    pub(super) fn ask_pause(&mut self) {
        self.pause_asked = true;
    }

    pub(super) fn is_pause_asked(&self) -> bool {
        self.pause_asked
    }

    pub(super) fn clear_pause(&mut self) {
        self.pause_asked = false;
    }

    pub(super) fn ask_stop(&mut self) {
        self.stop_asked = true;
    }

    pub(super) fn is_stop_asked(&self) -> bool {
        self.stop_asked
    }

    pub(super) fn clear_stop(&mut self) {
        self.stop_asked = false;
    }

    /// Waits in the middle of a step.
    pub(super) async fn wait_in_step(&mut self, wait: Duration) -> WaitEnd {
        tokio::select! {
            () = tokio::time::sleep(wait) => WaitEnd::Elapsed,
            () = self.halt.cancelled() => WaitEnd::Stopped,
            () = self.stops.soon.cancelled() => WaitEnd::Stopped,
            () = self.stops.now.cancelled() => WaitEnd::Stopped,
            Some(control) = self.controls.recv() => WaitEnd::Control(control),
        }
    }

    /// Waits while the run is paused. The halt token does not end this wait: the `stop` that cancelled it arrives as a
    /// control, which must be carried out.
    pub(super) async fn wait_while_paused(&mut self, wait: Duration) -> WaitEnd {
        tokio::select! {
            () = tokio::time::sleep(wait) => WaitEnd::Elapsed,
            () = self.stops.soon.cancelled() => WaitEnd::Stopped,
            () = self.stops.now.cancelled() => WaitEnd::Stopped,
            control = self.controls.recv() => control.map_or(WaitEnd::Stopped, WaitEnd::Control),
        }
    }
}

impl StopTokens {
    /// Waits until the action under way is to be aborted.
    pub(super) async fn aborted(&self) {
        tokio::select! {
            () = self.halt.cancelled() => (),
            () = self.stops.now.cancelled() => (),
        }
    }

    /// Waits until the run or this process is to stop, at once or after the action under way.
    pub(super) async fn stopping(&self) {
        tokio::select! {
            () = self.aborted() => (),
            () = self.stops.soon.cancelled() => (),
        }
    }
}
