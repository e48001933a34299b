//! Tests a real LiteLLM proxy with mock answers: models by its own prefix and by a plain base URL, its errors, a wrong
//! key, and costs to the micro-dollar. It is started once for all of these.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ralph_testkit::home::TestHome;
use ralph_testkit::repo::hermetic_command;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli_harness::{BOTH_BOXES, RalphHarness, answer, honest_actions};
use crate::secret_search::report_not_run;

const MASTER: &str = "sk-master-of-this-test";

/// The proxy needs a quarter of a minute to start on an idle machine.
const START: Duration = Duration::from_mins(4);

/// A proxy that runs until this value is dropped.
#[derive(Debug)]
struct LiteLlmProxy {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for LiteLlmProxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LiteLlmProxy {
    /// Starts the real proxy; `None`, with a report, where it was not fetched.
    fn start() -> Option<Self> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/litellm");
        let program = peers.join("bin/litellm");
        if !program.is_file() {
            report_not_run("the real LiteLLM proxy was not tried: it is not in target/peers; run `cargo xtask test`");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.path().join("config.yaml");
        fs::write(&config, models().to_string()).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = hermetic_command(program.to_str().unwrap(), folder.path());
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False");
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--num_workers", "1", "--config"]);
        let child = command.arg(&config).stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log).spawn();
        let mut proxy = Self { child: child.unwrap(), port, folder };
        proxy.wait_until_ready();
        Some(proxy)
    }

