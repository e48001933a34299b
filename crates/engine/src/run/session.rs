//! One session of an agent: started in the sandbox, listened to, ended in time, and judged by what the door saw.
//!
//! A session is the one action of an agent's iteration. Trouble of the provider cuts it short and uses nothing up: what
//! the agent has done by then stays, and another session goes on from there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ralph_core::action::{Claims, Reply};
use ralph_core::agent::{self, Agent, Ended, Outcome as Judged, Session, Start};
use ralph_core::budget::Limit;
use ralph_core::decide::SPENT;
use ralph_core::event::{Before, Event, Level, Outcome, PinnedAgent, Reason};
use ralph_core::patience::Tries;
use ralph_core::profile::Wire;
use ralph_core::{run, task, text};
use ralph_sandbox::{Error as SandboxError, Exec, Sandbox, Status};
use serde::{Deserialize, Serialize};

use super::closing::ACTIONS;
use super::hearing::{Heard, Hearing};
use super::runner::Runner;
use crate::egress::Way;
use crate::error::Error;
use crate::store::write_atomic;

/// What is kept of a session that came to its end.
pub(super) const SESSION: &str = "session.json";
/// What was heard so far of the session under way.
const JOURNAL: &str = "session.part";

/// How often is looked at what the agent said and what the door saw.
const LOOK: Duration = Duration::from_millis(200);
/// So often a session is begun again after it was cut short, until the provider is given more time.
const CUTS: u32 = 6;
/// The first wait before that; each is twice as long as the one before.
const WAIT: Duration = Duration::from_secs(2);
/// Refused for now, without a word about when: looked at again after this.
const SOME_TIME: Duration = Duration::from_mins(5);
/// A provider that says *now* and means *not yet* is not asked in a hurry.
const AT_LEAST: Duration = Duration::from_secs(5);

/// `iterations/<n>/session.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    reply: Reply,
    outcome: Outcome,
    code: Option<i32>,
    detail: String,
    complaint: String,
    duration_ms: u64,
}

/// How the process of a session ended.
#[derive(Debug, Default)]
struct Gone {
    code: Option<i32>,
    missing: bool,
    idle: bool,
    timed_out: bool,
    /// The way out was cut meanwhile.
    cut_off: bool,
    took: Duration,
}

impl Runner {
    pub(super) async fn session(&mut self, n: u32, cut: u32) -> Result<(), Error> {
        let path = self.folder.iteration(n).join(SESSION);
        if let Some(bytes) = self.folder.read(&path)?
            && let Ok(kept) = serde_json::from_slice::<Kept>(&bytes)
        {
            return self.session_over(n, &kept).await;
        }
        let Some(pinned) = self.state().started.agent.clone() else { return Ok(()) };
        let waits = self.state().waited;
        // After each wait it gets one more try.
        if cut >= CUTS.saturating_add(waits) {
            let why = format!("`{}` was cut short {cut} times in a row", pinned.name);
            return self.wait_out(why, Tries::Free);
        }
        if cut > 0 && waits == 0 && !self.waited(WAIT * 2_u32.pow(cut - 1)).await? {
            return Ok(());
        }
        let chosen = Chosen::of(&pinned)?;
        let agent = chosen.get();
        let way = self.way(agent)?;
        let begun = self.state().open.as_ref().is_some_and(|open| open.begun.is_some());
        let survey = self.look().await?;
        let prompt = self.build_prompt(n, &survey).await?;
        self.write_prompt(n, &prompt).await?;
        if !begun {
            let (kind, brief) = (run::SESSION.to_owned(), format!("{} with {}", agent.name(), way.model));
            self.events.append(Event::ActionStarted { n, index: 0, kind, brief, before: Before::Nothing })?;
        }
        self.survey = None;
        let sandbox = self.sandbox()?;
        self.keep_interrupted(n, &*sandbox).await?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let start = self.start(n, &*sandbox, agent, &way, &whole).await?;
        let hearing = Hearing::new(agent.reader(), self.redactor.clone(), self.journal(n));
        let mark = self.book.calls().mark();
        let Some(gone) = self.listen(&*sandbox, &pinned, &start, &hearing, mark).await? else {
            // Nobody waits any longer; what was under way is charged at its worst.
            self.give_up_calls();
            self.tell_of_calls()?;
            let heard = hearing.take();
            return self.write_transcript(n, &*sandbox, &transcript(cut), &heard.output).await;
        };
        self.settle().await?;
        let heard = hearing.take();
        self.tell_said(&heard.said)?;
        self.write_transcript(n, &*sandbox, &transcript(cut), &heard.output).await?;
        let calls = self.book.calls().seen(mark);
        let ended = Ended {
            code: gone.code,
            missing: gone.missing,
            idle: gone.idle,
            timed_out: gone.timed_out,
            finished: heard.finished.as_ref(),
            stderr: &heard.stderr,
            calls: &calls,
            now: Timestamp::now(),
        };
        let judged = agent::judge(&ended);
        tracing::debug!(run = self.state().id(), n, ?judged, ?gone, "a session ended");
        self.afterwards_of(n, agent, &way, judged, &gone, &heard).await
    }

