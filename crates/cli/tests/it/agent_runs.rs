//! Tests whole runs by the real `claude` and `codex`, in a cage, against a scripted model: several sessions to a
//! proved pull request, and every way a session can go wrong. None of the latter ends as done.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ralph_core::action::ActionKind;
use ralph_core::event::{ActionOutcome, Event, EventLine, IterationOutcome, ModelCallOutcome, RunStopReason};
use ralph_testkit::model_server::{
    self, BilledTokens, FakeModelRequest, FakeModelScript, FakeModelServer, ScriptedTurn,
};
use serde_json::json;

use crate::agent_key_isolation::{API_KEY, CLAUDE, CODEX, LentKey, PROJECT_KEY, RealAgent};
use crate::repo_fixture::{CliOutput, RepoFixture};

const TASK: &str = "\
---
task_id: three-001
engine: agent
agent: AGENT
test_command: \"sh tests/all.sh\"
max_iterations: 5
max_wall_time_minutes: 10
max_cost_usd_estimate: 2
protected_paths: [\"tests/\"]
---

# Write three files

- [ ] M1.1 There is a file one.txt
  - verify: `test -f one.txt`
- [ ] M1.2 There is a file two.txt
  - verify: `test -f two.txt`
- [ ] M1.3 There is a file three.txt
  - verify: `test -f three.txt`
";

/// A repository with a task for an agent, and a server with the script of its model.
pub(crate) struct AgentRunFixture {
    pub(crate) checkout: RepoFixture,
    server: FakeModelServer,
    agent: RealAgent,
    pub(crate) key: LentKey,
    pub(crate) path: String,
    runtime: tokio::runtime::Runtime,
}

/// Creates the fixture; `None`, with a report, where the real program is missing.
fn fixture(agent: RealAgent, key: LentKey, turns: Vec<ScriptedTurn>) -> Option<AgentRunFixture> {
    Some(fixture_with(&agent.programs()?, agent, key, turns))
}

/// Creates the fixture with a program of the test's own.
pub(crate) fn fixture_with(
    programs: &Path,
    agent: RealAgent,
    key: LentKey,
    turns: Vec<ScriptedTurn>,
) -> AgentRunFixture {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = FakeModelServer::builder().script(FakeModelScript::new(turns)).expect_key(key.value);
    let server = runtime.block_on(builder.start()).unwrap();
    let checkout = RepoFixture::new();
    checkout.repo.write("tests/all.sh", "test -f one.txt && test -f two.txt && test -f three.txt\n");
    checkout.repo.write("ralph_task.md", TASK.replace("AGENT", agent.name));
    checkout.repo.commit("a task");
    let version = if agent.model.0 == "openai" { "/v1" } else { "" };
    let ((provider, model), url, variable) = (agent.model, server.url(), key.variable);
    checkout.config(
        "models.yaml",
        &format!(
            "profiles:\n  default-cheap:\n    litellm_model: \"{provider}/{model}\"\n    \
             base_url: \"{url}{version}\"\n    api_key_env: {variable}\n"
        ),
    );
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    AgentRunFixture { checkout, server, agent, key, path, runtime }
}

impl AgentRunFixture {
    pub(crate) fn ralph(&self, args: &[&str]) -> CliOutput {
        self.checkout.ralph_with(&[("PATH", &self.path), (self.key.variable, self.key.value)], args)
    }

    fn folder(&self) -> PathBuf {
        let id = self.checkout.runs().pop().expect("a run");
        self.checkout.state().join("runs").join(id)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let text = std::fs::read_to_string(self.folder().join("events.jsonl")).unwrap();
        text.lines().map(|line| EventLine::parse(line).unwrap().event).collect()
    }

    /// Returns what the provider bills.
    pub(crate) fn bill(&self) -> model_server::ServerBill {
        self.server.bill()
    }

    pub(crate) fn calls(&self) -> Vec<FakeModelRequest> {
        let calls = |one: &FakeModelRequest| one.method == "POST" && one.path == self.agent.path;
        self.server.requests().into_iter().filter(calls).collect()
    }

    /// Returns what was charged for the answered calls, according to the events.
    fn charged(&self) -> u64 {
        self.events()
            .iter()
            .map(|event| match event {
                Event::ModelCalled { answer: ModelCallOutcome::Through { .. }, cost, .. } => cost.0,
                _ => 0,
            })
            .sum()
    }
}

/// Returns the turns of one session: a step is done and claimed, then the model stops.
fn step(agent: RealAgent, n: usize, usage: BilledTokens) -> [ScriptedTurn; 2] {
    let word = ["one", "two", "three"][n];
    let id = n + 1;
    let line = format!(
        "echo {word} > {word}.txt && git add {word}.txt && git commit -qm 'add {word}' && \
         sed -i 's/- \\[ \\] M1.{id}/- [x] M1.{id}/' ralph_task.md"
    );
    let usage = model_server::UsageReport::Reported(usage);
    let (name, input) = match agent.name {
        "claude" => ("Bash", json!({"command": line, "description": "one step"})),
        _ => ("exec_command", json!({"cmd": line})),
    };
    [
        ScriptedTurn::Tool { name: name.to_owned(), input, usage },
        ScriptedTurn::Text { text: format!("M1.{id} is done."), usage },
    ]
}

fn tokens(n: u64) -> BilledTokens {
    BilledTokens { input: 1_003 + n, cached: 111 * n, output: 41 + 7 * n, ..BilledTokens::default() }
}

fn three_steps(agent: RealAgent) -> (Vec<ScriptedTurn>, Vec<BilledTokens>) {
    let used: Vec<BilledTokens> = (0..3).map(tokens).collect();
    let turns = (0..3).flat_map(|n| step(agent, n, used[n])).collect();
    (turns, used.into_iter().flat_map(|one| [one, one]).collect())
}

/// Three boxes, three sessions, one proved pull request, and a bill that equals the server's.
#[track_caller]
fn check_three_boxes(agent: RealAgent, key: LentKey) {
    let (turns, used) = three_steps(agent);
    let Some(fixture) = fixture(agent, key, turns) else { return };
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    let events = fixture.events();
    let sessions = events
        .iter()
        .filter(|event| matches!(event, Event::ActionStarted { kind, .. } if *kind == ActionKind::Session));
    assert_eq!(sessions.count(), 3, "{output}");
    let verified: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            Event::IterationFinished { verified, .. } => Some(verified.len()),
            _ => None,
        })
        .collect();
    assert_eq!(verified, [1, 2, 3], "{output}");
    assert!(events.iter().any(|event| matches!(event, Event::PrOpened { .. })), "{output}");
    assert_eq!(fixture.calls().len(), 6);
    let (cost, _) = agent.bill(&used);
    assert_eq!(fixture.charged(), cost.0, "{output}");
    // Each session is fresh: its first request has nothing of the session before.
    let firsts: Vec<FakeModelRequest> = fixture.calls().into_iter().step_by(2).collect();
    for first in &firsts {
        assert!(!String::from_utf8_lossy(&first.body).contains("is done."), "a session remembers");
    }
}

