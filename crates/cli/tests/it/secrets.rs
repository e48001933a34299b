//! Tests `ralph secret` as users and scripts run it: against a server on the loopback, with a keyring that is a
//! program.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ralph_testkit::model_server::ModelBehaviour;
use serde_json::Value;

use crate::repo_fixture::{CliOutput, RepoFixture};
use crate::secret_search::report_not_run;

/// A server that records the heads of requests, in lower case.
struct KeyCheckServer {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl KeyCheckServer {
    /// Creates a server that answers every request alike.
    fn answering(status: &'static str) -> Self {
        Self::start(move |_| status)
    }

    /// Creates a server that accepts requests with a key.
    fn accepting(key: &str) -> Self {
        let key = key.to_lowercase();
        Self::start(move |head| if head.contains(&key) { "200 OK" } else { "401 Unauthorized" })
    }

    fn start(status: impl Fn(&str) -> &'static str + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded = heads.clone();
        // The thread ends with the test's process; no test sends more than a few requests.
        std::thread::spawn(move || {
            for connection in listener.incoming().take(50) {
                let head = serve(connection.unwrap(), &status);
                recorded.lock().unwrap().push(head);
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(mut connection: TcpStream, status: impl Fn(&str) -> &'static str) -> String {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < 64 << 10 {
        match connection.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(read) => head.extend_from_slice(&piece[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let status = status(&head);
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
    // A client that has disconnected needs no answer.
    let _ = connection.write_all(answer.as_bytes());
    head
}

fn with_input(fixture: &RepoFixture, env: &[(&str, &str)], args: &[&str], input: &str) -> CliOutput {
    let mut command = fixture.command(args);
    command.envs(env.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    fixture.output_of(&child.wait_with_output().unwrap())
}

fn secret_file(fixture: &RepoFixture, name: &str) -> PathBuf {
    fixture.repo.home().join(".config/ralph/secrets").join(name)
}

/// Stores a value untried, in a file.
fn store_untried(fixture: &RepoFixture, name: &str, value: &str, more: &[&str]) -> CliOutput {
    let args = [&["secret", "set", name, "--no-validate", "--source", "file"], more].concat();
    let output = with_input(fixture, &[], &args, value);
    assert_eq!(output.code, 0, "{output}");
    output
}

/// Joins the parts of a value, which are split so that secret scanners find none in this repository.
fn join_parts(parts: &[&str]) -> String {
    parts.concat()
}

#[track_caller]
fn check_tried(name: &str, value: &str, base: &str, path: &str, want: &[&str], kind: &str) {
    let fixture = RepoFixture::new();
    let server = KeyCheckServer::accepting(value);
    let url = format!("{}{path}", server.url);
    let output = with_input(&fixture, &[(base, &url)], &["secret", "set", name], &format!("{value}\n"));
    assert_eq!(output.code, 0, "{output}");
    let host = server.url.trim_start_matches("http://");
    assert!(output.stderr.contains(&format!("`{name}` is stored: {kind}, file, accepted by {host}")), "{output}");
    assert_eq!(output.stdout, "");
    assert!(!output.stderr.contains(value), "{output}");
    let heads = server.heads();
    assert_eq!(heads.len(), 2, "one call with it, one without, and no more");
    let (first, second) = (heads[0].lines().next(), heads[1].lines().next());
    assert!(first == second && !heads[1].contains(&value.to_lowercase()), "{heads:?}");
    for line in want {
        let line = line.replace("VALUE", value).to_lowercase();
        assert!(heads[0].contains(&line), "no `{line}` in {}", heads[0]);
    }
    assert_eq!(fs::read_to_string(secret_file(&fixture, name)).unwrap(), format!("{value}\n"));
}

#[test]
fn each_kind_is_tried_its_own_way() {
    let oauth = join_parts(&["sk-", "ant-oat01-abcdefgh"]);
    let version = "anthropic-version: 2023-06-01";
    check_tried(
        "ANTHROPIC_API_KEY",
        &join_parts(&["sk-", "ant-api03-abcdefgh"]),
        "ANTHROPIC_BASE_URL",
        "",
        &["GET /v1/models HTTP", "x-api-key: VALUE\r\n", version],
        "api-key",
    );
    check_tried(
        "CLAUDE_CODE_OAUTH_TOKEN",
        &oauth,
        "ANTHROPIC_BASE_URL",
        "",
        &["GET /v1/models HTTP", "authorization: bearer VALUE\r\n", "anthropic-beta: oauth-2025-04-20", version],
        "oauth",
    );
    check_tried(
        "ANTHROPIC_AUTH_TOKEN",
        "gw-token",
        "ANTHROPIC_BASE_URL",
        "",
        &["authorization: bearer VALUE\r\n"],
        "gateway",
    );
    let bearer = &["GET /v4/models HTTP", "authorization: bearer VALUE\r\n"];
    check_tried("ZAI_API_KEY", "abcdefgh.1", "ZAI_API_BASE", "/v4", bearer, "api-key");
    let google = &["GET /v1beta/models HTTP", "x-goog-api-key: VALUE\r\n"];
    check_tried("GEMINI_API_KEY", "abcdefgh", "GEMINI_API_BASE", "/v1beta", google, "api-key");
    let github = &["GET /user HTTP", "authorization: bearer VALUE\r\n", "x-github-api-version: 2022-11-28"];
    check_tried("GITHUB_PAT", &join_parts(&["gh", "p_abcdefgh"]), "GITHUB_API_URL", "", github, "github-pat");
}

#[test]
fn keys_of_openrouter_are_looked_up() {
    let key = join_parts(&["sk-", "or-v1-abcdefgh"]);
    let wanted = &["GET /api/v1/key HTTP", "authorization: bearer VALUE\r\n"];
    check_tried("OPENROUTER_API_KEY", &key, "OPENROUTER_API_BASE", "/api/v1", wanted, "api-key");
}

/// If a server answers without a key too, its answer proves nothing about the key.
#[test]
fn an_open_server_proves_nothing() {
    let fixture = RepoFixture::new();
    let server = KeyCheckServer::answering("200 OK");
    let host = server.url.trim_start_matches("http://");
    let env = [("OPENAI_BASE_URL", server.url.as_str())];
    let output = with_input(&fixture, &env, &["secret", "set", "OPENAI_API_KEY"], "planted-value");
    assert_eq!(output.code, 0, "{output}");
    let message = format!(
        "`OPENAI_API_KEY` is stored: api-key, file, not tried: {host} has no free call that needs the key, no end known\n"
    );
    assert_eq!(output.stderr, message);
    assert!(secret_file(&fixture, "OPENAI_API_KEY").exists());
    let output = with_input(&fixture, &env, &["secret", "set", "OPENAI_API_KEY", "--json"], "planted-value");
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&value["tried"], &value["taken_by"]), (&false.into(), &Value::Null), "{output}");
}

#[test]
fn a_refusal_stores_nothing() {
    for (status, code, message) in [
        ("401 Unauthorized", 4, "refused `OPENAI_API_KEY` (401); nothing was stored"),
        ("403 Forbidden", 4, "refused `OPENAI_API_KEY` (403); nothing was stored"),
        ("500 Oops", 1, "answered 500, which does not say whether `OPENAI_API_KEY` is good; nothing was stored"),
        ("302 Found", 1, "answered 302, which does not say"),
    ] {
        let fixture = RepoFixture::new();
        let server = KeyCheckServer::answering(status);
        let env = [("OPENAI_BASE_URL", server.url.as_str())];
        let output = with_input(&fixture, &env, &["secret", "set", "OPENAI_API_KEY"], "planted-value");
        assert_eq!(output.code, code, "{output}");
        assert!(output.stderr.contains(message) && !output.stderr.contains("planted-value"), "{output}");
        assert!(output.stderr.contains("\nhint: "), "{output}");
        assert!(!secret_file(&fixture, "OPENAI_API_KEY").exists() && !fixture.state().join("secrets.json").exists());
    }
}

/// A key is not sent unencrypted, where anyone on the way could read it.
#[test]
fn a_key_is_not_tried_in_the_clear() {
    let fixture = RepoFixture::new();
    let args = ["secret", "set", "MY_GATEWAY", "--kind", "gateway", "--base-url", "http://gw.corp:4000/v1"];
    let output = with_input(&fixture, &[], &args, "planted-value");
    assert_eq!(
        output.to_string(),
        "exit 2\n--- stderr\nralph: `MY_GATEWAY` would be tried at `gw.corp` over `http://`, and a key does not travel \
         in the clear\n\nhint: use `https://gw.corp`, or a tunnel: ssh -N -L 4000:localhost:PORT gw.corp, and \
         `http://localhost:4000` as base URL\n"
    );
    assert!(!secret_file(&fixture, "MY_GATEWAY").exists());
}

/// A subscription token is tried only at Anthropic, whatever base URL the environment names.
#[test]
fn a_subscription_is_tried_at_its_own_provider_only() {
    let fixture = RepoFixture::new();
    let (token, gateway) = (join_parts(&["sk-", "ant-oat01-nobodys"]), "https://api.z.ai/api/anthropic");
    let set = ["secret", "set", "CLAUDE_CODE_OAUTH_TOKEN"];
    for (env, more) in [(&[("ANTHROPIC_BASE_URL", gateway)][..], &[][..]), (&[], &["--base-url", gateway])] {
        let output = with_input(&fixture, env, &[&set[..], more].concat(), &token);
        assert_eq!(output.code, 2, "{output}");
        assert!(output.stderr.contains("`api.z.ai` is not the provider that sold it"), "{output}");
        assert!(output.stderr.contains("ralph secret set ANTHROPIC_AUTH_TOKEN"), "{output}");
        assert!(!secret_file(&fixture, "CLAUDE_CODE_OAUTH_TOKEN").exists());
    }
}

/// A value that is too short to be masked is not accepted.
#[test]
fn a_secret_has_a_length() {
    let fixture = RepoFixture::new();
    let output = with_input(&fixture, &[], &["secret", "set", "LITELLM_PROXY_API_KEY", "--no-validate"], "sk-1234");
    assert_eq!(output.code, 2, "{output}");
    assert!(
        output.stderr.contains("fewer than 8 characters") && output.stderr.contains("LITELLM_MASTER_KEY"),
        "{output}"
    );
    assert!(!secret_file(&fixture, "LITELLM_PROXY_API_KEY").exists());
    for args in
        [&["run", "--lend", "SHORT_TOKEN=x.io"][..], &["sandbox", "exec", "--lend", "SHORT_TOKEN=x.io", "--", "true"]]
    {
        let output = fixture.ralph_with(&[("SHORT_TOKEN", "sk-1234")], args);
        assert_eq!(output.code, 4, "{output}");
        assert!(output.stderr.contains("`SHORT_TOKEN` is shorter than 8 characters"), "{output}");
        assert!(output.stderr.contains("then: ralph secret set SHORT_TOKEN"), "{output}");
    }
}

#[test]
fn agents_without_a_credential_say_why() {
    let fixture = RepoFixture::new();
    for (agent, message) in [
        ("cursor", "agent `cursor` connects only to its vendor"),
        ("custom", "agent `custom` has no credential of its own"),
        ("cursro", "there is no agent `cursro`"),
    ] {
        let output = fixture.ralph(&["secret", "check", "--agent", agent]);
        assert!(output.code == 2 && output.stderr.contains(message) && output.stderr.contains("\nhint: "), "{output}");
    }
}

#[test]
fn without_a_network() {
    let fixture = RepoFixture::new();
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let base = format!("http://{closed}");
    let args = ["secret", "set", "MY_GATEWAY", "--kind", "gateway", "--base-url", &base];
    let output = with_input(&fixture, &[], &args, "planted-value");
    assert_eq!(output.code, 1, "{output}");
    assert!(
        output.stderr.contains("could not be reached, so `MY_GATEWAY` could not be tried; nothing was stored"),
        "{output}"
    );
    assert!(output.stderr.contains("store it untried: ralph secret set MY_GATEWAY --no-validate"), "{output}");
    assert!(!secret_file(&fixture, "MY_GATEWAY").exists());
    let output = with_input(&fixture, &[], &["secret", "set", "MY_GATEWAY"], "planted-value");
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("ralph does not know where `MY_GATEWAY` is used"), "{output}");
    let output = with_input(&fixture, &[], &["secret", "set", "MY_GATEWAY", "--no-validate"], "planted-value");
    assert_eq!(
        output.to_string(),
        "exit 0\n--- stderr\n`MY_GATEWAY` is stored: api-key, file, untried, no end known\n"
    );
}

#[test]
fn a_value_has_no_place_on_the_command_line() {
    let fixture = RepoFixture::new();
    let value = join_parts(&["sk-", "ant-api03-abcdefgh1234"]);
    let assigned = format!("ANTHROPIC_API_KEY={value}");
    for args in [
        vec!["secret", "set", "ANTHROPIC_API_KEY", &value],
        vec!["secret", "set", &value],
        vec!["secret", "set", &assigned],
        vec!["secret", "get", &value],
        vec!["secret", "rm", &value],
        vec!["store-token", &value],
    ] {
        let output = with_input(&fixture, &[], &args, "");
        assert_eq!(output.code, 2, "{output}");
        assert!(!output.stderr.contains("abcdefgh1234") && !output.stdout.contains("abcdefgh1234"), "{output}");
        assert!(output.stderr.contains("\nhint: ") && output.stderr.contains("ralph secret set"), "{output}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let fixture = RepoFixture::new();
    for (input, message) in [
        ("", "the value of `MY_KEY` cannot be used: nothing was given"),
        ("two words", "it contains whitespace or control characters"),
        ("MY_KEY=abc", "it is a whole `NAME=value` line"),
        ("one\ntwo", "it has several lines but is not PEM"),
    ] {
        let output = with_input(&fixture, &[], &["secret", "set", "MY_KEY", "--no-validate"], input);
        assert_eq!(output.code, 2, "{output}");
        assert!(output.stderr.contains(message), "{output}");
    }
    // A private key is parsed, not sent.
    let pem = format!("-----BEGIN RSA {}\nAAAA\n-----END RSA PRIVATE KEY-----\n", "PRIVATE KEY-----");
    let output = with_input(&fixture, &[], &["secret", "set", "GITHUB_APP_PRIVATE_KEY_PEM"], &pem);
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("is not a private key in PEM: it is not an RSA key"), "{output}");
    for (expires, message) in [("yesterday", "neither a date nor a number of days"), ("-3", "is in the past")] {
        let output =
            with_input(&fixture, &[], &["secret", "set", "MY_KEY", "--no-validate", "--expires", expires], "abc");
        assert_eq!(output.code, 2, "{output}");
        assert!(output.stderr.contains(message), "{output}");
    }
}

#[test]
fn listed_printed_and_removed() {
    let fixture = RepoFixture::new();
    let output = fixture.ralph(&["secret", "ls"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    store_untried(&fixture, "MY_KEY", "planted-value-1", &["--expires", "90"]);
    store_untried(&fixture, "CLAUDE_CODE_OAUTH_TOKEN", "planted-value-2", &[]);
    let env = [("GITHUB_PAT", "planted-value-3")];
    let output = fixture.ralph_with(&env, &["secret", "ls"]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{output}");
    for (line, wanted) in lines.iter().zip([
        ["NAME", "KIND", "SOURCE", "ENDS"],
        ["CLAUDE_CODE_OAUTH_TOKEN", "oauth", "file", "(expires in 364 days)"],
        ["GITHUB_PAT", "github-pat", "environment", "-"],
        ["MY_KEY", "api-key", "file", "(expires in 89 days)"],
    ]) {
        for word in wanted {
            assert!(line.contains(word), "no `{word}` in {line}");
        }
    }
    let json = fixture.ralph_with(&env, &["secret", "ls", "--json"]);
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["secrets"][2]["days_left"], 89);
    assert_eq!(value["secrets"][1]["source"], "environment");
    assert!(!format!("{output}{json}").contains("planted"), "{json}");
    let got = fixture.ralph(&["secret", "get", "MY_KEY"]);
    assert_eq!((got.code, got.stdout.as_str()), (0, "planted-value-1\n"));
    assert!(got.stderr.contains("is written to the pipe unmasked"), "{got}");
    let value: Value = serde_json::from_str(&fixture.ralph(&["secret", "ls", "--json"]).stdout).unwrap();
    assert!(value["secrets"][1]["last_used"].is_string(), "{value}");
    assert_eq!(fixture.ralph(&["secret", "rm", "MY_KEY"]).stderr, "`MY_KEY` is removed from file\n");
    let output = fixture.ralph(&["secret", "rm", "MY_KEY"]);
    assert_eq!(output.to_string(), "exit 4\n--- stderr\nralph: there is no secret `MY_KEY`\n\nhint: ralph secret ls\n");
    let output = fixture.ralph_with(&env, &["secret", "rm", "GITHUB_PAT"]);
    assert_eq!(output.code, 2, "{output}");
    assert_eq!(fixture.ralph(&["secret", "get", "MY_KEY"]).code, 4);
}

#[test]
fn a_file_others_can_read_is_refused() {
    let fixture = RepoFixture::new();
    store_untried(&fixture, "MY_KEY", "planted-value", &[]);
    fs::set_permissions(secret_file(&fixture, "MY_KEY"), fs::Permissions::from_mode(0o644)).unwrap();
    let output = fixture.ralph(&["secret", "get", "MY_KEY"]);
    assert_eq!(
        output.to_string(),
        "exit 2\n--- stderr\nralph: `HOME/.config/ralph/secrets/MY_KEY` is not private: others can read or change it\n\nhint: chmod 600 HOME/.config/ralph/secrets/MY_KEY\n"
    );
    let output = fixture.ralph(&["secret", "check"]);
    assert_eq!(output.code, 4, "{output}");
    assert!(output.stdout.contains("✗ MY_KEY"), "{output}");
}

/// Changes the expiry of a secret.
fn set_expiry(fixture: &RepoFixture, name: &str, days: i64) {
    let path = fixture.state().join("secrets.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(days * 24 * 60 + 5);
    value["secrets"][name]["expires"] = end.to_string().into();
    fs::write(&path, value.to_string()).unwrap();
}

#[test]
fn checks() {
    let fixture = RepoFixture::new();
    let output = fixture.ralph(&["secret", "check", "--agent", "claude"]);
    assert_eq!(
        output.to_string(),
        "exit 4\n--- stderr\nralph: there is no credential that `claude` could use\n\nhint: claude setup-token, then ralph secret set CLAUDE_CODE_OAUTH_TOKEN\n"
    );
    assert_eq!(fixture.ralph(&["secret", "check"]).code, 4);
    store_untried(&fixture, "CLAUDE_CODE_OAUTH_TOKEN", "planted-value", &[]);
    for (days, code, message) in [
        (100, 0, "✓ CLAUDE_CODE_OAUTH_TOKEN: expires in 100 days"),
        (3, 0, "! CLAUDE_CODE_OAUTH_TOKEN: expires in 3 days"),
        (-3, 4, "✗ CLAUDE_CODE_OAUTH_TOKEN: expired 2 days ago"),
    ] {
        set_expiry(&fixture, "CLAUDE_CODE_OAUTH_TOKEN", days);
        for args in [&["secret", "check"][..], &["secret", "check", "--agent", "claude"], &["check-token"]] {
            let output = fixture.ralph(args);
            assert_eq!(
                (output.code, output.stdout.as_str()),
                (code, format!("{message}\n").as_str()),
                "{args:?} {output}"
            );
            let renew = "renew it: claude setup-token, then ralph secret set CLAUDE_CODE_OAUTH_TOKEN";
            assert_eq!(output.stderr.contains(renew), days < 14, "{output}");
        }
    }
    let json: Value = serde_json::from_str(&fixture.ralph(&["secret", "check", "--json"]).stdout).unwrap();
    assert_eq!((&json["good"], &json["secrets"][0]["days_left"]), (&false.into(), &(-3).into()));
    // One of an agent's credentials is enough.
    let env = [("ANTHROPIC_API_KEY", "abcdefgh")];
    let output = fixture.ralph_with(&env, &["check-token", "--agent", "claude"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "✓ ANTHROPIC_API_KEY: no end known\n"), "{output}");
    assert_eq!(fixture.ralph(&["check-token", "--agent", "codex"]).code, 4);
    let output = fixture.ralph(&["check-token", "--agent", "cloude"]);
    assert!(output.code == 2 && output.stderr.contains("did you mean `claude`?"), "{output}");
}

/// A credential is only reported as good if a run could use it.
#[test]
fn checks_read_the_value() {
    let fixture = RepoFixture::new();
    store_untried(&fixture, "MY_KEY", "cmd://false", &[]);
    let output = fixture.ralph(&["secret", "check"]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (4, "✗ MY_KEY: the command of `MY_KEY` returned no secret: `false` ended with 1: \n"),
        "{output}"
    );
    assert!(output.stderr.contains("renew it: ralph secret set MY_KEY"), "{output}");
    // The environment takes precedence over a command.
    let env = [("MY_KEY", "from-environment")];
    let output = fixture.ralph_with(&env, &["secret", "check"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "✓ MY_KEY: no end known\n"), "{output}");
    assert_eq!(fixture.ralph_with(&env, &["secret", "get", "MY_KEY"]).stdout, "from-environment\n");
    assert_eq!(fixture.ralph(&["secret", "rm", "MY_KEY"]).code, 0);
    // The same for the credential of an agent.
    store_untried(&fixture, "OPENAI_API_KEY", "cmd://false", &[]);
    let output = fixture.ralph(&["secret", "check", "--agent", "codex"]);
    assert!(output.code == 4 && output.stdout.starts_with("✗ OPENAI_API_KEY: the command of"), "{output}");
}

/// `check` names the credential that a run uses.
#[test]
fn check_names_the_credential_that_a_run_uses() {
    let fixture = RepoFixture::new();
    store_untried(&fixture, "CLAUDE_CODE_OAUTH_TOKEN", "planted-value-1", &[]);
    store_untried(&fixture, "ANTHROPIC_API_KEY", "planted-value-2", &[]);
    let output = fixture.ralph(&["secret", "check", "--agent", "claude"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "✓ ANTHROPIC_API_KEY: no end known\n"), "{output}");
    assert_eq!(output.stderr, "! CLAUDE_CODE_OAUTH_TOKEN is also available; a run uses ANTHROPIC_API_KEY\n");
    let json: Value =
        serde_json::from_str(&fixture.ralph(&["secret", "check", "--agent", "claude", "--json"]).stdout).unwrap();
    assert_eq!(json["unused"], serde_json::json!(["CLAUDE_CODE_OAUTH_TOKEN"]));
    fixture.config(
        "models.yaml",
        "profiles:\n  claude: {litellm_model: anthropic/claude-sonnet-4-5, max_output_tokens: 2048}\n",
    );
    let line = "env | grep -o -e ^ANTHROPIC_API_KEY= -e ^CLAUDE_CODE_OAUTH_TOKEN=";
    let output = fixture.ralph(&["sandbox", "exec", "--profile", "claude", "--", "sh", "-c", line]);
    assert!(output.code == 0 && output.stdout == "ANTHROPIC_API_KEY=\n", "{output}");
    // `get-token` prints what `store-token` stored.
    assert_eq!(fixture.ralph(&["get-token"]).stdout, "planted-value-1\n");
}

#[test]
fn a_value_is_printed_only_to_a_pipe() {
    let fixture = RepoFixture::new();
    store_untried(&fixture, "MY_KEY", "planted-value", &[]);
    let path = fixture.repo.home().join("leak.txt");
    for out in [fs::File::create(&path).unwrap(), fs::File::create("/dev/null").unwrap()] {
        for args in [&["secret", "get", "MY_KEY", "--json"][..], &["secret", "get", "MY_KEY"]] {
            let mut command = fixture.command(args);
            command.stdout(out.try_clone().unwrap()).stderr(Stdio::piped());
            let output = fixture.output_of(&command.spawn().unwrap().wait_with_output().unwrap());
            let message = "a secret is printed only to a pipe, never to a terminal or into a file";
            // With `--json` the error is an object, and is printed where the value would be.
            assert!(output.code == 2 && (args.contains(&"--json") || output.stderr.contains(message)), "{output}");
            let next = "hint: pipe it where it is needed: ralph secret get MY_KEY | PROGRAM";
            assert!(args.contains(&"--json") || output.stderr.contains(next), "{output}");
        }
    }
    assert!(!fs::read_to_string(&path).unwrap().contains("planted"));
    // A socket leads to another program too.
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = fixture.command(&["secret", "get", "MY_KEY"]);
    command.stdout(std::os::fd::OwnedFd::from(there)).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut got = String::new();
    here.read_to_string(&mut got).unwrap();
    assert_eq!((child.wait().unwrap().code(), got.as_str()), (Some(0), "planted-value\n"));
}

/// A granted secret counts as used, whether it was sent or not.
#[test]
fn a_grant_counts_as_a_use() {
    let fixture = RepoFixture::with_task();
    store_untried(&fixture, "LENT_KEY", "planted-value", &[]);
    let output = fixture.ralph(&["run", "--no-baseline", "--lend", "LENT_KEY=git.example.com"]);
    assert_eq!(output.code, 0, "{output}");
    let listed: Value = serde_json::from_str(&fixture.ralph(&["secret", "ls", "--json"]).stdout).unwrap();
    assert!(listed["secrets"][0]["last_used"].is_string(), "{listed}");
}

/// A host for which a secret is granted is allowed, with a notice; where rules name some of its requests, only those
/// stay allowed, wherever the rules are.
#[test]
fn a_grant_allows_no_more_than_it_must() {
    #[track_caller]
    fn check(task: &str, config: &str, args: &[&str], want: &[&str], noticed: bool) {
        let fixture = RepoFixture::with_task();
        if !task.is_empty() {
            let text = fs::read_to_string(fixture.repo.path().join("ralph_task.md")).unwrap();
            fixture.repo.write("ralph_task.md", text.replacen("---\n", &format!("---\n{task}\n"), 1));
            fixture.repo.commit("what the task may reach");
        }
        fixture.config("config.toml", config);
        store_untried(&fixture, "LENT_KEY", "planted-value", &[]);
        let lend = ["run", "--no-baseline", "--lend", "LENT_KEY=git.example.com"];
        let output = fixture.ralph(&[&lend, args].concat());
        assert_eq!(output.code, 0, "{output}");
        let listed: Value =
            serde_json::from_str(&fixture.ralph(&["policy", "ls", "--run", "@", "--json"]).stdout).unwrap();
        let rules = listed["allow"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap());
        assert_eq!(rules.collect::<Vec<_>>(), want, "{output}");
        assert_eq!(
            output.stderr.contains("git.example.com may be reached, because a credential is granted for it"),
            noticed,
            "{output}"
        );
    }
    let read = "GET git.example.com/a/*";
    let own = format!("[sandbox.network]\nallowed = ['{read}', 'git.example.com']\n");
    check("", "", &[], &["git.example.com"], true);
    check("", "", &["--allow-host", "x.io"], &["x.io", "git.example.com"], true);
    check("", "", &["--allow-host", read], &[read], false);
    check("", "", &["--allow-host", "*.example.com"], &["*.example.com"], false);
    check("", &format!("[sandbox.network]\nallowed = ['{read}']\n"), &[], &[read], false);
    check(&format!("sandbox_network: {{allow: ['{read}']}}"), &own, &[], &[read], false);
    check("", "", &["--network", "open"], &[], false);
}

#[test]
fn older_names() {
    let fixture = RepoFixture::new();
    let output = with_input(&fixture, &[], &["store-token", "--no-validate", "--source", "file"], "planted-value");
    assert_eq!(output.code, 0, "{output}");
    assert!(secret_file(&fixture, "CLAUDE_CODE_OAUTH_TOKEN").exists());
    let output = with_input(
        &fixture,
        &[],
        &["store-token", "--agent", "codex", "--no-validate", "--source", "file"],
        "other-value",
    );
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(fixture.ralph(&["get-token"]).stdout, "planted-value\n");
    assert_eq!(fixture.ralph(&["get-token", "--agent", "codex"]).stdout, "other-value\n");
    assert_eq!(fixture.ralph(&["get-token", "--agent", "gemini"]).code, 4);
    assert_eq!(fixture.ralph(&["check-token"]).code, 0);
    assert_eq!(fixture.ralph(&["prune-sandboxes", "--dry-run"]).code, 0);
    let help = fixture.ralph(&["--help"]).stdout;
    assert!(help.contains("\n  secret ") && !help.contains("store-token"), "{help}");
}

/// `secret-tool` as its manual describes it; items are files beside it.
const SECRET_TOOL: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "$@" >> "$dir/calls"
verb=$1; shift
case $1 in --label=*) shift ;; esac
item="$dir/item-$2-$4"
case $verb in
store) cat > "$item" ;;
lookup) [ -e "$item" ] || exit 1; cat "$item" ;;
search) [ -e "$item" ] && printf '[/1]\nlabel = x\nsecret = %s\ncreated = x\n' "$(cat "$item")" ;;
clear) rm -f "$item" ;;
esac
"#;

#[cfg(target_os = "linux")]
#[test]
fn the_keyring_comes_first() {
    let fixture = RepoFixture::new();
    let bin = fixture.repo.home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let tool = bin.join("secret-tool");
    fs::write(&tool, SECRET_TOOL).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let env = [("PATH", path.as_str()), ("MY_KEY", "from-environment")];
    let output = with_input(&fixture, &env, &["secret", "set", "MY_KEY", "--no-validate"], "planted-value");
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stderr.contains("`MY_KEY` is stored: api-key, keyring, untried"), "{output}");
    assert!(!secret_file(&fixture, "MY_KEY").exists());
    assert_eq!(fixture.ralph_with(&env, &["secret", "get", "MY_KEY"]).stdout, "planted-value\n");
    let calls = fs::read_to_string(bin.join("calls")).unwrap();
    assert!(
        calls.contains("store --label=ralph MY_KEY service ralph name MY_KEY") && !calls.contains("planted"),
        "{calls}"
    );
    let output = fixture.ralph_with(&env, &["secret", "rm", "MY_KEY"]);
    assert!(
        output.stderr.contains("removed from keyring") && output.stderr.contains("also set in the environment"),
        "{output}"
    );
    assert!(!bin.join("item-ralph-MY_KEY").exists());
    // A secret that was removed from the keyring without ralph.
    let env = [("PATH", path.as_str())];
    let output = with_input(&fixture, &env, &["secret", "set", "MY_KEY", "--no-validate"], "planted-value");
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(fixture.ralph_with(&env, &["secret", "check"]).code, 0);
    fs::remove_file(bin.join("item-ralph-MY_KEY")).unwrap();
    let output = fixture.ralph_with(&env, &["secret", "check"]);
    assert_eq!((output.code, output.stdout.as_str()), (4, "✗ MY_KEY: it is gone\n"), "{output}");
}

/// Runs a command at a terminal of its own, typing `input`; `None` where there is no `script` program.
fn at_a_terminal(fixture: &RepoFixture, args: &[&str], input: &str) -> Option<(i32, String)> {
    let there = Command::new("script").arg("--version").output().is_ok_and(|out| out.status.success());
    if !there || !cfg!(target_os = "linux") {
        return None;
    }
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let line = format!("'{ralph}' {}", args.join(" "));
    let mut command = ralph_testkit::repo::hermetic_command("script", &fixture.repo.home());
    command.current_dir(fixture.repo.path()).args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut shown = Vec::new();
    // After the prompt, nothing that is typed may be shown.
    let mut piece = [0; 256];
    while !input.is_empty() && !String::from_utf8_lossy(&shown).contains("it is not shown") {
        let read = stdout.read(&mut piece).unwrap();
        assert!(read > 0, "no prompt: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&piece[..read]);
    }
    stdin.write_all(input.as_bytes()).unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    drop(stdin);
    let code = child.wait().unwrap().code().unwrap_or(-1);
    Some((code, String::from_utf8_lossy(&shown).into_owned()))
}

#[test]
fn what_is_typed_is_not_shown() {
    let fixture = RepoFixture::new();
    let args = ["secret", "set", "MY_KEY", "--no-validate", "--source", "file"];
    // A typing error, corrected.
    let Some((code, shown)) = at_a_terminal(&fixture, &args, "wrong\u{15}planted-valuX\u{7f}e\r") else {
        return report_not_run("nothing was typed at a terminal: there is no `script` program to make one with");
    };
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("plant") && !shown.contains("wrong") && shown.contains("is stored"), "{shown}");
    assert_eq!(fs::read_to_string(secret_file(&fixture, "MY_KEY")).unwrap(), "planted-value\n");
    let (code, shown) = at_a_terminal(&fixture, &["secret", "set", "OTHER", "--no-validate"], "plant\u{3}").unwrap();
    assert!(code == 130 && shown.contains("interrupted") && !shown.contains("plant"), "{code} {shown}");
    assert!(!secret_file(&fixture, "OTHER").exists());
    let (code, shown) = at_a_terminal(&fixture, &["secret", "get", "MY_KEY"], "").unwrap();
    assert!(code == 2 && shown.contains("never to a terminal") && !shown.contains("planted"), "{code} {shown}");
}

#[test]
fn a_run_uses_what_is_stored() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let done = r#"{"summary": "x", "actions": [{"type": "stop_failure", "reason": "enough"}]}"#;
    let server = runtime
        .block_on(ralph_testkit::model_server::FakeModelServer::with_behaviours([ModelBehaviour::ok(done)]))
        .unwrap();
    let fixture = RepoFixture::with_task();
    let model = format!(
        "profiles:\n  default-cheap: {{litellm_model: \"openai/lab\", base_url: \"{}\", max_output_tokens: 2048, \
         timeout_s: 20, price: {{input_per_mtok: 1, output_per_mtok: 2}}}}\n",
        server.base_url()
    );
    fixture.config("models.yaml", &model);
    assert_eq!(fixture.ralph(&["run", "--no-baseline"]).code, 4, "there is no key yet");
    store_untried(&fixture, "OPENAI_API_KEY", "stored-value-1", &[]);
    let output = fixture.ralph_with(&[("OPENAI_API_KEY", "environment-value")], &["run", "--no-baseline"]);
    assert!(!output.stderr.contains("stored-value-1"), "{output}");
    let requests = server.requests();
    let sent = requests.first().and_then(|request| request.header("authorization"));
    assert_eq!(sent, Some("Bearer stored-value-1"), "{output}");
    let listed: Value = serde_json::from_str(&fixture.ralph(&["secret", "ls", "--json"]).stdout).unwrap();
    assert!(listed["secrets"][0]["last_used"].is_string(), "{listed}");
    // A file that others can read is not used, and the error names the next command.
    fs::set_permissions(secret_file(&fixture, "OPENAI_API_KEY"), fs::Permissions::from_mode(0o640)).unwrap();
    let output = fixture.ralph(&["run", "--no-baseline"]);
    assert!(
        output.code == 2 && output.stderr.contains("hint: chmod 600 HOME/.config/ralph/secrets/OPENAI_API_KEY"),
        "{output}"
    );
}

/// Many refusals do not hide the alarm after them, and the uses of a secret are in an audit log.
#[test]
fn a_sandbox_with_a_granted_secret_is_audited() {
    const SCRIPT: &str = r#"
import os, sys, urllib.error, urllib.request as u
for name in ["no_proxy", "NO_PROXY"]: os.environ.pop(name, None)
def ask(url, **headers):
    try: u.urlopen(u.Request(url, headers=headers))
    except urllib.error.HTTPError as error: print(error.code)
for n in range(30): ask(f"http://x{n}.example.com/")
ask(f"http://127.0.0.1:{sys.argv[1]}/", Authorization="Bearer " + os.environ["LENT_KEY"])
"#;
    let fixture = RepoFixture::new();
    store_untried(&fixture, "LENT_KEY", "planted-value-1", &[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let lent = ["sandbox", "exec", "--lend", "LENT_KEY=git.example.com", "--allow", "git.example.com"];
    let allow = format!("127.0.0.1:{port}");
    let output = fixture.ralph(&[&lent[..], &["--allow", &allow, "--", "python3", "-c", SCRIPT, &port]].concat());
    assert_eq!((output.code, output.stdout.as_str()), (0, "403\n".repeat(31).as_str()), "{output}");
    let lines: Vec<&str> = output.stderr.lines().collect();
    let [refusals @ .., more, alarm, written] = lines.as_slice() else { panic!("{output}") };
    assert!(
        refusals.len() == 20 && refusals.iter().all(|line| line.contains(".example.com:80 was refused: ")),
        "{output}"
    );
    assert_eq!(*more, "and 11 more refusals", "{output}");
    assert!(alarm.starts_with("alarm: a phantom credential was sent to a host it is not for (`LENT_KEY`"), "{output}");
    let (_, name) = written.split_once("; next: ralph policy log ").unwrap_or_else(|| panic!("{output}"));
    let file = fixture.state().join("exec").join(name).join("audit.jsonl");
    let lines = fs::read_to_string(&file).unwrap();
    assert!(lines.contains("\"kind\":\"alarm\"") && !lines.contains("planted-value"), "{lines}");
    let log = fixture.ralph(&["policy", "log", name]);
    assert!(log.code == 0 && log.stdout.contains("x29.example.com:80"), "{log}");
    assert_eq!(fixture.ralph(&["audit", "verify", name]).code, 0);
    fs::write(&file, lines.replacen("x3.example.com", "x4.example.com", 1)).unwrap();
    assert_eq!(fixture.ralph(&["audit", "verify", name]).code, 1);
    // No audit log is kept of a sandbox without requests, or without a grant.
    for args in [&lent[..], &["sandbox", "exec"]] {
        let output = fixture.ralph(&[args, &["--", "true"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output}");
    }
    assert_eq!(fs::read_dir(fixture.state().join("exec")).unwrap().count(), 1);
}

/// The user's deny rules apply to every sandbox.
#[test]
fn deny_rules_apply_to_single_commands() {
    let fixture = RepoFixture::new();
    let line = "python3 -c 'import urllib.request as u\ntry: u.urlopen(\"http://example.com/\")\n\
        except Exception as e: print(getattr(e, \"code\", e))'";
    let exec = ["sandbox", "exec", "--allow", "example.com:80", "--", "sh", "-c", line];
    let output = fixture.ralph(&exec);
    assert!(!output.stderr.contains("is denied by rule"), "{output}");
    assert_eq!(fixture.ralph(&["policy", "deny", "example.com:80"]).code, 0);
    let output = fixture.ralph(&exec);
    assert!(
        output.stdout == "403\n"
            && output.stderr.contains("example.com:80 was refused: it is denied by rule `example.com:80`"),
        "{output}"
    );
}