    /// Opens what is written while the agent speaks. Without it only a session that ralph itself dies in is not kept.
    fn journal(&self, n: u32) -> Option<File> {
        File::create(self.folder.iteration(n).join(JOURNAL)).ok()
    }

    async fn write_transcript(&self, n: u32, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        self.files.artefact(sandbox, n, name, text.as_bytes()).await?;
        // It stands in the transcript now. One that stays is kept as another session, which is no harm.
        let _ = fs::remove_file(self.folder.iteration(n).join(JOURNAL));
        Ok(())
    }

    /// Keeps what was heard of a session that ended with ralph itself.
    async fn keep_interrupted(&self, n: u32, sandbox: &dyn Sandbox) -> Result<(), Error> {
        let path = self.folder.iteration(n).join(JOURNAL);
        let Some(heard) = self.folder.read(&path)?.filter(|heard| !heard.is_empty()) else { return Ok(()) };
        let taken = |name: &String| self.folder.iteration(n).join(name).exists();
        let name = (1..=u32::MAX).map(interrupted).find(|name| !taken(name)).unwrap_or_else(|| interrupted(0));
        self.write_transcript(n, sandbox, &name, &String::from_utf8_lossy(&heard)).await
    }

    /// Goes on by what the end of a session means.
    async fn afterwards_of(
        &mut self,
        n: u32,
        agent: &dyn Agent,
        way: &Way,
        judged: Judged,
        gone: &Gone,
        heard: &Heard,
    ) -> Result<(), Error> {
        let name = agent.name();
        match judged {
            _ if gone.cut_off && !matches!(judged, Judged::Done) => {
                self.cut_short(n, gone, "the way out was served anew meanwhile")
            }
            Judged::Limit { until } => {
                self.cut_short(n, gone, "the provider's limit is reached")?;
                let until = until.unwrap_or_else(|| Timestamp::now() + SOME_TIME).max(Timestamp::now() + AT_LEAST);
                self.pause(Reason::Quota { until })
            }
            Judged::Overload => self.cut_short(n, gone, "the provider is overloaded"),
            Judged::Auth => {
                self.cut_short(n, gone, "the provider does not take the key")?;
                self.pause(Reason::Auth { profile: way.profile.clone() })
            }
            Judged::Barred { why } => {
                self.cut_short(n, gone, &why)?;
                self.pause(Reason::Provider { why })
            }
            Judged::ProviderSpend => {
                self.cut_short(n, gone, "there is no money left at the provider")?;
                self.pause(Reason::Provider { why: "there is no money left at the provider".to_owned() })
            }
            Judged::Missing => {
                self.cut_short(n, gone, "its program is not there")?;
                let why =
                    format!("the agent `{name}` is not in the sandbox; install it with `ralph agent install {name}`");
                self.pause(Reason::Host { why })
            }
            Judged::Spend => {
                let limit = self.scarce();
                self.events.append(Event::BudgetWarned { limit, percent: SPENT })?;
                self.keep(n, gone, heard, Outcome::Failed, format!("{name}: the {limit} budget is spent")).await
            }
            Judged::Done => self.keep(n, gone, heard, Outcome::Ok, format!("{name}: done")).await,
            Judged::Idle => {
                let detail = format!("{name} said nothing for too long; it and all it started were ended");
                self.keep(n, gone, heard, Outcome::Failed, detail).await
            }
            Judged::TimedOut => {
                let detail = format!("{name} came to no end in its time; it and all it started were ended");
                self.keep(n, gone, heard, Outcome::Failed, detail).await
            }
            Judged::Crash { why } => {
                self.keep(n, gone, heard, Outcome::Failed, format!("{name} failed: {}", text::first_line(&why, 300)))
                    .await
            }
        }
    }