#[test]
fn claude_does_three_boxes() {
    check_three_boxes(CLAUDE, API_KEY);
}

#[test]
fn codex_does_three_boxes() {
    check_three_boxes(CODEX, PROJECT_KEY);
}

/// The provider fails in the first session, the run recovers, and no iteration is used up.
#[track_caller]
fn check_provider_recovery(agent: RealAgent, key: LentKey, trouble: ScriptedTurn, times: usize) -> Vec<Event> {
    let (turns, used) = three_steps(agent);
    let turns = std::iter::repeat_n(trouble, times).chain(turns).collect();
    let Some(fixture) = fixture(agent, key, turns) else { return Vec::new() };
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    let events = fixture.events();
    let iterations = events.iter().filter(|event| matches!(event, Event::IterationStarted { .. })).count();
    assert_eq!(iterations, 3, "{output}");
    let cut = events
        .iter()
        .filter(|event| matches!(event, Event::ActionFinished { outcome: ActionOutcome::Cut, .. }))
        .count();
    assert_eq!(cut, 1, "{output}");
    assert_eq!(fixture.charged(), agent.bill(&used).0.0, "refused calls cost nothing: {output}");
    events
}

fn rate_limit_turn() -> ScriptedTurn {
    ScriptedTurn::Error {
        status: 429,
        kind: "rate_limit_error".to_owned(),
        message: "slow down".to_owned(),
        headers: vec![("retry-after".to_owned(), "5".to_owned())],
    }
}

