//! Tests how every agent is started, what recorded sessions of the real programs are parsed into, and hostile output.

use std::fmt::Write as _;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::profile::ProviderProtocol;

fn session(wire: ProviderProtocol) -> AgentSessionParams<'static> {
    AgentSessionParams {
        program: "/opt/program",
        prompt: "do one step",
        prompt_file: "/x/prompt.md",
        folder: "/x/private",
        model: "the-model",
        base_url: match wire {
            ProviderProtocol::Anthropic | ProviderProtocol::Gemini => "http://127.0.0.1:3128/r/lent",
            _ => "http://127.0.0.1:3128/r/lent/v1",
        },
        key: "stand-in",
        key_variable: "SOME_KEY",
        wire,
    }
}

/// Renders how every agent is started, for every protocol it supports.
fn starts() -> String {
    let mut out = String::new();
    for agent in all() {
        let wires = if agent.wires().is_empty() { &[ProviderProtocol::Chat] } else { agent.wires() };
        for wire in wires {
            let start = agent.invocation(&session(*wire));
            writeln!(out, "== {} {wire:?}", agent.name()).unwrap();
            writeln!(out, "{}", start.argv.join(" ")).unwrap();
            for (name, value) in &start.env {
                writeln!(out, "  {name}={value}").unwrap();
            }
            for (path, text) in &start.files {
                writeln!(out, "  file {path}:").unwrap();
                for line in text.lines() {
                    writeln!(out, "    {line}").unwrap();
                }
            }
            if let Some(stdin) = &start.stdin {
                writeln!(out, "  stdin {stdin}").unwrap();
            }
        }
    }
    out
}

#[test]
fn how_agents_are_started() {
    let got = starts();
    assert_eq!(got, include_str!("tests/starts.txt"), "\n{got}");
}

#[test]
fn every_agent_is_complete() {
    let mut names: Vec<&str> = all().iter().map(|agent| agent.name()).collect();
    names.push("custom");
    let known = crate::text::did_you_mean("claud", names.iter().copied());
    assert_eq!(known, Some("claude"));
    for agent in all() {
        assert_eq!(by_name(agent.name()).map(Agent::name), Some(agent.name()));
        let hinted = !agent.install_hint().is_empty();
        assert_eq!(agent.package().is_none(), hinted, "{}: either a package or a hint", agent.name());
        // Only an agent that talks to nothing but its vendor goes without a route.
        assert_eq!(agent.guarantee() == CredentialGuarantee::BaseUrl, !agent.wires().is_empty(), "{}", agent.name());
        let start = agent.invocation(&session(agent.wires().first().copied().unwrap_or(ProviderProtocol::Chat)));
        let all = format!("{start:?}");
        assert_eq!(start.argv.first().map(String::as_str), Some("/opt/program"));
        assert!(all.contains("stand-in") && all.contains("the-model"), "{}", agent.name());
        assert!(!start.argv.iter().any(|word| word.contains("stand-in")), "{}: a key on a command line", agent.name());
        // A prompt of any size fits.
        let long = "x".repeat(1 << 20);
        let start = agent.invocation(&AgentSessionParams { prompt: &long, ..session(ProviderProtocol::Chat) });
        assert!(start.argv.iter().all(|word| word.len() < 1 << 16), "{}", agent.name());
        let argv = format!("{:?}", start.argv);
        assert!(start.stdin.as_ref() == Some(&long) || argv.contains("/x/prompt.md"), "{}", agent.name());
    }
    assert!(by_name("custom").is_none() && by_name("").is_none());
}

#[test]
fn the_key_variable_decides_how_the_key_is_sent() {
    for (variable, want) in [
        ("ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"),
        ("ZAI_API_KEY", "ANTHROPIC_API_KEY"),
    ] {
        let start = by_name("claude")
            .unwrap()
            .invocation(&AgentSessionParams { key_variable: variable, ..session(ProviderProtocol::Anthropic) });
        let holders: Vec<_> = start.env.iter().filter(|(_, value)| value == "stand-in").map(|(name, _)| name).collect();
        assert_eq!(holders, [want], "{variable}");
    }
}

/// Renders the events of a recorded session, its result, and its classification without observed calls.
fn render_session(agent: &str, code: i32, stream: &str) -> String {
    let mut reader = by_name(agent).unwrap().reader();
    let mut out = String::new();
    for line in stream.lines() {
        for event in reader.read_line(line) {
            let line = match event {
                AgentOutputEvent::Text(text) => format!("says {text}"),
                AgentOutputEvent::Tool { name, brief } => format!("{name}: {brief}"),
                AgentOutputEvent::ToolDone { name, ok, brief } => {
                    format!("{name} {}: {brief}", if ok { "ok" } else { "failed" })
                }
                AgentOutputEvent::Retry { status, why } => format!("again {status:?} {why}"),
                AgentOutputEvent::Warning(why) => format!("trouble {why}"),
            };
            writeln!(out, "{line}").unwrap();
        }
    }
    let finished = reader.session_result().unwrap();
    writeln!(
        out,
        "ok {} tokens {:?} status {:?}",
        finished.ok,
        finished.usage.map(|usage| (usage.input, usage.cached_input, usage.output)),
        finished.status
    )
    .unwrap();
    let ended = AgentSessionEnd {
        code: Some(code),
        missing: false,
        idle: false,
        timed_out: false,
        result: reader.session_result(),
        stderr: "",
        calls: &[],
        now: Timestamp::UNIX_EPOCH,
    };
    write!(out, "{:?}", classify_session_end(&ended)).unwrap();
    out
}

