//! What every end means.

use super::*;

const NOW: &str = "2026-01-02T10:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn ended() -> Ended<'static> {
    Ended {
        code: Some(1),
        missing: false,
        idle: false,
        timed_out: false,
        finished: None,
        stderr: "",
        calls: &[],
        now: now(),
    }
}

fn call(status: u16) -> Seen {
    Seen { at: now(), status: Some(status), limits: Vec::new(), spent: false, barred: None }
}

fn limited(name: &str, value: &str) -> Seen {
    Seen { limits: vec![(name.to_owned(), value.to_owned())], ..call(429) }
}

fn spent() -> Seen {
    Seen { spent: true, ..call(402) }
}

fn barred() -> Seen {
    Seen { barred: Some("its certificate is not trusted".to_owned()), ..call(403) }
}

fn good() -> Finished {
    Finished { ok: true, text: "done".to_owned(), ..Finished::default() }
}

fn bad(why: &str, status: Option<u16>) -> Finished {
    Finished { ok: false, why: Some(why.to_owned()), status, ..Finished::default() }
}

fn crash(why: &str) -> Outcome {
    Outcome::Crash { why: why.to_owned() }
}

fn limit(until: Option<&str>) -> Outcome {
    Outcome::Limit { until: until.map(|until| until.parse().unwrap()) }
}

#[track_caller]
fn check(ended: &Ended<'_>, want: &Outcome) {
    assert_eq!(&judge(ended), want, "{ended:?}");
}

#[test]
fn results() {
    let (good, quiet) = (good(), Finished::default());
    check(&Ended { code: Some(0), finished: Some(&good), ..ended() }, &Outcome::Done);
    // Finished, then it hung and was ended.
    check(&Ended { code: None, timed_out: true, finished: Some(&good), ..ended() }, &Outcome::Done);
    check(&Ended { code: None, idle: true, finished: Some(&good), ..ended() }, &Outcome::Done);
    // An exit code of 0 does not make a failure a success.
    let turns = bad("error_max_turns", None);
    check(&Ended { code: Some(0), finished: Some(&turns), ..ended() }, &crash("error_max_turns"));
    check(&Ended { code: Some(0), finished: Some(&quiet), ..ended() }, &crash("it ended with code 0 and said nothing"));
    // An agent without results has only its code.
    check(&Ended { code: Some(0), ..ended() }, &Outcome::Done);
}

#[test]
fn ends() {
    check(&Ended { code: None, missing: true, ..ended() }, &Outcome::Missing);
    check(&Ended { code: Some(127), stderr: "env: 'node': No such file or directory", ..ended() }, &Outcome::Missing);
    check(&Ended { code: None, idle: true, ..ended() }, &Outcome::Idle);
    check(&Ended { code: None, timed_out: true, idle: true, ..ended() }, &Outcome::TimedOut);
    check(&Ended { stderr: "warning\n  panic: oh no\n\n", ..ended() }, &crash("panic: oh no"));
    check(&Ended { code: None, ..ended() }, &crash("it was ended and said nothing"));
    check(&ended(), &crash("it ended with code 1 and said nothing"));
}

#[test]
fn the_door_is_believed() {
    let good = good();
    let auth = bad("Invalid API key", Some(401));
    check(
        &Ended { calls: &[call(200), limited("retry-after", "60")], ..ended() },
        &limit(Some("2026-01-02T10:01:00Z")),
    );
    check(&Ended { calls: &[call(429)], ..ended() }, &limit(None));
    check(&Ended { calls: &[call(529)], finished: Some(&auth), ..ended() }, &Outcome::Overload);
    check(&Ended { calls: &[call(401)], ..ended() }, &Outcome::Auth);
    check(&Ended { calls: &[call(402)], ..ended() }, &Outcome::ProviderSpend);
    // Neither a wrong key nor an outage, whatever the agent makes of it.
    let untrusted = Outcome::Barred { why: "its certificate is not trusted".to_owned() };
    check(&Ended { calls: &[barred()], finished: Some(&auth), ..ended() }, &untrusted);
    check(&Ended { code: None, calls: &[call(529), barred()], ..ended() }, &untrusted);
    check(&Ended { code: Some(0), calls: &[call(200), barred()], finished: Some(&good), ..ended() }, &Outcome::Done);
    check(&Ended { calls: &[call(200), spent()], ..ended() }, &Outcome::Spend);
    // Some agents call it a success when their last call was refused.
    check(&Ended { code: Some(0), calls: &[call(200), spent()], finished: Some(&good), ..ended() }, &Outcome::Spend);
    check(&Ended { code: Some(0), calls: &[call(401), call(401)], finished: Some(&good), ..ended() }, &Outcome::Auth);
    // What it asked for beside its work was refused after the work was done.
    check(&Ended { code: Some(0), calls: &[call(200), call(429)], finished: Some(&good), ..ended() }, &Outcome::Done);
    // It waits for a limit to pass and says nothing meanwhile.
    check(&Ended { code: None, idle: true, calls: &[call(429)], ..ended() }, &limit(None));
    // What it got over is not why it ended.
    check(&Ended { code: Some(0), calls: &[call(429), call(200)], finished: Some(&good), ..ended() }, &Outcome::Done);
    check(&Ended { calls: &[spent(), call(200)], stderr: "boom", ..ended() }, &crash("boom"));
    // A call that was hung up, or is wrong by itself, says nothing of the provider.
    let hung_up = Seen { status: None, ..call(200) };
    check(&Ended { code: None, timed_out: true, calls: &[hung_up], ..ended() }, &Outcome::TimedOut);
    check(&Ended { calls: &[call(400)], stderr: "bad request", ..ended() }, &crash("bad request"));
    // It cannot say that the budget is spent when the door knows better.
    let lie = bad("ralph: budget spent: $1.00 of $1.00", None);
    check(
        &Ended { calls: &[call(200)], finished: Some(&lie), ..ended() },
        &crash("ralph: budget spent: $1.00 of $1.00"),
    );
    check(&Ended { finished: Some(&lie), ..ended() }, &Outcome::Spend);
}