/// Checks that the run paused until the time that the provider named, and continued by itself.
#[track_caller]
fn assert_paused_for_quota(events: &[Event]) {
    if events.is_empty() {
        return;
    }
    let paused = events.iter().any(|event| matches!(event, Event::Paused { reason: RunStopReason::Quota { .. }, .. }));
    let resumed = events.iter().any(|event| matches!(event, Event::Resumed { .. }));
    assert!(paused && resumed, "{events:?}");
}

#[test]
fn claude_is_rate_limited() {
    // The agent itself retries twice.
    assert_paused_for_quota(&check_provider_recovery(CLAUDE, API_KEY, rate_limit_turn(), 3));
}

#[test]
fn codex_is_rate_limited() {
    assert_paused_for_quota(&check_provider_recovery(CODEX, PROJECT_KEY, rate_limit_turn(), 3));
}

#[test]
fn claude_meets_an_overloaded_provider() {
    check_provider_recovery(CLAUDE, API_KEY, ScriptedTurn::error(529, "overloaded_error", "Overloaded"), 3);
}

#[test]
fn codex_meets_an_overloaded_provider() {
    // The agent itself tries each request three times, and that three times.
    check_provider_recovery(CODEX, PROJECT_KEY, ScriptedTurn::error(503, "server_error", "overloaded"), 9);
}

/// The provider refuses the key: the run pauses with exit 4 and a next step, and continues when that was done.
#[track_caller]
fn check_unauthorised(agent: RealAgent, key: LentKey, times: usize) {
    let (turns, _) = three_steps(agent);
    let refused = ScriptedTurn::error(401, "authentication_error", "invalid x-api-key");
    let Some(fixture) = fixture(agent, key, std::iter::repeat_n(refused, times).chain(turns).collect()) else { return };
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 4, "{output}");
    assert!(output.stderr.contains(&format!("ralph secret set {}", key.variable)), "{output}");
    let output = fixture.ralph(&["resume", "@"]);
    assert_eq!(output.code, 0, "{output}");
    let events = fixture.events();
    assert_eq!(events.iter().filter(|event| matches!(event, Event::IterationStarted { .. })).count(), 3, "{output}");
}

#[test]
fn claude_is_unauthorised() {
    check_unauthorised(CLAUDE, API_KEY, 3);
}

#[test]
fn codex_is_unauthorised() {
    check_unauthorised(CODEX, PROJECT_KEY, 3);
}

/// A session that fails uses its iteration up and proves nothing; the next ones do the work.
#[track_caller]
fn check_bad_session(agent: RealAgent, key: LentKey, bad: Vec<ScriptedTurn>, config: &str, what: &str) {
    let (turns, _) = three_steps(agent);
    let Some(fixture) = fixture(agent, key, bad.into_iter().chain(turns).collect()) else { return };
    fixture.checkout.config("config.toml", config);
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    let events = fixture.events();
    let finished: Vec<(IterationOutcome, usize)> = events
        .iter()
        .filter_map(|event| match event {
            Event::IterationFinished { outcome, verified, .. } => Some((*outcome, verified.len())),
            _ => None,
        })
        .collect();
    assert_eq!(finished.first(), Some(&(IterationOutcome::ActionFailed, 0)), "{output}");
    assert_eq!(finished.last().map(|(_, verified)| *verified), Some(3), "{output}");
    let failed = |event: &Event| matches!(event, Event::ActionFinished { outcome: ActionOutcome::Failed, detail, .. } if detail.contains(what));
    assert!(events.iter().any(failed), "`{what}` is not reported: {output}");
}

