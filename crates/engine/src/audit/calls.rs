//! What the agents of a run asked of models, written down before each call is made and when it was charged.
//!
//! The events of a run are its truth about money, and whoever serves the doors does not write events. So each call stands
//! in `calls.jsonl` first, and the runner tells of it when it looks. A process that died leaves calls without a charge:
//! nobody knows what they cost, and they are charged at their worst.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use ralph_core::agent::Seen;
use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_proxy::meter::Refusal;
use ralph_proxy::notice::{Charge, Entry, Told};
use serde::{Deserialize, Serialize};

use crate::error::{Error, file};
use crate::store::Folder;

const NAME: &str = "calls.jsonl";
/// The longest text that is kept of a call.
const WORDS: usize = 200;
/// So many calls of a run may come to nothing. They cost nothing, so no budget bounds them, and each leaves its traces on
/// the disk: who has had so many gets no more.
const NOTHING: u64 = 100_000;
/// So many answers of the doors are remembered: a session is judged by its last ones.
const REMEMBERED: usize = 64;

/// A call that was charged, for what it cost or for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    pub id: u64,
    pub at: Timestamp,
    pub model: String,
    /// What the agent was answered with.
    pub status: Option<u16>,
    pub usage: Usage,
    pub cost: Micros,
    /// Nobody saw the provider's count.
    pub worst: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(String, String)>,
}

