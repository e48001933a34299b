//! Builds the invocation of Codex and reads its output. Verified with the real program.
//!
//! It supports only OpenAI's Responses protocol.

use serde_json::Value;

use super::definition::{AgentInvocation, AgentSessionParams};
use super::error_phrases;
use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{self, AgentStreamState, count_at, str_at};
use crate::price::TokenUsage;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    AgentInvocation::new(&[
        session.program,
        "exec",
        "--json",
        "--color",
        "never",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-",
    ])
    .env("CODEX_HOME", session.folder)
    .env("OPENAI_API_KEY", session.key)
    .file("config.toml", settings(session))
    .stdin(session.prompt)
}

/// Returns a config with a custom provider: the built-in one tries another transport for a while before it sends the
/// request.
fn settings(session: &AgentSessionParams<'_>) -> String {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let provider = toml::Table::from_iter([
        ("name".to_owned(), text("lent")),
        ("base_url".to_owned(), text(session.base_url)),
        ("env_key".to_owned(), text("OPENAI_API_KEY")),
        ("wire_api".to_owned(), text("responses")),
        ("request_max_retries".to_owned(), toml::Value::Integer(2)),
        ("stream_max_retries".to_owned(), toml::Value::Integer(2)),
    ]);
    let providers = toml::Table::from_iter([("lent".to_owned(), toml::Value::Table(provider))]);
    let analytics = toml::Table::from_iter([("enabled".to_owned(), toml::Value::Boolean(false))]);
    toml::Table::from_iter([
        ("model".to_owned(), text(session.model)),
        ("model_provider".to_owned(), text("lent")),
        ("check_for_update_on_startup".to_owned(), toml::Value::Boolean(false)),
        ("analytics".to_owned(), toml::Value::Table(analytics)),
        ("model_providers".to_owned(), toml::Value::Table(providers)),
    ])
    .to_string()
}

/// Reads `codex exec --json`: items within a turn.
#[derive(Debug, Default)]
pub(super) struct CodexStreamReader {
    state: AgentStreamState,
    /// The last error it reported; it ends without a result when it cannot even start.
    last_error: Option<String>,
}

impl AgentOutputReader for CodexStreamReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let Some(event) = stream_state::json_object(line) else { return Vec::new() };
        let parsed = match str_at(&event, "/type") {
            "item.started" => self.started(&event),
            "item.completed" => self.completed(&event),
            "turn.completed" => {
                let text = self.state.last_text();
                self.state.finish(AgentResult { ok: true, text, usage: usage(&event), ..AgentResult::default() });
                None
            }
            "turn.failed" => {
                self.fail(str_at(&event, "/error/message"));
                None
            }
            "error" => Some(self.error(str_at(&event, "/message"))),
            _ => None,
        };
        parsed.into_iter().collect()
    }

    fn session_result(&self) -> Option<&AgentResult> {
        self.state.result.as_ref()
    }

    fn last_text(&self) -> String {
        self.state.last_text()
    }
}

impl CodexStreamReader {
    fn started(&mut self, event: &Value) -> Option<AgentOutputEvent> {
        let item = event.get("item")?;
        let (name, brief) = tool(item)?;
        Some(self.state.tool_started(str_at(item, "/id"), &name, &brief))
    }

    fn completed(&mut self, event: &Value) -> Option<AgentOutputEvent> {
        let item = event.get("item")?;
        let id = str_at(item, "/id");
        match str_at(item, "/type") {
            "agent_message" => self.state.record_text(str_at(item, "/text")),
            // Not fatal: only a failed turn ends the session.
            "error" => Some(stream_state::warning(str_at(item, "/message"))),
            _ => {
                tool(item)?;
                let code = item.get("exit_code").and_then(Value::as_i64);
                let failed = code.is_some_and(|code| code != 0)
                    || str_at(item, "/status") == "failed"
                    || item.get("error").is_some_and(|error| !error.is_null());
                Some(self.state.tool_finished(id, !failed, str_at(item, "/aggregated_output")))
            }
        }
    }

    fn error(&mut self, message: &str) -> AgentOutputEvent {
        self.last_error = Some(stream_state::one_line(message));
        let again = message.starts_with("Reconnecting") || message.contains("retrying");
        if again {
            AgentOutputEvent::Retry {
                status: error_phrases::quoted_status(message),
                why: stream_state::one_line(message),
            }
        } else {
            stream_state::warning(message)
        }
    }

    fn fail(&mut self, message: &str) {
        let why = if message.is_empty() { self.last_error.clone().unwrap_or_default() } else { message.to_owned() };
        let status = error_phrases::quoted_status(&why);
        self.state.finish(AgentResult { ok: false, status, why: Some(why), ..AgentResult::default() });
    }
}

/// Returns the name and purpose of an item that is a tool call.
fn tool(item: &Value) -> Option<(String, String)> {
    let owned = |name: &str, brief: &str| Some((name.to_owned(), brief.to_owned()));
    match str_at(item, "/type") {
        "command_execution" => owned("command", str_at(item, "/command")),
        "file_change" => owned("file_change", str_at(item, "/changes/0/path")),
        "mcp_tool_call" => owned(str_at(item, "/tool"), str_at(item, "/server")),
        "collab_tool_call" => owned(str_at(item, "/tool"), ""),
        "web_search" => owned("web_search", str_at(item, "/query")),
        _ => None,
    }
}

/// Returns the token usage. The reported input includes cache reads and cache writes.
fn usage(event: &Value) -> Option<TokenUsage> {
    let usage = event.get("usage").filter(|usage| usage.is_object())?;
    let cached_input = count_at(usage, "/cached_input_tokens");
    let cache_write = count_at(usage, "/cache_write_input_tokens");
    Some(TokenUsage {
        input: count_at(usage, "/input_tokens").saturating_sub(cached_input).saturating_sub(cache_write),
        cached_input,
        cache_write,
        output: count_at(usage, "/output_tokens"),
        reasoning: count_at(usage, "/reasoning_output_tokens"),
        ..TokenUsage::default()
    })
}
