//! One session of an agent: started in the sandbox, listened to, ended in time, and judged by what the door saw.
//!
//! A session is the one action of an agent's iteration. Trouble of the provider cuts it short and uses nothing up: what
//! the agent has done by then stays, and another session goes on from there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph_core::action::{ActionKind, ActionReply, ReplyClaims};
use ralph_core::agent::{self, Agent, AgentInvocation, AgentSessionEnd, AgentSessionParams, SessionOutcome as Judged};
use ralph_core::backoff::RetryCost;
use ralph_core::budget::BudgetKind;
use ralph_core::decide::SPENT_PERCENT;
use ralph_core::event::{ActionOutcome, Event, EventLogLevel, PinnedAgent, PreActionState, RunStopReason};
use ralph_core::profile::ProviderProtocol;
use ralph_core::{task, text};
use ralph_sandbox::{Error as SandboxError, ExecRequest, ExecStatus, Sandbox};
use serde::{Deserialize, Serialize};

use super::agent_output::{SessionOutput, SessionTranscript};
use super::close_checkpoint::ACTION_LOG_FILE;
use super::interrupts::WaitEnd;
use super::runner::Runner;
use crate::egress::ModelAccess;
use crate::error::Error;
use crate::store::write_atomic;

/// What is kept of a session that came to its end.
pub(super) const SESSION_FILE: &str = "session.json";
/// What was heard so far of the session under way.
const TRANSCRIPT_PART_FILE: &str = "session.part";

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

/// `iterations/<n>/session.json`.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSession {
    reply: ActionReply,
    outcome: ActionOutcome,
    code: Option<i32>,
    detail: String,
    complaint: String,
    duration_ms: u64,
}

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

impl Runner {
    pub(super) async fn run_session(&mut self, n: u32, cut: u32) -> Result<(), Error> {
        let path = self.run.folder.iteration(n).join(SESSION_FILE);
        if let Some(bytes) = self.run.folder.read(&path)?
            && let Ok(kept) = serde_json::from_slice::<SavedSession>(&bytes)
        {
            return self.finish_session(n, &kept).await;
        }
        let Some(pinned) = self.run.state().started.agent.clone() else { return Ok(()) };
        let waits = self.run.state().waited;
        // After each wait it gets one more try.
        if cut >= MAX_CUT_SESSIONS.saturating_add(waits) {
            let why = format!("`{}` was cut short {cut} times in a row", pinned.name);
            return self.pause_for_outage(why, RetryCost::Free);
        }
        if cut > 0 && waits == 0 && !self.wait_before_retry(FIRST_RETRY_DELAY * 2_u32.pow(cut - 1)).await? {
            return Ok(());
        }
        let chosen = SelectedAgent::of(&pinned)?;
        let agent = chosen.get();
        let way = self.model_access_for(agent)?;
        let begun = self.run.state().open.as_ref().is_some_and(|open| open.begun.is_some());
        let survey = self.work.tree_status(self.run.state()).await?;
        let prompt = self.build_prompt(n, &survey).await?;
        self.write_prompt(n, &prompt).await?;
        if !begun {
            let (kind, brief) = (ActionKind::Session, format!("{} with {}", agent.name(), way.model));
            self.run.append(Event::ActionStarted { n, index: 0, kind, brief, before: PreActionState::Nothing })?;
        }
        self.work.forget_tree();
        let sandbox = self.work.sandbox()?;
        self.save_interrupted_transcript(n, &*sandbox).await?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let start = self.prepare_agent_command(n, &*sandbox, agent, &way, &whole).await?;
        let hearing = SessionOutput::new(agent.reader(), self.run.redactor.clone(), self.create_transcript_file(n));
        let mark = self.run.audit_log.calls().response_count();
        let Some(gone) = self.supervise_session(&*sandbox, &pinned, &start, &hearing, mark).await? else {
            // Nobody waits any longer; what was under way is charged at its worst.
            self.models.charge_in_flight(&self.run.audit_log);
            self.record_agent_calls()?;
            let heard = hearing.finish();
            return self.write_transcript(n, &*sandbox, &transcript_name(cut), &heard.output).await;
        };
        self.settle_calls().await?;
        let heard = hearing.finish();
        self.log_agent_events(&heard.events)?;
        self.write_transcript(n, &*sandbox, &transcript_name(cut), &heard.output).await?;
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

    /// Opens what is written while the agent speaks. Without it only a session that ralph itself dies in is not kept.
    fn create_transcript_file(&self, n: u32) -> Option<File> {
        File::create(self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE)).ok()
    }