impl Charged {
    /// Says whether it came to nothing: the provider refused it, or it was never sent.
    pub fn is_nothing(&self) -> bool {
        !self.worst && self.cost == Micros::ZERO && self.usage == Usage::default()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line {
    Calling(Calling),
    Charged(Charged),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Calling {
    id: u64,
    at: Timestamp,
    model: String,
    cost: Micros,
    tokens: u64,
}

impl Calling {
    fn worst(self) -> Charged {
        let Self { id, model, cost, tokens, .. } = self;
        let usage = Usage { input: tokens, ..Usage::default() };
        Charged { id, at: Timestamp::now(), model, status: None, usage, cost, worst: true, limits: Vec::new() }
    }
}

/// The calls of one run.
#[derive(Debug)]
pub struct Calls {
    pages: Mutex<Pages>,
    /// How many lines the disk has for certain. Who holds it flushes for all who wait.
    flushed: Mutex<u64>,
}

#[derive(Debug)]
struct Pages {
    file: File,
    under_way: BTreeMap<u64, Calling>,
    /// What was charged and not told yet, in order; of what was told only the number is kept.
    charged: VecDeque<Charged>,
    told: u64,
    /// How many calls of the run came to nothing, and whether it is still to be said that they were too many.
    nothing: u64,
    too_many: bool,
    seen: Answers,
    trouble: Option<String>,
    /// The last write failed, and perhaps not before it had begun.
    half: bool,
    /// How many lines this process has written.
    written: u64,
}

impl Calls {
    /// Opens the file of a run. Calls that a dead process left without a charge are charged at their worst.
    pub(super) fn open(folder: &Folder) -> Result<Self, Error> {
        let path = folder.path().join(NAME);
        let mut open = OpenOptions::new();
        let file = open.create(true).read(true).append(true).mode(0o600).open(&path).map_err(file("open", &path))?;
        let mut under_way = BTreeMap::new();
        let mut pages = Pages {
            file: file.try_clone().map_err(self::file("open", &path))?,
            under_way: BTreeMap::new(),
            charged: VecDeque::new(),
            told: 0,
            nothing: 0,
            too_many: false,
            seen: Answers::default(),
            trouble: None,
            half: false,
            written: 0,
        };
        let (mut reader, mut line) = (BufReader::with_capacity(1 << 16, file), Vec::new());
        while reader.read_until(b'\n', &mut line).map_err(self::file("read", &path))? > 0 {
            pages.half = !line.ends_with(b"\n");
            // A line that a crash cut short tells of a call that was not made yet.
            match serde_json::from_str(&String::from_utf8_lossy(&line)) {
                Ok(Line::Calling(calling)) => drop(under_way.insert(calling.id, calling)),
                Ok(Line::Charged(one)) => {
                    under_way.remove(&one.id);
                    pages.take(one);
                }
                Err(_) => (),
            }
            line.clear();
        }
        for calling in under_way.into_values() {
            pages.charge(calling.worst());
        }
        Ok(Self { pages: Mutex::new(pages), flushed: Mutex::new(0) })
    }

    /// Writes down a call that is about to be dialled and returns how far the file has to be flushed before it is; the
    /// error says why it could not be written.
    pub(super) fn keep(&self, told: &Told, redactor: &Redactor) -> Result<u64, String> {
        let Told::Calling { id, model, cost, tokens, .. } = told else { return Ok(0) };
        let (at, model) = (Timestamp::now(), text::head(&redactor.redact(model), WORDS).to_owned());
        let calling = Calling { id: *id, at, model, cost: *cost, tokens: *tokens };
        let mut pages = self.pages();
        if pages.nothing >= NOTHING {
            return Err(format!("{NOTHING} calls of this run came to nothing, and it gets no more"));
        }
        pages.write(&Line::Calling(calling.clone())).map_err(|error| error.to_string())?;
        pages.under_way.insert(*id, calling);
        Ok(pages.written)
    }

    /// Returns when the disk has so many lines.
    pub(super) fn flush_to(&self, lines: u64) -> Result<(), String> {
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        if *flushed >= lines {
            return Ok(());
        }
        let pages = self.pages();
        let (written, file) = (pages.written, pages.file.try_clone());
        // Others may write while the disk is waited for.
        drop(pages);
        file.and_then(|file| file.sync_data()).map_err(|error| format!("it could not be flushed: {error}"))?;
        *flushed = written;
        Ok(())
    }

    /// Hears what the way out tells. It never waits for the disk: what has to is in [`Self::keep`].
    pub(super) fn hear(&self, told: &Told, redactor: &Redactor) {
        let words = |text: &str| text::head(&redactor.redact(text), WORDS).to_owned();
        let (at, mut pages) = (Timestamp::now(), self.pages());
        match told {
            Told::Calling { .. } => {
                drop(pages);
                if let Err(why) = self.keep(told, redactor) {
                    self.pages().trouble = Some(why);
                }
            }
            Told::Exchanged(exchanged) if exchanged.entry == Entry::Route => {
                // What was refused at the door is no word of the provider; a refusal for want of money was told before.
                let Some(call) = &exchanged.call else { return };
                let limits = call.limits.clone();
                let barred = match exchanged.refused.as_deref() {
                    Some(Refusal::Barred(why)) => Some(redactor.redact(why).into_owned()),
                    _ => None,
                };
                pages.seen.push(Seen { at, status: exchanged.status, limits: limits.clone(), spent: false, barred });
                // One that was given up and charged already is not charged again.
                if pages.under_way.remove(&call.id).is_some() {
                    pages.charge(Charged {
                        id: call.id,
                        at,
                        model: words(&call.model),
                        status: exchanged.status,
                        usage: call.usage,
                        cost: call.cost,
                        worst: call.charge == Charge::Worst,
                        limits: limits.iter().map(|(name, value)| (words(name), words(value))).collect(),
                    });
                }
            }
            Told::Spent { .. } => {
                pages.seen.push(Seen { at, status: None, limits: Vec::new(), spent: true, barred: None });
            }
            _ => (),
        }
    }

    /// Returns what was charged after the first so many, which are forgotten from now on; the first `most` of it.
    pub fn since(&self, told: u64, most: usize) -> Vec<Charged> {
        let mut pages = self.pages();
        let known = usize::try_from(told.saturating_sub(pages.told)).unwrap_or(usize::MAX).min(pages.charged.len());
        pages.charged.drain(..known);
        pages.told += known as u64;
        pages.charged.iter().take(most).cloned().collect()
    }

    /// Returns how many calls were charged by now.
    pub fn count(&self) -> u64 {
        let pages = self.pages();
        pages.told + pages.charged.len() as u64
    }

    /// Makes the count fit what was told before, where a power cut has taken charges from the file; returns how many.
    pub fn align(&self, told: u64) -> u64 {
        let mut pages = self.pages();
        let missing = told.saturating_sub(pages.told + pages.charged.len() as u64);
        // The missing ones stood first, and were told.
        pages.told += missing;
        missing
    }

    /// Has the disk keep what was written.
    pub fn flush(&self) {
        let file = self.pages().file.try_clone();
        // Those at the doors go on while the disk is waited for.
        if let Err(error) = file.and_then(|file| file.sync_data()) {
            self.pages().trouble = Some(error.to_string());
        }
    }

    /// Returns how many answers the doors have given so far.
    pub fn mark(&self) -> u64 {
        self.pages().seen.given
    }

    /// Returns the answers after a mark, the last ones of them.
    pub fn seen(&self, mark: u64) -> Vec<Seen> {
        self.pages().seen.after(mark)
    }

    /// Says, once, that too many calls came to nothing for any more to be made.
    pub fn too_many(&self) -> Option<String> {
        std::mem::take(&mut self.pages().too_many).then(|| {
            format!("{NOTHING} calls that agents made came to nothing, so no more are let through in this run")
        })
    }

    /// Says whether calls are under way.
    pub fn busy(&self) -> bool {
        !self.pages().under_way.is_empty()
    }

    /// Charges what is still under way at its worst, since nobody waits for it any longer; returns what it was.
    pub fn give_up(&self) -> Vec<u64> {
        let mut pages = self.pages();
        let given_up = std::mem::take(&mut pages.under_way);
        let ids = given_up.keys().copied().collect();
        for calling in given_up.into_values() {
            pages.charge(calling.worst());
        }
        ids
    }

    /// Returns why something could not be written since this was last asked.
    pub fn trouble(&self) -> Option<String> {
        self.pages().trouble.take()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn charge(&mut self, charged: Charged) {
        if let Err(error) = self.write(&Line::Charged(charged.clone())) {
            self.trouble = Some(error.to_string());
        }
        let before = self.nothing;
        self.take(charged);
        self.too_many |= before < NOTHING && self.nothing >= NOTHING;
    }

    /// Takes up what stands in the file. Of it nobody asks for the limits again.
    fn take(&mut self, charged: Charged) {
        self.nothing += u64::from(charged.is_nothing());
        self.charged.push_back(Charged { limits: Vec::new(), ..charged });
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        // A line that was cut short is ended first, so that it spoils no other.
        let mut bytes = if self.half { vec![b'\n'] } else { Vec::new() };
        bytes.extend(serde_json::to_vec(line).unwrap_or_default());
        bytes.push(b'\n');
        let written = self.file.write_all(&bytes);
        self.half = written.is_err();
        self.written += u64::from(written.is_ok());
        written
    }
}

/// What the doors answered, in order, refusals of our own among them: the last few of many.
#[derive(Debug, Default)]
struct Answers {
    /// Each with its number, from 1.
    last: VecDeque<(u64, Seen)>,
    given: u64,
}

impl Answers {
    fn push(&mut self, seen: Seen) {
        self.given += 1;
        // Clients that hang up one after the other must not push out what says more.
        let hung_up = |seen: &Seen| !seen.spent && seen.status.is_none();
        if hung_up(&seen) && self.last.back().is_some_and(|(_, last)| hung_up(last)) {
            self.last.pop_back();
        }
        if self.last.len() >= REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back((self.given, seen));
    }

    fn after(&self, mark: u64) -> Vec<Seen> {
        self.last.iter().filter(|(number, _)| *number > mark).map(|(_, seen)| seen.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use ralph_proxy::notice::{Call, Exchanged};

    use super::*;

    fn calling(id: u64, cost: u64) -> Told {
        Told::Calling { id, route: "r".to_owned(), model: "m".to_owned(), cost: Micros(cost), tokens: 7 }
    }

    fn answered(id: u64, status: u16, cost: u64) -> Told {
        let charge = if cost == 0 { Charge::Nothing } else { Charge::Reported };
        let call = Call {
            id,
            route: "r".to_owned(),
            model: "m".to_owned(),
            answered_by: None,
            usage: Usage::default(),
            cost: Micros(cost),
            charge,
            limits: Vec::new(),
        };
        Told::Exchanged(Exchanged {
            entry: Entry::Route,
            host: "x.io".to_owned(),
            port: 443,
            method: "POST".to_owned(),
            path: "/".to_owned(),
            status: Some(status),
            refused: None,
            sent: 0,
            received: 0,
            credential: None,
            call: Some(call),
        })
    }

    fn costs(calls: &Calls, told: u64) -> Vec<(u64, u64, bool)> {
        calls.since(told, usize::MAX).iter().map(|charged| (charged.id, charged.cost.0, charged.worst)).collect()
    }

    #[test]
    fn what_cannot_be_written_is_not_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let calls = Calls::open(&Folder::at(dir.path().to_owned())).unwrap();
        let redactor = Redactor::new([]);
        let file =
            std::mem::replace(&mut calls.pages().file, OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert!(calls.keep(&calling(1, 50), &redactor).is_err() && !calls.busy());
        calls.pages().file = file;
        let lines = [2, 3].map(|id| calls.keep(&calling(id, 60), &redactor).unwrap());
        assert_eq!(lines, [1, 2]);
        // One flush is enough for both.
        calls.flush_to(1).unwrap();
        assert_eq!(*calls.flushed.lock().unwrap(), 2);
        assert_eq!(calls.give_up(), [2, 3]);
    }

    #[test]
    fn calls_that_come_to_nothing_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let redactor = Redactor::new([]);
        let calls = Calls::open(&folder).unwrap();
        let hang_up = |calls: &Calls, id: u64| {
            calls.hear(&calling(id, 50), &redactor);
            let Told::Exchanged(exchanged) = answered(id, 200, 0) else { unreachable!("it is one") };
            calls.hear(&Told::Exchanged(Exchanged { status: None, ..exchanged }), &redactor);
        };
        let mark = calls.mark();
        for id in 1..=5 {
            calls.hear(&calling(id, 50), &redactor);
            calls.hear(&answered(id, 429, 0), &redactor);
        }
        for id in 6..=2000 {
            hang_up(&calls, id);
            // Whoever tells of them keeps up.
            assert!(calls.since(id, 10).is_empty());
        }
        // Neither what was told nor what says nothing is kept in memory, and what says something is not pushed out.
        assert_eq!((calls.count(), calls.pages().charged.capacity() < 64), (2000, true));
        let statuses: Vec<Option<u16>> = calls.seen(mark).iter().map(|seen| seen.status).collect();
        assert_eq!(statuses, [Some(429), Some(429), Some(429), Some(429), Some(429), None]);
        for id in 2001..=2200 {
            calls.hear(&calling(id, 50), &redactor);
            calls.hear(&answered(id, 200, 1), &redactor);
        }
        assert_eq!((calls.seen(mark).len(), calls.seen(calls.mark()).len()), (REMEMBERED, 0));
        // The last that is allowed, the first that is not.
        calls.pages().nothing = NOTHING - 1;
        assert_eq!(calls.too_many(), None);
        hang_up(&calls, 3000);
        assert!(calls.too_many().is_some() && calls.too_many().is_none(), "told once");
        let length = std::fs::metadata(dir.path().join(NAME)).unwrap().len();
        let refused = calls.keep(&calling(3001, 50), &redactor);
        assert_eq!(refused.unwrap_err(), "100000 calls of this run came to nothing, and it gets no more");
        assert_eq!(std::fs::metadata(dir.path().join(NAME)).unwrap().len(), length);
        drop(calls);
        // It counts on after a resume.
        assert_eq!(Calls::open(&folder).unwrap().pages().nothing, 2001);
    }

    #[test]
    fn every_call_is_charged_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let redactor = Redactor::new([]);
        let calls = Calls::open(&folder).unwrap();
        for told in [calling(1, 50), calling(2, 60), answered(2, 429, 0), answered(1, 200, 9), calling(3, 70)] {
            calls.hear(&told, &redactor);
        }
        assert_eq!(costs(&calls, 0), [(2, 0, false), (1, 9, false)]);
        assert_eq!(calls.seen(1).len(), 1);
        assert!(calls.busy());
        drop(calls);
        // The process died with one under way, in the middle of writing down another.
        let mut file = OpenOptions::new().append(true).open(dir.path().join(NAME)).unwrap();
        file.write_all(b"{\"type\":\"calling\",\"id\":4,\"co").unwrap();
        let calls = Calls::open(&folder).unwrap();
        assert_eq!(costs(&calls, 2), [(3, 70, true)]);
        assert!(!calls.busy());
        // A process numbers its calls anew.
        calls.hear(&calling(1, 80), &redactor);
        assert_eq!(calls.give_up(), [1]);
        calls.hear(&answered(1, 200, 8), &redactor);
        assert_eq!(costs(&calls, 3), [(1, 80, true)]);
        drop(calls);
        assert_eq!(costs(&Calls::open(&folder).unwrap(), 0).len(), 4);
    }
}
