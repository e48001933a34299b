//! Builds the invocation of an agent of the user's own: a command line from the host's configuration.

use super::definition::{
    Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee,
};
use super::output_event::AgentOutputReader;
use super::plain_text::PlainTextReader;
use crate::profile::ProviderProtocol;

/// A command line with placeholders for the parameters of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomAgent {
    template: Vec<String>,
}

/// Why a command line cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    #[error("the custom agent has no command")]
    Empty,
    #[error("the custom agent's command begins with `{word}`, which is not a program")]
    Program { word: String },
    #[error("the custom agent's command has the unknown placeholder `{{{place}}}`")]
    Place { place: String },
}

impl BadTemplate {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Empty | Self::Program { .. } => {
                "write a program and its arguments, for example `[\"my-agent\", \"--model\", \"{model}\"]`".to_owned()
            }
            Self::Place { place } => {
                let meant = crate::text::did_you_mean(place, PLACEHOLDERS);
                let all = PLACEHOLDERS.map(|place| format!("{{{place}}}")).join(", ");
                meant.map_or_else(
                    || format!("the placeholders are {all}"),
                    |meant| format!("did you mean `{{{meant}}}`?"),
                )
            }
        })
    }
}

/// The placeholders of an argument. The key is not among them: other users of a machine can see command lines.
const PLACEHOLDERS: [&str; 5] = ["prompt", "prompt_file", "folder", "model", "base_url"];

impl CustomAgent {
    /// Creates an agent from a program and its arguments. Without a placeholder for it, the prompt is passed on
    /// standard input.
    pub fn new(template: &[String]) -> Result<Self, BadTemplate> {
        let program = template.first().ok_or(BadTemplate::Empty)?;
        if program.is_empty() || program.contains(['{', '}', '\0']) || program.starts_with('-') {
            let word = crate::text::strip_control(crate::text::first_line(program, 40));
            return Err(BadTemplate::Program { word });
        }
        for word in template {
            if let Some(place) = placeholders(word).find(|place| !PLACEHOLDERS.contains(place)) {
                return Err(BadTemplate::Place { place: place.to_owned() });
            }
        }
        Ok(Self { template: template.to_vec() })
    }

    fn uses_placeholder(&self, place: &str) -> bool {
        self.template.iter().any(|word| placeholders(word).any(|one| one == place))
    }
}

impl Agent for CustomAgent {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn program(&self) -> &str {
        self.template.first().map_or("", String::as_str)
    }

    fn package(&self) -> Option<AgentPackage> {
        None
    }

    fn install_hint(&self) -> &'static str {
        "it is your own program: put it on PATH"
    }

    fn guarantee(&self) -> CredentialGuarantee {
        CredentialGuarantee::BaseUrl
    }

    fn wires(&self) -> &'static [ProviderProtocol] {
        &[ProviderProtocol::Chat, ProviderProtocol::Responses, ProviderProtocol::Anthropic, ProviderProtocol::Gemini]
    }

    fn test_level(&self) -> AgentTestLevel {
        AgentTestLevel::Documentation
    }

    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation {
        let words = self.template.iter().skip(1).map(|word| fill_placeholders(word, session));
        let argv = std::iter::once(session.program.to_owned()).chain(words).collect();
        let mut start = AgentInvocation { argv, ..AgentInvocation::default() };
        start = match session.wire {
            ProviderProtocol::Anthropic => {
                start.env("ANTHROPIC_BASE_URL", session.base_url).env("ANTHROPIC_API_KEY", session.key)
            }
            ProviderProtocol::Gemini => {
                start.env("GOOGLE_GEMINI_BASE_URL", session.base_url).env("GEMINI_API_KEY", session.key)
            }
            ProviderProtocol::Chat
            | ProviderProtocol::Responses
            | ProviderProtocol::Azure
            | ProviderProtocol::Scripted => start
                .env("OPENAI_BASE_URL", session.base_url)
                .env("OPENAI_API_BASE", session.base_url)
                .env("OPENAI_API_KEY", session.key),
        };
        start = start.env("RALPH_AGENT_MODEL", session.model).env("RALPH_AGENT_PROMPT", session.prompt_file);
        if self.uses_placeholder("prompt") || self.uses_placeholder("prompt_file") {
            start
        } else {
            start.stdin(session.prompt)
        }
    }

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        Box::new(PlainTextReader::default())
    }
}

