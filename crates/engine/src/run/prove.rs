//! Proves the result: runs every check again on the pushed commit, each in a fresh sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ralph_core::decide_next_step::{self, DueCheck};
use ralph_core::event::{CheckStage, Event, EventLogLevel};
use ralph_core::proof_files::ObservedFiles;
use ralph_core::receipt::{Receipt, ReceiptBody, ReceiptCheck, ReceiptEnvironment};
use ralph_core::run::{RunCheckResult, RunState};
use ralph_core::text;

use super::branch_update::BranchUpdate;
use super::interrupts::Interrupts;
use super::run_context::RunContext;
use super::sandbox_setup::{SandboxRole, fresh_sandbox};
use super::work_sandbox::WorkSandbox;
use crate::check_execution;
use crate::error::Error;
use crate::git::Sha;
use crate::proof_file_restore::{HeldFileRules, HeldFiles};
use crate::receipt::SigningKey;
use crate::sandbox_lifecycle;
use crate::store::write_atomic;
use crate::tool_hashes;

/// Proves the pushed commit.
#[derive(Debug)]
pub(super) struct ProofStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) interrupts: &'a Interrupts,
}

impl ProofStep<'_> {
    pub(super) async fn prove(&mut self) -> Result<(), Error> {
        let mut started = self.run.state().started.clone();
        // Hosts that the user has allowed or denied meanwhile count for the proof too.
        started.policy = self.run.state().policy().clone();
        let Some(sha) = self.run.state().pushed.clone() else { return Ok(()) };
        let due: Vec<(usize, DueCheck)> = decide_next_step::proof_due(&started)
            .into_iter()
            .enumerate()
            .filter(|(_, due)| !self.run.state().proof.get(&due.command).is_some_and(RunCheckResult::passed))
            .collect();
        let n = self.run.state().last.as_ref().map_or(0, |last| last.n);
        let timeout = Duration::from_secs(started.check_timeout_s);
        let held =
            HeldFiles::load(&self.run.bare, HeldFileRules::of_run(&started).with_record(&self.run.folder)?).await?;
        let commit = Sha::from(&sha);
        let mut changes = held.classify(&held.changes_until(&commit).await?);
        held.find_in_sources(&commit, &mut changes).await?;
        let (mut failed, mut errors) = (Vec::new(), String::new());
        let mut verified = self.run.state().verified.clone();
        for (index, due) in due {
            let what = text::first_line(&due.command, 200).to_owned();
            let mut retried = false;
            let ran = loop {
                // Each check gets its own sandbox, so that the model's code in one cannot influence the next.
                let sandbox = fresh_sandbox(
                    &self.run.host,
                    &self.run.bare,
                    self.run.folder.path(),
                    &started,
                    &sha,
                    SandboxRole::Proof,
                )
                .await?;
                let tokens = self.interrupts.tokens();
                let ran = tokio::select! {
                    ran = check_execution::run_check(&*sandbox, &held, &changes, &due.command, timeout, &self.run.redactor) => Some(ran),
                    () = tokens.aborted() => None,
                };
                // The sandbox is new, so every restart of its egress proxy happened during this check.
                let cut = self.run.host.egress().restarts(sandbox.id()) != 0
                    && matches!(&ran, Some(Ok(ran)) if !ran.passed());
                sandbox_lifecycle::discard(&*sandbox).await;
                if !cut || retried {
                    break ran;
                }
                retried = true;
                self.run
                    .log(EventLogLevel::Warn, format!("the egress proxy restarted meanwhile: `{what}` is run again"))?;
            };
            let Some(ran) = ran.transpose()? else { break };
            write_atomic(&self.run.folder.iteration(n).join(format!("proof-{index}.txt")), ran.text.as_bytes())?;
            let (passed, verdict) = (ran.passed(), ran.summary_line(timeout));
            if !passed {
                errors.extend([
                    format!("== final proof ==\nin a fresh clone of your commit, `{what}` fails ({verdict});"),
                    format!(" is something not committed?\n{}\n", text::tail(&ran.text, 30, 4000)),
                ]);
            }
            verified.retain(|id| passed || !due.proves.iter().any(|target| target.checkbox() == Some(id)));
            let event = Event::CheckFinished {
                n,
                stage: CheckStage::Proof,
                command: due.command,
                proves: due.proves,
                code: ran.code,
                timed_out: ran.timed_out,
                duration_ms: ran.duration_ms,
                output: ran.output_sha256,
                files: ran.files,
            };
            if passed {
                self.run.append(event)?;
            } else {
                failed.push((event, format!("in a fresh sandbox `{what}` failed: {verdict}")));
            }
        }
        if !failed.is_empty() {
            let work = self.work.sandbox()?;
            self.run.files.append_last(&*work, "errors.log", &errors).await?;
            self.untick(n, &verified).await?;
        }
        // Failures are recorded last: a run that dies before this proves again, and unticking twice is harmless. Checks
        // without a recorded result come first, or after repeated crashes they would never be recorded.
        let known = |event: &Event| match event {
            Event::CheckFinished { command, .. } => self.run.state().proof.contains_key(command),
            _ => false,
        };
        failed.sort_by_key(|(event, _)| known(event));
        for (event, message) in failed {
            self.run.append(event)?;
            self.run.log(EventLogLevel::Warn, message)?;
        }
        Ok(())
    }

    /// Unticks boxes in the branch whose proof failed in a fresh sandbox.
    async fn untick(&mut self, n: u32, verified: &BTreeSet<String>) -> Result<(), Error> {
        let before = self.run.state().verified.clone();
        let look = self.work.tree_status(self.run.state()).await?;
        let ticked = BranchUpdate { run: self.run, work: self.work }.tick_boxes(n, &look, verified, &before).await;
        let unticked = match ticked {
            Ok(()) => {
                let look = self.work.tree_status(self.run.state()).await?;
                // Not aborted: nothing but ralph's own commit is new.
                let update = &mut BranchUpdate { run: self.run, work: self.work };
                update.import_commits(n, &look, std::future::pending()).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        match unticked {
            // The model may have damaged its clone since; the next iteration detects that.
            Err(error @ (Error::Git(_) | Error::Sandbox(_) | Error::CloneUnusable { .. })) => {
                self.run.log(EventLogLevel::Warn, format!("the boxes could not be unticked in the branch: {error}"))
            }
            other => other,
        }
    }
}

/// Signs the receipt of the proof and saves it in the run folder; one that is there already is reused.
pub(super) fn sign_receipt(run: &RunContext) -> Result<Receipt, Error> {
    let path = run.folder.receipt_path();
    if let Some(bytes) = run.folder.read(&path)?
        && let Ok(receipt) = crate::receipt::read(&String::from_utf8_lossy(&bytes))
        && Some(receipt.body.commit.as_str()) == run.state().pushed.as_deref()
    {
        return Ok(receipt);
    }
    let key = SigningKey::load_or_create(&run.host.home.key_path())?;
    let separation = run.host.backend(&run.state().started.backend)?.capabilities().separation;
    let record = run.folder.read(&run.folder.observed_path())?.unwrap_or_default();
    let seen: BTreeMap<String, ObservedFiles> = serde_json::from_slice(&record).unwrap_or_default();
    let environment = ReceiptEnvironment {
        observed_sha256: (!record.is_empty()).then(|| ralph_core::hash::sha256(&record)),
        programs: tool_hashes::tool_hashes(seen.values()),
        ..receipt_environment(run.state())
    };
    let body = receipt_body(run.state(), separation, environment);
    let receipt = key.sign(body);
    let text = serde_json::to_string_pretty(&receipt).unwrap_or_default();
    write_atomic(&path, text.as_bytes())?;
    Ok(receipt)
}

fn receipt_body(state: &RunState, separation: bool, environment: ReceiptEnvironment) -> ReceiptBody {
    let started = &state.started;
    ReceiptBody {
        run: started.run.clone(),
        ralph: started.ralph.clone(),
        task_id: started.task_id.clone(),
        task_sha256: started.task_sha256.clone(),
        branch: started.branch.clone(),
        commit: state.pushed.clone().map(String::from).unwrap_or_default(),
        base_commit: started.base_commit.to_string(),
        backend: started.backend.clone(),
        base_fingerprint: crate::host_environment::base_fingerprint(started, &environment.programs),
        model: None,
        cost: None,
        engine: Some(started.engine.clone()),
        agent: started.agent.as_ref().map(|agent| agent.name.clone()),
        models: state.models.iter().map(|(model, used)| used.to_receipt(model)).collect(),
        cost_micro_usd: Some(state.spent.cost),
        policy_sha256: ralph_core::policy::hash(&started.policy),
        timeout_s: started.check_timeout_s,
        separated: (!separation).then_some(false),
        environment: Some(environment),
        checks: proof_checks(state),
    }
}

/// Returns what the final proof ran in and was held to.
fn receipt_environment(state: &RunState) -> ReceiptEnvironment {
    let started = &state.started;
    ReceiptEnvironment {
        start_commit: started.start_commit.clone(),
        task_path: started.task_path.clone(),
        protected_paths: started.protected_paths.iter().chain(&started.proof_files).cloned().collect(),
        may_change: started.may_change.clone(),
        image: started.image.clone(),
        resources: started.resources,
        toolchains: started.toolchains.clone(),
        policy: state.policy().clone(),
        observed_sha256: None,
        programs: BTreeMap::new(),
    }
}

/// Returns the checks of the final proof in the order they were due.
pub(super) fn proof_checks(state: &RunState) -> Vec<ReceiptCheck> {
    let line = |due: DueCheck| {
        let checked: &RunCheckResult = state.proof.get(&due.command)?;
        let written_by_run = state.started.to_be_written.get(&due.command).cloned().unwrap_or_default();
        Some(ReceiptCheck {
            written_by_run,
            files: checked.files.clone(),
            command: due.command,
            proves: due.proves,
            code: checked.code,
            timed_out: checked.timed_out,
            duration_ms: checked.duration_ms,
            output_sha256: checked.output.clone(),
        })
    };
    decide_next_step::proof_due(&state.started).into_iter().filter_map(line).collect()
}
