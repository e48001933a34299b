//! Defines what ralph knows about an agent, and the parameters of one session.

use std::fmt;

use super::output_event::AgentOutputReader;
use crate::profile::ProviderProtocol;

/// A coding agent with a command line: a row of the built-in table, or one that the user configured.
pub trait Agent: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;
    /// The name of its program on `PATH`.
    fn program(&self) -> &str;
    /// The package to install; `None` if ralph cannot install it, and [`Agent::install_hint`] says what to do.
    fn package(&self) -> Option<AgentPackage>;
    /// How the user installs it if there is no package.
    fn install_hint(&self) -> &'static str;
    /// The program within its package's `node_modules` that needs no installation script, with `{arch}` for the
    /// processor and `*` for one part of the path; `None` if it is the one in `.bin`.
    fn native_program(&self) -> Option<&'static str> {
        None
    }
    /// What keeps the real credential away from it.
    fn guarantee(&self) -> CredentialGuarantee;
    /// The provider protocols it supports, the best first. Empty if it only talks to its vendor.
    fn wires(&self) -> &[ProviderProtocol];
    /// How the support for this agent was tested.
    fn test_level(&self) -> AgentTestLevel;
    /// Returns the invocation of one headless session.
    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation;
    /// Returns a reader for the standard output of one session.
    fn reader(&self) -> Box<dyn AgentOutputReader>;
}

/// A package of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentPackage {
    Npm(&'static str),
    Pip(&'static str),
}

impl AgentPackage {
    /// Returns the name in its registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npm(name) | Self::Pip(name) => name,
        }
    }

    /// Returns the host preset that its registry needs.
    pub fn preset(self) -> &'static str {
        match self {
            Self::Npm(_) => "npm",
            Self::Pip(_) => "pypi",
        }
    }
}

impl fmt::Display for AgentPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.preset(), self.name())
    }
}

/// What keeps the real credential away from an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialGuarantee {
    /// It uses a model route of the egress proxy and holds a phantom.
    BaseUrl,
    /// It calls its vendor; the egress proxy intercepts the connection and replaces the phantom.
    Interception,
    /// It must hold a real secret, created for one session.
    OneShotSecret,
}

impl CredentialGuarantee {
    /// Returns the name for `--json` output.
    pub fn name(self) -> &'static str {
        match self {
            Self::BaseUrl => "base-url",
            Self::Interception => "interception",
            Self::OneShotSecret => "one-shot-secret",
        }
    }

    /// Returns what it means for the user who lends a key.
    pub fn description(self) -> &'static str {
        match self {
            Self::BaseUrl => "holds a phantom; every call is metered before it is sent",
            Self::Interception => "holds a phantom; its calls are seen, but only its vendor knows what they cost",
            Self::OneShotSecret => "holds a real secret; lend one that is created for this and revoked afterwards",
        }
    }
}

/// How the support for an agent was tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTestLevel {
    /// With the real program of this version, against a scripted model.
    Real(&'static str),
    /// Run by hand once, in this version; tests read the output recorded then.
    Recorded(&'static str),
    /// Written from its documentation only.
    Documentation,
}

/// The parameters of one session.
#[derive(Debug, Clone, Copy)]
pub struct AgentSessionParams<'a> {
    /// The path of the program inside the sandbox.
    pub program: &'a str,
    pub prompt: &'a str,
    /// The path of a file with the same prompt inside the sandbox.
    pub prompt_file: &'a str,
    /// A private folder inside the sandbox, for its settings.
    pub folder: &'a str,
    /// The model's name at the endpoint.
    pub model: &'a str,
    pub base_url: &'a str,
    /// The phantom.
    pub key: &'a str,
    /// The name of the variable or secret that the phantom replaces.
    pub key_variable: &'a str,
    pub wire: ProviderProtocol,
}

/// The command, environment and files that start a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInvocation {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Files to write before the start, by their path below [`AgentSessionParams::folder`].
    pub files: Vec<(String, String)>,
    pub stdin: Option<String>,
}

/// One argument holds at most 128 KiB on Linux; some room is left for what precedes the prompt.
const MAX_ARGUMENT_BYTES: usize = 96 << 10;

impl AgentSessionParams<'_> {
    /// Returns the prompt for use as an argument: the prompt itself, or where to read it.
    pub(super) fn prompt_argument(&self) -> String {
        let fits =
            self.prompt.len() <= MAX_ARGUMENT_BYTES && !self.prompt.contains('\0') && !self.prompt.starts_with('-');
        if fits {
            return self.prompt.to_owned();
        }
        format!("Read the file {} in full. It holds your instructions: follow them exactly.", self.prompt_file)
    }
}

impl AgentInvocation {
    pub(super) fn new(argv: &[&str]) -> Self {
        Self { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Self::default() }
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn file(mut self, path: &str, text: String) -> Self {
        self.files.push((path.to_owned(), text));
        self
    }

    pub(super) fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.to_owned());
        self
    }
}
