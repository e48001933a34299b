//! Carries out one action of the model, exactly once even when the process dies in the middle of it.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ralph_core::action::{Action, PermissionBits, RepoPath, WriteAccess};
use ralph_core::event::{ActionOutcome, Event, EventLogLevel, PreActionState};
use ralph_core::hash::sha256;
use ralph_core::run::PendingAction;
use ralph_core::{patch, text};
use ralph_sandbox::{Error as SandboxError, Sandbox};

use super::action_log::{ACTION_LOG_FILE, ActionLogEntry};
use super::controls::ControlHandler;
use super::egress_events::EgressEvents;
use super::interrupts::Interrupts;
use super::last_actions::{output_name, output_path};
use super::model_clients::ModelState;
use super::run_context::{RunContext, error_chain};
use super::work_sandbox::WorkSandbox;
use crate::check_execution;
use crate::error::{Error, file_error};
use crate::git;
use crate::git::in_sandbox::{self, CloneStatus, CommitPaths};

/// The largest file a model may patch or extend.
const FILE_CAP: u64 = 16 << 20;

/// How often the refusals of the egress proxy are recorded while a command runs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How an action went. Failures that the model did not cause are an `Err` instead.
#[derive(Debug)]
struct ActionReport {
    outcome: ActionOutcome,
    code: Option<i32>,
    timed_out: bool,
    detail: String,
}

impl ActionReport {
    fn ok(detail: impl Into<String>) -> Self {
        Self { outcome: ActionOutcome::Ok, code: None, timed_out: false, detail: detail.into() }
    }

    fn failed(detail: impl Into<String>) -> Self {
        Self { outcome: ActionOutcome::Failed, code: None, timed_out: false, detail: detail.into() }
    }

    fn refused(detail: impl Into<String>) -> Self {
        Self { outcome: ActionOutcome::Refused, code: None, timed_out: false, detail: detail.into() }
    }
}

