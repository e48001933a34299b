//! Formats one event as one line for people. Text that an agent wrote is stripped of terminal control sequences.

use ralph_core::event::{
    ActionOutcome, BaselineVerdict, CheckStage, Event, EventLogLevel, IterationOutcome, ModelCallOutcome, RunVerdict,
};
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::policy::{PolicyRule, shell_argument};
use ralph_core::run::RunState;
use ralph_core::text::{head, strip_control};

const WIDTH: usize = 160;

/// The meaning of a part of a text; the words carry it without colour too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTone {
    Plain,
    Strong,
    Dim,
    Good,
    Warning,
    Bad,
}

impl EventTone {
    /// Returns the mark at the start of a text of this tone.
    fn mark(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Warning => "!",
            Self::Bad => "✗",
            Self::Plain | Self::Strong | Self::Dim => "",
        }
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSpan {
    pub tone: EventTone,
    pub text: String,
}

/// The text of an event, part by part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventText(Vec<EventSpan>);

impl EventText {
    fn plain(text: impl Into<String>) -> Self {
        Self::default().and(EventTone::Plain, text)
    }

    /// Creates a text that begins with the mark of a tone and a space.
    fn marked(indent: &str, tone: EventTone, text: impl Into<String>) -> Self {
        Self::plain(indent).and(tone, tone.mark()).and(EventTone::Plain, " ").and(EventTone::Plain, text)
    }

    fn and(mut self, tone: EventTone, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.0.push(EventSpan { tone, text });
        }
        self
    }

    pub fn spans(&self) -> &[EventSpan] {
        &self.0
    }

    /// Returns the text without tones.
    pub fn words(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }
}

