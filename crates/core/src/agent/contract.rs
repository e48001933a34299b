//! What is known of an agent, and how one session of it is started.

use std::fmt;

use super::output_event::AgentOutputReader;
use crate::profile::ProviderProtocol;

/// A coding agent with a command line: a row of the built-in table, or one that the user wrote down.
pub trait Agent: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;
    /// Its program, as it is called on `PATH`.
    fn program(&self) -> &str;
    /// The package it is fetched as; `None` where ralph cannot fetch it, and [`Agent::install_hint`] says what to do.
    fn package(&self) -> Option<AgentPackage>;
    /// How a person gets it where there is no package.
    fn install_hint(&self) -> &'static str;
    /// The program within its package's `node_modules` that needs no installation script, with `{arch}` for the
    /// processor and `*` for one part of the path; `None` where it is what `.bin` names.
    fn native_program(&self) -> Option<&'static str> {
        None
    }
    /// What keeps the real credential away from it.
    fn guarantee(&self) -> CredentialGuarantee;
    /// The protocols of providers it can be pointed at, the best first. Empty where it only talks to its maker.
    fn wires(&self) -> &[ProviderProtocol];
    /// How what is written here was tried.
    fn test_level(&self) -> AgentTestLevel;
    /// Returns what starts one session without a person.
    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation;
    /// Returns a reader of what one session prints on standard output.
    fn reader(&self) -> Box<dyn AgentOutputReader>;
}

/// A package of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentPackage {
    Npm(&'static str),
    Pip(&'static str),
}

impl AgentPackage {
    /// Returns the name within its registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npm(name) | Self::Pip(name) => name,
        }
    }

    /// Returns the preset of hosts that its registry needs.
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
    /// It is pointed at a route of the door and holds a stand-in.
    BaseUrl,
    /// It calls its maker; the door looks into the connection and exchanges the stand-in.
    Interception,
    /// It must hold a real secret, made for one session.
    OneShotSecret,
}

impl CredentialGuarantee {
    /// Returns the word for machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::BaseUrl => "base-url",
            Self::Interception => "interception",
            Self::OneShotSecret => "one-shot-secret",
        }
    }

    /// Returns what it means for whoever lends a key.
    pub fn description(self) -> &'static str {
        match self {
            Self::BaseUrl => "holds a stand-in; every call is metered before it is made",
            Self::Interception => "holds a stand-in; its calls are seen, but only its maker knows what they cost",
            Self::OneShotSecret => "holds a real secret inside; lend one that is made for this and revoked after",
        }
    }
}

/// How an agent's file was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTestLevel {
    /// With the real program of this version, against a scripted model.
    Real(&'static str),
    /// Started by hand once, as this version; what it printed then is what is read in tests.
    Recorded(&'static str),
    /// Only against its documentation.
    Documentation,
}

/// What one session is started with.
#[derive(Debug, Clone, Copy)]
pub struct AgentSessionParams<'a> {
    /// The program as it is found inside.
    pub program: &'a str,
    pub prompt: &'a str,
    /// Where the same prompt lies inside.
    pub prompt_file: &'a str,
    /// A private folder inside, for its settings.
    pub folder: &'a str,
    /// The model's name as the endpoint knows it.
    pub model: &'a str,
    pub base_url: &'a str,
    /// The stand-in.
    pub key: &'a str,
    /// The name of the variable or secret that the stand-in stands for.
    pub key_variable: &'a str,
    pub wire: ProviderProtocol,
}

/// What starts a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInvocation {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Files to write before, by their path below [`AgentSessionParams::folder`].
    pub files: Vec<(String, String)>,
    pub stdin: Option<String>,
}

/// One word of a command line holds at most 128 KiB on Linux; some room is left for what stands before it.
const MAX_ARGUMENT_BYTES: usize = 96 << 10;

impl AgentSessionParams<'_> {
    /// Returns the prompt where it has to be a word of the command line: itself, or where to read it.
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
