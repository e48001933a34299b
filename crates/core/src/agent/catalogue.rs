//! Lists every built-in agent: one row of data each, with functions for its command line and its output.

use super::claude_stream::ClaudeStreamReader;
use super::codex::CodexStreamReader;
use super::copilot::CopilotStreamReader;
use super::definition::{
    Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee,
};
use super::gemini::GeminiStreamReader;
use super::opencode::OpencodeStreamReader;
use super::output_event::AgentOutputReader;
use super::plain_text::PlainTextReader;
use super::{aider, claude, codex, copilot, cursor, gemini, goose, opencode, qwen};
use crate::profile::ProviderProtocol;

/// A row of the table. Each field is documented at the method of [`Agent`] that returns it.
#[derive(Debug)]
struct BuiltinAgent {
    name: &'static str,
    program: &'static str,
    package: Option<AgentPackage>,
    install_hint: &'static str,
    native_program: Option<&'static str>,
    guarantee: CredentialGuarantee,
    wires: &'static [ProviderProtocol],
    test_level: AgentTestLevel,
    invocation: fn(&AgentSessionParams<'_>) -> AgentInvocation,
    reader: fn() -> Box<dyn AgentOutputReader>,
}

/// The built-in agents, in the order in which they are listed.
static AGENTS: [&dyn Agent; 9] = [
    &BuiltinAgent {
        name: "claude",
        program: "claude",
        package: Some(AgentPackage::Npm("@anthropic-ai/claude-code")),
        install_hint: "",
        native_program: Some("@anthropic-ai/claude-code-linux-{arch}/claude"),
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Anthropic],
        test_level: AgentTestLevel::Real("2.1.197"),
        invocation: claude::invocation,
        reader: || Box::<ClaudeStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "codex",
        program: "codex",
        package: Some(AgentPackage::Npm("@openai/codex")),
        install_hint: "",
        native_program: Some("@openai/codex-linux-{arch}/vendor/*/bin/codex"),
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Responses],
        test_level: AgentTestLevel::Real("0.166.0"),
        invocation: codex::invocation,
        reader: || Box::<CodexStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "gemini",
        program: "gemini",
        package: Some(AgentPackage::Npm("@google/gemini-cli")),
        install_hint: "",
        native_program: None,
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Gemini],
        test_level: AgentTestLevel::Recorded("0.61.0"),
        invocation: gemini::invocation,
        reader: || Box::<GeminiStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "opencode",
        program: "opencode",
        package: Some(AgentPackage::Npm("opencode-ai")),
        install_hint: "",
        native_program: Some("opencode-linux-{arch}/bin/opencode"),
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[
            ProviderProtocol::Chat,
            ProviderProtocol::Anthropic,
            ProviderProtocol::Responses,
            ProviderProtocol::Gemini,
        ],
        test_level: AgentTestLevel::Recorded("1.18.33"),
        invocation: opencode::invocation,
        reader: || Box::<OpencodeStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "cursor",
        program: "cursor-agent",
        package: None,
        install_hint: "install it from cursor.com/cli; the npm package of that name is unrelated",
        native_program: None,
        guarantee: CredentialGuarantee::OneShotSecret,
        wires: &[],
        test_level: AgentTestLevel::Documentation,
        invocation: cursor::invocation,
        reader: || Box::<ClaudeStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "qwen",
        program: "qwen",
        package: Some(AgentPackage::Npm("@qwen-code/qwen-code")),
        install_hint: "",
        native_program: None,
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Chat],
        test_level: AgentTestLevel::Recorded("0.15.10"),
        invocation: qwen::invocation,
        reader: || Box::<ClaudeStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "copilot",
        program: "copilot",
        package: Some(AgentPackage::Npm("@github/copilot")),
        install_hint: "",
        native_program: Some("@github/copilot-linux-{arch}/copilot"),
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Chat, ProviderProtocol::Responses, ProviderProtocol::Anthropic],
        test_level: AgentTestLevel::Recorded("1.0.102"),
        invocation: copilot::invocation,
        reader: || Box::<CopilotStreamReader>::default(),
    },
    &BuiltinAgent {
        name: "aider",
        program: "aider",
        package: Some(AgentPackage::Pip("aider-chat")),
        install_hint: "",
        native_program: None,
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Chat, ProviderProtocol::Anthropic],
        test_level: AgentTestLevel::Documentation,
        invocation: aider::invocation,
        reader: || Box::<PlainTextReader>::default(),
    },
    &BuiltinAgent {
        name: "goose",
        program: "goose",
        package: None,
        install_hint: "download its release from github.com/block/goose and put `goose` on PATH",
        native_program: None,
        guarantee: CredentialGuarantee::BaseUrl,
        wires: &[ProviderProtocol::Chat, ProviderProtocol::Anthropic],
        test_level: AgentTestLevel::Documentation,
        invocation: goose::invocation,
        reader: || Box::<PlainTextReader>::default(),
    },
];

/// Returns every built-in agent.
pub fn all() -> &'static [&'static dyn Agent] {
    &AGENTS
}

/// Returns the built-in agent of a name. `custom` is not among them: [`super::CustomAgent::new`] creates it.
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    all().iter().copied().find(|agent| agent.name() == name)
}

impl Agent for BuiltinAgent {
    fn name(&self) -> &str {
        self.name
    }

    fn program(&self) -> &str {
        self.program
    }

    fn package(&self) -> Option<AgentPackage> {
        self.package
    }

    fn install_hint(&self) -> &'static str {
        self.install_hint
    }

    fn native_program(&self) -> Option<&'static str> {
        self.native_program
    }

    fn guarantee(&self) -> CredentialGuarantee {
        self.guarantee
    }

    fn wires(&self) -> &[ProviderProtocol] {
        self.wires
    }

    fn test_level(&self) -> AgentTestLevel {
        self.test_level
    }

    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation {
        (self.invocation)(session)
    }

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        (self.reader)()
    }
}
