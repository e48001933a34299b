//! Tests a provider that gives no answer, and a fallback that continues the open iteration.

use ralph_core::env_vars::Env;
use ralph_core::event::{Event, EventLogLevel, ModelCallOutcome, PinnedProfile, RunStopReason};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::run::RunStatus;
use ralph_engine::Error;
use ralph_testkit::model_server;
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};

use super::run_fixture::{RunFixture, answer, final_answer, profile};

/// Drives a run whose own provider behaves like this, with a working fallback elsewhere.
async fn with_fallback(fault: ModelBehaviour) -> (RunFixture, RunStatus, usize) {
    let (own, other) = (
        FakeModelServer::with_behaviours([fault]).await.unwrap(),
        FakeModelServer::with_behaviours([ModelBehaviour::ok(final_answer())]).await.unwrap(),
    );
    let mut fixture = RunFixture::new().await;
    let own_profile = profile("own", "openai/lab", Some(own.base_url()));
    let fallback = profile("other", "anthropic/lab", Some(other.base_url()));
    let state = fixture.drive(&own_profile, Some(&fallback)).await;
    (fixture, state.status, own.requests().len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_endpoint_continues_the_open_iteration() {
    for (fault, lost, asked) in [
        (ModelBehaviour::overloaded(), 0, 8),
        (
            ModelBehaviour::Status {
                code: 529,
                body: String::new(),
                headers: vec![("retry-after".into(), "1".into())],
            },
            0,
            8,
        ),
        (ModelBehaviour::status(500), 0, 5),
        (ModelBehaviour::html(502), 0, 5),
        (ModelBehaviour::Reset, 3, 3),
        (ModelBehaviour::status(504), 3, 3),
    ] {
        let (fixture, status, requests) = Box::pin(with_fallback(fault.clone())).await;
        assert!(
            matches!(status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }),
            "{fault:?}: {status:?}"
        );
        assert_eq!(requests, asked, "{fault:?}");
        let calls = fixture.calls();
        let (last, before) = calls.split_last().unwrap();
        assert!(
            before.iter().all(|(_, profile, answer)| profile == "own" && *answer == ModelCallOutcome::Lost),
            "{calls:?}"
        );
        assert_eq!((before.len(), last.1.as_str()), (lost, "other"), "{fault:?}");
        assert!(matches!(last.2, ModelCallOutcome::Actions { .. }));
        // One iteration, with a log line and an event.
        let events = fixture.events();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::IterationStarted { .. })).count(), 1);
        let reported = events.iter().find_map(|event| match event {
            Event::MitigationApplied {
                n: 1,
                rung: LadderRung::Fallback,
                profile,
                why,
                cause: MitigationCause::Provider,
            } => Some((profile.clone(), why.clone())),
            _ => None,
        });
        let (profile, why) = reported.expect("there is an event");
        assert!(profile == "other" && why.starts_with("profile `own` gets no answer, `other` goes on: "), "{why}");
        assert!(events.iter().any(|event| matches!(event, Event::Log { text, .. } if *text == why)));
        let activity = std::fs::read_to_string(fixture.case.folder().unwrap().mirror("activity.log")).unwrap();
        assert!(activity.contains("iteration 1: provider trouble, profile `own` gets no answer"), "{activity}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_iteration_calls_the_first_provider_again() {
    let step = || ModelBehaviour::ok(answer("Step.", &[]));
    // Eight tries are one series; then the provider works again.
    let mut faults = vec![ModelBehaviour::overloaded(); 8];
    faults.extend([step(), ModelBehaviour::ok(final_answer())]);
    let (own, other) = (
        FakeModelServer::with_behaviours(faults).await.unwrap(),
        FakeModelServer::with_behaviours([step()]).await.unwrap(),
    );
    let mut fixture = RunFixture::new().await;
    let own_profile = profile("own", "openai/lab", Some(own.base_url()));
    let fallback = profile("other", "anthropic/lab", Some(other.base_url()));
    let state = fixture.drive(&own_profile, Some(&fallback)).await;
    assert!(
        matches!(state.status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }),
        "{:?}",
        state.status
    );
    let called: Vec<(u32, String)> = fixture.calls().into_iter().map(|(n, profile, _)| (n, profile)).collect();
    assert_eq!(called, [(1, "other".to_owned()), (2, "own".to_owned()), (3, "own".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_that_any_endpoint_would_have_pause_the_run() {
    for (fault, auth) in [
        (ModelBehaviour::error(401, "invalid_api_key", "no"), true),
        (ModelBehaviour::error(400, "context_length_exceeded", "too long"), false),
        (ModelBehaviour::error(429, "insufficient_quota", "pay"), false),
    ] {
        let (fixture, status, requests) = Box::pin(with_fallback(fault.clone())).await;
        let RunStatus::Paused { reason, .. } = status else { panic!("{fault:?}: {status:?}") };
        assert_eq!(matches!(reason, RunStopReason::Auth { .. }), auth, "{reason:?}");
        assert_eq!((auth, matches!(reason, RunStopReason::Provider { .. })), (auth, !auth), "{reason:?}");
        assert_eq!((requests, fixture.calls().len()), (1, 0));
    }
}

/// A certificate does not fix itself: the run does not wait hours for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_server_pauses_at_once() {
    let server = model_server::FakeModelServer::builder().tls(&["localhost"]).start().await.unwrap();
    let mut fixture = RunFixture::new().await;
    let state = fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    let RunStatus::Paused { reason: RunStopReason::Provider { why }, .. } = &state.status else {
        panic!("{:?}", state.status)
    };
    assert!(why.starts_with("the certificate of `localhost:"), "{why}");
    assert!(why.ends_with("add the authority that signed its certificate to those this machine trusts"), "{why}");
    assert_eq!((outages(&fixture), server.requests().len(), fixture.calls().len()), (0, 0, 0));
}

/// LiteLLM's own examples use a short key. It cannot be masked, and the warning comes once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_key_causes_one_warning() {
    let server = FakeModelServer::with_behaviours([
        ModelBehaviour::ok(answer("Step.", &[])),
        ModelBehaviour::ok(final_answer()),
    ])
    .await
    .unwrap();
    let mut fixture = RunFixture::new().await;
    let env = fixture.host.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    fixture.host.env = Env::new(env.chain([("SHORT_KEY".to_owned(), "sk-1234".to_owned())]));
    let own = PinnedProfile {
        api_key_env: Some("SHORT_KEY".to_owned()),
        ..profile("own", "litellm_proxy/lab", Some(server.base_url()))
    };
    fixture.drive(&own, None).await;
    let warned = |event: &&Event| matches!(event, Event::Log { level: EventLogLevel::Warn, text } if text.starts_with("`SHORT_KEY` is shorter than 8 characters"));
    assert_eq!(fixture.events().iter().filter(warned).count(), 1, "{}", fixture.case.event_text());
}

#[tokio::test]
async fn a_key_is_not_sent_in_clear_text() {
    let fixture = RunFixture::new().await;
    for (url, fine) in [
        ("http://gw.corp:4000/v1", false),
        ("http://10.0.0.5/v1", false),
        ("https://gw.corp/v1", true),
        ("http://localhost:4000/v1", true),
    ] {
        let mut profile = profile("own", "ollama/lab", Some(url.to_owned()));
        match fixture.host.model(&profile).await {
            Ok(_) => assert!(fine, "{url}"),
            Err(error @ Error::PlaintextKey { .. }) => {
                let hint = error.hint().unwrap();
                assert!(!fine && hint.contains("https://") && hint.contains("localhost"), "{url}: {hint}");
            }
            Err(error) => panic!("{url}: {error}"),
        }
        // Without a key, nothing of value is sent.
        profile.api_key_env = Some("NO_SUCH_KEY".to_owned());
        assert!(fixture.host.model(&profile).await.is_ok(), "{url}");
    }
}

/// Returns how often the run waited for a provider that gave no answer.
fn outages(fixture: &RunFixture) -> usize {
    let outage = |event: &Event| matches!(event, Event::Paused { reason: RunStopReason::Outage { .. }, .. });
    fixture.events().iter().filter(|event| outage(event)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_waited_out() {
    let repeated = |fault: ModelBehaviour, times: usize| std::iter::repeat_n(fault, times);
    for (faults, waits, lost) in [
        (repeated(ModelBehaviour::status(500), 5), 1, 0),
        (repeated(ModelBehaviour::overloaded(), 24), 3, 0),
        // Calls that may have been charged are tried three times at first and once after each wait.
        (repeated(ModelBehaviour::Reset, 5), 3, 5),
    ] {
        let shown = format!("{faults:?}");
        let server =
            FakeModelServer::with_behaviours(faults.chain([ModelBehaviour::ok(final_answer())])).await.unwrap();
        let mut fixture = RunFixture::new().await;
        let state = fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
        assert!(
            matches!(state.status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }),
            "{shown} {:?}",
            state.status
        );
        assert_eq!((outages(&fixture), state.waited, state.spent.iterations), (waits, 0, 1), "{shown}");
        let calls = fixture.calls();
        let missing = calls.iter().filter(|(_, _, answer)| *answer == ModelCallOutcome::Lost).count();
        assert_eq!((missing, calls.len()), (lost, lost + 1), "{shown}");
        let warned = |event: &&Event| matches!(event, Event::Log { text, .. } if text.contains("asked again in "));
        assert_eq!(fixture.events().iter().filter(warned).count(), waits, "each wait is reported: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_endpoint_the_run_waits_for_the_user() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::overloaded()]).await.unwrap();
    let own = profile("own", "openai/lab", Some(server.base_url()));
    let same = profile("same", "openai/stronger", Some(server.base_url()));
    let mut keyless = profile("keyless", "groq/lab", None);
    keyless.api_key_env = Some("NO_SUCH_KEY".to_owned());
    for fallback in [None, Some(same), Some(keyless)] {
        let mut fixture = RunFixture::new().await;
        let state = fixture.drive(&own, fallback.as_ref()).await;
        let paused = matches!(&state.status, RunStatus::Paused { reason: RunStopReason::Provider { .. }, .. });
        assert!(paused, "{fallback:?}: {:?}", state.status);
        // The run has an hour, and waits no longer than that: 1, 2, 5 and three times 15 minutes.
        assert_eq!(outages(&fixture), 6, "{}", fixture.case.event_text());
        assert!(!fixture.events().iter().any(|event| matches!(event, Event::MitigationApplied { .. })));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stated_reset_parks_the_run_until_then() {
    // Ninety seconds at a thousandth of their length.
    let server = FakeModelServer::with_behaviours([
        ModelBehaviour::rate_limited("90"),
        ModelBehaviour::ok(answer("Step.", &[])),
        ModelBehaviour::ok(final_answer()),
    ])
    .await
    .unwrap();
    let mut fixture = RunFixture::new().await;
    let state = fixture.drive(&profile("own", "gemini/lab", Some(server.base_url())), None).await;
    assert!(
        matches!(state.status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }),
        "{:?}",
        state.status
    );
    let events = fixture.events();
    let parked = |event: &Event| matches!(event, Event::Paused { reason: RunStopReason::Quota { .. }, .. });
    assert_eq!(events.iter().filter(|event| parked(event)).count(), 1);
    assert_eq!((state.spent.iterations, fixture.calls().len(), server.requests().len()), (2, 2, 3));
}
