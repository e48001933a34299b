//! `ralph ls`: lists all runs, the latest last.

use ralph_core::exit_code::RalphExitCode;
use ralph_web::view::{FORMAT, RunSummary, summary};
use serde_json::json;

use crate::error::CliResult;
use crate::foreground::format_duration;
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::{BOLD, DIM, GREEN, RED, Ui, YELLOW, one_line, paint};

pub(crate) fn ls(setup: &CliSetup, ui: &mut Ui) -> CliResult {
    let mut rows: Vec<RunSummary> = Vec::new();
    let mut unreadable = Vec::new();
    for found in setup.host.home.list_runs()?.runs {
        match found.listing {
            Ok(listing) => rows.push(summary(listing, found.folder.is_live())),
            Err(error) => {
                let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
                unreadable.push(format!("{error}{why}"));
            }
        }
    }
    if ui.json() {
        ui.print_json(&json!({"format": FORMAT, "runs": rows, "unreadable": unreadable}));
        return Ok(RalphExitCode::Success);
    }
    for line in &unreadable {
        ui.print_message(&format!("{} {line}", paint(YELLOW, "!")));
    }
    if rows.is_empty() && !unreadable.is_empty() {
        return Ok(RalphExitCode::Success);
    }
    if rows.is_empty() {
        ui.print_message("no runs yet; `ralph demo` shows one, `ralph init` starts your own");
        return Ok(RalphExitCode::Success);
    }
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let mut table =
        vec![["RUN", "STATE", "TASK", "ITER", "BOXES", "COST", "LOOP", "AGE", "BRANCH"].map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| cells(row, &ids)));
    for line in align_columns(&table) {
        ui.print_data(&line);
    }
    Ok(RalphExitCode::Success)
}

fn cells(row: &RunSummary, ids: &[&str]) -> Vec<String> {
    let unique = unique_prefix(&row.id, ids);
    let (head, tail) = row.id.split_at(unique);
    let style = match row.state {
        "succeeded" => GREEN,
        "failed" | "crashed" => RED,
        "paused" | "stopped" => YELLOW,
        _ => BOLD,
    };
    let cost =
        row.max_cost_usd.map_or_else(|| format!("${:.2}", row.cost_usd), |cap| format!("${:.2}/{cap}", row.cost_usd));
    vec![
        format!("{}{}", paint(BOLD, head), paint(DIM, tail)),
        paint(style, row.state),
        one_line(&row.task_id, 24),
        format!("{}/{}", row.iteration, row.max_iterations),
        format!("{}/{}", row.boxes_verified, row.boxes),
        cost,
        row.loop_score.map_or_else(|| "-".to_owned(), |score| format!("{score:.1}")),
        age(&row.last_at),
        row.branch.clone(),
    ]
}

fn age(at: &str) -> String {
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return "?".to_owned() };
    let ms = jiff::Timestamp::now().as_millisecond() - at.as_millisecond();
    format_duration(u64::try_from(ms).unwrap_or(0))
}

/// Returns the length of the shortest prefix of an id that is unique among the ids.
fn unique_prefix(id: &str, ids: &[&str]) -> usize {
    let shared = |other: &&str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let longest = ids.iter().filter(|other| **other != id).map(shared).max().unwrap_or(0);
    (longest + 1).min(id.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (id, ids, want) in [("abc", vec!["abc"], 1), ("abc", vec!["abc", "abd"], 3), ("abc", vec!["abc", "xbc"], 1)]
        {
            assert_eq!(unique_prefix(id, &ids), want, "{id} of {ids:?}");
        }
    }
}
