//! Prints all output: data to stdout, everything else to stderr, one pinned status line while a run is live.

use std::io::{self, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use ralph_core::exit_code::RalphExitCode;
pub(crate) use ralph_web::view::one_line;

pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();

/// Prints for people and programs.
pub(crate) struct Ui {
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
    live: bool,
    status_shown: bool,
    json: bool,
    reader: OutputReader,
}

/// Whether the program needs a reader for its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    /// The program ends when the output is closed, because it has nothing else to do.
    Required,
    /// The program continues when the output is closed, because it must first save the work under way.
    Optional,
    /// The output was closed.
    Gone,
}

impl std::fmt::Debug for Ui {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ui").field("json", &self.json).finish_non_exhaustive()
    }
}

/// Colours text when the terminal shows colours; the text must be complete without them.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

impl Ui {
    pub(crate) fn new(color: ColorChoice, json: bool, progress: bool) -> Self {
        let live = progress && !json && io::stderr().is_terminal();
        Self {
            out: AutoStream::new(io::stdout(), color),
            err: AutoStream::new(io::stderr(), color),
            live,
            status_shown: false,
            json,
            reader: OutputReader::Required,
        }
    }

    /// From now on, a closed output does not end the program.
    pub(crate) fn tolerate_broken_pipe(&mut self) {
        self.reader = OutputReader::Optional;
    }

    pub(crate) fn is_output_closed(&self) -> bool {
        self.reader == OutputReader::Gone
    }

    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Returns whether a pinned status line makes sense here.
    pub(crate) fn shows_status_line(&self) -> bool {
        self.live
    }

    /// Returns whether there is a terminal on which the user can answer a question.
    pub(crate) fn can_prompt(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal() && !self.json
    }

    /// Writes a line of data.
    pub(crate) fn print_data(&mut self, line: &str) {
        self.clear_status();
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        self.handle_write_error(written);
    }

    /// Writes data unchanged, without adding a newline.
    pub(crate) fn print_raw(&mut self, text: &str) {
        self.clear_status();
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        self.handle_write_error(written);
    }

    /// Writes a value as JSON on one line.
    pub(crate) fn print_json(&mut self, value: &impl serde::Serialize) {
        let text = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
        self.print_data(&text);
    }

    /// Writes a message for the user to stderr.
    pub(crate) fn print_message(&mut self, line: &str) {
        self.clear_status();
        // A message that is lost because stderr is closed must not end the run.
        let _ = writeln!(self.err, "{line}");
    }

    /// Shows the pinned status line, replacing the previous one.
    pub(crate) fn set_status(&mut self, line: &str) {
        if self.live {
            let width = terminal_width();
            let cut: String = line.chars().take(width.saturating_sub(1)).collect();
            let _ = write!(self.err, "\r\x1b[2K{cut}");
            let _ = self.err.flush();
            self.status_shown = true;
        }
    }

    /// Removes the pinned status line.
    pub(crate) fn clear_status(&mut self) {
        if self.status_shown {
            let _ = write!(self.err, "\r\x1b[2K");
            let _ = self.err.flush();
            self.status_shown = false;
        }
    }

    /// Handles a failed write. A closed reader is no error: the program ends quietly, as if everything had been read.
    /// Other failures lose output, which is reported.
    fn handle_write_error(&mut self, written: io::Result<()>) {
        let Err(error) = written else { return };
        match self.reader {
            OutputReader::Required if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            OutputReader::Required => {
                self.print_message(&format!("the output could not be written: {error}; next: write it elsewhere"));
                std::process::exit(i32::from(RalphExitCode::Failed.code()))
            }
            OutputReader::Optional | OutputReader::Gone => self.reader = OutputReader::Gone,
        }
    }

    /// Asks a yes-or-no question; anything but yes is no.
    pub(crate) fn confirm(&mut self, question: &str) -> bool {
        self.clear_status();
        let _ = write!(self.err, "{question} [y/N] ");
        let _ = self.err.flush();
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

fn terminal_width() -> usize {
    stderr_width().unwrap_or(100)
}

fn stderr_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
