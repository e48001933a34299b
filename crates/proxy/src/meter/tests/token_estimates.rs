//! Tests of the token estimate of prompts.

use serde_json::{Value, json};

use super::super::{BadRequest, MeteredRequest, ModelCallKind};

const IMAGE_TOKENS: u64 = 10_000;
const DOCUMENT_TOKENS: u64 = 200_000;

fn input(call: &ModelCallKind, body: &Value) -> Result<u64, BadRequest> {
    MeteredRequest::parse(call, body.to_string().as_bytes()).map(|request| request.input())
}

fn of_part(call: &ModelCallKind, part: &Value) -> Result<u64, BadRequest> {
    let body = match call {
        ModelCallKind::Messages | ModelCallKind::Chat => {
            json!({"model": "m", "messages": [{"role": "user", "content": [part]}]})
        }
        ModelCallKind::Responses => {
            json!({"model": "m", "input": [{"type": "message", "role": "user", "content": [part]}]})
        }
        ModelCallKind::Gemini { .. } => json!({"contents": [{"role": "user", "parts": [part]}]}),
    };
    input(call, &body)
}

/// Checks that a part counts as `want` tokens, apart from those around it.
#[track_caller]
fn check(call: &ModelCallKind, part: &Value, want: u64) {
    let weight = of_part(call, part).expect("a part with a weight");
    assert!((want..want + 150).contains(&weight), "{weight} is not about {want}: {part}");
}

#[track_caller]
fn check_refused(call: &ModelCallKind, part: &Value, kind: &str) {
    assert_eq!(of_part(call, part), Err(BadRequest::Part { kind: kind.to_owned() }), "{part}");
}

fn gemini() -> ModelCallKind {
    ModelCallKind::Gemini { model: "g".to_owned(), stream: false }
}

#[test]
fn text_is_counted() {
    let text = "word ".repeat(1000);
    check(&ModelCallKind::Messages, &json!({"type": "text", "text": text}), 1000);
    check(&ModelCallKind::Chat, &json!({"type": "text", "text": text}), 1000);
    check(&ModelCallKind::Responses, &json!({"type": "input_text", "text": text}), 1000);
    check(&gemini(), &json!({"text": text}), 1000);
    check(
        &ModelCallKind::Messages,
        &json!({"type": "tool_use", "id": "t", "name": "n", "input": {"command": text}}),
        1000,
    );
    check(&ModelCallKind::Messages, &json!({"type": "tool_result", "content": [{"type": "text", "text": text}]}), 1000);
    check(&ModelCallKind::Responses, &json!({"type": "function_call_output", "output": text}), 1000);
    check(&gemini(), &json!({"functionResponse": {"name": "f", "response": {"out": text}}}), 1000);
    // What looks like an image within a tool's input is text.
    let fake = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}});
    check(&ModelCallKind::Messages, &json!({"type": "tool_use", "input": fake}), 1000);
    for call in [ModelCallKind::Messages, ModelCallKind::Chat, ModelCallKind::Responses] {
        let instructions = json!({"model": "m", "system": text, "instructions": text});
        assert!(input(&call, &instructions).is_ok_and(|weight| weight > 2000));
    }
}

#[test]
fn tools_count_descriptions_and_provider_overhead() {
    let none = input(&ModelCallKind::Messages, &json!({"model": "m"})).expect("a request");
    let one = json!({"model": "m", "tools": [{"name": "a", "description": "word ".repeat(500)}]});
    let one = input(&ModelCallKind::Messages, &one).expect("a request");
    assert!((1300..1500).contains(&(one - none)), "{}", one - none);
    let known = json!({"model": "m", "tools": [{"type": "bash_20250124", "name": "bash"}]});
    let known = input(&ModelCallKind::Messages, &known).expect("a request");
    assert!((2300..2500).contains(&(known - none)), "{}", known - none);
    // A removed tool counts nothing.
    let gone = json!({"model": "m", "tools": [{"type": "web_search_20250305", "x": "word ".repeat(500)}]});
    assert_eq!(input(&ModelCallKind::Messages, &gone), Ok(none));
}

