//! Tests how the end of a session is classified.

use super::*;

const NOW: &str = "2026-01-02T10:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn ended() -> AgentSessionEnd<'static> {
    AgentSessionEnd {
        code: Some(1),
        missing: false,
        idle: false,
        timed_out: false,
        result: None,
        stderr: "",
        calls: &[],
        now: now(),
    }
}

fn call(status: u16) -> ObservedModelCall {
    ObservedModelCall { at: now(), status: Some(status), limits: Vec::new(), budget_refused: false, blocked: None }
}

fn limited(name: &str, value: &str) -> ObservedModelCall {
    ObservedModelCall { limits: vec![(name.to_owned(), value.to_owned())], ..call(429) }
}

fn spent() -> ObservedModelCall {
    ObservedModelCall { budget_refused: true, ..call(402) }
}

fn barred() -> ObservedModelCall {
    ObservedModelCall { blocked: Some("its certificate is not trusted".to_owned()), ..call(403) }
}

fn good() -> AgentResult {
    AgentResult { ok: true, text: "done".to_owned(), ..AgentResult::default() }
}

fn bad(why: &str, status: Option<u16>) -> AgentResult {
    AgentResult { ok: false, why: Some(why.to_owned()), status, ..AgentResult::default() }
}

fn crash(why: &str) -> SessionOutcome {
    SessionOutcome::Crash { why: why.to_owned() }
}

fn limit(until: Option<&str>) -> SessionOutcome {
    SessionOutcome::Limit { until: until.map(|until| until.parse().unwrap()) }
}

#[track_caller]
fn check(ended: &AgentSessionEnd<'_>, want: &SessionOutcome) {
    assert_eq!(&classify_session_end(ended), want, "{ended:?}");
}

#[test]
fn results_of_agents() {
    let (good, quiet) = (good(), AgentResult::default());
    check(&AgentSessionEnd { code: Some(0), result: Some(&good), ..ended() }, &SessionOutcome::Done);
    // It finished, then hung and was killed.
    check(&AgentSessionEnd { code: None, timed_out: true, result: Some(&good), ..ended() }, &SessionOutcome::Done);
    check(&AgentSessionEnd { code: None, idle: true, result: Some(&good), ..ended() }, &SessionOutcome::Done);
    // An exit code of 0 does not make a failure a success.
    let turns = bad("error_max_turns", None);
    check(&AgentSessionEnd { code: Some(0), result: Some(&turns), ..ended() }, &crash("error_max_turns"));
    check(
        &AgentSessionEnd { code: Some(0), result: Some(&quiet), ..ended() },
        &crash("it exited with code 0 and reported no error"),
    );
    // An agent without a result has only its exit code.
    check(&AgentSessionEnd { code: Some(0), ..ended() }, &SessionOutcome::Done);
}

#[test]
fn ends_without_a_result() {
    check(&AgentSessionEnd { code: None, missing: true, ..ended() }, &SessionOutcome::Missing);
    check(
        &AgentSessionEnd { code: Some(127), stderr: "env: 'node': No such file or directory", ..ended() },
        &SessionOutcome::Missing,
    );
    check(&AgentSessionEnd { code: None, idle: true, ..ended() }, &SessionOutcome::Idle);
    check(&AgentSessionEnd { code: None, timed_out: true, idle: true, ..ended() }, &SessionOutcome::TimedOut);
    check(&AgentSessionEnd { stderr: "warning\n  panic: oh no\n\n", ..ended() }, &crash("panic: oh no"));
    check(&AgentSessionEnd { code: None, ..ended() }, &crash("it was killed and reported no error"));
    check(&ended(), &crash("it exited with code 1 and reported no error"));
}

#[test]
fn observed_calls_come_first() {
    let good = good();
    let auth = bad("Invalid API key", Some(401));
    check(
        &AgentSessionEnd { calls: &[call(200), limited("retry-after", "60")], ..ended() },
        &limit(Some("2026-01-02T10:01:00Z")),
    );
    check(&AgentSessionEnd { calls: &[call(429)], ..ended() }, &limit(None));
    check(&AgentSessionEnd { calls: &[call(529)], result: Some(&auth), ..ended() }, &SessionOutcome::Overload);
    check(&AgentSessionEnd { calls: &[call(401)], ..ended() }, &SessionOutcome::Auth);
    check(&AgentSessionEnd { calls: &[call(402)], ..ended() }, &SessionOutcome::NoProviderCredit);
    // Neither a wrong key nor an outage, whatever the agent reports.
    let untrusted = SessionOutcome::EndpointBlocked { why: "its certificate is not trusted".to_owned() };
    check(&AgentSessionEnd { calls: &[barred()], result: Some(&auth), ..ended() }, &untrusted);
    check(&AgentSessionEnd { code: None, calls: &[call(529), barred()], ..ended() }, &untrusted);
    check(
        &AgentSessionEnd { code: Some(0), calls: &[call(200), barred()], result: Some(&good), ..ended() },
        &SessionOutcome::Done,
    );
    check(&AgentSessionEnd { calls: &[call(200), spent()], ..ended() }, &SessionOutcome::BudgetSpent);
    // Some agents report success when their last call was refused.
    check(
        &AgentSessionEnd { code: Some(0), calls: &[call(200), spent()], result: Some(&good), ..ended() },
        &SessionOutcome::BudgetSpent,
    );
    check(
        &AgentSessionEnd { code: Some(0), calls: &[call(401), call(401)], result: Some(&good), ..ended() },
        &SessionOutcome::Auth,
    );
    // A side call was refused after the work was done.
    check(
        &AgentSessionEnd { code: Some(0), calls: &[call(200), call(429)], result: Some(&good), ..ended() },
        &SessionOutcome::Done,
    );
    // It waits for a limit to pass and prints nothing meanwhile.
    check(&AgentSessionEnd { code: None, idle: true, calls: &[call(429)], ..ended() }, &limit(None));
    // A failure it recovered from is not why it ended.
    check(
        &AgentSessionEnd { code: Some(0), calls: &[call(429), call(200)], result: Some(&good), ..ended() },
        &SessionOutcome::Done,
    );
    check(&AgentSessionEnd { calls: &[spent(), call(200)], stderr: "boom", ..ended() }, &crash("boom"));
    // An aborted call, or an invalid one, says nothing about the provider.
    let hung_up = ObservedModelCall { status: None, ..call(200) };
    check(&AgentSessionEnd { code: None, timed_out: true, calls: &[hung_up], ..ended() }, &SessionOutcome::TimedOut);
    check(&AgentSessionEnd { calls: &[call(400)], stderr: "bad request", ..ended() }, &crash("bad request"));
    // The agent cannot claim that the budget is spent when the observed calls contradict it.
    let lie = bad("ralph: budget spent: $1.00 of $1.00", None);
    check(
        &AgentSessionEnd { calls: &[call(200)], result: Some(&lie), ..ended() },
        &crash("ralph: budget spent: $1.00 of $1.00"),
    );
    check(&AgentSessionEnd { result: Some(&lie), ..ended() }, &SessionOutcome::BudgetSpent);
}

