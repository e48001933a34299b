//! What was bought is told whatever becomes of the run: after a death in the middle of a call, and when a call is still
//! being counted at the end.

use std::time::Duration;

use ralph_core::audit::AuditRecordKind;
use ralph_core::control::Control;
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
use ralph_proxy::observer::{ChargeBasis, ChargedCall, EgressEntry, EgressEvent, EgressExchange};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::run_fixture::{RunFixture, final_answer, profile};

/// What a person does with a run whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashFollowUp {
    Resume,
    Recreate,
    Rewind,
    Stop,
}

const ALL: [CrashFollowUp; 4] =
    [CrashFollowUp::Resume, CrashFollowUp::Recreate, CrashFollowUp::Rewind, CrashFollowUp::Stop];

async fn follow_up(lab: &RunFixture, then: CrashFollowUp) {
    let folder = lab.case.folder().unwrap();
    match then {
        CrashFollowUp::Stop => {
            drop(send(&lab.host, &folder, &Control::Stop, "a test").await.unwrap());
        }
        CrashFollowUp::Rewind => {
            rewind(&lab.host, folder.clone(), 0, Box::new(SilentObserver)).await.unwrap();
            lab.resume(&folder, RecreateSandbox::No).await.drive().await.unwrap();
        }
        CrashFollowUp::Resume => drop(lab.resume(&folder, RecreateSandbox::No).await.drive().await.unwrap()),
        CrashFollowUp::Recreate => drop(lab.resume(&folder, RecreateSandbox::Yes).await.drive().await.unwrap()),
    }
}

/// Every call in the events: whether it was lost, and what it was charged.
fn calls(lab: &RunFixture) -> Vec<(bool, MicroUsd)> {
    let call = |event| match event {
        Event::ModelCalled { answer, cost, .. } => Some((answer == ModelCallOutcome::Lost, cost)),
        _ => None,
    };
    lab.events().into_iter().filter_map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_a_dead_process_left_is_charged_once() {
    for then in ALL {
        let server =
            FakeModelServer::with_behaviours([ModelBehaviour::Hang, ModelBehaviour::ok(final_answer())]).await.unwrap();
        let lab = RunFixture::new().await;
        let own = profile("own", "openai/lab", Some(server.base_url()));
        let mut runner = lab.begin(&own, None).await;
        tokio::select! {
            _ = runner.drive() => panic!("the call never ends"),
            _ = server.wait_for_unanswered(0) => (),
        }
        drop(runner);
        let path = lab.case.folder().unwrap().iteration(1).join("call-0.reserved.json");
        let reserved: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let worst = MicroUsd(reserved["cost"].as_u64().unwrap());
        Box::pin(follow_up(&lab, then)).await;
        let calls = calls(&lab);
        let lost: Vec<MicroUsd> = calls.iter().filter(|(lost, _)| *lost).map(|(_, cost)| *cost).collect();
        assert_eq!(lost, [worst], "{then:?}\n{}", lab.case.event_text());
        assert_eq!(calls.len(), if then == CrashFollowUp::Stop { 1 } else { 2 }, "{then:?}");
        assert_eq!(lab.case.state().unwrap().spent.cost, calls.iter().map(|(_, cost)| *cost).sum(), "{then:?}");
        // The audit file tells of each use of the key, and of what it was charged, once.
        let told: Vec<_> = audited_calls(&lab).into_iter().map(|(told, ..)| told).collect();
        let answered = ["calling worst", "exchange 200 reported"];
        let want = ["calling worst", "exchange - worst"].into_iter().chain(answered);
        assert_eq!(told, want.take(2 * calls.len()).collect::<Vec<_>>(), "{then:?}");
    }
}

/// What the audit file says of the run's own calls: what is told, with which credential, and what it cost.
fn audited_calls(lab: &RunFixture) -> Vec<(String, Option<String>, MicroUsd)> {
    let mut reader = AuditReader::new(&lab.case.folder().unwrap());
    let mut told = Vec::new();
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
        told.push((text, record.credential, record.cost.unwrap()));
    }
    told
}

