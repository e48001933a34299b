//! Verifies a receipt by running it again: the same commands on the same commit in a fresh sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::event::CommitIdentity;
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::receipt::{Receipt, ReceiptCheck, RerunResult, compare_check, proof_flaw};
use ralph_sandbox::{Backend, Sandbox, SandboxLabel, SandboxSpec};
use serde::Serialize;

use crate::check_command;
use crate::error::{Error, file_error};
use crate::git::in_sandbox::StateFiles;
use crate::git::{self, BareRepo, Sha, UserRepo};
use crate::host_context::HostContext;
use crate::proof_file_restore::HeldFiles;
use crate::receipt::{self, SigningKey};
use crate::sandboxes::{self, SandboxRequest};

/// The result of verifying a receipt.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    pub format: u32,
    pub receipt: Receipt,
    pub signed_by: ReceiptSigner,
    pub backend: String,
    pub lines: Vec<CheckComparison>,
    /// Why the receipt proves nothing, if so.
    pub flaw: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptSigner {
    ThisInstallation,
    Another,
}

#[derive(Debug, Serialize)]
pub struct CheckComparison {
    pub command: String,
    pub proves: Vec<CheckTarget>,
    pub then: i32,
    pub now: Option<i32>,
    pub verdict: RerunResult,
}

/// Finds the receipt the user means: a file, a run, a branch, or a commit with a note.
pub async fn find_receipt(host: &HostContext, wanted: &str, repo: &Path) -> Result<Receipt, Error> {
    let path = Path::new(wanted);
    if path.is_file() {
        let text = std::fs::read_to_string(path).map_err(file_error("read", path))?;
        return receipt::read(&text);
    }
    let found = match host.home.find(wanted) {
        Err(error @ Error::Ambiguous { .. }) => return Err(error),
        Err(error @ Error::NoRun { .. }) if wanted == "@" => return Err(error),
        found => found.ok(),
    };
    if let Some(folder) = found {
        let path = folder.receipt_path();
        if let Some(bytes) = folder.read(&path)? {
            return receipt::read(&String::from_utf8_lossy(&bytes));
        }
        let why = format!("only a run that succeeded has one, and `{}` has not", folder.id());
        return Err(Error::NoReceipt { why, hint: format!("ralph show {}", folder.id()) });
    }
    if wanted.starts_with("https://") || wanted.starts_with("http://") {
        let why = "this version cannot read pull requests of a forge".to_owned();
        return Err(Error::NoReceipt {
            why,
            hint: "fetch the branch, then use its name instead of the URL".to_owned(),
        });
    }
    let repo = UserRepo::find(&host.git, repo).await?;
    let noted = match repo.odb().resolve_commit(wanted).await? {
        Some(sha) => repo.odb().note_of(&sha).await?,
        None => None,
    };
    let bytes = noted.ok_or_else(|| Error::NoReceipt {
        why: format!("`{wanted}` is not a receipt file, a run, or a commit with a receipt"),
        hint: "`ralph ls` lists the runs".to_owned(),
    })?;
    receipt::read(&String::from_utf8_lossy(&bytes))
}

/// Runs every command of the receipt again.
pub async fn verify(host: &HostContext, receipt: Receipt, backend: &str, repo: &Path) -> Result<VerifyReport, Error> {
    let own = SigningKey::load_or_create(&host.home.key_path())?.public();
    let signed_by = if own == receipt.key { ReceiptSigner::ThisInstallation } else { ReceiptSigner::Another };
    let scratch = tempfile::tempdir().map_err(file_error("make a folder in", Path::new("the temporary folder")))?;
    let bare = repository(host, &receipt, repo, scratch.path()).await?;
    let chosen = host.backend(backend)?;
    let lines = rerun_checks(host, &*chosen, &bare, scratch.path(), &receipt).await?;
    let verdicts: Vec<RerunResult> = lines.iter().map(|line| line.verdict).collect();
    let flaw = proof_flaw(&receipt.body.checks, &verdicts);
    Ok(VerifyReport { format: 1, receipt, signed_by, backend: backend.to_owned(), lines, flaw })
}

/// Finds the commit: in the given repository, or in the run's own.
async fn repository(host: &HostContext, receipt: &Receipt, repo: &Path, scratch: &Path) -> Result<BareRepo, Error> {
    let sha = Sha::parse(&receipt.body.commit)?;
    if let Ok(found) = UserRepo::find(&host.git, repo).await
        && found.odb().resolve_commit(sha.as_str()).await?.is_some()
    {
        let bare = BareRepo::create(&host.git, &scratch.join("repo.git"), found.format()).await?;
        bare.seed_from(&found, &sha).await?;
        return Ok(bare);
    }
    let own = host.home.run_folder(&receipt.body.run).bare_path();
    if let Ok(kept) = BareRepo::open(&host.git, &own).await
        && kept.odb().resolve_commit(sha.as_str()).await?.is_some()
    {
        return Ok(kept);
    }
    Err(Error::MissingCommit { sha: sha.to_string(), branch: receipt.body.branch.to_string() })
}

/// Creates the sandbox of a verification, under its own name.
async fn create_sandbox(
    host: &HostContext,
    backend: &dyn Backend,
    receipt: &Receipt,
) -> Result<Arc<dyn Sandbox>, Error> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|_| Error::Random)?;
    let name = format!("ralph-verify-{}", ralph_core::hash::hex(&random));
    let labels = BTreeMap::from([
        (SandboxLabel::RUN.to_owned(), receipt.body.run.clone()),
        (SandboxLabel::ROLE.to_owned(), "verify".to_owned()),
    ]);
    let spec = SandboxSpec { name, labels, ..SandboxSpec::default() };
    Ok(sandboxes::create(host, SandboxRequest { backend, spec, egress: None }).await?.sandbox)
}

async fn rerun_checks(
    host: &HostContext,
    backend: &dyn Backend,
    bare: &BareRepo,
    scratch: &Path,
    receipt: &Receipt,
) -> Result<Vec<CheckComparison>, Error> {
    let identity = CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() };
    let redactor = host.redactor();
    let timeout = Duration::from_secs(receipt.body.timeout_s.clamp(1, 24 * 3600));
    let mut lines = Vec::new();
    for then in &receipt.body.checks {
        // A sandbox for each check, as in the original proof.
        let sandbox = create_sandbox(host, backend, receipt).await?;
        let body = &receipt.body;
        let put =
            git::seed_sandbox(&*sandbox, bare, scratch, &body.branch, &body.commit, &identity, StateFiles::Excluded)
                .await;
        let ran = match put {
            Ok(()) => check_command::run_check(&*sandbox, &HeldFiles::none(), &then.command, timeout, &redactor).await,
            Err(error) => Err(error.into()),
        };
        sandboxes::discard(&*sandbox).await;
        let ran = ran.ok();
        let now = ran.map(|ran| ReceiptCheck {
            code: ran.code,
            timed_out: ran.timed_out,
            duration_ms: ran.duration_ms,
            output_sha256: ran.output_sha256,
            ..then.clone()
        });
        lines.push(CheckComparison {
            command: then.command.clone(),
            proves: then.proves.clone(),
            then: then.code,
            now: now.as_ref().map(|now| now.code),
            verdict: compare_check(then, now.as_ref()),
        });
    }
    Ok(lines)
}
