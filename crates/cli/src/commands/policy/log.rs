//! `ralph policy log`: what was decided at the doors of a run, repeats told once with a count.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use ralph_core::audit::{Kind, Record};
use ralph_core::exit::Exit;
use ralph_core::policy::Rule;
use ralph_core::run::State;
use ralph_engine::audit::{Entry, Reader};
use ralph_engine::store::Folder;

use super::allow_command;
use crate::args::PolicyLog;
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::Setup;
use crate::ui::{DIM, GREEN, RED, Ui, YELLOW, one_line, paint};

/// How often a followed run is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// So many different things are told apart; a run can make up as many hosts as it likes.
const APART: usize = 5000;

pub(super) async fn log(setup: &Setup, args: &PolicyLog, ui: &mut Ui) -> Outcome {
    let folder = setup.recorded(&args.run)?;
    let mut reader = Reader::new(&folder);
    let run = folder.id();
    let mut log = Log { run: run.clone(), ..Log::default() };
    while let Some(entry) = reader.next()? {
        if !ui.json() {
            log.take(&entry, args.denied);
        } else if wanted(&entry, args.denied) {
            ui.data(&entry.text);
        }
    }
    if !ui.json() {
        log.show(args.denied, ui);
    }
    while args.follow && folder.begun() && is_live(&folder)? {
        while let Some(entry) = reader.next()? {
            if ui.json() && wanted(&entry, args.denied) {
                ui.data(&entry.text);
            } else if !ui.json()
                && let Some(row) = log.take(&entry, args.denied).filter(|row| told(row.count))
            {
                ui.data(&row.cells(&run).join("  "));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(Exit::Success)
}

fn is_live(folder: &Folder) -> Result<bool, Failure> {
    let state: State = folder.state()?;
    Ok(state.status.active() && folder.in_use())
}

fn wanted(entry: &Entry, denied: bool) -> bool {
    !denied || entry.record.as_ref().is_some_and(Record::is_denial)
}

/// What is seen while it happens is told the first time and at every tenfold after that.
fn told(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| 10_u64.checked_pow(digits) == Some(count))
}

#[derive(Debug, Default)]
struct Log {
    run: String,
    rows: Vec<Row>,
    places: BTreeMap<(String, String, String), usize>,
    /// Records beyond what is told apart.
    beyond: u64,
    unreadable: u64,
}

#[derive(Debug, Clone)]
struct Row {
    at: Timestamp,
    word: String,
    what: String,
    reason: String,
    remedy: Option<String>,
    count: u64,
    /// What tunnels carried, out and back.
    carried: (u64, u64),
}

impl Log {
    /// Takes one line; returns the row it counts in.
    fn take(&mut self, entry: &Entry, denied: bool) -> Option<&Row> {
        let Some(record) = &entry.record else {
            self.unreadable += 1;
            return None;
        };
        if denied && !record.is_denial() {
            return None;
        }
        let row = Row::of(record);
        let key = (row.word.clone(), row.what.clone(), row.reason.clone());
        if let Some(place) = self.places.get(&key) {
            let known = self.rows.get_mut(*place)?;
            known.count = known.count.saturating_add(row.count);
            known.carried.0 = known.carried.0.saturating_add(row.carried.0);
            known.carried.1 = known.carried.1.saturating_add(row.carried.1);
            return Some(known);
        }
        if self.rows.len() >= APART {
            self.beyond += 1;
            return None;
        }
        self.places.insert(key, self.rows.len());
        self.rows.push(row);
        self.rows.last()
    }

    fn show(&self, denied: bool, ui: &mut Ui) {
        for line in columns(&self.rows.iter().map(|row| row.cells(&self.run)).collect::<Vec<_>>()) {
            ui.data(&line);
        }
        if self.rows.is_empty() {
            let what = if denied { "nothing was refused at" } else { "nobody has come to" };
            ui.say(&format!("{what} the doors of run {} yet", self.run));
        }
        if self.beyond > 0 {
            ui.say(&format!("records that are not told apart any more: {}; --json prints each", self.beyond));
        }
        if self.unreadable > 0 {
            ui.say(&format!("lines that are no records: {}; next: ralph audit verify {}", self.unreadable, self.run));
        }
    }
}

impl Row {
    fn of(record: &Record) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let host = match (&record.host, record.port) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.clone(),
            (None, _) => String::new(),
        };
        let (what, reason) = match record.kind {
            Kind::Exchange => {
                let status = record.status.map_or_else(|| "hung up".to_owned(), |status| status.to_string());
                let why = record.reason.as_ref().map_or_else(|| status.clone(), |why| format!("{status}: {why}"));
                (format!("{} {host}{}", text(&record.method), text(&record.path)), why)
            }
            Kind::Decision if record.method.is_some() => {
                (format!("{} {host}{}", text(&record.method), text(&record.path)), text(&record.reason))
            }
            Kind::Tunnel => (host, String::new()),
            Kind::Spent => (format!("{} {}", text(&record.route), text(&record.model)), text(&record.reason)),
            Kind::Closed => (record.sandbox.clone(), "its doors were closed".to_owned()),
            _ => (host, text(&record.reason)),
        };
        let word = record.decision.clone().filter(|_| record.kind == Kind::Decision || record.is_denial());
        Self {
            at: record.at,
            word: word.unwrap_or_else(|| record.kind.to_string()),
            what,
            reason,
            remedy: record.remedy.clone(),
            count: record.count.unwrap_or(1),
            carried: match record.kind {
                Kind::Tunnel => (record.sent.unwrap_or(0), record.received.unwrap_or(0)),
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
        // Shown whole or not at all: half a rule is another rule.
        let remedy = self.remedy.as_ref().and_then(|rule| rule.parse::<Rule>().ok());
        let next = remedy.map(|rule| format!("  next: {}", allow_command(&rule.to_string(), &of)));
        let reason = match self.carried {
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
        let told: Vec<u64> = (0..=1000).filter(|count| told(*count)).collect();
        assert_eq!(told, [1, 10, 100, 1000]);
    }
}
