//! opencode. Verified with the real program. It can be pointed at every protocol.

use serde_json::{Value, json};

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::ear::{self, Ear, count_at, str_at};
use super::said::{Finished, Reader, Said};
use super::words;
use crate::money::Micros;
use crate::price::Usage;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Opencode;

impl Agent for Opencode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Npm("opencode-ai"))
    }

    fn native(&self) -> Option<&'static str> {
        Some("opencode-linux-{arch}/bin/opencode")
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Chat, Wire::Anthropic, Wire::Responses, Wire::Gemini]
    }

    fn tested(&self) -> Tested {
        Tested::Recorded("1.18.33")
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let model = format!("lent/{}", session.model);
        let at = |name: &str| format!("{}/{name}", session.folder.trim_end_matches('/'));
        Start::new(&[session.program, "run", "--format", "json", "--auto", "--pure", "--model", &model])
            .env("OPENCODE_CONFIG", &at("opencode.json"))
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            // Lists of models and language servers are fetched otherwise, and there is no way out for that.
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
            .env("XDG_DATA_HOME", &at("data"))
            .env("XDG_CONFIG_HOME", &at("config"))
            .env("XDG_STATE_HOME", &at("state"))
            .env("XDG_CACHE_HOME", &at("cache"))
            .env("RALPH_AGENT_KEY", session.key)
            .file("opencode.json", settings(session, &model))
            .stdin(session.prompt)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Steps::default())
    }
}

fn settings(session: &Session<'_>, model: &str) -> String {
    let base = session.base_url.trim_end_matches('/');
    // Each library adds its own path, and expects the version before it.
    let (library, base_url) = match session.wire {
        Wire::Anthropic => ("@ai-sdk/anthropic", format!("{base}/v1")),
        Wire::Gemini => ("@ai-sdk/google", format!("{base}/v1beta")),
        Wire::Responses => ("@ai-sdk/openai", base.to_owned()),
        Wire::Chat | Wire::Azure | Wire::Scripted => ("@ai-sdk/openai-compatible", base.to_owned()),
    };
    let options = json!({"baseURL": base_url, "apiKey": "{env:RALPH_AGENT_KEY}"});
    let models = json!({session.model: {"name": session.model}});
    json!({
        "model": model,
        // It would look for a small model of its own, and the door lets only the lent one pass.
        "small_model": model,
        "share": "disabled",
        "autoupdate": false,
        "provider": {"lent": {"npm": library, "options": options, "models": models}},
    })
    .to_string()
}

/// Reads `run --format json`: the parts of each step. There is no result; the step that asks for nothing is the last.
#[derive(Debug, Default)]
struct Steps {
    ear: Ear,
    usage: Usage,
    cost: Option<Micros>,
}

impl Reader for Steps {
    fn line(&mut self, line: &str) -> Vec<Said> {
        let Some(event) = ear::object(line) else { return Vec::new() };
        match str_at(&event, "/type") {
            "text" => self.ear.text(str_at(&event, "/part/text")).into_iter().collect(),
            "tool_use" => self.tool(&event),
            "step_finish" => {
                self.step(&event);
                Vec::new()
            }
            "error" => {
                self.fail(&event);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn finished(&self) -> Option<&Finished> {
        self.ear.finished.as_ref()
    }

    fn text(&self) -> String {
        self.ear.words()
    }
}

impl Steps {
    /// A tool is told when it has ended, so both ends come at once.
    fn tool(&mut self, event: &Value) -> Vec<Said> {
        let (id, state) = (str_at(event, "/part/callID"), event.pointer("/part/state").unwrap_or(&Value::Null));
        let brief = state.get("input").map(ear::brief).unwrap_or_default();
        let begun = self.ear.tool(id, str_at(event, "/part/tool"), &brief);
        let code = state.pointer("/metadata/exit").and_then(Value::as_i64);
        let ok = str_at(state, "/status") == "completed" && code.is_none_or(|code| code == 0);
        let told = ["/output", "/error"].iter().map(|place| str_at(state, place)).find(|text| !text.is_empty());
        vec![begun, self.ear.tool_done(id, ok, told.unwrap_or_default())]
    }

    fn step(&mut self, event: &Value) {
        let Some(part) = event.get("part") else { return };
        let reasoning = count_at(part, "/tokens/reasoning");
        self.usage += Usage {
            input: count_at(part, "/tokens/input"),
            cached_input: count_at(part, "/tokens/cache/read"),
            cache_write: count_at(part, "/tokens/cache/write"),
            output: count_at(part, "/tokens/output").saturating_add(reasoning),
            reasoning,
            ..Usage::default()
        };
        if let Some(cost) = part.get("cost").and_then(Value::as_f64) {
            *self.cost.get_or_insert_default() += Micros::from_usd(cost);
        }
        // A step that ends with calls of tools is followed by another.
        let ended = matches!(str_at(part, "/reason"), "stop" | "length" | "content-filter");
        let ok = str_at(part, "/reason") == "stop";
        if ended && self.ear.finished.as_ref().is_none_or(|finished| finished.ok) {
            let why = (!ok).then(|| format!("its last step ended with `{}`", str_at(part, "/reason")));
            let text = self.ear.words();
            self.ear.finish(Finished { ok, text, usage: Some(self.usage), cost: self.cost, status: None, why });
        }
    }

    fn fail(&mut self, event: &Value) {
        let places = ["/error/data/message", "/error/message", "/error/name", "/message"];
        let why = places.iter().map(|place| str_at(event, place)).find(|text| !text.is_empty()).unwrap_or_default();
        let status = ear::status_at(event, "/error/data/statusCode").or_else(|| words::status(why));
        let usage = (self.usage != Usage::default()).then_some(self.usage);
        let why = Some(why.to_owned());
        self.ear.finish(Finished { ok: false, text: String::new(), usage, cost: self.cost, status, why });
    }
}