/// Carries out one action of a reply.
#[derive(Debug)]
pub(super) struct ActionStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl ActionStep<'_> {
    pub(super) async fn execute(&mut self, n: u32, index: u32, again: bool) -> Result<(), Error> {
        let reply = self.models.current_reply(self.run, n)?;
        let Some(action) = usize::try_from(index).ok().and_then(|at| reply.actions.get(at)).cloned() else {
            let run = self.run.folder.id();
            let why = format!("the answer of iteration {n} has no action {index}");
            return Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why });
        };
        let begun = if again { self.run.state().open.as_ref().and_then(|open| open.begun.clone()) } else { None };
        let began = Instant::now();
        let mut complaint = String::new();
        let done = match &action {
            Action::Run { command, cwd, timeout_s } => {
                self.run_command(n, index, &action, command, cwd, *timeout_s, begun, &mut complaint).await?
            }
            Action::Patch { path, patch } => {
                self.edit_file(n, index, &action, path, FileEdit::Patch(patch), begun).await?
            }
            Action::Write { path, content, append, mode } => {
                let edit = if *append { FileEdit::Append(content) } else { FileEdit::Write(content, *mode) };
                self.edit_file(n, index, &action, path, edit, begun).await?
            }
            Action::Commit { message, paths } => self.commit_action(n, index, &action, message, paths, begun).await?,
            Action::Rotate { reason }
            | Action::Pause { reason }
            | Action::StopSuccess { reason }
            | Action::StopFailure { reason } => {
                self.begin_action(n, index, &action, PreActionState::Nothing)?;
                Some(ActionReport::ok(text::first_line(reason, 300)))
            }
        };
        // `None`: the run was stopped in the middle of a command. The action counts as begun and is repeated on resume.
        let Some(done) = done else { return Ok(()) };
        self.finish_action(n, index, &action, &done, began.elapsed(), complaint)
    }

    fn begin_action(&mut self, n: u32, index: u32, action: &Action, before: PreActionState) -> Result<(), Error> {
        let begun = self.run.state().open.as_ref().and_then(|open| open.begun.as_ref());
        if begun.is_some_and(|begun| begun.index == index && begun.before == before) {
            return Ok(());
        }
        let brief = self.run.redactor.mask(&action.brief());
        self.run.append(Event::ActionStarted { n, index, kind: action.kind(), brief, before })
    }

    fn finish_action(
        &mut self,
        n: u32,
        index: u32,
        action: &Action,
        done: &ActionReport,
        took: Duration,
        complaint: String,
    ) -> Result<(), Error> {
        let detail = self.run.redactor.mask(&done.detail);
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let acted = ActionLogEntry {
            index,
            kind: action.kind(),
            brief: self.run.redactor.mask(&action.brief()),
            outcome: done.outcome,
            code: done.code,
            timed_out: done.timed_out,
            duration_ms,
            detail: detail.clone(),
            complaint,
        };
        let path = self.run.folder.iteration(n).join(ACTION_LOG_FILE);
        // The leading line break terminates a line that a crashed process left unfinished.
        let line = format!("\n{}\n", serde_json::to_string(&acted).unwrap_or_default());
        let mut log =
            std::fs::File::options().append(true).create(true).open(&path).map_err(file_error("open", &path))?;
        log.write_all(line.as_bytes()).map_err(file_error("append to", &path))?;
        self.run.append(Event::ActionFinished { n, index, outcome: done.outcome, code: done.code, duration_ms, detail })
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one action, read once")]
    async fn run_command(
        &mut self,
        n: u32,
        index: u32,
        action: &Action,
        command: &str,
        cwd: &str,
        timeout_s: u32,
        begun: Option<PendingAction>,
        complaint: &mut String,
    ) -> Result<Option<ActionReport>, Error> {
        let cwd = match cwd {
            "" | "." => ".".to_owned(),
            other => match RepoPath::parse_dir(other) {
                Ok(path) => path.as_str().to_owned(),
                Err(error) => return self.refuse_action(n, index, action, format!("cwd {error}")),
            },
        };
        let sandbox = self.work.sandbox()?;
        let mut begun = begun;
        let mut retried = false;
        let (ran, timeout) = loop {
            let most = self.run.state().started.command_timeout_s.unwrap_or(u64::MAX);
            let timeout = Duration::from_secs(u64::from(timeout_s).min(most)).min(self.run.time_left());
            match begun.take() {
                Some(PendingAction { before: PreActionState::Tree { head, tree, index }, .. }) => {
                    // The process died during the action: repeat it from the same tree, as if for the first time.
                    let index = index.as_deref().unwrap_or(&head);
                    in_sandbox::restore(&*sandbox, &self.run.snapshot(&head, &tree, index)?).await?;
                }
                _ => {
                    let survey = self.work.tree_status(self.run.state()).await?;
                    self.begin_action(n, index, action, tree_before(survey))?;
                }
            }
            self.work.forget_tree();
            let restarts = self.work.egress_restarts();
            let (tokens, redactor) = (self.interrupts.tokens(), self.run.redactor.clone());
            let running = check_execution::run(&*sandbox, command, &cwd, timeout, &redactor);
            tokio::pin!(running);
            let ran = loop {
                tokio::select! {
                    ran = &mut running => break ran,
                    () = tokens.aborted() => return Ok(None),
                    Some(asked) = self.interrupts.next_control() => {
                        let (run, work, models) = (&mut *self.run, &mut *self.work, &mut *self.models);
                        ControlHandler { run, work, models, interrupts: self.interrupts }
                            .handle_mid_action(asked)
                            .await?;
                    }
                    () = tokio::time::sleep(POLL_INTERVAL) => EgressEvents { run: self.run }.record_refusals()?,
                }
            };
            // A command that failed while the egress proxy restarted may not be to blame, so it is run again. Only
            // once: if the proxy dies every time, the command itself causes it.
            let cut = self.work.egress_restarts() != restarts && matches!(&ran, Ok(ran) if !ran.passed());
            if !cut || retried {
                break (ran, timeout);
            }
            retried = true;
            self.run.log(
                EventLogLevel::Warn,
                "the egress proxy restarted meanwhile: the command is run again".to_owned(),
            )?;
            begun = self.run.state().open.as_ref().and_then(|open| open.begun.clone());
        };
        let ran = match ran {
            Ok(ran) => ran,
            Err(Error::Sandbox(SandboxError::Refused { why, .. })) => {
                return Ok(Some(ActionReport::refused(format!("cwd `{cwd}`: {why}"))));
            }
            Err(error) => return Err(error),
        };
        if ran.text.is_empty() {
            // An earlier attempt may have left its output, which is not the output of this one.
            let _ = std::fs::remove_file(output_path(&self.run.folder, n, index));
        } else {
            self.run.files.write_artefact(&*sandbox, n, &output_name(index), ran.text.as_bytes()).await?;
        }
        let outcome = if ran.passed() { ActionOutcome::Ok } else { ActionOutcome::Failed };
        if !ran.passed() {
            complaint.clone_from(&ran.complaint);
        }
        let (code, timed_out) = (Some(ran.code), ran.timed_out);
        Ok(Some(ActionReport { outcome, code, timed_out, detail: ran.summary_line(timeout) }))
    }

    fn refuse_action(
        &mut self,
        n: u32,
        index: u32,
        action: &Action,
        why: impl Into<String>,
    ) -> Result<Option<ActionReport>, Error> {
        self.begin_action(n, index, action, PreActionState::Nothing)?;
        Ok(Some(ActionReport::refused(why)))
    }

    async fn edit_file(
        &mut self,
        n: u32,
        index: u32,
        action: &Action,
        path: &str,
        edit: FileEdit<'_>,
        begun: Option<PendingAction>,
    ) -> Result<Option<ActionReport>, Error> {
        let path = match RepoPath::parse(path) {
            Ok(path) => path,
            Err(error) => return self.refuse_action(n, index, action, error.to_string()),
        };
        if path.as_str() == self.run.state().started.task_path {
            return self.refuse_action(
                n,
                index,
                action,
                "the task file is changed by ralph alone: claim the box instead",
            );
        }
        match (path.model_may_write(), &edit) {
            (Ok(WriteAccess::Free), _) | (Ok(WriteAccess::AppendOnly), FileEdit::Append(_)) => (),
            (Ok(WriteAccess::AppendOnly), _) => {
                return self.refuse_action(n, index, action, format!("{} only grows: use `append`", path.as_str()));
            }
            (Err(why), _) => return self.refuse_action(n, index, action, why.to_string()),
        }
        let sandbox = self.work.sandbox()?;
        let relative = Path::new(path.as_str());
        let old = match sandbox.read(relative, FILE_CAP).await {
            Ok(bytes) => Some(bytes),
            Err(error) if is_not_found(&error) => None,
            Err(error @ (SandboxError::Refused { .. } | SandboxError::TooLarge { .. } | SandboxError::File { .. })) => {
                return self.refuse_action(n, index, action, error.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(PendingAction { before: PreActionState::File { before, after, .. }, .. }) = begun {
            let found = old.as_deref().map(sha256);
            if let Some(old) = old.as_deref().filter(|_| found.as_deref() == Some(&after)) {
                // The content is written; its permissions may still be the old ones.
                return self.write_file(&*sandbox, &path, old, edit.mode()).await.map(Some);
            }
            if found != before {
                return Ok(Some(ActionReport::failed(format!(
                    "{} changed while ralph was away; look at it again",
                    path.as_str()
                ))));
            }
            let new = match edit.apply(old.as_deref()) {
                Ok(new) => new,
                Err(why) => return Ok(Some(ActionReport::failed(format!("{}: {why}", path.as_str())))),
            };
            return self.write_file(&*sandbox, &path, &new, edit.mode()).await.map(Some);
        }
        let new = match edit.apply(old.as_deref()) {
            Ok(new) => new,
            Err(why) => {
                self.begin_action(n, index, action, PreActionState::Nothing)?;
                return Ok(Some(ActionReport::failed(format!("{}: {why}", path.as_str()))));
            }
        };
        let before = PreActionState::File {
            path: path.as_str().to_owned(),
            before: old.as_deref().map(sha256),
            after: sha256(&new),
        };
        self.begin_action(n, index, action, before)?;
        self.write_file(&*sandbox, &path, &new, edit.mode()).await.map(Some)
    }

    async fn write_file(
        &mut self,
        sandbox: &dyn Sandbox,
        path: &RepoPath,
        new: &[u8],
        mode: Option<u32>,
    ) -> Result<ActionReport, Error> {
        self.work.forget_tree();
        match sandbox.write(Path::new(path.as_str()), new, mode).await {
            Ok(()) => Ok(ActionReport::ok(format!("{}: {} bytes", path.as_str(), new.len()))),
            Err(error @ SandboxError::Refused { .. }) => Ok(ActionReport::refused(error.to_string())),
            Err(error @ SandboxError::File { .. }) => Ok(ActionReport::failed(error_chain(&error))),
            Err(error) => Err(error.into()),
        }
    }

    async fn commit_action(
        &mut self,
        n: u32,
        index: u32,
        action: &Action,
        message: &str,
        paths: &[String],
        begun: Option<PendingAction>,
    ) -> Result<Option<ActionReport>, Error> {
        for path in paths {
            if let Err(error) = RepoPath::parse(path) {
                return self.refuse_action(n, index, action, error.to_string());
            }
        }
        let sandbox = self.work.sandbox()?;
        let message = self.run.commit_message(n, message);
        if let Some(PendingAction { before: PreActionState::Tree { head, .. }, .. }) = &begun {
            let made = in_sandbox::head_if_child_of(&*sandbox, head, &message).await?;
            if let Some(sha) = made {
                self.work.forget_tree();
                return Ok(Some(ActionReport::ok(format!("{} (made before the restart)", text::head(&sha, 10)))));
            }
        } else {
            let survey = self.work.tree_status(self.run.state()).await?;
            self.begin_action(n, index, action, tree_before(survey))?;
        }
        self.work.forget_tree();
        Ok(Some(match self.commit_in_sandbox(n, &message, paths).await? {
            Ok(Some(sha)) => ActionReport::ok(text::head(&sha, 10)),
            Ok(None) => ActionReport::failed("there is nothing to commit"),
            Err(why) => ActionReport::failed(why),
        }))
    }

    /// Commits paths, or everything; the inner `Err` is git's own error message.
    async fn commit_in_sandbox(
        &mut self,
        n: u32,
        message: &str,
        paths: &[String],
    ) -> Result<Result<Option<String>, String>, Error> {
        let sandbox = self.work.sandbox()?;
        let started = &self.run.state().started;
        let only: Vec<&str> = paths.iter().map(String::as_str).collect();
        let paths = if only.is_empty() { CommitPaths::All } else { CommitPaths::Only(&only) };
        let made = in_sandbox::commit(
            &*sandbox,
            message,
            paths,
            &git::trailers(&started.run, n),
            &git::stamp(&started.identity),
        )
        .await;
        self.work.forget_tree();
        match made {
            Ok(sha) => Ok(Ok(sha.map(|sha| sha.to_string()))),
            Err(git::Error::SandboxScript { said, .. }) => Ok(Err(said)),
            Err(git::Error::BadName { text, .. }) => Ok(Err(format!("`{text}` is not a usable path"))),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum FileEdit<'a> {
    Patch(&'a str),
    Append(&'a str),
    Write(&'a str, Option<PermissionBits>),
}

impl FileEdit<'_> {
    fn apply(&self, old: Option<&[u8]>) -> Result<Vec<u8>, String> {
        match self {
            Self::Patch(diff) => {
                let old = std::str::from_utf8(old.unwrap_or_default())
                    .map_err(|_| "it is not text, so no patch applies".to_owned())?;
                patch::apply(old, diff).map(String::into_bytes).map_err(|error| error.to_string())
            }
            Self::Append(content) => {
                let mut new = old.unwrap_or_default().to_vec();
                new.extend_from_slice(content.as_bytes());
                Ok(new)
            }
            Self::Write(content, _) => Ok(content.as_bytes().to_vec()),
        }
    }

    fn mode(&self) -> Option<u32> {
        match self {
            Self::Write(_, Some(mode)) => Some(mode.bits()),
            Self::Write(_, None) | Self::Patch(_) | Self::Append(_) => None,
        }
    }
}

fn tree_before(look: CloneStatus) -> PreActionState {
    PreActionState::Tree { head: look.head, tree: look.tree, index: Some(look.index) }
}

fn is_not_found(error: &SandboxError) -> bool {
    matches!(error, SandboxError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