    /// Waits before another try; false when somebody wants something else first.
    async fn waited(&mut self, wait: Duration) -> Result<bool, Error> {
        tokio::select! {
            () = tokio::time::sleep(wait.min(self.time_left())) => Ok(true),
            () = self.halt.cancelled() => Ok(false),
            () = self.stops.soon.cancelled() => Ok(false),
            () = self.stops.now.cancelled() => Ok(false),
            Some(asked) = self.controls.recv() => {
                self.control(asked).await?;
                Ok(false)
            }
        }
    }

    /// Finds the way to the model of the iteration's profile, and checks that the agent can take it.
    fn way(&self, agent: &dyn Agent) -> Result<Way, Error> {
        let state = self.state();
        let open = state.open.as_ref().map(|open| &open.profile);
        let mut wanted = open.into_iter().chain([&state.profile, &state.started.profiles.default.name]);
        let way = wanted.find_map(|profile| self.ways.iter().find(|way| way.profile == *profile)).cloned();
        let way = way.ok_or_else(|| Error::Profile {
            profile: state.profile.clone(),
            why: "the sandbox is not lent its model".to_owned(),
        })?;
        let profile = &way.profile;
        let provider = state.started.profiles.get(profile).map_or("", |profile| provider(&profile.model));
        let wire = fits(agent, way.wire, provider)
            .ok_or_else(|| Error::Profile { profile: profile.clone(), why: misfit(agent, way.wire) })?;
        Ok(Way { wire, ..way })
    }

