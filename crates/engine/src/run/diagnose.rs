//! Diagnoses a run that makes no progress: calls the doctor's model, paid for like any other call, and writes down its
//! proposals. Carrying them out is in `proposals`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::diagnosis::{self, Diagnosis, DiagnosisFacts, DiagnosisStep, PastIteration, Proposal};
use ralph_core::event::{Event, EventLogLevel, PinnedProfile};
use ralph_core::hash::short_sha256;
use ralph_core::redact::{MaskedText, Redactor};
use ralph_core::run::RunState;
use ralph_core::task::ApplyMode;
use ralph_core::{prompt, text};

use super::call_record::CallRecord;
use super::egress_events::EgressEvents;
use super::interrupts::Interrupts;
use super::model_call_files::{CallFiles, estimate_request_tokens};
use super::model_clients::{ModelState, RejectedCall};
use super::prompt_excerpts::last_test_output;
use super::proposals::read_proposals;
use super::run_context::{RunContext, error_chain};
use super::send_model_call::{CallSender, SentCall};
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::model::{CallKey, ConversationRole, ConversationTurn, LostCallPolicy, ModelErrorClass, ModelRequest};
use crate::store::{read_events, write_atomic, write_unflushed};

/// The schema of a diagnosis as a question shows it.
static DIAGNOSIS_SCHEMA: LazyLock<String> = LazyLock::new(|| diagnosis::schema().to_string());

/// How many past iterations the doctor's prompt shows.
const MAX_PAST_ITERATIONS: usize = 6;

/// The diagnosis of a run.
#[derive(Debug)]
pub(super) struct RunDiagnosis<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl RunDiagnosis<'_> {
    /// Carries out the next step of a diagnosis. If it fails, the run goes on without it.
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

    /// Carries a diagnosis through on a run that is not being driven.
    pub(super) async fn diagnose_at_rest(&mut self) -> Result<(), Error> {
        EgressEvents { run: self.run }.record_agent_calls()?;
        self.models.reload_ledger(&self.run.events);
        // Every step makes a call or ends the diagnosis, and the number of calls is limited.
        while self.run.state().diagnoses.under.is_some() {
            let before = self.run.state().last_seq;
            match decide_next_step::diagnosis_step(self.run.state()) {
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
        let files = CallFiles::new(&diagnosis_dir(self.run), call);
        if let Some(kept) = files.saved_answer(&self.run.folder)? {
            return CallRecord { run: self.run, n, call, profile }.diagnosis(kept);
        }
        if let Some(bytes) = self.run.folder.read(&files.reserved)? {
            return CallRecord { run: self.run, n, call, profile }.lost(&bytes, &files);
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
        let key = CallKey::of_diagnosis(diagnosis_number(self.run.state()), n, call);
        let mask = |redactor: &Redactor, text: String| (redactor.redact(&text).into_owned(), None);
        let sent = CallSender { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
            .send(&files, profile, &*model, &request, key, reservation, mask)
            .await?;
        match sent {
            SentCall::Answered(kept) => CallRecord { run: self.run, n, call, profile }.diagnosis(kept),
            SentCall::Lost(worst, _) => CallRecord { run: self.run, n, call, profile }.lost(&worst, &files),
            // The user ended the call, not the provider: it is repeated when the run goes on.
            SentCall::Failed(failure) if failure.class == ModelErrorClass::Stopped => Ok(()),
            SentCall::Failed(_) if self.interrupts.is_action_aborted() => Ok(()),
            SentCall::Failed(failure) => self.write_failed_diagnosis(n, profile, &failure.error.to_string()).await,
        }
    }

    fn saved_diagnosis(&self, call: u32) -> Result<Option<Diagnosis>, Error> {
        let kept = CallFiles::new(&diagnosis_dir(self.run), call).saved_answer(&self.run.folder)?;
        Ok(kept.and_then(|kept| parse_diagnosis(&self.run.redactor, &kept.text).ok()))
    }

    /// Writes the report, the proposals and the event of a diagnosis. Repeating it after a crash changes nothing.
    async fn write_diagnosis(&mut self, n: u32, profile: &PinnedProfile, diagnosis: &Diagnosis) -> Result<(), Error> {
        let (number, first) = (diagnosis_number(self.run.state()), self.run.state().diagnoses.next_number());
        let proposals = diagnosis::proposals(diagnosis, &self.run.state().started.profiles.names());
        let report = diagnosis::report(diagnosis, &proposals, (number, n, &profile.name), first);
        self.work.append_once(&self.run.files, "diagnostics.md", &report).await?;
        let guardrails = proposals.iter().filter(|proposal| matches!(proposal, Proposal::Guardrail { .. })).count();
        let (made, guardrails) = (saturating_u32(proposals.len()), saturating_u32(guardrails));
        let (unasked, left) = self.split_by_approval(first, &proposals)?;
        let mut list = read_proposals(&self.run.folder)?;
        list.replace_from(first, number, n, proposals);
        let bytes = serde_json::to_vec_pretty(&list).unwrap_or_default();
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

    /// Splits the proposals of a task with `diagnose.apply: auto` into the numbers of those that may be applied without
    /// asking, and the reasons why the others wait. The task's current text decides.
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
        // Mask before cutting, or half a secret could be left.
        let why = self.run.redactor.mask(&text::strip_control(why)).first_line(400);
        let number = diagnosis_number(self.run.state());
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
        write_unflushed(&diagnosis_dir(self.run).join("prompt.md"), shown.as_bytes())?;
        let mut history = Vec::new();
        if let Some(error) = reask {
            let wrong = (0..call).rev().find_map(|call| {
                CallFiles::new(&diagnosis_dir(self.run), call).saved_answer(&self.run.folder).ok().flatten()
            });
            let wrong = wrong.map(|kept| kept.text).unwrap_or_default();
            history.push(ConversationTurn {
                role: ConversationRole::Assistant,
                text: text::head(&wrong, 32 << 10).to_owned(),
            });
            history.push(ConversationTurn { role: ConversationRole::User, text: prompt::retry_message(&error) });
        }
        // The clock of a run that is paused stands still.
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

    /// Returns the summaries and diffs of the last iterations.
    fn past_iterations(&self) -> Result<Vec<PastIteration>, Error> {
        let lines = read_events(&self.run.folder.events_path(), &self.run.folder.id())?;
        let ended: Vec<(u32, MaskedText)> = lines
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
                Ok(PastIteration { n: *n, summary: summary.to_string(), diff })
            })
            .collect()
    }
}

/// Parses an answer. A secret that was escaped letter by letter shows only once it is parsed, and is masked then.
pub(super) fn parse_diagnosis(redactor: &Redactor, text: &str) -> Result<Diagnosis, diagnosis::InvalidDiagnosis> {
    let diagnosis = diagnosis::parse(text)?;
    let plain = serde_json::to_string(&diagnosis).unwrap_or_default();
    match redactor.redact(&plain) {
        std::borrow::Cow::Owned(masked) if masked != plain => diagnosis::parse(&masked),
        _ => Ok(diagnosis),
    }
}

/// Returns the number of the diagnosis under way.
pub(super) fn diagnosis_number(state: &RunState) -> u32 {
    state.diagnoses.written.saturating_add(1)
}

/// Returns the folder of the diagnosis under way.
pub(super) fn diagnosis_dir(run: &RunContext) -> PathBuf {
    run.folder.path().join("diagnoses").join(diagnosis_number(run.state()).to_string())
}

pub(super) fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