const IDLE_CONFIG: &str = "[agent]\nidle_s = 6\n";
const SESSION_LIMIT_CONFIG: &str = "[agent]\nsession_s = 8\n";

fn hanging_turns() -> Vec<ScriptedTurn> {
    vec![ScriptedTurn::text("too late").slow(Duration::from_mins(30), Duration::ZERO)]
}

#[test]
fn claude_hangs() {
    check_bad_session(CLAUDE, API_KEY, hanging_turns(), IDLE_CONFIG, "said nothing for too long");
}

#[test]
fn codex_hangs() {
    check_bad_session(CODEX, PROJECT_KEY, hanging_turns(), SESSION_LIMIT_CONFIG, "came to no end in its time");
}

/// Returns the call that kills the agent that made it.
fn killing_turns(agent: RealAgent) -> Vec<ScriptedTurn> {
    let line = "kill -KILL $(cat /proc/$$/stat | cut -d ' ' -f 4)";
    let (name, input) = match agent.name {
        "claude" => ("Bash", json!({"command": line, "description": "an accident"})),
        _ => ("exec_command", json!({"cmd": line})),
    };
    vec![ScriptedTurn::tool(name, input)]
}

#[test]
fn claude_is_killed() {
    check_bad_session(CLAUDE, API_KEY, killing_turns(CLAUDE), "", "claude failed");
}

/// Writes a fake agent that prints a given script in the format of the real one, and returns its folder.
pub(crate) fn fake_agent(folder: &Path, script: &str) -> PathBuf {
    let folder = folder.join("programs/stand-in");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("claude");
    std::fs::write(&path, format!("#!/bin/sh\ncat > /dev/null\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub(crate) const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"all done"}"#;

/// Does everything that the task asks for.
pub(crate) const WORK: &str = "for w in one two three; do echo $w > $w.txt; done; git add *.txt; git commit -qm all; \
                               sed -i 's/- \\[ \\]/- [x]/' ralph_task.md";

/// The agent reports that it is done and does not exit: it is ended after a grace period, and its commits are kept and
/// proved.
#[test]
fn claims_done_and_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let programs = fake_agent(folder.path(), &format!("{WORK}\nprintf '%s\\n' '{RESULT}'\nsleep 600 & sleep 600"));
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    fixture.checkout.config("config.toml", "[agent]\ngrace_s = 1\n");
    let began = Instant::now();
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    assert!(began.elapsed() < Duration::from_mins(3), "{output}");
    assert!(output.stderr.contains("did not end, so it was ended"), "{output}");
    // Its output and claims are stored where the answer of a model would be.
    let reply = std::fs::read_to_string(fixture.folder().join("iterations/1/response.json")).unwrap();
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(
        (&reply["summary"], reply["claims"]["checkboxes_checked"].as_array().map(Vec::len)),
        (&json!("all done"), Some(3))
    );
}

/// The agent reports that it is done, exits with success, and has done nothing: the run does not count it as done.
#[test]
fn claims_done_without_work() {
    let folder = tempfile::tempdir().unwrap();
    let programs =
        fake_agent(folder.path(), &format!("sed -i 's/- \\[ \\]/- [x]/' ralph_task.md\nprintf '%s\\n' '{RESULT}'"));
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    let output = fixture.ralph(&["run", "--max-iterations", "2"]);
    assert_eq!(output.code, 3, "{output}");
    assert!(output.stderr.contains("without proof"), "{output}");
}

/// The agent crashes every time: the run detects that it goes in circles, reports it and pauses.
#[test]
fn agent_crashes_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let programs = fake_agent(folder.path(), "echo 'segmentation fault' >&2\nexit 139");
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 5, "{output}");
    assert!(output.stderr.contains("segmentation fault"), "{output}");
}

