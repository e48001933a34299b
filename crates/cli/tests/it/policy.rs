//! Tests `ralph policy`: what runs may reach, shown and changed.

use std::fs;
use std::time::Duration;

use insta::assert_snapshot;
use ralph_core::redact::Redactor;
use ralph_engine::audit::AuditLog;
use ralph_engine::store::RunFolder;
use ralph_proxy::egress_events::{
    DecisionReason, EgressDecision, EgressEntry, EgressEvent, EgressExchange, EgressTunnel, RequestSummary,
};
use ralph_proxy::meter::GatewayRefusal;
use serde_json::Value;

use crate::audit::{paused_run, record_decisions, run_folder};
use crate::cli_harness::{BOTH_BOXES, RalphHarness, answer, honest_actions, run, wait_until};
use crate::repo_fixture::RepoFixture;

#[test]
fn rules_and_their_origin() {
    let fixture = RepoFixture::with_task();
    assert_snapshot!(fixture.ralph(&["policy", "ls"]), @"
    exit 0
    --- stdout
    policy  deny  built-in
    --- stderr
    nothing but the model endpoints of the run can be reached
    ");
    fixture.config("config.toml", "[sandbox.network]\nallowed = ['pypi', 'GET x.io/a/*']\ndenied = ['bad.x.io']\n");
    assert_snapshot!(fixture.ralph(&["policy", "ls"]), @"
    exit 0
    --- stdout
    policy  allowlist     user HOME/.config/ralph/config.toml
    allow   pypi          user HOME/.config/ralph/config.toml
    allow   GET x.io/a/*  user HOME/.config/ralph/config.toml
    deny    bad.x.io      user HOME/.config/ralph/config.toml
    ");
    assert_snapshot!(fixture.ralph(&["policy", "ls", "--json"]), @r#"
    exit 0
    --- stdout
    {"format":1,"run":null,"mode":"allowlist","mode_origin":"user HOME/.config/ralph/config.toml","allow":[{"rule":"pypi.org","origin":"user HOME/.config/ralph/config.toml"},{"rule":"files.pythonhosted.org","origin":"user HOME/.config/ralph/config.toml"},{"rule":"GET x.io/a/*","origin":"user HOME/.config/ralph/config.toml"}],"deny":[{"rule":"bad.x.io","origin":"user HOME/.config/ralph/config.toml"}]}
    "#);
}

#[test]
fn policy_test_explains_the_decision() {
    let fixture = RepoFixture::new();
    fixture
        .config("config.toml", "[sandbox.network]\nallowed = ['go', 'x.io:80', 'GET y.io/a/*']\ndenied = ['*.z.io']\n");
    let test = |args: &[&str]| {
        let output = fixture.ralph(&[&["policy", "test"], args].concat());
        format!("{} {}", output.code, [output.stdout, output.stderr].concat().trim_end().replace('\n', " | "))
    };
    let answers = [
        test(&["proxy.golang.org"]),
        test(&["X.io:80"]),
        test(&["x.io"]),
        test(&["a.z.io"]),
        test(&["y.io"]),
        test(&["y.io", "--method", "GET", "--path", "/a/b"]),
        test(&["y.io", "--method", "POST", "--path", "/a/b"]),
        test(&["y.io", "--path", "/b"]),
        test(&["y.io", "--path", "/b/../*"]),
        test(&["[::1]:8080"]),
        test(&["x.io:0"]),
        test(&["*"]),
    ];
    assert_snapshot!(answers.join("\n"), @"
    0 proxy.golang.org:443 is allowed by rule `proxy.golang.org`, if its address is a public one
    0 x.io:80 is allowed by rule `x.io:80`, if its address is a public one
    1 x.io:443 is denied: no rule names it, and the network policy is `allowlist` | next: ralph policy allow x.io
    1 a.z.io:443 is denied by rule `*.z.io` of user HOME/.config/ralph/config.toml
    0 y.io:443 is allowed by rule `GET y.io/a/*`; each request is checked separately, see --method and --path, if its address is a public one
    0 y.io:443 is allowed by rule `GET y.io/a/*`, if its address is a public one
    1 y.io:443 is denied: its rules allow other requests, and none allows this one | next: ralph policy allow 'POST y.io/a/b'
    1 y.io:443 is denied: its rules allow other requests, and none allows this one | next: ralph policy allow 'GET y.io/b'
    1 y.io:443 is denied: its rules allow other requests, and none allows this one
    1 [::1]:8080 is denied: it is a loopback address, which only a rule for that address and port opens | next: ralph policy allow '[::1]:8080'
    2 ralph: `x.io:0` names no host and port |   caused by: the port is not a number from 1 to 65535 |  | hint: ralph policy test registry.example.org:443
    2 ralph: `*` names no host and port |   caused by: host `*` has a character that is not a letter, a digit or a dash inside a label |  | hint: ralph policy test registry.example.org:443
    ");
    let json = fixture.ralph(&["policy", "test", "x.io", "--json"]);
    assert_snapshot!(json, @r#"
    exit 1
    --- stdout
    {"format":1,"run":null,"host":"x.io","port":443,"allowed":false,"address":null,"rule":null,"mode":"allowlist","each_request":false,"next":"ralph policy allow x.io"}
    "#);
}

/// Some addresses are opened by no rule, or by no rule for a name: neither command promises what is refused.
#[test]
fn addresses_that_no_rule_opens() {
    let fixture = RepoFixture::new();
    let say = |args: &[&str]| {
        let output = fixture.ralph(&[&["policy"], args].concat());
        format!("{} {}", output.code, [output.stdout, output.stderr].concat().trim_end().replace('\n', " | "))
    };
    let answers = |config: &str| {
        fixture.config("config.toml", config);
        ["169.254.169.254", "224.0.0.1", "localhost:8080", "127.0.0.1:8080"].map(|host| say(&["test", host])).join("\n")
    };
    assert_snapshot!(answers(""), @"
    1 169.254.169.254:443 is denied: it is a cloud metadata address, which no rule opens
    1 224.0.0.1:443 is denied: it is a multicast address, which no rule opens
    1 localhost:8080 is denied: it is a loopback address, which only a rule for that address and port opens | next: ralph policy allow 127.0.0.1:8080
    1 127.0.0.1:8080 is denied: it is a loopback address, which only a rule for that address and port opens | next: ralph policy allow 127.0.0.1:8080
    ");
    let listed = "[sandbox.network]\nallowed = ['169.254.169.254', '224.0.0.1', 'localhost:8080', '127.0.0.1:8080']\n";
    assert_snapshot!(answers(listed), @"
    1 169.254.169.254:443 is denied: it is a cloud metadata address, which no rule opens
    1 224.0.0.1:443 is denied: it is a multicast address, which no rule opens
    0 localhost:8080 is allowed by rule `localhost:8080`
    0 127.0.0.1:8080 is allowed by rule `127.0.0.1:8080`
    ");
    assert_snapshot!(answers("[sandbox.network]\npolicy = 'open'\n"), @"
    1 169.254.169.254:443 is denied: it is a cloud metadata address, which no rule opens
    1 224.0.0.1:443 is denied: it is a multicast address, which no rule opens
    1 localhost:8080 is denied: it is a loopback address, which only a rule for that address and port opens | next: ralph policy allow 127.0.0.1:8080
    1 127.0.0.1:8080 is denied: it is a loopback address, which only a rule for that address and port opens | next: ralph policy allow 127.0.0.1:8080
    ");
    fixture.config("config.toml", "");
    let hosts = ["169.254.169.254", "224.0.0.1:80", "localhost:8080", "GET 10.0.0.1/a", "10.0.0.1"];
    let allowed = hosts.map(|host| say(&["allow", host])).join("\n");
    assert_snapshot!(allowed, @"
    2 ralph: rule `169.254.169.254` would open nothing: `169.254.169.254` is a cloud metadata address, which is never reached |  | hint: name a host or an address that is not internal
    2 ralph: rule `224.0.0.1:80` would open nothing: `224.0.0.1` is a multicast address, which is never reached |  | hint: name a host or an address that is not internal
    2 ralph: rule `localhost:8080` would open nothing: `localhost` is a loopback address, which only a rule for the address opens |  | hint: ralph policy allow 127.0.0.1:8080
    2 ralph: rule `GET 10.0.0.1/a` would open nothing: `10.0.0.1` is a private address, which cannot be opened for single requests |  | hint: ralph policy allow 10.0.0.1
    0 10.0.0.1 added to `sandbox.network.allowed` in HOME/.config/ralph/config.toml | it applies to runs that start from now on; for a run under way use --run RUN
    ");
    let denied = ["169.254.169.254", "*.com"].map(|host| say(&["deny", host])).join("\n");
    assert_snapshot!(denied, @"
    0 169.254.169.254 added to `sandbox.network.denied` in HOME/.config/ralph/config.toml | it applies to runs that start from now on; for a run under way use --run RUN
    2 ralph: rule `*.com` would match every host |  | hint: name the hosts; what no rule allows is refused anyway, unless the policy is `open`
    ");
}

#[test]
fn the_user_config_is_changed() {
    let fixture = RepoFixture::new();
    let file = || fs::read_to_string(fixture.repo.home().join(".config/ralph/config.toml")).unwrap_or_default();
    assert_snapshot!(fixture.ralph(&["policy", "allow", "X.io", "pypi"]), @"
    exit 0
    --- stderr
    x.io, pypi added to `sandbox.network.allowed` in HOME/.config/ralph/config.toml
    it applies to runs that start from now on; for a run under way use --run RUN
    ");
    assert_snapshot!(file(), @r#"
    [sandbox.network]
    allowed = ["x.io", "pypi"]
    "#);
    fixture.config("config.toml", "# mine\n[sandbox.network]\npolicy = \"deny\" # for now\n");
    assert_snapshot!(fixture.ralph(&["policy", "allow", "x.io"]), @"
    exit 0
    --- stderr
    x.io added to `sandbox.network.allowed` in HOME/.config/ralph/config.toml
    `sandbox.network.policy` was `deny` there and is `allowlist` now: with `deny` no list applies
    it applies to runs that start from now on; for a run under way use --run RUN
    ");
    assert_snapshot!(fixture.ralph(&["policy", "deny", "*.y.io", "x.io", "*.y.io"]), @"
    exit 0
    --- stderr
    *.y.io, x.io added to `sandbox.network.denied` in HOME/.config/ralph/config.toml
    it applies to runs that start from now on; for a run under way use --run RUN
    ");
    assert_snapshot!(file(), @r#"
    # mine
    [sandbox.network]
    policy = "allowlist" # for now
    allowed = ["x.io"]
    denied = ["*.y.io", "x.io"]
    "#);
    assert_snapshot!(fixture.ralph(&["policy", "allow", "a.y.io"]), @"
    exit 2
    --- stderr
    ralph: `a.y.io` is denied by the rule `*.y.io`, and deny beats allow

    hint: remove `*.y.io` from `sandbox.network.denied` in HOME/.config/ralph/config.toml
    ");
    let before = file();
    for (host, code) in [("*", 2), ("*.io", 2), ("https://x.io", 2), ("pipy", 2), ("x.io:0", 2)] {
        let output = fixture.ralph(&["policy", "allow", "good.io", host]);
        assert_eq!((output.code, file()), (code, before.clone()), "{output}");
    }
    assert_snapshot!(fixture.ralph(&["policy", "allow", "good.io", "*"]), @"
    exit 2
    --- stderr
    ralph: rule `*` would match every host

    hint: name the hosts, or request the policy `open` explicitly
    ");
    fixture.config("config.toml", "[sandbox\n");
    assert_eq!(fixture.ralph(&["policy", "allow", "x.io"]).code, 2);
    assert_eq!(file(), "[sandbox\n");
}

#[test]
fn a_resting_run() {
    let fixture = paused_run();
    assert_snapshot!(fixture.ralph(&["policy", "ls", "--run", "@"]), @"
    exit 0
    --- stdout
    policy  deny  start of the run
    --- stderr
    nothing but the model endpoints of the run can be reached
    ");
    assert_snapshot!(fixture.ralph(&["policy", "allow", "x.io", "pypi", "--run", "@"]), @"
    exit 0
    --- stderr
    run RUN1 may reach x.io, pypi once it is resumed
    ");
    assert_eq!(fixture.ralph(&["policy", "deny", "bad.io", "--run", "@"]).code, 0);
    assert_snapshot!(fixture.ralph(&["policy", "allow", "bad.io", "--run", "@"]), @"
    exit 2
    --- stderr
    ralph: run `RUN1` cannot do `allow-host`: `bad.io` is denied by the rule `bad.io`, and deny beats allow

    hint: ralph show RUN1
    ");
    assert_snapshot!(fixture.ralph(&["policy", "ls", "--run", "@"]), @"
    exit 0
    --- stdout
    policy  allowlist  a person, later
    allow   pypi       a person, later
    allow   x.io       a person, later
    deny    bad.io     a person, later
    ");
    assert_eq!(fixture.ralph(&["policy", "test", "x.io", "--run", "@"]).code, 0);
    assert_eq!(fixture.ralph(&["policy", "test", "bad.io", "--run", "@"]).code, 1);
    assert_eq!(fixture.ralph(&["resume", "@"]).code, 0);
    assert_eq!(fixture.ralph(&["policy", "test", "x.io", "--run", "@"]).code, 0, "it survives a resume");
    assert_snapshot!(fixture.ralph(&["policy", "allow", "y.io", "--run", "@"]), @"
    exit 2
    --- stderr
    ralph: run `RUN1` cannot do `allow-host`: it has succeeded

    hint: ralph show RUN1
    ");
}

#[test]
fn a_live_run() {
    let mut actions = vec![run("until [ -e .ralph/go ]; do sleep 0.01; done")];
    actions.extend(honest_actions());
    let ralph = RalphHarness::new(&[answer(&actions, &BOTH_BOXES)]);
    let live = ralph.start(&["run"]);
    ralph.await_event("the gate", |event| event["type"] == "action-started");
    // The change applies at once, while the command runs: after a refusal the user need not wait for its end.
    ralph.ralph(&["policy", "allow", "x.io", "--run", "@"]).expect_exit(0);
    assert!(ralph.events_of("action-finished").is_empty(), "the command still runs");
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    live.wait().expect_exit(0);
    let applied = ralph.events_of("control-applied");
    let control: Vec<&Value> = applied.iter().map(|event| &event["control"]).collect();
    assert_eq!(control, [&serde_json::json!({"type": "allow-host", "host": "x.io"})]);
    ralph.ralph(&["policy", "test", "x.io", "--run", "@"]).expect_exit(0);
    ralph.ralph(&["policy", "allow", "y.io", "--run", "@"]).expect_exit(2);
}

#[test]
fn the_log() {
    let fixture = paused_run();
    assert_snapshot!(fixture.ralph(&["policy", "log", "@"]), @"
    exit 0
    --- stderr
    the egress proxy has decided nothing for run RUN1 yet
    ");
    record_decisions(
        &fixture,
        &[
            ("x.io", 443, true),
            ("y.io", 443, false),
            ("z.io", 80, false),
            ("y.io", 443, false),
            ("y.io", 443, false),
            ("\u{1b}[31mq", 443, false),
        ],
    );
    assert_snapshot!(fixture.ralph(&["policy", "log", "@"]), @"
    exit 0
    --- stdout
    TIME  allowed  x.io:443      rule `x.io`
    TIME  denied   y.io:443  ×3  no rule names it, and the network policy is `allowlist`  next: ralph policy allow y.io --run RUN1
    TIME  denied   z.io:80       no rule names it, and the network policy is `allowlist`  next: ralph policy allow z.io:80 --run RUN1
    TIME  denied   q:443         no rule names it, and the network policy is `allowlist`
    ");
    assert_snapshot!(fixture.ralph(&["policy", "log", "-f", "@", "--denied"]), @"
    exit 0
    --- stdout
    TIME  denied  y.io:443  ×3  no rule names it, and the network policy is `allowlist`  next: ralph policy allow y.io --run RUN1
    TIME  denied  z.io:80       no rule names it, and the network policy is `allowlist`  next: ralph policy allow z.io:80 --run RUN1
    TIME  denied  q:443         no rule names it, and the network policy is `allowlist`
    ");
    let json = fixture.ralph(&["policy", "log", "@", "--denied", "--json"]);
    let kinds: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(kinds.len() == 5 && kinds.iter().all(|line: &Value| line["decision"] == "denied"), "{json}");
    let path = run_folder(&fixture).join("audit.jsonl");
    let torn = fs::read_to_string(&path).expect("a file").replacen("\"seq\":3", "\"seq\":", 1);
    fs::write(&path, torn).expect("a file");
    assert_snapshot!(fixture.ralph(&["policy", "log", "@"]).stderr, @"lines that are not records: 1; next: ralph audit verify RUN1");
}

/// A refused request is named, and the suggested rule allows only that request, never all requests to its host.
#[test]
fn the_log_of_requests() {
    let fixture = paused_run();
    let audit_log =
        AuditLog::open(&RunFolder::at(run_folder(&fixture)), Redactor::new([])).expect("no other process has it open");
    for (method, path) in [("POST", "/o/r/git-receive-pack"), ("POST", "/o/r/git-receive-pack"), ("GET", "/*")] {
        audit_log.write(
            "box",
            &EgressEvent::Decision(EgressDecision {
                entry: EgressEntry::Connect,
                host: "github.com".to_owned(),
                port: 443,
                request: Some(RequestSummary::new(method, path)),
                allowed: false,
                why: DecisionReason::RequestNotAllowed,
                address: None,
            }),
        );
    }
    drop(audit_log);
    assert_snapshot!(fixture.ralph(&["policy", "log", "@"]), @"
    exit 0
    --- stdout
    TIME  denied  POST github.com:443/o/r/git-receive-pack  ×2  the rules for this host allow other requests, and none allows this one  next: ralph policy allow 'POST github.com/o/r/git-receive-pack' --run RUN1
    TIME  denied  GET github.com:443/*                          the rules for this host allow other requests, and none allows this one
    ");
}

/// What a model route refuses is a refusal like any other, and an error answer of its host is not.
#[test]
fn the_log_of_calls() {
    let fixture = paused_run();
    let audit_log =
        AuditLog::open(&RunFolder::at(run_folder(&fixture)), Redactor::new([])).expect("no other process has it open");
    let exchanged = |method: &str, path: &str, status, refused: Option<GatewayRefusal>| {
        EgressEvent::Exchange(EgressExchange {
            entry: EgressEntry::Route,
            host: "api.x.io".to_owned(),
            port: 443,
            method: method.to_owned(),
            path: path.to_owned(),
            status: Some(status),
            refused: refused.map(Box::new),
            sent: 0,
            received: 0,
            credential: None,
            call: None,
        })
    };
    let endpoint = GatewayRefusal::Endpoint("`DELETE /v1/models/x` is not an endpoint of route `main`".to_owned());
    audit_log.write("box", &exchanged("DELETE", "/v1/models/x", 403, Some(endpoint)));
    audit_log.write("box", &exchanged("GET", "/v1/models", 403, None));
    audit_log.write(
        "box",
        &exchanged("GET", "/v1/models", 502, Some(GatewayRefusal::Upstream("it does not answer".to_owned()))),
    );
    let tunnelled = |sent, received| {
        let (host, took) = ("pypi.org".to_owned(), Duration::from_secs(1));
        EgressEvent::Tunnel(EgressTunnel { entry: EgressEntry::Connect, host, port: 443, sent, received, took })
    };
    audit_log.write("box", &tunnelled(1000, 70_000));
    audit_log.write("box", &tunnelled(234, 5));
    drop(audit_log);
    assert_snapshot!(fixture.ralph(&["policy", "log", "@"]), @"
    exit 0
    --- stdout
    TIME  denied    DELETE api.x.io:443/v1/models/x      403: `DELETE /v1/models/x` is not an endpoint of route `main`
    TIME  exchange  GET api.x.io:443/v1/models           403
    TIME  exchange  GET api.x.io:443/v1/models           502: it does not answer
    TIME  tunnel    pypi.org:443                     ×2  1234 bytes out, 70005 back
    ");
    assert_snapshot!(fixture.ralph(&["policy", "log", "@", "--denied"]), @"
    exit 0
    --- stdout
    TIME  denied  DELETE api.x.io:443/v1/models/x    403: `DELETE /v1/models/x` is not an endpoint of route `main`
    ");
}

/// A session has no memory, so its prompt lists what the one before was refused, and what that means.
#[test]
fn refusals_are_in_the_next_prompt() {
    let fixture = paused_run();
    record_decisions(&fixture, &[("x.io", 443, true), ("y.io", 443, false), ("y.io", 443, false), ("z.io", 80, false)]);
    assert_eq!(fixture.ralph(&["resume", "@"]).code, 0);
    let prompt = |n: &str| {
        fs::read_to_string(run_folder(&fixture).join("iterations").join(n).join("prompt.md")).expect("a prompt")
    };
    assert!(!prompt("1").contains("refused since"), "{}", prompt("1"));
    let second = prompt("2");
    let why = "no rule names it, and the network policy is `allowlist`";
    let refusals = format!("]\n- y.io (2 times): {why}\n- z.io:80: {why}\n[ralph:end refused ");
    assert!(second.contains("# What the network refused since the last prompt\n"), "{second}");
    assert!(second.contains(&refusals), "{second}");
    assert!(
        second.contains(&format!("`ralph policy allow HOST --run {}`. You cannot.", fixture.runs()[0])),
        "{second}"
    );
}

/// `policy log -f` shows records as they are written.
#[test]
fn the_log_follows() {
    let gate = "until [ -e .ralph/go ]; do sleep 0.01; done";
    let ralph = RalphHarness::new(&[answer(&[vec![run(gate)], honest_actions()].concat(), &BOTH_BOXES)]);
    let live = ralph.start(&["run"]);
    ralph.await_event("the gate", |event| event["type"] == "action-started");
    let following = ralph.start(&["policy", "log", "-f", "@"]);
    wait_until("the first words", || !following.stderr().is_empty());
    // The run itself has the audit log open; its next line is added here as another process would see it.
    let line = ralph_core::audit::AuditChain::begin(&ralph.run_id()).next_line(ralph_core::audit::AuditRecord {
        decision: Some("denied".to_owned()),
        host: Some("y.io".to_owned()),
        port: Some(443),
        remedy: Some("y.io".to_owned()),
        reason: Some("no rule names it".to_owned()),
        ..Default::default()
    });
    fs::write(ralph.run_folder().join("audit.jsonl"), line).expect("a file");
    let seen = || following.stdout().contains("next: ralph policy allow y.io --run ");
    wait_until("the line", seen);
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    live.wait().expect_exit(0);
    following.wait().expect_exit(0);
}
