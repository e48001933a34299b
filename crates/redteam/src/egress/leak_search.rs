//! Looks through everything a process inside can see for a text that it is not told: the needle comes turned round, bit
//! by bit, so that whoever looks is not what is found.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const CHUNK: usize = 1 << 16;
/// A file longer than this is not a hiding place that anybody filled in a minute.
const FILE_CAP: u64 = 64 << 20;
/// Where anything could have been put. The host's own programs hold no secret of a run.
const SEARCH_DIRS: [&str; 9] =
    ["/workspace", "/home", "/exchange", "/tmp", "/run", "/etc", "/dev/shm", "/var", "/root"];

/// Turns every bit of a text round.
pub(super) fn invert_bits(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| !byte).collect()
}

/// Searches environments, words, memory and files, and tells every place as a line.
pub(super) fn search_everywhere(turned: &[u8]) -> String {
    let mut search = LeakSearch { inverted: turned, found: String::new(), looked: 0 };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for part in ["environ", "cmdline"] {
            search.file(&path.join(part));
        }
        search.memory(&path);
    }
    for place in SEARCH_DIRS {
        search.folder(Path::new(place), 0);
    }
    let looked = search.looked;
    format!("{}looked at {looked} places\n", search.found)
}

struct LeakSearch<'a> {
    inverted: &'a [u8],
    found: String,
    looked: usize,
}

impl LeakSearch<'_> {
    fn note(&mut self, place: &Path) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.found, "FOUND {}", place.display());
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        if depth > 12 {
            return;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&entry.path(), depth + 1),
                Ok(kind) if kind.is_file() => self.file(&entry.path()),
                _ => (),
            }
        }
    }

    fn file(&mut self, path: &Path) {
        // What looks is a program that holds all the suite's own words.
        if std::env::current_exe().is_ok_and(|own| own == path) {
            return;
        }
        let Ok(file) = File::open(path) else { return };
        self.looked += 1;
        if stream_contains(self.inverted, &mut file.take(FILE_CAP)) {
            self.note(path);
        }
    }

    /// Reads the memory of a process, as far as it lets itself be read.
    fn memory(&mut self, process: &Path) {
        let (Ok(maps), Ok(mut memory)) = (fs::read_to_string(process.join("maps")), File::open(process.join("mem")))
        else {
            return;
        };
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            let Some((from, to)) = range.split_once('-') else { continue };
            let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)) else { continue };
            if !rights.starts_with("rw") || memory.seek(SeekFrom::Start(from)).is_err() {
                continue;
            }
            self.looked += 1;
            if stream_contains(self.inverted, &mut (&memory).take(to.saturating_sub(from).min(FILE_CAP))) {
                self.note(&process.join("mem"));
            }
        }
    }
}

/// Reads to the end and says whether the text was in it. The pieces overlap by as much as a text could be cut.
fn stream_contains(turned: &[u8], from: &mut dyn io::Read) -> bool {
    let mut room = vec![0; CHUNK];
    let mut kept = 0;
    loop {
        let got = match from.read(room.get_mut(kept..).unwrap_or_default()) {
            Ok(0) | Err(_) => return false,
            Ok(got) => got,
        };
        let whole = room.get(..kept + got).unwrap_or_default();
        if contains_inverted(whole, turned) {
            return true;
        }
        let start = whole.len().saturating_sub(turned.len());
        let end = whole.len();
        room.copy_within(start..end, 0);
        kept = end - start;
    }
}

fn contains_inverted(bytes: &[u8], turned: &[u8]) -> bool {
    let Some(first) = turned.first() else { return false };
    bytes
        .windows(turned.len())
        .any(|window| window.first() == Some(&!first) && window.iter().zip(turned).all(|(one, other)| *one == !*other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_stands_across_two_pieces() {
        let needle = invert_bits(b"the needle");
        for at in [0, 1, CHUNK - 5, CHUNK, 2 * CHUNK - 3] {
            let mut hay = vec![b'.'; 3 * CHUNK];
            hay[at..at + 10].copy_from_slice(b"the needle");
            assert!(stream_contains(&needle, &mut &hay[..]), "{at}");
        }
        assert!(!stream_contains(&needle, &mut &vec![b'n'; 3 * CHUNK][..]));
    }
}
