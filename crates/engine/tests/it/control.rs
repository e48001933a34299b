//! Tests steering a run through `control_request::send` alone, while it works and while it rests.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ralph_core::control_request::{Control, ControlHosts};
use ralph_core::event::{Event, EventLine, PinnedProfile, RunStopReason};
use ralph_core::run::RunStatus;
use ralph_engine::Error;
use ralph_engine::control::{ControlRequest, send, send_request};
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, Runner, StopSignals, resume};
use ralph_engine::store::{RalphHome, RunFolder, SilentObserver, read_events};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::run_fixture::{RunFixture, answer, final_answer, profile};

/// An action that waits until the test creates a file.
fn gate(path: &Path) -> Value {
    json!({"type": "run", "command": format!("until [ -e '{}' ]; do sleep 0.01; done", path.display())})
}

fn ask_person() -> String {
    answer("A question.", &[json!({"type": "pause", "reason": "a question"})])
}

fn note(text: &str) -> Control {
    Control::Note { text: text.to_owned() }
}

fn hosts(names: &[&str]) -> ControlHosts {
    ControlHosts::new(names.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

/// Waits until the run has started this many actions.
async fn wait_for_actions(home: &RalphHome, count: usize) -> RunFolder {
    let begun = |line: &&EventLine| matches!(line.event, Event::ActionStarted { .. });
    for _ in 0..1000 {
        if let Some(folder) = home.run_ids().unwrap().first().map(|id| home.run_folder(id))
            && read_events(&folder.events_path(), &folder.id())
                .is_ok_and(|lines| lines.iter().filter(begun).count() >= count)
        {
            return folder;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the run did not get to action {count}");
}

/// Returns the controls in the events, each with its sender.
fn applied(fixture: &RunFixture) -> Vec<(Control, String)> {
    let control = |event| match event {
        Event::ControlApplied { control, by, id } => {
            assert!(id.is_some(), "{control:?} has no request id");
            Some((control, by))
        }
        _ => None,
    };
    fixture.events().into_iter().filter_map(control).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_and_resting_runs_accept_the_same_controls() {
    let dir = tempfile::tempdir().unwrap();
    let gates = [dir.path().join("first"), dir.path().join("second")];
    let work = ModelBehaviour::ok(answer("Wait.", &[gate(&gates[0]), gate(&gates[1])]));
    let server = FakeModelServer::with_behaviours([work, ModelBehaviour::ok(final_answer())]).await.unwrap();
    let default = profile("own", "openai/lab", Some(server.base_url()));
    let mut fixture = RunFixture::new().await;
    let (host, home) = (fixture.host.clone(), fixture.case.home());
    let steer = async {
        let folder = wait_for_actions(&home, 1).await;
        assert!(folder.is_live());
        let once = ControlRequest::new(note("live"), "a test").unwrap();
        for _ in 0..2 {
            let ack = send_request(&host, &folder, &once).await.unwrap();
            assert_eq!((ack.live, &ack.id), (true, &once.id));
        }
        send(&host, &folder, &Control::AllowHost(hosts(&["x.io", "y.io"])), "a test").await.unwrap();
        // These wait for the current action to end.
        let resumed = send(&host, &folder, &Control::Resume, "a test");
        let paused = async {
            fs::write(&gates[0], "").unwrap();
            wait_for_actions(&home, 2).await;
            let asked = tokio::spawn({
                let (host, folder) = (host.clone(), folder.clone());
                async move { send(&host, &folder, &Control::Pause, "a test").await }
            });
            // The run reports nothing about a waiting pause; by then it has received it.
            sleep(Duration::from_millis(300)).await;
            fs::write(&gates[1], "").unwrap();
            asked.await.unwrap()
        };
        let (resumed, paused) = tokio::join!(resumed, paused);
        assert!(resumed.unwrap().live && paused.unwrap().live);
    };
    let (state, ()) = tokio::join!(fixture.drive(&default, None), steer);
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::Asked, .. }),
        "{}",
        fixture.case.event_text()
    );
    fixture.close();

    let folder = fixture.case.folder().unwrap();
    assert!(!folder.is_live());
    let once = ControlRequest::new(note("at rest"), "a test").unwrap();
    for _ in 0..2 {
        let ack = send_request(&fixture.host, &folder, &once).await.unwrap();
        assert_eq!((ack.live, &ack.id), (false, &once.id));
    }
    let deny = Control::DenyHost(hosts(&["bad.io"]));
    assert!(!send(&fixture.host, &folder, &deny, "a test").await.unwrap().live);
    // All or nothing.
    let refused = send(&fixture.host, &folder, &Control::AllowHost(hosts(&["z.io", "bad.io"])), "a test").await;
    assert!(matches!(refused, Err(Error::ControlRefused { .. })), "{refused:?}");
    let resumed = send(&fixture.host, &folder, &Control::Resume, "a test").await;
    assert!(matches!(resumed, Err(Error::NotRunning { .. })), "{resumed:?}");
    let want: Vec<(Control, String)> = [
        note("live"),
        Control::AllowHost(hosts(&["x.io", "y.io"])),
        Control::Resume,
        Control::Pause,
        note("at rest"),
        deny,
    ]
    .map(|control| (control, "a test".to_owned()))
    .into();
    assert_eq!(applied(&fixture), want, "{}", fixture.case.event_text());
    let policy = serde_json::to_string(fixture.case.state().unwrap().policy()).unwrap();
    assert_eq!(policy, r#"{"mode":"allowlist","allow":["x.io","y.io"],"deny":["bad.io"]}"#);
    let notes = fs::read_to_string(folder.mirror("notes.md")).unwrap();
    assert_eq!((notes.matches("live").count(), notes.matches("at rest").count()), (1, 1), "{notes}");

    let state = fixture.drive(&default, None).await;
    assert!(matches!(state.status, RunStatus::Failed { .. }), "{}", fixture.case.event_text());
}

/// A control that fails is answered with the reason, and the run pauses; it is neither lost nor sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_control_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let work = ModelBehaviour::ok(answer("Wait.", &[gate(&dir.path().join("never"))]));
    let server = FakeModelServer::with_behaviours([work]).await.unwrap();
    let fixture = RunFixture::new().await;
    let mut runner = fixture.begin(&own_profile(&server), None).await;
    let (host, home) = (fixture.host.clone(), fixture.case.home());
    let steer = async {
        let folder = wait_for_actions(&home, 1).await;
        let notes = folder.mirror("notes.md");
        fs::remove_file(&notes).unwrap();
        fs::create_dir(&notes).unwrap();
        let failed = timeout(Duration::from_secs(30), send(&host, &folder, &note("lost"), "a test")).await.unwrap();
        match failed {
            Err(Error::ControlRefused { why, .. }) => assert!(why.contains("notes.md"), "{why}"),
            other => panic!("{other:?}"),
        }
    };
    let (driven, ()) = tokio::join!(timeout(Duration::from_mins(2), runner.drive()), steer);
    let status = &driven.unwrap().unwrap().status;
    assert!(matches!(status, RunStatus::Paused { reason: RunStopReason::Host { .. }, .. }), "{status:?}");
}

/// Concurrent requests all succeed, although each has to lock the resting run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_resting_run_wait_for_each_other() {
    let (fixture, _server) = Box::pin(resting_run()).await;
    let folder = fixture.case.folder().unwrap();
    let notes = [note("one"), note("two"), note("three")];
    let [one, two, three] = notes.each_ref().map(|note| send(&fixture.host, &folder, note, "a test"));
    let (one, two, three) = tokio::join!(one, two, three);
    for ack in [one, two, three] {
        assert!(!ack.unwrap().live);
    }
    assert_eq!(applied(&fixture).len(), 3, "{}", fixture.case.event_text());
}

/// Returns a run that waits for the user, held by no process.
async fn resting_run() -> (RunFixture, FakeModelServer) {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(ask_person())]).await.unwrap();
    let mut fixture = RunFixture::new().await;
    let state = fixture.drive(&own_profile(&server), None).await;
    assert!(matches!(state.status, RunStatus::Paused { .. }), "{}", fixture.case.event_text());
    fixture.close();
    (fixture, server)
}

