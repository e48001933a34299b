//! One session of an agent: started in the sandbox, listened to, ended in time, and judged by what the door saw.
//!
//! A session is the one action of an agent's iteration. Trouble of the provider cuts it short and uses nothing up: what
//! the agent has done by then stays, and another session goes on from there.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph_core::action::ActionKind;
use ralph_core::agent::{self, Agent, AgentInvocation, AgentSessionEnd, AgentSessionParams, SessionOutcome as Judged};
use ralph_core::backoff::RetryCost;
use ralph_core::budget::BudgetKind;
use ralph_core::decide::SPENT_PERCENT;
use ralph_core::event::{ActionOutcome, Event, EventLogLevel, PinnedAgent, PreActionState, RunStopReason};
use ralph_core::text;
use ralph_sandbox::{Error as SandboxError, ExecRequest, ExecStatus, Sandbox};

use super::agent_output::{SessionOutput, SessionTranscript};
use super::call_failure::pause_for_outage;
use super::context::RunContext;
use super::controls::ControlHandler;
use super::egress_events::EgressEvents;
use super::interrupts::{Interrupts, WaitEnd};
use super::iteration_prompt::PromptBuilder;
use super::model_account::ModelAccount;
use super::selected_agent::{SelectedAgent, protocol_mismatch, provider, shared_protocol};
use super::session_record::SessionRecord;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::WorkSandbox;
use crate::egress::ModelAccess;
use crate::error::Error;

/// How often is looked at what the agent said and what the door saw.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// So often a session is begun again after it was cut short, until the provider is given more time.
const MAX_CUT_SESSIONS: u32 = 6;
/// The first wait before that; each is twice as long as the one before.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Refused for now, without a word about when: looked at again after this.
const UNSTATED_LIMIT_DELAY: Duration = Duration::from_mins(5);
/// A provider that says *now* and means *not yet* is not asked in a hurry.
const MIN_LIMIT_DELAY: Duration = Duration::from_secs(5);

/// How the process of a session ended.
#[derive(Debug, Default)]
struct SessionProcessExit {
    code: Option<i32>,
    missing: bool,
    idle: bool,
    timed_out: bool,
    /// The way out was cut meanwhile.
    cut_off: bool,
    took: Duration,
}