    async fn start(
        &self,
        n: u32,
        sandbox: &dyn Sandbox,
        agent: &dyn Agent,
        way: &Way,
        prompt: &str,
    ) -> Result<Start, Error> {
        let started = &self.state().started;
        let (program, env) = match &started.agent {
            Some(pinned) => {
                let installed = self.host.agent(pinned, &started.backend)?;
                (installed.program, installed.env)
            }
            None => (agent.program().to_owned(), Vec::new()),
        };
        let folder = sandbox.exchange().join("agent");
        let prompt_file = sandbox.workspace().join(format!(".ralph/iterations/{n}/prompt.md"));
        let mut start = agent.start(&Session {
            program: &program,
            prompt,
            prompt_file: &prompt_file.to_string_lossy(),
            folder: &folder.to_string_lossy(),
            model: &way.model,
            base_url: &way.base_url,
            key: &way.key,
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
    async fn listen(
        &mut self,
        sandbox: &dyn Sandbox,
        pinned: &PinnedAgent,
        start: &Start,
        hearing: &Hearing,
        mark: u64,
    ) -> Result<Option<Gone>, Error> {
        let began = Instant::now();
        let session = Duration::from_secs(pinned.session_s).min(self.time_left());
        let (idle, grace) = (Duration::from_secs(pinned.idle_s), Duration::from_secs(pinned.grace_s));
        let mut exec = Exec::new(start.argv.clone(), session);
        exec.env.clone_from(&start.env);
        if let Some(above) = sandbox.workspace().parent().and_then(Path::to_str) {
            exec = exec.env("GIT_CEILING_DIRECTORIES", above);
        }
        exec.stdin = start.stdin.clone().unwrap_or_default().into_bytes();
        let restarts = self.restarts();
        let (halt, now) = (self.halt.clone(), self.stops.now.clone());
        let mut sink = hearing.sink();
        let running = sandbox.exec(&exec, &mut sink);
        tokio::pin!(running);
        let mut gone = Gone::default();
        loop {
            tokio::select! {
                exit = &mut running => {
                    match exit {
                        Ok(exit) => match exit.status {
                            Status::Code(code) => gone.code = Some(code),
                            Status::Signal(_) => (),
                            Status::TimedOut => gone.timed_out = true,
                        },
                        Err(SandboxError::Spawn { .. }) => gone.missing = true,
                        Err(error) => return Err(error.into()),
                    }
                    break;
                }
                () = halt.cancelled() => return Ok(None),
                () = now.cancelled() => return Ok(None),
                Some(asked) = self.controls.recv() => self.meanwhile(asked).await?,
                () = tokio::time::sleep(LOOK) => {
                    self.tell_of_refusals()?;
                    self.tell_of_some_calls()?;
                    self.tell_said(&hearing.said())?;
                    // Some agents go on asking for hours where nobody answers.
                    if agent::hopeless(&self.book.calls().seen(mark)) {
                        break;
                    }
                    // Dropping it ends the whole process tree; what it committed stays.
                    if hearing.finished_for().is_some_and(|since| since > grace) {
                        self.log(Level::Warn, format!("`{}` said it was done and did not end, so it was ended", pinned.name))?;
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
        gone.cut_off = self.restarts() != restarts;
        Ok(Some(gone))
    }

    /// Tells what the agent did, in short lines.
    fn tell_said(&mut self, said: &[agent::Said]) -> Result<(), Error> {
        for said in said {
            let (level, line) = match said {
                agent::Said::Text(words) => (Level::Info, words.clone()),
                agent::Said::Tool { name, brief } => (Level::Info, format!("{name}: {brief}")),
                agent::Said::ToolDone { ok: true, .. } => continue,
                agent::Said::ToolDone { name, brief, .. } => (Level::Warn, format!("{name} failed: {brief}")),
                agent::Said::Retry { status: Some(status), why } => {
                    (Level::Warn, format!("retries after {status}: {why}"))
                }
                agent::Said::Retry { status: None, why } => (Level::Warn, format!("retries: {why}")),
                agent::Said::Trouble(why) => (Level::Warn, why.clone()),
            };
            // Masked before it is cut: half a secret is not found any more.
            let line = self.redactor.redact(&line).into_owned();
            self.log(level, text::first_line(&line, 200).to_owned())?;
        }
        Ok(())
    }

    fn cut_short(&mut self, n: u32, gone: &Gone, why: &str) -> Result<(), Error> {
        self.log(Level::Warn, format!("the session was cut short: {why}"))?;
        let (outcome, detail) = (Outcome::Cut, why.to_owned());
        let duration_ms = u64::try_from(gone.took.as_millis()).unwrap_or(u64::MAX);
        self.events.append(Event::ActionFinished { n, index: 0, outcome, code: gone.code, duration_ms, detail })
    }

    /// Returns the budget of which the smallest share is left.
    fn scarce(&self) -> Limit {
        let state = self.state();
        let used = |limit: Limit, spent: u64| {
            let whole = state.budget.of(limit).filter(|whole| *whole > 0)?;
            Some((u128::from(spent) * 1000 / u128::from(whole), limit))
        };
        let cost = used(Limit::Cost, state.spent.cost.0);
        let tokens = used(Limit::Tokens, state.spent.tokens);
        cost.into_iter().chain(tokens).max_by_key(|(share, _)| *share).map_or(Limit::Cost, |(_, limit)| limit)
    }

    /// Keeps what came of a session, takes its claims out of the task file, and ends it.
    async fn keep(
        &mut self,
        n: u32,
        gone: &Gone,
        heard: &Heard,
        outcome: Outcome,
        detail: String,
    ) -> Result<(), Error> {
        let claims = self.claimed_in_task(n).await?;
        let said = heard.finished.as_ref().map(|finished| finished.text.as_str()).filter(|text| !text.is_empty());
        let summary = text::head(&text::plain(said.unwrap_or(&heard.last)), 2000).to_owned();
        let complaint = match outcome {
            Outcome::Ok => String::new(),
            _ => text::tail(&heard.stderr, 30, 4000).to_owned(),
        };
        let kept = Kept {
            reply: Reply { summary, actions: Vec::new(), claims },
            outcome,
            code: gone.code,
            detail: self.redactor.redact(&detail).into_owned(),
            complaint,
            duration_ms: u64::try_from(gone.took.as_millis()).unwrap_or(u64::MAX),
        };
        let path = self.folder.iteration(n).join(SESSION);
        write_atomic(&path, &serde_json::to_vec(&kept).unwrap_or_default())?;
        self.session_over(n, &kept).await
    }

    /// An agent claims a box by ticking it in its copy of the task. Only ticks count; whatever else it wrote there is
    /// put aside for a person.
    async fn claimed_in_task(&mut self, n: u32) -> Result<Claims, Error> {
        let (sandbox, path) = (self.sandbox()?, self.state().started.task_path.clone());
        let pinned = self.pinned_task()?;
        let found = match sandbox.read(Path::new(&path), 4 << 20).await {
            Ok(found) => found,
            Err(error @ SandboxError::Gone { .. }) => return Err(error.into()),
            Err(error) => {
                self.log_once(Level::Warn, format!("nothing was claimed: the task file cannot be read: {error}"))?;
                Vec::new()
            }
        };
        let found = String::from_utf8_lossy(&found).into_owned();
        let bare = |text: &str| task::tick(text, &std::collections::BTreeSet::new());
        if !found.is_empty() && bare(&found) != bare(&pinned) {
            let shown = self.redactor.redact(&found).into_owned();
            self.files.artefact(&*sandbox, n, "task_proposal.md", shown.as_bytes()).await?;
            let place = format!(".ralph/iterations/{n}/task_proposal.md");
            self.log_once(Level::Warn, format!("the agent changed more of {path} than boxes: put aside as {place}"))?;
        }
        let known = &self.state().started.boxes;
        let ticked = task::ticked(&found);
        let boxes = known.iter().map(|pinned| pinned.id.clone()).filter(|id| ticked.contains(id)).collect();
        Ok(Claims { checkboxes_checked: boxes, milestones_completed: Vec::new() })
    }

    async fn session_over(&mut self, n: u32, kept: &Kept) -> Result<(), Error> {
        // The ticks are known; the file is ralph's again.
        let (sandbox, path) = (self.sandbox()?, PathBuf::from(&self.state().started.task_path));
        let wanted = self.task_text()?;
        match sandbox.write(&path, wanted.as_bytes(), None).await {
            // What stands in its way is cleared when the iteration is closed.
            Ok(()) | Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => (),
            Err(error) => return Err(error.into()),
        }
        self.survey = None;
        // What it said and claimed stands where the answer of a model would.
        let reply = serde_json::to_vec_pretty(&kept.reply).unwrap_or_default();
        self.files.artefact(&*sandbox, n, "response.json", &reply).await?;
        let acted = super::act::Acted {
            index: 0,
            kind: run::SESSION.to_owned(),
            brief: self.state().started.agent.as_ref().map(|agent| agent.name.clone()).unwrap_or_default(),
            outcome: kept.outcome,
            code: kept.code,
            // A session is more than one command: one that came to no end is judged by what it did.
            timed_out: false,
            duration_ms: kept.duration_ms,
            detail: kept.detail.clone(),
            complaint: kept.complaint.clone(),
        };
        let line = format!("{}\n", serde_json::to_string(&acted).unwrap_or_default());
        write_atomic(&self.folder.iteration(n).join(ACTIONS), line.as_bytes())?;
        let Kept { outcome, code, duration_ms, detail, .. } = kept;
        let (outcome, code, duration_ms, detail) = (*outcome, *code, *duration_ms, detail.clone());
        self.events.append(Event::ActionFinished { n, index: 0, outcome, code, duration_ms, detail })
    }

    /// Returns what an agent said and claimed, as if it were an answer.
    pub(super) fn session_reply(&self, n: u32) -> Result<Reply, Error> {
        let path = self.folder.iteration(n).join(SESSION);
        let kept = self.folder.read(&path)?.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let nothing = || Reply { summary: String::new(), actions: Vec::new(), claims: Claims::default() };
        Ok(kept.map_or_else(nothing, |kept| kept.reply))
    }
}

/// The name of what a session printed; one that was cut short keeps its own.
fn transcript(cut: u32) -> String {
    if cut == 0 { "session.jsonl".to_owned() } else { format!("session-{cut}.jsonl") }
}

/// The name of what a session printed that ralph did not live to see the end of.
fn interrupted(times: u32) -> String {
    format!("session-interrupted-{times}.jsonl")
}

/// The agent that a run was started with.
#[derive(Debug)]
pub(crate) enum Chosen {
    Known(&'static dyn Agent),
    Custom(agent::Custom),
}

impl Chosen {
    pub(crate) fn of(pinned: &PinnedAgent) -> Result<Self, Error> {
        let unknown = |why: String| Error::Agent { name: pinned.name.clone(), why };
        match &pinned.template {
            Some(template) => {
                agent::Custom::new(template).map(Self::Custom).map_err(|error| unknown(error.to_string()))
            }
            None => agent::named(&pinned.name)
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
const BOTH: [&str; 3] = ["openai", "azure", "litellm_proxy"];

/// Returns the provider in the name of a model.
pub(crate) fn provider(model: &str) -> &str {
    model.split('/').next().unwrap_or(model)
}

/// Returns the protocol an agent speaks to the model of a profile.
pub(crate) fn fits(agent: &dyn Agent, wire: Wire, provider: &str) -> Option<Wire> {
    let openai = |wire: &Wire| matches!(wire, Wire::Chat | Wire::Responses) && BOTH.contains(&provider);
    let same = agent.wires().iter().find(|own| **own == wire);
    same.or_else(|| agent.wires().iter().find(|own| openai(own) && openai(&wire))).copied()
}

/// Says why an agent and a profile do not go together, and which would.
pub(crate) fn misfit(agent: &dyn Agent, wire: Wire) -> String {
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
    fn check(agent: &str, wire: Wire, provider: &str, want: Option<Wire>) {
        assert_eq!(fits(agent::named(agent).unwrap(), wire, provider), want, "{agent} {wire:?} {provider}");
    }

    #[test]
    fn agents_and_providers() {
        check("claude", Wire::Anthropic, "anthropic", Some(Wire::Anthropic));
        check("claude", Wire::Chat, "openai", None);
        check("codex", Wire::Responses, "openai", Some(Wire::Responses));
        check("codex", Wire::Chat, "openai", Some(Wire::Responses));
        check("codex", Wire::Chat, "litellm_proxy", Some(Wire::Responses));
        // It has no protocol of its own for those that speak chat only.
        check("codex", Wire::Chat, "zai", None);
        check("qwen", Wire::Chat, "zai", Some(Wire::Chat));
        check("gemini", Wire::Gemini, "gemini", Some(Wire::Gemini));
        check("cursor", Wire::Anthropic, "anthropic", None);
        check("claude", Wire::Scripted, "scripted", None);
    }
}