#[test]
fn proxy_refusals_are_not_the_providers() {
    let model = bad("API Error: 403 {\"error\":{\"message\":\"ralph: model `x` is not lent\"}}", Some(403));
    check(
        &AgentSessionEnd { calls: &[call(403)], result: Some(&model), ..ended() },
        &crash("ralph: model `x` is not lent"),
    );
    // Only the agent sees a request that the proxy refuses before it counts as a call.
    check(&AgentSessionEnd { result: Some(&model), ..ended() }, &crash("ralph: model `x` is not lent"));
    let price = "403 {\"type\":\"permission_error\",\"message\":\"ralph: nobody knows what `x` costs\"}";
    check(&AgentSessionEnd { stderr: price, code: Some(1), ..ended() }, &crash("ralph: nobody knows what `x` costs"));
    // A refusal that cost nothing is not among the calls, and no other key would help.
    let denied = bad(
        "API Error: 403 {\"type\":\"error\",\"error\":{\"type\":\"permission_error\",\"message\":\"ralph: rule `x.io`\"}}",
        Some(403),
    );
    check(&AgentSessionEnd { result: Some(&denied), ..ended() }, &crash("ralph: rule `x.io`"));
    let plain = bad("unexpected status 403 Forbidden: ralph: rule `x.io`", Some(403));
    check(&AgentSessionEnd { result: Some(&plain), ..ended() }, &crash("ralph: rule `x.io`"));
    check(&AgentSessionEnd { stderr: "401 Unauthorized: ralph: rule `x.io`", ..ended() }, &crash("ralph: rule `x.io`"));
    check(&AgentSessionEnd { result: Some(&bad("permission_error", Some(403))), ..ended() }, &SessionOutcome::Auth);
    let down = "unexpected status 502 Bad Gateway: ralph: the host does not answer";
    check(
        &AgentSessionEnd { calls: &[call(502)], result: Some(&bad(down, Some(502))), ..ended() },
        &SessionOutcome::Overload,
    );
}

#[test]
fn error_texts_come_last() {
    let no_credit = bad("exceeded retry limit… insufficient_quota", Some(429));
    check(
        &AgentSessionEnd { calls: &[call(429)], result: Some(&no_credit), ..ended() },
        &SessionOutcome::NoProviderCredit,
    );
    let until = bad("You've hit your limit · resets 3pm (UTC)", Some(429));
    check(
        &AgentSessionEnd { calls: &[call(429)], result: Some(&until), ..ended() },
        &limit(Some("2026-01-02T15:00:00Z")),
    );
    check(&AgentSessionEnd { result: Some(&until), ..ended() }, &limit(Some("2026-01-02T15:00:00Z")));
    let login = bad("Not logged in · Please run /login", None);
    check(&AgentSessionEnd { result: Some(&login), ..ended() }, &SessionOutcome::Auth);
    let codex = bad("exceeded retry limit, last status: 429 Too Many Requests", Some(429));
    check(&AgentSessionEnd { result: Some(&codex), ..ended() }, &limit(None));
    check(&AgentSessionEnd { result: Some(&bad("x", Some(529))), ..ended() }, &SessionOutcome::Overload);
    check(&AgentSessionEnd { stderr: "Error: 401 Unauthorized", ..ended() }, &SessionOutcome::Auth);
}

#[test]
fn endless_retries() {
    let fail = || call(429);
    let hung_up = || ObservedModelCall { status: None, ..call(200) };
    for (calls, want) in [
        (vec![], false),
        (vec![fail(); 5], false),
        (vec![fail(); 6], true),
        ([vec![fail(); 6], vec![call(200)]].concat(), false),
        ([vec![call(200)], vec![fail(); 6]].concat(), true),
        (vec![spent(); 2], false),
        (vec![spent(); 3], true),
        (vec![hung_up(); 9], false),
        ([vec![fail(); 5], vec![hung_up(); 9]].concat(), false),
        ([vec![fail(); 3], vec![hung_up(); 9], vec![fail(); 3]].concat(), true),
        ([vec![spent(); 2], vec![hung_up()], vec![spent()]].concat(), true),
        // The endpoint is blocked: one call is enough.
        (vec![barred()], true),
        (vec![barred(), call(200)], false),
    ] {
        assert_eq!(should_abort(&calls), want, "{calls:?}");
    }
}
