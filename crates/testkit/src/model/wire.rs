//! The formats the server answers in, told apart by the path that was asked for.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultyModelWire {
    Chat,
    Responses,
    Messages,
    Gemini,
}

impl FaultyModelWire {
    /// Returns the format of a path; `None` for one that no model is asked at.
    pub(super) fn of(path: &str) -> Option<Self> {
        [
            ("/chat/completions", Self::Chat),
            ("/responses", Self::Responses),
            ("/messages", Self::Messages),
            (":generateContent", Self::Gemini),
        ]
        .into_iter()
        .find_map(|(end, wire)| path.ends_with(end).then_some(wire))
    }

    /// Returns the model a request names: in its body, or in its path.
    pub(super) fn model(path: &str, body: &Value) -> String {
        let last = path.rsplit('/').next().unwrap_or_default();
        let in_path = last.strip_suffix(":generateContent");
        in_path.or_else(|| body.get("model")?.as_str()).unwrap_or_default().to_owned()
    }

    /// Says whether a request wishes for a JSON object.
    pub(super) fn wants_json(self, body: &Value) -> bool {
        let at = match self {
            Self::Chat => "/response_format",
            Self::Responses => "/text/format",
            Self::Messages => return false,
            Self::Gemini => "/generationConfig/responseMimeType",
        };
        body.pointer(at).is_some()
    }

    /// Writes an answer. `usage` is told in the words of chat and put into those of this format, right or wrong as it
    /// is; null leaves it out.
    pub(super) fn answer(self, model: &str, content: &str, usage: &Value) -> String {
        let (mut body, place) = match self {
            Self::Chat => (
                json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1_794_700_000, "model": model,
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "logprobs": null,
                        "finish_reason": "stop"}]}),
                "usage",
            ),
            Self::Responses => (
                json!({"id": "resp_1", "object": "response", "created_at": 1_794_700_000, "status": "completed",
                    "model": model, "error": null, "incomplete_details": null,
                    "output": [{"type": "reasoning", "id": "rs_1", "summary": []},
                        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                        "content": [{"type": "output_text", "text": content, "annotations": []}]}]}),
                "usage",
            ),
            Self::Messages => (
                json!({"id": "msg_1", "type": "message", "role": "assistant", "model": model,
                    "content": [{"type": "text", "text": content}], "stop_reason": "end_turn", "stop_sequence": null}),
                "usage",
            ),
            Self::Gemini => (
                json!({"candidates": [{"content": {"role": "model", "parts": [{"text": content}]},
                    "finishReason": "STOP", "index": 0}], "modelVersion": model}),
                "usageMetadata",
            ),
        };
        if let (Some(body), false) = (body.as_object_mut(), usage.is_null()) {
            body.insert(place.into(), self.usage_json(usage));
        }
        body.to_string()
    }

    fn usage_json(self, usage: &Value) -> Value {
        let (prompt, output) = match self {
            Self::Chat => return usage.clone(),
            Self::Responses | Self::Messages => ("input_tokens", "output_tokens"),
            Self::Gemini => ("promptTokenCount", "candidatesTokenCount"),
        };
        let Some(fields) = usage.as_object() else { return usage.clone() };
        let renamed = fields.iter().map(|(name, value)| {
            let name = match name.as_str() {
                "prompt_tokens" => prompt,
                "completion_tokens" => output,
                other => other,
            };
            (name.to_owned(), value.clone())
        });
        Value::Object(renamed.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, want) in [
            ("/v1/chat/completions", Some(FaultyModelWire::Chat)),
            ("/openai/deployments/d/chat/completions", Some(FaultyModelWire::Chat)),
            ("/v1/responses", Some(FaultyModelWire::Responses)),
            ("/v1/messages", Some(FaultyModelWire::Messages)),
            ("/v1beta/models/m:generateContent", Some(FaultyModelWire::Gemini)),
            ("/v1/models", None),
        ] {
            assert_eq!(FaultyModelWire::of(path), want, "{path}");
        }
        assert_eq!(FaultyModelWire::model("/v1beta/models/m:generateContent", &json!({})), "m");
        assert_eq!(FaultyModelWire::model("/v1/messages", &json!({"model": "n"})), "n");
    }

    #[test]
    fn usage_in_each_format() {
        let usage = json!({"prompt_tokens": -3, "completion_tokens": "5"});
        for (wire, want) in [
            (FaultyModelWire::Chat, r#""usage":{"completion_tokens":"5","prompt_tokens":-3}"#),
            (FaultyModelWire::Responses, r#""usage":{"input_tokens":-3,"output_tokens":"5"}"#),
            (FaultyModelWire::Messages, r#""usage":{"input_tokens":-3,"output_tokens":"5"}"#),
            (FaultyModelWire::Gemini, r#""usageMetadata":{"candidatesTokenCount":"5","promptTokenCount":-3}"#),
        ] {
            let told: Value = serde_json::from_str(&wire.answer("m", "hi", &usage)).unwrap();
            let want: Value = serde_json::from_str(&format!("{{{want}}}")).unwrap();
            let place = if wire == FaultyModelWire::Gemini { "usageMetadata" } else { "usage" };
            assert_eq!(told[place], want[place]);
            assert!(!wire.answer("m", "hi", &Value::Null).contains("\"usage"));
        }
    }
}
