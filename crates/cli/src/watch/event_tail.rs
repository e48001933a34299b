//! Reads the event file as it grows, for a limited time per turn, so that a long history blocks neither the screen nor
//! the keyboard.

use std::time::{Duration, Instant};

use ralph_engine::store::{EventLogReader, RunFolder};

use super::control_sender;
use super::model::{WatchMessage, WatchModel};

/// The position in the event file.
#[derive(Debug)]
pub(super) struct EventTail {
    /// `None` once the file cannot be read any further.
    follow: Option<EventLogReader>,
}

impl EventTail {
    pub(super) fn new(folder: &RunFolder) -> Self {
        Self { follow: Some(EventLogReader::new(&folder.events_path(), &folder.id())) }
    }

    /// Passes new events to the model; returns `true` when there are more than fit into the time slice.
    pub(super) fn read(&mut self, model: &mut WatchModel, slice: Duration) -> bool {
        let Some(follow) = &mut self.follow else { return false };
        let began = Instant::now();
        let mut read = 0_u32;
        let trouble = loop {
            match follow.next() {
                Ok(Some(line)) => {
                    model.update(WatchMessage::Line(Box::new(line)));
                    read += 1;
                    if read.is_multiple_of(32) && began.elapsed() >= slice {
                        return true;
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(control_sender::error_text(error)),
            }
        };
        if read > 0 {
            // A new event proves that a process drives the run; that is checked again only after a silence.
            model.update(WatchMessage::Live(true));
        }
        model.update(match trouble {
            None => WatchMessage::CaughtUp,
            Some(why) => {
                self.follow = None;
                WatchMessage::Unreadable(why)
            }
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use ralph_core::event::{Event, EventLine, EventLogLevel};
    use ralph_core::redact::Redactor;

    use super::super::tests::fixture::{draw_text, run_started_json};
    use super::*;

    const SLICE: Duration = Duration::from_millis(50);

    fn model() -> WatchModel {
        WatchModel::new("d1vn1bc09rwx", Timestamp::UNIX_EPOCH, TimeZone::UTC, false)
    }

    fn line(seq: u64, event: Event) -> String {
        EventLine { seq, at: Timestamp::UNIX_EPOCH, passed_ms: None, event }.to_json() + "\n"
    }

    fn log(seq: u64) -> String {
        line(seq, Event::Log { level: EventLogLevel::Info, text: Redactor::new([]).mask(&format!("row {seq}")) })
    }

    fn first() -> String {
        line(1, serde_json::from_value(run_started_json()).unwrap())
    }

    #[test]
    fn first_frame_of_a_hundred_thousand_events_is_fast() {
        let folder = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(folder.path().to_owned());
        let mut file = std::io::BufWriter::new(File::create(folder.events_path()).unwrap());
        file.write_all(first().as_bytes()).unwrap();
        for seq in 2..=100_000 {
            file.write_all(log(seq).as_bytes()).unwrap();
        }
        file.flush().unwrap();
        let (mut model, mut tail) = (model(), EventTail::new(&folder));
        let began = Instant::now();
        let mut more = tail.read(&mut model, SLICE);
        let painted = draw_text(&model, 80, 24);
        assert!(began.elapsed() < Duration::from_secs(1), "the first paint took {:?}", began.elapsed());
        assert!(painted.contains("Fix the login") && (!more || painted.contains("reading what happened so far")));
        while more {
            let began = Instant::now();
            more = tail.read(&mut model, SLICE);
            assert!(began.elapsed() < Duration::from_secs(1), "the keyboard was blocked for {:?}", began.elapsed());
        }
        assert_eq!((model.run.events_read, model.caught_up), (100_000, true));
        assert!(draw_text(&model, 80, 24).contains("row 100000"));
        // From here on only new events are read.
        file.write_all(log(100_001).as_bytes()).unwrap();
        file.flush().unwrap();
        assert!(!tail.read(&mut model, SLICE));
        assert_eq!(model.run.events_read, 100_001);
        assert!(draw_text(&model, 80, 24).contains("row 100001"));
    }

    #[test]
    fn partial_lines_are_awaited_and_damaged_ones_reported() {
        let folder = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(folder.path().to_owned());
        let (mut model, mut tail) = (model(), EventTail::new(&folder));
        assert!(!tail.read(&mut model, SLICE));
        assert!(draw_text(&model, 80, 24).contains("reading what happened so far"), "there is no file yet");
        let mut file = File::create(folder.events_path()).unwrap();
        let (text, second) = (first(), log(2));
        file.write_all(text.as_bytes()).unwrap();
        file.write_all(&second.as_bytes()[..20]).unwrap();
        tail.read(&mut model, SLICE);
        assert_eq!(model.run.events_read, 1);
        file.write_all(&second.as_bytes()[20..]).unwrap();
        tail.read(&mut model, SLICE);
        assert_eq!(model.run.events_read, 2);
        // If the folder is removed, the events that were read stay.
        std::fs::remove_dir_all(folder.path()).unwrap();
        tail.read(&mut model, SLICE);
        assert!(draw_text(&model, 80, 24).contains("row 2"));
        file.write_all(b"{\"seq\":3}\n").unwrap();
        file.write_all(log(4).as_bytes()).unwrap();
        tail.read(&mut model, SLICE);
        tail.read(&mut model, SLICE);
        assert_eq!(model.run.events_read, 2, "nothing is read after a damaged line");
        assert!(draw_text(&model, 80, 24).contains("✗ "), "{}", draw_text(&model, 80, 24));
    }
}
