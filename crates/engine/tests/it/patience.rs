//! What a person sees and can do while a provider makes a run wait, and how a run ends that its budget ends.

use std::time::{Duration, Instant};

use ralph_core::budget::Limit;
use ralph_core::control::Control;
use ralph_core::event::{Event, Level, Line, Reason};
use ralph_core::money::Micros;
use ralph_core::run::{State, Status};
use ralph_engine::control::ask;
use ralph_engine::run::Stops;
use ralph_engine::store::{Folder, Home, read_events};
use ralph_testkit::model::{Behaviour, Server};
use serde_json::json;
use tokio::time::sleep;

use super::lab::{Lab, answer, last, profile};

/// Waits until the run has told that its provider asks for patience.
async fn told(home: &Home) -> Folder {
    let trouble = |line: &Line| matches!(&line.event, Event::Log { level: Level::Warn, text } if text.contains("429"));
    for _ in 0..1000 {
        if let Some(folder) = home.ids().unwrap().first().map(|id| home.folder(id))
            && read_events(&folder.events_path(), &folder.id()).is_ok_and(|lines| lines.iter().any(trouble))
        {
            return folder;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was told of the wait");
}

/// Drives a run whose provider asks for half a minute's patience, and does something as soon as that was told.
async fn meanwhile(lab: &mut Lab, act: impl AsyncFnOnce(Folder)) -> (State, Server) {
    let server = Server::start([Behaviour::rate_limited("30"), Behaviour::ok(last())]).await.unwrap();
    let default = profile("own", "openai/lab", Some(server.url()));
    let (home, began) = (lab.case.home(), Instant::now());
    let (state, ()) = tokio::join!(lab.drive(&default, None), async { act(told(&home).await).await });
    assert!(began.elapsed() < Duration::from_secs(25), "the wait was not ended");
    (state, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_to_stop_ends_the_wait_and_costs_nothing() {
    let mut lab = Lab::new().await.patient();
    let soon = lab.stops.soon.clone();
    let (state, server) = meanwhile(&mut lab, async move |_| soon.cancel()).await;
    assert!(matches!(state.status, Status::Paused { reason: Reason::Interrupted, .. }), "{}", lab.case.told());
    assert_eq!((state.spent.cost, server.requests().len()), (Micros::ZERO, 1), "{}", lab.case.told());
    // It goes on where it was.
    lab.stops = Stops::default();
    let state = lab.drive(&profile("own", "openai/lab", Some(server.url())), None).await;
    assert!(matches!(state.status, Status::Failed { .. }), "{}", lab.case.told());
    assert_eq!((state.spent.iterations, server.requests().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_words_are_heard_in_the_wait() {
    let mut lab = Lab::new().await.patient();
    let (state, server) = Box::pin(meanwhile(&mut lab, async |folder| {
        ask(&folder, &Control::Note { text: "be patient".to_owned() }, "a person").await.unwrap();
        ask(&folder, &Control::Pause, "a person").await.unwrap();
    }))
    .await;
    assert!(matches!(state.status, Status::Paused { reason: Reason::Asked, .. }), "{}", lab.case.told());
    assert_eq!((state.spent.cost, server.requests().len()), (Micros::ZERO, 1), "{}", lab.case.told());
}

/// The call that would pass the cap is not made, and all that was done before is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_hands_over_what_was_done() {
    let work = |n: u32| {
        let write = json!({"type": "write", "path": format!("part-{n}.txt"), "content": "x\n"});
        Behaviour::ok(answer("More.", &[write, json!({"type": "commit", "message": format!("part {n}")})]))
    };
    let server = Server::start([work(1), work(2), work(3)]).await.unwrap();
    let mut lab = Lab::new().await;
    let default = profile("own", "openai/lab", Some(server.url()));
    lab.cost = Some(Micros(20_000));
    let state = lab.drive(&default, None).await;
    let spent = matches!(&state.status, Status::Failed { reason: Reason::Budget { limit: Limit::Cost }, .. });
    assert!(spent && state.spent.iterations > 0, "{}", lab.case.told());
    assert!(state.imported.is_some() && state.pushed == state.imported, "{}", lab.case.told());
}
