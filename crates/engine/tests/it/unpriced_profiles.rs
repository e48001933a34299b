//! Tests profiles without a known price in runs without a token cap: no path leads to a call with them.

use std::fs;

use ralph_core::control_request::Control;
use ralph_core::env_vars::Env;
use ralph_core::event::{Event, PinnedProfile};
use ralph_core::run::RunStatus;
use ralph_engine::Error;
use ralph_engine::control::send;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, RunSpec, Runner, StopSignals, begin, resume};
use ralph_engine::store::SilentObserver;
use serde_json::{Value, json};

use super::killable_run::{KillableRun, PushTarget};

const TASK: &str = "---\ntask_id: free-001\ntest_command: \"true\"\n---\n\n# Go on\n\n\
                    - [ ] M1.1 There is an out\n  - verify: `grep -q done out.txt`\n";

const WHY: &str = "is not known and the run has no token cap, so nothing would limit its cost";

/// A model that asks the user before anything else.
fn script() -> String {
    let pause = json!({"usage": {"input": 9, "output": 9}, "repeat": true,
        "json": {"summary": "Wait.", "actions": [{"type": "pause", "reason": "a question"}]}});
    format!("{}\n{pause}", json!({"format": 1}))
}

async fn host(case: &KillableRun) -> HostContext {
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    HostContext::open(case.home(), Env::new(env.map(|(name, value)| (name.to_owned(), value)))).await.unwrap()
}

fn case() -> KillableRun {
    let case = KillableRun::with(&[], TASK, &script(), PushTarget::Here);
    case.helper("fallback", &script());
    case.helper("doctor", &script());
    case
}

fn uncapped(case: &KillableRun) -> RunSpec {
    let mut request = case.run_request();
    request.budget.tokens = None;
    request
}

fn profiles(request: &mut RunSpec) -> [&mut PinnedProfile; 3] {
    let profiles = &mut request.profiles;
    [&mut profiles.default, profiles.fallback.as_mut().unwrap(), profiles.doctor.as_mut().unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_begins_with_an_unpriced_profile() {
    let case = case();
    let host = host(&case).await;
    for (at, name) in ["scripted", "fallback", "doctor"].into_iter().enumerate() {
        let mut request = uncapped(&case);
        profiles(&mut request)[at].price = None;
        let refused =
            begin(&host, request, Box::new(SilentObserver), StopSignals::default(), KeepSandbox::Always).await;
        assert!(matches!(&refused, Err(Error::Unpriced { profile }) if profile == name), "{refused:?}");
        assert!(case.folder().is_none(), "nothing was made");
    }
    let mut request = case.run_request();
    for profile in profiles(&mut request) {
        profile.price = None;
    }
    assert!(
        begin(&host, request, Box::new(SilentObserver), StopSignals::default(), KeepSandbox::Always).await.is_ok(),
        "tokens are capped"
    );
}

/// Removes the prices of profiles from a run's first event, as an earlier version would have written it.
fn forget_prices(case: &KillableRun, names: &[&str]) {
    let path = case.folder().unwrap().events_path();
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut first: Value = serde_json::from_str(first).unwrap();
    for name in names {
        first["profiles"][name]["price"] = Value::Null;
    }
    fs::write(&path, format!("{first}\n{rest}")).unwrap();
}

async fn go_on(case: &KillableRun) -> Result<Runner, Error> {
    let (folder, raise) = (case.folder().unwrap(), BudgetRaise { cost_usd: 5.0, ..BudgetRaise::default() });
    resume(
        &host(case).await,
        folder,
        raise,
        RecreateSandbox::No,
        Box::new(SilentObserver),
        StopSignals::default(),
        KeepSandbox::Always,
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_of_an_earlier_version_continues_with_an_unpriced_profile() {
    let case = case();
    let host = host(&case).await;
    let begun = begin(&host, uncapped(&case), Box::new(SilentObserver), StopSignals::default(), KeepSandbox::Always)
        .await
        .unwrap();
    let mut runner = begun.runner;
    assert!(matches!(runner.drive().await.unwrap().status, RunStatus::Paused { .. }), "{}", case.event_text());
    drop(runner);
    forget_prices(&case, &["fallback", "doctor"]);
    let spent = case.state().unwrap().spent;

    let folder = case.folder().unwrap();
    let ask = async |control: Control| send(&host, &folder, &control, "a person").await;
    let refused = ask(Control::SetProfile { name: "fallback".to_owned() }).await;
    let why = format!("the price of profile `fallback` {WHY}");
    assert!(matches!(&refused, Err(Error::ControlRefused { why: refused, .. }) if *refused == why), "{refused:?}");
    // The diagnosis model is called only where its calls are limited.
    ask(Control::Diagnose).await.unwrap();
    let failed = case.lines().into_iter().rev().find_map(|line| match line.event {
        Event::DiagnosisWritten { failed, .. } => failed,
        _ => None,
    });
    let why = format!("the price of profile `doctor` {WHY}");
    assert_eq!(failed.as_deref(), Some(why.as_str()), "{}", case.event_text());
    assert_eq!(case.state().unwrap().spent.tokens, spent.tokens);

    forget_prices(&case, &["default"]);
    let refused = go_on(&case).await;
    let Err(Error::CannotResume { why, hint, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(why, format!("the price of profile `scripted` {WHY}"));
    assert_eq!(hint, "start a new run with a token cap: ralph run --max-tokens 2000000");
}
