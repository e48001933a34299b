//! Reads the output of an agent while it works.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ralph_core::agent::{AgentOutputEvent, AgentOutputReader, AgentResult, LineSplitter};
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_sandbox::{HeadTailBuffer, OutputSink, OutputStream};

/// How an alarm names this output when a secret is found in it.
const ALARM_SOURCE: &str = "what the agent printed";

/// How much of the output is kept, from its start and its end.
const OUTPUT_CAP: usize = 4 << 20;
/// How much of the error output is kept.
const STDERR_CAP: usize = 64 << 10;
/// How many output events of a session are reported; the artefact holds all of them.
const MAX_REPORTED_EVENTS: usize = 400;

/// The output of one session so far. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SessionOutput {
    state: Arc<Mutex<SessionOutputState>>,
}

#[derive(Debug)]
struct SessionOutputState {
    reader: Box<dyn AgentOutputReader>,
    redactor: Redactor,
    lines: LineSplitter,
    /// Every line as it arrives, in case this process dies before it writes the transcript.
    transcript_file: Option<TranscriptFile>,
    events: Vec<AgentOutputEvent>,
    reported: usize,
    output: HeadTailBuffer,
    stderr: HeadTailBuffer,
    last_output: Instant,
    finished: Option<Instant>,
}

/// The output of a session that ended.
#[derive(Debug)]
pub(super) struct SessionTranscript {
    pub(super) finished: Option<AgentResult>,
    /// The last text of the agent.
    pub(super) last_text: String,
    /// Events that were not reported yet.
    pub(super) events: Vec<AgentOutputEvent>,
    pub(super) output: String,
    pub(super) stderr: String,
}

/// The file that holds the output so far.
#[derive(Debug)]
struct TranscriptFile {
    file: File,
    left: usize,
}

impl TranscriptFile {
    /// Appends a line. Errors are ignored: a full disk must not end a session, whose transcript is in memory too.
    fn write_line(&mut self, line: &str) {
        if line.len() < self.left {
            self.left -= line.len() + 1;
            let _ = self.file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl SessionOutput {
    pub(super) fn new(reader: Box<dyn AgentOutputReader>, redactor: Redactor, journal: Option<File>) -> Self {
        let ears = SessionOutputState {
            reader,
            redactor,
            lines: LineSplitter::default(),
            transcript_file: journal.map(|file| TranscriptFile { file, left: OUTPUT_CAP }),
            events: Vec::new(),
            reported: 0,
            output: HeadTailBuffer::new(OUTPUT_CAP),
            stderr: HeadTailBuffer::new(STDERR_CAP),
            last_output: Instant::now(),
            finished: None,
        };
        Self { state: Arc::new(Mutex::new(ears)) }
    }

    /// Returns the sink for the session's output.
    pub(super) fn sink(&self) -> impl OutputSink + use<> {
        SessionSink(Arc::clone(&self.state))
    }

    /// Returns the events since the last call.
    pub(super) fn take_events(&self) -> Vec<AgentOutputEvent> {
        std::mem::take(&mut self.lock_state().events)
    }

    /// Returns how long ago the agent reported that it is done.
    pub(super) fn finished_for(&self) -> Option<Duration> {
        self.lock_state().finished.map(|since| since.elapsed())
    }

    pub(super) fn silent_for(&self) -> Duration {
        self.lock_state().last_output.elapsed()
    }

    /// Returns the whole output, with secrets masked.
    pub(super) fn finish(&self) -> SessionTranscript {
        let mut ears = self.lock_state();
        let lines = std::mem::take(&mut ears.lines);
        let mut rest = Vec::new();
        lines.finish(|line| rest.push(line.to_owned()));
        for line in rest {
            ears.push_line(&line);
        }
        let redactor = ears.redactor.clone();
        let text = |kept: &mut HeadTailBuffer| {
            let bytes = std::mem::replace(kept, HeadTailBuffer::new(0)).bytes();
            redactor.redact_and_report(ALARM_SOURCE, &String::from_utf8_lossy(&bytes)).into_owned()
        };
        let mask = |text: &str| redactor.redact(text).into_owned();
        let finished = ears.reader.session_result().map(|finished| AgentResult {
            text: mask(&finished.text),
            why: finished.why.as_deref().map(mask),
            ..finished.clone()
        });
        SessionTranscript {
            finished,
            last_text: mask(&ears.reader.last_text()),
            events: std::mem::take(&mut ears.events),
            output: text(&mut ears.output),
            stderr: text::strip_control(&text(&mut ears.stderr)),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, SessionOutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionOutputState {
    fn push_line(&mut self, line: &str) {
        // Mask before anything else: readers cut what they keep, and half a secret is not recognized any more.
        let line = self.redactor.redact_and_report(ALARM_SOURCE, line);
        if let Some(journal) = &mut self.transcript_file {
            journal.write_line(&line);
        }
        for said in self.reader.read_line(&line) {
            self.reported += 1;
            if self.reported <= MAX_REPORTED_EVENTS {
                self.events.push(said);
            }
        }
        if self.finished.is_none() && self.reader.session_result().is_some() {
            self.finished = Some(Instant::now());
        }
    }
}

#[derive(Debug)]
struct SessionSink(Arc<Mutex<SessionOutputState>>);

impl OutputSink for SessionSink {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        let mut ears = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ears.last_output = Instant::now();
        match stream {
            OutputStream::Stderr => ears.stderr.push(bytes),
            OutputStream::Stdout => {
                ears.output.push(bytes);
                let mut lines = std::mem::take(&mut ears.lines);
                let mut whole = Vec::new();
                lines.push(bytes, |line| whole.push(line.to_owned()));
                ears.lines = lines;
                for line in whole {
                    ears.push_line(&line);
                }
            }
        }
    }
}