/// An untrusted certificate is not treated as an outage: the run pauses at once and reports why and what to do.
#[test]
fn its_provider_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let call = r#"curl -s -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages""#;
    // The agent would retry for ever.
    let programs = fake_agent(folder.path(), &format!("while :; do {call}; sleep 1; done"));
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    let stranger = fixture.runtime.block_on(FakeModelServer::builder().tls(&["localhost"]).start()).unwrap();
    let models = format!(
        "profiles:\n  default-cheap:\n    litellm_model: \"anthropic/claude-sonnet-4-5\"\n    \
         base_url: \"{}\"\n    api_key_env: {}\n",
        stranger.url(),
        API_KEY.variable
    );
    fixture.checkout.config("models.yaml", &models);
    let began = Instant::now();
    let output = fixture.ralph(&["run"]);
    assert!(began.elapsed() < Duration::from_mins(1), "{output}");
    assert!(output.code != 0 && output.stderr.contains("its certificate is not trusted"), "{output}");
    assert!(output.stderr.contains("add the authority that signed it"), "{output}");
    let paused = fixture.events().into_iter().find_map(|event| match event {
        Event::Paused { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(matches!(paused, Some(RunStopReason::Provider { .. })), "{paused:?}");
    assert_eq!(stranger.requests(), []);
}

/// A subscription token is sent only to Anthropic, whatever base URL the environment names.
#[test]
fn a_subscription_is_sent_only_to_its_provider() {
    let folder = tempfile::tempdir().unwrap();
    let programs = fake_agent(folder.path(), "exit 0");
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    fixture
        .checkout
        .config("models.yaml", "profiles:\n  default-cheap: {litellm_model: anthropic/claude-sonnet-4-5}\n");
    let token = ["sk-", "ant-oat01-nobodys-at-all"].concat();
    for (variable, base) in [
        ("CLAUDE_CODE_OAUTH_TOKEN", "https://api.z.ai/api/anthropic"),
        // It is recognized by its value, not by its name.
        ("ANTHROPIC_API_KEY", "https://api.z.ai/api/anthropic"),
    ] {
        let env = [("PATH", fixture.path.as_str()), (variable, &token), ("ANTHROPIC_BASE_URL", base)];
        let output = fixture.checkout.ralph_with(&env, &["run"]);
        assert_eq!(output.code, 4, "{output}");
        assert!(output.stderr.contains("a Claude subscription, which only Anthropic may see"), "{output}");
        assert!(output.stderr.contains("ralph secret set ANTHROPIC_AUTH_TOKEN"), "{output}");
        assert_eq!(fixture.checkout.runs(), Vec::<String>::new(), "a run was made");
    }
}

/// The agent's other changes to the task file are discarded, and its ticked boxes still count as claims.
#[test]
fn rewrites_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let work = "for w in one two three; do echo $w > $w.txt; done; git add *.txt; git commit -qm all; \
                sed -i 's/- \\[ \\]/- [x]/; s/test -f one.txt/true/' ralph_task.md";
    let programs = fake_agent(folder.path(), &format!("{work}\nprintf '%s\\n' '{RESULT}'"));
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stderr.contains("task_proposal.md"), "{output}");
}

/// A missing agent is reported before anything is created, with the command that installs it.
#[test]
fn is_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_with(folder.path(), CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    fixture.path = "/usr/bin:/bin".to_owned();
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("ralph agent install claude"), "{output}");
    assert_eq!(fixture.checkout.runs(), Vec::<String>::new(), "a run was made");
}

/// An agent whose protocol is not that of the profile's provider is refused before anything is created.
#[test]
fn agent_does_not_fit_provider() {
    let folder = tempfile::tempdir().unwrap();
    let programs = fake_agent(folder.path(), "exit 0");
    let fixture = fixture_with(&programs, CLAUDE, API_KEY, vec![ScriptedTurn::text("never asked")]);
    let output = fixture.ralph(&["run", "--agent", "codex"]);
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("codex") && output.stderr.contains("hint: "), "{output}");
    assert_eq!(fixture.calls().len(), 0, "{output}");
    let output = fixture.ralph(&["run", "--agent", "cluade"]);
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("did you mean `claude`?"), "{output}");
}

