//! Runs one session of an agent: starts it in the sandbox, supervises it, and classifies its end by what the egress
//! proxy saw.
//!
//! A session is the only action of an agent's iteration. Provider failures cut it short without using up the iteration:
//! what the agent has done by then stays, and another session continues from there.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph_core::action::ActionKind;
use ralph_core::agent::{self, Agent, AgentInvocation, AgentSessionEnd, AgentSessionParams, SessionOutcome};
use ralph_core::backoff::RetryCost;
use ralph_core::budget::BudgetKind;
use ralph_core::decide_next_step::SPENT_PERCENT;
use ralph_core::event::{ActionOutcome, Event, EventLogLevel, PinnedAgent, PreActionState, RunStopReason};
use ralph_core::text;
use ralph_sandbox::{Error as SandboxError, ExecRequest, ExecStatus, Sandbox};

use super::agent_output::{SessionOutput, SessionTranscript};
use super::call_failure::pause_for_outage;
use super::controls::ControlHandler;
use super::egress_events::EgressEvents;
use super::interrupts::{Interrupts, WaitEnd};
use super::iteration_prompt::PromptBuilder;
use super::model_clients::ModelState;
use super::run_context::RunContext;
use super::selected_agent::{SelectedAgent, protocol_mismatch, provider, shared_protocol};
use super::session_record::SessionRecord;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::WorkSandbox;
use crate::egress::ModelAccess;
use crate::error::Error;

/// How often the agent's output and the egress proxy's records are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a session is restarted after it was cut short, before the run pauses for longer.
const MAX_CUT_SESSIONS: u32 = 6;
/// The wait before the first restart; each further wait is twice as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How long to wait when the provider's limit is reached and it does not say until when.
const UNSTATED_LIMIT_DELAY: Duration = Duration::from_mins(5);
/// The shortest wait, for providers whose reset time is already over.
const MIN_LIMIT_DELAY: Duration = Duration::from_secs(5);

/// How the process of a session ended.
#[derive(Debug, Default)]
struct SessionProcessExit {
    code: Option<i32>,
    missing: bool,
    idle: bool,
    timed_out: bool,
    /// The egress proxy restarted meanwhile.
    cut_off: bool,
    took: Duration,
}

