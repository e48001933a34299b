//! Tests that a run is published through the [`Scm`] of its host.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ralph_core::event::Event;
use ralph_core::pull_request::{CiState, PublishReason, PullRequest};
use ralph_core::run::RunStatus;
use ralph_engine::Error;
use ralph_engine::git::Sha;
use ralph_engine::scm::{PublishedRun, PullRequestLink, Scm};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::json;

use super::run_fixture::{RunFixture, profile};

/// An SCM that only records its calls.
#[derive(Debug, Default)]
struct RecordingScm {
    pushed: Mutex<Vec<String>>,
    requests: Mutex<Vec<(PullRequest, Option<u64>)>>,
    receipts: Mutex<Vec<String>>,
}

#[async_trait]
impl Scm for RecordingScm {
    async fn push(&self, _run: PublishedRun<'_>, sha: &Sha, _replaces: Option<&Sha>) -> Result<String, Error> {
        self.pushed.lock().unwrap().push(sha.to_string());
        Ok("recorded".to_owned())
    }

    async fn open_or_update(
        &self,
        _run: PublishedRun<'_>,
        request: &PullRequest,
        existing: Option<u64>,
    ) -> Result<PullRequestLink, Error> {
        self.requests.lock().unwrap().push((request.clone(), existing));
        Ok(PullRequestLink { url: "https://forge.example/7".to_owned(), number: 7 })
    }

    async fn attach_receipt(&self, _run: PublishedRun<'_>, sha: &Sha, _receipt: &str) -> Result<(), Error> {
        self.receipts.lock().unwrap().push(sha.to_string());
        Ok(())
    }

    async fn checks(&self, _run: PublishedRun<'_>, _sha: &Sha) -> Result<CiState, Error> {
        Ok(CiState::Pending)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_scm_receives_the_branch_and_the_pull_request() {
    let actions = json!([
        {"type": "write", "path": "out.txt", "content": "done\n"},
        {"type": "commit", "message": "out"},
        {"type": "stop_success", "reason": "done"},
    ]);
    let reply = json!({"summary": "Out.", "actions": actions, "claims": {"checkboxes_checked": ["M1.1"]}});
    let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(reply.to_string())]).await.unwrap();
    let scm = Arc::new(RecordingScm::default());
    let mut fixture = RunFixture::new().await;
    fixture.host = fixture.host.with_scm(Arc::clone(&scm) as Arc<dyn Scm>);
    let state = fixture.drive(&profile("own", "openai/lab", Some(server.base_url())), None).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", fixture.case.event_text());

    let sha = state.pushed.clone().unwrap().to_string();
    assert_eq!(*scm.pushed.lock().unwrap(), std::slice::from_ref(&sha));
    assert_eq!(*scm.receipts.lock().unwrap(), std::slice::from_ref(&sha));
    let requests = scm.requests.lock().unwrap().clone();
    let published: Vec<_> = requests.iter().map(|(request, existing)| (request.sha.to_string(), *existing)).collect();
    assert_eq!(published, [(sha.clone(), None), (sha, Some(7))]);
    let (last, _) = requests.last().unwrap();
    assert_eq!((last.title.as_str(), last.branch.clone()), ("Go on", state.started.branch.clone()));
    assert!(last.body.contains("## Receipt"), "{}", last.body);

    let pull = state.pull_request.unwrap();
    assert_eq!((pull.url.as_str(), pull.number, pull.proved), ("https://forge.example/7", 7, true));
    let events: Vec<_> = fixture
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Pushed { .. } | Event::PrUpdated { .. } | Event::CiChanged(_)))
        .collect();
    let [Event::Pushed { to, .. }, Event::CiChanged(CiState::Pending), Event::PrUpdated { why, .. }] =
        events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!((to.as_str(), why), ("recorded", &PublishReason::Proved));
    assert!(
        fixture.case.folder().unwrap().read(&fixture.case.folder().unwrap().pull_request_path()).unwrap().is_none()
    );
}