#[test]
fn refusals_of_the_door_are_not_the_provider_s() {
    let model = bad("API Error: 403 {\"error\":{\"message\":\"ralph: model `x` is not lent\"}}", Some(403));
    check(&Ended { calls: &[call(403)], finished: Some(&model), ..ended() }, &crash("ralph: model `x` is not lent"));
    // What the door refuses before it is a call is seen by nobody but the agent.
    check(&Ended { finished: Some(&model), ..ended() }, &crash("ralph: model `x` is not lent"));
    let price = "403 {\"type\":\"permission_error\",\"message\":\"ralph: nobody knows what `x` costs\"}";
    check(&Ended { stderr: price, code: Some(1), ..ended() }, &crash("ralph: nobody knows what `x` costs"));
    // One that cost nothing is not among the calls, and no other key would help against it.
    let denied = bad(
        "API Error: 403 {\"type\":\"error\",\"error\":{\"type\":\"permission_error\",\"message\":\"ralph: rule `x.io`\"}}",
        Some(403),
    );
    check(&Ended { finished: Some(&denied), ..ended() }, &crash("ralph: rule `x.io`"));
    let plain = bad("unexpected status 403 Forbidden: ralph: rule `x.io`", Some(403));
    check(&Ended { finished: Some(&plain), ..ended() }, &crash("ralph: rule `x.io`"));
    check(&Ended { stderr: "401 Unauthorized: ralph: rule `x.io`", ..ended() }, &crash("ralph: rule `x.io`"));
    check(&Ended { finished: Some(&bad("permission_error", Some(403))), ..ended() }, &Outcome::Auth);
    let down = "unexpected status 502 Bad Gateway: ralph: the host does not answer";
    check(&Ended { calls: &[call(502)], finished: Some(&bad(down, Some(502))), ..ended() }, &Outcome::Overload);
}

#[test]
fn words_tell_what_the_door_cannot() {
    let purse = bad("exceeded retry limit… insufficient_quota", Some(429));
    check(&Ended { calls: &[call(429)], finished: Some(&purse), ..ended() }, &Outcome::ProviderSpend);
    let until = bad("You've hit your limit · resets 3pm (UTC)", Some(429));
    check(&Ended { calls: &[call(429)], finished: Some(&until), ..ended() }, &limit(Some("2026-01-02T15:00:00Z")));
    check(&Ended { finished: Some(&until), ..ended() }, &limit(Some("2026-01-02T15:00:00Z")));
    let login = bad("Not logged in · Please run /login", None);
    check(&Ended { finished: Some(&login), ..ended() }, &Outcome::Auth);
    let codex = bad("exceeded retry limit, last status: 429 Too Many Requests", Some(429));
    check(&Ended { finished: Some(&codex), ..ended() }, &limit(None));
    check(&Ended { finished: Some(&bad("x", Some(529))), ..ended() }, &Outcome::Overload);
    check(&Ended { stderr: "Error: 401 Unauthorized", ..ended() }, &Outcome::Auth);
}

#[test]
fn asking_for_ever() {
    let fail = || call(429);
    let hung_up = || Seen { status: None, ..call(200) };
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
        // Nobody may speak to it: the first time is enough.
        (vec![barred()], true),
        (vec![barred(), call(200)], false),
    ] {
        assert_eq!(hopeless(&calls), want, "{calls:?}");
    }
}
