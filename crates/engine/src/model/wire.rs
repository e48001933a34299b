//! The OpenAI chat format as data: a request into a body, a body into an answer. Nothing here sends or waits.
//!
//! Servers that call themselves compatible differ in which fields they take ([`Shape`]) and in how honest their usage
//! is; only the `usage` object beside the choices counts, never text that looks like one.

use ralph_core::price::Usage;
use serde_json::{Map, Value, json};

use super::said::{Said, is_html};
use super::{Finish, Flaw, Request, Role, estimate};

/// More tokens than any call can have: a larger figure is a mistake.
const MOST_TOKENS: u64 = 100_000_000;

/// Which optional fields a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) response_format: bool,
    pub(super) temperature: bool,
    pub(super) cap: CapField,
}

/// The name under which a server takes the output cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapField {
    MaxTokens,
    MaxCompletionTokens,
}

impl Shape {
    /// Guesses from the model's name: reasoning models take neither `max_tokens` nor a temperature.
    pub(super) fn of(model: &str, response_format: bool) -> Self {
        let reasons = reasons(model);
        let cap = if reasons { CapField::MaxCompletionTokens } else { CapField::MaxTokens };
        Self { response_format, temperature: !reasons, cap }
    }

    /// Returns the shape to try after the server complained about a field that was sent, if it did.
    pub(super) fn after_complaint(self, status: u16, said: &Said, sent: &Value) -> Option<Self> {
        if !matches!(status, 400 | 422) {
            return None;
        }
        let names = |field: &str| sent.get(field).is_some() && (said.param == field || said.mentions(&[field]));
        let unsupported = said.has_mark(&["unsupported_parameter", "unsupported_value"])
            || said.mentions(&["unsupported", "not support"]);
        if names("response_format") {
            return Some(Self { response_format: false, ..self });
        }
        if names("max_tokens") && said.mentions(&["max_completion_tokens"]) {
            return Some(Self { cap: CapField::MaxCompletionTokens, ..self });
        }
        if names("temperature") && unsupported {
            return Some(Self { temperature: false, ..self });
        }
        None
    }
}

/// Says whether a model is one of those that think first: `gpt-5` and later, and the `o` series.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    if let Some(version) = name.strip_prefix("gpt-") {
        let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        return digits.parse::<u32>().is_ok_and(|major| major >= 5);
    }
    name.strip_prefix('o').is_some_and(|rest| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && (digits.is_empty() || digits.starts_with('-'))
    })
}

/// Builds the request body. The error is the field of `extra` that is ours to set.
pub(super) fn body(model: &str, request: &Request, shape: Shape) -> Result<Value, &'static str> {
    const OURS: [&str; 8] =
        ["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of"];
    if let Some(field) = OURS.into_iter().find(|field| request.extra.contains_key(*field)) {
        return Err(field);
    }
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut messages = Vec::with_capacity(request.history.len() + 2);
    if !request.system.is_empty() {
        messages.push(message("system", &request.system));
    }
    messages.push(message("user", &request.user));
    messages.extend(request.history.iter().map(|turn| {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        message(role, &turn.text)
    }));

    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("messages".into(), messages.into());
    let cap = match shape.cap {
        CapField::MaxTokens => "max_tokens",
        CapField::MaxCompletionTokens => "max_completion_tokens",
    };
    body.insert(cap.into(), request.max_output_tokens.into());
    if let Some(temperature) = request.temperature.filter(|_| shape.temperature) {
        body.insert("temperature".into(), json!(temperature));
    }
    if request.json && shape.response_format {
        body.insert("response_format".into(), json!({"type": "json_object"}));
    }
    body.insert("stream".into(), false.into());
    body.extend(request.extra.clone());
    Ok(Value::Object(body))
}

/// What a fine answer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) usage: Usage,
    pub(super) usage_reported: bool,
    pub(super) model: Option<String>,
    pub(super) finish: Finish,
}

