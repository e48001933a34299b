//! Verifies a receipt by running it again: the same commands on the same commit in a fresh sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::event::CommitIdentity;
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::proof_files::{ObservedFiles, ProofFileChanges};
use ralph_core::receipt::{Receipt, ReceiptBody, ReceiptCheck, RerunResult, compare_check, proof_flaw};
use ralph_core::text;
use ralph_sandbox::{Backend, Sandbox, SandboxLabel, SandboxSpec};
use serde::Serialize;

use crate::check_execution::{self, CommandResult};
use crate::egress::EgressRequest;
use crate::error::{Error, file_error};
use crate::git::in_sandbox::StateFiles;
use crate::git::{self, BareRepo, Sha, UserRepo};
use crate::host_environment::HostContext;
use crate::proof_file_restore::{HeldFileRules, HeldFiles};
use crate::read_text_file;
use crate::receipt::{self, SigningKey};
use crate::sandbox_lifecycle::{self, SandboxRequest};
use crate::store::{RunFolder, ScratchFolder};
use crate::tool_hashes::changed_tools;

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
    /// The programs of the proof that are not the same on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_programs: Vec<String>,
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
    /// What it printed last, or why it could not run, where the result is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether the network policy of a receipt is in force while it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptTrust {
    /// The user trusts the signer: the checks reach what they reached then.
    Trusted,
    /// Anyone can write a receipt: its checks reach nothing.
    Unknown,
}

/// How much of the output of a check is shown where it differs.
const MAX_REASON: usize = 2000;

/// Returns whether the user names a file, rather than a run, a branch or a commit.
fn is_file_path(wanted: &str) -> bool {
    let path = Path::new(wanted);
    let starts = ["/", "./", "../"].iter().any(|start| wanted.starts_with(start));
    starts || path.extension().is_some_and(|end| end == "json")
}

/// Finds the newest run of a repository.
async fn newest_run(host: &HostContext, repo: &Path) -> Result<RunFolder, Error> {
    // Without any run there is a better thing to say.
    host.home.find("@")?;
    let top = UserRepo::find(&host.git, repo).await?.top().display().to_string();
    let runs = host.home.list_runs()?.runs.into_iter().rev();
    let mut own = runs.filter(|found| found.listing.as_ref().is_ok_and(|listing| listing.repo == top));
    let found = own.next().ok_or_else(|| Error::NoReceipt {
        why: format!("no run of the repository `{top}` is known here"),
        hint: "`ralph ls` lists the runs of every repository".to_owned(),
    })?;
    Ok(found.folder)
}

