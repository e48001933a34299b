//! Whole runs by the real `claude` and `codex`, in a cage, against a scripted model: session after session to a proved
//! pull request, and every way a session can go wrong. None of those ends as done.

use std::path::PathBuf;

use ralph_core::event::{Answer, Event, Line};
use ralph_testkit::llm::{self, Received, Script, Server, Tokens, Turn};
use serde_json::json;

use crate::agents::{API_KEY, Agent, CLAUDE, CODEX, Key, PROJECT_KEY};
use crate::stage::{Said, Stage};

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

/// A repository with a task for an agent, and a server with what its model says.
struct World {
    stage: Stage,
    server: Server,
    agent: Agent,
    key: Key,
    path: String,
    _runtime: tokio::runtime::Runtime,
}

/// `None`, told loudly, where the real program is not there.
fn world(agent: Agent, key: Key, turns: Vec<Turn>) -> Option<World> {
    let programs = agent.programs()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = Server::builder().script(Script::new(turns)).expect_key(key.value);
    let server = runtime.block_on(builder.start()).unwrap();
    let stage = Stage::new();
    stage.repo.write("tests/all.sh", "test -f one.txt && test -f two.txt && test -f three.txt\n");
    stage.repo.write("ralph_task.md", &TASK.replace("AGENT", agent.name));
    stage.repo.commit("a task");
    let version = if agent.model.0 == "openai" { "/v1" } else { "" };
    let ((provider, model), url, variable) = (agent.model, server.url(), key.variable);
    stage.config(
        "models.yaml",
        &format!(
            "profiles:\n  default-cheap:\n    litellm_model: \"{provider}/{model}\"\n    \
             base_url: \"{url}{version}\"\n    api_key_env: {variable}\n"
        ),
    );
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    Some(World { stage, server, agent, key, path, _runtime: runtime })
}

impl World {
    fn ralph(&self, args: &[&str]) -> Said {
        self.stage.ralph_with(&[("PATH", &self.path), (self.key.variable, self.key.value)], args)
    }

    fn events(&self) -> Vec<Event> {
        let id = self.stage.runs().pop().expect("a run");
        let path: PathBuf = self.stage.state().join("runs").join(id).join("events.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| Line::parse(line).unwrap().event).collect()
    }

    fn calls(&self) -> Vec<Received> {
        let calls = |one: &Received| one.method == "POST" && one.path == self.agent.path;
        self.server.requests().into_iter().filter(calls).collect()
    }

    /// What the events say was paid for each call that was answered.
    fn paid(&self) -> u64 {
        self.events()
            .iter()
            .map(|event| match event {
                Event::ModelCalled { answer: Answer::Through { .. }, cost, .. } => cost.0,
                _ => 0,
            })
            .sum()
    }
}

/// What a model says in one session: a step is done and claimed, then it stops.
fn step(agent: Agent, n: usize, usage: Tokens) -> [Turn; 2] {
    let word = ["one", "two", "three"][n];
    let id = n + 1;
    let line = format!(
        "echo {word} > {word}.txt && git add {word}.txt && git commit -qm 'add {word}' && \
         sed -i 's/- \\[ \\] M1.{id}/- [x] M1.{id}/' ralph_task.md"
    );
    let usage = llm::Usage::Said(usage);
    let (name, input) = match agent.name {
        "claude" => ("Bash", json!({"command": line, "description": "one step"})),
        _ => ("exec_command", json!({"cmd": line})),
    };
    [Turn::Tool { name: name.to_owned(), input, usage }, Turn::Text { text: format!("M1.{id} is done."), usage }]
}

fn tokens(n: u64) -> Tokens {
    Tokens { input: 1_003 + n, cached: 111 * n, output: 41 + 7 * n, ..Tokens::default() }
}

fn three_steps(agent: Agent) -> (Vec<Turn>, Vec<Tokens>) {
    let used: Vec<Tokens> = (0..3).map(tokens).collect();
    let turns = (0..3).flat_map(|n| step(agent, n, used[n])).collect();
    (turns, used.into_iter().flat_map(|one| [one, one]).collect())
}

/// Three boxes, three sessions, one proved pull request, and a bill that is the server's.
#[track_caller]
fn works(agent: Agent, key: Key) {
    let (turns, used) = three_steps(agent);
    let Some(world) = world(agent, key, turns) else { return };
    let said = world.ralph(&["run"]);
    assert_eq!(said.code, 0, "{said}");
    let events = world.events();
    let sessions =
        events.iter().filter(|event| matches!(event, Event::ActionStarted { kind, .. } if kind == "session"));
    assert_eq!(sessions.count(), 3, "{said}");
    let verified: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            Event::IterationFinished { verified, .. } => Some(verified.len()),
            _ => None,
        })
        .collect();
    assert_eq!(verified, [1, 2, 3], "{said}");
    assert!(events.iter().any(|event| matches!(event, Event::PrOpened { .. })), "{said}");
    assert_eq!(world.calls().len(), 6);
    let (cost, _) = agent.bill(&used);
    assert_eq!(world.paid(), cost.0, "{said}");
    // Each session is a fresh one: nothing of the one before it is in what it sends first.
    let firsts: Vec<Received> = world.calls().into_iter().step_by(2).collect();
    for first in &firsts {
        assert!(!String::from_utf8_lossy(&first.body).contains("is done."), "a session remembers");
    }
}

#[test]
fn claude_does_three_boxes() {
    works(CLAUDE, API_KEY);
}

#[test]
fn codex_does_three_boxes() {
    works(CODEX, PROJECT_KEY);
}
