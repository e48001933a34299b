//! The last word: everything again, on the pushed commit, in a fresh sandbox.

use std::collections::BTreeSet;
use std::time::Duration;

use ralph_core::decide::{self, Due};
use ralph_core::event::{Event, Level, Stage};
use ralph_core::receipt::{Body, Check, Receipt};
use ralph_core::run::{Checked, State};
use ralph_core::text;

use super::prepare::{Role, discard, fresh};
use super::runner::Runner;
use super::way_out::restarts;
use crate::check;
use crate::error::Error;
use crate::receipt::Key;
use crate::store::write_atomic;

impl Runner {
    pub(super) async fn prove(&mut self) -> Result<(), Error> {
        let mut started = self.state().started.clone();
        // What a person has allowed or denied meanwhile counts for the proof too.
        started.policy = self.state().policy().clone();
        let Some(sha) = self.state().pushed.clone() else { return Ok(()) };
        let due: Vec<(usize, Due)> = decide::proof_due(&started)
            .into_iter()
            .enumerate()
            .filter(|(_, due)| !self.state().proof.get(&due.command).is_some_and(Checked::passed))
            .collect();
        let n = self.state().last.as_ref().map_or(0, |last| last.n);
        let timeout = Duration::from_secs(started.check_timeout_s);
        let (mut failed, mut errors) = (Vec::new(), String::new());
        let mut verified = self.state().verified.clone();
        for (index, due) in due {
            let what = text::first_line(&due.command, 200).to_owned();
            let mut retried = false;
            let ran = loop {
                // Each in a sandbox of its own: model code that one of them runs cannot prepare the ground for the next.
                let sandbox = fresh(&self.host, &self.bare, self.folder.path(), &started, &sha, Role::Proof).await?;
                let (halt, now) = (self.halt.clone(), self.stops.now.clone());
                let ran = tokio::select! {
                    ran = check::run(&*sandbox, &due.command, ".", timeout, &self.redactor) => Some(ran),
                    () = halt.cancelled() => None,
                    () = now.cancelled() => None,
                };
                // A new sandbox, so its way out has never been cut before.
                let cut = restarts(&self.host, sandbox.id()) != 0 && matches!(&ran, Some(Ok(ran)) if !ran.passed());
                discard(&*sandbox).await;
                if !cut || retried {
                    break ran;
                }
                retried = true;
                self.log(Level::Warn, format!("the way out was served anew meanwhile: `{what}` is run again"))?;
            };
            let Some(ran) = ran.transpose()? else { break };
            write_atomic(&self.folder.iteration(n).join(format!("proof-{index}.txt")), ran.text.as_bytes())?;
            let (passed, verdict) = (ran.passed(), ran.verdict(timeout));
            if !passed {
                errors.extend([
                    format!("== final proof ==\nin a fresh clone of your commit, `{what}` fails ({verdict});"),
                    format!(" is something not committed?\n{}\n", text::tail(&ran.text, 30, 4000)),
                ]);
            }
            verified.retain(|id| passed || !due.proves.contains(id));
            let event = Event::CheckFinished {
                n,
                stage: Stage::Proof,
                command: due.command,
                proves: due.proves,
                code: ran.code,
                timed_out: ran.timed_out,
                duration_ms: ran.duration_ms,
                output: ran.output_sha256,
            };
            if passed {
                self.events.append(event)?;
            } else {
                failed.push((event, format!("in a fresh sandbox `{what}` failed: {verdict}")));
            }
        }
        if !failed.is_empty() {
            let work = self.sandbox()?;
            self.files.append_last(&*work, "errors.log", &errors).await?;
            self.untick(n, &verified).await?;
        }
        // Told last: a run that dies before this proves it again, and unticking twice is unticking once. What such a run
        // had not told comes first, or it would never come to it.
        let known = |event: &Event| match event {
            Event::CheckFinished { command, .. } => self.state().proof.contains_key(command),
            _ => false,
        };
        failed.sort_by_key(|(event, _)| known(event));
        for (event, told) in failed {
            self.events.append(event)?;
            self.log(Level::Warn, told)?;
        }
        Ok(())
    }

    /// Takes the ticks of boxes that do not hold in a fresh sandbox out of the branch as well.
    async fn untick(&mut self, n: u32, verified: &BTreeSet<String>) -> Result<(), Error> {
        let before = self.state().verified.clone();
        let look = self.look().await?;
        let unticked = match self.tick(n, &look, verified, &before).await {
            Ok(()) => {
                let look = self.look().await?;
                self.take_out(n, &look).await
            }
            Err(error) => Err(error),
        };
        match unticked {
            // The model may have spoilt its clone since; the next iteration finds that.
            Err(error @ (Error::Git(_) | Error::Sandbox(_) | Error::Spoilt { .. })) => {
                self.log(Level::Warn, format!("the boxes could not be unticked in the branch: {error}"))
            }
            other => other,
        }
    }

    /// Signs what was proved and keeps it in the run folder and beside the commit.
    pub(super) fn receipt(&mut self) -> Result<Receipt, Error> {
        let path = self.folder.receipt_path();
        if let Some(bytes) = self.folder.read(&path)?
            && let Ok(receipt) = crate::receipt::read(&String::from_utf8_lossy(&bytes))
            && Some(&receipt.body.commit) == self.state().pushed.as_ref()
        {
            return Ok(receipt);
        }
        let key = Key::load_or_make(&self.host.home.key_path())?;
        let body = body(self.state());
        let receipt = key.sign(body);
        let text = serde_json::to_string_pretty(&receipt).unwrap_or_default();
        write_atomic(&path, text.as_bytes())?;
        Ok(receipt)
    }
}

fn body(state: &State) -> Body {
    let started = &state.started;
    Body {
        run: started.run.clone(),
        ralph: started.ralph.clone(),
        task_id: started.task_id.clone(),
        task_sha256: started.task_sha256.clone(),
        branch: started.branch.clone(),
        commit: state.pushed.clone().unwrap_or_default(),
        base_commit: started.base_commit.clone(),
        backend: started.backend.clone(),
        base_fingerprint: crate::host::fingerprint(started),
        model: None,
        cost: None,
        engine: Some(started.engine.clone()),
        agent: started.agent.as_ref().map(|agent| agent.name.clone()),
        models: state.models.iter().map(|(model, used)| used.of(model)).collect(),
        cost_micro_usd: Some(state.spent.cost),
        policy_sha256: ralph_core::policy::hash(&started.policy),
        timeout_s: started.check_timeout_s,
        checks: checks(state),
    }
}

/// Returns the checks of the final proof in the order they were due.
pub(super) fn checks(state: &State) -> Vec<Check> {
    let line = |due: Due| {
        let checked: &Checked = state.proof.get(&due.command)?;
        Some(Check {
            command: due.command,
            proves: due.proves,
            code: checked.code,
            timed_out: checked.timed_out,
            duration_ms: checked.duration_ms,
            output_sha256: checked.output.clone(),
        })
    };
    decide::proof_due(&state.started).into_iter().filter_map(line).collect()
}