macro_rules! check {
    ($agent:literal, $case:literal, $code:literal, $want:literal) => {
        let got = render_session($agent, $code, include_str!(concat!("tests/", $agent, "-", $case, ".jsonl")));
        assert_eq!(got, $want, concat!($agent, " ", $case));
    };
}

#[test]
fn successful_sessions() {
    // Each created a file, ran a command that fails, and reported it. The server counted 3006 + 999 and 234 tokens.
    check!(
        "claude",
        "ok",
        0,
        "Bash: printf made > made.txt; echo made it\nBash ok: made it\nBash: echo oh no >&2; exit 3\nBash failed: Exit code 3\nsays It is made.\nok true tokens Some((3006, 999, 234)) status None\nDone"
    );
    check!(
        "codex",
        "ok",
        0,
        "trouble Model metadata for `gpt-5` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\ncommand: /bin/bash -lc 'printf made > made.txt; echo made it'\ncommand ok: made it\ncommand: /bin/bash -lc 'echo oh no >&2; exit 3'\ncommand failed: oh no\nsays It is made.\nok true tokens Some((3006, 999, 234)) status None\nDone"
    );
    check!(
        "gemini",
        "ok",
        0,
        "run_shell_command: printf made > made.txt; echo made it\nrun_shell_command ok: made it\nrun_shell_command: echo oh no >&2; exit 3\nrun_shell_command ok: oh no\nsays It is made.\nok true tokens Some((3006, 999, 234)) status None\nDone"
    );
    check!(
        "opencode",
        "ok",
        0,
        "bash: printf made > made.txt; echo made it\nbash ok: made it\nbash: echo oh no >&2; exit 3\nbash failed: oh no\nsays It is made.\nok true tokens Some((3006, 999, 234)) status None\nDone"
    );
    check!(
        "qwen",
        "ok",
        0,
        "run_shell_command: printf made > made.txt; echo made it\nrun_shell_command ok: made it\nrun_shell_command: echo oh no >&2; exit 3\nrun_shell_command ok: oh no\nsays It is made.\nok true tokens Some((3006, 999, 234)) status None\nDone"
    );
    check!(
        "copilot",
        "ok",
        0,
        "bash: printf made > made.txt; echo made it\nbash ok: made it\nbash: echo oh no >&2; exit 3\nbash failed: oh no\nsays It is made.\nok true tokens None status None\nDone"
    );
}

#[test]
fn refused_sessions() {
    check!(
        "claude",
        "401",
        1,
        "again Some(401) authentication_failed (try 1 of 2)\nagain Some(401) authentication_failed (try 2 of 2)\nsays Invalid API key · Fix external API key\nok false tokens Some((0, 0, 0)) status Some(401)\nAuth"
    );
    check!(
        "claude",
        "429",
        1,
        "again Some(429) rate_limit (try 1 of 2)\nagain Some(429) rate_limit (try 2 of 2)\nsays API Error: Request rejected (429) · slow down\nok false tokens Some((0, 0, 0)) status Some(429)\nLimit { until: None }"
    );
    check!(
        "claude",
        "402",
        1,
        "says API Error: 402 ralph: budget spent: $1.00 of $1.00\nok false tokens Some((0, 0, 0)) status Some(402)\nBudgetSpent"
    );
    check!(
        "codex",
        "401",
        1,
        "trouble Model metadata for `gpt-5` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\nagain Some(401) Reconnecting... 1/2 (unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1:3128/v1/responses)\nagain Some(401) Reconnecting... 2/2 (unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1:3128/v1/responses)\ntrouble unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1:3128/v1/responses\nok false tokens None status Some(401)\nAuth"
    );
    check!(
        "codex",
        "429",
        1,
        "trouble Model metadata for `gpt-5` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\ntrouble exceeded retry limit, last status: 429 Too Many Requests\nok false tokens None status Some(429)\nLimit { until: None }"
    );
    check!("gemini", "401", 145, "ok false tokens Some((0, 0, 0)) status Some(401)\nAuth");
    check!("gemini", "429", 173, "ok false tokens Some((0, 0, 0)) status None\nLimit { until: None }");
    check!("opencode", "401", 1, "ok false tokens None status Some(401)\nAuth");
    check!("opencode", "400", 1, "ok false tokens None status Some(400)\nBudgetSpent");
    // It exits with code 0 and reports success.
    check!(
        "qwen",
        "401",
        0,
        "says [API Error: 401 invalid x-api-key]\nok false tokens Some((0, 0, 0)) status Some(401)\nAuth"
    );
    check!(
        "qwen",
        "400",
        0,
        "says [API Error: 400 ralph: budget spent: $1.00 of $1.00]\nok false tokens Some((0, 0, 0)) status Some(400)\nBudgetSpent"
    );
    check!(
        "copilot",
        "401",
        1,
        "trouble Authentication failed with provider at http://127.0.0.1:3128/v1 (HTTP 401).\nok false tokens None status Some(401)\nAuth"
    );
    let got = render_session("codex", 1, include_str!("tests/codex-400.jsonl"));
    assert!(got.ends_with("\nBudgetSpent"), "{got}");
}

