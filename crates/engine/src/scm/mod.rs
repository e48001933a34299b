//! Publishes a run's branch and pull request: the [`Scm`] trait, and its implementation for repositories without a
//! forge.
//!
//! When to publish is decided in `ralph_core::decide_next_step`; what a pull request says is written in `run::publish`.

mod without_forge;

use std::fmt;

use async_trait::async_trait;
use ralph_core::event::RunStart;
use ralph_core::pull_request::{CiState, PullRequest};

use crate::error::Error;
use crate::git::{BareRepo, Sha};
use crate::store::RunFolder;

pub use without_forge::LocalScm;

/// The run to publish.
#[derive(Debug, Clone, Copy)]
pub struct PublishedRun<'a> {
    pub started: &'a RunStart,
    pub folder: &'a RunFolder,
    /// The host's own repository of the run, which has every imported commit.
    pub bare: &'a BareRepo,
}

/// The link to a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestLink {
    pub url: String,
    pub number: u64,
}

/// The host of the user's repository: accepts branches and pull requests and runs CI checks.
#[async_trait]
pub trait Scm: fmt::Debug + Send + Sync {
    /// Pushes the run's branch at `sha` and returns the destination. `replaces` is the commit this run pushed before,
    /// which may be overwritten.
    async fn push(&self, run: PublishedRun<'_>, sha: &Sha, replaces: Option<&Sha>) -> Result<String, Error>;

    /// Opens the pull request, or updates the one with the number `existing`.
    async fn open_or_update(
        &self,
        run: PublishedRun<'_>,
        request: &PullRequest,
        existing: Option<u64>,
    ) -> Result<PullRequestLink, Error>;

    /// Attaches the text of the signed receipt to the commit it is about.
    async fn attach_receipt(&self, run: PublishedRun<'_>, sha: &Sha, receipt: &str) -> Result<(), Error>;

    /// Returns the current state of the CI checks of a pushed commit.
    async fn checks(&self, run: PublishedRun<'_>, sha: &Sha) -> Result<CiState, Error>;
}