#[test]
fn images_and_documents_are_counted() {
    let data = "iVBORw0KGgo".repeat(1000);
    let source = |kind: &str| json!({"type": "base64", "media_type": kind, "data": data});
    check(&ModelCallKind::Messages, &json!({"type": "image", "source": source("image/png")}), IMAGE_TOKENS);
    let result = json!({"type": "tool_result", "content": [{"type": "image", "source": source("image/png")}]});
    check(&ModelCallKind::Messages, &result, IMAGE_TOKENS);
    check(&ModelCallKind::Messages, &json!({"type": "document", "source": source("application/pdf")}), DOCUMENT_TOKENS);
    let plain = json!({"type": "text", "media_type": "text/plain", "data": "word ".repeat(1000)});
    check(&ModelCallKind::Messages, &json!({"type": "document", "source": plain}), 1000);
    let url = format!("data:image/png;base64,{data}");
    check(&ModelCallKind::Chat, &json!({"type": "image_url", "image_url": {"url": url}}), IMAGE_TOKENS);
    check(&ModelCallKind::Chat, &json!({"type": "image_url", "image_url": url}), IMAGE_TOKENS);
    check(
        &ModelCallKind::Chat,
        &json!({"type": "file", "file": {"filename": "a.pdf", "file_data": data}}),
        DOCUMENT_TOKENS,
    );
    check(&ModelCallKind::Responses, &json!({"type": "input_image", "image_url": url}), IMAGE_TOKENS);
    let shot = json!({"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": url}});
    check(&ModelCallKind::Responses, &shot, IMAGE_TOKENS);
    check(&ModelCallKind::Responses, &json!({"type": "input_file", "file_data": data}), DOCUMENT_TOKENS);
    check(&gemini(), &json!({"inlineData": {"mimeType": "image/png", "data": data}}), IMAGE_TOKENS);
    check(&gemini(), &json!({"inline_data": {"mime_type": "application/pdf", "data": data}}), DOCUMENT_TOKENS);
    check(&gemini(), &json!({"inline_data": {"mime_type": "text/plain", "data": data}}), IMAGE_TOKENS + 8250);
    let huge = "iVBORw0KGgo".repeat(100_000);
    check(&ModelCallKind::Responses, &json!({"type": "input_file", "file_data": huge}), 825_000);
}

#[test]
fn encrypted_thinking_is_counted() {
    let sealed = "Ab3/".repeat(750);
    check(&ModelCallKind::Messages, &json!({"type": "thinking", "thinking": "", "signature": sealed}), 1000);
    check(&ModelCallKind::Messages, &json!({"type": "redacted_thinking", "data": sealed}), 1000);
    check(&ModelCallKind::Responses, &json!({"type": "reasoning", "summary": [], "encrypted_content": sealed}), 1000);
    check(&gemini(), &json!({"text": "x", "thoughtSignature": sealed}), 1000);
}

#[test]
fn content_stored_at_the_provider_is_refused() {
    let messages = ModelCallKind::Messages;
    for source in [json!({"type": "url", "url": "https://a.b/c"}), json!({"type": "file", "file_id": "f"}), json!("x")]
    {
        check_refused(&messages, &json!({"type": "image", "source": source}), "image");
        check_refused(&messages, &json!({"type": "document", "source": source}), "document");
    }
    check_refused(&messages, &json!({"type": "image"}), "image");
    check_refused(&messages, &json!({"type": "container_upload", "file_id": "f"}), "container_upload");
    check_refused(&messages, &json!({"type": "new`\n", "source": {"type": "url"}}), "new");
    let inside = json!({"type": "tool_result", "content": [{"type": "image", "source": {"type": "url"}}]});
    check_refused(&messages, &inside, "image");
    check_refused(
        &ModelCallKind::Chat,
        &json!({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}),
        "image_url",
    );
    check_refused(&ModelCallKind::Chat, &json!({"type": "file", "file": {"file_id": "f"}}), "file");
    check_refused(&ModelCallKind::Chat, &json!({"type": "file", "file": {"file_id": "f", "file_data": ""}}), "file");
    check_refused(&ModelCallKind::Chat, &json!({"type": "input_audio", "input_audio": {"data": ""}}), "input_audio");
    check_refused(&ModelCallKind::Responses, &json!({"type": "input_image", "file_id": "f"}), "input_image");
    check_refused(&ModelCallKind::Responses, &json!({"type": "input_file", "file_url": "https://a.b/c"}), "input_file");
    for reference in
        [json!({"type": "item_reference", "id": "i"}), json!({"id": "i"}), json!({"type": null, "id": "i"})]
    {
        let body = json!({"model": "m", "input": [reference]});
        assert_eq!(
            input(&ModelCallKind::Responses, &body),
            Err(BadRequest::Part { kind: "item_reference".to_owned() })
        );
    }
    for kind in ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"] {
        let body = json!({"model": "m", "input": [{"type": kind, "id": "i"}]});
        assert_eq!(input(&ModelCallKind::Responses, &body), Err(BadRequest::Part { kind: kind.to_owned() }));
    }
    for item in [
        json!({"type": "reasoning", "id": "rs_1"}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "short"}]}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null}),
        json!({"type": "compaction", "id": "c_1"}),
    ] {
        let body = json!({"model": "m", "input": [item]});
        assert_eq!(input(&ModelCallKind::Responses, &body), Err(BadRequest::StoredReasoning), "{body}");
    }
    for item in [
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}),
        json!({"type": "reasoning", "summary": []}),
    ] {
        let body = json!({"model": "m", "input": [item]});
        assert!(input(&ModelCallKind::Responses, &body).is_ok(), "{body}");
    }
    check_refused(&gemini(), &json!({"fileData": {"fileUri": "u"}}), "fileData");
    check_refused(&gemini(), &json!({"file_data": {"file_uri": "u"}}), "file_data");
    check_refused(&gemini(), &json!({"inlineData": {"mimeType": "video/mp4", "data": ""}}), "video/mp4");
    check_refused(&gemini(), &json!({"inlineData": {"mimeType": "image/png", "data": "", "DATA": ""}}), "image/png");
}
