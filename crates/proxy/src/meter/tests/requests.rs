//! Tests of how requests are rewritten or refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{BadRequest, MeteredRequest, ModelCallKind, RewrittenRequest};

fn gemini() -> ModelCallKind {
    ModelCallKind::Gemini { model: "g".to_owned(), stream: false }
}

#[track_caller]
fn write(call: &ModelCallKind, body: &str, most: u64) -> (String, Vec<String>, bool) {
    let RewrittenRequest { body, changed, usage_added } =
        MeteredRequest::parse(call, body.as_bytes()).expect(body).write(most);
    (String::from_utf8(body).expect("text"), changed, usage_added)
}

#[track_caller]
fn check(call: &ModelCallKind, body: &str, most: u64, want: &str, changed: &[&str]) {
    let (text, changes, _) = write(call, body, most);
    assert_eq!(text, want);
    assert_eq!(changes, changed);
}

#[test]
fn requests_within_the_limit_are_unchanged() {
    for (call, body) in [
        (
            ModelCallKind::Messages,
            r#"{"x":1.50,"model":"m","max_tokens":100,"messages":[ {"role":"user","content":"h\u0069"} ],"y":[{}]}"#,
        ),
        (
            ModelCallKind::Messages,
            r#"{"model":"m","max_tokens":0,"messages":[],"stream":true,"thinking":{"type":"enabled","budget_tokens":5000},"service_tier":"standard_only","tools":[{"name":"a"},{"type":"bash_20250124","name":"bash"},{"type":"custom","name":"b"}],"tool_choice":{"type":"tool","name":"a"}}"#,
        ),
        (
            ModelCallKind::Chat,
            r#"{"model":"m","messages":[],"max_tokens":9,"max_completion_tokens":9,"service_tier":"flex","n":1,"modalities":["text"],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
        ),
        (
            ModelCallKind::Chat,
            r#"{"model":"m","messages":[],"max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            ModelCallKind::Responses,
            r#"{"model":"m","input":"hi","max_output_tokens":16,"store":false,"previous_response_id":null,"background":false,"tools":[{"type":"function","name":"f"},{"type":"local_shell"}]}"#,
        ),
        (
            gemini(),
            r#"{"contents":[{"parts":[{"text":"a"}]}],"generationConfig":{"maxOutputTokens":7},"tools":[{"function_declarations":[]}]}"#,
        ),
    ] {
        check(&call, body, 100, body, &[]);
    }
}