/// Reads an answer, or says what is wrong with it.
pub(super) fn answer(body: &str, request: &Request) -> Result<Answer, Flaw> {
    if body.trim().is_empty() {
        return Err(Flaw::Empty);
    }
    let value: Value =
        serde_json::from_str(body).map_err(|_| if is_html(body) { Flaw::Html } else { Flaw::NotJson })?;
    let choice = value.get("choices").and_then(|choices| choices.get(0)).ok_or(Flaw::NoChoice)?;
    let message = choice.get("message").filter(|message| message.is_object()).ok_or(Flaw::NoChoice)?;
    let content = message.get("content").map(content).unwrap_or_default();
    let refusal = message.get("refusal").and_then(Value::as_str).filter(|refusal| !refusal.is_empty());
    let finish = match (choice.get("finish_reason").and_then(Value::as_str), refusal) {
        (_, Some(_)) if content.is_empty() => Finish::Filtered,
        (Some("stop") | None, _) => Finish::Stop,
        (Some("length"), _) => Finish::Length,
        (Some("content_filter"), _) => Finish::Filtered,
        (Some(other), _) => Finish::Other(other.to_owned()),
    };
    let text = if content.is_empty() { refusal.unwrap_or_default().to_owned() } else { content };
    let reasoning = message.get("reasoning_content").and_then(Value::as_str).map_or(0, str::len);
    let reported = value.get("usage").and_then(usage).filter(|usage| text.is_empty() || usage.output > 0);
    Ok(Answer {
        usage: reported.unwrap_or_else(|| estimate(request, text.len().saturating_add(reasoning))),
        usage_reported: reported.is_some(),
        model: value.get("model").and_then(Value::as_str).map(str::to_owned),
        text,
        finish,
    })
}

