//! Keeps what came of an agent's session: its transcript, its claims, its result.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_core::action::{ActionKind, ActionReply, ReplyClaims};
use ralph_core::event::{ActionOutcome, Event, EventLogLevel};
use ralph_core::{task, text};
use ralph_sandbox::{Error as SandboxError, Sandbox};
use serde::{Deserialize, Serialize};

use super::action_log::{ACTION_LOG_FILE, ActionLogEntry};
use super::agent_output::SessionTranscript;
use super::context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::store::{RunFolder, write_atomic};

/// The result of a session that ended.
pub(super) const SESSION_FILE: &str = "session.json";
/// The output so far of the session under way.
const TRANSCRIPT_PART_FILE: &str = "session.part";

/// `iterations/<n>/session.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSession {
    reply: ActionReply,
    outcome: ActionOutcome,
    code: Option<i32>,
    detail: String,
    complaint: String,
    duration_ms: u64,
}

/// Writes the files of a session.
#[derive(Debug)]
pub(super) struct SessionRecord<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
}

impl SessionRecord<'_> {
    /// Returns the result of the session when it ended under an earlier process.
    pub(super) fn saved(&self, n: u32) -> Result<Option<SavedSession>, Error> {
        saved_session(&self.run.folder, n)
    }

    /// Opens what is written while the agent speaks. Without it only a session that ralph itself dies in is not kept.
    pub(super) fn create_transcript_file(&self, n: u32) -> Option<File> {
        File::create(self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE)).ok()
    }

    pub(super) async fn write_transcript(
        &self,
        n: u32,
        sandbox: &dyn Sandbox,
        name: &str,
        text: &str,
    ) -> Result<(), Error> {
        self.run.files.write_artefact(sandbox, n, name, text.as_bytes()).await?;
        // It stands in the transcript now. One that stays is kept as another session, which is no harm.
        let _ = fs::remove_file(self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE));
        Ok(())
    }

    /// Keeps what was heard of a session that ended with ralph itself.
    pub(super) async fn save_interrupted_transcript(&self, n: u32, sandbox: &dyn Sandbox) -> Result<(), Error> {
        let path = self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE);
        let Some(heard) = self.run.folder.read(&path)?.filter(|heard| !heard.is_empty()) else { return Ok(()) };
        let taken = |name: &String| self.run.folder.iteration(n).join(name).exists();
        let name = (1..=u32::MAX)
            .map(interrupted_transcript_name)
            .find(|name| !taken(name))
            .unwrap_or_else(|| interrupted_transcript_name(0));
        self.write_transcript(n, sandbox, &name, &String::from_utf8_lossy(&heard)).await
    }

    /// Keeps what came of a session, takes its claims out of the task file, and ends it.
    pub(super) async fn save_session(
        &mut self,
        n: u32,
        code: Option<i32>,
        took: Duration,
        heard: &SessionTranscript,
        outcome: ActionOutcome,
        detail: String,
    ) -> Result<(), Error> {
        let claims = self.claimed_in_task(n).await?;
        let said = heard.finished.as_ref().map(|finished| finished.text.as_str()).filter(|text| !text.is_empty());
        let summary = text::head(&text::strip_control(said.unwrap_or(&heard.last_text)), 2000).to_owned();
        let complaint = match outcome {
            ActionOutcome::Ok => String::new(),
            _ => text::tail(&heard.stderr, 30, 4000).to_owned(),
        };
        let kept = SavedSession {
            reply: ActionReply { summary, actions: Vec::new(), claims },
            outcome,
            code,
            detail: self.run.redactor.redact(&detail).into_owned(),
            complaint,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        let path = self.run.folder.iteration(n).join(SESSION_FILE);
        write_atomic(&path, &serde_json::to_vec(&kept).unwrap_or_default())?;
        self.finish_session(n, &kept).await
    }

    /// An agent claims a box by ticking it in its copy of the task. Only ticks count; whatever else it wrote there is
    /// put aside for a person.
    async fn claimed_in_task(&mut self, n: u32) -> Result<ReplyClaims, Error> {
        let (sandbox, path) = (self.work.sandbox()?, self.run.state().started.task_path.clone());
        let pinned = self.run.pinned_task()?;
        let found = match sandbox.read(Path::new(&path), 4 << 20).await {
            Ok(found) => found,
            Err(error @ SandboxError::Gone { .. }) => return Err(error.into()),
            Err(error) => {
                self.run.log_once(
                    EventLogLevel::Warn,
                    format!("nothing was claimed: the task file cannot be read: {error}"),
                )?;
                Vec::new()
            }
        };
        let found = String::from_utf8_lossy(&found).into_owned();
        let bare = |text: &str| task::tick(text, &BTreeSet::new());
        if !found.is_empty() && bare(&found) != bare(&pinned) {
            let shown = self.run.redactor.redact(&found).into_owned();
            self.run.files.write_artefact(&*sandbox, n, "task_proposal.md", shown.as_bytes()).await?;
            let place = format!(".ralph/iterations/{n}/task_proposal.md");
            self.run.log_once(
                EventLogLevel::Warn,
                format!("the agent changed more of {path} than boxes: put aside as {place}"),
            )?;
        }
        let known = &self.run.state().started.boxes;
        let ticked = task::ticked_boxes(&found);
        let boxes = known.iter().map(|pinned| pinned.id.clone()).filter(|id| ticked.contains(id)).collect();
        Ok(ReplyClaims { checkboxes_checked: boxes, milestones_completed: Vec::new() })
    }

    pub(super) async fn finish_session(&mut self, n: u32, kept: &SavedSession) -> Result<(), Error> {
        // The ticks are known; the file is ralph's again.
        let (sandbox, path) = (self.work.sandbox()?, PathBuf::from(&self.run.state().started.task_path));
        let wanted = self.run.task_text()?;
        match sandbox.write(&path, wanted.as_bytes(), None).await {
            // What stands in its way is cleared when the iteration is closed.
            Ok(()) | Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => (),
            Err(error) => return Err(error.into()),
        }
        self.work.forget_tree();
        // What it said and claimed stands where the answer of a model would.
        let reply = serde_json::to_vec_pretty(&kept.reply).unwrap_or_default();
        self.run.files.write_artefact(&*sandbox, n, "response.json", &reply).await?;
        let acted = ActionLogEntry {
            index: 0,
            kind: ActionKind::Session,
            brief: self.run.state().started.agent.as_ref().map(|agent| agent.name.clone()).unwrap_or_default(),
            outcome: kept.outcome,
            code: kept.code,
            // A session is more than one command: one that came to no end is judged by what it did.
            timed_out: false,
            duration_ms: kept.duration_ms,
            detail: kept.detail.clone(),
            complaint: kept.complaint.clone(),
        };
        let line = format!("{}\n", serde_json::to_string(&acted).unwrap_or_default());
        write_atomic(&self.run.folder.iteration(n).join(ACTION_LOG_FILE), line.as_bytes())?;
        let SavedSession { outcome, code, duration_ms, detail, .. } = kept;
        let (outcome, code, duration_ms, detail) = (*outcome, *code, *duration_ms, detail.clone());
        self.run.append(Event::ActionFinished { n, index: 0, outcome, code, duration_ms, detail })
    }
}

fn saved_session(folder: &RunFolder, n: u32) -> Result<Option<SavedSession>, Error> {
    let bytes = folder.read(&folder.iteration(n).join(SESSION_FILE))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Returns what an agent said and claimed, in the form of a model's reply.
pub(super) fn session_reply(folder: &RunFolder, n: u32) -> Result<ActionReply, Error> {
    let nothing = || ActionReply { summary: String::new(), actions: Vec::new(), claims: ReplyClaims::default() };
    Ok(saved_session(folder, n)?.map_or_else(nothing, |kept| kept.reply))
}

/// The name of what a session printed that ralph did not live to see the end of.
fn interrupted_transcript_name(times: u32) -> String {
    format!("session-interrupted-{times}.jsonl")
}
