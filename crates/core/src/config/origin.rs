//! Defines the origin of a config value and its precedence.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The origin of a value. Paths are as the caller wants them shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from", content = "at")]
pub enum ConfigOrigin {
    Flag,
    /// The variable's name.
    Env(String),
    /// The task file.
    Task(String),
    /// A file of the project, `.env` included.
    Project(String),
    /// The user's own file.
    User(String),
    BuiltIn,
}

impl ConfigOrigin {
    /// Returns the precedence; the highest takes effect.
    pub fn rank(&self) -> u8 {
        match self {
            Self::BuiltIn => 0,
            Self::User(_) => 1,
            Self::Project(_) => 2,
            Self::Task(_) => 3,
            Self::Env(_) => 4,
            Self::Flag => 5,
        }
    }

    /// Returns whether the value comes from the user. Values of a checkout may only narrow.
    pub fn is_trusted(&self) -> bool {
        !matches!(self, Self::Task(_) | Self::Project(_))
    }

    /// Returns the file or variable, or the name of the origin if it has none.
    pub fn location(&self) -> &str {
        match self {
            Self::Flag => "flag",
            Self::Env(at) | Self::Task(at) | Self::Project(at) | Self::User(at) => at,
            Self::BuiltIn => "built-in",
        }
    }
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Task(path) => write!(f, "task {path}"),
            Self::Project(path) => write!(f, "project {path}"),
            Self::User(path) => write!(f, "user {path}"),
            Self::BuiltIn => f.write_str("built-in"),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedValue<T> {
    pub value: T,
    pub origin: ConfigOrigin,
}

impl<T> ResolvedValue<T> {
    pub fn built_in(value: T) -> Self {
        Self { value, origin: ConfigOrigin::BuiltIn }
    }
}
