//! Lists every environment variable that ralph reads, and parses `.env` files.
//!
//! The process environment is not read here: the caller passes an [`Env`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::secret::Secret;
use crate::text;

/// One variable and what it is for: `ralph help environment` prints these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvVar {
    pub name: &'static str,
    pub meaning: &'static str,
}

macro_rules! vars {
    ($($name:ident: $meaning:literal,)*) => {
        $(pub const $name: &str = stringify!($name);)*
        /// Every variable ralph reads.
        pub const ALL: &[EnvVar] = &[$(EnvVar { name: stringify!($name), meaning: $meaning },)*];
    };
}

vars! {
    RALPH_BACKEND: "sandbox backend: embedded, docker, microvm, tart, daytona or local",
    RALPH_DEFAULT_PROVIDER: "older name of RALPH_BACKEND",
    RALPH_DEFAULT_MODEL_PROFILE: "model profile of a run",
    RALPH_FALLBACK_MODEL_PROFILE: "model profile to change to when a run goes in circles",
    RALPH_DOCTOR_MODEL_PROFILE: "model profile of the diagnosis",
    RALPH_MAX_COST: "maximum cost of one run, in US dollars",
    RALPH_MAX_ITERATIONS: "maximum number of iterations of one run",
    RALPH_STATE_DIR: "where runs are kept, instead of the state folder of the system",
    RALPH_LOG: "log filter, for example `debug` or `ralph_proxy=trace`",
    RALPH_NO_PROGRESS: "no live status line, when set to anything",
    NO_COLOR: "no colour, when set to anything",
    CLICOLOR_FORCE: "colour even when the output is not a terminal, when set to anything but 0",
    XDG_CONFIG_HOME: "folder of `ralph/config.toml` and `ralph/models.yaml`",
    XDG_STATE_HOME: "folder of `ralph/`, where runs are kept",
    DAYTONA_API_KEY: "key of the daytona backend",
    DAYTONA_API_URL: "address of Daytona's API, for a self-hosted server",
    GITHUB_PAT: "GitHub token for pushes and pull requests",
    GITHUB_API_URL: "address of GitHub's API, for a self-hosted server",
    CLAUDE_CODE_OAUTH_TOKEN: "Claude subscription for the agent engine",
    ZAI_API_KEY: "key of `zai/…` models",
    ZAI_API_BASE: "base URL of `zai/…` models",
    OPENAI_API_KEY: "key of `openai/…` models",
    OPENAI_BASE_URL: "base URL of `openai/…` models",
    OPENAI_API_BASE: "older name of OPENAI_BASE_URL",
    ANTHROPIC_API_KEY: "key of `anthropic/…` models",
    ANTHROPIC_AUTH_TOKEN: "bearer token of `anthropic/…` models, for gateways",
    ANTHROPIC_API_BASE: "base URL of `anthropic/…` models",
    ANTHROPIC_BASE_URL: "other name of ANTHROPIC_API_BASE",
    GEMINI_API_KEY: "key of `gemini/…` models",
    GOOGLE_API_KEY: "other name of GEMINI_API_KEY",
    GEMINI_API_BASE: "base URL of `gemini/…` models",
    DEEPSEEK_API_KEY: "key of `deepseek/…` models",
    DEEPSEEK_API_BASE: "base URL of `deepseek/…` models",
    OPENROUTER_API_KEY: "key of `openrouter/…` models",
    OPENROUTER_API_BASE: "base URL of `openrouter/…` models",
    GROQ_API_KEY: "key of `groq/…` models",
    MISTRAL_API_KEY: "key of `mistral/…` models",
    XAI_API_KEY: "key of `xai/…` models",
    MOONSHOT_API_KEY: "key of `moonshot/…` models",
    DASHSCOPE_API_KEY: "key of `dashscope/…` models",
    MINIMAX_API_KEY: "key of `minimax/…` models",
    MINIMAX_API_BASE: "base URL of `minimax/…` models",
    TOGETHER_API_KEY: "key of `together_ai/…` models",
    TOGETHERAI_API_KEY: "other name of TOGETHER_API_KEY",
    FIREWORKS_AI_API_KEY: "key of `fireworks_ai/…` models",
    CEREBRAS_API_KEY: "key of `cerebras/…` models",
    PERPLEXITYAI_API_KEY: "key of `perplexity/…` models",
    NVIDIA_NIM_API_KEY: "key of `nvidia_nim/…` models",
    DEEPINFRA_API_KEY: "key of `deepinfra/…` models",
    NOVITA_API_KEY: "key of `novita/…` models",
    VOLCENGINE_API_KEY: "key of `volcengine/…` models",
    VERCEL_AI_GATEWAY_API_KEY: "key of `vercel_ai_gateway/…` models",
    AZURE_API_KEY: "key of `azure/…` deployments",
    AZURE_API_BASE: "base URL of `azure/…` deployments",
    AZURE_API_VERSION: "API version of `azure/…` deployments",
    OLLAMA_API_BASE: "base URL of `ollama/…` models",
    OLLAMA_API_KEY: "key of `ollama/…` models, where the server wants one",
    HOSTED_VLLM_API_BASE: "base URL of `hosted_vllm/…` models",
    HOSTED_VLLM_API_KEY: "key of `hosted_vllm/…` models",
    LM_STUDIO_API_BASE: "base URL of `lm_studio/…` models",
    LM_STUDIO_API_KEY: "key of `lm_studio/…` models",
    LITELLM_PROXY_API_BASE: "base URL of a LiteLLM proxy: `litellm_proxy/…`, `bedrock/…` and `vertex_ai/…` models",
    LITELLM_PROXY_API_KEY: "key of a LiteLLM proxy",
}

