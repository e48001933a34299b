//! Tests that setting the wall clock while a run works neither adds to nor takes from its time budget.

use std::time::Duration;

use jiff::{Span, Timestamp};
use ralph_core::control_request::Control;
use ralph_core::event::RunStopReason;
use ralph_core::run::RunStatus;
use ralph_engine::control::send;
use ralph_engine::run::RecreateSandbox;
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};

use super::run_fixture::{RunFixture, final_answer, profile};

/// Begins a run whose first event is dated this many hours from now.
async fn fixture_started_at(hours: i64, server: &FakeModelServer) -> RunFixture {
    let fixture = RunFixture::new().await;
    drop(fixture.begin(&profile("own", "openai/lab", Some(server.base_url())), None).await);
    let path = fixture.case.folder().unwrap().events_path();
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("\"at\":\"").unwrap();
    let (_, after) = rest.split_once('"').unwrap();
    let at = Timestamp::now() + Span::new().hours(hours);
    std::fs::write(&path, format!("{before}\"at\":\"{at}\"{after}")).unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setting_the_clock_back_adds_no_time() {
    let slow = ModelBehaviour::PacedChunks { content: final_answer(), pieces: 10, pause: Duration::from_millis(200) };
    let server = FakeModelServer::with_behaviours([slow]).await.unwrap();
    let fixture = Box::pin(fixture_started_at(24, &server)).await;
    let mut runner = fixture.resume(&fixture.case.folder().unwrap(), RecreateSandbox::No).await;
    let state = runner.drive().await.unwrap();
    assert!(
        matches!(state.status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }),
        "{:?}",
        state.status
    );
    assert!((1000..600_000).contains(&state.spent.wall_ms), "{}", state.spent.wall_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_between_two_processes_does_not_count() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(final_answer())]).await.unwrap();
    let fixture = Box::pin(fixture_started_at(-24, &server)).await;
    let raise = Control::RaiseBudget { iterations: 1, minutes: 0, cost_usd: 0.0, tokens: 0 };
    send(&fixture.host, &fixture.case.folder().unwrap(), &raise, "a test").await.unwrap();
    assert!(fixture.case.state().unwrap().spent.wall_ms < 600_000, "{}", fixture.case.event_text());
}
