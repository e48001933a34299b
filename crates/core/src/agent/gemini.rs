//! Gemini CLI. Verified with the real program.

use serde_json::{Value, json};

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::ear::{self, Ear, count_at, str_at};
use super::said::{Finished, Reader, Said};
use super::words;
use crate::price::Usage;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Gemini;

impl Agent for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn program(&self) -> &'static str {
        "gemini"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Npm("@google/gemini-cli"))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Gemini]
    }

    fn tested(&self) -> Tested {
        Tested::Recorded("0.61.0")
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": false, "maxAttempts": 3},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
        });
        Start::new(&[
            session.program,
            "--yolo",
            "--skip-trust",
            "--model",
            session.model,
            "--output-format",
            "stream-json",
        ])
        .env("GOOGLE_GEMINI_BASE_URL", session.base_url)
        .env("GEMINI_API_KEY", session.key)
        .env("GEMINI_CLI_HOME", session.folder)
        .env("GEMINI_TELEMETRY_ENABLED", "false")
        .file(".gemini/settings.json", settings.to_string())
        .stdin(session.prompt)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Stream::default())
    }
}

/// Reads `--output-format stream-json`. Texts come in pieces, so they are told when something else follows.
#[derive(Debug, Default)]
struct Stream {
    ear: Ear,
    text: String,
}

impl Reader for Stream {
    fn line(&mut self, line: &str) -> Vec<Said> {
        let Some(event) = ear::object(line) else { return Vec::new() };
        let kind = str_at(&event, "/type");
        if kind == "message" {
            let mine = str_at(&event, "/role") == "assistant";
            ear::add(&mut self.text, if mine { str_at(&event, "/content") } else { "" });
            return Vec::new();
        }
        let text = std::mem::take(&mut self.text);
        let mut said: Vec<Said> = self.ear.text(&text).into_iter().collect();
        let id = str_at(&event, "/tool_id");
        match kind {
            "tool_use" => {
                let brief = event.get("parameters").map(ear::brief).unwrap_or_default();
                said.push(self.ear.tool(id, str_at(&event, "/tool_name"), &brief));
            }
            "tool_result" => {
                let ok = str_at(&event, "/status") == "success";
                let places = ["/output", "/error/message"];
                let brief = places.iter().map(|place| str_at(&event, place)).find(|text| !text.is_empty());
                said.push(self.ear.tool_done(id, ok, brief.unwrap_or_default()));
            }
            "error" => said.push(ear::trouble(str_at(&event, "/message"))),
            "result" => self.ear.finish(finished(&event, self.ear.words())),
            _ => (),
        }
        said
    }

    fn finished(&self) -> Option<&Finished> {
        self.ear.finished.as_ref()
    }

    fn text(&self) -> String {
        self.ear.words()
    }
}

fn finished(event: &Value, text: String) -> Finished {
    let ok = str_at(event, "/status") == "success";
    let why = (!ok).then(|| str_at(event, "/error/message").to_owned());
    Finished {
        ok,
        text,
        usage: event.get("stats").filter(|stats| stats.is_object()).map(usage),
        cost: None,
        status: why.as_deref().and_then(words::status),
        why,
    }
}

/// Its input includes what was read from a cache, and its total what was thought.
fn usage(stats: &Value) -> Usage {
    let (input, cached, output) =
        (count_at(stats, "/input_tokens"), count_at(stats, "/cached"), count_at(stats, "/output_tokens"));
    let reasoning = count_at(stats, "/total_tokens").saturating_sub(input).saturating_sub(output);
    Usage {
        input: input.saturating_sub(cached),
        cached_input: cached,
        output: output.saturating_add(reasoning),
        reasoning,
        ..Usage::default()
    }
}
