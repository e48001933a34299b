//! One event as one line for people. What an agent wrote is stripped of everything that could drive a terminal.

use ralph_core::event::{
    ActionOutcome, BaselineVerdict, CheckStage, Event, EventLine, EventLogLevel, IterationOutcome, ModelCallOutcome,
    RunVerdict,
};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::policy::{PolicyRule, shell_argument};
use ralph_core::run::RunState;

use crate::ui::{BOLD, DIM, GREEN, RED, YELLOW, one_line, paint};

const WIDTH: usize = 160;

/// Returns the line of an event, or nothing for events that only matter to programs.
pub(crate) fn event_line(line: &EventLine, state: Option<&RunState>) -> Option<String> {
    let text = event_text(&line.event, state)?;
    let time = line.at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
    Some(format!("{} {text}", paint(DIM, &time)))
}

fn event_text(event: &Event, state: Option<&RunState>) -> Option<String> {
    let ok = paint(GREEN, "✓");
    let bad = paint(RED, "✗");
    let warn = paint(YELLOW, "!");
    Some(match event {
        Event::RunStarted(started) => {
            format!("run {} · {} · branch {}", paint(BOLD, &started.run), one_line(&started.title, 80), started.branch)
        }
        Event::SandboxReady { sandbox, backend, isolated, .. } => {
            let how = if *isolated { "" } else { ", not isolated" };
            format!("sandbox {sandbox} is ready ({backend}{how})")
        }
        Event::BaselineChecked { checks, .. } => {
            let red = checks.iter().filter(|check| check.verdict == BaselineVerdict::Red).count();
            let odd: Vec<String> = checks
                .iter()
                .filter(|check| check.verdict != BaselineVerdict::Red)
                .map(|check| format!("{} {}", check.proves.join(" "), verdict_text(check.verdict)))
                .collect();
            let odd = if odd.is_empty() { String::new() } else { format!("; {}", odd.join(", ")) };
            format!("red first: {red} of {} checks fail on the base commit, as they should{odd}", checks.len())
        }
        Event::IterationStarted { n, profile, because, .. } => {
            let because = because.as_ref().map(|why| format!(" ({})", one_line(why, 90))).unwrap_or_default();
            let budget = state.map(|state| format!("/{}", state.budget.iterations)).unwrap_or_default();
            format!("{} with {profile}{because}", paint(BOLD, &format!("iteration {n}{budget}")))
        }
        Event::ModelCalled { model, answer, usage, cost, .. } => match answer {
            ModelCallOutcome::Actions { count, .. } => {
                format!("  {model} answered: {}, {} tokens, {cost}", pluralize(*count, "action"), usage.total())
            }
            ModelCallOutcome::Diagnosis { proposals, .. } => {
                format!("  {model} diagnosed: {}, {} tokens, {cost}", pluralize(*proposals, "proposal"), usage.total())
            }
            ModelCallOutcome::Invalid { error } => {
                format!("  {warn} {model} gave no valid answer ({cost}): {}", one_line(error, 100))
            }
            ModelCallOutcome::Through { times, .. } if *times > 1 => {
                format!("  {warn} {times} calls to {model} came to nothing ({cost})")
            }
            ModelCallOutcome::Through { status: Some(status), .. } if *status >= 400 => {
                format!("  {warn} a call to {model} was answered with {status} ({cost})")
            }
            ModelCallOutcome::Through { .. } => format!("  {model}: {} tokens ({cost})", usage.total()),
            ModelCallOutcome::Lost => {
                format!("  {warn} a call to {model} was lost and is charged at its worst ({cost})")
            }
        },
        Event::ActionStarted { .. } | Event::AuditAnchored { .. } => return None,
        Event::ActionFinished { outcome, detail, duration_ms, index, .. } => {
            let (mark, word) = match outcome {
                ActionOutcome::Ok => (&ok, ""),
                ActionOutcome::Failed => (&bad, "failed: "),
                ActionOutcome::Refused => (&bad, "refused: "),
                ActionOutcome::Cut => (&warn, "cut short: "),
            };
            format!(
                "  {mark} action {} {word}{} {}",
                index + 1,
                one_line(detail, WIDTH),
                paint(DIM, &format!("{duration_ms} ms"))
            )
        }
        Event::Log { level, text } => match level {
            EventLogLevel::Info => format!("  {}", one_line(text, WIDTH)),
            EventLogLevel::Warn => format!("  {warn} {}", one_line(text, WIDTH)),
            EventLogLevel::Error => format!("  {bad} {}", one_line(text, WIDTH)),
        },
        Event::CheckFinished { stage, command, proves, code, timed_out, duration_ms, .. } => {
            let mark = if *code == 0 && !timed_out { &ok } else { &bad };
            let place = if *stage == CheckStage::Proof { "proof" } else { "check" };
            let end = if *timed_out { "timed out".to_owned() } else { format!("exit {code}") };
            format!(
                "  {mark} {place} {}: `{}` {end} {}",
                proves.join(" "),
                one_line(command, 80),
                paint(DIM, &format!("{duration_ms} ms"))
            )
        }
        Event::IterationFinished { outcome, summary, verified, .. } => {
            let total = state.map_or(0, |state| state.started.boxes.len());
            let word = match outcome {
                IterationOutcome::Progress => "progress",
                IterationOutcome::NoProgress => "no progress",
                IterationOutcome::ActionFailed => "an action failed",
                IterationOutcome::BadOutput => "no valid answer",
                IterationOutcome::Protected => "a protected path was changed and put back",
                IterationOutcome::Rotated => "asked for a fresh session",
            };
            format!("  {word}, {}/{total} boxes verified: {}", verified.len(), one_line(summary, 120))
        }
        Event::GutterScored { score, .. } if score.total == 0.0 => return None,
        Event::GutterScored { score, .. } => {
            let gutter = if score.is_gutter() { paint(RED, " gutter") } else { String::new() };
            format!("  loop score {:.1}{gutter}: {}", score.total, one_line(&score.evidence.join("; "), 120))
        }
        Event::MitigationApplied { profile, why, cause: MitigationCause::Provider, .. } => {
            format!("{warn} {profile} goes on with this iteration, since {}", one_line(why, 120))
        }
        Event::MitigationApplied { rung, profile, why, .. } => {
            let what = match rung {
                LadderRung::Rotate => "a fresh session, told why".to_owned(),
                LadderRung::Fallback => format!("the fallback profile {profile}"),
                LadderRung::Diagnose => "a diagnosis".to_owned(),
                LadderRung::Pause => "a person has to look".to_owned(),
                LadderRung::GiveUp => "nothing is left to try".to_owned(),
            };
            format!("{warn} {what}, since {}", one_line(why, 120))
        }
        Event::DiagnosisWritten { failed: Some(why), .. } => format!("{warn} no diagnosis: {}", one_line(why, WIDTH)),
        Event::DiagnosisWritten { profile, proposals, .. } => {
            format!("a diagnosis by {profile} with {}", pluralize(*proposals, "proposal"))
        }
        Event::BudgetWarned { limit, percent } => format!("{warn} {percent} % of the {limit} budget is used"),
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
            format!("  handed over {} up to {}{found}", pluralize(*commits, "commit"), ralph_core::text::head(sha, 10))
        }
        Event::Pushed { to, branch, sha } => {
            format!("pushed {branch} at {} to {}", ralph_core::text::head(sha, 10), one_line(to, 80))
        }
        Event::PrOpened { url, .. } => format!("{ok} pull request opened: {url}"),
        Event::PrUpdated { why, .. } => format!("pull request updated: {why}"),
        Event::CiChanged { state } => format!("CI: {state}"),
        Event::PolicyDenied { host, port, request, rule, remedy, count } => {
            let port = if *port == 0 { String::new() } else { format!(":{port}") };
            let (method, path) = request.as_deref().and_then(|line| line.split_once(' ')).unwrap_or_default();
            let method = if method.is_empty() { String::new() } else { format!("{} ", one_line(method, 20)) };
            let what = format!("{method}{}{port}{}", one_line(host, 80), one_line(path, 80));
            let times = if *count > 1 { format!(", {count} times by now") } else { String::new() };
            let remedy = remedy.as_ref().and_then(|rule| rule.parse::<PolicyRule>().ok());
            // Whole or not at all: half a rule is another rule.
            let next = state.zip(remedy).map(|(state, rule)| {
                format!(
                    "\n         next: ralph policy allow {} --run {}",
                    shell_argument(&rule.to_string()),
                    state.id()
                )
            });
            format!("  {warn} denied {what}{times}: {}{}", one_line(rule, 100), next.unwrap_or_default())
        }
        Event::Paused { reason, next } => {
            format!("{warn} paused: {}\n         next: {next}", one_line(&reason.describe(), WIDTH))
        }
        Event::Resumed { by } => format!("goes on, by {by}"),
        Event::ControlApplied { control, by, .. } => format!("{} by {by}", control.kind()),
        Event::RunFinished { verdict, next } => match verdict {
            RunVerdict::Succeeded => format!(
                "{ok} {}: every box was proved again on the pushed commit\n         next: {next}",
                paint(GREEN, "succeeded")
            ),
            RunVerdict::Failed { reason } => {
                format!(
                    "{bad} {}: {}\n         next: {next}",
                    paint(RED, "failed"),
                    one_line(&reason.describe(), WIDTH)
                )
            }
            RunVerdict::Stopped { reason } => {
                format!("{warn} stopped: {}\n         next: {next}", one_line(&reason.describe(), WIDTH))
            }
        },
    })
}

fn pluralize(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn verdict_text(verdict: BaselineVerdict) -> &'static str {
    match verdict {
        BaselineVerdict::Red => "red",
        BaselineVerdict::Vacuous => "passes already",
        BaselineVerdict::Flaky => "is flaky",
        BaselineVerdict::Slow => "is too slow",
        BaselineVerdict::MissingTool => "misses a tool",
        BaselineVerdict::DeniedHost => "needs a denied host",
    }
}