/// Runs one session of an agent.
#[derive(Debug)]
pub(super) struct SessionStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelAccount,
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
        let way = self.model_access_for(agent)?;
        let begun = self.run.state().open.as_ref().is_some_and(|open| open.begun.is_some());
        let survey = self.work.tree_status(self.run.state()).await?;
        let prompt = PromptBuilder { run: self.run, work: self.work }.build_prompt(n, &survey).await?;
        PromptBuilder { run: self.run, work: self.work }.write_prompt(n, &prompt).await?;
        if !begun {
            let (kind, brief) = (ActionKind::Session, format!("{} with {}", agent.name(), way.model));
            self.run.append(Event::ActionStarted { n, index: 0, kind, brief, before: PreActionState::Nothing })?;
        }
        self.work.forget_tree();
        let sandbox = self.work.sandbox()?;
        SessionRecord { run: self.run, work: self.work }.save_interrupted_transcript(n, &*sandbox).await?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let start = self.prepare_agent_command(n, &*sandbox, agent, &way, &whole).await?;
        let hearing = SessionOutput::new(
            agent.reader(),
            self.run.redactor.clone(),
            SessionRecord { run: self.run, work: self.work }.create_transcript_file(n),
        );
        let mark = self.run.audit_log.calls().response_count();
        let Some(gone) = self.supervise_session(&*sandbox, &pinned, &start, &hearing, mark).await? else {
            // Nobody waits any longer; what was under way is charged at its worst.
            self.models.charge_in_flight(&self.run.audit_log);
            EgressEvents { run: self.run }.record_agent_calls()?;
            let heard = hearing.finish();
            return SessionRecord { run: self.run, work: self.work }
                .write_transcript(n, &*sandbox, &transcript_name(cut), &heard.output)
                .await;
        };
        UnsettledCalls { run: self.run, models: self.models }.settle_calls(self.interrupts).await?;
        let heard = hearing.finish();
        self.log_agent_events(&heard.events)?;
        SessionRecord { run: self.run, work: self.work }
            .write_transcript(n, &*sandbox, &transcript_name(cut), &heard.output)
            .await?;
        let calls = self.run.audit_log.calls().responses_since(mark);
        let ended = AgentSessionEnd {
            code: gone.code,
            missing: gone.missing,
            idle: gone.idle,
            timed_out: gone.timed_out,
            result: heard.finished.as_ref(),
            stderr: &heard.stderr,
            calls: &calls,
            now: Timestamp::now(),
        };
        let judged = agent::classify_session_end(&ended);
        tracing::debug!(run = self.run.state().id(), n, ?judged, ?gone, "a session ended");
        self.handle_session_outcome(n, agent, &way, judged, &gone, &heard).await
    }

    /// Goes on by what the end of a session means.
    async fn handle_session_outcome(
        &mut self,
        n: u32,
        agent: &dyn Agent,
        way: &ModelAccess,
        judged: Judged,
        gone: &SessionProcessExit,
        heard: &SessionTranscript,
    ) -> Result<(), Error> {
        let name = agent.name();
        match judged {
            _ if gone.cut_off && !matches!(judged, Judged::Done) => {
                self.end_session_early(n, gone, "the way out was served anew meanwhile")
            }
            Judged::Limit { until } => {
                self.end_session_early(n, gone, "the provider's limit is reached")?;
                let until = until
                    .unwrap_or_else(|| Timestamp::now() + UNSTATED_LIMIT_DELAY)
                    .max(Timestamp::now() + MIN_LIMIT_DELAY);
                self.run.pause(RunStopReason::Quota { until })
            }
            Judged::Overload => self.end_session_early(n, gone, "the provider is overloaded"),
            Judged::Auth => {
                self.end_session_early(n, gone, "the provider does not take the key")?;
                self.run.pause(RunStopReason::Auth { profile: way.profile.clone() })
            }
            Judged::EndpointBlocked { why } => {
                self.end_session_early(n, gone, &why)?;
                self.run.pause(RunStopReason::Provider { why })
            }
            Judged::NoProviderCredit => {
                self.end_session_early(n, gone, "there is no money left at the provider")?;
                self.run.pause(RunStopReason::Provider { why: "there is no money left at the provider".to_owned() })
            }
            Judged::Missing => {
                self.end_session_early(n, gone, "its program is not there")?;
                let why =
                    format!("the agent `{name}` is not in the sandbox; install it with `ralph agent install {name}`");
                self.run.pause(RunStopReason::Host { why })
            }
            Judged::BudgetSpent => {
                let limit = self.scarcest_budget();
                self.run.append(Event::BudgetWarned { limit, percent: SPENT_PERCENT })?;
                SessionRecord { run: self.run, work: self.work }
                    .save_session(
                        n,
                        gone.code,
                        gone.took,
                        heard,
                        ActionOutcome::Failed,
                        format!("{name}: the {limit} budget is spent"),
                    )
                    .await
            }
            Judged::Done => {
                SessionRecord { run: self.run, work: self.work }
                    .save_session(n, gone.code, gone.took, heard, ActionOutcome::Ok, format!("{name}: done"))
                    .await
            }
            Judged::Idle => {
                let detail = format!("{name} said nothing for too long; it and all it started were ended");
                SessionRecord { run: self.run, work: self.work }
                    .save_session(n, gone.code, gone.took, heard, ActionOutcome::Failed, detail)
                    .await
            }
            Judged::TimedOut => {
                let detail = format!("{name} came to no end in its time; it and all it started were ended");
                SessionRecord { run: self.run, work: self.work }
                    .save_session(n, gone.code, gone.took, heard, ActionOutcome::Failed, detail)
                    .await
            }
            Judged::Crash { why } => {
                SessionRecord { run: self.run, work: self.work }
                    .save_session(
                        n,
                        gone.code,
                        gone.took,
                        heard,
                        ActionOutcome::Failed,
                        format!("{name} failed: {}", text::first_line(&why, 300)),
                    )
                    .await
            }
        }
    }

    /// Waits before another try; false when somebody wants something else first.
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

    /// Finds the way to the model of the iteration's profile, and checks that the agent can take it.
    fn model_access_for(&self, agent: &dyn Agent) -> Result<ModelAccess, Error> {
        let state = self.run.state();
        let open = state.open.as_ref().map(|open| &open.profile);
        let mut wanted = open.into_iter().chain([&state.profile, &state.started.profiles.default.name]);
        let way = wanted.find_map(|profile| self.work.model_access.iter().find(|way| way.profile == *profile)).cloned();
        let way = way.ok_or_else(|| Error::Profile {
            profile: state.profile.clone(),
            why: "the sandbox is not lent its model".to_owned(),
        })?;
        let profile = &way.profile;
        let provider = state.started.profiles.get(profile).map_or("", |profile| provider(&profile.model));
        let wire = shared_protocol(agent, way.wire, provider)
            .ok_or_else(|| Error::Profile { profile: profile.clone(), why: protocol_mismatch(agent, way.wire) })?;
        Ok(ModelAccess { wire, ..way })
    }

    async fn prepare_agent_command(
        &self,
        n: u32,
        sandbox: &dyn Sandbox,
        agent: &dyn Agent,
        way: &ModelAccess,
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
            model: &way.model,
            base_url: &way.base_url,
            key: &way.phantom_key,
            key_variable: &way.key_name,
            wire: way.wire,
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

    /// Runs the session to its end, or ends it; `None` when somebody stopped the run.
    async fn supervise_session(
        &mut self,
        sandbox: &dyn Sandbox,
        pinned: &PinnedAgent,
        start: &AgentInvocation,
        hearing: &SessionOutput,
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
        let mut sink = hearing.sink();
        let running = sandbox.exec(&exec, &mut sink);
        tokio::pin!(running);
        let mut gone = SessionProcessExit::default();
        loop {
            tokio::select! {
                exit = &mut running => {
                    match exit {
                        Ok(exit) => match exit.status {
                            ExecStatus::Code(code) => gone.code = Some(code),
                            ExecStatus::Signal(_) => (),
                            ExecStatus::TimedOut => gone.timed_out = true,
                        },
                        Err(SandboxError::Spawn { .. }) => gone.missing = true,
                        Err(error) => return Err(error.into()),
                    }
                    break;
                }
                () = tokens.aborted() => return Ok(None),
                Some(asked) = self.interrupts.next_control() => ControlHandler { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }.handle_mid_action(asked).await?,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    EgressEvents { run: self.run }.record_refusals()?;
                    EgressEvents { run: self.run }.record_agent_call_batch()?;
                    self.log_agent_events(&hearing.take_events())?;
                    // Some agents go on asking for hours where nobody answers.
                    if agent::should_abort(&self.run.audit_log.calls().responses_since(mark)) {
                        break;
                    }
                    // Dropping it ends the whole process tree; what it committed stays.
                    if hearing.finished_for().is_some_and(|since| since > grace) {
                        self.run.log(EventLogLevel::Warn, format!("`{}` said it was done and did not end, so it was ended", pinned.name))?;
                        break;
                    }
                    if hearing.silent_for() > idle {
                        gone.idle = true;
                        break;
                    }
                }
            }
        }
        gone.took = began.elapsed();
        gone.cut_off = self.work.egress_restarts() != restarts;
        Ok(Some(gone))
    }

    /// Tells what the agent did, in short lines.
    fn log_agent_events(&mut self, said: &[agent::AgentOutputEvent]) -> Result<(), Error> {
        for said in said {
            let (level, line) = match said {
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
            // Masked before it is cut: half a secret is not found any more.
            let line = self.run.redactor.redact(&line).into_owned();
            self.run.log(level, text::first_line(&line, 200).to_owned())?;
        }
        Ok(())
    }

    fn end_session_early(&mut self, n: u32, gone: &SessionProcessExit, why: &str) -> Result<(), Error> {
        self.run.log(EventLogLevel::Warn, format!("the session was cut short: {why}"))?;
        let (outcome, detail) = (ActionOutcome::Cut, why.to_owned());
        let duration_ms = u64::try_from(gone.took.as_millis()).unwrap_or(u64::MAX);
        self.run.append(Event::ActionFinished { n, index: 0, outcome, code: gone.code, duration_ms, detail })
    }

    /// Returns the budget of which the smallest share is left.
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

/// The name of what a session printed; one that was cut short keeps its own.
fn transcript_name(cut: u32) -> String {
    if cut == 0 { "session.jsonl".to_owned() } else { format!("session-{cut}.jsonl") }
}
