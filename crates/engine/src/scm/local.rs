//! For repositories without a forge: the branch goes to the remote or becomes a branch of the user's repository, and the
//! pull request is a file.

use std::path::Path;

use ralph_core::event::RunStart;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::git::{self, BareRepo, GitRemote, RunBranch, Sha, UserRepo};
use crate::host::HostContext;
use crate::store::{RunFolder, write_atomic};

/// The words of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestText {
    pub title: String,
    pub body: String,
    pub draft: bool,
    pub labels: Vec<String>,
    pub base: String,
    pub branch: String,
    pub sha: String,
}

/// Pushes the run's branch; returns where it went. `last` is what this run pushed before, which it may replace.
pub(crate) async fn push(
    host: &HostContext,
    bare: &BareRepo,
    started: &RunStart,
    sha: &str,
    last: Option<&str>,
) -> Result<String, Error> {
    let branch = RunBranch::parse(&started.branch)?;
    let sha = Sha::parse(sha)?;
    let last = last.map(Sha::parse).transpose()?;
    let repo = UserRepo::find(&host.git, Path::new(&started.repo)).await?;
    match repo.remote().await? {
        Some(remote) => {
            let to = GitRemote::parse(remote.url.expose())?;
            bare.push_replacing(&to, &branch, &sha, last.as_ref(), &host.auth()).await?;
            Ok(remote.display_url)
        }
        None => {
            bare.publish_replacing(&repo, &branch, &sha, last.as_ref()).await?;
            Ok(started.repo.clone())
        }
    }
}

/// Keeps the receipt beside the commit, as a git note: in the run's repository, and in the user's where it has the commit.
pub(crate) async fn attach_receipt(
    host: &HostContext,
    bare: &BareRepo,
    started: &RunStart,
    sha: &str,
    text: &str,
) -> Result<(), Error> {
    let sha = Sha::parse(sha)?;
    let stamp = git::stamp(&started.identity);
    bare.odb().set_note(&sha, text.as_bytes(), &stamp).await?;
    let repo = UserRepo::find(&host.git, Path::new(&started.repo)).await?;
    if repo.odb().resolve_commit(sha.as_str()).await?.is_some() {
        repo.odb().set_note(&sha, text.as_bytes(), &stamp).await?;
    }
    Ok(())
}

/// Writes the pull request; returns its address.
pub(crate) fn write_pull_request(folder: &RunFolder, text: &PullRequestText) -> Result<String, Error> {
    let path = folder.pull_request_path();
    let front = serde_json::to_string(&serde_json::json!({
        "format": 1, "title": text.title, "draft": text.draft, "labels": text.labels,
        "base": text.base, "branch": text.branch, "sha": text.sha,
    }))
    .unwrap_or_default();
    let whole = format!("<!-- {} -->\n# {}\n\n{}", front.replace("-->", "--\\u003e"), text.title, text.body);
    write_atomic(&path, whole.as_bytes())?;
    Ok(format!("file://{}", path.display()))
}
