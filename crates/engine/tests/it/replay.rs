//! Tests that a run recorded against a server replays without it.

use ralph_core::event::{Event, ModelCallOutcome};
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::run::CONVERSATION_FILE;
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::json;

use super::run_fixture::{KEY, RunFixture, answer, final_answer, profile};

/// Returns what must be the same: every answer, and its effects.
fn replayed_events(fixture: &RunFixture) -> Vec<String> {
    let entry = |event: Event| match event {
        // A replay loses no calls, so they are not compared.
        Event::ModelCalled { answer: ModelCallOutcome::Lost, .. } => None,
        // The reason for rejecting the answer with the key differs: the recording no longer contains the key.
        Event::ModelCalled { n, answer: ModelCallOutcome::Invalid { .. }, usage, .. } => {
            Some(format!("{n} invalid {usage:?}"))
        }
        Event::ModelCalled { n, answer, usage, cost, .. } => Some(format!("{n} {answer:?} {usage:?} {cost:?}")),
        Event::ActionFinished { n, index, outcome, .. } => Some(format!("{n}.{index} {outcome:?}")),
        Event::IterationFinished { n, outcome, summary, .. } => Some(format!("{n} {outcome:?} {summary}")),
        _ => None,
    };
    fixture.events().into_iter().filter_map(entry).collect()
}

/// Returns every answer as the run stored it.
fn responses(fixture: &RunFixture, iterations: u32) -> Vec<String> {
    let folder = fixture.case.folder().unwrap();
    (1..=iterations).map(|n| std::fs::read_to_string(folder.iteration(n).join("response.json")).unwrap()).collect()
}

fn gave_up(state: &RunState) -> bool {
    matches!(state.status, RunStatus::Failed { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_run_replays_without_its_provider() {
    let write = |text: &str| json!({"type": "write", "path": "out.txt", "content": text});
    let odd = "quotes \" and \\ and \u{1F980}\u{202E} and a\ttab\n";
    let leak = answer("Look.", &[json!({"type": "run", "command": format!("echo {KEY}")})]);
    let server = FakeModelServer::with_behaviours([
        ModelBehaviour::status(500),
        ModelBehaviour::ok("not an answer"),
        ModelBehaviour::rate_limited("1"),
        ModelBehaviour::ok(format!(
            "```json\n{}\n```",
            answer("One.", &[write(odd), json!({"type": "commit", "message": "one"})])
        )),
        ModelBehaviour::Cut,
        ModelBehaviour::ok(leak),
        ModelBehaviour::invalid_json(),
        ModelBehaviour::ok(answer(odd, &[write("two")])),
        ModelBehaviour::ok(final_answer()),
    ])
    .await
    .unwrap();
    let mut first = RunFixture::new().await;
    let state = first.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    assert!(gave_up(&state), "{}", first.case.event_text());
    assert_eq!((server.requests().len(), server.answered(), state.spent.iterations), (9, 5, 3));
    drop(server);

    let script = first.case.folder().unwrap().path().join(CONVERSATION_FILE);
    let text = std::fs::read_to_string(&script).unwrap();
    assert!(!text.contains(KEY), "{text}");
    assert_eq!(text.lines().count(), 1 + 5, "{text}");

    let mut second = RunFixture::new().await;
    let again = second.drive(&profile("played", &format!("scripted/{}", script.display()), None), None).await;
    assert!(gave_up(&again), "{}", second.case.event_text());
    assert_eq!(replayed_events(&second), replayed_events(&first));
    assert_eq!(responses(&second, 3), responses(&first, 3));

    // A replay is recorded like any other run, identical to the byte.
    let copy = std::fs::read_to_string(second.case.folder().unwrap().path().join(CONVERSATION_FILE)).unwrap();
    assert_eq!(copy, text);
}
