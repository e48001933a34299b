//! A diagnosis of a run that goes in circles: the doctor is asked, paid for like any other call, and its proposals are
//! written down; and what carrying one of them out means.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use ralph_core::control::{Control, TaskEdit};
use ralph_core::decide::{self, RunStep};
use ralph_core::diagnosis::{
    self, Diagnosis, DiagnosisFacts, DiagnosisStep, PastIteration, Proposal, ProposalList, RevisionStrictness,
};
use ralph_core::event::{Event, EventLogLevel, ModelCallOutcome, PinnedProfile};
use ralph_core::hash::{sha256, short_sha256};
use ralph_core::run::RunState;
use ralph_core::task::ApplyMode;
use ralph_core::{prompt, text};

use super::context::error_chain;
use super::conversation;
use super::excerpts::last_test_output;
use super::model_account::RejectedCall;
use super::model_call::{CallFiles, SavedAnswer, SentCall, estimate_request_tokens, recorded_reply};
use super::runner::Runner;
use crate::error::Error;
use crate::git::Sha;
use crate::model::{CallKey, ConversationRole, ConversationTurn, LostCallPolicy, ModelErrorClass, ModelRequest};
use crate::store::{RunFolder, read_events, write_atomic, write_unflushed};

/// The schema of a diagnosis as a question shows it.
static DIAGNOSIS_SCHEMA: LazyLock<String> = LazyLock::new(|| diagnosis::schema().to_string());

/// How many iterations a doctor is told of.
const MAX_PAST_ITERATIONS: usize = 6;

/// Reads the proposals of a run; an empty book when it has none.
pub fn read_proposals(folder: &RunFolder) -> Result<ProposalList, Error> {
    let path = folder.proposals_path();
    let Some(bytes) = folder.read(&path)? else { return Ok(ProposalList::default()) };
    ProposalList::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| Error::Proposals { path, why })
}

impl Runner {
    /// Brings a diagnosis one step further. Whatever goes wrong with it, the run goes on without it.
    pub(super) async fn diagnose(&mut self, n: u32, doing: DiagnosisStep) -> Result<(), Error> {
        let profile = self.run.state().started.profiles.doctor().clone();
        match doing {
            DiagnosisStep::Call { call, reask } => self.call_diagnosis_model(n, call, reask, &profile).await,
            DiagnosisStep::Write { call } => match self.saved_diagnosis(call)? {
                Some(diagnosis) => self.write_diagnosis(n, &profile, &diagnosis).await,
                None => {
                    self.write_failed_diagnosis(n, &profile, "the doctor's answer is missing from the run folder").await
                }
            },
            DiagnosisStep::GiveUp { why } => self.write_failed_diagnosis(n, &profile, &why).await,
        }
    }

