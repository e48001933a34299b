//! Takes over the terminal and restores it: at the end, on a signal, on a panic.

use std::io::{self, IsTerminal as _, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ralph_core::env_vars::Env;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Size;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

use super::draw::draw;
use super::model::WatchModel;

/// The longest time in which the key reader notices that its receiver was dropped.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether this process currently has the terminal taken over.
static TERMINAL_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Returns whether there is a terminal that can be drawn on.
pub(crate) fn can_draw(env: &Env) -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && env.get("TERM") != Some("dumb")
}

/// The screen; dropping it restores the terminal.
pub(super) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalScreen {
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The terminal is restored first, so that the panic message can be read.
            restore_terminal();
            before(info);
        }));
        let mut screen = Self { terminal: Terminal::new(CrosstermBackend::new(io::stdout()))? };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        TERMINAL_ACTIVE.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
        self.terminal.clear()
    }

    pub(super) fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    pub(super) fn draw(&mut self, model: &WatchModel) -> io::Result<()> {
        if !TERMINAL_ACTIVE.load(Ordering::SeqCst) {
            // Another thread panicked, and its panic hook has already restored the terminal.
            return Err(io::Error::other("the terminal was already restored"));
        }
        // Terminals with synchronized output show a frame whole or not at all; others ignore it.
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| draw(model, frame)).map(drop);
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        drawn
    }

    /// Suspends this program as Ctrl-Z does everywhere, and takes the terminal over again when it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        kill_process(getpid(), Signal::TSTP)?;
        self.enter()
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Restores the terminal, once; errors are ignored because a terminal that is gone needs nothing.
fn restore_terminal() {
    if TERMINAL_ACTIVE.swap(false, Ordering::SeqCst) {
        // Cleared first: a terminal that was resized meanwhile may keep rows of this screen on its main screen.
        let _ = execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            DisableBracketedPaste,
            Clear(ClearType::All),
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
    }
}

/// How many reads in a row may fail before the terminal counts as gone.
const MAX_READ_FAILURES: u32 = 40;

/// Reads keys on its own thread, because waiting for a terminal blocks.
pub(super) struct KeyReader {
    stop: Arc<AtomicBool>,
}

impl KeyReader {
    pub(super) fn spawn() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(256);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // This thread is not joined: if the terminal is gone, its read may never return.
        std::thread::spawn(move || {
            let mut failed = 0;
            while !stopped.load(Ordering::SeqCst) && failed < MAX_READ_FAILURES {
                match event::poll(KEY_POLL_INTERVAL)
                    .and_then(|there| if there { event::read().map(Some) } else { Ok(None) })
                {
                    Ok(None) => (),
                    Ok(Some(event)) => {
                        failed = 0;
                        if sender.blocking_send(event).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the terminal could not be read");
                        failed += 1;
                        std::thread::sleep(KEY_POLL_INTERVAL);
                    }
                }
            }
        });
        (Self { stop }, receiver)
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
