//! Tests `ralph agent`, and the catalogue's command lines with the real programs in a cage.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use ralph_core::agent::{self, AgentSessionEnd, AgentSessionParams, SessionOutcome, classify_session_end};
use ralph_core::profile::ProviderProtocol;
use ralph_testkit::home::TestHome;
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use serde_json::{Value, json};

use crate::package_registries::{RegistryFixture, npm};
use crate::secret_search::{SandboxExecProcess, report_not_run};

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn ralph(home: &TestHome, args: &[&str]) -> (Option<i32>, String) {
    let out = home.command(env!("CARGO_BIN_EXE_ralph")).args(args).output().unwrap();
    (out.status.code(), text(&out))
}

#[test]
fn agents_are_listed() {
    let home = TestHome::new();
    // A program of the user's own, alone in its folder.
    let bin = home.root().join("own bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("goose"), b"\x7fELF").unwrap();
    fs::set_permissions(bin.join("goose"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::join_paths([bin.clone(), "/usr/bin".into(), "/bin".into()]).unwrap();
    let run = |args: &[&str]| {
        let out = home.command(env!("CARGO_BIN_EXE_ralph")).args(args).env("PATH", &path).output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (table, remarks) = run(&["agent", "ls"]);
    for agent in agent::all() {
        assert!(table.lines().any(|line| line.starts_with(agent.name())), "{table}");
    }
    assert!(table.contains("goose     path"), "{table}");
    assert!(remarks.contains("base-url: holds a phantom"), "{remarks}");
    assert!(remarks.contains("next: ralph agent install claude"), "{remarks}");
    let (all, _) = run(&["agent", "ls", "--json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let row = |name: &str| all["agents"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    let goose = row("goose");
    assert_eq!(goose["found"]["from"], "path", "{goose}");
    assert_eq!(goose["found"]["inside"], "/opt/ralph/agents/goose/goose", "{goose}");
    assert_eq!(row("codex")["wires"], json!(["responses"]));
    assert_eq!(row("cursor")["guarantee"]["name"], "one-shot-secret");
    assert_eq!(row("claude")["found"], Value::Null);
}

#[test]
fn install_errors() {
    let home = TestHome::new();
    for (args, want) in [
        (&["agent", "install", "codx"] as &[&str], ["there is no agent `codx`", "did you mean `codex`?"]),
        (&["agent", "install", "cursor"], ["`cursor` cannot be fetched by ralph", "cursor.com/cli"]),
        (
            &["agent", "install", "codex", "--version", "../1"],
            ["`../1` is not the version of a package", "--version 1.2.3"],
        ),
    ] {
        let (code, output) = ralph(&home, args);
        assert_eq!(code, Some(2), "{output}");
        assert!(want.iter().all(|want| output.contains(want)), "{output}");
    }
    assert!(!home.state().join("agents/codex").exists());
}

/// Installs the real package from the registry, through a cage, into the agent store.
#[test]
fn codex_is_fetched() {
    let Some(machine) = RegistryFixture::detect(npm()) else { return };
    let home = TestHome::new();
    let run = |args: &[&str]| {
        let mut command = machine.ralph();
        let hermetic = home.command("true");
        command.env_clear().envs(hermetic.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(args).output().unwrap()
    };
    let mut args = vec!["agent", "install", "codex", "--version", "0.166.0"];
    for rule in machine.rules() {
        args.extend(["--allow-host", rule]);
    }
    let out = run(&args);
    assert!(out.status.success(), "{}", text(&out));
    assert!(text(&out).contains("codex 0.166.0 is installed"), "{}", text(&out));
    let listed = run(&["agent", "ls", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let found = &listed["agents"][1]["found"];
    assert_eq!((&found["from"], &found["version"]), (&json!("shelf"), &json!("0.166.0")), "{listed}");
    let program = PathBuf::from(found["program"].as_str().unwrap());
    assert!(program.starts_with(home.state().join("agents/codex/0.166.0")) && program.is_file());
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o555);
    // Nothing else is left over: no partial download, no cage.
    let mut names: Vec<_> =
        fs::read_dir(home.state().join("agents/codex")).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", "0.166.0"]);
    let boxes = run(&["sandbox", "ls", "--json"]);
    assert!(!text(&boxes).contains("agent-"), "{}", text(&boxes));
    // A version that does not exist leaves the installed one unchanged.
    let mut args = args.clone();
    args[4] = "0.0.0-none";
    let out = run(&args);
    assert!(!out.status.success() && text(&out).contains("could not be fetched"), "{}", text(&out));
    assert!(program.is_file());
}

/// Returns the path of a package's native program; `None`, with a report, where it was not fetched.
fn native_program(agent: &str) -> Option<PathBuf> {
    let modules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/npm/node_modules");
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let known = agent::by_name(agent).unwrap();
    let pattern = known.native_program().unwrap().replace("{arch}", arch);
    let place = match pattern.split_once("/*/") {
        None => modules.join(pattern),
        Some((before, after)) => {
            let first = fs::read_dir(modules.join(before)).into_iter().flatten().flatten().next();
            first.map(|entry| entry.path().join(after)).unwrap_or_default()
        }
    };
    if place.is_file() {
        return Some(place);
    }
    report_not_run(&format!("the real `{agent}` was not tried: it is not in target/peers; run `cargo xtask test`"));
    None
}

/// Starts an agent in a cage exactly as the catalogue says, with a prompt too long for a command-line argument.
#[track_caller]
fn check_catalogue_agent(name: &str, wire: ProviderProtocol, profile: &str, key: (&str, &str), tool: (&str, Value)) {
    let Some(program) = native_program(name) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let turns = vec![ScriptedTurn::tool(tool.0, tool.1), ScriptedTurn::text("It is made.")];
    let server = runtime
        .block_on(FakeModelServer::builder().script(FakeModelScript::new(turns)).expect_key(key.1).start())
        .unwrap();
    let home = TestHome::new();
    let version = if wire == ProviderProtocol::Anthropic { "" } else { "/v1" };
    let (url, variable) = (server.url(), key.0);
    let models = format!(
        "profiles:\n  real:\n    litellm_model: \"{profile}\"\n    base_url: \"{url}{version}\"\n    api_key_env: {variable}\n"
    );
    home.config("models.yaml", &models);
    let prompt = format!("make the file\n{}", "and nothing else ".repeat(16 << 10));
    let agent = agent::by_name(name).unwrap();
    let start = agent.invocation(&AgentSessionParams {
        program: &format!("./{name}"),
        prompt: &prompt,
        prompt_file: "/workspace/prompt.md",
        folder: "/workspace/private",
        model: profile.split_once('/').unwrap().1,
        base_url: &format!("http://127.0.0.1:3128/r/real{version}"),
        key: "STAND-IN",
        key_variable: variable,
        wire,
    });
    // Files and prompt are copied in with the program; the phantom is only known inside.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("private")).unwrap();
    for (path, text) in &start.files {
        fs::write(folder.path().join("private").join(path), text).unwrap();
    }
    fs::write(folder.path().join("prompt.md"), start.stdin.as_ref().unwrap()).unwrap();
    fs::copy(&program, folder.path().join(name)).unwrap();
    let mut line = String::new();
    for (name, value) in &start.env {
        let value = if value == "STAND-IN" { format!("\"${variable}\"") } else { format!("'{value}'") };
        writeln!(line, "export {name}={value}").unwrap();
    }
    let words: Vec<String> = start.argv.iter().map(|word| format!("'{word}'")).collect();
    writeln!(line, "{} < prompt.md; echo \"ended $?\"; cat made.txt", words.join(" ")).unwrap();
    let args = ["--profile", "real", "--max-cost", "5", "--copy", folder.path().to_str().unwrap()];
    let mut cell = SandboxExecProcess::start(&home, &[(key.0, key.1.to_owned())], &args, &line);
    cell.wait_until("the last call", || server.hits() >= 2);
    cell.await_end();
    let ended = cell.release();
    assert!(ended.stdout.ends_with("ended 0\nmade in a cage\n"), "{ended:?}");
    let mut reader = agent.reader();
    for line in ended.stdout.lines() {
        reader.read_line(line);
    }
    assert_eq!(reader.last_text(), "It is made.", "{ended:?}");
    let finished = reader.session_result().unwrap();
    let ended = AgentSessionEnd {
        code: Some(0),
        missing: false,
        idle: false,
        timed_out: false,
        result: Some(finished),
        stderr: &ended.stderr,
        calls: &[],
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    assert_eq!(classify_session_end(&ended), SessionOutcome::Done);
    let calls: Vec<_> = server.requests().into_iter().filter(|one| one.method == "POST").collect();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| String::from_utf8_lossy(&call.body).contains("and nothing else and nothing else")));
}

#[test]
fn claude_as_the_catalogue_starts_it() {
    let key = (
        "ANTHROPIC_API_KEY",
        "sk-ant-api03-p4Xq7Lm2Vb9Tz5Kc1RfY8sHd3NpJ6gUa0EoXiQyWtCzVbMnKjHgFdSaPoIuYtReWqLkJh-QwErTyUiAA",
    );
    let tool = ("Bash", json!({"command": "echo made in a cage > made.txt", "description": "make"}));
    check_catalogue_agent("claude", ProviderProtocol::Anthropic, "anthropic/claude-sonnet-4-5", key, tool);
}

#[test]
fn codex_as_the_catalogue_starts_it() {
    let key = (
        "OPENAI_API_KEY",
        "sk-proj-m2Yt9Rw4QpN7mKx1LcZ8vBg3JdF6sTa5EuHiXoWyMzCnVbLkPqRsTuVwXyZaBcDeFgHiJkLmNoPqRsTuVwX",
    );
    let tool = ("exec_command", json!({"cmd": "echo made in a cage > made.txt"}));
    check_catalogue_agent("codex", ProviderProtocol::Responses, "openai/gpt-5", key, tool);
}