/// Returns the text of an event, or `None` for events that only matter to programs.
pub fn event_text(event: &Event, state: Option<&RunState>) -> Option<EventText> {
    use EventTone::{Bad, Dim, Good, Plain, Strong, Warning};
    Some(match event {
        Event::RunStarted(started) => EventText::plain("run ")
            .and(Strong, started.run.as_str())
            .and(Plain, format!(" · {} · branch {}", one_line(&started.title, 80), started.branch)),
        Event::SandboxReady { sandbox, backend, isolated, .. } => {
            let how = if *isolated { "" } else { ", not isolated" };
            EventText::plain(format!("sandbox {sandbox} is ready ({backend}{how})"))
        }
        Event::BaselineChecked { checks, .. } => {
            let red = checks.iter().filter(|check| check.verdict == BaselineVerdict::Red).count();
            let odd: Vec<String> = checks
                .iter()
                .filter(|check| check.verdict != BaselineVerdict::Red)
                .map(|check| format!("{} {}", CheckTarget::join(&check.proves, " "), baseline_words(check.verdict)))
                .collect();
            let odd = if odd.is_empty() { String::new() } else { format!("; {}", odd.join(", ")) };
            EventText::plain(format!(
                "red first: {red} of {} checks fail on the base commit, as they should{odd}",
                checks.len()
            ))
        }
        Event::IterationStarted { n, profile, because, .. } => {
            let because = because.as_ref().map(|why| format!(" ({})", one_line(why, 90))).unwrap_or_default();
            let budget = state.map(|state| format!("/{}", state.budget.iterations)).unwrap_or_default();
            EventText::default()
                .and(Strong, format!("iteration {n}{budget}"))
                .and(Plain, format!(" with {profile}{because}"))
        }
        Event::ModelCalled { model, answer, usage, cost, .. } => match answer {
            ModelCallOutcome::Actions { count, .. } => EventText::plain(format!(
                "  {model} answered: {}, {} tokens, {cost}",
                pluralize(*count, "action"),
                usage.total()
            )),
            ModelCallOutcome::Diagnosis { proposals, .. } => EventText::plain(format!(
                "  {model} diagnosed: {}, {} tokens, {cost}",
                pluralize(*proposals, "proposal"),
                usage.total()
            )),
            ModelCallOutcome::Invalid { error } => {
                let text = format!("{model} gave no valid answer ({cost}): {}", one_line(error, 100));
                EventText::marked("  ", Warning, text)
            }
            ModelCallOutcome::Through { times, .. } if *times > 1 => {
                EventText::marked("  ", Warning, format!("{times} calls to {model} failed ({cost})"))
            }
            ModelCallOutcome::Through { status: Some(status), .. } if *status >= 400 => {
                EventText::marked("  ", Warning, format!("a call to {model} was answered with {status} ({cost})"))
            }
            ModelCallOutcome::Through { .. } => {
                EventText::plain(format!("  {model}: {} tokens ({cost})", usage.total()))
            }
            ModelCallOutcome::Lost => {
                let text = format!("a call to {model} was lost and is charged at its worst case ({cost})");
                EventText::marked("  ", Warning, text)
            }
        },
        Event::ActionStarted { .. } | Event::AuditAnchored { .. } => return None,
        Event::ActionFinished { outcome, detail, duration_ms, index, .. } => {
            let (tone, word) = match outcome {
                ActionOutcome::Ok => (Good, ""),
                ActionOutcome::Failed => (Bad, "failed: "),
                ActionOutcome::Refused => (Bad, "refused: "),
                ActionOutcome::Cut => (Warning, "cut short: "),
            };
            let text = format!("action {} {word}{} ", index + 1, one_line(detail, WIDTH));
            EventText::marked("  ", tone, text).and(Dim, format!("{duration_ms} ms"))
        }
        Event::Log { level, text } => match level {
            EventLogLevel::Info => EventText::plain(format!("  {}", one_line(text, WIDTH))),
            EventLogLevel::Warn => EventText::marked("  ", Warning, one_line(text, WIDTH)),
            EventLogLevel::Error => EventText::marked("  ", Bad, one_line(text, WIDTH)),
        },
        Event::CheckFinished { stage, command, proves, code, timed_out, duration_ms, files, .. } => {
            let tone = if *code == 0 && !timed_out { Good } else { Bad };
            let place = if *stage == CheckStage::Proof { "proof" } else { "check" };
            let end = if *timed_out { "timed out".to_owned() } else { format!("exit {code}") };
            let text = format!("{place} {}: `{}` {end} ", CheckTarget::join(proves, " "), one_line(command, 80));
            let unused = match (&tone, files.put_back.first().or(files.left_out.first())) {
                (Bad, Some(path)) => format!(
                    ", without the run's change to {}: `may_change` in the task would let it count",
                    one_line(path, 80)
                ),
                _ => String::new(),
            };
            EventText::marked("  ", tone, text).and(Dim, format!("{duration_ms} ms{unused}"))
        }
        Event::IterationFinished { outcome, summary, verified, broken, .. } => {
            let total = state.map_or(0, |state| state.started.boxes.len());
            let word = match outcome {
                IterationOutcome::Progress => "progress",
                IterationOutcome::NoProgress => "no progress",
                IterationOutcome::ActionFailed => "an action failed",
                IterationOutcome::BadOutput => "no valid answer",
                IterationOutcome::Protected => "a protected path was changed and put back",
                IterationOutcome::Rotated => "asked for a fresh session",
                IterationOutcome::Regression => "a verified box broke",
            };
            let lost = if broken.is_empty() { String::new() } else { format!(", broke {}", broken.join(", ")) };
            EventText::plain(format!(
                "  {word}, {}/{total} boxes verified{lost}: {}",
                verified.len(),
                one_line(summary, 120)
            ))
        }
        Event::GutterScored { score, .. } if score.total == 0.0 => return None,
        Event::GutterScored { score, .. } => EventText::plain(format!("  loop score {:.1}", score.total))
            .and(Bad, if score.is_gutter() { " gutter" } else { "" })
            .and(Plain, format!(": {}", one_line(&score.evidence.join("; "), 120))),
        Event::MitigationApplied { profile, why, cause: MitigationCause::Provider, .. } => {
            let text = format!("{profile} continues this iteration, since {}", one_line(why, 120));
            EventText::marked("", Warning, text)
        }
        Event::MitigationApplied { rung, profile, why, .. } => {
            let what = match rung {
                LadderRung::Rotate => "a fresh session that gets the reason".to_owned(),
                LadderRung::Fallback => format!("the fallback profile {profile}"),
                LadderRung::Diagnose => "a diagnosis".to_owned(),
                LadderRung::Pause => "a person has to look".to_owned(),
                LadderRung::GiveUp => "nothing is left to try".to_owned(),
            };
            EventText::marked("", Warning, format!("{what}, since {}", one_line(why, 120)))
        }
        Event::DiagnosisWritten { failed: Some(why), .. } => {
            EventText::marked("", Warning, format!("no diagnosis: {}", one_line(why, WIDTH)))
        }
        Event::DiagnosisWritten { profile, proposals, .. } => {
            EventText::plain(format!("a diagnosis by {profile} with {}", pluralize(*proposals, "proposal")))
        }
        Event::BudgetWarned { limit, percent } => {
            EventText::marked("", Warning, format!("{percent} % of the {limit} budget is used"))
        }
        Event::CommitImported { sha, commits, findings, .. } => {
            let found = match findings.len() {
                0 => String::new(),
                n => format!(
                    ", {}: {}",
                    pluralize(u32::try_from(n).unwrap_or(u32::MAX), "finding"),
                    one_line(
                        &findings
                            .iter()
                            .map(|finding| format!("{} {}", finding.rule, finding.path))
                            .collect::<Vec<_>>()
                            .join(", "),
                        100
                    )
                ),
            };
            let sha = head(sha.as_deref().unwrap_or(""), 10);
            EventText::plain(format!("  imported {} up to {sha}{found}", pluralize(*commits, "commit")))
        }
        Event::Pushed { to, branch, sha } => {
            EventText::plain(format!("pushed {branch} at {} to {}", head(sha, 10), one_line(to, 80)))
        }
        Event::PrOpened { url, .. } => EventText::marked("", Good, format!("pull request opened: {url}")),
        Event::PrUpdated { why, .. } => EventText::plain(format!("pull request updated: {why}")),
        Event::CiChanged(state) => EventText::plain(format!("CI: {state}")),
        Event::PolicyDenied { host, port, request, rule, remedy, count } => {
            let port = if *port == 0 { String::new() } else { format!(":{port}") };
            let (method, path) = request.as_deref().and_then(|line| line.split_once(' ')).unwrap_or_default();
            let method = if method.is_empty() { String::new() } else { format!("{} ", one_line(method, 20)) };
            let what = format!("{method}{}{port}{}", one_line(host, 80), one_line(path, 80));
            let times = if *count > 1 { format!(", {count} times by now") } else { String::new() };
            let remedy = remedy.as_ref().and_then(|rule| rule.parse::<PolicyRule>().ok());
            // Printed whole or not at all: a truncated rule is another rule.
            let next = state.zip(remedy).map(|(state, rule)| {
                next_line(&format!("ralph policy allow {} --run {}", shell_argument(&rule.to_string()), state.id()))
            });
            let text = format!("denied {what}{times}: {}{}", one_line(rule, 100), next.unwrap_or_default());
            EventText::marked("  ", Warning, text)
        }
        Event::Paused { reason, next } => {
            let text = format!("paused: {}{}", one_line(&reason.describe(), WIDTH), next_line(next));
            EventText::marked("", Warning, text)
        }
        Event::Resumed { by } => EventText::plain(format!("goes on, by {by}")),
        Event::ControlApplied { control, by, .. } => EventText::plain(format!("{} by {by}", control.kind())),
        Event::RunFinished { verdict, next } => match verdict {
            RunVerdict::Succeeded => EventText::marked("", Good, "")
                .and(Good, "succeeded")
                .and(Plain, format!(": every box was proved again on the pushed commit{}", next_line(next))),
            RunVerdict::Failed { reason } => EventText::marked("", Bad, "")
                .and(Bad, "failed")
                .and(Plain, format!(": {}{}", one_line(&reason.describe(), WIDTH), next_line(next))),
            RunVerdict::Stopped { reason } => {
                let text = format!("stopped: {}{}", one_line(&reason.describe(), WIDTH), next_line(next));
                EventText::marked("", Warning, text)
            }
        },
    })
}

/// Makes one safe line of text that an agent may have written, at most `width` characters long.
pub fn one_line(text: &str, width: usize) -> String {
    let flat = strip_control(text).replace(['\n', '\t'], " ");
    let flat = flat.trim();
    if flat.chars().count() <= width {
        return flat.to_owned();
    }
    let mut cut: String = flat.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Returns what to do next on a line of its own, aligned with the text and not with the time.
fn next_line(next: &str) -> String {
    format!("\n         next: {next}")
}

fn pluralize(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns the result of a proof on the base commit in words.
pub fn baseline_words(verdict: BaselineVerdict) -> &'static str {
    match verdict {
        BaselineVerdict::Red => "red",
        BaselineVerdict::Vacuous => "passes already",
        BaselineVerdict::Flaky => "is flaky",
        BaselineVerdict::Slow => "is too slow",
        BaselineVerdict::MissingTool => "lacks a tool",
        BaselineVerdict::DeniedHost => "needs a denied host",
        BaselineVerdict::CannotStart => "cannot start",
    }
}
