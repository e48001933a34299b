//! Defines git errors, their exit codes and hints.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ralph_core::exit_code::RalphExitCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`git` is not installed")]
    Missing,
    #[error("`git` {found} is older than {need}")]
    TooOld { found: String, need: &'static str },
    #[error("could not start `{}`", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("could not {doing} `{}`", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("git took longer than {after:?} to {doing}")]
    TimedOut { doing: &'static str, after: Duration },
    #[error("git printed more than {cap} bytes when asked to {doing}")]
    TooMuchOutput { doing: &'static str, cap: usize },
    #[error("git could not {doing} (exit {code}): {said}")]
    Failed { doing: &'static str, code: i32, said: String },
    #[error("git returned unexpected output when asked to {doing}")]
    UnexpectedOutput { doing: &'static str },
    #[error("`{}` is not in a git work tree", path.display())]
    NotARepository { path: PathBuf },
    #[error("{}", no_commit(name))]
    NoCommit { name: String },
    #[error("`{text}` is not a usable {what}")]
    BadName { what: &'static str, text: String },
    #[error("`{path}` is not in commit `{sha}`")]
    NoFile { sha: String, path: String },
    #[error("remote `{url}` is refused: {why}")]
    RemoteUrl { url: String, why: &'static str },
    #[error("branch `{branch}` has other commits at its destination")]
    NotFastForward { branch: String },
    #[error("the remote refused branch `{branch}`: {reason}")]
    RemoteRefused { branch: String, reason: String },
    #[error("branch `{branch}` is checked out in the user's repository")]
    CheckedOut { branch: String },
    #[error("the sandbox could not {doing}")]
    Sandbox { doing: &'static str, source: ralph_sandbox::Error },
    #[error("git in the sandbox could not {doing} (exit {code}): {said}")]
    SandboxScript { doing: &'static str, code: i32, said: String },
}

fn no_commit(name: &str) -> String {
    match name {
        "HEAD" => "the repository has no commit yet".to_owned(),
        _ => format!("there is no commit `{name}`"),
    }
}

impl Error {
    /// Returns the exit code of a command that fails with this error.
    pub fn exit(&self) -> RalphExitCode {
        match self {
            Self::NotARepository { .. } | Self::NoCommit { .. } | Self::BadName { .. } | Self::RemoteUrl { .. } => {
                RalphExitCode::Usage
            }
            Self::Missing | Self::TooOld { .. } | Self::Spawn { .. } => RalphExitCode::NotReady,
            _ => RalphExitCode::Failed,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing | Self::TooOld { .. } => {
                Some(format!("install git {} or newer, then try again", super::subprocess::MIN_GIT_VERSION))
            }
            Self::NotARepository { .. } => Some(
                "go to a checkout, or make one: git init && git commit --allow-empty -m \"first commit\"".to_owned(),
            ),
            Self::NoCommit { name } if name == "HEAD" => {
                Some("git commit --allow-empty -m \"first commit\"".to_owned())
            }
            Self::NoCommit { .. } => {
                Some("check `base_branch` in the task file, or fetch it with `git fetch`".to_owned())
            }
            Self::NotFastForward { branch } => {
                Some(format!("rename or delete `{branch}` at the destination, or start a new run"))
            }
            Self::RemoteRefused { .. } => Some("check the rights of the credential and the branch rules".to_owned()),
            Self::CheckedOut { .. } => Some("switch to another branch, then resume the run".to_owned()),
            Self::RemoteUrl { .. } => Some("use an https, ssh or file remote".to_owned()),
            Self::Sandbox { source, .. } => source.hint(),
            Self::Spawn { .. }
            | Self::Io { .. }
            | Self::TimedOut { .. }
            | Self::TooMuchOutput { .. }
            | Self::Failed { .. }
            | Self::UnexpectedOutput { .. }
            | Self::BadName { .. }
            | Self::NoFile { .. }
            | Self::SandboxScript { .. } => None,
        }
    }
}