fn own_profile(server: &FakeModelServer) -> PinnedProfile {
    profile("own", "openai/lab", Some(server.base_url()))
}

/// Resumes the run, at the first try.
async fn take_up(fixture: &RunFixture) -> Runner {
    let (raise, stops, folder) = (BudgetRaise::default(), StopSignals::default(), fixture.case.folder().unwrap());
    let quiet = Box::new(SilentObserver);
    resume(&fixture.host, folder, raise, RecreateSandbox::No, quiet, stops, KeepSandbox::Always).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_run_releases_everything() {
    let (fixture, _server) = Box::pin(resting_run()).await;
    let folder = fixture.case.folder().unwrap();
    for _ in 0..3 {
        let runner = take_up(&fixture).await;
        assert!(folder.is_live());
        runner.close().await.unwrap();
        assert!(!folder.is_live() && !folder.socket_path().exists());
        for name in ["lock", "audit.jsonl"] {
            let file = File::open(folder.path().join(name)).unwrap();
            assert!(file.try_lock().is_ok(), "`{name}` is still held");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liveness_probes_disturb_no_process() {
    const PROBES: u32 = 1000;
    let (fixture, _server) = Box::pin(resting_run()).await;
    let (folder, enough) = (fixture.case.folder().unwrap(), AtomicBool::new(false));
    let probes = std::thread::scope(|scope| {
        let prober = scope.spawn(|| {
            let mut probes = 0;
            while probes < PROBES || !enough.load(Ordering::Relaxed) {
                folder.is_live();
                probes += 1;
            }
            probes
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for _ in 0..10 {
                    take_up(&fixture).await.close().await.unwrap();
                }
            });
        });
        enough.store(true, Ordering::Relaxed);
        prober.join().unwrap()
    });
    assert!(probes >= PROBES);
}