/// Finds the receipt the user means: a file, a run, a branch, or a commit with a note.
pub async fn find_receipt(host: &HostContext, wanted: &str, repo: &Path) -> Result<Receipt, Error> {
    if is_file_path(wanted) {
        let path = Path::new(wanted);
        let text = read_text_file(path).map_err(file_error("read", path))?;
        return receipt::read(&text);
    }
    let found = match host.home.find(wanted) {
        _ if wanted == "@" => Some(newest_run(host, repo).await?),
        Err(error @ Error::Ambiguous { .. }) => return Err(error),
        found => found.ok(),
    };
    if let Some(folder) = found {
        let path = folder.receipt_path();
        if let Some(bytes) = folder.read(&path)? {
            let receipt = receipt::read(&String::from_utf8_lossy(&bytes))?;
            if receipt.body.run != folder.id() {
                let why =
                    format!("the receipt in the folder of `{}` is that of run `{}`", folder.id(), receipt.body.run);
                return Err(Error::NoReceipt { why, hint: format!("ralph show {}", folder.id()) });
            }
            return Ok(receipt);
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
pub async fn verify(
    host: &HostContext,
    receipt: Receipt,
    backend: &str,
    repo: &Path,
    trust: ReceiptTrust,
) -> Result<VerifyReport, Error> {
    let own = SigningKey::load_or_create(&host.home.key_path())?.public();
    let signed_by = if own == receipt.key { ReceiptSigner::ThisInstallation } else { ReceiptSigner::Another };
    let trust = if signed_by == ReceiptSigner::ThisInstallation { ReceiptTrust::Trusted } else { trust };
    let scratch = ScratchFolder::create(&host.home)?;
    let bare = repository(host, &receipt, repo, scratch.path()).await?;
    let chosen = host.backend(backend)?;
    let again =
        ReceiptRerun { host, backend: &*chosen, bare: &bare, scratch: scratch.path(), body: &receipt.body, trust };
    let lines = again.run_checks().await?;
    let verdicts: Vec<RerunResult> = lines.iter().map(|line| line.verdict).collect();
    let flaw = proof_flaw(&receipt.body.checks, &verdicts);
    let programs = receipt.body.environment.as_ref().map(|then| &then.programs);
    let changed_programs = programs.map(changed_tools).unwrap_or_default();
    Ok(VerifyReport { format: 1, receipt, signed_by, backend: backend.to_owned(), lines, flaw, changed_programs })
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

/// Runs the checks of a receipt under the conditions that it records.
struct ReceiptRerun<'a> {
    host: &'a HostContext,
    backend: &'a dyn Backend,
    bare: &'a BareRepo,
    scratch: &'a Path,
    body: &'a ReceiptBody,
    trust: ReceiptTrust,
}

impl ReceiptRerun<'_> {
    async fn run_checks(&self) -> Result<Vec<CheckComparison>, Error> {
        let rules = self.held_rules()?;
        if self.bare.odb().resolve_commit(rules.start.as_str()).await?.is_none() {
            // A shallow clone has the commit of the receipt, and not the one whose tests decide.
            return Err(Error::MissingCommit { sha: rules.start.to_string(), branch: self.body.branch.to_string() });
        }
        let held = HeldFiles::load(self.bare, rules).await?;
        let changes = held.classify(&held.changes_until(&Sha::parse(&self.body.commit)?).await?);
        let mut lines = Vec::new();
        for then in &self.body.checks {
            // A sandbox for each check, as in the original proof.
            let ran = match self.create_sandbox().await {
                Ok(sandbox) => {
                    let ran = self.run_check(&*sandbox, &held, &changes, then).await;
                    sandbox_lifecycle::discard(&*sandbox).await;
                    ran
                }
                Err(error) => Err(error),
            };
            lines.push(compare_line(then, ran));
        }
        Ok(lines)
    }

    /// Returns what the checks were held to. An older receipt does not say, so that its checks are held to nothing.
    fn held_rules(&self) -> Result<HeldFileRules, Error> {
        let body = self.body;
        let commands = body.checks.iter().map(|check| check.command.clone()).collect();
        Ok(match &body.environment {
            Some(then) => HeldFileRules {
                start: Sha::from(&then.start_commit),
                task_path: then.task_path.clone(),
                protected: then.protected_paths.clone(),
                may_change: then.may_change.clone(),
                commands,
                observed: ObservedFiles::default(),
                left_out: body.checks.iter().flat_map(|check| check.files.left_out.iter().cloned()).collect(),
            },
            None => HeldFileRules {
                start: Sha::parse(&body.commit)?,
                task_path: String::new(),
                protected: Vec::new(),
                may_change: vec!["**".to_owned()],
                commands,
                observed: ObservedFiles::default(),
                left_out: BTreeSet::new(),
            },
        })
    }

    /// Creates a sandbox like the ones of the proof, under its own name.
    async fn create_sandbox(&self) -> Result<Arc<dyn Sandbox>, Error> {
        let mut random = [0_u8; 4];
        getrandom::fill(&mut random).map_err(|_| Error::Random)?;
        let name = format!("ralph-verify-{}", ralph_core::hash::hex(&random));
        let labels = BTreeMap::from([
            (SandboxLabel::RUN.to_owned(), self.body.run.clone()),
            (SandboxLabel::ROLE.to_owned(), "verify".to_owned()),
        ]);
        let mut spec = SandboxSpec { name, labels, ..SandboxSpec::default() };
        let mut egress = None;
        if let Some(then) = &self.body.environment {
            spec.resources = sandbox_lifecycle::sandbox_limits(then.resources);
            spec.image.clone_from(&then.image);
            spec.toolchains = then.toolchains.clone();
            egress = (self.trust == ReceiptTrust::Trusted).then(|| EgressRequest::from(then.policy.clone()));
        }
        let request = SandboxRequest { backend: self.backend, spec, egress };
        Ok(sandbox_lifecycle::create(self.host, request).await?.into_sandbox())
    }

    async fn run_check(
        &self,
        sandbox: &dyn Sandbox,
        held: &HeldFiles,
        changes: &ProofFileChanges,
        then: &ReceiptCheck,
    ) -> Result<CommandResult, Error> {
        let identity = CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() };
        let timeout = Duration::from_secs(self.body.timeout_s.clamp(1, 24 * 3600));
        let (branch, commit) = (&self.body.branch, &self.body.commit);
        git::seed_sandbox(sandbox, self.bare, self.scratch, branch, commit, &identity, StateFiles::Excluded).await?;
        check_execution::run_check(sandbox, held, changes, &then.command, timeout, &self.host.redactor()).await
    }
}

fn compare_line(then: &ReceiptCheck, ran: Result<CommandResult, Error>) -> CheckComparison {
    let (now, said) = match ran {
        Ok(ran) => {
            let now = ReceiptCheck {
                code: ran.code,
                timed_out: ran.timed_out,
                duration_ms: ran.duration_ms,
                output_sha256: ran.output_sha256,
                ..then.clone()
            };
            (Some(now), ran.text)
        }
        Err(error) => (None, error.to_string()),
    };
    let verdict = compare_check(then, now.as_ref());
    let reason = text::strip_control(text::tail(said.trim(), 20, MAX_REASON));
    CheckComparison {
        command: then.command.clone(),
        proves: then.proves.clone(),
        then: then.code,
        now: now.as_ref().map(|now| now.code),
        reason: (verdict != RerunResult::Same && !reason.is_empty()).then_some(reason),
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_as_one() {
        for (wanted, want) in [
            ("receipt.json", true),
            ("./receipt", true),
            ("../a/b", true),
            ("/tmp/receipt", true),
            ("ralph/task/branch", false),
            ("@", false),
            ("01k3", false),
            ("HEAD~1", false),
        ] {
            assert_eq!(is_file_path(wanted), want, "{wanted}");
        }
    }
}
