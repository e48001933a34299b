//! Finds and reads the task of a run, and the repository it is about.

use std::io;
use std::path::{Path, PathBuf};

use ralph_core::task;

use super::SetupError;
use crate::git::{self, UserRepo};
use crate::host_environment::HostContext;
use crate::read_text_file;

/// The default task file.
pub const TASK_FILE: &str = "ralph_task.md";

/// Where the text of a task comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskInput {
    /// The task file at the top of the repository around the directory.
    DefaultFile,
    /// A file; a relative path starts at the directory.
    File(PathBuf),
    /// The text itself, which becomes the task file at the top of the repository around the directory.
    Text(String),
}

/// A loaded task.
#[derive(Debug)]
pub struct LoadedTask {
    pub repo: UserRepo,
    /// The file's path for display.
    pub display_path: PathBuf,
    /// The file's path inside the repository.
    pub repo_path: String,
    /// `None` if the default file does not exist.
    pub source: Option<String>,
}

/// Reads a task. The directory must be absolute.
pub async fn load_task(host: &HostContext, dir: &Path, input: &TaskInput) -> Result<LoadedTask, SetupError> {
    let named = match input {
        TaskInput::File(path) => Some(path.as_path()),
        TaskInput::DefaultFile | TaskInput::Text(_) => None,
    };
    let repo = find_repo(host, dir, named).await?;
    let (source, path_in_repo) = match input {
        TaskInput::Text(text) => (Some(text.clone()), Ok(TASK_FILE.to_owned())),
        TaskInput::DefaultFile | TaskInput::File(_) => {
            let path = named.map_or_else(|| repo.top().join(TASK_FILE), |named| absolute(dir, named));
            (read_source(dir, &path, named)?, path_in_repo(&path, repo.top()))
        }
    };
    let repo_url = source.as_deref().and_then(|source| task::parse(source).ok()).and_then(|task| task.front.repo_url);
    let other_repo = match repo_url {
        Some(url) => host.repository(&url, &repo).await?,
        None => None,
    };
    let (repo, repo_path) = match other_repo {
        // A task file outside the repository it is about goes to that repository's top.
        Some(other) => (other, TASK_FILE.to_owned()),
        None => (repo, path_in_repo?),
    };
    let display_path = named.map_or_else(|| PathBuf::from(TASK_FILE), Path::to_owned);
    Ok(LoadedTask { repo, display_path, repo_path, source })
}

/// Finds the repository around a named task file, or around the directory.
async fn find_repo(host: &HostContext, dir: &Path, named: Option<&Path>) -> Result<UserRepo, SetupError> {
    let start = match named.and_then(Path::parent) {
        Some(parent) if !parent.as_os_str().is_empty() && dir.join(parent).is_dir() => parent,
        _ => dir,
    };
    let error = match UserRepo::find(&host.git, &dir.join(start)).await {
        Ok(repo) => return Ok(repo),
        // Shown as typed.
        Err(git::Error::NotARepository { .. }) => git::Error::NotARepository { path: start.to_owned() },
        Err(error) => error,
    };
    // Either the repository is missing or the task is not in it.
    if let Some(named) = named
        && let Ok(repo) = UserRepo::find(&host.git, dir).await
    {
        return Err(SetupError::TaskOutsideRepo { task: named.to_owned(), top: repo.top().to_owned() });
    }
    Err(error.into())
}

/// Reads a task file; only the default file may be missing.
fn read_source(dir: &Path, path: &Path, named: Option<&Path>) -> Result<Option<String>, SetupError> {
    let shown = || path.strip_prefix(dir).unwrap_or(path).to_owned();
    match read_text_file(path) {
        Ok(source) => Ok(Some(source)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SetupError::NoTaskFile { path: shown() }),
        Err(source) => Err(SetupError::UnreadableTask { path: shown(), source }),
    }
}

/// Returns a file's path inside a repository. A run's task is a file of its branch, so a file from elsewhere is an
/// error.
fn path_in_repo(path: &Path, top: &Path) -> Result<String, SetupError> {
    let task = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let top = top.canonicalize().unwrap_or_else(|_| top.to_owned());
    match task.strip_prefix(&top) {
        Ok(inside) => Ok(inside.display().to_string()),
        Err(_) => Err(SetupError::TaskOutsideRepo { task, top }),
    }
}

fn absolute(dir: &Path, path: &Path) -> PathBuf {
    let path = dir.join(path);
    // Removes redundant parts like `./`; an absolute path does not change otherwise.
    std::path::absolute(&path).unwrap_or(path)
}