/// ralph is killed while a call of the agent is under way. The resumed run continues with a fresh session, and each
/// call is charged once: an answered call at its price, an unfinished one at its worst case.
#[test]
fn ralph_is_killed_in_the_middle_of_a_call() {
    let agent = CLAUDE;
    let (turns, used) = three_steps(agent);
    let look = ScriptedTurn::Tool {
        name: "Bash".to_owned(),
        input: json!({"command": "true", "description": "look around"}),
        usage: model_server::UsageReport::Reported(tokens(9)),
    };
    let begin = [look, ScriptedTurn::text("too late").slow(Duration::from_mins(30), Duration::ZERO)];
    let Some(fixture) = fixture(agent, API_KEY, begin.into_iter().chain(turns).collect()) else { return };
    let mut command = fixture.checkout.command(&["run"]);
    command.envs([("PATH", fixture.path.as_str()), (fixture.key.variable, fixture.key.value)]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(3);
    while fixture.calls().len() < 2 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "there was no second call");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = fixture.ralph(&["resume", "@"]);
    assert_eq!(output.code, 0, "{output}");
    // The agent's output until then is kept, beside that of the next session.
    let first = fixture.folder().join("iterations/1");
    let session_log = std::fs::read_to_string(first.join("session-interrupted-1.jsonl")).unwrap();
    assert!(session_log.contains("look around") && !session_log.contains("too late"), "{session_log}");
    assert!(first.join("session.jsonl").exists() && !first.join("session.part").exists(), "{output}");
    let charged: Vec<(Option<u16>, u64)> = fixture
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::ModelCalled { answer: ModelCallOutcome::Through { status, .. }, cost, .. } => {
                Some((*status, cost.0))
            }
            _ => None,
        })
        .collect();
    assert_eq!(charged.len(), fixture.calls().len(), "{charged:?} {output}");
    let lost: Vec<u64> = charged.iter().filter(|(status, _)| status.is_none()).map(|(_, cost)| *cost).collect();
    assert!(matches!(lost.as_slice(), [worst] if *worst > 0), "{charged:?} {output}");
    let known: Vec<BilledTokens> = std::iter::once(tokens(9)).chain(used).collect();
    assert_eq!(fixture.charged() - lost[0], agent.bill(&known).0.0, "{charged:?} {output}");
}

/// The first call leaves too little for a second: the run ends as spent, with exit 3 and the command to add budget.
#[track_caller]
fn check_budget_spent(agent: RealAgent, key: LentKey, first: BilledTokens) {
    let [work, _] = step(agent, 0, first);
    let Some(fixture) = fixture(agent, key, vec![work, ScriptedTurn::text("never asked")]) else { return };
    let output = fixture.ralph(&["run", "--max-cost", "0.50"]);
    assert_eq!(output.code, 3, "{output}");
    assert!(output.stderr.contains("--add-cost"), "{output}");
    assert_eq!(fixture.calls().len(), 1, "{output}");
    assert_eq!(fixture.charged(), agent.bill(&[first]).0.0, "{output}");
    // The work until then is still proved and handed over.
    let verified = |event: &Event| matches!(event, Event::IterationFinished { verified, .. } if verified.len() == 1);
    assert!(fixture.events().iter().any(verified), "{output}");
}

#[test]
fn claude_spends_all() {
    check_budget_spent(CLAUDE, API_KEY, BilledTokens { input: 30_000, output: 26_000, ..BilledTokens::default() });
}

#[test]
fn codex_spends_all() {
    check_budget_spent(CODEX, PROJECT_KEY, BilledTokens { input: 14_000, output: 48_000, ..BilledTokens::default() });
}
