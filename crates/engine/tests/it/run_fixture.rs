//! Runs a run in this process whose model is a server of the test: begun, driven until it rests, and resumed.

use std::collections::BTreeMap;
use std::time::Duration;

use ralph_core::env_vars::Env;
use ralph_core::event::{Event, EventLine, ModelCallOutcome, PinnedProfile};
use ralph_core::gutter::LadderRung;
use ralph_core::money::MicroUsd;
use ralph_core::price::Price;
use ralph_core::run::RunState;
use ralph_engine::Error;
use ralph_engine::host_environment::HostContext;
use ralph_engine::model::RetryPace;
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, Runner, StopSignals, begin, resume};
use ralph_engine::store::{RunFolder, SilentObserver};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::killable_run::{CrashScenario, KillableRun, PushTarget};

/// The key of every profile here; it must not appear anywhere.
pub(crate) const KEY: &str = "sk-lab-5f6a7b8c9d0e1f2a";

/// Long enough for a slow machine; nothing waits this long unless it is broken.
const REST_TIMEOUT: Duration = Duration::from_mins(2);

const TASK: CrashScenario = CrashScenario {
    task: "---\ntask_id: lab-001\ntest_command: \"true\"\ntest_every: claim\n---\n\n# Go on\n\n\
           - [ ] M1.1 There is an out\n  - verify: `grep -q done out.txt`\n",
    script: "{\"format\": 1}\n",
};

/// A run and its host.
#[derive(Debug)]
pub(crate) struct RunFixture {
    pub(crate) case: KillableRun,
    pub(crate) host: HostContext,
    runner: Option<Runner>,
    /// Stops the next run early.
    pub(crate) stops: StopSignals,
    /// The cost cap of the run.
    pub(crate) cost: Option<MicroUsd>,
}

/// A profile that calls a server of the test.
pub(crate) fn profile(name: &str, model: &str, base_url: Option<String>) -> PinnedProfile {
    PinnedProfile {
        name: name.to_owned(),
        model: model.to_owned(),
        api_key_env: base_url.as_ref().map(|_| "LAB_KEY".to_owned()),
        base_url,
        max_output_tokens: 100,
        temperature: None,
        timeout_s: 5,
        price: Some(Price::per_mtok_usd(3.0, 15.0, None)),
        most_output: None,
        extra: BTreeMap::new(),
    }
}

impl RunFixture {
    /// Creates a run that has not begun, with short pauses.
    pub(crate) async fn new() -> Self {
        let case = KillableRun::new(TASK, PushTarget::Here);
        let home = case.home().state_dir().display().to_string();
        let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", home), ("LAB_KEY", KEY.to_owned())];
        let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
        let mut host = HostContext::open(case.home(), env).await.unwrap();
        host.pace = RetryPace::faster(1000);
        Self { case, host, runner: None, stops: StopSignals::default(), cost: None }
    }

    /// Uses the real pauses.
    pub(crate) fn with_real_backoff(mut self) -> Self {
        self.host.pace = RetryPace::default();
        self
    }

    /// Begins the run, or resumes it, until it rests.
    pub(crate) async fn drive(&mut self, default: &PinnedProfile, fallback: Option<&PinnedProfile>) -> RunState {
        // Release the lock before the run is opened again.
        drop(self.runner.take());
        let mut runner = match self.case.folder() {
            None => self.begin(default, fallback).await,
            Some(folder) => self.resume(&folder, RecreateSandbox::No).await,
        };
        let state = timeout(REST_TIMEOUT, runner.drive()).await.expect("the run comes to rest").unwrap().clone();
        self.runner = Some(runner);
        state
    }

    /// Creates the run without driving it.
    pub(crate) async fn begin(&self, default: &PinnedProfile, fallback: Option<&PinnedProfile>) -> Runner {
        let mut request = self.case.run_request();
        request.profiles.default = default.clone();
        request.profiles.fallback = fallback.cloned();
        request.ladder = vec![LadderRung::Rotate];
        request.budget.iterations = 10_000;
        request.budget.cost = self.cost;
        request.budget.tokens = Some(u64::MAX);
        request.budget.consecutive_gutter = u32::MAX;
        let announce = Box::new(SilentObserver);
        begin(&self.host, request, announce, self.stops.clone(), KeepSandbox::Always).await.unwrap().runner
    }

    /// Releases the run, as the end of this process would.
    pub(crate) fn close(&mut self) {
        drop(self.runner.take());
    }

    /// Resumes the run. A program that another run of this process starts at that very moment holds the lock too until
    /// its `exec`, so this is tried more than once.
    pub(crate) async fn resume(&self, folder: &RunFolder, recreate: RecreateSandbox) -> Runner {
        for _ in 0..200 {
            let (announce, stops, raise) = (Box::new(SilentObserver), StopSignals::default(), BudgetRaise::default());
            let resumed =
                resume(&self.host, folder.clone(), raise, recreate, announce, stops, KeepSandbox::Always).await;
            match resumed {
                Err(Error::Locked { .. }) => sleep(Duration::from_millis(10)).await,
                resumed => return resumed.unwrap(),
            }
        }
        panic!("another process holds the run {}", folder.id());
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.case.lines().into_iter().map(|line: EventLine| line.event).collect()
    }

    /// Returns every call that was charged: its iteration, its profile and how it ended.
    pub(crate) fn calls(&self) -> Vec<(u32, String, ModelCallOutcome)> {
        let call = |event: Event| match event {
            Event::ModelCalled { n, profile, answer, .. } => Some((n, profile, answer)),
            _ => None,
        };
        self.events().into_iter().filter_map(call).collect()
    }
}

/// An answer with these actions.
pub(crate) fn answer(summary: &str, actions: &[Value]) -> String {
    json!({"summary": summary, "actions": actions, "claims": {}}).to_string()
}

/// An answer that ends the run.
pub(crate) fn final_answer() -> String {
    answer("Enough.", &[json!({"type": "stop_failure", "reason": "enough"})])
}
