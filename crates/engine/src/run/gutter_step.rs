//! Scores an iteration for signs of a loop, and applies the next step of the mitigation ladder.

use std::collections::BTreeSet;

use ralph_core::event::{Event, IterationOutcome};
use ralph_core::gutter::{self, IterationSample, LadderRung, LoopScore, MitigationCause};
use serde::Serialize;

use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;

#[derive(Debug, Serialize)]
struct IterationMetrics<'a> {
    format: u32,
    run: &'a str,
    iteration: u32,
    cost_micros: u64,
    tokens: u64,
    wall_ms: u64,
    outcome: IterationOutcome,
    verified: &'a BTreeSet<String>,
    score: &'a LoopScore,
    sample: Option<&'a IterationSample>,
}

/// Scores an iteration and applies mitigations.
#[derive(Debug)]
pub(super) struct GutterStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a WorkSandbox,
}

impl GutterStep<'_> {
    pub(super) async fn score(&mut self, n: u32) -> Result<(), Error> {
        let state = self.run.state();
        let window: Vec<gutter::IterationSample> = state.window.iter().cloned().collect();
        let score = gutter::score(&window, state.started.min_changed_lines);
        self.write_metrics(n, &score).await?;
        let line = format!("iteration {n}: loop score {:.2}", score.total);
        self.work.note_activity(&self.run.files, &line).await?;
        self.run.append(Event::GutterScored { n, score })
    }

    pub(super) async fn mitigate(&mut self, n: u32, rung: LadderRung) -> Result<(), Error> {
        let state = self.run.state();
        let profile = match (rung, &state.started.profiles.fallback) {
            (LadderRung::Fallback, Some(fallback)) => fallback.name.clone(),
            _ => state.profile.clone(),
        };
        let why = gutter::mitigation_reason(state.climb.verdicts, state.last_score.as_ref());
        self.work
            .note_activity(
                &self.run.files,
                &format!("iteration {n}: gutter, {} with profile {profile}: {why}", rung.as_str()),
            )
            .await?;
        let why = self.run.redactor.mask(&why);
        self.run.append(Event::MitigationApplied { n, rung, profile, why, cause: MitigationCause::Gutter })
    }

    async fn write_metrics(&mut self, n: u32, score: &LoopScore) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let state = self.run.state();
        let outcome = state.last.as_ref().map_or(IterationOutcome::NoProgress, |last| last.outcome);
        let metrics = IterationMetrics {
            format: 1,
            run: state.id(),
            iteration: n,
            cost_micros: state.spent.cost.0,
            tokens: state.spent.tokens,
            wall_ms: state.spent.wall_ms,
            outcome,
            verified: &state.verified,
            score,
            sample: state.window.back(),
        };
        let bytes = serde_json::to_vec_pretty(&metrics).unwrap_or_default();
        self.run.files.write_artefact(&*sandbox, n, "metrics.json", &bytes).await
    }
}
