//! Publishes to a repository without a forge: the branch goes to the remote or becomes a branch of the user's
//! repository, and the pull request is a file in the run folder.

use std::path::Path;

use async_trait::async_trait;
use ralph_core::pull_request::{CiState, PullRequest};

use super::{PublishedRun, PullRequestLink, Scm};
use crate::error::Error;
use crate::git::{self, GitAuth, GitProgram, GitRemote, Sha, UserRepo};
use crate::store::write_atomic;

/// Publishes with the host's git, without a forge.
#[derive(Debug)]
pub struct LocalScm {
    git: GitProgram,
    auth: GitAuth,
}

impl LocalScm {
    pub fn new(git: GitProgram, auth: GitAuth) -> Self {
        Self { git, auth }
    }

    async fn user_repo(&self, run: PublishedRun<'_>) -> Result<UserRepo, Error> {
        Ok(UserRepo::find(&self.git, Path::new(&run.started.repo)).await?)
    }
}

#[async_trait]
impl Scm for LocalScm {
    async fn push(&self, run: PublishedRun<'_>, sha: &Sha, replaces: Option<&Sha>) -> Result<String, Error> {
        let branch = &run.started.branch;
        let repo = self.user_repo(run).await?;
        match repo.remote().await? {
            Some(remote) => {
                let to = GitRemote::parse(remote.url.expose())?;
                run.bare.push_replacing(&to, branch, sha, replaces, &self.auth).await?;
                Ok(remote.display_url)
            }
            None => {
                run.bare.publish_replacing(&repo, branch, sha, replaces).await?;
                Ok(run.started.repo.clone())
            }
        }
    }

    async fn open_or_update(
        &self,
        run: PublishedRun<'_>,
        request: &PullRequest,
        existing: Option<u64>,
    ) -> Result<PullRequestLink, Error> {
        let path = run.folder.pull_request_path();
        let front = serde_json::to_string(&serde_json::json!({
            "format": 1, "title": request.title, "draft": request.draft, "labels": request.labels,
            "base": request.base, "branch": request.branch, "sha": request.sha,
        }))
        .unwrap_or_default();
        let whole = format!("<!-- {} -->\n# {}\n\n{}", front.replace("-->", "--\\u003e"), request.title, request.body);
        write_atomic(&path, whole.as_bytes())?;
        Ok(PullRequestLink { url: format!("file://{}", path.display()), number: existing.unwrap_or(1) })
    }

    /// Stores the receipt as a git note: in the run's repository, and in the user's if it has the commit.
    async fn attach_receipt(&self, run: PublishedRun<'_>, sha: &Sha, receipt: &str) -> Result<(), Error> {
        let stamp = git::stamp(&run.started.identity);
        run.bare.odb().set_note(sha, receipt.as_bytes(), &stamp).await?;
        let repo = self.user_repo(run).await?;
        if repo.odb().resolve_commit(sha.as_str()).await?.is_some() {
            repo.odb().set_note(sha, receipt.as_bytes(), &stamp).await?;
        }
        Ok(())
    }

    async fn checks(&self, _run: PublishedRun<'_>, _sha: &Sha) -> Result<CiState, Error> {
        Ok(CiState::None)
    }
}
