//! Tests what the user sees and can do while a provider makes a run wait, and how a run ends when its budget is spent.

use std::time::{Duration, Instant};

use ralph_core::budget::BudgetKind;
use ralph_core::control_request::Control;
use ralph_core::event::{Event, EventLine, EventLogLevel, RunStopReason};
use ralph_core::money::MicroUsd;
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::control::send;
use ralph_engine::run::StopSignals;
use ralph_engine::store::{RalphHome, RunFolder, read_events};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::json;
use tokio::time::sleep;

use super::run_fixture::{RunFixture, answer, final_answer, profile};

/// Waits until the run has reported that its provider limits the rate.
async fn wait_for_rate_limit(home: &RalphHome) -> RunFolder {
    let rate_limited = |line: &EventLine| matches!(&line.event, Event::Log { level: EventLogLevel::Warn, text } if text.contains("429"));
    for _ in 0..1000 {
        if let Some(folder) = home.run_ids().unwrap().first().map(|id| home.run_folder(id))
            && read_events(&folder.events_path(), &folder.id()).is_ok_and(|lines| lines.iter().any(rate_limited))
        {
            return folder;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the wait was not reported");
}

/// Drives a run whose provider asks for a wait of half a minute, and acts as soon as that was reported.
async fn drive_rate_limited(fixture: &mut RunFixture, act: impl AsyncFnOnce(RunFolder)) -> (RunState, FakeModelServer) {
    let server =
        FakeModelServer::with_behaviours([ModelBehaviour::rate_limited("30"), ModelBehaviour::ok(final_answer())])
            .await
            .unwrap();
    let default = profile("own", "openai/lab", Some(server.base_url()));
    let (home, began) = (fixture.case.home(), Instant::now());
    let (state, ()) =
        tokio::join!(fixture.drive(&default, None), async { act(wait_for_rate_limit(&home).await).await });
    assert!(began.elapsed() < Duration::from_secs(25), "the wait was not ended");
    (state, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_the_wait_and_costs_nothing() {
    let mut fixture = RunFixture::new().await.with_real_backoff();
    let soon = fixture.stops.soon.clone();
    let (state, server) = Box::pin(drive_rate_limited(&mut fixture, async move |_| soon.cancel())).await;
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::Interrupted, .. }),
        "{}",
        fixture.case.event_text()
    );
    assert_eq!((state.spent.cost, server.requests().len()), (MicroUsd::ZERO, 1), "{}", fixture.case.event_text());
    // It continues where it was.
    fixture.stops = StopSignals::default();
    let state = fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    assert!(matches!(state.status, RunStatus::Failed { .. }), "{}", fixture.case.event_text());
    assert_eq!((state.spent.iterations, server.requests().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_and_note_are_handled_during_the_wait() {
    let mut fixture = RunFixture::new().await.with_real_backoff();
    let host = fixture.host.clone();
    let (state, server) = Box::pin(drive_rate_limited(&mut fixture, async move |folder| {
        let note = Control::Note { text: "be patient".to_owned() };
        for control in [note, Control::Pause] {
            assert!(send(&host, &folder, &control, "a person").await.unwrap().live);
        }
    }))
    .await;
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::Asked, .. }),
        "{}",
        fixture.case.event_text()
    );
    assert_eq!((state.spent.cost, server.requests().len()), (MicroUsd::ZERO, 1), "{}", fixture.case.event_text());
}

/// The call that would exceed the cap is not made, and everything done before is published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_publishes_the_finished_work() {
    let work = |n: u32| {
        let write = json!({"type": "write", "path": format!("part-{n}.txt"), "content": "x\n"});
        ModelBehaviour::ok(answer("More.", &[write, json!({"type": "commit", "message": format!("part {n}")})]))
    };
    let server = FakeModelServer::with_behaviours([work(1), work(2), work(3)]).await.unwrap();
    let mut fixture = RunFixture::new().await;
    let default = profile("own", "openai/lab", Some(server.base_url()));
    fixture.cost = Some(MicroUsd(20_000));
    let state = fixture.drive(&default, None).await;
    let spent =
        matches!(&state.status, RunStatus::Failed { reason: RunStopReason::Budget { limit: BudgetKind::Cost }, .. });
    assert!(spent && state.spent.iterations > 0, "{}", fixture.case.event_text());
    assert!(state.imported.is_some() && state.pushed == state.imported, "{}", fixture.case.event_text());
}
