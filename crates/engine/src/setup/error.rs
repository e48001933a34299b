//! Defines why a run cannot be set up, with exit codes and hints for the user.

use std::io;
use std::path::{Path, PathBuf};

use ralph_core::agent::BadTemplate;
use ralph_core::config::{self, UnknownBackend};
use ralph_core::env_vars::RALPH_STATE_DIR;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::policy::BadRule;
use ralph_core::profile::ProfileError;
use ralph_core::task::TaskError;

use super::shell_quote::shell_quote;
use super::task_file::TASK_FILE;
use crate::egress::SecretGrantError;
use crate::error::Error;

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    #[error(transparent)]
    Rule(#[from] BadRule),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    SecretGrant(#[from] SecretGrantError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("neither `HOME` nor the XDG folders are absolute paths, so there is no place for runs")]
    NoHome,
    #[error("`{RALPH_STATE_DIR}` is `{dir}`, which is not an absolute path")]
    RelativeStateDir { dir: String },
    #[error("there is no run of this repository yet")]
    NoRunHere,
    #[error("there is no task file `{TASK_FILE}`")]
    NoTask,
    #[error("there is no task file `{}`", path.display())]
    NoTaskFile { path: PathBuf },
    #[error("could not read the task file `{}`", path.display())]
    UnreadableTask { path: PathBuf, source: io::Error },
    #[error("could not read the settings in `{}`", path.display())]
    UnreadableConfig { path: PathBuf, source: io::Error },
    #[error("the task file `{}` is outside the repository `{}`", task.display(), top.display())]
    TaskOutsideRepo { task: PathBuf, top: PathBuf },
    #[error("`{}` cannot be run as it is: {}", path.display(), error_count(problems.len()))]
    TaskHasErrors {
        path: PathBuf,
        /// The linter's messages, one for each error.
        problems: Vec<String>,
        /// `ralph lint --fix` would change the file.
        fixable: bool,
    },
    #[error("the imported prices in `{}` cannot be used: {why}", path.display())]
    ImportedPrices { path: PathBuf, why: String },
    #[error("could not write `{}`", path.display())]
    TrustFile { path: PathBuf, source: io::Error },
    #[error("there is no engine `{name}`")]
    NoEngine { name: String },
    #[error("`--agent` names an agent, and `--engine actions` uses none")]
    AgentWithoutEngine,
    #[error("there is no agent `{name}`")]
    NoAgent { name: String, meant: Option<&'static str> },
    #[error("the agent `custom` cannot be started: {why}")]
    CustomAgent { why: BadTemplate },
    #[error("`--allow-host` adds to a network that `--network deny` takes away")]
    AllowedHostsOfNoNetwork,
}

impl SetupError {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Engine(error) => return error.hint(),
            Self::Config(error) => return error.hint(),
            Self::Backend(error) => return error.hint(),
            Self::Rule(error) => return error.hint(),
            Self::Profile(error) => return error.hint(),
            Self::SecretGrant(error) => return error.hint(),
            Self::Task(_) => "ralph lint".to_owned(),
            Self::NoHome => "export HOME=/path/to/your/home".to_owned(),
            Self::RelativeStateDir { dir } => format!("export {RALPH_STATE_DIR}=\"$PWD/{dir}\""),
            Self::NoRunHere => "ralph ls shows all runs; name one by its id".to_owned(),
            Self::NoTask => "`ralph init` writes one; or name another: ralph run PATH".to_owned(),
            Self::NoTaskFile { .. } => "ralph init".to_owned(),
            Self::UnreadableTask { .. } => "name a Markdown file in UTF-8: ralph run PATH".to_owned(),
            Self::UnreadableConfig { path, .. } => {
                format!("make it a readable text file, or move it away: mv {0} {0}.old", shell_quote(path))
            }
            Self::TaskOutsideRepo { task, top } => format!("cp {} {}", shell_quote(task), shell_quote(top)),
            Self::TaskHasErrors { fixable: false, .. } => {
                "fix the file as described above; `ralph help task-file` shows the format".to_owned()
            }
            Self::TaskHasErrors { path, .. } if path == Path::new(TASK_FILE) => "ralph lint --fix".to_owned(),
            Self::TaskHasErrors { path, .. } => format!("ralph lint --fix {}", shell_quote(path)),
            Self::ImportedPrices { path, .. } => format!(
                "import them again with `ralph profile prices --import FILE`, or remove them: rm {}",
                shell_quote(path)
            ),
            Self::TrustFile { .. } => "ralph config path".to_owned(),
            Self::NoEngine { .. } => "use `--engine actions` or `--engine agent`".to_owned(),
            Self::AgentWithoutEngine => "omit one of them".to_owned(),
            Self::NoAgent { meant: Some(meant), .. } => format!("did you mean `{meant}`?"),
            Self::NoAgent { meant: None, .. } => "ralph agent ls".to_owned(),
            Self::CustomAgent { .. } => "set `agent.command` in your `config.toml`, for example [\"my-agent\", \
                                         \"--prompt-file\", \"{prompt_file}\"]"
                .to_owned(),
            Self::AllowedHostsOfNoNetwork => "use `--network allowlist`, or omit `--network`".to_owned(),
        })
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn exit(&self) -> RalphExitCode {
        match self {
            Self::Engine(error) => error.exit(),
            Self::NoHome => RalphExitCode::NotReady,
            Self::TrustFile { .. } => RalphExitCode::Failed,
            Self::Config(_)
            | Self::Backend(_)
            | Self::Rule(_)
            | Self::Profile(_)
            | Self::SecretGrant(_)
            | Self::Task(_)
            | Self::RelativeStateDir { .. }
            | Self::NoRunHere
            | Self::NoTask
            | Self::NoTaskFile { .. }
            | Self::UnreadableTask { .. }
            | Self::UnreadableConfig { .. }
            | Self::TaskOutsideRepo { .. }
            | Self::TaskHasErrors { .. }
            | Self::ImportedPrices { .. }
            | Self::NoEngine { .. }
            | Self::AgentWithoutEngine
            | Self::NoAgent { .. }
            | Self::CustomAgent { .. }
            | Self::AllowedHostsOfNoNetwork => RalphExitCode::Usage,
        }
    }
}

impl From<crate::git::Error> for SetupError {
    fn from(error: crate::git::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<crate::secret::Error> for SetupError {
    fn from(error: crate::secret::Error) -> Self {
        Self::Engine(error.into())
    }
}

fn error_count(errors: usize) -> String {
    match errors {
        1 => "1 error".to_owned(),
        n => format!("{n} errors"),
    }
}
