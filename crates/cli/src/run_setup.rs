//! Provides the host and the current directory to `ralph_engine::setup`, which reads neither by itself.

use std::path::{Path, PathBuf};

use ralph_core::exit_code::RalphExitCode;
use ralph_engine::git::UserRepo;
use ralph_engine::host_environment::HostContext;
use ralph_engine::setup::{self, LoadedTask, TaskInput};
use ralph_engine::store::RunFolder;

use crate::environment::ProcessEnvironment;
use crate::error::CliError;

/// The machine and the user's folders.
#[derive(Debug, Clone)]
pub(crate) struct CliSetup {
    pub(crate) host: HostContext,
    pub(crate) environment: ProcessEnvironment,
}

impl CliSetup {
    pub(crate) async fn new(environment: ProcessEnvironment) -> Result<Self, CliError> {
        let home = setup::ralph_home(&environment.env)?;
        Ok(Self { host: HostContext::open(home, environment.env.clone()).await?, environment })
    }

    /// Finds a run to read. `@` is the latest of the current repository, or of all if that has none.
    pub(crate) fn find_run(&self, wanted: &str) -> Result<RunFolder, CliError> {
        Ok(setup::find_run(&self.host.home, &dir_or_nowhere(), wanted)?)
    }

    /// Finds the folder with an audit log: a run's, or the one that `ralph sandbox exec` wrote under its sandbox's
    /// name.
    pub(crate) fn find_audit_folder(&self, wanted: &str) -> Result<RunFolder, CliError> {
        Ok(setup::find_audit_folder(&self.host.home, &dir_or_nowhere(), wanted)?)
    }

    /// Finds a run to change. Inside a repository without runs `@` finds none: it must not change another repository's
    /// run.
    pub(crate) fn find_run_to_change(&self, wanted: &str) -> Result<RunFolder, CliError> {
        Ok(setup::find_run_to_change(&self.host.home, &dir_or_nowhere(), wanted)?)
    }

    /// Reads the task file that a command names, or the one at the top of the repository.
    pub(crate) async fn load_task(&self, task: Option<&Path>) -> Result<LoadedTask, CliError> {
        Ok(setup::load_task(&self.host, &current_dir()?, &task_input(task)).await?)
    }

    /// Finds the repository of the current directory.
    pub(crate) async fn repo(&self) -> Result<UserRepo, CliError> {
        Ok(UserRepo::find(&self.host.git, &current_dir()?).await.map_err(ralph_engine::Error::from)?)
    }

    /// Returns the top of the repository of the current directory, if there is one.
    pub(crate) async fn repo_top(&self) -> Option<PathBuf> {
        self.repo().await.ok().map(|repo| repo.top().to_owned())
    }
}

/// Returns the current directory.
pub(crate) fn current_dir() -> Result<PathBuf, CliError> {
    std::path::absolute(".").map_err(|error| CliError::from_error(RalphExitCode::Usage, &error))
}

/// Returns the task that an argument names.
pub(crate) fn task_input(task: Option<&Path>) -> TaskInput {
    task.map_or(TaskInput::DefaultFile, |path| TaskInput::File(path.to_owned()))
}

/// Converts an error with its hint.
pub(crate) fn error_with_hint(exit: RalphExitCode, error: &dyn std::error::Error, hint: Option<String>) -> CliError {
    let mut failure = CliError::from_error(exit, error);
    failure.hint = hint;
    failure
}

/// Returns the current directory, or an empty path if it was removed: a run can still be named by its id then.
fn dir_or_nowhere() -> PathBuf {
    current_dir().unwrap_or_default()
}
