//! `ralph show`: prints the state of one run, the reason for it, and what to do next.

use ralph_core::exit_code::RalphExitCode;
use ralph_core::proof_files::ProofFileChanges;
use ralph_core::text::strip_control;
use ralph_web::view::{ProofView, RunDetail, detail};

use crate::error::CliResult;
use crate::render::{align_columns, sparkline};
use crate::run_setup::CliSetup;
use crate::terminal_output::{BOLD, GREEN, RED, Ui, YELLOW, one_line, paint};

pub(crate) fn show(setup: &CliSetup, run: &str, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run(run)?;
    let state = folder.state()?;
    let view = detail(&state, folder.is_live());
    if ui.json() {
        ui.print_json(&view);
        return Ok(RalphExitCode::Success);
    }
    for line in lines(&view) {
        ui.print_data(&line);
    }
    if let Some(text) = folder.read(&folder.pull_request_path())? {
        let text = strip_control(&String::from_utf8_lossy(&text));
        let body = text.split_once("-->\n").map_or(text.as_str(), |(_, body)| body);
        ui.print_data("");
        ui.print_data(&paint(BOLD, "Pull request"));
        for line in body.lines() {
            ui.print_data(&format!("  {line}"));
        }
    }
    Ok(RalphExitCode::Success)
}

fn lines(view: &RunDetail) -> Vec<String> {
    let summary = &view.summary;
    let style = match summary.state {
        "succeeded" => GREEN,
        "failed" | "crashed" => RED,
        _ => YELLOW,
    };
    let reason = summary.reason.as_ref().map(|reason| format!(": {}", one_line(reason, 200))).unwrap_or_default();
    let mut out = vec![format!(
        "{} · {}",
        paint(BOLD, &one_line(&summary.title, 100)),
        paint(style, &format!("{}{reason}", summary.state))
    )];
    if let Some(next) = &summary.next {
        out.push(format!("next: {next}"));
    }
    let isolated = match view.isolated {
        Some(false) => " (does not isolate)",
        _ => "",
    };
    let mut rows: Vec<Vec<String>> = [
        ("run", summary.id.clone()),
        ("task", format!("{} in {}", summary.task_id, view.task_path)),
        ("repository", summary.repo.clone()),
        ("branch", format!("{} from {}", summary.branch, view.base_branch)),
        ("pull request", summary.pull_request.clone().unwrap_or_else(|| "none yet".to_owned())),
        ("sandbox", format!("{} {}{isolated}", view.backend, view.sandbox.clone().unwrap_or_default())),
        ("profile", summary.profile.clone()),
        ("commits", format!("{} {}", view.commits, view.commit.clone().unwrap_or_default())),
        ("loop score", format!("{:.1} {}", summary.loop_score.unwrap_or(0.0), sparkline(&view.loop_scores))),
    ]
    .into_iter()
    .map(|(name, value)| vec![format!("  {name}"), value])
    .collect();
    for budget in &view.budgets {
        let number = |value: f64| match value {
            // A small amount must not be printed as zero.
            value if value > 0.0 && value < 0.1 => format!("{value:.4}").trim_end_matches('0').to_owned(),
            value => format!("{value:.2}").trim_end_matches(".00").to_owned(),
        };
        let whole = budget.whole.map_or_else(|| ", no limit".to_owned(), |whole| format!(" of {}", number(whole)));
        let unit = if budget.unit == "usd" { "dollars" } else { budget.unit };
        rows.push(vec![format!("  {unit}"), format!("{}{whole}", number(budget.used))]);
    }
    out.extend(align_columns(&rows));
    out.push(String::new());
    out.push(paint(BOLD, "Boxes"));
    for checkbox in &view.boxes_detail {
        let mark = match (checkbox.verified, checkbox.broken_in) {
            (true, _) => paint(GREEN, "✓ verified"),
            (false, Some(_)) => paint(RED, "✗ broken  "),
            (false, None) => "· open    ".to_owned(),
        };
        let shared = if checkbox.own_proof { "" } else { " (no proof of its own)" };
        let broken =
            checkbox.broken_in.map_or_else(String::new, |n| format!(" (verified once, broken in iteration {n})"));
        out.push(format!("  {mark}  {} {}{shared}{broken}", checkbox.id, one_line(&checkbox.text, 100)));
    }
    if !view.proof.is_empty() {
        out.push(String::new());
        out.push(paint(BOLD, "Proof on the pushed commit, in a fresh sandbox"));
        for proof in &view.proof {
            let mark = if proof.passed { paint(GREEN, "✓ passed") } else { paint(RED, "✗ failed") };
            out.push(format!(
                "  {mark}  {} `{}` {} ms",
                proof.proves.join(" "),
                one_line(&proof.command, 80),
                proof.duration_ms
            ));
            if !proof.written_by_run.is_empty() {
                out.push(format!("            written by the run itself: {}", proof.written_by_run.join(", ")));
            }
        }
        out.extend(changed_proof_files(&view.proof));
    }
    out
}
/// Lists the files of the proof that the run changed, and what became of them.
fn changed_proof_files(proofs: &[ProofView]) -> Vec<String> {
    let mut all = ProofFileChanges::default();
    for proof in proofs {
        all.merge(&proof.files);
    }
    let mut out = Vec::new();
    let groups = [
        ("changed by the run, the proof used them as they were before", &all.put_back),
        ("new, and left out of the proof", &all.left_out),
        ("tests in source files that the run removed, changed or turned off", &all.inline_tests),
        ("new lines of the product that end a process or skip tests", &all.early_exits),
        ("given to the run by `may_change`", &all.given),
        ("new tests of the run that the proof ran", &all.own_tests),
        ("files that define what is built and tested, changed by the run", &all.build_files),
        ("all other changed files", &all.product),
    ];
    for (what, paths) in groups.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        out.push(format!("  {what}:"));
        out.extend(paths.iter().map(|path| format!("    {}", one_line(path, 200))));
    }
    if all.not_listed > 0 {
        out.push(format!("  and {} more", all.not_listed));
    }
    out
}