/// Returns the placeholders of an argument: lower-case names in braces. Other braces are literal.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(place, _)| place)
        .filter(|place| is_name(place))
}

fn is_name(place: &str) -> bool {
    !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Fills in an argument in one pass, so that inserted text is not expanded again.
fn fill_placeholders(word: &str, session: &AgentSessionParams<'_>) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let place = after.split_once('}').filter(|(place, _)| PLACEHOLDERS.contains(place));
        let Some((place, after_place)) = place else {
            out.push('{');
            rest = after;
            continue;
        };
        match place {
            "prompt" => out.push_str(&session.prompt_argument()),
            "prompt_file" => out.push_str(session.prompt_file),
            "folder" => out.push_str(session.folder),
            "model" => out.push_str(session.model),
            _ => out.push_str(session.base_url),
        }
        rest = after_place;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &[&str], prompt: &str, want: Result<(&[&str], Option<&str>), &str>) {
        let template: Vec<String> = template.iter().map(|word| (*word).to_owned()).collect();
        let got = CustomAgent::new(&template).map(|custom| {
            let session = AgentSessionParams {
                program: "/opt/a",
                prompt,
                prompt_file: "/x/prompt.md",
                folder: "/x",
                model: "m",
                base_url: "http://d",
                key: "k",
                key_variable: "K",
                wire: ProviderProtocol::Chat,
            };
            let start = custom.invocation(&session);
            (start.argv, start.stdin)
        });
        let got = got.map_err(|error| format!("{error} | {}", error.hint().unwrap_or_default()));
        let want = want
            .map(|(argv, stdin)| (argv.iter().map(|word| (*word).to_owned()).collect(), stdin.map(str::to_owned)))
            .map_err(str::to_owned);
        assert_eq!(got, want);
    }

    #[test]
    fn templates_become_command_lines() {
        check(&["a"], "do", Ok((&["/opt/a"], Some("do"))));
        check(&["a", "-m", "{model}", "{prompt}"], "{model}", Ok((&["/opt/a", "-m", "m", "{model}"], None)));
        check(
            &["a", "--file={prompt_file}", "{\"a\":1}"],
            "do",
            Ok((&["/opt/a", "--file=/x/prompt.md", "{\"a\":1}"], None)),
        );
        check(&["a", "{folder}{base_url}", "{{model}}"], "do", Ok((&["/opt/a", "/xhttp://d", "{m}"], Some("do"))));
        check(&["a", "{"], "do", Ok((&["/opt/a", "{"], Some("do"))));
        check(
            &[],
            "",
            Err(
                "the custom agent has no command | write a program and its arguments, for example `[\"my-agent\", \"--model\", \"{model}\"]`",
            ),
        );
        check(
            &["{model}"],
            "",
            Err(
                "the custom agent's command begins with `{model}`, which is not a program | write a program and its arguments, for example `[\"my-agent\", \"--model\", \"{model}\"]`",
            ),
        );
        check(
            &["a", "{promt}"],
            "",
            Err("the custom agent's command has the unknown placeholder `{promt}` | did you mean `{prompt}`?"),
        );
        check(
            &["a", "{key}"],
            "",
            Err(
                "the custom agent's command has the unknown placeholder `{key}` | the placeholders are {prompt}, {prompt_file}, {folder}, {model}, {base_url}",
            ),
        );
    }

    #[test]
    fn a_long_prompt_is_read_from_its_file() {
        let long = "x".repeat(200 << 10);
        let word = "Read the file /x/prompt.md in full. It holds your instructions: follow them exactly.";
        check(&["a", "{prompt}"], &long, Ok((&["/opt/a", word], None)));
    }
}
