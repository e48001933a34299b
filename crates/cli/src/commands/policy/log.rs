//! `ralph policy log`: prints the egress proxy's decisions for a run, with repeated ones counted in one row.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use ralph_core::audit::{AuditRecord, AuditRecordKind};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::policy::PolicyRule;
use ralph_core::run::RunState;
use ralph_engine::audit::{AuditLine, AuditReader};
use ralph_engine::store::RunFolder;

use super::allow_command;
use crate::args::PolicyLogArgs;
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::{DIM, GREEN, RED, Ui, YELLOW, one_line, paint};

/// How often a followed run is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most rows that are kept apart: a run can invent as many hosts as it likes.
const MAX_ROWS: usize = 5000;

pub(super) async fn log(setup: &CliSetup, args: &PolicyLogArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_audit_folder(&args.run)?;
    let mut reader = AuditReader::new(&folder);
    let run = folder.id();
    let mut log = PolicyLogTable { run: run.clone(), ..PolicyLogTable::default() };
    while let Some(entry) = reader.next()? {
        if !ui.json() {
            log.add(&entry, args.denied);
        } else if matches_filter(&entry, args.denied) {
            ui.print_data(&entry.text);
        }
    }
    if !ui.json() {
        log.print(args.denied, ui);
    }
    while args.follow && folder.begun() && is_live(&folder)? {
        while let Some(entry) = reader.next()? {
            if ui.json() && matches_filter(&entry, args.denied) {
                ui.print_data(&entry.text);
            } else if !ui.json()
                && let Some(row) = log.add(&entry, args.denied).filter(|row| is_power_of_ten(row.count))
            {
                ui.print_data(&row.cells(&run).join("  "));
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(RalphExitCode::Success)
}

fn is_live(folder: &RunFolder) -> Result<bool, CliError> {
    let state: RunState = folder.state()?;
    Ok(state.status.is_active() && folder.is_live())
}

fn matches_filter(entry: &AuditLine, denied: bool) -> bool {
    !denied || entry.record.as_ref().is_some_and(AuditRecord::is_denial)
}

/// Returns whether a followed row is printed again: the first time and at every power of ten after that.
fn is_power_of_ten(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| 10_u64.checked_pow(digits) == Some(count))
}

#[derive(Debug, Default)]
struct PolicyLogTable {
    run: String,
    rows: Vec<PolicyLogRow>,
    row_index: BTreeMap<(String, String, String), usize>,
    /// Records beyond the most rows.
    overflow: u64,
    unreadable: u64,
}

#[derive(Debug, Clone)]
struct PolicyLogRow {
    at: Timestamp,
    word: String,
    what: String,
    reason: String,
    remedy: Option<String>,
    count: u64,
    /// Bytes that tunnels carried, out and back.
    tunnel_bytes: (u64, u64),
}

impl PolicyLogTable {
    /// Adds one line and returns the row in which it is counted.
    fn add(&mut self, entry: &AuditLine, denied: bool) -> Option<&PolicyLogRow> {
        let Some(record) = &entry.record else {
            self.unreadable += 1;
            return None;
        };
        if denied && !record.is_denial() {
            return None;
        }
        let row = PolicyLogRow::from_record(record);
        let key = (row.word.clone(), row.what.clone(), row.reason.clone());
        if let Some(place) = self.row_index.get(&key) {
            let known = self.rows.get_mut(*place)?;
            known.count = known.count.saturating_add(row.count);
            known.tunnel_bytes.0 = known.tunnel_bytes.0.saturating_add(row.tunnel_bytes.0);
            known.tunnel_bytes.1 = known.tunnel_bytes.1.saturating_add(row.tunnel_bytes.1);
            return Some(known);
        }
        if self.rows.len() >= MAX_ROWS {
            self.overflow += 1;
            return None;
        }
        self.row_index.insert(key, self.rows.len());
        self.rows.push(row);
        self.rows.last()
    }

    fn print(&self, denied: bool, ui: &mut Ui) {
        for line in align_columns(&self.rows.iter().map(|row| row.cells(&self.run)).collect::<Vec<_>>()) {
            ui.print_data(&line);
        }
        if self.rows.is_empty() {
            let what = if denied { "refused" } else { "decided" };
            ui.print_message(&format!("the egress proxy has {what} nothing for run {} yet", self.run));
        }
        if self.overflow > 0 {
            ui.print_message(&format!("records that are not listed: {}; --json prints each", self.overflow));
        }
        if self.unreadable > 0 {
            ui.print_message(&format!(
                "lines that are not records: {}; next: ralph audit verify {}",
                self.unreadable, self.run
            ));
        }
    }
}

impl PolicyLogRow {
    fn from_record(record: &AuditRecord) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let host = match (&record.host, record.port) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.clone(),
            (None, _) => String::new(),
        };
        let (what, reason) = match record.kind {
            AuditRecordKind::Exchange => {
                let status = record.status.map_or_else(|| "hung up".to_owned(), |status| status.to_string());
                let why = record.reason.as_ref().map_or_else(|| status.clone(), |why| format!("{status}: {why}"));
                (format!("{} {host}{}", text(&record.method), text(&record.path)), why)
            }
            AuditRecordKind::Decision if record.method.is_some() => {
                (format!("{} {host}{}", text(&record.method), text(&record.path)), text(&record.reason))
            }
            AuditRecordKind::Tunnel => (host, String::new()),
            AuditRecordKind::Spent => {
                (format!("{} {}", text(&record.route), text(&record.model)), text(&record.reason))
            }
            AuditRecordKind::Closed => (record.sandbox.clone(), "its listeners were closed".to_owned()),
            _ => (host, text(&record.reason)),
        };
        let word = record.decision.clone().filter(|_| record.kind == AuditRecordKind::Decision || record.is_denial());
        Self {
            at: record.at,
            word: word.unwrap_or_else(|| record.kind.to_string()),
            what,
            reason,
            remedy: record.remedy.clone(),
            count: record.count.unwrap_or(1),
            tunnel_bytes: match record.kind {
                AuditRecordKind::Tunnel => (record.sent.unwrap_or(0), record.received.unwrap_or(0)),
                _ => (0, 0),
            },
        }
    }

    fn cells(&self, run: &str) -> Vec<String> {
        let time = self.at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
        let style = match self.word.as_str() {
            "allowed" | "exchange" | "tunnel" => GREEN,
            "denied" | "alarm" => RED,
            _ => YELLOW,
        };
        let times = if self.count > 1 { format!("×{}", self.count) } else { String::new() };
        let of = format!(" --run {run}");
        // Printed whole or not at all: a truncated rule is another rule.
        let remedy = self.remedy.as_ref().and_then(|rule| rule.parse::<PolicyRule>().ok());
        let next = remedy.map(|rule| format!("  next: {}", allow_command(&rule.to_string(), &of)));
        let reason = match self.tunnel_bytes {
            (0, 0) => one_line(&self.reason, 120),
            (out, back) => format!("{out} bytes out, {back} back"),
        };
        vec![
            paint(DIM, &time),
            paint(style, &one_line(&self.word, 20)),
            one_line(&self.what, 100),
            times,
            format!("{reason}{}", next.unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenfolds() {
        let printed: Vec<u64> = (0..=1000).filter(|count| is_power_of_ten(*count)).collect();
        assert_eq!(printed, [1, 10, 100, 1000]);
    }
}
