//! Tests that every paid call is reported whatever happens to the run: after a crash during a call, and when a call is
//! still being counted at the end.

use std::time::Duration;

use ralph_core::audit::AuditRecordKind;
use ralph_core::control_request::Control;
use ralph_core::event::{Event, ModelCallOutcome};
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_core::run::RunStatus;
use ralph_engine::audit::{AuditLog, AuditReader, verify};
use ralph_engine::control::send;
use ralph_engine::model::RetryPace;
use ralph_engine::run::{RecreateSandbox, rewind};
use ralph_engine::store::SilentObserver;
use ralph_proxy::egress_events::{ChargeBasis, ChargedCall, EgressEntry, EgressEvent, EgressExchange};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::run_fixture::{RunFixture, final_answer, profile};

/// What the user does with a run whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashFollowUp {
    Resume,
    Recreate,
    Rewind,
    Stop,
}

const ALL: [CrashFollowUp; 4] =
    [CrashFollowUp::Resume, CrashFollowUp::Recreate, CrashFollowUp::Rewind, CrashFollowUp::Stop];

async fn follow_up(fixture: &RunFixture, then: CrashFollowUp) {
    let folder = fixture.case.folder().unwrap();
    match then {
        CrashFollowUp::Stop => {
            drop(send(&fixture.host, &folder, &Control::Stop, "a test").await.unwrap());
        }
        CrashFollowUp::Rewind => {
            rewind(&fixture.host, folder.clone(), 0, Box::new(SilentObserver)).await.unwrap();
            fixture.resume(&folder, RecreateSandbox::No).await.drive().await.unwrap();
        }
        CrashFollowUp::Resume => drop(fixture.resume(&folder, RecreateSandbox::No).await.drive().await.unwrap()),
        CrashFollowUp::Recreate => drop(fixture.resume(&folder, RecreateSandbox::Yes).await.drive().await.unwrap()),
    }
}

/// Returns every call in the events: whether it was lost, and its charge.
fn calls(fixture: &RunFixture) -> Vec<(bool, MicroUsd)> {
    let call = |event| match event {
        Event::ModelCalled { answer, cost, .. } => Some((answer == ModelCallOutcome::Lost, cost)),
        _ => None,
    };
    fixture.events().into_iter().filter_map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_left_by_a_dead_process_is_charged_once() {
    for then in ALL {
        let server =
            FakeModelServer::with_behaviours([ModelBehaviour::Hang, ModelBehaviour::ok(final_answer())]).await.unwrap();
        let fixture = RunFixture::new().await;
        let own = profile("own", "openai/lab", Some(server.base_url()));
        let mut runner = fixture.begin(&own, None).await;
        tokio::select! {
            _ = runner.drive() => panic!("the call never ends"),
            _ = server.wait_for_unanswered(0) => (),
        }
        drop(runner);
        let path = fixture.case.folder().unwrap().iteration(1).join("call-0.reserved.json");
        let reserved: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let worst = MicroUsd(reserved["cost"].as_u64().unwrap());
        Box::pin(follow_up(&fixture, then)).await;
        let calls = calls(&fixture);
        let lost: Vec<MicroUsd> = calls.iter().filter(|(lost, _)| *lost).map(|(_, cost)| *cost).collect();
        assert_eq!(lost, [worst], "{then:?}\n{}", fixture.case.event_text());
        assert_eq!(calls.len(), if then == CrashFollowUp::Stop { 1 } else { 2 }, "{then:?}");
        assert_eq!(fixture.case.state().unwrap().spent.cost, calls.iter().map(|(_, cost)| *cost).sum(), "{then:?}");
        // The audit log reports each use of the key and its charge, once.
        let audited: Vec<_> = audited_calls(&fixture).into_iter().map(|(audited, ..)| audited).collect();
        let answered = ["calling worst", "exchange 200 reported"];
        let want = ["calling worst", "exchange - worst"].into_iter().chain(answered);
        assert_eq!(audited, want.take(2 * calls.len()).collect::<Vec<_>>(), "{then:?}");
    }
}

/// Returns what the audit log says of the run's own calls: the record, the credential, and the cost.
fn audited_calls(fixture: &RunFixture) -> Vec<(String, Option<String>, MicroUsd)> {
    let mut reader = AuditReader::new(&fixture.case.folder().unwrap());
    let mut audited = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        let record = entry.record.unwrap();
        assert!(!entry.text.contains(super::run_fixture::KEY));
        assert_eq!((record.entry.as_deref(), record.host.as_deref()), (Some("engine"), Some("127.0.0.1")));
        let status = match record.kind {
            AuditRecordKind::Exchange => {
                format!(" {}", record.status.map_or_else(|| "-".to_owned(), |status| status.to_string()))
            }
            _ => String::new(),
        };
        let text = format!("{}{status} {}", record.kind, record.charge.unwrap_or_default());
        audited.push((text, record.credential, record.cost.unwrap()));
    }
    audited
}

