//! Defines the errors of a config, with hints.

use super::origin::ConfigOrigin;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{file}:{line}:{column}: unknown key `{key}`")]
    UnknownKey { file: String, line: usize, column: usize, key: String, meant: Option<String> },
    #[error("{file}:{line}:{column}: `{key}` would have no effect: {why}")]
    NoEffect { file: String, line: usize, column: usize, key: &'static str, why: &'static str },
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: String, line: usize, column: usize, message: String },
    #[error("{}", value(origin, key, problem))]
    Value { origin: ConfigOrigin, key: String, problem: String, hint: Option<String> },
    #[error(transparent)]
    Widens(Box<ConfigWidening>),
}

/// A checkout that asks for more than the user allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{by} asks for `{key} = {asked}`, but {limit_by} allows {limit}")]
pub struct ConfigWidening {
    pub key: &'static str,
    pub asked: String,
    pub by: ConfigOrigin,
    pub limit: String,
    pub limit_by: ConfigOrigin,
    /// The flag that would allow it for one run; `None` where only the user's file can.
    pub flag: Option<String>,
}

impl ConfigWidening {
    fn hint(&self) -> String {
        if let Some(flag) = &self.flag {
            return format!("to allow it for this run, add `{flag}`");
        }
        let key = self.key;
        format!("to allow it, set `{key}` in your own config; `ralph config path` shows where it is")
    }
}

/// Names the value with its origin; a variable is its own key and is not named twice.
fn value(origin: &ConfigOrigin, key: &str, problem: &str) -> String {
    match origin {
        ConfigOrigin::Env(name) if name == key => format!("the environment variable `{key}` {problem}"),
        _ => format!("{origin}: `{key}` {problem}"),
    }
}

impl From<ConfigWidening> for Error {
    fn from(widens: ConfigWidening) -> Self {
        Self::Widens(Box::new(widens))
    }
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::UnknownKey { meant: None, .. } => Some("`ralph config schema` lists every key".to_owned()),
            Self::NoEffect { file, .. } => Some(format!("remove it from {file}")),
            Self::Syntax { file, .. } if file.rsplit('.').next() == Some("json") => {
                Some(format!("correct it in {file}"))
            }
            Self::Syntax { .. } => Some("`ralph config schema` lists every key and what it takes".to_owned()),
            Self::Value { hint, .. } => hint.clone(),
            Self::Widens(widens) => Some(widens.hint()),
        }
    }
}