/// A run that asks its model itself leaves the same traces as one whose agent does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_use_of_the_key_is_in_the_audit_file() {
    let overloaded = ModelBehaviour::error(503, "overloaded", "later");
    let server = FakeModelServer::with_behaviours([
        overloaded,
        ModelBehaviour::ok("no answer"),
        ModelBehaviour::ok(final_answer()),
    ])
    .await
    .unwrap();
    let mut lab = RunFixture::new().await;
    let state = lab.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    let told = audited_calls(&lab);
    let texts: Vec<&str> = told.iter().map(|(text, ..)| text.as_str()).collect();
    let (calling, answered) = ("calling worst", "exchange 200 reported");
    assert_eq!(texts, [calling, "exchange 503 nothing", answered, calling, answered]);
    assert!(told.iter().all(|(_, credential, _)| credential.as_deref() == Some("LAB_KEY")), "{told:?}");
    let exchanged = told.iter().filter(|(text, ..)| text.starts_with("exchange")).map(|(.., cost)| *cost);
    assert_eq!(exchanged.sum::<MicroUsd>(), state.spent.cost);
    assert!(state.spent.cost > MicroUsd::ZERO);
    let folder = lab.case.folder().unwrap();
    let report = verify(&folder).unwrap().unwrap();
    assert_eq!((report.head.lines, report.unanchored()), (5, 0));
    assert_eq!(std::fs::read_to_string(folder.path().join("calls.jsonl")).unwrap(), "", "it tells of agents");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_answer_is_charged_once() {
    for then in ALL {
        let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(final_answer())]).await.unwrap();
        let mut lab = RunFixture::new().await;
        lab.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
        lab.close();
        // The process died when the answer was kept and no event told of it.
        let path = lab.case.folder().unwrap().events_path();
        let whole = std::fs::read_to_string(&path).unwrap();
        let before: Vec<&str> = whole.lines().take_while(|line| !line.contains("model-called")).collect();
        std::fs::write(&path, before.join("\n") + "\n").unwrap();
        Box::pin(follow_up(&lab, then)).await;
        // Where the iteration begins again, another answer is bought.
        let bought = if matches!(then, CrashFollowUp::Resume | CrashFollowUp::Stop) { 1 } else { 2 };
        let calls = calls(&lab);
        assert_eq!(server.requests().len(), bought, "{then:?}");
        assert_eq!(calls.len(), bought, "{then:?}\n{}", lab.case.event_text());
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
        let mut lab = RunFixture::new().await;
        if counts.is_some() {
            lab.host.pace = RetryPace::default();
        }
        let mut runner = lab.begin(&profile("own", "openai/lab", Some(server.base_url())), None).await;
        let folder = lab.case.folder().unwrap();
        // A check asked a model and hung up: whoever serves the doors goes on reading.
        let book = AuditLog::open(&folder, Redactor::new([])).unwrap();
        let (route, model) = ("own".to_owned(), "lab".to_owned());
        book.write("a-sandbox", &EgressEvent::CallReserved { id: ID, route, model, cost: worst, tokens: 100 });
        let counting = async {
            let Some(cost) = counts else { return std::future::pending().await };
            while !lab.events().iter().any(|event| matches!(event, Event::PrOpened { .. })) {
                sleep(Duration::from_millis(20)).await;
            }
            sleep(Duration::from_millis(300)).await;
            book.write("a-sandbox", &counted_exchange(ID, cost));
            std::future::pending::<()>().await;
        };
        let status = tokio::select! {
            state = runner.drive() => state.unwrap().status.clone(),
            () = counting => unreachable!("waits for ever"),
        };
        assert_eq!(status, RunStatus::Succeeded, "{}", lab.case.event_text());
        let (events, state) = (lab.events(), lab.case.state().unwrap());
        let through = |event: &Event| match event {
            Event::ModelCalled { answer: ModelCallOutcome::Through { .. }, cost, .. } => Some(*cost),
            _ => None,
        };
        let told: Vec<MicroUsd> = events.iter().filter_map(through).collect();
        assert_eq!(told, [counts.unwrap_or(worst)]);
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "the end is its last word");
        let receipt = std::fs::read_to_string(folder.receipt_path()).unwrap();
        let receipt = ralph_engine::receipt::read(&receipt).unwrap();
        assert_eq!(receipt.body.cost_micro_usd, Some(state.spent.cost));
        assert!(state.spent.cost > told[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsettled_call_is_recorded_before_a_pause() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::error(401, "invalid_api_key", "no")]).await.unwrap();
    let lab = RunFixture::new().await;
    let mut runner = lab.begin(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    let book = AuditLog::open(&lab.case.folder().unwrap(), Redactor::new([])).unwrap();
    let (route, model) = ("own".to_owned(), "lab".to_owned());
    book.write("a-sandbox", &EgressEvent::CallReserved { id: 1 << 41, route, model, cost: MicroUsd(70), tokens: 100 });
    let state = runner.drive().await.unwrap();
    assert!(matches!(state.status, RunStatus::Paused { .. }), "{:?}", state.status);
    assert_eq!(state.spent.cost, MicroUsd(70));
}
