//! Builds the prompt of an iteration from the task, the `.ralph` files and the state of the clone.

use std::sync::LazyLock;
use std::time::Duration;

use ralph_core::action;
use ralph_core::event::PinnedProfile;
use ralph_core::prompt::{
    self, IterationPrompt, LastActions, PromptCheckbox, PromptInputs, PromptRequest, RemainingBudget,
};
use ralph_core::text;

use super::last_actions::PastActions;
use super::model_call_files::SavedAnswer;
use super::prompt_excerpts::PromptExcerpts;
use super::prompt_refusals::refusals_text;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::git::in_sandbox::CloneStatus;
use crate::model::{ConversationRole, ConversationTurn, LostCallPolicy, ModelRequest};

/// The schema of a reply as a prompt shows it.
static REPLY_SCHEMA: LazyLock<String> = LazyLock::new(|| action::schema().to_string());

/// Builds prompts and requests.
#[derive(Debug)]
pub(super) struct PromptBuilder<'a> {
    pub(super) run: &'a RunContext,
    pub(super) work: &'a mut WorkSandbox,
}

impl PromptBuilder<'_> {
    pub(super) async fn build_request(
        &mut self,
        n: u32,
        profile: &PinnedProfile,
        reask: Option<String>,
    ) -> Result<(ModelRequest, IterationPrompt), Error> {
        let survey = self.work.tree_status(self.run.state()).await?;
        let prompt = self.build_prompt(n, &survey).await?;
        let mut history = Vec::new();
        if let Some(error) = reask {
            let wrong = self.last_answer(n)?;
            history.push(ConversationTurn {
                role: ConversationRole::Assistant,
                text: text::head(&wrong, 32 << 10).to_owned(),
            });
            history.push(ConversationTurn { role: ConversationRole::User, text: prompt::retry_message(&error) });
        }
        let request = ModelRequest {
            system: prompt.system.clone(),
            user: prompt.user.clone(),
            history,
            max_output_tokens: profile.max_output_tokens,
            temperature: profile.temperature,
            json: true,
            on_lost: LostCallPolicy::Report,
            timeout: Duration::from_secs(profile.timeout_s).min(self.run.time_left()),
            extra: profile.extra.clone().into_iter().collect(),
        };
        Ok((request, prompt))
    }

    fn last_answer(&self, n: u32) -> Result<String, Error> {
        let calls = self.run.state().open.as_ref().map_or(0, |open| open.calls);
        for call in (0..calls).rev() {
            let path = self.run.folder.iteration(n).join(format!("call-{call}.json"));
            if let Some(bytes) = self.run.folder.read(&path)?
                && let Ok(kept) = serde_json::from_slice::<SavedAnswer>(&bytes)
            {
                return Ok(kept.text);
            }
        }
        Ok(String::new())
    }

    pub(super) async fn build_prompt(&self, n: u32, survey: &CloneStatus) -> Result<IterationPrompt, Error> {
        let sandbox = self.work.sandbox()?;
        let read = PromptExcerpts::read(&self.run.files, &*sandbox, n).await?;
        // An agent sees the output of its commands itself.
        let done = if self.run.state().started.agent.is_some() {
            None
        } else {
            PastActions::load_before(&self.run.folder, n)?
        };
        let actions = done.as_ref().map(PastActions::as_prompt).unwrap_or_default();
        let task = self.run.task_text()?;
        let refused = refusals_text(&self.run.folder, n)?;
        let state = self.run.state();
        let boxes: Vec<PromptCheckbox<'_>> = state
            .started
            .boxes
            .iter()
            .map(|pinned| PromptCheckbox { id: &pinned.id, verified: state.verified.contains(&pinned.id) })
            .collect();
        let scores: Vec<f64> = state.scores.iter().rev().take(5).rev().copied().collect();
        let parts = state.started.pinned_parts.iter().map(ralph_core::proof_files::PinnedSection::description);
        let whole = state.started.protected_paths.iter().chain(&state.started.proof_files).cloned();
        let protected: Vec<String> = whole.chain(parts).collect();
        let because = state.open.as_ref().and_then(|open| open.because.clone());
        let inputs = PromptInputs {
            nonce: &ralph_core::hash::short_sha256(state.started.run.as_bytes()),
            run: &state.started.run,
            iteration: n,
            task: &task,
            task_file: &state.started.task_path,
            guardrails: &read.guardrails,
            progress: &read.progress,
            notes: &read.notes,
            errors_log: &read.errors,
            git_status: &survey.status,
            diffstat: &survey.diffstat,
            test_output: &read.test_output,
            tested_in: read.tested_in,
            left: RemainingBudget {
                iterations: Some(state.budget.iterations.saturating_sub(n)),
                minutes: Some(self.run.time_left().as_secs() / 60),
                cost: state.budget.cost.map(|cost| cost.saturating_sub(state.spent.cost)),
                tokens: state.budget.tokens.map(|tokens| tokens.saturating_sub(state.spent.tokens)),
            },
            scores: &scores,
            rotated_because: because.as_deref(),
            last_actions: done.as_ref().map(|done| LastActions { iteration: done.iteration, actions: &actions }),
            refused: &refused,
            ask: match &state.started.agent {
                Some(_) => PromptRequest::Agent { notes_file: ".ralph/notes.md" },
                None => PromptRequest::Actions { schema: &REPLY_SCHEMA, examples: action::example() },
            },
            test_command: &state.started.test_command,
            boxes: &boxes,
            protected_paths: &protected,
        };
        Ok(prompt::build_from_ends(&inputs, &read.unread))
    }

    pub(super) async fn write_prompt(&self, n: u32, prompt: &IterationPrompt) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let shown = self.run.redactor.redact(&whole).into_owned();
        self.run.files.write_artefact(&*sandbox, n, "prompt.md", shown.as_bytes()).await
    }
}
