//! Tests the parser on typical and hostile replies, and that schema and types agree.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::action::reply::{PermissionBits, ReplyClaims, example, schema, strategies};

fn reply(actions: Vec<Action>) -> ActionReply {
    ActionReply { summary: "s".to_owned(), actions, claims: ReplyClaims::default() }
}

fn rotate() -> Action {
    Action::Rotate { reason: "r".to_owned() }
}

#[track_caller]
fn good(text: &str, want: ActionReply, repaired: bool) {
    assert_eq!(parse(text), Ok(ParsedReply { reply: want, repaired }), "{text}");
}

#[track_caller]
fn bad(text: &str, message: &str) {
    assert_eq!(parse(text).map_err(|invalid| invalid.message), Err(message.to_owned()), "{text}");
}

#[test]
fn well_formed_replies_are_parsed() {
    let run = |timeout_s| Action::Run { command: "ls".to_owned(), cwd: ".".to_owned(), timeout_s };
    for (actions, want) in [
        (r#"{"type":"run","command":"ls"}"#, run(900)),
        (r#"{"type":"run","command":"ls","timeout_s":0}"#, run(1)),
        (r#"{"type":"run","command":"ls","timeout_s":1e9}"#, run(7200)),
        (r#"{"command":"ls","timeout_s":60.0,"type":"run"}"#, run(60)),
        (
            r#"{"type":"write","path":"a","content":"","mode":"0755"}"#,
            Action::Write {
                path: "a".to_owned(),
                content: String::new(),
                append: false,
                mode: PermissionBits::new(0o755),
            },
        ),
        (
            r#"{"type":"write","path":"a","content":"\\d \u00e9","append":true,"mode":null}"#,
            Action::Write { path: "a".to_owned(), content: "\\d é".to_owned(), append: true, mode: None },
        ),
        (r#"{"type":"commit","message":"m"}"#, Action::Commit { message: "m".to_owned(), paths: vec![] }),
        (r#"{"type":"rotate","reason":"r"}"#, rotate()),
    ] {
        let text = format!(r#"{{"summary":"s","actions":[{actions}]}}"#);
        good(&text, reply(vec![want.clone()]), false);
        good(&format!("\u{feff}Sure, {{here}}:\n```json\n{text}\n```\nDone."), reply(vec![want]), false);
    }
    assert_eq!(parse(example()).map(|parsed| (parsed.repaired, parsed.reply.actions.len())), Ok((false, 4)));
}

#[test]
fn only_replies_without_verbatim_text_are_repaired() {
    let with = |claims| ActionReply { claims, ..reply(vec![rotate()]) };
    good(r#"{"summary":"s","actions":[{"type":"rotate","reason":"r"},],}"#, reply(vec![rotate()]), true);
    good(r"{'summary':'s','actions':[{'type':'rotate','reason':'r'}]}", reply(vec![rotate()]), true);
    good("{summary: \"s\", actions: [{type: \"rotate\", reason: \"r\"}]}", reply(vec![rotate()]), true);
    good(
        "{\"summary\":\"s\", // note\n\"actions\":[{\"type\":\"rotate\",\"reason\":\"r\"}],\"claims\":{\"checkboxes_checked\":[\"a\",]}}",
        with(ReplyClaims { checkboxes_checked: vec!["a".to_owned()], milestones_completed: vec![] }),
        true,
    );
    bad(
        r#"{"summary":"s","actions":[{"type":"run","command":"grep '\d' x"}]}"#,
        r#"the answer is not valid JSON: invalid escape at line 1 column 59, near `ype":"run","command":"grep '\d' x"}]}`"#,
    );
    bad(
        "{\"summary\":\"s\",\"actions\":[{\"type\":\"write\",\"path\":\"a\",\"content\":\"two\nlines\"}]}",
        "the answer is not valid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0, near `te\",\"path\":\"a\",\"content\":\"two⏎lines\"}]}`",
    );
    bad(
        r#"{"summary":"s","actions":[{"type":"commit","message":"m"},]}"#,
        r#"the answer is not valid JSON: trailing comma at line 1 column 59, near `ype":"commit","message":"m"},]}`"#,
    );
    bad(
        r#"{"summary":"s","actions":[{"type":"patch","path":"a","patch":"@@"},]}"#,
        r#"the answer is not valid JSON: trailing comma at line 1 column 68, near `ch","path":"a","patch":"@@"},]}`"#,
    );
}

#[test]
fn invalid_replies_are_refused() {
    bad("I am done.", "the answer holds no JSON object: answer with exactly one");
    bad("", "the answer holds no JSON object: answer with exactly one");
    bad("[]", "the answer holds no JSON object: answer with exactly one");
    let one = r#"{"summary":"s","actions":[]}"#;
    bad(&format!("{one}\n{one}"), "the answer holds more than one reply: answer with exactly one JSON object");
    let cut = "a quote or bracket is missing, or the answer was cut off because it was too long";
    bad(
        r#"{"summary":"s","actions":[{"type":"rotate","reason":"r"}]"#,
        &format!("the JSON object is never closed (EOF while parsing an object at line 1 column 57): {cut}"),
    );
    bad(
        r#"```json
{"summary":"s","actions":[{"type":"run","comm"#,
        &format!("the JSON object is never closed (EOF while parsing a string at line 1 column 45): {cut}"),
    );
    let fit = "the answer does not fit the schema";
    let kinds = "`run`, `patch`, `write`, `commit`, `rotate`, `pause`, `stop_success`, `stop_failure`";
    for (actions, message) in [
        (r#"{"type":"delete","path":"a"}"#, format!("actions[0]: unknown variant `delete`, expected one of {kinds}")),
        (r#"{"type":"rotate","reason":"r"},{"type":"run"}"#, "actions[1]: missing field `command`".to_owned()),
        (r#"{"reason":"r"}"#, "actions[0]: missing field `type`".to_owned()),
        (r#"{"type":"rotate","reason":"r","why":1}"#, "actions[0]: unknown field `why`, expected `reason`".to_owned()),
        (
            r#"{"type":"write","path":"a","content":"","mode":"4755"}"#,
            "actions[0]: mode `4755` is not three octal digits such as \"755\"".to_owned(),
        ),
        (
            r#"{"type":"run","command":"a","timeout_s":-1}"#,
            "actions[0]: timeout_s: -1 is not a whole number of seconds".to_owned(),
        ),
        (r#"{"type":"run","command":"a","command":"b"}"#, "duplicate field `command` at line 1 column 69".to_owned()),
        (r#"{"type":"run","type":"run","command":"b"}"#, "duplicate field `type` at line 1 column 46".to_owned()),
    ] {
        bad(&format!(r#"{{"summary":"s","actions":[{actions}]}}"#), &format!("{fit}: {message}"));
    }
    bad(r#"{"summary":"s"}"#, &format!("{fit}: missing field `actions` at line 1 column 15"));
    bad(
        r#"{"summary":"s","actions":[],"actions":[]}"#,
        &format!("{fit}: duplicate field `actions` at line 1 column 37"),
    );
    bad(
        r#"{"reply":{"summary":"s","actions":[]}}"#,
        &format!("{fit}: unknown field `reply`, expected one of `summary`, `actions`, `claims` at line 1 column 8"),
    );
    bad(r#"{"summary":"s","actions":[{"type":"run","command":""}]}"#, "`actions[0].command` is empty");
    let many = vec![r#"{"type":"rotate","reason":"r"}"#; 101].join(",");
    bad(
        &format!(r#"{{"summary":"s","actions":[{many}]}}"#),
        "the reply has 101 actions, more than the 100 allowed in one step",
    );
    let long = "x".repeat(MAX_REASON + 1);
    bad(
        &format!(r#"{{"summary":"s","actions":[{{"type":"pause","reason":"{long}"}}]}}"#),
        "`actions[0].reason` has 8193 characters, more than 8192",
    );
}

/// Needs no clock: quadratic work on these sizes, or a stack overflow, shows without one.
#[track_caller]
fn quickly_refused(text: &str) {
    assert!(parse(text).is_err(), "{:?}…", text::head(text, 40));
}

#[test]
fn hostile_texts_are_refused_quickly() {
    const FULL: usize = MAX_TEXT - 64;
    for unit in
        ["{", "[", "{\"a\":", "[{", "\"", "\\", "{}", "{]", "'", "(", "`", "{\"actions\":", "{x", "/*", "a(", "ñ"]
    {
        let wide = unit.repeat((MAX_REPAIR - 64) / unit.len());
        quickly_refused(&wide);
        quickly_refused(&format!("{{\"actions\": {wide}}}"));
        quickly_refused(&format!("{{'actions': '{wide}'}}"));
        quickly_refused(&format!("{{\"summary\":\"s\",\"actions\":[],,\"x\":\"{wide}\"}}"));
        quickly_refused(&format!("{{'actions': '{}'}}", unit.repeat(FULL / unit.len())));
    }
    quickly_refused(&"x".repeat(5_000_000));
}

struct SchemaValidator(boon::Schemas, boon::SchemaIndex);

impl SchemaValidator {
    fn new() -> Self {
        let mut schemas = boon::Schemas::new();
        let mut compiler = boon::Compiler::new();
        compiler.add_resource("reply.json", schema()).expect("the schema is a resource");
        let index = compiler.compile("reply.json", &mut schemas).expect("the schema compiles");
        Self(schemas, index)
    }

    fn accepts(&self, value: &Value) -> bool {
        self.0.validate(value, self.1).is_ok()
    }
}

#[test]
fn schema_and_types_agree() {
    let validator = SchemaValidator::new();
    let with = |action: Value| json!({"summary": "s", "actions": [action]});
    let text = |len: usize| "é".repeat(len);
    let table = [
        (true, json!({"summary": "", "actions": []})),
        (true, json!({"summary": "s", "actions": [], "claims": {}})),
        (true, json!({"summary": "s", "actions": [], "claims": {"checkboxes_checked": ["a"]}})),
        (false, json!({"summary": "s"})),
        (false, json!({"actions": []})),
        (false, json!({"summary": 1, "actions": []})),
        (false, json!({"summary": "s", "actions": {}})),
        (false, json!({"summary": "s", "actions": [], "extra": 1})),
        (false, json!({"summary": "s", "actions": [], "claims": {"boxes": []}})),
        (false, json!({"summary": "s", "actions": [], "claims": {"checkboxes_checked": [1]}})),
        (false, json!({"summary": "s", "actions": [], "claims": null})),
        (false, json!({"summary": text(MAX_SUMMARY + 1), "actions": []})),
        (true, json!({"summary": text(MAX_SUMMARY), "actions": []})),
        (true, with(json!({"type": "run", "command": "a"}))),
        (true, with(json!({"type": "run", "command": "a", "cwd": "b", "timeout_s": 5}))),
        (true, with(json!({"type": "run", "command": "a", "timeout_s": 0}))),
        (true, with(json!({"type": "run", "command": "a", "timeout_s": 99_999_999_999_u64}))),
        (true, with(json!({"type": "run", "command": "a", "timeout_s": 5.0}))),
        (false, with(json!({"type": "run", "command": "a", "timeout_s": 5.5}))),
        (false, with(json!({"type": "run", "command": "a", "timeout_s": -1}))),
        (false, with(json!({"type": "run", "command": "a", "timeout_s": "5"}))),
        (false, with(json!({"type": "run", "command": "a", "timeout_s": null}))),
        (false, with(json!({"type": "run", "command": ""}))),
        (false, with(json!({"type": "run", "command": "a", "cwd": ""}))),
        (false, with(json!({"type": "run", "command": ["a"]}))),
        (false, with(json!({"type": "run"}))),
        (false, with(json!({"type": "Run", "command": "a"}))),
        (false, with(json!({"type": "sing"}))),
        (false, with(json!({"command": "a"}))),
        (false, with(json!("run"))),
        (true, with(json!({"type": "patch", "path": "a", "patch": "p"}))),
        (false, with(json!({"type": "patch", "path": "a", "patch": ""}))),
        (false, with(json!({"type": "patch", "path": "a", "patch": "p", "content": "c"}))),
        (true, with(json!({"type": "write", "path": "a", "content": ""}))),
        (true, with(json!({"type": "write", "path": "a", "content": "", "mode": "755", "append": true}))),
        (true, with(json!({"type": "write", "path": "a", "content": "", "mode": "0644"}))),
        (true, with(json!({"type": "write", "path": "a", "content": "", "mode": null}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "mode": "4755"}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "mode": "7"}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "mode": "798"}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "mode": "755\n"}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "mode": 755}))),
        (false, with(json!({"type": "write", "path": "", "content": ""}))),
        (false, with(json!({"type": "write", "path": text(MAX_PATH + 1), "content": ""}))),
        (false, with(json!({"type": "write", "path": "a", "content": "", "append": "yes"}))),
        (true, with(json!({"type": "commit", "message": "m", "paths": ["a"]}))),
        (false, with(json!({"type": "commit", "message": "m", "paths": [""]}))),
        (false, with(json!({"type": "commit", "message": "m", "paths": "a"}))),
        (false, with(json!({"type": "commit", "message": ""}))),
        (true, with(json!({"type": "rotate", "reason": ""}))),
        (false, with(json!({"type": "rotate"}))),
        (true, with(json!({"type": "pause", "reason": "r"}))),
        (true, with(json!({"type": "stop_success", "reason": "r"}))),
        (true, with(json!({"type": "stop_failure", "reason": "r"}))),
        (false, with(json!({"type": "stop-failure", "reason": "r"}))),
        (false, with(json!({"type": "stop_failure", "reason": text(MAX_REASON + 1)}))),
        (true, json!({"summary": "s", "actions": vec![json!({"type": "pause", "reason": "r"}); 100]})),
        (false, json!({"summary": "s", "actions": vec![json!({"type": "pause", "reason": "r"}); 101]})),
    ];
    for (want, value) in table {
        let shown = value.to_string();
        assert_eq!((validator.accepts(&value), parse(&shown).is_ok()), (want, want), "{}", text::head(&shown, 200));
    }
}

proptest! {
    #[test]
    fn every_reply_round_trips(reply in strategies::reply()) {
        let text = serde_json::to_string_pretty(&reply).unwrap();
        prop_assert_eq!(parse(&text), Ok(ParsedReply { reply, repaired: false }));
    }

    #[test]
    fn the_schema_accepts_every_reply(reply in strategies::reply()) {
        static SCHEMA_VALIDATOR: LazyLock<SchemaValidator> = LazyLock::new(SchemaValidator::new);
        prop_assert!(SCHEMA_VALIDATOR.accepts(&serde_json::to_value(&reply).unwrap()));
    }

    #[test]
    fn no_text_panics(text in "(?s).{0,200}") {
        let _parsed_or_not = parse(&text);
    }

    #[test]
    fn no_json_like_text_panics(parts in proptest::collection::vec(
        prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just("\""), Just("'"), Just(","), Just(":"), Just("\\"), Just("\n"),
            Just("\"summary\":\"s\""), Just("\"actions\":["), Just("{\"type\":\"rotate\",\"reason\":\"r\"}"),
            Just("\"command\""), Just("```"), Just("//"), Just("/*"), Just("\\u12"), Just("("), Just("ñ"), Just("null"),
        ], 0..40)) {
        if let Ok(ParsedReply { reply, repaired: true }) = parse(&parts.concat()) {
            prop_assert!(!reply.actions.iter().any(Action::has_verbatim_text));
        }
    }

    /// A damaged reply is never parsed as a different command, file or patch.
    #[test]
    fn broken_replies_never_act_differently(reply in strategies::reply(), at in 0_usize..400, with in "[\\\\\"',{}\\[\\]a ]{0,2}") {
        let mut text = serde_json::to_string(&reply).unwrap();
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        text.insert_str(at, &with);
        if let Ok(parsed) = parse(&text) {
            if parsed.repaired {
                prop_assert!(!parsed.reply.actions.iter().any(Action::has_verbatim_text));
            } else {
                let strict: Option<ActionReply> = serde_json::from_str(&text).ok();
                prop_assert!(parsed.reply == reply || Some(parsed.reply) == strict);
            }
        }
    }
}
