//! Tests the real `claude` and `codex`, each in a cage with nothing but a granted model, against a scripted server.
//! They work as they do outside; the server sees the real key and ralph's bill equals the server's; and the test
//! searches for the key in everything the cage has: environments, files, memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ralph_core::money::MicroUsd;
use ralph_core::price::{PriceTable, TokenUsage};
use ralph_testkit::home::TestHome;
use ralph_testkit::model_server::{
    self, BilledTokens, FakeModelRequest, FakeModelScript, FakeModelServer, ScriptedTurn,
};
use serde_json::{Value, json};

use crate::secret_search::{SandboxExecProcess, SecretPattern, report_not_run};

/// The file that the agents are asked to create.
const CONTENT: &str = "written in a cage\n";

/// An agent's program and its protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealAgent {
    pub(crate) name: &'static str,
    /// The package with the native program, and the folder in it that is copied in.
    package: &'static str,
    folder: &'static str,
    pub(crate) model: (&'static str, &'static str),
    /// The path of the server's model calls.
    pub(crate) path: &'static str,
    /// The shell line that starts it with a prompt, inside.
    line: &'static str,
}

pub(crate) const CLAUDE: RealAgent = RealAgent {
    name: "claude",
    package: "@anthropic-ai/claude-code",
    folder: "",
    model: ("anthropic", "claude-sonnet-4-5"),
    path: "/v1/messages",
    line: "./claude -p 'make the file' --output-format stream-json --verbose --dangerously-skip-permissions",
};

pub(crate) const CODEX: RealAgent = RealAgent {
    name: "codex",
    package: "@openai/codex",
    folder: "bin",
    model: ("openai", "gpt-5"),
    path: "/v1/responses",
    line: "./codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
           -c model=\\\"$OPENAI_MODEL\\\" -c model_provider='\"lent\"' -c model_providers.lent.name='\"lent\"' \
           -c model_providers.lent.base_url=\\\"$OPENAI_BASE_URL\\\" \
           -c model_providers.lent.env_key='\"OPENAI_API_KEY\"' -c model_providers.lent.wire_api='\"responses\"' \
           'make the file'",
};

impl RealAgent {
    /// Returns the folder of the native program; `None`, with a report, where it was not fetched.
    pub(crate) fn programs(&self) -> Option<PathBuf> {
        let modules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/npm/node_modules");
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let package = modules.join(format!("{}-linux-{arch}", self.package));
        let vendor = std::fs::read_dir(package.join("vendor")).into_iter().flatten().flatten().next();
        let folder = vendor.map_or(package, |triple| triple.path()).join(self.folder);
        if folder.join(self.name).is_file() {
            return Some(folder);
        }
        report_not_run(&format!(
            "the real `{}` was not tried: it is not in target/peers; run `cargo xtask test`",
            self.name
        ));
        None
    }

    /// Returns the tool call that writes a file, and the one that runs a command.
    fn tools(&self) -> [(&'static str, Value); 2] {
        let run = "wc -c < made.txt > counted.txt";
        match self.name {
            "claude" => [
                ("Write", json!({"file_path": "/workspace/made.txt", "content": CONTENT})),
                ("Bash", json!({"command": run, "description": "count"})),
            ],
            _ => [
                ("exec_command", json!({"cmd": format!("printf '%s' '{CONTENT}' > made.txt")})),
                ("exec_command", json!({"cmd": run})),
            ],
        }
    }

    /// Returns what these calls cost, each rounded as it is charged, and their tokens.
    pub(crate) fn bill(&self, calls: &[BilledTokens]) -> (MicroUsd, u64) {
        let price = PriceTable::shipped().lookup(self.model.0, self.model.1).unwrap();
        let mut bill = (MicroUsd(0), 0);
        for tokens in calls {
            let usage = TokenUsage {
                input: tokens.input,
                cached_input: tokens.cached,
                cache_write: tokens.cache_write,
                cache_write_long: tokens.cache_write_long,
                output: tokens.output,
                reasoning: tokens.reasoning,
            };
            bill = (MicroUsd(bill.0.0 + price.cost(&usage).0), bill.1 + usage.total());
        }
        bill
    }
}

/// A key that is granted, and how it has to arrive at the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LentKey {
    pub(crate) variable: &'static str,
    pub(crate) value: &'static str,
    /// The part that no phantom has.
    own: &'static str,
    header: (&'static str, &'static str),
}

pub(crate) const API_KEY: LentKey = LentKey {
    variable: "ANTHROPIC_API_KEY",
    value: "sk-ant-api03-w7Tq2Zx9LmB4vKc8RfY1sHd6NpJ3gUa5EoXiQyWtCzVbMnKjHgFdSaPoIuYtReWqLkJh-QwErTyUiAA",
    own: "w7Tq2Zx9LmB4vKc8RfY1sHd6NpJ3gUa5EoXiQyWtCzVbMnKjHgFdSaPoIuYtReWqLkJh-QwErTyUiAA",
    header: ("x-api-key", ""),
};