/// A run that calls its model itself leaves the same records as one whose agent does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_use_of_the_key_is_in_the_audit_log() {
    let overloaded = ModelBehaviour::error(503, "overloaded", "later");
    let server = FakeModelServer::with_behaviours([
        overloaded,
        ModelBehaviour::ok("no answer"),
        ModelBehaviour::ok(final_answer()),
    ])
    .await
    .unwrap();
    let mut fixture = RunFixture::new().await;
    let state = fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    let audited = audited_calls(&fixture);
    let texts: Vec<&str> = audited.iter().map(|(text, ..)| text.as_str()).collect();
    let (calling, answered) = ("calling worst", "exchange 200 reported");
    assert_eq!(texts, [calling, "exchange 503 nothing", answered, calling, answered]);
    assert!(audited.iter().all(|(_, credential, _)| credential.as_deref() == Some("LAB_KEY")), "{audited:?}");
    let exchanged = audited.iter().filter(|(text, ..)| text.starts_with("exchange")).map(|(.., cost)| *cost);
    assert_eq!(exchanged.sum::<MicroUsd>(), state.spent.cost);
    assert!(state.spent.cost > MicroUsd::ZERO);
    let folder = fixture.case.folder().unwrap();
    let report = verify(&folder).unwrap().unwrap();
    assert_eq!((report.head.lines, report.unanchored()), (5, 0));
    assert_eq!(std::fs::read_to_string(folder.path().join("calls.jsonl")).unwrap(), "", "it is for agents' calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_answer_is_charged_once() {
    for then in ALL {
        let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(final_answer())]).await.unwrap();
        let mut fixture = RunFixture::new().await;
        fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
        fixture.close();
        // The process died when the answer was stored but not yet in an event.
        let path = fixture.case.folder().unwrap().events_path();
        let whole = std::fs::read_to_string(&path).unwrap();
        let before: Vec<&str> = whole.lines().take_while(|line| !line.contains("model-called")).collect();
        std::fs::write(&path, before.join("\n") + "\n").unwrap();
        Box::pin(follow_up(&fixture, then)).await;
        // If the iteration begins again, another answer is paid for.
        let bought = if matches!(then, CrashFollowUp::Resume | CrashFollowUp::Stop) { 1 } else { 2 };
        let calls = calls(&fixture);
        assert_eq!(server.requests().len(), bought, "{then:?}");
        assert_eq!(calls.len(), bought, "{then:?}\n{}", fixture.case.event_text());
        assert!(calls.iter().all(|(lost, cost)| !lost && *cost > MicroUsd::ZERO), "{then:?}: {calls:?}");
    }
}

fn counted_exchange(id: u64, cost: MicroUsd) -> EgressEvent {
    let usage = TokenUsage { input: 5, output: 7, ..TokenUsage::default() };
    let (route, model) = ("own".to_owned(), "lab".to_owned());
    let charge = ChargeBasis::Reported;
    let call = ChargedCall { id, route, model, answered_by: None, usage, cost, charge, limits: Vec::new() };
    EgressEvent::Exchange(EgressExchange {
        entry: EgressEntry::Route,
        host: "x.io".to_owned(),
        port: 443,
        method: "POST".to_owned(),
        path: "/".to_owned(),
        status: Some(200),
        sent: 0,
        received: 0,
        credential: None,
        call: Some(call),
        refused: None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsettled_call_is_recorded_before_the_end() {
    const ID: u64 = 1 << 40;
    let worst = MicroUsd(90_000);
    for counts in [Some(MicroUsd(4_000)), None] {
        let done = json!({"summary": "Done.", "claims": {}, "actions": [
            {"type": "write", "path": "out.txt", "content": "done\n"}, {"type": "stop_success", "reason": "done"}]});
        let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(done.to_string())]).await.unwrap();
        let mut fixture = RunFixture::new().await;
        if counts.is_some() {
            fixture.host.pace = RetryPace::default();
        }
        let mut runner = fixture.begin(&profile("own", "openai/lab", Some(server.base_url())), None).await;
        let folder = fixture.case.folder().unwrap();
        // A check called a model and hung up: the proxy continues to read.
        let audit_log = AuditLog::open(&folder, Redactor::new([])).unwrap();
        let (route, model) = ("own".to_owned(), "lab".to_owned());
        audit_log.write("a-sandbox", &EgressEvent::CallReserved { id: ID, route, model, cost: worst, tokens: 100 });
        let counting = async {
            let Some(cost) = counts else { return std::future::pending().await };
            while !fixture.events().iter().any(|event| matches!(event, Event::PrOpened { .. })) {
                sleep(Duration::from_millis(20)).await;
            }
            sleep(Duration::from_millis(300)).await;
            audit_log.write("a-sandbox", &counted_exchange(ID, cost));
            std::future::pending::<()>().await;
        };
        let status = tokio::select! {
            state = runner.drive() => state.unwrap().status.clone(),
            () = counting => unreachable!("waits for ever"),
        };
        assert_eq!(status, RunStatus::Succeeded, "{}", fixture.case.event_text());
        let (events, state) = (fixture.events(), fixture.case.state().unwrap());
        let through = |event: &Event| match event {
            Event::ModelCalled { answer: ModelCallOutcome::Through { .. }, cost, .. } => Some(*cost),
            _ => None,
        };
        let charged: Vec<MicroUsd> = events.iter().filter_map(through).collect();
        assert_eq!(charged, [counts.unwrap_or(worst)]);
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "the end is the last event");
        let receipt = std::fs::read_to_string(folder.receipt_path()).unwrap();
        let receipt = ralph_engine::receipt::read(&receipt).unwrap();
        assert_eq!(receipt.body.cost_micro_usd, Some(state.spent.cost));
        assert!(state.spent.cost > charged[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsettled_call_is_recorded_before_a_pause() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::error(401, "invalid_api_key", "no")]).await.unwrap();
    let fixture = RunFixture::new().await;
    let mut runner = fixture.begin(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    let audit_log = AuditLog::open(&fixture.case.folder().unwrap(), Redactor::new([])).unwrap();
    let (route, model) = ("own".to_owned(), "lab".to_owned());
    audit_log
        .write("a-sandbox", &EgressEvent::CallReserved { id: 1 << 41, route, model, cost: MicroUsd(70), tokens: 100 });
    let state = runner.drive().await.unwrap();
    assert!(matches!(state.status, RunStatus::Paused { .. }), "{:?}", state.status);
    assert_eq!(state.spent.cost, MicroUsd(70));
}
