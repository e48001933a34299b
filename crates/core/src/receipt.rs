//! The receipt of a finished run: its commands, their results and the commit, signed by the installation.
//!
//! Signing and the key are not here; this module defines which bytes are signed and what "the same result" means.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::commit_sha::CommitSha;
use crate::config::ToolchainSelection;
use crate::event::PinnedResources;
use crate::gate_or_checkbox::CheckTarget;
use crate::identifiers::TaskBranch;
use crate::money::MicroUsd;
use crate::policy::Policy;
use crate::proof_files::ProofFileChanges;

/// The version of the receipt's format. Receipts of format 1 have one `model` and a `cost`; they are accepted too.
pub const FORMAT: u32 = 2;

/// A signed statement of what ralph saw when it re-ran the checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub format: u32,
    pub body: ReceiptBody,
    /// The installation's ed25519 public key, in hex.
    pub key: String,
    /// The signature over [`signed_bytes`], in hex.
    pub signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptBody {
    pub run: String,
    pub ralph: String,
    pub task_id: String,
    pub task_sha256: String,
    pub branch: TaskBranch,
    pub commit: String,
    pub base_commit: String,
    pub backend: String,
    /// The image digest, or a fingerprint of the base the backend ran on.
    pub base_fingerprint: String,
    /// Format 1: the run's own profile, whichever model did the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Format 1: millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Every model that was called, including those of diagnoses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ReceiptModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<MicroUsd>,
    pub policy_sha256: String,
    pub timeout_s: u64,
    /// False where the backend could not keep the processes of a check apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separated: Option<bool>,
    /// What the checks ran in and were held to; missing in older receipts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<ReceiptEnvironment>,
    pub checks: Vec<ReceiptCheck>,
}

/// What is needed to run the checks again under the same conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEnvironment {
    /// The commit that the run started from: the tests are those of this commit.
    pub start_commit: CommitSha,
    pub task_path: String,
    /// Globs of files that the run could not change.
    pub protected_paths: Vec<String>,
    /// Globs of tests that the run could change with effect on its checks.
    pub may_change: Vec<String>,
    pub image: Option<String>,
    pub resources: PinnedResources,
    pub toolchains: ToolchainSelection,
    pub policy: Policy,
    /// SHA-256 of the record of what the checks used of the start commit; missing where nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sha256: Option<String>,
    /// The hashes of the programs that the checks were seen to run, by their path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
}

/// The share of the work that one model did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptModel {
    pub model: String,
    pub calls: u64,
    pub cost_micro_usd: MicroUsd,
}

/// One command of the proof and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptCheck {
    pub command: String,
    pub proves: Vec<CheckTarget>,
    pub code: i32,
    pub timed_out: bool,
    pub duration_ms: u64,
    pub output_sha256: String,
    /// The tests and scripts it names that the run itself wrote: they did not exist before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written_by_run: Vec<String>,
    /// The files of the proof that the run had changed, and what became of them in this check.
    #[serde(default, skip_serializing_if = "ProofFileChanges::is_empty")]
    pub files: ProofFileChanges,
}

impl ReceiptCheck {
    pub fn passed(&self) -> bool {
        self.code == 0 && !self.timed_out
    }
}

/// Returns the bytes that a receipt signs. The prefix makes the signature meaningless elsewhere. Fields that a format
/// does not have are not written, so that a receipt of an older format still gives the bytes that were signed.
pub fn signed_bytes(body: &ReceiptBody) -> Vec<u8> {
    let mut bytes = b"ralph receipt 1\n".to_vec();
    bytes.extend(serde_json::to_vec(body).expect("a receipt holds only plain data"));
    bytes
}

/// The result of re-executing one line of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RerunResult {
    Same,
    Different,
    Cannot,
}

/// Compares one line with its re-execution. Durations and output differ between honest runs; the verdict does not.
pub fn compare_check(then: &ReceiptCheck, now: Option<&ReceiptCheck>) -> RerunResult {
    match now {
        None => RerunResult::Cannot,
        Some(now) if now.code == 127 && then.code != 127 => RerunResult::Cannot,
        Some(now) if now.code == then.code && now.timed_out == then.timed_out => RerunResult::Same,
        Some(_) => RerunResult::Different,
    }
}

/// Returns why a receipt proves nothing, given the results of its checks then and now; `None` when it does.
pub fn proof_flaw(checks: &[ReceiptCheck], again: &[RerunResult]) -> Option<&'static str> {
    if checks.is_empty() {
        return Some("it holds no check");
    }
    if !checks.iter().any(|check| check.proves.contains(&CheckTarget::TestCommand)) {
        return Some("none of its checks runs a test command");
    }
    if !checks.iter().all(ReceiptCheck::passed) {
        return Some("one of its checks failed when it was signed");
    }
    let same = again.len() == checks.len() && again.iter().all(|again| *again == RerunResult::Same);
    (!same).then_some("not every check ends as it did when it was signed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_that_prove_nothing() {
        use RerunResult::{Cannot, Different, Same};
        let ok = check(0, false);
        let other = ReceiptCheck { proves: vec!["M1.1".into()], ..ok.clone() };
        for (checks, again, want) in [
            (vec![], vec![], Some("it holds no check")),
            (vec![other.clone()], vec![Same], Some("none of its checks runs a test command")),
            (vec![ok.clone(), check(1, false)], vec![Same, Same], Some("one of its checks failed when it was signed")),
            (vec![check(0, true)], vec![Same], Some("one of its checks failed when it was signed")),
            (vec![ok.clone()], vec![Different], Some("not every check ends as it did when it was signed")),
            (vec![ok.clone()], vec![Cannot], Some("not every check ends as it did when it was signed")),
            (vec![ok.clone(), other.clone()], vec![Same], Some("not every check ends as it did when it was signed")),
            (vec![ok, other], vec![Same, Same], None),
        ] {
            assert_eq!(proof_flaw(&checks, &again), want, "{checks:?} {again:?}");
        }
    }

    fn check(code: i32, timed_out: bool) -> ReceiptCheck {
        ReceiptCheck {
            command: "make test".to_owned(),
            proves: vec![CheckTarget::TestCommand],
            code,
            timed_out,
            duration_ms: 5,
            output_sha256: String::new(),
            written_by_run: Vec::new(),
            files: ProofFileChanges::default(),
        }
    }

    #[test]
    fn verdicts() {
        let ok = check(0, false);
        for (now, want) in [
            (
                Some(ReceiptCheck { duration_ms: 9, output_sha256: "ff".to_owned(), ..check(0, false) }),
                RerunResult::Same,
            ),
            (Some(check(1, false)), RerunResult::Different),
            (Some(check(0, true)), RerunResult::Different),
            (Some(check(127, false)), RerunResult::Cannot),
            (None, RerunResult::Cannot),
        ] {
            assert_eq!(compare_check(&ok, now.as_ref()), want, "{now:?}");
        }
    }
}