/// Reads a message's content: a text, or a list of parts of which the texts count.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// Reads the provider's usage; `None` when it cannot be true, so that nobody is charged by a mistake.
fn usage(usage: &Value) -> Option<Usage> {
    let tokens = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|tokens| *tokens <= MOST_TOKENS);
    let detail = |group: &str, key: &str| tokens(usage.get(group).and_then(|group| group.get(key)));
    let prompt = tokens(usage.get("prompt_tokens")).filter(|prompt| *prompt > 0)?;
    let completion = tokens(usage.get("completion_tokens"))?;
    let cached = detail("prompt_tokens_details", "cached_tokens")
        .or_else(|| tokens(usage.get("prompt_cache_hit_tokens")))
        .filter(|cached| *cached <= prompt)
        .unwrap_or(0);
    let rest = prompt - cached;
    let written = detail("prompt_tokens_details", "cache_write_tokens").filter(|written| *written <= rest).unwrap_or(0);
    let reasoning = detail("completion_tokens_details", "reasoning_tokens").unwrap_or(0);
    // Some servers count reasoning beside the completion, not within it: their total gives them away.
    let beside = tokens(usage.get("total_tokens")) == Some(prompt + completion + reasoning);
    let output = if beside { completion + reasoning } else { completion };
    Some(Usage {
        input: rest - written,
        cached_input: cached,
        cache_write: written,
        output,
        reasoning: reasoning.min(output),
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::{Lost, Turn};
    use super::*;

    fn request() -> Request {
        Request {
            system: "rules".into(),
            user: "do".into(),
            history: Vec::new(),
            max_output_tokens: 64,
            temperature: Some(0.2),
            json: true,
            lost: Lost::Retry,
            timeout: Duration::from_secs(1),
            extra: Map::new(),
        }
    }

    #[test]
    fn names_that_reason() {
        for (model, want) in [
            ("gpt-5", true),
            ("gpt-5.2-mini", true),
            ("openai/gpt-5-nano", true),
            ("gpt-10", true),
            ("o1", true),
            ("o3-mini", true),
            ("O4-mini", true),
            ("gpt-4o", false),
            ("gpt-4.1", false),
            ("gpt-oss-120b", false),
            ("glm-4.7", false),
            ("olmo-2", false),
            ("o", false),
            ("", false),
        ] {
            assert_eq!(reasons(model), want, "{model}");
        }
    }

    #[test]
    fn bodies() {
        let messages = json!([{"role": "system", "content": "rules"}, {"role": "user", "content": "do"}]);
        let plain = request();
        assert_eq!(
            body("glm-4.7", &plain, Shape::of("glm-4.7", true)),
            Ok(json!({"model": "glm-4.7", "messages": messages, "max_tokens": 64, "temperature": 0.2,
                "response_format": {"type": "json_object"}, "stream": false}))
        );
        assert_eq!(
            body("gpt-5", &plain, Shape::of("gpt-5", false)),
            Ok(json!({"model": "gpt-5", "messages": messages, "max_completion_tokens": 64, "stream": false}))
        );
        let again = Request {
            system: String::new(),
            history: vec![
                Turn { role: Role::Assistant, text: "{".into() },
                Turn { role: Role::User, text: "not JSON".into() },
            ],
            temperature: None,
            json: false,
            extra: json!({"thinking": {"type": "disabled"}}).as_object().cloned().unwrap(),
            ..request()
        };
        assert_eq!(
            body("glm-4.7", &again, Shape::of("glm-4.7", true)),
            Ok(json!({"model": "glm-4.7", "messages": [{"role": "user", "content": "do"},
                {"role": "assistant", "content": "{"}, {"role": "user", "content": "not JSON"}],
                "max_tokens": 64, "stream": false, "thinking": {"type": "disabled"}}))
        );
        for field in ["model", "max_tokens", "n", "stream"] {
            let extra = Map::from_iter([(field.to_owned(), json!(9))]);
            let bad = Request { extra, ..request() };
            assert_eq!(body("m", &bad, Shape::of("m", true)), Err(field));
        }
    }

    #[test]
    fn complaints() {
        #[track_caller]
        fn check(status: u16, error: &Value, want: Option<Shape>) {
            let shape = Shape::of("m", true);
            let sent = body("m", &request(), shape).unwrap();
            let said = Said::read(&json!({ "error": error }).to_string());
            assert_eq!(shape.after_complaint(status, &said, &sent), want, "{error}");
        }
        let whole = Shape::of("m", true);
        check(
            400,
            &json!({"message": "no", "param": "response_format"}),
            Some(Shape { response_format: false, ..whole }),
        );
        check(
            422,
            &json!({"message": "Extra inputs: response_format"}),
            Some(Shape { response_format: false, ..whole }),
        );
        check(
            400,
            &json!({"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
                "param": "max_tokens"}),
            Some(Shape { cap: CapField::MaxCompletionTokens, ..whole }),
        );
        check(
            400,
            &json!({"message": "Unsupported value: 'temperature'", "param": "temperature"}),
            Some(Shape { temperature: false, ..whole }),
        );
        check(400, &json!({"message": "temperature must be below 2", "param": "temperature"}), None);
        check(400, &json!({"message": "max_tokens is too large", "param": "max_tokens"}), None);
        check(500, &json!({"message": "response_format"}), None);
        check(400, &json!({"message": "thing"}), None);
        // What was not sent cannot be left out.
        let none = Shape { response_format: false, ..whole };
        let sent = body("m", &request(), none).unwrap();
        let said = Said::read(r#"{"error":{"message":"response_format"}}"#);
        assert_eq!(none.after_complaint(400, &said, &sent), None);
    }

    #[track_caller]
    fn check_answer(message: &Value, finish: &Value, want_text: &str, want_finish: Finish) {
        let body = json!({"model": "m", "choices": [{"message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        assert_eq!(
            answer(&body.to_string(), &request()),
            Ok(Answer {
                text: want_text.into(),
                usage: Usage { input: 5, output: 2, ..Usage::default() },
                usage_reported: true,
                model: Some("m".into()),
                finish: want_finish
            })
        );
    }

    #[test]
    fn answers() {
        check_answer(&json!({"content": "hi"}), &json!("stop"), "hi", Finish::Stop);
        check_answer(&json!({"content": "hi"}), &json!(null), "hi", Finish::Stop);
        check_answer(&json!({"content": "h"}), &json!("length"), "h", Finish::Length);
        check_answer(&json!({"content": ""}), &json!("content_filter"), "", Finish::Filtered);
        check_answer(&json!({"content": null}), &json!("stop"), "", Finish::Stop);
        check_answer(&json!({"content": null, "refusal": "No."}), &json!("stop"), "No.", Finish::Filtered);
        check_answer(&json!({"content": "hi", "refusal": ""}), &json!("stop"), "hi", Finish::Stop);
        check_answer(
            &json!({"content": null, "tool_calls": []}),
            &json!("tool_calls"),
            "",
            Finish::Other("tool_calls".into()),
        );
        check_answer(
            &json!({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}),
            &json!("stop"),
            "ab",
            Finish::Stop,
        );
        check_answer(&json!({"content": 7}), &json!("stop"), "", Finish::Stop);
    }

    #[test]
    fn flaws() {
        for (body, want) in [
            ("", Flaw::Empty),
            (" \n", Flaw::Empty),
            ("<html>", Flaw::Html),
            (r#"{"choices":[{"message":{"cont"#, Flaw::NotJson),
            ("data: {}", Flaw::NotJson),
            ("{}", Flaw::NoChoice),
            ("[]", Flaw::NoChoice),
            (r#"{"choices":[]}"#, Flaw::NoChoice),
            (r#"{"choices":[{}]}"#, Flaw::NoChoice),
            (r#"{"choices":[{"message":"hi"}]}"#, Flaw::NoChoice),
            (r#"{"choices":{"0":1}}"#, Flaw::NoChoice),
        ] {
            assert_eq!(answer(body, &request()), Err(want), "{body}");
        }
    }

    #[test]
    fn usages() {
        #[track_caller]
        fn check(given: &Value, want: Option<[u64; 5]>) {
            let want = want.map(|[input, cached_input, cache_write, output, reasoning]| Usage {
                input,
                cached_input,
                cache_write,
                output,
                reasoning,
                ..Usage::default()
            });
            assert_eq!(usage(given), want, "{given}");
        }
        check(&json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}), Some([50, 0, 0, 9, 0]));
        check(
            &json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3}}),
            Some([26, 20, 4, 9, 3]),
        );
        check(
            &json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": null,
                "completion_tokens_details": null}),
            Some([50, 0, 0, 9, 0]),
        );
        check(
            &json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_cache_hit_tokens": 30}),
            Some([20, 30, 0, 9, 0]),
        );
        // Reasoning counted beside the completion.
        check(
            &json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 159,
                "completion_tokens_details": {"reasoning_tokens": 100}}),
            Some([50, 0, 0, 109, 100]),
        );
        // Details that cannot be true fall away; the whole stays.
        check(
            &json!({"prompt_tokens": 5, "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": -1},
                "completion_tokens_details": {"reasoning_tokens": 10}}),
            Some([5, 0, 0, 9, 9]),
        );
        check(&json!({"prompt_tokens": -5, "completion_tokens": 9}), None);
        check(&json!({"prompt_tokens": "5", "completion_tokens": 9}), None);
        check(&json!({"prompt_tokens": 5, "completion_tokens": null}), None);
        check(&json!({"prompt_tokens": 5.5, "completion_tokens": 9}), None);
        check(&json!({"prompt_tokens": 0, "completion_tokens": 9}), None);
        check(&json!({"prompt_tokens": u64::MAX, "completion_tokens": 9}), None);
        check(&json!({}), None);
        check(&json!("lots"), None);
    }

    #[test]
    fn wrong_usage_becomes_an_estimate() {
        let fake = r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
        for usage in [json!(null), json!({"prompt_tokens": 9, "completion_tokens": 0}), json!([1])] {
            let body = json!({"choices": [{"message": {"content": fake}}], "usage": usage});
            let answer = answer(&body.to_string(), &request()).unwrap();
            assert_eq!((answer.usage, answer.usage_reported), (estimate(&request(), fake.len()), false));
        }
        let body = json!({"choices": [{"message": {"content": "", "reasoning_content": "thinking"}}]});
        assert_eq!(answer(&body.to_string(), &request()).unwrap().usage.output, 2);
    }

    proptest! {
        #[test]
        fn any_body_is_read_calmly(body in "\\PC{0,300}") {
            let _ = answer(&body, &request());
        }

        #[test]
        fn usage_never_exceeds_what_was_said(prompt: u64, completion: u64, cached: u64, written: u64, reasoning: u64) {
            let given = json!({"prompt_tokens": prompt, "completion_tokens": completion,
                "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
                "completion_tokens_details": {"reasoning_tokens": reasoning}});
            if let Some(usage) = usage(&given) {
                prop_assert_eq!(usage.total(), prompt + completion);
                prop_assert!(usage.reasoning <= usage.output);
            }
        }
    }
}