/// The names that are read from a `.env` file; other programs' variables are ignored.
///
/// No base URL is among them: a checked-out file must not be able to send a key to an attacker's server.
pub const DOTENV_NAMES: [&str; 8] = [
    DAYTONA_API_KEY,
    GITHUB_PAT,
    ZAI_API_KEY,
    OPENAI_API_KEY,
    ANTHROPIC_API_KEY,
    RALPH_DEFAULT_PROVIDER,
    RALPH_DEFAULT_MODEL_PROFILE,
    RALPH_FALLBACK_MODEL_PROFILE,
];

/// Where a variable's value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvSource {
    Process,
    /// The `.env` of the working directory: part of a checkout, so it may only narrow.
    DotEnv,
}

/// The environment as the caller passed it. The process takes precedence over `.env`; an empty value counts as unset.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    process: BTreeMap<String, String>,
    dotenv: BTreeMap<String, String>,
}

impl Env {
    pub fn new(process: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { process: process.into_iter().collect(), dotenv: BTreeMap::new() }
    }

    /// Adds the variables that [`parse_dotenv`] returned.
    #[must_use]
    pub fn with_dotenv(mut self, dotenv: impl IntoIterator<Item = (String, String)>) -> Self {
        self.dotenv.extend(dotenv);
        self
    }

    /// Returns every variable that is set, with its effective value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let names: BTreeSet<&String> = self.process.keys().chain(self.dotenv.keys()).collect();
        names.into_iter().filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.lookup(name).map(|(value, _)| value)
    }

    /// Returns the value of a variable that is a credential.
    pub fn secret(&self, name: &str) -> Option<Secret> {
        self.get(name).map(Secret::new)
    }

    pub fn lookup(&self, name: &str) -> Option<(&str, EnvSource)> {
        [(&self.process, EnvSource::Process), (&self.dotenv, EnvSource::DotEnv)]
            .into_iter()
            .filter_map(|(map, source)| Some((map.get(name)?.as_str(), source)))
            .find(|(value, _)| !value.is_empty())
    }
}

/// Shows names only: values are often secrets.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: BTreeSet<&String> = self.process.keys().chain(self.dotenv.keys()).collect();
        f.debug_set().entries(names).finish()
    }
}

/// Why a line of `.env` that concerns ralph could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DotenvError {
    #[error("`.env` line {line}: the quote of `{name}` is never closed")]
    Quote { name: &'static str, line: usize },
    #[error("`.env` line {line}: text after the closing quote of `{name}`")]
    Trailing { name: &'static str, line: usize },
}

impl DotenvError {
    pub fn hint(&self) -> Option<String> {
        let (Self::Quote { name, .. } | Self::Trailing { name, .. }) = self;
        Some(format!("write {name}=\"value\" on one line; a PEM may span lines inside the quotes"))
    }
}

/// Reads the lines of a `.env` file that set a variable of [`DOTENV_NAMES`], in order. Other lines are
/// ignored, whatever their form.
pub fn parse_dotenv(text: &str) -> Result<Vec<(String, String)>, DotenvError> {
    let mut found = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let offset = text.len() - rest.len();
        rest = after;
        let assignment = line.trim_start().strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = assignment.split_once('=') else { continue };
        let Some(name) = DOTENV_NAMES.into_iter().find(|wanted| *wanted == name.trim()) else { continue };
        let number = text.get(..offset).unwrap_or("").matches('\n').count() + 1;
        let value = value.trim_start();
        let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            found.push((name.to_owned(), unquoted(value)));
            continue;
        };
        // A quoted value may span lines, so it is read from the whole text.
        let from = offset + (line.len() - value.len()) + 1;
        let (value, end) =
            quoted(text.get(from..).unwrap_or(""), quote).ok_or(DotenvError::Quote { name, line: number })?;
        let (trailing, after) = {
            let tail = text.get(from + end..).unwrap_or("");
            tail.split_once('\n').unwrap_or((tail, ""))
        };
        if !matches!(trailing.trim_start().chars().next(), None | Some('#')) {
            return Err(DotenvError::Trailing { name, line: number });
        }
        found.push((name.to_owned(), value));
        rest = after;
    }
    Ok(found)
}