#[test]
fn answers_are_not_stored_at_the_provider() {
    for (given, changes) in [
        (r#"{"model":"m","max_output_tokens":1,"store":true}"#, &["`store` set to false"][..]),
        (r#"{"model":"m","max_output_tokens":1,"store":"no"}"#, &["`store` set to false"]),
        (r#"{"model":"m","max_output_tokens":1,"store":null}"#, &[]),
        (r#"{"model":"m","max_output_tokens":1}"#, &[]),
        (r#"{"model":"m","max_output_tokens":1,"store":false}"#, &[]),
    ] {
        check(&ModelCallKind::Responses, given, 9, r#"{"model":"m","max_output_tokens":1,"store":false}"#, changes);
    }
}

#[test]
fn output_limits_are_lowered_or_added() {
    check(
        &ModelCallKind::Messages,
        r#"{"model":"m","max_tokens":64000,"messages":[]}"#,
        500,
        r#"{"model":"m","max_tokens":500,"messages":[]}"#,
        &["`max_tokens` lowered from 64000 to 500"],
    );
    check(
        &ModelCallKind::Responses,
        r#"{"model":"m","max_output_tokens":null,"store":false}"#,
        500,
        r#"{"model":"m","max_output_tokens":500,"store":false}"#,
        &["`max_output_tokens` set to 500"],
    );
    check(
        &ModelCallKind::Chat,
        r#"{"model":"m","max_tokens":900,"max_completion_tokens":800,"n":3}"#,
        500,
        r#"{"model":"m","max_tokens":166,"max_completion_tokens":166,"n":3}"#,
        &["`max_tokens` lowered from 900 to 166", "`max_completion_tokens` lowered from 800 to 166"],
    );
    check(
        &gemini(),
        r#"{"contents":[],"generation_config":{"max_output_tokens":900,"candidateCount":2,"temperature":0}}"#,
        500,
        r#"{"contents":[],"generation_config":{"max_output_tokens":250,"candidateCount":2,"temperature":0}}"#,
        &["`maxOutputTokens` lowered from 900 to 250"],
    );
    check(
        &gemini(),
        r#"{"contents":[]}"#,
        500,
        r#"{"contents":[],"generationConfig":{"maxOutputTokens":500}}"#,
        &["`maxOutputTokens` set to 500"],
    );
}

/// A chat has two names for the limit. Other servers may ignore the name that OpenAI's own server knows, and OpenAI
/// refuses both at once.
#[test]
fn the_limit_of_a_chat_is_sent_once() {
    let (old, new, both) =
        (r#""max_tokens":9"#, r#""max_completion_tokens":9"#, r#""max_tokens":9,"max_completion_tokens":7"#);
    let (old_5, new_5) = (r#""max_tokens":5"#, r#""max_completion_tokens":5"#);
    let both_5 = r#""max_tokens":5,"max_completion_tokens":5"#;
    for (model, sent, openai, elsewhere) in [
        ("glm-4.7", "", old_5, old_5),
        ("gpt-4.1", "", old_5, old_5),
        ("gpt-5", "", new_5, new_5),
        ("openai/o3-mini", "", new_5, new_5),
        ("glm-4.7", old, old_5, old_5),
        ("glm-4.7", new, new_5, old_5),
        ("gpt-5", new, new_5, new_5),
        ("gpt-5", old, old_5, old_5),
        ("glm-4.7", both, both_5, both_5),
        // A limit below the most is kept, under either name.
        ("glm-4.7", r#""max_completion_tokens":3"#, r#""max_completion_tokens":3"#, r#""max_tokens":3"#),
    ] {
        let comma = if sent.is_empty() { "" } else { "," };
        let body = format!(r#"{{"model":"{model}"{comma}{sent}}}"#);
        let read = || MeteredRequest::parse(&ModelCallKind::Chat, body.as_bytes()).expect("a request");
        for (request, want) in [(read(), openai), (read().with_legacy_limit(), elsewhere)] {
            let RewrittenRequest { body: got, .. } = request.write(5);
            assert_eq!(String::from_utf8_lossy(&got), format!(r#"{{"model":"{model}",{want}}}"#), "{body}");
        }
    }
    // A null counts as missing.
    let null = br#"{"model":"m","max_tokens":null,"max_completion_tokens":9}"#;
    let written = MeteredRequest::parse(&ModelCallKind::Chat, null).expect("a request").with_legacy_limit().write(5);
    assert_eq!(written.body, br#"{"model":"m","max_tokens":5}"#);
    assert_eq!(written.changed, ["`max_completion_tokens` sent as `max_tokens`", "`max_tokens` lowered from 9 to 5"]);
}

#[test]
fn wanted_outputs_are_read() {
    #[track_caller]
    fn check(call: &ModelCallKind, body: &Value, want: Option<u64>) {
        let body = body.to_string();
        let request = MeteredRequest::parse(call, body.as_bytes()).expect("a request");
        assert_eq!(request.wanted_output(), want, "{body}");
    }
    check(&ModelCallKind::Messages, &json!({"model": "m", "max_tokens": 9}), Some(9));
    check(&ModelCallKind::Chat, &json!({"model": "m", "max_tokens": 9, "max_completion_tokens": 7, "n": 2}), Some(18));
    check(&ModelCallKind::Chat, &json!({"model": "m", "max_tokens": null, "n": 2}), None);
    check(&ModelCallKind::Responses, &json!({"model": "m", "max_output_tokens": u64::MAX}), Some(u64::MAX));
    check(&gemini(), &json!({"generationConfig": {"maxOutputTokens": 9, "candidate_count": 3}}), Some(27));
    let request = MeteredRequest::parse(&gemini(), b"{}").expect("a request");
    assert_eq!((request.model(), request.wanted_output()), ("g", None));
}

#[test]
fn thinking_stays_below_the_output_limit() {
    let body = |most: u64, thinking: &str| {
        format!(
            r#"{{"model":"m","max_tokens":{most},"thinking":{thinking},"context_management":{{"edits":[{{"type":"clear_thinking_20251015"}}]}}}}"#
        )
    };
    let planned = r#"{"type":"enabled","budget_tokens":10000}"#;
    let (less, changes, _) = write(&ModelCallKind::Messages, &body(32_000, planned), 2000);
    assert_eq!(less, body(2000, r#"{"type":"enabled","budget_tokens":1999}"#));
    assert_eq!(
        changes,
        ["`max_tokens` lowered from 32000 to 2000", "`thinking.budget_tokens` lowered from 10000 to 1999"]
    );
    let (off, changes, _) = write(&ModelCallKind::Messages, &body(32_000, planned), 1024);
    assert_eq!(off, r#"{"model":"m","max_tokens":1024,"thinking":{"type":"disabled"}}"#);
    assert_eq!(changes, ["`max_tokens` lowered from 32000 to 1024", "`thinking` turned off"]);
    let (same, ..) = write(&ModelCallKind::Messages, &body(32_000, planned), 10_001);
    assert_eq!(same, body(10_001, planned));
    let (adaptive, ..) = write(&ModelCallKind::Messages, &body(32_000, r#"{"type":"adaptive"}"#), 5);
    assert_eq!(adaptive, body(5, r#"{"type":"adaptive"}"#));
}

#[test]
fn usage_is_requested_in_streams() {
    for (given, want, added) in [
        (r#""stream":true"#, r#""stream":true,"stream_options":{"include_usage":true}"#, true),
        (
            r#""stream_options":{"include_usage":false,"x":1},"stream":true"#,
            r#""stream_options":{"include_usage":true,"x":1},"stream":true"#,
            true,
        ),
        (r#""stream":true,"stream_options":null"#, r#""stream":true,"stream_options":{"include_usage":true}"#, true),
        (
            r#""stream":true,"stream_options":{"include_usage":true}"#,
            r#""stream":true,"stream_options":{"include_usage":true}"#,
            false,
        ),
        (r#""stream":false"#, r#""stream":false"#, false),
    ] {
        let body = |rest: &str| format!(r#"{{"model":"m","max_tokens":1,{rest}}}"#);
        let (text, _, usage_added) = write(&ModelCallKind::Chat, &body(given), 9);
        assert_eq!((text, usage_added), (body(want), added));
    }
    let (text, _, added) = write(&ModelCallKind::Responses, r#"{"model":"m","stream":true,"max_output_tokens":1}"#, 9);
    assert_eq!((text.contains("stream_options"), added), (false, false));
}

#[test]
fn what_costs_extra_is_removed() {
    check(
        &ModelCallKind::Messages,
        r#"{"model":"m","speed":"fast","inference_geo":"us","service_tier":"priority","mcp_servers":[{}],"container":"c","max_tokens":1,"tools":[{"name":"a","x":1e1},{"type":"web_search_20250305","name":"web_search"},{"type":"code_execution_20250825"},{"type":7},"x"],"tool_choice":{"type":"tool","name":"web_search"},"context_management":{"edits":[{"type":"compact_20260112"},{"type":"clear_tool_uses_20250919"}]}}"#,
        9,
        r#"{"model":"m","max_tokens":1,"tools":[{"name":"a","x":10.0}],"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}"#,
        &[
            "`speed` removed",
            "`inference_geo` removed",
            "`mcp_servers` removed",
            "`container` removed",
            "`service_tier` removed",
            "an edit of `context_management` removed",
            "tool `web_search_20250305` removed",
            "tool `code_execution_20250825` removed",
            "tool `?` removed",
            "tool `?` removed",
            "`tool_choice` removed",
        ],
    );
    check(
        &ModelCallKind::Messages,
        r#"{"model":"m","max_tokens":1,"tools":[{"name":"a","Type":"web_search_20250305"},{"name":"b"}]}"#,
        9,
        r#"{"model":"m","max_tokens":1,"tools":[{"name":"b"}]}"#,
        &["tool `?` removed"],
    );
    check(
        &ModelCallKind::Responses,
        r#"{"model":"m","store":false,"max_output_tokens":1,"service_tier":"auto","tools":[{"type":"web_search"},{"type":"namespace","tools":[{"type":"function","name":"f"},{"type":"mcp"}]},{"name":"bare"}],"tool_choice":"auto"}"#,
        9,
        r#"{"model":"m","store":false,"max_output_tokens":1,"service_tier":"auto","tools":[{"type":"namespace","tools":[{"type":"function","name":"f"}]}],"tool_choice":"auto"}"#,
        &["tool `web_search` removed", "tool `mcp` removed", "tool `?` removed"],
    );
    check(
        &ModelCallKind::Chat,
        r#"{"model":"m","max_tokens":1,"prediction":{},"web_search_options":{},"modalities":["text","audio"],"audio":{},"models":["dear"],"tools":[{"type":"web_search"}],"tool_choice":"required","plugins":null}"#,
        9,
        r#"{"model":"m","max_tokens":1}"#,
        &[
            "`prediction` removed",
            "`web_search_options` removed",
            "`audio` removed",
            "`models` removed",
            "`modalities` removed",
            "tool `web_search` removed",
        ],
    );
    // Fields from which a gateway would make a paid tool, or which make it answer with a more expensive model.
    check(
        &ModelCallKind::Chat,
        r#"{"model":"m","max_tokens":1,"context_window_fallbacks":[{"m":["dear"]}],"mock_testing_context_fallbacks":true,"tools":[{"googleSearch":{}},{"type":"function","urlContext":{}},{"type":"function","function":{"name":"f"}}]}"#,
        9,
        r#"{"model":"m","max_tokens":1,"tools":[{"type":"function","function":{"name":"f"}}]}"#,
        &[
            "`context_window_fallbacks` removed",
            "`mock_testing_context_fallbacks` removed",
            "tool `?` removed",
            "tool `function` removed",
        ],
    );
    check(
        &gemini(),
        r#"{"model":"dear","tools":[{"googleSearch":{}},{"functionDeclarations":[],"code_execution":{}}],"serviceTier":"priority","generationConfig":{"responseModalities":["IMAGE"],"maxOutputTokens":1}}"#,
        9,
        r#"{"tools":[{"functionDeclarations":[]}],"generationConfig":{"maxOutputTokens":1}}"#,
        &[
            "`model` removed",
            "`serviceTier` removed",
            "`responseModalities` removed",
            "tool `googleSearch` removed",
            "tool `code_execution` removed",
        ],
    );
}

#[test]
fn invalid_requests_are_refused() {
    #[track_caller]
    fn check(call: &ModelCallKind, body: &str, want: &str) {
        let error = MeteredRequest::parse(call, body.as_bytes()).expect_err(body);
        let hint = error.hint().map(|hint| format!(" | {hint}")).unwrap_or_default();
        assert_eq!(format!("{error}{hint}"), want);
    }
    let chat = ModelCallKind::Chat;
    check(&chat, "", "the body is not a JSON object, at line 1, column 0");
    check(&chat, r#"["model"]"#, "the body is not a JSON object, at line 1, column 1");
    check(&chat, r#"{"model":"a","model":"b"}"#, "`model` appears twice in one object");
    check(
        &chat,
        r#"{"model":"a","Max_Tokens":1}"#,
        "`Max_Tokens` is not the exact spelling of `max_tokens` | write `max_tokens`",
    );
    check(
        &chat,
        r#"{"model":"a","maxTokens":1}"#,
        "`maxTokens` is not the exact spelling of `max_tokens` | write `max_tokens`",
    );
    for body in ["{}", r#"{"model":""}"#, r#"{"model":" "}"#, r#"{"model":7}"#, r#"{"model":"a\nb"}"#] {
        check(&chat, body, "the body names no model");
    }
    for number in ["-1", "1.5", "\"9\"", "1e3", "[]", "18446744073709551616"] {
        let body = format!(r#"{{"model":"m","max_tokens":{number}}}"#);
        check(&chat, &body, "`max_tokens` must be a whole number, zero or more");
    }
    for number in ["0", "129"] {
        check(&chat, &format!(r#"{{"model":"m","n":{number}}}"#), "`n` must be a whole number from 1 to 128");
    }
    check(&chat, r#"{"model":"m","stream":"yes"}"#, "`stream` must be true or false");
    check(&chat, r#"{"model":"m","tools":{}}"#, "`tools` must be a list");
    for (name, value) in
        [("previous_response_id", "\"r\""), ("conversation", "{}"), ("prompt", "{\"id\":1}"), ("background", "true")]
    {
        check(
            &ModelCallKind::Responses,
            &format!(r#"{{"model":"m","{name}":{value}}}"#),
            &format!(
                "`{name}` refers to content stored at the provider, whose cost cannot be known in advance | send the whole \
                 conversation with every call"
            ),
        );
    }
    // In a part too: a more lenient gateway would read it there.
    for (part, name, meant) in [
        (r#"{"type":"text","text":"a","Source":{"type":"url","url":"https://x"}}"#, "Source", "source"),
        (r#"{"type":"text","text":"a","Type":"image"}"#, "Type", "type"),
        (
            r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA==","URL":"x"}}"#,
            "URL",
            "url",
        ),
        (r#"{"type":"file","file":{"file_data":"AA==","fileId":"f"}}"#, "fileId", "file_id"),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
        check(&chat, &body, &format!("`{name}` is not the exact spelling of `{meant}` | write `{meant}`"));
    }
    let body = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","\u017fource":{}}]}]}"#;
    check(&chat, body, "`ſource` is not a valid field name | leave it out, or write it in ASCII");
    check(
        &gemini(),
        r#"{"generationConfig":{},"generation_config":{}}"#,
        "`generation_config` appears twice in one object",
    );
    check(
        &gemini(),
        r#"{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}}"#,
        "`max_output_tokens` appears twice in one object",
    );
    check(&gemini(), r#"{"generationConfig":[]}"#, "`generationConfig` must be an object");
    assert_eq!(
        MeteredRequest::parse(&gemini(), br#"{"cached_content":"c"}"#).err(),
        Some(BadRequest::StoredAtProvider { name: "cachedContent" })
    );
}

/// Some parsers take `ſ` for `s`, and the Kelvin sign for `k`: they would read what we ignore.
#[test]
fn names_are_ascii() {
    for (name, written) in [
        ("max_token\u{17f}", "max_token\u{17f}"),
        ("max_token\u{17f}", r"max_token\u017f"),
        ("max_to\u{212a}ens", "max_to\u{212a}ens"),
        ("max_output_token\u{17f}", "max_output_token\u{17f}"),
        ("model\u{17f}", r"model\u017F"),
        ("\u{17f}peed", "\u{17f}peed"),
        ("naïve", "naïve"),
    ] {
        for call in [ModelCallKind::Messages, ModelCallKind::Chat, ModelCallKind::Responses, gemini()] {
            let body = format!(r#"{{"model":"m","max_tokens":1,"max_output_tokens":1,"{written}":128000}}"#);
            let want = BadRequest::NotAscii { name: name.to_owned() };
            assert_eq!(MeteredRequest::parse(&call, body.as_bytes()).err(), Some(want), "{call:?} {body}");
        }
    }
    let config = "{\"generationConfig\":{\"maxOutputTokens\":1,\"maxOutputToken\u{17f}\":9}}";
    let want = BadRequest::NotAscii { name: "maxOutputToken\u{17f}".to_owned() };
    assert_eq!(MeteredRequest::parse(&gemini(), config.as_bytes()).err(), Some(want));
    // Text of a message is not a field name.
    let body_text = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"größer"}],"x":{"ſ":1}}"#;
    check(&ModelCallKind::Messages, body_text, 9, body_text, &[]);
}

/// Fields, in any spelling, that make a gateway drop our limit, answer with another model, or use another account.
#[test]
fn gateway_overrides_are_removed() {
    for name in [
        "additional_drop_params",
        "additionalDropParams",
        "drop_params",
        "allowed_openai_params",
        "max_retries",
        "request_timeout",
        "stream_timeout",
        "retry_policy",
        "prompt_id",
        "prompt_variables",
        "providerOptions",
        "provider_options",
        "ProviderOptions",
        "router_settings_override",
        "preset",
        "aws_bedrock_runtime_endpoint",
        "vertex_project",
        "litellm_credential_name",
        "Fallbacks",
    ] {
        let given = format!(r#""{name}":{{"gateway":{{"models":["dear"]}}}}"#);
        let change = format!("`{name}` removed");
        for (call, rest) in [
            (ModelCallKind::Messages, r#""model":"m","max_tokens":1"#),
            (ModelCallKind::Chat, r#""model":"m","max_tokens":1"#),
            (ModelCallKind::Responses, r#""model":"m","max_output_tokens":1,"store":false"#),
            (gemini(), r#""generationConfig":{"maxOutputTokens":1}"#),
        ] {
            check(&call, &format!("{{{given},{rest}}}"), 9, &format!("{{{rest}}}"), &[&change]);
        }
    }
    let config = r#"{"config":{"maxOutputTokens":9000},"generation_config":{"max_output_tokens":1}}"#;
    let left = r#"{"generation_config":{"max_output_tokens":1}}"#;
    check(&gemini(), config, 9, left, &["`config` removed"]);
}

#[test]
fn long_cache_writes_are_detected() {
    for (control, want) in [
        (r#"{"type":"ephemeral"}"#, false),
        (r#"{"type":"ephemeral","ttl":"5m"}"#, false),
        (r#"{"type":"ephemeral","ttl":"1h"}"#, true),
        (r#"{"type":"ephemeral","ttl":"9d"}"#, true),
    ] {
        for body in [
            format!(r#"{{"model":"m","system":[{{"type":"text","text":"x","cache_control":{control}}}]}}"#),
            format!(r#"{{"model":"m","messages":[{{"content":[{{"content":[{{"cache_control":{control}}}]}}]}}]}}"#),
            format!(r#"{{"model":"m","cache_control":{control}}}"#),
            format!(r#"{{"model":"m","tools":[{{"name":"t","cache_control":{control}}}]}}"#),
        ] {
            let request = MeteredRequest::parse(&ModelCallKind::Messages, body.as_bytes()).expect("a request");
            assert_eq!(request.long_cache(), want, "{body}");
        }
    }
}

fn calls() -> impl Strategy<Value = ModelCallKind> {
    prop_oneof![
        Just(ModelCallKind::Messages),
        Just(ModelCallKind::Chat),
        Just(ModelCallKind::Responses),
        Just(gemini())
    ]
}

/// Bodies of known and unknown fields with plausible and implausible values.
fn body() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "n",
        "candidateCount",
        "stream",
        "stream_options",
        "generationConfig",
        "generation_config",
        "thinking",
        "budget_tokens",
        "tools",
        "type",
        "messages",
        "contents",
        "parts",
        "input",
        "content",
        "source",
        "system",
        "service_tier",
        "x",
        "y",
        "context_management",
        "edits",
        "max_token\u{17f}",
        "providerOptions",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5000u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_ ]{0,6}|image|text|enabled".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 24, 4, {
        let names = names.clone();
        move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(names.clone(), inner, 0..4).prop_map(|map| Value::Object(
                    map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                )),
            ]
        }
    });
    proptest::collection::btree_map(names, value, 0..6).prop_map(|map| {
        let mut body = json!({"model": "m"});
        for (name, value) in map {
            body[name] = value;
        }
        body
    })
}

proptest! {
    #[test]
    fn rewritten_requests_keep_the_limit_and_everything_else(call in calls(), body in body(), most in 0..6000u64) {
        let text = body.to_string();
        let Ok(request) = MeteredRequest::parse(&call, text.as_bytes()) else { return Ok(()) };
        prop_assert!(request.input() > 0);
        // A call with less than one token for each answer is refused before it is written.
        prop_assume!(most >= request.choices());
        let written = request.write(most).body;
        let again = MeteredRequest::parse(&call, &written).expect("a request");
        // What was written has a limit, and it covers all choices together.
        prop_assert!(again.wanted_output().is_some_and(|wanted| wanted <= most), "{}", String::from_utf8_lossy(&written));
        let names = serde_json::from_slice::<serde_json::Map<String, Value>>(&written).expect("an object");
        prop_assert!(names.keys().all(|name| name.is_ascii() && name != "providerOptions"));
        let [before, after] = [text.as_bytes(), &written].map(|text| serde_json::from_slice::<Value>(text).expect("JSON"));
        for name in ["x", "y", "messages", "contents", "input", "system"] {
            prop_assert_eq!(before.get(name), after.get(name));
        }
        // Rewriting once more changes nothing.
        let twice = again.write(most);
        prop_assert_eq!(twice, RewrittenRequest { body: written, changed: Vec::new(), usage_added: false });
    }

    #[test]
    fn never_panics(call in calls(), text in "\\PC{0,60}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = MeteredRequest::parse(&call, text.as_bytes());
        let _ = MeteredRequest::parse(&call, &bytes);
    }
}