    #[track_caller]
    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START;
        while !self.ask("GET /health/liveliness", "").is_some_and(|output| output.starts_with("HTTP/1.1 200")) {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(self.child.try_wait().unwrap().is_none(), "the proxy ended: {}", log());
            assert!(Instant::now() < deadline, "the proxy does not answer after {START:?}: {}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Sends it a request without ralph, and returns its whole answer.
    fn ask(&self, line: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {MASTER}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut output = Vec::new();
        stream.read_to_end(&mut output).ok()?;
        Some(String::from_utf8_lossy(&output).into_owned())
    }

    /// Returns the proxy's own price of a model call, in dollars.
    #[track_caller]
    fn own_price(&self, model: &str) -> f64 {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let output = self.ask("POST /v1/chat/completions", &body).unwrap();
        let cost = output.lines().find_map(|line| line.strip_prefix("x-litellm-response-cost: ")).expect(&output);
        cost.trim().parse().unwrap()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Returns the proxy's configuration. JSON is YAML too.
fn models() -> Value {
    let offer = |name: &str, model: &str, says: &str| {
        json!({"model_name": name,
            "litellm_params": {"model": model, "api_key": "fake", "mock_response": says}})
    };
    let work = answer(&honest_actions(), &BOTH_BOXES)["json"].to_string();
    json!({
        "model_list": [
            offer("zai/glm-4.7", "zai/glm-4.7", &work),
            offer("glm-4.7", "zai/glm-4.7", "plain words"),
            offer("always-429", "openai/gpt-5", "litellm.RateLimitError"),
            offer("always-500", "openai/gpt-5", "litellm.InternalServerError"),
            offer("too-long", "openai/gpt-5", "litellm.ContextWindowExceededError"),
            offer("claude-mock", "anthropic/claude-opus-4-5", "words of a message"),
            offer("mock-codex", "openai/gpt-5", "words of a response"),
        ],
        "litellm_settings": {"num_retries": 0, "request_timeout": 20},
        "general_settings": {"master_key": MASTER},
    })
}

/// Returns a home whose profiles all use the proxy.
fn home_with_proxy(proxy: &LiteLlmProxy) -> RalphHarness {
    let home = TestHome::new();
    let plain = |model: &str, base: &str| {
        json!({"litellm_model": model, "base_url": format!("{}{base}", proxy.url()), "api_key_env": "LITELLM_PROXY_API_KEY",
            "max_output_tokens": 2048})
    };
    let prefixed = |model: &str| json!({"litellm_model": format!("litellm_proxy/{model}"), "max_output_tokens": 2048});
    let profiles = json!({"profiles": {
        "lab": prefixed("zai/glm-4.7"),
        "plain": plain("zai/glm-4.7", "/v1"),
        "bare": plain("zai/glm-4.7", ""),
        "limited": prefixed("always-429"),
        "broken": prefixed("always-500"),
        "long": prefixed("too-long"),
        "nobody": prefixed("no-such-model"),
        "message": plain("anthropic/claude-mock", ""),
        "response": plain("openai/mock-codex", "/v1"),
    }});
    home.config("models.yaml", &profiles.to_string());
    RalphHarness::with_home(home, &[])
}

#[test]
fn models_behind_a_real_proxy() {
    let Some(proxy) = LiteLlmProxy::start() else { return };
    let ralph = home_with_proxy(&proxy);
    let (base, key) = (("LITELLM_PROXY_API_BASE", proxy.url()), ("LITELLM_PROXY_API_KEY", MASTER));
    let ask = |key: &str, names: &[&str], exit: i32| -> Vec<Value> {
        let args = [&["profile", "test", "--json"], names].concat();
        let output = ralph.ralph_with(&[(base.0, &base.1), ("LITELLM_PROXY_API_KEY", key)], &args).expect_exit(exit);
        assert!(!output.stdout.contains(key) && !output.stderr.contains(key), "{}{}", output.stdout, output.stderr);
        let report: Value = serde_json::from_str(&output.stdout).expect(&output.stdout);
        report["tests"].as_array().unwrap().clone()
    };

    // The same model by its own prefix and by a plain base URL, at the proxy's own price.
    let report = ask(MASTER, &["lab", "plain", "bare"], 0);
    for (report, name) in report.iter().zip(["zai/glm-4.7", "glm-4.7", "glm-4.7"]) {
        assert_eq!(report["usage_reported"], true, "{report}");
        let theirs = proxy.own_price(name);
        let ours = report["cost_usd"].as_f64().expect("a price");
        assert!((ours - theirs).abs() < 0.5e-6 && ours > 0.0, "{ours} and {theirs}: {report}");
    }
    assert_eq!((&report[1]["text"], &report[1]["finish"]), (&json!("plain words"), &json!("stop")));

    // The other two formats that it serves.
    let report = ask(MASTER, &["message", "response"], 0);
    assert_eq!((&report[0]["text"], &report[0]["usage_reported"]), (&json!("words of a message"), &json!(true)));
    assert_eq!((&report[1]["text"], &report[1]["usage_reported"]), (&json!("words of a response"), &json!(true)));

    // Its errors, each by its class.
    let report = ask(MASTER, &["limited", "broken", "long", "nobody"], 1);
    let classes: Vec<&str> = report.iter().map(|row| row["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["rate-limited", "server-error", "context-too-long", "not-found-model"], "{report:?}");
    assert_eq!(report[0]["hint"], "this may be temporary; later: ralph profile test limited");
    let report = ask("sk-not-the-masters", &["lab", "plain"], 4);
    for row in report {
        let (class, hint) = (&row["class"], &row["hint"]);
        assert_eq!((class, hint), (&json!("auth"), &json!("ralph secret set LITELLM_PROXY_API_KEY")), "{row}");
    }

    // A whole run, and its bill.
    let output = ralph.ralph_with(&[(base.0, &base.1), key], &["run"]).expect_exit(0);
    assert!(!output.stderr.contains(MASTER), "{}", output.stderr);
    let calls = ralph.events_of("model-called");
    let shown = ralph.show();
    let cost = shown["cost_usd"].as_f64().unwrap();
    assert_eq!((&shown["state"], calls.len()), (&json!("succeeded"), 1), "{}", output.stderr);
    assert!((cost - proxy.own_price("zai/glm-4.7")).abs() < 0.5e-6, "{cost}");
    let folder: PathBuf = ralph.run_folder();
    assert!(!fs::read_to_string(folder.join("conversation.jsonl")).unwrap().contains(MASTER));
}
