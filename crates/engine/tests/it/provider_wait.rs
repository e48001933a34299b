//! What a person sees and can do while a provider makes a run wait, and how a run ends that its budget ends.

use std::time::{Duration, Instant};

use ralph_core::budget::BudgetKind;
use ralph_core::control::Control;
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

/// Waits until the run has told that its provider asks for patience.
async fn wait_for_rate_limit(home: &RalphHome) -> RunFolder {
    let trouble = |line: &EventLine| matches!(&line.event, Event::Log { level: EventLogLevel::Warn, text } if text.contains("429"));
    for _ in 0..1000 {
        if let Some(folder) = home.run_ids().unwrap().first().map(|id| home.run_folder(id))
            && read_events(&folder.events_path(), &folder.id()).is_ok_and(|lines| lines.iter().any(trouble))
        {
            return folder;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was told of the wait");
}

/// Drives a run whose provider asks for half a minute's patience, and does something as soon as that was told.
async fn drive_rate_limited(lab: &mut RunFixture, act: impl AsyncFnOnce(RunFolder)) -> (RunState, FakeModelServer) {
    let server =
        FakeModelServer::with_behaviours([ModelBehaviour::rate_limited("30"), ModelBehaviour::ok(final_answer())])
            .await
            .unwrap();
    let default = profile("own", "openai/lab", Some(server.base_url()));
    let (home, began) = (lab.case.home(), Instant::now());
    let (state, ()) = tokio::join!(lab.drive(&default, None), async { act(wait_for_rate_limit(&home).await).await });
    assert!(began.elapsed() < Duration::from_secs(25), "the wait was not ended");
    (state, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_to_stop_ends_the_wait_and_costs_nothing() {
    let mut lab = RunFixture::new().await.with_real_backoff();
    let soon = lab.stops.soon.clone();
    let (state, server) = Box::pin(drive_rate_limited(&mut lab, async move |_| soon.cancel())).await;
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::Interrupted, .. }),
        "{}",
        lab.case.event_text()
    );
    assert_eq!((state.spent.cost, server.requests().len()), (MicroUsd::ZERO, 1), "{}", lab.case.event_text());
    // It goes on where it was.
    lab.stops = StopSignals::default();
    let state = lab.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    assert!(matches!(state.status, RunStatus::Failed { .. }), "{}", lab.case.event_text());
    assert_eq!((state.spent.iterations, server.requests().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_and_note_are_handled_during_the_wait() {
    let mut lab = RunFixture::new().await.with_real_backoff();
    let host = lab.host.clone();
    let (state, server) = Box::pin(drive_rate_limited(&mut lab, async move |folder| {
        let note = Control::Note { text: "be patient".to_owned() };
        for control in [note, Control::Pause] {
            assert!(send(&host, &folder, &control, "a person").await.unwrap().live);
        }
    }))
    .await;
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::Asked, .. }),
        "{}",
        lab.case.event_text()
    );
    assert_eq!((state.spent.cost, server.requests().len()), (MicroUsd::ZERO, 1), "{}", lab.case.event_text());
}

/// The call that would pass the cap is not made, and all that was done before is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_hands_over_what_was_done() {
    let work = |n: u32| {
        let write = json!({"type": "write", "path": format!("part-{n}.txt"), "content": "x\n"});
        ModelBehaviour::ok(answer("More.", &[write, json!({"type": "commit", "message": format!("part {n}")})]))
    };
    let server = FakeModelServer::with_behaviours([work(1), work(2), work(3)]).await.unwrap();
    let mut lab = RunFixture::new().await;
    let default = profile("own", "openai/lab", Some(server.base_url()));
    lab.cost = Some(MicroUsd(20_000));
    let state = lab.drive(&default, None).await;
    let spent =
        matches!(&state.status, RunStatus::Failed { reason: RunStopReason::Budget { limit: BudgetKind::Cost }, .. });
    assert!(spent && state.spent.iterations > 0, "{}", lab.case.event_text());
    assert!(state.imported.is_some() && state.pushed == state.imported, "{}", lab.case.event_text());
}
