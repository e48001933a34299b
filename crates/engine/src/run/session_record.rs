//! Saves the results of an agent's session: its transcript, its claims and how it ended.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_core::action::{ActionKind, ActionReply, ReplyClaims};
use ralph_core::event::{ActionOutcome, Event, EventLogLevel};
use ralph_core::redact::MaskedText;
use ralph_core::{task, text};
use ralph_sandbox::{Error as SandboxError, Sandbox};
use serde::{Deserialize, Serialize};

use super::action_log::{ACTION_LOG_FILE, ActionLogEntry};
use super::agent_output::SessionTranscript;
use super::run_context::RunContext;
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
    detail: MaskedText,
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

    /// Opens the file that receives the output during the session. Without it, only the output of a session during
    /// which ralph dies is lost.
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
        // The transcript contains it now. If it cannot be removed, it is saved as another session's, which is harmless.
        let _ = fs::remove_file(self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE));
        Ok(())
    }

    /// Saves the output of a session during which ralph died.
    pub(super) async fn save_interrupted_transcript(&self, n: u32, sandbox: &dyn Sandbox) -> Result<(), Error> {
        let path = self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE);
        let Some(transcript) = self.run.folder.read(&path)?.filter(|transcript| !transcript.is_empty()) else {
            return Ok(());
        };
        let taken = |name: &String| self.run.folder.iteration(n).join(name).exists();
        let name = (1..=u32::MAX)
            .map(interrupted_transcript_name)
            .find(|name| !taken(name))
            .unwrap_or_else(|| interrupted_transcript_name(0));
        self.write_transcript(n, sandbox, &name, &String::from_utf8_lossy(&transcript)).await
    }

    /// Saves the result of a session with the claims from the task file, and ends the action.
    pub(super) async fn save_session(
        &mut self,
        n: u32,
        code: Option<i32>,
        took: Duration,
        transcript: &SessionTranscript,
        outcome: ActionOutcome,
        detail: String,
    ) -> Result<(), Error> {
        let claims = self.claimed_in_task(n).await?;
        let said = transcript.finished.as_ref().map(|finished| finished.text.as_str()).filter(|text| !text.is_empty());
        let summary = text::head(&text::strip_control(said.unwrap_or(&transcript.last_text)), 2000).to_owned();
        let complaint = match outcome {
            ActionOutcome::Ok => String::new(),
            _ => text::tail(&transcript.stderr, 30, 4000).to_owned(),
        };
        let kept = SavedSession {
            reply: ActionReply { summary, actions: Vec::new(), claims },
            outcome,
            code,
            detail: self.run.redactor.mask(&detail),
            complaint,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        let path = self.run.folder.iteration(n).join(SESSION_FILE);
        write_atomic(&path, &serde_json::to_vec(&kept).unwrap_or_default())?;
        self.finish_session(n, &kept).await
    }

    /// Reads the agent's claims: it claims a box by ticking it in its copy of the task. Only ticks count; other
    /// changes are saved for the user.
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
        // The claims are saved, so the task file can be restored.
        let (sandbox, path) = (self.work.sandbox()?, PathBuf::from(&self.run.state().started.task_path));
        let wanted = self.run.task_text()?;
        match sandbox.write(&path, wanted.as_bytes(), None).await {
            // Closing the iteration removes what is in the way there.
            Ok(()) | Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => (),
            Err(error) => return Err(error.into()),
        }
        self.work.forget_tree();
        // The agent's text and claims are written where a model's reply would be.
        let reply = serde_json::to_vec_pretty(&kept.reply).unwrap_or_default();
        self.run.files.write_artefact(&*sandbox, n, "response.json", &reply).await?;
        let acted = ActionLogEntry {
            index: 0,
            kind: ActionKind::Session,
            brief: self.run.redactor.mask(self.run.state().started.agent.as_ref().map_or("", |agent| &agent.name)),
            outcome: kept.outcome,
            code: kept.code,
            // A session is more than one command: one that did not end is assessed by what it did.
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

/// Returns the name of the transcript of a session during which ralph died.
fn interrupted_transcript_name(times: u32) -> String {
    format!("session-interrupted-{times}.jsonl")
}
