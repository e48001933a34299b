//! Tests what a run does when its egress proxy dies during a command, a check or a proof. Whatever is cut fails the
//! instant its connection breaks, long before the proxy restarts.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use ralph_core::env_vars::Env;
use ralph_core::event::{BaselineVerdict, CheckStage, Event, EventLine};
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{KeepSandbox, StopSignals, begin};
use ralph_engine::store::{AnnouncePhase, EventObserver};
use ralph_sandbox::{EgressServer as _, EgressSockets};
use tokio::time::{sleep, timeout};

use super::killable_run::{KillableRun, PushTarget};

/// Holds a connection to the listener and fails as soon as it is cut; succeeds after that, and anywhere else.
const CUT_SCRIPT: &str = r#"
case $PWD in *"$2"*) ;; *) exit 0 ;; esac
test -e "$1/cut" && exit 0
basename "$(dirname "$PWD")" > "$1/name" && mv "$1/name" "$1/here"
while ! test -e "$1/address"; do sleep 0.02; done
exec 3<>"/dev/tcp/127.0.0.1/$(cat "$1/address")"
printf 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n' >&3
read -r answer <&3
: > "$1/cut"
cat <&3 > "$1/rest"
exit 1
"#;

struct EgressRestartObserver;

impl EventObserver for EgressRestartObserver {
    fn on_event(&self, _: AnnouncePhase, _: &EventLine) {}
}

/// A run whose egress is cut once.
struct EgressCutRun {
    ended: RunState,
    lines: Vec<EventLine>,
    workspace: PathBuf,
    _case: KillableRun,
}

impl EgressCutRun {
    /// Returns how often the run reported that something was run again.
    fn rerun_count(&self) -> usize {
        self.count(|event| matches!(event, Event::Log { text, .. } if text.ends_with("is run again")))
    }

    fn count(&self, wanted: fn(&Event) -> bool) -> usize {
        self.lines.iter().filter(|line| wanted(&line.event)).count()
    }

    fn checks(&self, wanted: CheckStage) -> Vec<i32> {
        let code = |line: &EventLine| match &line.event {
            Event::CheckFinished { stage, code, command, .. } if *stage == wanted && command != "true" => Some(*code),
            _ => None,
        };
        self.lines.iter().filter_map(code).collect()
    }
}

/// Runs a task whose box is proved by one command and for which the model runs another. In both, `CUT` stands for the
/// script that is cut, followed by what the path of its sandbox must contain.
async fn run_with_cut(verify: &str, command: &str) -> EgressCutRun {
    let shared = tempfile::tempdir().unwrap();
    let filled = |text: &str| text.replace("CUT", &format!("bash cut.sh {}", shared.path().display()));
    let task = format!(
        "---\ntask_id: cut-001\ntest_command: \"true\"\n---\n\n# Go on\n\n- [ ] M1.1 There is an out\n  - verify: `{}`\n",
        filled(verify)
    );
    let answer = serde_json::json!({"usage": {"input": 900, "output": 40}, "json": {"summary": "Out.", "actions": [
        {"type": "run", "command": filled(command)}, {"type": "commit", "message": "out"},
        {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.1"]}}, "repeat": true});
    let script = format!("{{\"format\": 1}}\n{answer}\n");
    let case = KillableRun::with(&[("cut.sh", CUT_SCRIPT)], &task, &script, PushTarget::Here);
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
    let host = HostContext::open(case.home(), env).await.unwrap();
    let mut runner =
        begin(&host, case.run_request(), Box::new(EgressRestartObserver), StopSignals::default(), KeepSandbox::Always)
            .await
            .unwrap()
            .runner;
    let watching = tokio::spawn(kill_proxy_once(host.clone(), shared.path().to_owned()));
    let ended = timeout(Duration::from_mins(1), runner.drive()).await.expect("the run ends").unwrap().clone();
    let workspace = watching.await.unwrap();
    let rest = std::fs::read_to_string(shared.path().join("rest")).unwrap();
    assert!(rest.contains("\"mode\":\"deny\""), "the proxy answered: {rest}");
    EgressCutRun { ended, lines: case.lines(), workspace, _case: case }
}

/// Serves the listener of the waiting sandbox, and kills the proxy as soon as a client has connected.
async fn kill_proxy_once(host: HostContext, shared: PathBuf) -> PathBuf {
    let pause = || sleep(Duration::from_millis(2));
    let sandbox = loop {
        match std::fs::read_to_string(shared.join("here")) {
            Ok(name) => break name.trim().to_owned(),
            Err(_) => pause().await,
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sockets = EgressSockets { explicit: Some(listener), ..EgressSockets::default() };
    let serve_guard = host.egress().serve(&sandbox, &BTreeMap::new(), sockets).unwrap();
    std::fs::write(shared.join("port"), port.to_string()).unwrap();
    std::fs::rename(shared.join("port"), shared.join("address")).unwrap();
    while !shared.join("cut").exists() {
        pause().await;
    }
    host.egress().kill_proxy(&sandbox);
    // Kept for as long as the run may connect.
    std::mem::forget(serve_guard);
    host.home.sandboxes_dir().join(&sandbox).join("workspace")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_run_again() {
    let work = "test -z \"$HTTPS_PROXY\" && echo begun >> out.txt; CUT '' && echo done >> out.txt";
    let cut = run_with_cut("grep -q done out.txt", work).await;
    assert_eq!(cut.ended.status, RunStatus::Succeeded, "{:?}", cut.lines);
    // One call was paid for, one action was done, and the tree holds what one run of the command leaves.
    assert_eq!(cut.count(|event| matches!(event, Event::ModelCalled { .. })), 1);
    assert_eq!(cut.count(|event| matches!(event, Event::ActionFinished { index: 0, .. })), 1);
    assert_eq!(cut.rerun_count(), 1);
    assert_eq!(std::fs::read_to_string(cut.workspace.join("out.txt")).unwrap(), "begun\ndone\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_run_again() {
    let cut = run_with_cut("grep -q done out.txt && CUT ''", "echo done >> out.txt").await;
    assert_eq!(cut.ended.status, RunStatus::Succeeded, "{:?}", cut.lines);
    assert_eq!((cut.checks(CheckStage::Iteration), cut.rerun_count()), (vec![0], 1), "{:?}", cut.lines);
    assert_eq!(cut.ended.spent.iterations, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_run_again() {
    let cut = run_with_cut("grep -q done out.txt && CUT -proof", "echo done >> out.txt").await;
    assert_eq!(cut.ended.status, RunStatus::Succeeded, "{:?}", cut.lines);
    assert_eq!((cut.checks(CheckStage::Proof), cut.rerun_count()), (vec![0], 1), "{:?}", cut.lines);
    assert_eq!(cut.ended.spent.iterations, 1);
}

/// A proof that passes on the base commit proves nothing, and is not taken for red because it was cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_baseline_check_is_run_again() {
    let cut = run_with_cut("CUT -proof", "echo done >> out.txt").await;
    let found: Vec<BaselineVerdict> = cut
        .lines
        .iter()
        .find_map(|line| match &line.event {
            Event::BaselineChecked { checks, .. } => {
                let own = checks.iter().filter(|check| check.command != "true");
                Some(own.map(|check| check.verdict).collect())
            }
            _ => None,
        })
        .unwrap();
    assert_eq!(found, [BaselineVerdict::Vacuous], "{:?}", cut.lines);
}
