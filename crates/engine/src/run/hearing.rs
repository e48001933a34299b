//! Hears what an agent prints while it works.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ralph_core::agent::{Finished, Lines, Reader, Said};
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_sandbox::{Kept, Sink, Stream};

/// What an alarm calls it when a secret stands in what an agent says.
const PLACE: &str = "what the agent printed";

/// How much of the output is kept, from its start and its end.
const OUTPUT: usize = 4 << 20;
/// How much of what it complains about.
const STDERR: usize = 64 << 10;
/// So many things an agent says are told in a session; all of them stand in the artefact.
const TOLD: usize = 400;

/// What was heard of one session. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Hearing {
    ears: Arc<Mutex<Ears>>,
}

#[derive(Debug)]
struct Ears {
    reader: Box<dyn Reader>,
    redactor: Redactor,
    lines: Lines,
    /// Every line as it comes, for the case that nobody is left to write the transcript.
    journal: Option<Journal>,
    said: Vec<Said>,
    told: usize,
    output: Kept,
    stderr: Kept,
    last: Instant,
    finished: Option<Instant>,
}

/// All that is left of a session when it is over.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) finished: Option<Finished>,
    /// The last words of the agent.
    pub(super) last: String,
    /// What was said and not told yet.
    pub(super) said: Vec<Said>,
    pub(super) output: String,
    pub(super) stderr: String,
}

/// What was heard so far, in a file.
#[derive(Debug)]
struct Journal {
    file: File,
    left: usize,
}

impl Journal {
    /// Writes a line down. A disk that is full must not end a session, which keeps its transcript in memory too.
    fn note(&mut self, line: &str) {
        if line.len() < self.left {
            self.left -= line.len() + 1;
            let _ = self.file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Hearing {
    pub(super) fn new(reader: Box<dyn Reader>, redactor: Redactor, journal: Option<File>) -> Self {
        let ears = Ears {
            reader,
            redactor,
            lines: Lines::default(),
            journal: journal.map(|file| Journal { file, left: OUTPUT }),
            said: Vec::new(),
            told: 0,
            output: Kept::new(OUTPUT),
            stderr: Kept::new(STDERR),
            last: Instant::now(),
            finished: None,
        };
        Self { ears: Arc::new(Mutex::new(ears)) }
    }

    /// Returns what the session's output goes into.
    pub(super) fn sink(&self) -> impl Sink + use<> {
        Mouthpiece(Arc::clone(&self.ears))
    }

    /// Returns what was said since this was last asked.
    pub(super) fn said(&self) -> Vec<Said> {
        std::mem::take(&mut self.ears().said)
    }

    /// Returns how long ago the agent said it is done.
    pub(super) fn finished_for(&self) -> Option<Duration> {
        self.ears().finished.map(|since| since.elapsed())
    }

    pub(super) fn silent_for(&self) -> Duration {
        self.ears().last.elapsed()
    }

    /// Returns all that was heard, with secrets masked.
    pub(super) fn take(&self) -> Heard {
        let mut ears = self.ears();
        let lines = std::mem::take(&mut ears.lines);
        let mut rest = Vec::new();
        lines.end(|line| rest.push(line.to_owned()));
        for line in rest {
            ears.hear(&line);
        }
        let redactor = ears.redactor.clone();
        let text = |kept: &mut Kept| {
            let bytes = std::mem::replace(kept, Kept::new(0)).bytes();
            redactor.redact_in(PLACE, &String::from_utf8_lossy(&bytes)).into_owned()
        };
        let mask = |text: &str| redactor.redact(text).into_owned();
        let finished = ears.reader.finished().map(|finished| Finished {
            text: mask(&finished.text),
            why: finished.why.as_deref().map(mask),
            ..finished.clone()
        });
        Heard {
            finished,
            last: mask(&ears.reader.text()),
            said: std::mem::take(&mut ears.said),
            output: text(&mut ears.output),
            stderr: text::plain(&text(&mut ears.stderr)),
        }
    }

    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ears {
    fn hear(&mut self, line: &str) {
        // Masked first of all: readers cut what they keep, and half a secret is not found any more.
        let line = self.redactor.redact_in(PLACE, line);
        if let Some(journal) = &mut self.journal {
            journal.note(&line);
        }
        for said in self.reader.line(&line) {
            self.told += 1;
            if self.told <= TOLD {
                self.said.push(said);
            }
        }
        if self.finished.is_none() && self.reader.finished().is_some() {
            self.finished = Some(Instant::now());
        }
    }
}

#[derive(Debug)]
struct Mouthpiece(Arc<Mutex<Ears>>);

impl Sink for Mouthpiece {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        let mut ears = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ears.last = Instant::now();
        match stream {
            Stream::Stderr => ears.stderr.push(bytes),
            Stream::Stdout => {
                ears.output.push(bytes);
                let mut lines = std::mem::take(&mut ears.lines);
                let mut whole = Vec::new();
                lines.push(bytes, |line| whole.push(line.to_owned()));
                ears.lines = lines;
                for line in whole {
                    ears.hear(&line);
                }
            }
        }
    }
}