const SUBSCRIPTION: LentKey = LentKey {
    variable: "CLAUDE_CODE_OAUTH_TOKEN",
    value: "sk-ant-oat01-k3Vn8Bq1XzL6wMd9TgP4yRs7HcJ2fEu5AoViNyKtQzWbMlGjCxZsDaQeUrYiOpLkHj-MnBvCxZaSDAA",
    own: "k3Vn8Bq1XzL6wMd9TgP4yRs7HcJ2fEu5AoViNyKtQzWbMlGjCxZsDaQeUrYiOpLkHj-MnBvCxZaSDAA",
    header: ("authorization", "Bearer "),
};

pub(crate) const PROJECT_KEY: LentKey = LentKey {
    variable: "OPENAI_API_KEY",
    value: "sk-proj-h5Yt2Rw8QpN4mKx7LcZ1vBg6JdF3sTa9EuHiXoWyMzCnVbLkPqRsTuVwXyZaBcDeFgHiJkLmNoPqRsTuVwX",
    own: "h5Yt2Rw8QpN4mKx7LcZ1vBg6JdF3sTa9EuHiXoWyMzCnVbLkPqRsTuVwXyZaBcDeFgHiJkLmNoPqRsTuVwX",
    header: ("authorization", "Bearer "),
};

/// How the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerTransport {
    Plain,
    Tls,
}

/// A server with its script, a home that is configured for it, and its runtime.
struct AgentKeyFixture {
    home: TestHome,
    server: FakeModelServer,
    env: Vec<(&'static str, String)>,
    _runtime: tokio::runtime::Runtime,
}

fn fixture(agent: RealAgent, key: LentKey, over: ServerTransport, turns: Vec<ScriptedTurn>) -> AgentKeyFixture {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut builder = FakeModelServer::builder().script(FakeModelScript::new(turns)).expect_key(key.value);
    if over == ServerTransport::Tls {
        builder = builder.tls(&["localhost"]);
    }
    let server = runtime.block_on(builder.start()).unwrap();
    let home = TestHome::new();
    let version = if agent.model.0 == "openai" { "/v1" } else { "" };
    let (provider, model) = agent.model;
    let url = server.url();
    let variable = key.variable;
    home.config(
        "models.yaml",
        &format!(
            "profiles:\n  real:\n    litellm_model: \"{provider}/{model}\"\n    base_url: \"{url}{version}\"\n    \
             api_key_env: {variable}\n"
        ),
    );
    let mut env = vec![(key.variable, key.value.to_owned())];
    if over == ServerTransport::Tls {
        let file = home.root().join("authority.pem");
        std::fs::write(&file, server.ca_pem()).unwrap();
        env.push(("SSL_CERT_FILE", file.display().to_string()));
    }
    AgentKeyFixture { home, server, env, _runtime: runtime }
}

impl AgentKeyFixture {
    fn start(&self, programs: &std::path::Path, cap: &str, line: &str) -> SandboxExecProcess {
        let args = ["--profile", "real", "--max-cost", cap, "--copy", programs.to_str().unwrap()];
        SandboxExecProcess::start(&self.home, &self.env, &args, line)
    }

    /// Returns the model calls, without other requests.
    fn calls(&self, agent: RealAgent) -> Vec<FakeModelRequest> {
        let calls = |one: &FakeModelRequest| one.method == "POST" && one.path == agent.path;
        self.server.requests().into_iter().filter(calls).collect()
    }
}

fn tokens(n: u64) -> BilledTokens {
    // Odd numbers, so that rounding errors show.
    BilledTokens { input: 1_001 + n, cached: 333 * n, output: 77 + 13 * n, ..BilledTokens::default() }
}

/// Runs a task with two tool calls and a slow last answer: it is done and billed, and the key is nowhere.
#[track_caller]
fn check_key_isolated(agent: RealAgent, key: LentKey, over: ServerTransport) {
    let Some(programs) = agent.programs() else { return };
    let output: Vec<BilledTokens> = (0..3).map(tokens).collect();
    let usage = |n: usize| model_server::UsageReport::Reported(output[n]);
    let [(write, content), (run, command)] = agent.tools();
    let slow = Duration::from_secs(10);
    let turns = vec![
        ScriptedTurn::Tool { name: write.to_owned(), input: content, usage: usage(0) },
        ScriptedTurn::Tool { name: run.to_owned(), input: command, usage: usage(1) },
        ScriptedTurn::Text { text: "It is made.".to_owned(), usage: usage(2) }.slow(slow, Duration::ZERO),
    ];
    let fixture = fixture(agent, key, over, turns);
    let (line, variable) = (agent.line, key.variable);
    let line = format!("printf %s \"${variable}\" > stand-in.txt; {line} < /dev/null; cat made.txt counted.txt");
    let mut cell = fixture.start(&programs, "5", &line);
    let phantom = cell.await_file("stand-in.txt");
    assert_ne!(phantom, key.value);
    let (needle, there) = (SecretPattern::new(key.own), SecretPattern::new(&phantom));

    // While the agent waits for the last answer, all its processes and files exist and can be searched.
    cell.wait_until("the last call", || fixture.calls(agent).len() == 3);
    cell.search_memory(&needle, &there, agent.name);

    // The sandbox is kept until its files were searched; the search finds what the agent wrote, in its work and its
    // logs.
    cell.await_end();
    assert_eq!(cell.search_files(&needle), Vec::<String>::new(), "the key is in a file");
    let wrote = cell.search_files(&SecretPattern::new(CONTENT.trim()));
    for place in ["/workspace/made.txt", "/home/"] {
        assert!(wrote.iter().any(|path| path.contains(place)), "nothing in {place}: {wrote:?}");
    }
    cell.search_memory(&needle, &there, "sh");
    let ended = cell.release();

    assert_eq!(ended.code, Some(0), "{ended:?}");
    let counted = CONTENT.len();
    assert!(ended.stdout.ends_with(&format!("{CONTENT}{counted}\n")), "{ended:?}");
    let (cost, tokens) = agent.bill(&output);
    let line = format!("calls cost {cost} of $5.00, {tokens} tokens");
    assert!(ended.stderr.contains(&line), "{line} is not in {}", ended.stderr);
    for (place, text) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
        assert!(!text.contains(key.own), "the key is in {place}: {text}");
    }
    assert_real_key_sent(&fixture, agent, key, &phantom);
    let mut left = Vec::new();
    needle.search_folder(&fixture.home.root(), &mut left);
    assert_eq!(left, Vec::<String>::new(), "the key is in what ralph left");
}

