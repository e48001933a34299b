//! Explains the arithmetic of every loop score of a run, from its events alone.

use serde::Serialize;

use super::score::score_parts;
use super::{LadderRung, LoopScore, MitigationCause, ScorePart};
use crate::event::{Event, EventLine};
use crate::run::{BadHistory, RunState};

/// How one iteration was scored and what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreExplanation {
    pub n: u32,
    /// Every part, whether it counted or not; empty if the iteration only waited for one long command.
    pub parts: Vec<ScorePart>,
    /// The sum of the parts that counted.
    pub sum: f64,
    /// The recorded score, with the progress that capped it.
    pub score: LoopScore,
    pub gutter: bool,
    /// Gutter verdicts since the last progress, this one included.
    pub streak: u32,
    /// What was tried.
    pub rung: Option<LadderRung>,
    /// The profile that was chosen with it.
    pub profile: Option<String>,
}

/// Explains every score in the events of a run.
pub fn explain(lines: impl IntoIterator<Item = EventLine>) -> Result<Vec<ScoreExplanation>, BadHistory> {
    let mut lines = lines.into_iter();
    let mut state = RunState::begin(lines.next().ok_or(BadHistory::Empty)?)?;
    let mut explained: Vec<ScoreExplanation> = Vec::new();
    for line in lines {
        state.apply(&line)?;
        match line.event {
            Event::GutterScored { n, score } => {
                let window: Vec<_> = state.window.iter().cloned().collect();
                let parts = score_parts(&window, state.started.min_changed_lines);
                let sum = parts
                    .iter()
                    .filter(|part| part.counts)
                    .map(|part| part.weight)
                    .fold(0.0, |sum, weight| sum + weight);
                let (gutter, streak) = (score.is_gutter(), state.climb.verdicts);
                explained.push(ScoreExplanation { n, parts, sum, score, gutter, streak, rung: None, profile: None });
            }
            Event::MitigationApplied { n, rung, profile, cause: MitigationCause::Gutter, .. } => {
                if let Some(last) = explained.last_mut().filter(|last| last.n == n) {
                    (last.rung, last.profile) = (Some(rung), Some(profile));
                }
            }
            _ => (),
        }
    }
    Ok(explained)
}