    /// Brings the diagnosis of a run that rests to its end.
    pub(super) async fn diagnose_at_rest(&mut self) -> Result<(), Error> {
        self.record_agent_calls()?;
        self.models.reload_ledger(&self.run.events);
        // Every step makes a call or ends it, and calls are few.
        while self.run.state().diagnoses.under.is_some() {
            let before = self.run.state().last_seq;
            match decide::diagnosis_step(self.run.state()) {
                Some(RunStep::Diagnose { n, doing }) => self.diagnose(n, doing).await?,
                _ => return Ok(()),
            }
            if self.run.state().last_seq == before {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn call_diagnosis_model(
        &mut self,
        n: u32,
        call: u32,
        reask: Option<String>,
        profile: &PinnedProfile,
    ) -> Result<(), Error> {
        let place = CallFiles::new(&self.diagnosis_dir(), call);
        if let Some(kept) = self.saved_answer(&place)? {
            return self.record_diagnosis_answer(n, call, profile, kept);
        }
        if let Some(bytes) = self.run.folder.read(&place.reserved)? {
            return self.charge_lost_call(n, call, profile, &bytes, &place);
        }
        let model = match self.models.open(&self.run.host, profile).await {
            Ok(model) => model,
            Err(error) => return self.write_failed_diagnosis(n, profile, &error_chain(&error)).await,
        };
        let request = self.build_diagnosis_request(n, call, profile, reask)?;
        let (reservation, max_output) =
            match self.models.reserve(&self.run.state().budget, profile, estimate_request_tokens(&request)) {
                Ok(reserved) => reserved,
                Err(RejectedCall::Limit(limit)) => {
                    let why = format!("what is left of the {limit} budget does not pay for it");
                    return self.write_failed_diagnosis(n, profile, &why).await;
                }
                Err(RejectedCall::Unpriced(error)) => {
                    return self.write_failed_diagnosis(n, profile, &error.to_string()).await;
                }
            };
        let request = ModelRequest { max_output_tokens: max_output, ..request };
        let key = CallKey::of_diagnosis(self.diagnosis_number(), n, call);
        let mask = |redactor: &ralph_core::redact::Redactor, text: String| (redactor.redact(&text).into_owned(), None);
        match self.send_call(&place, profile, &*model, &request, key, reservation, mask).await? {
            SentCall::Answered(kept) => self.record_diagnosis_answer(n, call, profile, kept),
            SentCall::Lost(worst, _) => self.charge_lost_call(n, call, profile, &worst, &place),
            // Somebody ended it, not the provider: it is asked again when the run goes on.
            SentCall::Failed(failure) if failure.class == ModelErrorClass::Stopped => Ok(()),
            SentCall::Failed(_) if self.interrupts.is_action_aborted() => Ok(()),
            SentCall::Failed(failure) => {
                let why = self.run.redactor.redact(&failure.error.to_string()).into_owned();
                self.write_failed_diagnosis(n, profile, &why).await
            }
        }
    }

    pub(super) fn record_diagnosis_answer(
        &mut self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        kept: SavedAnswer,
    ) -> Result<(), Error> {
        // Lost calls are not played again, so it is known by its place among the answers.
        let answers = self.run.state().diagnoses.under.as_ref().map_or(0, |under| under.invalid.len());
        let key = CallKey::of_diagnosis(self.diagnosis_number(), n, saturating_u32(answers));
        conversation::record(&self.run.folder, &recorded_reply(key, &kept))?;
        let answer = match self.parse_diagnosis(&kept.text) {
            Ok(diagnosis) => ModelCallOutcome::Diagnosis {
                proposals: saturating_u32(
                    diagnosis::proposals(&diagnosis, &self.run.state().started.profiles.names()).len(),
                ),
                response: sha256(kept.text.as_bytes()),
            },
            Err(invalid) => {
                ModelCallOutcome::Invalid { error: self.run.redactor.redact(&invalid.message).into_owned() }
            }
        };
        self.record_call(n, call, profile, kept, answer)
    }

    /// Reads an answer. A secret that was spelt out letter by letter shows only now, and goes as well.
    fn parse_diagnosis(&self, text: &str) -> Result<Diagnosis, diagnosis::InvalidDiagnosis> {
        let diagnosis = diagnosis::parse(text)?;
        let plain = serde_json::to_string(&diagnosis).unwrap_or_default();
        match self.run.redactor.redact(&plain) {
            std::borrow::Cow::Owned(masked) if masked != plain => diagnosis::parse(&masked),
            _ => Ok(diagnosis),
        }
    }

    fn saved_diagnosis(&self, call: u32) -> Result<Option<Diagnosis>, Error> {
        let kept = self.saved_answer(&CallFiles::new(&self.diagnosis_dir(), call))?;
        Ok(kept.and_then(|kept| self.parse_diagnosis(&kept.text).ok()))
    }

    /// Writes a diagnosis down: the report, the proposals, the event. Done twice it is done once.
    async fn write_diagnosis(&mut self, n: u32, profile: &PinnedProfile, diagnosis: &Diagnosis) -> Result<(), Error> {
        let (number, first) = (self.diagnosis_number(), self.run.state().diagnoses.next_number());
        let proposals = diagnosis::proposals(diagnosis, &self.run.state().started.profiles.names());
        let report = diagnosis::report(diagnosis, &proposals, (number, n, &profile.name), first);
        self.work.append_once(&self.run.files, "diagnostics.md", &report).await?;
        let guardrails = proposals.iter().filter(|proposal| matches!(proposal, Proposal::Guardrail { .. })).count();
        let (made, guardrails) = (saturating_u32(proposals.len()), saturating_u32(guardrails));
        let (unasked, left) = self.split_by_approval(first, &proposals)?;
        let mut book = self::read_proposals(&self.run.folder)?;
        book.replace_from(first, number, n, proposals);
        let bytes = serde_json::to_vec_pretty(&book).unwrap_or_default();
        write_atomic(&self.run.folder.proposals_path(), &bytes)?;
        self.work
            .append_once(
                &self.run.files,
                "activity.log",
                &format!("iteration {n}: diagnosis {number} by {}, {made} proposals\n", profile.name),
            )
            .await?;
        let profile = profile.name.clone();
        let event = Event::DiagnosisWritten { n, profile, proposals: made, guardrails, unasked, failed: None };
        self.run.append(event)?;
        for (number, why) in left {
            self.run.log(EventLogLevel::Warn, format!("proposal {number} waits for a person: {why}"))?;
        }
        Ok(())
    }

    /// Sorts the proposals of a task that wants them carried out without asking: the numbers of those that may be, and
    /// why the others wait. They are judged by the task as it is now.
    #[expect(clippy::type_complexity, reason = "two lists, read at once")]
    fn split_by_approval(&self, first: u32, proposals: &[Proposal]) -> Result<(Vec<u32>, Vec<(u32, String)>), Error> {
        let (mut unasked, mut left) = (Vec::new(), Vec::new());
        let state = self.run.state();
        if state.started.diagnose.apply == ApplyMode::Auto {
            let (task, profiles) =
                (self.run.pinned_task()?, state.started.profiles.iteration_profiles(state.started.agent.as_ref()));
            for (number, proposal) in (first..).zip(proposals) {
                match proposal.can_apply_unasked(&task, &profiles, state.chosen.as_deref()) {
                    Ok(()) => unasked.push(number),
                    Err(why) => left.push((number, why)),
                }
            }
        }
        Ok((unasked, left))
    }

    async fn write_failed_diagnosis(&mut self, n: u32, profile: &PinnedProfile, why: &str) -> Result<(), Error> {
        let why = text::first_line(&self.run.redactor.redact(&text::strip_control(why)), 400).to_owned();
        let number = self.diagnosis_number();
        self.work
            .append_once(&self.run.files, "diagnostics.md", &diagnosis::failure_report(number, n, &profile.name, &why))
            .await?;
        self.work
            .append_once(
                &self.run.files,
                "activity.log",
                &format!("iteration {n}: diagnosis {number} came to nothing: {why}\n"),
            )
            .await?;
        let profile = profile.name.clone();
        let unasked = Vec::new();
        self.run.append(Event::DiagnosisWritten { n, profile, proposals: 0, guardrails: 0, unasked, failed: Some(why) })
    }

    /// The number of the diagnosis under way.
    fn diagnosis_number(&self) -> u32 {
        self.run.state().diagnoses.written.saturating_add(1)
    }

    /// Where its traces are.
    pub(super) fn diagnosis_dir(&self) -> PathBuf {
        self.run.folder.path().join("diagnoses").join(self.diagnosis_number().to_string())
    }

    fn build_diagnosis_request(
        &self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        reask: Option<String>,
    ) -> Result<ModelRequest, Error> {
        let state = self.run.state();
        let mirror = |name: &str| -> Result<String, Error> {
            let bytes = self.run.folder.read(&self.run.folder.mirror(name))?.unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (guardrails, diagnostics, errors) =
            (mirror("guardrails.md")?, mirror("diagnostics.md")?, mirror("errors.log")?);
        let (task, past) = (self.run.pinned_task()?, self.past_iterations()?);
        let tests = last_test_output(&self.run.folder, n.saturating_add(1));
        let test_output = match &tests {
            Some((_, path)) => self.run.folder.read(path)?.unwrap_or_default(),
            None => Vec::new(),
        };
        let samples: Vec<_> = state.window.iter().cloned().collect();
        let boxes = |verified: bool| -> Vec<&str> {
            let ids = state.started.boxes.iter().map(|pinned| pinned.id.as_str());
            ids.filter(|id| state.verified.contains(*id) == verified).collect()
        };
        let mut profiles = vec![state.profile.as_str()];
        profiles.extend(state.started.profiles.names().into_iter().filter(|name| *name != state.profile));
        let prompt = diagnosis::question(&DiagnosisFacts {
            nonce: &short_sha256(state.started.run.as_bytes()),
            task: &task,
            guardrails: &guardrails,
            diagnostics: &diagnostics,
            errors_log: &errors,
            test_output: &String::from_utf8_lossy(&test_output),
            tested_in: tests.map(|(n, _)| n),
            samples: &samples,
            score: state.last_score.as_ref(),
            past: &past,
            profiles: &profiles,
            verified: &boxes(true),
            open: &boxes(false),
            schema: &DIAGNOSIS_SCHEMA,
        });
        let shown = self.run.redactor.redact(&format!("{}\n\n{}", prompt.system, prompt.user)).into_owned();
        write_unflushed(&self.diagnosis_dir().join("prompt.md"), shown.as_bytes())?;
        let mut history = Vec::new();
        if let Some(error) = reask {
            let wrong = (0..call)
                .rev()
                .find_map(|call| self.saved_answer(&CallFiles::new(&self.diagnosis_dir(), call)).ok().flatten());
            let wrong = wrong.map(|kept| kept.text).unwrap_or_default();
            history.push(ConversationTurn {
                role: ConversationRole::Assistant,
                text: text::head(&wrong, 32 << 10).to_owned(),
            });
            history.push(ConversationTurn { role: ConversationRole::User, text: prompt::retry_message(&error) });
        }
        // The clock of a run that rests stands still.
        let left = if state.status.is_active() {
            self.run.time_left()
        } else {
            Duration::from_millis(state.budget.wall_ms.saturating_sub(state.spent.wall_ms)).max(Duration::from_secs(1))
        };
        Ok(ModelRequest {
            system: prompt.system,
            user: prompt.user,
            history,
            max_output_tokens: profile.max_output_tokens,
            temperature: profile.temperature,
            json: true,
            on_lost: LostCallPolicy::Report,
            timeout: Duration::from_secs(profile.timeout_s).min(left),
            extra: profile.extra.clone().into_iter().collect(),
        })
    }

    /// Returns what the last iterations said and changed.
    fn past_iterations(&self) -> Result<Vec<PastIteration>, Error> {
        let lines = read_events(&self.run.folder.events_path(), &self.run.folder.id())?;
        let ended: Vec<(u32, String)> = lines
            .into_iter()
            .filter_map(|line| match line.event {
                Event::IterationFinished { n, summary, .. } => Some((n, summary)),
                _ => None,
            })
            .collect();
        let recent = ended.get(ended.len().saturating_sub(MAX_PAST_ITERATIONS)..).unwrap_or_default();
        recent
            .iter()
            .map(|(n, summary)| {
                let path = self.run.folder.iteration(*n).join("git_diff.patch");
                let diff = self.run.folder.read(&path)?.unwrap_or_default();
                let diff = String::from_utf8_lossy(&diff).into_owned();
                Ok(PastIteration { n: *n, summary: summary.clone(), diff })
            })
            .collect()
    }

    /// Carries out a proposal that the task wants carried out without asking.
    pub(super) async fn apply_automatic_proposal(&mut self, number: u32) -> Result<(), Error> {
        if let Err(why) = self.apply_proposal(number).await? {
            self.run.log(EventLogLevel::Warn, format!("proposal {number} was not carried out: {why}"))?;
        }
        let (control, by) = (Control::ApplyProposal { number }, "the task: diagnose.apply is auto".to_owned());
        self.run.append(Event::ControlApplied { control, by, id: None })
    }

    /// Does what a proposal says; the inner `Err` is a refusal in words.
    pub(super) async fn apply_proposal(&mut self, number: u32) -> Result<Result<(), String>, Error> {
        let run = self.run.folder.id();
        if self.run.state().diagnoses.applied.contains(&number) {
            return Ok(Err(format!("proposal {number} was applied before")));
        }
        let book = read_proposals(&self.run.folder)?;
        // Only what an event speaks of counts: a process may have died before it could say what it wrote.
        let told = number <= self.run.state().diagnoses.proposals;
        let Some(numbered) = book.get(number).filter(|_| told) else {
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
                // Done twice it is done once, should the process die before the acknowledgement.
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

    /// Judges a new text of the task and writes it beside the old ones; it counts once an event says so.
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
        let judges = super::proof_files::find_proof_files(&self.run.bare, &start, &revised.task).await?;
        let revision = self.run.state().task_revision.saturating_add(1);
        write_atomic(&self.run.folder.task_revision(revision), revised.text.as_bytes())?;
        Ok(Ok(TaskEdit { proof_files: judges.files, pinned_parts: judges.parts, ..edit.clone() }))
    }

    /// Puts the task as it is now into the sandbox, where there is one.
    pub(super) async fn write_task_to_sandbox(&mut self) -> Result<(), Error> {
        // What judges the work is read anew.
        self.work.protected = None;
        self.work.forget_tree();
        let Some(sandbox) = self.work.sandbox.clone() else { return Ok(()) };
        let (path, text) = (self.run.state().started.task_path.clone(), self.run.task_text()?);
        // One that cannot be written there is found and put right when the iteration is closed.
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

fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