/// Checks that every call had the real key in the right place, and that none had the phantom.
#[track_caller]
fn assert_real_key_sent(fixture: &AgentKeyFixture, agent: RealAgent, key: LentKey, phantom: &str) {
    let calls = fixture.calls(agent);
    assert_eq!(calls.len(), 3, "{calls:?}");
    let (header, scheme) = key.header;
    let want = format!("{scheme}{}", key.value);
    for call in &calls {
        assert_eq!(call.header(header), Some(want.as_str()));
        // One agent sends its own output limit; the other gets that of its profile.
        let body = call.json();
        if agent.name == "claude" {
            assert!(body["max_tokens"].as_u64().is_some_and(|most| most > 2048), "{}", body["max_tokens"]);
        } else {
            assert_eq!(body["max_output_tokens"], 2048);
        }
        let subscription = key.variable == SUBSCRIPTION.variable;
        let beta = call.header("anthropic-beta").unwrap_or_default();
        assert!(!subscription || beta.contains("oauth-2025-04-20"), "{beta}");
    }
    for one in fixture.server.requests() {
        let text = format!("{} {:?} {:?} {}", one.path, one.query, one.headers, String::from_utf8_lossy(&one.body));
        assert!(!text.contains(phantom), "the phantom was sent: {text}");
    }
}

#[test]
fn claude_with_a_key() {
    check_key_isolated(CLAUDE, API_KEY, ServerTransport::Tls);
}

#[test]
fn claude_with_a_subscription() {
    check_key_isolated(CLAUDE, SUBSCRIPTION, ServerTransport::Plain);
}

#[test]
fn codex_with_a_key() {
    check_key_isolated(CODEX, PROJECT_KEY, ServerTransport::Tls);
}

#[test]
fn codex_without_tls() {
    check_key_isolated(CODEX, PROJECT_KEY, ServerTransport::Plain);
}

/// The first call leaves too little for a second one: the agent gets its provider's error for that, and ends.
#[track_caller]
fn check_budget_stop(agent: RealAgent, key: LentKey, cap: &str, first: BilledTokens) {
    let Some(programs) = agent.programs() else { return };
    let [(write, content), _] = agent.tools();
    let turns = vec![
        ScriptedTurn::Tool {
            name: write.to_owned(),
            input: content,
            usage: model_server::UsageReport::Reported(first),
        },
        ScriptedTurn::text("There was enough for this."),
    ];
    let fixture = fixture(agent, key, ServerTransport::Plain, turns);
    let mut cell = fixture.start(&programs, cap, &format!("{} < /dev/null", agent.line));
    cell.wait_until("the first call", || !fixture.calls(agent).is_empty());
    let since = Instant::now();
    cell.await_end();
    let took = since.elapsed();
    let ended = cell.release();
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("ralph: budget spent"), "{ended:?}");
    assert!(!ended.stdout.contains("api_retry") && !ended.stdout.contains("econnecting"), "{ended:?}");
    // Ten retries with pauses between them would take more than a minute.
    assert!(took < Duration::from_secs(30), "{took:?} {ended:?}");
    assert_eq!(fixture.calls(agent).len(), 1);
    let (cost, tokens) = agent.bill(&[first]);
    assert!(ended.stderr.contains(&format!("calls cost {cost} of ${cap}, {tokens} tokens")), "{ended:?}");
}

#[test]
fn claude_without_money() {
    check_budget_stop(
        CLAUDE,
        API_KEY,
        "0.50",
        BilledTokens { input: 30_000, output: 26_000, ..BilledTokens::default() },
    );
}

#[test]
fn codex_without_money() {
    check_budget_stop(
        CODEX,
        PROJECT_KEY,
        "0.50",
        BilledTokens { input: 14_000, output: 48_000, ..BilledTokens::default() },
    );
}