fn unquoted(value: &str) -> String {
    let end = value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len());
    text::head(value, end).trim().to_owned()
}

/// Returns the text up to the closing quote and the byte after it.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Some((value, at + c.len_utf8())),
            '\\' if quote == '"' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                c @ ('"' | '\\' | '$') => value.push(c),
                other => value.extend(['\\', other]),
            },
            '\r' if text.get(at + 1..).is_some_and(|rest| rest.starts_with('\n')) => (),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &[(&str, &str)]) {
        let got = parse_dotenv(text).expect("readable");
        let got: Vec<_> = got.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(got, want, "{text:?}");
    }

    #[test]
    fn dotenv_lines() {
        check("", &[]);
        check(
            "# a\n\nGITHUB_PAT=x\r\nOTHER=y\nexport ZAI_API_KEY = z # why\n",
            &[("GITHUB_PAT", "x"), ("ZAI_API_KEY", "z")],
        );
        check("GITHUB_PAT=\"a b\" # c\nZAI_API_KEY='$x\\n'", &[("GITHUB_PAT", "a b"), ("ZAI_API_KEY", "$x\\n")]);
        check(
            "OPENAI_API_KEY=\"-----BEGIN\nabc\r\nEND\"\nGITHUB_PAT=1",
            &[("OPENAI_API_KEY", "-----BEGIN\nabc\nEND"), ("GITHUB_PAT", "1")],
        );
        check("GITHUB_PAT=\"a\\nb\"", &[("GITHUB_PAT", "a\nb")]);
        check("GITHUB_PAT=a#b", &[("GITHUB_PAT", "a#b")]);
        check("GITHUB_PAT=", &[("GITHUB_PAT", "")]);
        check("OPENAI_BASE_URL=https://evil.example\nRALPH_BACKEND=local\nBROKEN=\"x\nno line\n", &[]);
    }

    #[test]
    fn dotenv_errors_name_the_line_and_no_value() {
        for (text, want) in [
            ("A=1\nGITHUB_PAT=\"abc\n", "`.env` line 2: the quote of `GITHUB_PAT` is never closed"),
            ("GITHUB_PAT='a'b", "`.env` line 1: text after the closing quote of `GITHUB_PAT`"),
        ] {
            assert_eq!(parse_dotenv(text).expect_err("broken").to_string(), want);
        }
    }

    #[test]
    fn the_process_overrides_dotenv() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let env = Env::new([pair("A", "process"), pair("B", "")]).with_dotenv([
            pair("A", "file"),
            pair("B", "file"),
            pair("C", ""),
        ]);
        assert_eq!(env.lookup("A"), Some(("process", EnvSource::Process)));
        assert_eq!(env.lookup("B"), Some(("file", EnvSource::DotEnv)));
        assert_eq!(env.lookup("C"), None);
        assert_eq!(format!("{env:?}"), r#"{"A", "B", "C"}"#);
    }

    #[test]
    fn names_are_unique_and_dotenv_names_are_known() {
        let names: Vec<_> = ALL.iter().map(|var| var.name).collect();
        for (n, name) in names.iter().enumerate() {
            assert!(!names[..n].contains(name), "{name} twice");
        }
        for name in DOTENV_NAMES {
            assert!(names.contains(&name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(GITHUB_PAT|ZAI_API_KEY|X|\\PC|[=\"'\\\\#\n\r ]|export ){0,30}") {
            if let Ok(found) = parse_dotenv(&text) {
                prop_assert!(found.iter().all(|(name, _)| DOTENV_NAMES.contains(&name.as_str())));
            }
        }
    }
}