#[test]
fn documented_streams() {
    // cursor-agent, as its documentation shows it.
    let stream = r#"{"type":"system","subtype":"init","apiKeySource":"env","cwd":"/w","session_id":"s","model":"m","permissionMode":"default"}
{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]},"session_id":"s"}
{"type":"tool_call","subtype":"started","call_id":"c","tool_call":{"readToolCall":{"args":{"path":"a.md"}}},"session_id":"s"}
{"type":"tool_call","subtype":"completed","call_id":"c","tool_call":{"readToolCall":{"args":{"path":"a.md"},"result":{"success":{"content":"…"}}}},"session_id":"s"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"Read it."}]},"session_id":"s"}
{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"result":"Read it.","session_id":"s"}"#;
    assert_eq!(
        render_session("cursor", 0, stream),
        "read: a.md\nread ok: \nsays Read it.\nok true tokens None status None\nDone"
    );
}

/// Returns lines that look like the output of agents, and lines that do not.
fn hostile() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("assistant"),
        Just("user"),
        Just("result"),
        Just("system"),
        Just("error"),
        Just("message"),
        Just("tool_use"),
        Just("tool_result"),
        Just("text"),
        Just("step_finish"),
        Just("turn.completed"),
        Just("turn.failed"),
        Just("item.completed"),
        Just("item.started"),
        Just("tool_call"),
        Just("session.error"),
        Just("tool.execution_complete"),
        Just("assistant.message"),
        Just("api_retry"),
        Just("started"),
    ];
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("true".to_owned()),
        Just("-1".to_owned()),
        Just("1e999".to_owned()),
        Just("18446744073709551615".to_owned()),
        "\\PC{0,20}".prop_map(|text| serde_json::Value::from(text).to_string()),
        Just(
            r#"{"content":[{"type":"text","text":"t"},{"type":"tool_use","id":1,"name":[]},{"type":"tool_result"}]}"#
                .to_owned()
        ),
        Just(r#"{"type":"command_execution","id":"1","exit_code":-9999999999,"changes":[]}"#.to_owned()),
        Just(
            r#"{"tokens":{"input":-1,"output":18446744073709551615,"cache":[]},"reason":"stop","cost":-1e300}"#
                .to_owned()
        ),
        Just(r#"{"x":{"result":null,"args":[1]}}"#.to_owned()),
    ];
    let keys = prop_oneof![
        Just("message"),
        Just("item"),
        Just("part"),
        Just("data"),
        Just("error"),
        Just("errors"),
        Just("usage"),
        Just("stats"),
        Just("modelUsage"),
        Just("result"),
        Just("is_error"),
        Just("subtype"),
        Just("tool_call"),
        Just("content"),
        Just("status"),
        Just("total_cost_usd"),
        Just("exitCode"),
        Just("tool_id"),
        Just("api_error_status"),
        Just("role"),
    ];
    let object = (word, prop::collection::vec((keys, value), 0..6)).prop_map(|(kind, fields)| {
        let fields: String = fields.iter().fold(String::new(), |mut all, (key, value)| {
            write!(all, ",\"{key}\":{value}").unwrap();
            all
        });
        format!("{{\"type\":\"{kind}\"{fields}}}")
    });
    prop_oneof![3 => object, 1 => "\\PC{0,40}", 1 => Just("[".repeat(500)), 1 => Just(format!("{{\"type\":\"text\",\"part\":{{\"text\":\"{}\"}}}}", "é\u{1b}[2J".repeat(20_000)))]
}

proptest! {
    #[test]
    fn no_output_panics(lines in prop::collection::vec(hostile(), 0..12)) {
        for agent in all() {
            let mut reader = agent.reader();
            for line in &lines {
                for event in reader.read_line(line) {
                    let text = format!("{event:?}");
                    prop_assert!(text.len() < 128 << 10 && !text.contains("\\u{1b}"), "{}", agent.name());
                }
            }
            prop_assert!(reader.last_text().len() <= 32 << 10);
            let finished = reader.session_result().cloned();
            let ended = AgentSessionEnd { code: Some(0), missing: false, idle: false, timed_out: false, result: finished.as_ref(),
                stderr: lines.first().map_or("", String::as_str), calls: &[], now: Timestamp::UNIX_EPOCH };
            classify_session_end(&ended);
        }
    }
}
