//! Tests an egress proxy that fails while an agent works: with its cage, by itself, or by a deny rule of the user.
//! Grants stay in force where they should, no iteration is charged for it, and the audit log is complete.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ralph_core::env_vars::Env;
use ralph_core::event::{ActionOutcome, Event};
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_core::run::RunStatus;
use ralph_engine::audit::AuditLog;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, StopSignals, resume};
use ralph_engine::store::{RalphHome, SilentObserver};
use ralph_proxy::egress_events::{ChargeBasis, ChargedCall, EgressEntry, EgressEvent, EgressExchange};
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};
use ralph_sandbox::platform::HostUser;
use ralph_testkit::model_server::ScriptedTurn;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent_key_isolation::{API_KEY, CLAUDE};
use crate::agent_runs::{AgentRunFixture, RESULT, WORK, fake_agent, fixture_with};
use crate::cli_harness::{TIMEOUT, wait_until};

/// Calls the model as an agent does, and prints the answer.
const ASK: &str = r#"ask() { python3 -c '
import json, os, sys, urllib.error, urllib.request as u
env = os.environ
words = {"model": env["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
         "tools": [{"name": "look", "input_schema": {"type": "object"}}]}
headers = {"x-api-key": env["ANTHROPIC_API_KEY"], "content-type": "application/json"}
try:
    print(u.urlopen(u.Request(env["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(words).encode(), headers)).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
    sys.exit(1)
'; }"#;

/// Creates a fixture with an agent that runs `then` after its model call, and then does the work.
fn fixture(folder: &Path, then: &str, turns: Vec<ScriptedTurn>) -> AgentRunFixture {
    let script = format!("{ASK}\nask || exit 1\n{then}\n{WORK}\nprintf '%s\\n' '{RESULT}'");
    fixture_with(&fake_agent(folder, &script), CLAUDE, API_KEY, turns)
}

fn answers() -> Vec<ScriptedTurn> {
    vec![ScriptedTurn::text("ok"); 6]
}

/// Returns the lines of the audit log.
fn audit(fixture: &AgentRunFixture) -> Vec<Value> {
    let run = fixture.checkout.runs().pop().unwrap();
    let text = std::fs::read_to_string(fixture.checkout.state().join("runs").join(run).join("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the home of the agent, as the host sees it.
fn agent_home(fixture: &AgentRunFixture) -> Option<PathBuf> {
    let boxes = std::fs::read_dir(fixture.checkout.state().join("embedded/boxes")).ok()?;
    let homes = boxes.flatten().map(|entry| entry.path().join("home"));
    homes.filter(|home| home.is_dir()).find(|home| home.join("begun").exists())
}

/// The cage dies in the first session. The next session has a new cage, and its model calls work as before.
#[track_caller]
fn check_cage_lost(how: &str, config: &str) {
    let folder = tempfile::tempdir().unwrap();
    let then = format!("if ! test -e ~/fallen; then : > ~/fallen; {how}; sleep 60; fi");
    let fixture = fixture(folder.path(), &then, answers());
    fixture.checkout.config("config.toml", config);
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 0, "{output}");
    let ended: Vec<ActionOutcome> = fixture
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::ActionFinished { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [ActionOutcome::Failed, ActionOutcome::Ok], "{output}");
    assert_eq!(fixture.calls().len(), 2, "{output}");
    let records = audit(&fixture);
    let wrong: Vec<&Value> =
        records.iter().filter(|line| ["alarm", "restarted"].contains(&line["kind"].as_str().unwrap())).collect();
    assert_eq!(wrong, Vec::<&Value>::new(), "{output}");
    // Both cages had their own listeners, and they were closed.
    assert_eq!(records.iter().filter(|line| line["kind"] == "closed").count(), 2, "{records:?}");
    let verified = fixture.ralph(&["audit", "verify", "@"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (0, ""), "{verified}");
}

#[test]
fn command_supervisor_is_killed() {
    check_cage_lost("kill -KILL $PPID", "");
}

#[test]
fn its_disk_is_full() {
    // Deleted files that only the process holds open: the next cage has space again.
    let fill = "python3 -c '\nimport os, tempfile, time\nkept = []\nfor n in range(4):\n    \
                file = tempfile.TemporaryFile(dir = os.environ[\"HOME\"])\n    file.write(bytes(40 << 20))\n    \
                file.flush()\n    kept.append(file)\ntime.sleep(60)\n'";
    check_cage_lost(fill, "[sandbox.resources]\ndisk = \"64m\"\n");
}

/// The user denies the model's host while the agent works: its next call is refused with the rule, and reported.
#[test]
fn the_user_denies_the_model_host() {
    let folder = tempfile::tempdir().unwrap();
    let then = ": > ~/begun; while ! test -e ~/go; do sleep 0.05; done; ask > ~/second";
    let fixture = fixture(folder.path(), then, answers());
    let mut command = fixture.checkout.command(&["run"]);
    command.envs([("PATH", fixture.path.as_str()), (fixture.key.variable, fixture.key.value)]);
    let live = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the agent has asked", || agent_home(&fixture).is_some());
    let home = agent_home(&fixture).unwrap();
    let output = fixture.ralph(&["policy", "deny", "127.0.0.1", "--run", "@"]);
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(fixture.ralph(&["policy", "test", "127.0.0.1:443", "--run", "@"]).code, 1);
    std::fs::write(home.join("go"), "").unwrap();
    wait_until("the agent has asked again", || {
        std::fs::read_to_string(home.join("second")).is_ok_and(|output| !output.is_empty())
    });
    let answer = std::fs::read_to_string(home.join("second")).unwrap();
    let output = fixture.checkout.output_of(&live.wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{output}");
    assert!(answer.starts_with("403 {\"type\":\"error\",\"error\":{\"type\":\"permission_error\""), "{answer}");
    assert!(answer.contains("is denied by rule `127.0.0.1` of the network policy"), "{answer}");
    assert_eq!(fixture.calls().len(), 1, "{output}");
    let denied = |event: &Event| matches!(event, Event::PolicyDenied { host, .. } if host == "127.0.0.1");
    assert!(fixture.events().iter().any(denied), "{output}");
    let log = fixture.ralph(&["policy", "log", "@", "--denied"]);
    assert!(log.stdout.contains("rule `127.0.0.1`"), "{log}");
}

/// The egress proxy dies during a call, and the session fails at once: it uses nothing up, and another session of the
/// same iteration continues from there. The interrupted call costs what the provider bills for it.
#[test]
fn egress_proxy_dies() {
    let folder = tempfile::tempdir().unwrap();
    let then = "if ! test -e ~/begun; then : > ~/begun; ask || exit 1; fi";
    let refused = ScriptedTurn::error(401, "authentication_error", "invalid x-api-key");
    let slow = ScriptedTurn::text("late").slow(Duration::from_secs(1), Duration::ZERO);
    let fixture = fixture(folder.path(), then, [vec![refused, ScriptedTurn::text("ok"), slow], answers()].concat());
    // The run pauses before any work and is resumed in this process, where the test can reach the egress proxy.
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 4, "{output}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let host = open_host(&fixture).await;
        let run = host.home.run_folder(&fixture.checkout.runs().pop().unwrap());
        let sandbox = run.state().unwrap().workplace.unwrap().sandbox;
        let (announce, stops) = (Box::new(SilentObserver), StopSignals::default());
        let taken =
            resume(&host, run, BudgetRaise::default(), RecreateSandbox::No, announce, stops, KeepSandbox::Always).await;
        let mut runner = taken.unwrap();
        let cut = async {
            let begun = Instant::now();
            while fixture.calls().len() < 3 {
                assert!(begun.elapsed() < TIMEOUT, "no session came so far");
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(host.egress().restarts(&sandbox), 0);
            host.egress().kill_proxy(&sandbox);
        };
        let (ended, ()) = tokio::join!(timeout(TIMEOUT, runner.drive()), cut);
        let ended = ended.expect("the run ends").unwrap();
        assert_eq!(ended.status, RunStatus::Succeeded, "{:?}", fixture.events());
        let bill = fixture.bill();
        assert_eq!((ended.spent.tokens, bill.calls), (bill.input + bill.output, 3), "{:?}", fixture.events());
    });
    let events = fixture.events();
    let (mut cut, mut iterations) = (Vec::new(), 0);
    for event in &events {
        match event {
            Event::ActionFinished { outcome: ActionOutcome::Cut, detail, .. } => cut.push(detail.as_str()),
            Event::IterationStarted { .. } => iterations += 1,
            _ => (),
        }
    }
    assert_eq!(cut, ["the provider does not take the key", "the egress proxy restarted meanwhile"]);
    assert_eq!((iterations, fixture.calls().len()), (1, 4), "{events:?}");
    assert_eq!(audit(&fixture).iter().filter(|line| line["kind"] == "restarted").count(), 1);
    let verified = fixture.ralph(&["audit", "verify", "@"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (0, ""), "{verified}");
}

/// Records failed calls until it is cancelled, as the proxy does for a client that keeps disconnecting. Returns how
/// many there were.
fn flood_failed_calls(audit_log: &AuditLog, enough: &CancellationToken) -> u64 {
    let mut ids = (1_u64 << 40)..;
    while !enough.is_cancelled() {
        for id in ids.by_ref().take(50) {
            let (route, model) = ("own".to_owned(), "m".to_owned());
            let (cost, usage) = (MicroUsd::ZERO, TokenUsage::default());
            let calling = EgressEvent::CallReserved {
                id,
                route: route.clone(),
                model: model.clone(),
                cost: MicroUsd(9),
                tokens: 9,
            };
            audit_log.write("box", &calling);
            let (answered_by, limits, charge) = (None, Vec::new(), ChargeBasis::Nothing);
            let call = ChargedCall { id, route, model, answered_by, usage, cost, charge, limits };
            audit_log.write(
                "box",
                &EgressEvent::Exchange(EgressExchange {
                    entry: EgressEntry::Route,
                    host: "x.io".to_owned(),
                    port: 443,
                    method: "POST".to_owned(),
                    path: "/v1/messages".to_owned(),
                    status: None,
                    refused: None,
                    sent: 0,
                    received: 0,
                    credential: Some("KEY".to_owned()),
                    call: Some(call),
                }),
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ids.start - (1 << 40)
}

/// An agent whose calls all fail leaves no event for each of them, and the run still handles a stop.
#[test]
fn failed_calls_without_end_do_not_block_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let then = ": > ~/begun; sleep 600";
    let refused = ScriptedTurn::error(401, "authentication_error", "invalid x-api-key");
    let fixture = fixture(folder.path(), then, [vec![refused], answers()].concat());
    // The run pauses before any work and is resumed in this process, where its audit log is.
    let output = fixture.ralph(&["run"]);
    assert_eq!(output.code, 4, "{output}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let made = runtime.block_on(async {
        let host = open_host(&fixture).await;
        let run = host.home.run_folder(&fixture.checkout.runs().pop().unwrap());
        let (announce, stops) = (Box::new(SilentObserver), StopSignals::default());
        let taken = resume(
            &host,
            run.clone(),
            BudgetRaise::default(),
            RecreateSandbox::No,
            announce,
            stops,
            KeepSandbox::Always,
        )
        .await;
        let mut runner = taken.unwrap();
        let audit_log = AuditLog::open(&run, Redactor::new([])).unwrap();
        let enough = CancellationToken::new();
        let flood = async {
            let begun = Instant::now();
            while agent_home(&fixture).is_none() {
                assert!(begun.elapsed() < TIMEOUT, "no session began");
                sleep(Duration::from_millis(20)).await;
            }
            let (audit_log, until) = (audit_log.clone(), enough.clone());
            let flooding = tokio::task::spawn_blocking(move || flood_failed_calls(&audit_log, &until));
            sleep(Duration::from_secs(2)).await;
            let asked = Instant::now();
            let mut stop = fixture.checkout.command(&["stop", "@"]);
            // The command waits until this process releases the run, so the test does not wait for it.
            let stop = stop.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            (flooding, asked, stop)
        };
        let drive = async {
            let ended = timeout(TIMEOUT, runner.drive()).await.map(|ended| ended.unwrap().status.clone());
            enough.cancel();
            (ended, Instant::now())
        };
        let ((ended, at), (flooding, asked, mut stop)) = tokio::join!(drive, flood);
        stop.kill().unwrap();
        stop.wait().unwrap();
        let took = at.duration_since(asked);
        assert!(ended.is_ok() && took < Duration::from_secs(5), "{ended:?} after {took:?}");
        flooding.await.unwrap()
    });
    let (mut events, mut reported) = (0, 0);
    for event in fixture.events() {
        if let Event::ModelCalled { answer, .. } = event {
            (events, reported) = (events + 1, reported + answer.times());
        }
    }
    // Calls after the end of the run are not reported: they cost nothing.
    assert!(
        reported > 1000 && reported <= made + 10 && events * 10 < reported,
        "{events} events for {reported} of {made} calls"
    );
}

/// Opens the host of a fixture in this process.
async fn open_host(fixture: &AgentRunFixture) -> HostContext {
    let user = fixture.checkout.repo.home();
    let variables = [
        ("PATH", fixture.path.clone()),
        ("HOME", user.display().to_string()),
        (fixture.key.variable, fixture.key.value.to_owned()),
    ];
    let env = Env::new(variables.map(|(name, value)| (name.to_owned(), value)));
    let home = RalphHome::new(fixture.checkout.state(), user.join(".config/ralph"));
    let host = HostContext::open(home, env).await.unwrap();
    let egress = std::sync::Arc::clone(host.egress());
    let embedded = EmbeddedBackend::new(EmbeddedOptions {
        dir: fixture.checkout.state().join("embedded"),
        program: Some(env!("CARGO_BIN_EXE_ralph").into()),
        user: Some(HostUser { home: user, path: fixture.path.clone().into(), env: std::collections::BTreeMap::new() }),
        egress_server: Some(egress),
        ..EmbeddedOptions::default()
    });
    host.with_backend(std::sync::Arc::new(embedded))
}
