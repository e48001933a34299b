//! Carries out proposals of a diagnosis, and edits of the task.

use std::path::Path;

use ralph_core::control_request::{Control, TaskEdit};
use ralph_core::diagnosis::{self, Proposal, ProposalList, RevisionStrictness};
use ralph_core::event::{Event, EventLogLevel};
use ralph_core::run::RunState;

use super::proof_files::find_proof_files;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::git::Sha;
use crate::store::{RunFolder, write_atomic};

/// Reads the proposals of a run; an empty list when it has none.
pub fn read_proposals(folder: &RunFolder) -> Result<ProposalList, Error> {
    let path = folder.proposals_path();
    let Some(bytes) = folder.read(&path)? else { return Ok(ProposalList::default()) };
    ProposalList::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| Error::Proposals { path, why })
}

/// Changes the task, the profile or the guardrails of a run.
#[derive(Debug)]
pub(super) struct ProposalStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
}

impl ProposalStep<'_> {
    /// Carries out a proposal that the task allows to be applied without asking.
    pub(super) async fn apply_automatic_proposal(&mut self, number: u32) -> Result<(), Error> {
        if let Err(why) = self.apply_proposal(number).await? {
            self.run.log(EventLogLevel::Warn, format!("proposal {number} was not carried out: {why}"))?;
        }
        let (control, by) = (Control::ApplyProposal { number }, "the task: diagnose.apply is auto".to_owned());
        self.run.append(Event::ControlApplied { control, by, id: None })
    }

    /// Carries out a proposal; the inner `Err` says why it is refused.
    pub(super) async fn apply_proposal(&mut self, number: u32) -> Result<Result<(), String>, Error> {
        let run = self.run.folder.id();
        if self.run.state().diagnoses.applied.contains(&number) {
            return Ok(Err(format!("proposal {number} was applied before")));
        }
        let list = read_proposals(&self.run.folder)?;
        // Only proposals recorded by an event count: a process may have died between writing the file and the event.
        let recorded = number <= self.run.state().diagnoses.proposals;
        let Some(numbered) = list.get(number).filter(|_| recorded) else {
            return Ok(Err(match self.run.state().diagnoses.proposals {
                0 => format!("no diagnosis has proposed anything yet; ralph diagnose {run} asks for one"),
                all => format!("there is no proposal {number}; they are numbered 1 to {all}"),
            }));
        };
        let by = format!("proposal {number}");
        match &numbered.proposal {
            proposal @ Proposal::Guardrail { .. } => {
                let sign = proposal.guardrail_text(number, numbered.after).unwrap_or_default();
                self.work.append_once(&self.run.files, "guardrails.md", &sign).await?;
            }
            Proposal::Profile { name, .. } => {
                if let Err(why) = check_profile(self.run.state(), name) {
                    return Ok(Err(why));
                }
                // Repeating it is harmless, should the process die before the acknowledgement.
                let control = Control::SetProfile { name: name.clone() };
                self.run.append(Event::ControlApplied { control, by, id: None })?;
            }
            Proposal::Task { diff } => {
                let text = match diagnosis::apply_task_diff(&self.run.pinned_task()?, diff) {
                    Ok(text) => text,
                    Err(refusal) => return Ok(Err(refusal.to_string())),
                };
                let edit = TaskEdit { text, proposal: Some(number), ..TaskEdit::default() };
                let edit = match self.revise_task(&edit).await? {
                    Ok(edit) => edit,
                    Err(why) => return Ok(Err(why)),
                };
                self.run.append(Event::ControlApplied { control: Control::EditTask(edit), by, id: None })?;
                self.write_task_to_sandbox().await?;
            }
        }
        Ok(Ok(()))
    }

    /// Checks a new text of the task and saves it beside the old ones; it takes effect with its event.
    pub(super) async fn revise_task(&mut self, edit: &TaskEdit) -> Result<Result<TaskEdit, String>, Error> {
        let who = if edit.allow_weaker { RevisionStrictness::AllowWeaker } else { RevisionStrictness::OnlyStricter };
        let revised = match diagnosis::revise(&self.run.pinned_task()?, &edit.text, who) {
            Ok(revised) => revised,
            Err(refusal) => {
                let hint = refusal.hint(&self.run.folder.id()).map(|hint| format!("; {hint}")).unwrap_or_default();
                return Ok(Err(format!("{refusal}{hint}")));
            }
        };
        let start = Sha::from(&self.run.state().started.start_commit);
        let judges = find_proof_files(&self.run.bare, &start, &revised.task).await?;
        let revision = self.run.state().task_revision.saturating_add(1);
        write_atomic(&self.run.folder.task_revision(revision), revised.text.as_bytes())?;
        Ok(Ok(TaskEdit {
            proof_files: judges.files,
            pinned_parts: judges.parts,
            to_be_written: judges.to_be_written,
            ..edit.clone()
        }))
    }

    /// Writes the current task into the sandbox, if there is one.
    pub(super) async fn write_task_to_sandbox(&mut self) -> Result<(), Error> {
        // The protected files depend on the task and are read again.
        self.work.protected = None;
        self.work.forget_tree();
        let Some(sandbox) = self.work.sandbox.clone() else { return Ok(()) };
        let (path, text) = (self.run.state().started.task_path.clone(), self.run.task_text()?);
        // If it cannot be written, closing the iteration finds and fixes it.
        if let Err(error) = sandbox.write(Path::new(&path), text.as_bytes(), None).await {
            tracing::debug!(%error, "the new task could not be written into the sandbox");
        }
        Ok(())
    }
}

/// Says whether a profile is one of the run's, and a cap limits its cost.
pub(super) fn check_profile(state: &RunState, profile: &str) -> Result<(), String> {
    let started = &state.started;
    let names = started.profiles.iteration_profiles(started.agent.as_ref());
    if !names.contains(&profile) {
        return Err(format!("the run knows the profiles {}", names.join(", ")));
    }
    let price = started.profiles.get(profile).and_then(|profile| profile.price.as_ref());
    if state.budget.can_enforce(price) {
        Ok(())
    } else {
        Err(Error::Unpriced { profile: profile.to_owned() }.to_string())
    }
}
