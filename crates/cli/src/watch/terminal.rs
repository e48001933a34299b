//! The terminal, taken over and given back: at the end, on a signal, on a panic.

use std::io::{self, IsTerminal as _, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ralph_core::env::Env;
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

/// How long the reader of keys takes at most to notice that nobody listens any more.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The terminal is ours at the moment.
static TERMINAL_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Tells whether there is a terminal that can be drawn on.
pub(crate) fn can_draw(env: &Env) -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && env.get("TERM") != Some("dumb")
}

/// The screen; it is given back when this is dropped.
pub(super) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalScreen {
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // First the terminal: what is said about a panic is to be read.
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
            // Something panicked beside us, and the terminal was given back already.
            return Err(io::Error::other("the screen was given back"));
        }
        // Terminals that know this show a frame whole or not at all; others pass over it.
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| draw(model, frame)).map(drop);
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        drawn
    }

    /// Stops this program as Ctrl-Z does everywhere, and comes back when it is let go on.
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

/// Gives the terminal back, once; a terminal that is gone needs nothing.
fn restore_terminal() {
    if TERMINAL_ACTIVE.swap(false, Ordering::SeqCst) {
        // Cleared first: a terminal that was resized meanwhile may keep rows of ours on its own screen.
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

/// How often in a row reading may fail before the terminal counts as gone.
const MAX_READ_FAILURES: u32 = 40;

/// Reads keys on a thread of its own, because a terminal can only be waited for by blocking.
pub(super) struct KeyReader {
    stop: Arc<AtomicBool>,
}

impl KeyReader {
    pub(super) fn spawn() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(256);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // Nobody waits for this thread: on a terminal that is gone it may never come back from reading.
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