/// Runs one session of an agent.
#[derive(Debug)]
pub(super) struct SessionStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl SessionStep<'_> {
    pub(super) async fn run(&mut self, n: u32, cut: u32) -> Result<(), Error> {
        let mut record = SessionRecord { run: self.run, work: self.work };
        if let Some(kept) = record.saved(n)? {
            return record.finish_session(n, &kept).await;
        }
        let Some(pinned) = self.run.state().started.agent.clone() else { return Ok(()) };
        let waits = self.run.state().waited;
        // After each wait it gets one more try.
        if cut >= MAX_CUT_SESSIONS.saturating_add(waits) {
            let why = format!("`{}` was cut short {cut} times in a row", pinned.name);
            return pause_for_outage(self.run, why, RetryCost::Free);
        }
        if cut > 0 && waits == 0 && !self.wait_before_retry(FIRST_RETRY_DELAY * 2_u32.pow(cut - 1)).await? {
            return Ok(());
        }
        let chosen = SelectedAgent::of(&pinned)?;
        let agent = chosen.get();
        let access = self.model_access_for(agent)?;
        let begun = self.run.state().open.as_ref().is_some_and(|open| open.begun.is_some());
        let survey = self.work.tree_status(self.run.state()).await?;
        let prompt = PromptBuilder { run: self.run, work: self.work }.build_prompt(n, &survey).await?;
        PromptBuilder { run: self.run, work: self.work }.write_prompt(n, &prompt).await?;
        if !begun {
            let brief = self.run.redactor.mask(&format!("{} with {}", agent.name(), access.model));
            let kind = ActionKind::Session;
            self.run.append(Event::ActionStarted { n, index: 0, kind, brief, before: PreActionState::Nothing })?;
        }
        self.work.forget_tree();
        let sandbox = self.work.sandbox()?;
        SessionRecord { run: self.run, work: self.work }.save_interrupted_transcript(n, &*sandbox).await?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let start = self.prepare_agent_command(n, &*sandbox, agent, &access, &whole).await?;
        let output = SessionOutput::new(
            agent.reader(),
            self.run.redactor.clone(),
            SessionRecord { run: self.run, work: self.work }.create_transcript_file(n),
        );
        let mark = self.run.audit_log.calls().response_count();
        let Some(process_exit) = self.supervise_session(&*sandbox, &pinned, &start, &output, mark).await? else {
            // This process is not going to wait: charge the worst case of the calls under way.
            self.models.charge_in_flight(&self.run.audit_log);
            EgressEvents { run: self.run }.record_agent_calls()?;
            let transcript = output.finish();
            return SessionRecord { run: self.run, work: self.work }
                .write_transcript(n, &*sandbox, &transcript_name(cut), &transcript.output)
                .await;
        };
        UnsettledCalls { run: self.run, models: self.models }.settle_calls(self.interrupts).await?;
        let transcript = output.finish();
        self.log_agent_events(&transcript.events)?;
        SessionRecord { run: self.run, work: self.work }
            .write_transcript(n, &*sandbox, &transcript_name(cut), &transcript.output)
            .await?;
        let calls = self.run.audit_log.calls().responses_since(mark);
        let ended = AgentSessionEnd {
            code: process_exit.code,
            missing: process_exit.missing,
            idle: process_exit.idle,
            timed_out: process_exit.timed_out,
            result: transcript.finished.as_ref(),
            stderr: &transcript.stderr,
            calls: &calls,
            now: Timestamp::now(),
        };
        let outcome = agent::classify_session_end(&ended);
        tracing::debug!(run = self.run.state().id(), n, ?outcome, ?process_exit, "a session ended");
        self.handle_session_outcome(n, agent, &access, outcome, &process_exit, &transcript).await
    }

    /// Continues according to the outcome of a session.
    async fn handle_session_outcome(
        &mut self,
        n: u32,
        agent: &dyn Agent,
        access: &ModelAccess,
        outcome: SessionOutcome,
        process_exit: &SessionProcessExit,
        transcript: &SessionTranscript,
    ) -> Result<(), Error> {
        let name = agent.name();
        match outcome {
            _ if process_exit.cut_off && !matches!(outcome, SessionOutcome::Done) => {
                self.end_session_early(n, process_exit, "the egress proxy restarted meanwhile")
            }
            SessionOutcome::Limit { until } => {
                self.end_session_early(n, process_exit, "the provider's limit is reached")?;
                let until = until
                    .unwrap_or_else(|| Timestamp::now() + UNSTATED_LIMIT_DELAY)
                    .max(Timestamp::now() + MIN_LIMIT_DELAY);
                self.run.pause(RunStopReason::Quota { until })
            }
            SessionOutcome::Overload => self.end_session_early(n, process_exit, "the provider is overloaded"),
            SessionOutcome::Auth => {
                self.end_session_early(n, process_exit, "the provider does not take the key")?;
                self.run.pause(RunStopReason::Auth { profile: access.profile.clone() })
            }
            SessionOutcome::EndpointBlocked { why } => {
                self.end_session_early(n, process_exit, &why)?;
                self.run.pause(RunStopReason::Provider { why })
            }
            SessionOutcome::NoProviderCredit => {
                self.end_session_early(n, process_exit, "there is no money left at the provider")?;
                self.run.pause(RunStopReason::Provider { why: "there is no money left at the provider".to_owned() })
            }
            SessionOutcome::Missing => {
                self.end_session_early(n, process_exit, "its program is not there")?;
                let why =
                    format!("the agent `{name}` is not in the sandbox; install it with `ralph agent install {name}`");
                self.run.pause(RunStopReason::Host { why })
            }
            SessionOutcome::BudgetSpent => {
                let limit = self.scarcest_budget();
                self.run.append(Event::BudgetWarned { limit, percent: SPENT_PERCENT })?;
                SessionRecord { run: self.run, work: self.work }
                    .save_session(
                        n,
                        process_exit.code,
                        process_exit.took,
                        transcript,
                        ActionOutcome::Failed,
                        format!("{name}: the {limit} budget is spent"),
                    )
                    .await
            }
            SessionOutcome::Done => {
                SessionRecord { run: self.run, work: self.work }
                    .save_session(
                        n,
                        process_exit.code,
                        process_exit.took,
                        transcript,
                        ActionOutcome::Ok,
                        format!("{name}: done"),
                    )
                    .await
            }
            SessionOutcome::Idle => {
                let detail = format!("{name} said nothing for too long; it and all it started were ended");
                SessionRecord { run: self.run, work: self.work }
                    .save_session(n, process_exit.code, process_exit.took, transcript, ActionOutcome::Failed, detail)
                    .await
            }
            SessionOutcome::TimedOut => {
                let detail = format!("{name} came to no end in its time; it and all it started were ended");
                SessionRecord { run: self.run, work: self.work }
                    .save_session(n, process_exit.code, process_exit.took, transcript, ActionOutcome::Failed, detail)
                    .await
            }
            SessionOutcome::Crash { why } => {
                SessionRecord { run: self.run, work: self.work }
                    .save_session(
                        n,
                        process_exit.code,
                        process_exit.took,
                        transcript,
                        ActionOutcome::Failed,
                        format!("{name} failed: {}", text::first_line(&why, 300)),
                    )
                    .await
            }
        }
    }

    /// Waits before another try; false when the run is to stop or a control was carried out first.
    async fn wait_before_retry(&mut self, wait: Duration) -> Result<bool, Error> {
        match self.interrupts.wait_in_step(wait.min(self.run.time_left())).await {
            WaitEnd::Elapsed => Ok(true),
            WaitEnd::Stopped => Ok(false),
            WaitEnd::Control(asked) => {
                ControlHandler { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
                    .handle(asked)
                    .await?;
                Ok(false)
            }
        }
    }

    /// Finds the granted access to the model of the iteration's profile, and checks that the agent can use it.
    fn model_access_for(&self, agent: &dyn Agent) -> Result<ModelAccess, Error> {
        let state = self.run.state();
        let open = state.open.as_ref().map(|open| &open.profile);
        let mut wanted = open.into_iter().chain([&state.profile, &state.started.profiles.default.name]);
        let access =
            wanted.find_map(|profile| self.work.model_access.iter().find(|access| access.profile == *profile)).cloned();
        let access = access.ok_or_else(|| Error::Profile {
            profile: state.profile.clone(),
            why: "the sandbox is not lent its model".to_owned(),
        })?;
        let profile = &access.profile;
        let provider = state.started.profiles.get(profile).map_or("", |profile| provider(&profile.model));
        let wire = shared_protocol(agent, access.wire, provider)
            .ok_or_else(|| Error::Profile { profile: profile.clone(), why: protocol_mismatch(agent, access.wire) })?;
        Ok(ModelAccess { wire, ..access })
    }

    async fn prepare_agent_command(
        &self,
        n: u32,
        sandbox: &dyn Sandbox,
        agent: &dyn Agent,
        access: &ModelAccess,
        prompt: &str,
    ) -> Result<AgentInvocation, Error> {
        let started = &self.run.state().started;
        let (program, env) = match &started.agent {
            Some(pinned) => {
                let installed = self.run.host.agent(pinned, &started.backend)?;
                (installed.program, installed.env)
            }
            None => (agent.program().to_owned(), Vec::new()),
        };
        let folder = sandbox.exchange().join("agent");
        let prompt_file = sandbox.workspace().join(format!(".ralph/iterations/{n}/prompt.md"));
        let mut start = agent.invocation(&AgentSessionParams {
            program: &program,
            prompt,
            prompt_file: &prompt_file.to_string_lossy(),
            folder: &folder.to_string_lossy(),
            model: &access.model,
            base_url: &access.base_url,
            key: &access.phantom_key,
            key_variable: &access.key_name,
            wire: access.wire,
        });
        start.env.extend(env);
        sandbox.mkdirs(&folder).await?;
        for (path, text) in &start.files {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                sandbox.mkdirs(parent).await?;
            }
            sandbox.write(&path, text.as_bytes(), Some(0o600)).await?;
        }
        Ok(start)
    }

    /// Runs the session until it ends or must be ended; `None` when the run was stopped.
    async fn supervise_session(
        &mut self,
        sandbox: &dyn Sandbox,
        pinned: &PinnedAgent,
        start: &AgentInvocation,
        output: &SessionOutput,
        mark: u64,
    ) -> Result<Option<SessionProcessExit>, Error> {
        let began = Instant::now();
        let session = Duration::from_secs(pinned.session_s).min(self.run.time_left());
        let (idle, grace) = (Duration::from_secs(pinned.idle_s), Duration::from_secs(pinned.grace_s));
        let mut exec = ExecRequest::new(start.argv.clone(), session);
        exec.env.clone_from(&start.env);
        if let Some(above) = sandbox.workspace().parent().and_then(Path::to_str) {
            exec = exec.env("GIT_CEILING_DIRECTORIES", above);
        }
        exec.stdin = start.stdin.clone().unwrap_or_default().into_bytes();
        let restarts = self.work.egress_restarts();
        let tokens = self.interrupts.tokens();
        let mut sink = output.sink();
        let running = sandbox.exec(&exec, &mut sink);
        tokio::pin!(running);
        let mut process_exit = SessionProcessExit::default();
        loop {
            tokio::select! {
                exit = &mut running => {
                    match exit {
                        Ok(exit) => match exit.status {
                            ExecStatus::Code(code) => process_exit.code = Some(code),
                            ExecStatus::Signal(_) => (),
                            ExecStatus::TimedOut => process_exit.timed_out = true,
                        },
                        Err(SandboxError::Spawn { .. }) => process_exit.missing = true,
                        Err(error) => return Err(error.into()),
                    }
                    break;
                }
                () = tokens.aborted() => return Ok(None),
                Some(asked) = self.interrupts.next_control() => {
                    let (run, work, models) = (&mut *self.run, &mut *self.work, &mut *self.models);
                    ControlHandler { run, work, models, interrupts: self.interrupts }.handle_mid_action(asked).await?;
                }
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    EgressEvents { run: self.run }.record_refusals()?;
                    EgressEvents { run: self.run }.record_agent_call_batch()?;
                    self.log_agent_events(&output.take_events())?;
                    // Some agents repeat failing calls for hours.
                    if agent::should_abort(&self.run.audit_log.calls().responses_since(mark)) {
                        break;
                    }
                    // Dropping the future ends the whole process tree; the agent's commits stay.
                    if output.finished_for().is_some_and(|since| since > grace) {
                        let text = format!("`{}` said it was done and did not end, so it was ended", pinned.name);
                        self.run.log(EventLogLevel::Warn, text)?;
                        break;
                    }
                    if output.silent_for() > idle {
                        process_exit.idle = true;
                        break;
                    }
                }
            }
        }
        process_exit.took = began.elapsed();
        process_exit.cut_off = self.work.egress_restarts() != restarts;
        Ok(Some(process_exit))
    }

    /// Logs what the agent did, in short lines.
    fn log_agent_events(&mut self, events: &[agent::AgentOutputEvent]) -> Result<(), Error> {
        for event in events {
            let (level, line) = match event {
                agent::AgentOutputEvent::Text(words) => (EventLogLevel::Info, words.clone()),
                agent::AgentOutputEvent::Tool { name, brief } => (EventLogLevel::Info, format!("{name}: {brief}")),
                agent::AgentOutputEvent::ToolDone { ok: true, .. } => continue,
                agent::AgentOutputEvent::ToolDone { name, brief, .. } => {
                    (EventLogLevel::Warn, format!("{name} failed: {brief}"))
                }
                agent::AgentOutputEvent::Retry { status: Some(status), why } => {
                    (EventLogLevel::Warn, format!("retries after {status}: {why}"))
                }
                agent::AgentOutputEvent::Retry { status: None, why } => {
                    (EventLogLevel::Warn, format!("retries: {why}"))
                }
                agent::AgentOutputEvent::Warning(why) => (EventLogLevel::Warn, why.clone()),
            };
            // Mask before cutting: half a secret is not recognized any more.
            let line = self.run.redactor.mask(&line).first_line(200);
            self.run.log(level, line.into_string())?;
        }
        Ok(())
    }

    fn end_session_early(&mut self, n: u32, process_exit: &SessionProcessExit, why: &str) -> Result<(), Error> {
        self.run.log(EventLogLevel::Warn, format!("the session was cut short: {why}"))?;
        let (outcome, detail) = (ActionOutcome::Cut, self.run.redactor.mask(why));
        let duration_ms = u64::try_from(process_exit.took.as_millis()).unwrap_or(u64::MAX);
        self.run.append(Event::ActionFinished { n, index: 0, outcome, code: process_exit.code, duration_ms, detail })
    }

    /// Returns the budget with the smallest share left.
    fn scarcest_budget(&self) -> BudgetKind {
        let state = self.run.state();
        let used = |limit: BudgetKind, spent: u64| {
            let whole = state.budget.of(limit).filter(|whole| *whole > 0)?;
            Some((u128::from(spent) * 1000 / u128::from(whole), limit))
        };
        let cost = used(BudgetKind::Cost, state.spent.cost.0);
        let tokens = used(BudgetKind::Tokens, state.spent.tokens);
        cost.into_iter().chain(tokens).max_by_key(|(share, _)| *share).map_or(BudgetKind::Cost, |(_, limit)| limit)
    }
}

/// Returns the name of a session's transcript; each session that was cut short has its own.
fn transcript_name(cut: u32) -> String {
    if cut == 0 { "session.jsonl".to_owned() } else { format!("session-{cut}.jsonl") }
}