    async fn write_transcript(&self, n: u32, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        self.run.files.write_artefact(sandbox, n, name, text.as_bytes()).await?;
        // It stands in the transcript now. One that stays is kept as another session, which is no harm.
        let _ = fs::remove_file(self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE));
        Ok(())
    }

    /// Keeps what was heard of a session that ended with ralph itself.
    async fn save_interrupted_transcript(&self, n: u32, sandbox: &dyn Sandbox) -> Result<(), Error> {
        let path = self.run.folder.iteration(n).join(TRANSCRIPT_PART_FILE);
        let Some(heard) = self.run.folder.read(&path)?.filter(|heard| !heard.is_empty()) else { return Ok(()) };
        let taken = |name: &String| self.run.folder.iteration(n).join(name).exists();
        let name = (1..=u32::MAX)
            .map(interrupted_transcript_name)
            .find(|name| !taken(name))
            .unwrap_or_else(|| interrupted_transcript_name(0));
        self.write_transcript(n, sandbox, &name, &String::from_utf8_lossy(&heard)).await
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
                self.save_session(n, gone, heard, ActionOutcome::Failed, format!("{name}: the {limit} budget is spent"))
                    .await
            }
            Judged::Done => self.save_session(n, gone, heard, ActionOutcome::Ok, format!("{name}: done")).await,
            Judged::Idle => {
                let detail = format!("{name} said nothing for too long; it and all it started were ended");
                self.save_session(n, gone, heard, ActionOutcome::Failed, detail).await
            }
            Judged::TimedOut => {
                let detail = format!("{name} came to no end in its time; it and all it started were ended");
                self.save_session(n, gone, heard, ActionOutcome::Failed, detail).await
            }
            Judged::Crash { why } => {
                self.save_session(
                    n,
                    gone,
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
                self.handle_control(asked).await?;
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
                Some(asked) = self.interrupts.next_control() => self.handle_control_mid_action(asked).await?,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    self.record_refusals()?;
                    self.record_agent_call_batch()?;
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

    /// Keeps what came of a session, takes its claims out of the task file, and ends it.
    async fn save_session(
        &mut self,
        n: u32,
        gone: &SessionProcessExit,
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
            code: gone.code,
            detail: self.run.redactor.redact(&detail).into_owned(),
            complaint,
            duration_ms: u64::try_from(gone.took.as_millis()).unwrap_or(u64::MAX),
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
        let bare = |text: &str| task::tick(text, &std::collections::BTreeSet::new());
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

    async fn finish_session(&mut self, n: u32, kept: &SavedSession) -> Result<(), Error> {
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
        let acted = super::action::ActionLogEntry {
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

    /// Returns what an agent said and claimed, as if it were an answer.
    pub(super) fn session_reply(&self, n: u32) -> Result<ActionReply, Error> {
        let path = self.run.folder.iteration(n).join(SESSION_FILE);
        let kept = self.run.folder.read(&path)?.and_then(|bytes| serde_json::from_slice::<SavedSession>(&bytes).ok());
        let nothing = || ActionReply { summary: String::new(), actions: Vec::new(), claims: ReplyClaims::default() };
        Ok(kept.map_or_else(nothing, |kept| kept.reply))
    }
}

/// The name of what a session printed; one that was cut short keeps its own.
fn transcript_name(cut: u32) -> String {
    if cut == 0 { "session.jsonl".to_owned() } else { format!("session-{cut}.jsonl") }
}

/// The name of what a session printed that ralph did not live to see the end of.
fn interrupted_transcript_name(times: u32) -> String {
    format!("session-interrupted-{times}.jsonl")
}

/// The agent that a run was started with.
#[derive(Debug)]
pub(crate) enum SelectedAgent {
    Known(&'static dyn Agent),
    Custom(agent::CustomAgent),
}

impl SelectedAgent {
    pub(crate) fn of(pinned: &PinnedAgent) -> Result<Self, Error> {
        let unknown = |why: String| Error::Agent { name: pinned.name.clone(), why };
        match &pinned.template {
            Some(template) => {
                agent::CustomAgent::new(template).map(Self::Custom).map_err(|error| unknown(error.to_string()))
            }
            None => agent::by_name(&pinned.name)
                .map(Self::Known)
                .ok_or_else(|| unknown("ralph does not know it; `ralph agent ls` shows those it knows".to_owned())),
        }
    }

    pub(crate) fn get(&self) -> &dyn Agent {
        match self {
            Self::Known(agent) => *agent,
            Self::Custom(custom) => custom,
        }
    }
}

/// Providers that serve both protocols of OpenAI.
const DUAL_PROTOCOL_PROVIDERS: [&str; 3] = ["openai", "azure", "litellm_proxy"];

/// Returns the provider in the name of a model.
pub(crate) fn provider(model: &str) -> &str {
    model.split('/').next().unwrap_or(model)
}

/// Returns the protocol an agent speaks to the model of a profile.
pub(crate) fn shared_protocol(agent: &dyn Agent, wire: ProviderProtocol, provider: &str) -> Option<ProviderProtocol> {
    let openai = |wire: &ProviderProtocol| {
        matches!(wire, ProviderProtocol::Chat | ProviderProtocol::Responses)
            && DUAL_PROTOCOL_PROVIDERS.contains(&provider)
    };
    let same = agent.wires().iter().find(|own| **own == wire);
    same.or_else(|| agent.wires().iter().find(|own| openai(own) && openai(&wire))).copied()
}

/// Says why an agent and a profile do not go together, and which would.
pub(crate) fn protocol_mismatch(agent: &dyn Agent, wire: ProviderProtocol) -> String {
    let spoken: Vec<String> = agent.wires().iter().map(ToString::to_string).collect();
    format!(
        "its provider speaks {wire}, and the agent `{}` speaks {}; choose a profile of such a provider",
        agent.name(),
        if spoken.is_empty() { "only to its maker".to_owned() } else { spoken.join(" or ") }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(agent: &str, wire: ProviderProtocol, provider: &str, want: Option<ProviderProtocol>) {
        assert_eq!(
            shared_protocol(agent::by_name(agent).unwrap(), wire, provider),
            want,
            "{agent} {wire:?} {provider}"
        );
    }

    #[test]
    fn agents_and_providers() {
        check("claude", ProviderProtocol::Anthropic, "anthropic", Some(ProviderProtocol::Anthropic));
        check("claude", ProviderProtocol::Chat, "openai", None);
        check("codex", ProviderProtocol::Responses, "openai", Some(ProviderProtocol::Responses));
        check("codex", ProviderProtocol::Chat, "openai", Some(ProviderProtocol::Responses));
        check("codex", ProviderProtocol::Chat, "litellm_proxy", Some(ProviderProtocol::Responses));
        // It has no protocol of its own for those that speak chat only.
        check("codex", ProviderProtocol::Chat, "zai", None);
        check("qwen", ProviderProtocol::Chat, "zai", Some(ProviderProtocol::Chat));
        check("gemini", ProviderProtocol::Gemini, "gemini", Some(ProviderProtocol::Gemini));
        check("cursor", ProviderProtocol::Anthropic, "anthropic", None);
        check("claude", ProviderProtocol::Scripted, "scripted", None);
    }
}
