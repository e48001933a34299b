//! Makes the attacked projects: a repository each, in which every attack is a commit of its own.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ralph_engine::check_trial::CheckTrial;
use ralph_engine::git::GitProgram;
use ralph_sandbox::Backend;
use tempfile::TempDir;

use super::projects::AttackedProject;
use crate::report::AttackVerdict;

/// The projects that attacks have used so far.
#[derive(Debug)]
pub(super) struct ProofArena<'a> {
    backend: &'a dyn Backend,
    git: GitProgram,
    search_path: OsString,
    folder: TempDir,
    projects: HashMap<&'static str, Result<PreparedProject<'a>, AttackVerdict>>,
}

/// A project whose check was observed.
#[derive(Debug)]
pub(super) struct PreparedProject<'a> {
    pub(super) trial: CheckTrial<'a>,
    pub(super) folder: PathBuf,
    search_path: OsString,
    start: String,
}

impl<'a> ProofArena<'a> {
    pub(super) async fn new(backend: &'a dyn Backend, search_path: &OsStr) -> Result<Self, AttackVerdict> {
        let git = GitProgram::find(search_path).await.map_err(|error| AttackVerdict::Skipped(error.to_string()))?;
        let folder = tempfile::tempdir().map_err(invalid)?;
        Ok(Self { backend, git, search_path: search_path.to_owned(), folder, projects: HashMap::new() })
    }

    /// Returns a project, made and observed at its first use.
    pub(super) async fn project(
        &mut self,
        project: &'static AttackedProject,
    ) -> Result<&PreparedProject<'a>, AttackVerdict> {
        if !self.projects.contains_key(project.name) {
            let prepared = self.prepare(project).await;
            self.projects.insert(project.name, prepared);
        }
        match self.projects.get(project.name) {
            Some(Ok(prepared)) => Ok(prepared),
            Some(Err(verdict)) => Err(verdict.clone()),
            None => Err(AttackVerdict::Invalid("the project was not made".to_owned())),
        }
    }

    async fn prepare(&self, project: &'static AttackedProject) -> Result<PreparedProject<'a>, AttackVerdict> {
        let is_missing = |name: &&&str| !std::env::split_paths(&self.search_path).any(|dir| dir.join(name).is_file());
        if let Some(name) = project.programs.iter().find(is_missing) {
            return Err(AttackVerdict::Skipped(format!("`{name}` is not installed")));
        }
        let number = self.projects.len();
        let [folder, scratch] = ["project", "scratch"].map(|kind| self.folder.path().join(format!("{kind}-{number}")));
        for (path, text) in project.files {
            write_file(&folder.join(path), text).map_err(invalid)?;
        }
        fs::create_dir_all(&scratch).map_err(invalid)?;
        let shell = |line: &str| run_line(&self.search_path, &folder, line);
        shell("git init -q -b main && git add -f -A && git commit -q -m start").map_err(AttackVerdict::Invalid)?;
        let start = shell("git rev-parse HEAD").map_err(AttackVerdict::Invalid)?;
        let trial =
            CheckTrial::start(&self.git, self.backend, &folder, &scratch, project.command).await.map_err(invalid)?;
        let prepared = PreparedProject { trial, folder, search_path: self.search_path.clone(), start };
        // Where honest work is refused, a refused attack shows nothing.
        let honest = prepared.commit(project.solution)?;
        let result = prepared.trial.run_guarded(&honest, None).await.map_err(invalid)?;
        if !result.passed {
            return Err(AttackVerdict::Invalid(format!("honest work is refused: {}", result.output)));
        }
        Ok(prepared)
    }
}

impl PreparedProject<'_> {
    /// Commits a change on top of the start, and returns the commit.
    pub(super) fn commit(&self, change: &str) -> Result<String, AttackVerdict> {
        let start = &self.start;
        let reset = format!("git checkout -q -f --detach {start} && git clean -q -f -f -d -x");
        // With some attributes git cannot add what is there; such a change commits itself.
        let commit = "git add -f -A; git commit -q --allow-empty -m change && git rev-parse HEAD";
        self.run_line(&reset).map_err(AttackVerdict::Invalid)?;
        self.run_line(change).map_err(AttackVerdict::Invalid)?;
        self.run_line(commit).map_err(AttackVerdict::Invalid)
    }

    /// Runs a shell line in the changed project on the host.
    pub(super) fn run_line(&self, line: &str) -> Result<String, String> {
        run_line(&self.search_path, &self.folder, line)
    }
}

fn invalid(error: impl std::fmt::Display) -> AttackVerdict {
    AttackVerdict::Invalid(error.to_string())
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    if let Some(target) = text.strip_prefix("link:") {
        return symlink(target, path);
    }
    fs::write(path, text)?;
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Runs a shell line of the suite itself, without the user's settings of git.
fn run_line(search_path: &OsStr, folder: &Path, line: &str) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env_clear().env("PATH", search_path).env("HOME", folder);
    shell.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C.UTF-8");
    for who in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{who}_NAME"), "redteam").env(format!("GIT_{who}_EMAIL"), "redteam@localhost");
    }
    let output = shell.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("`{line}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
