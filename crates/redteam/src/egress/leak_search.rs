//! Searches everything that a process inside can see for a text that it does not contain itself: the text is passed
//! with all bits inverted, so that the search does not find itself.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const CHUNK: usize = 1 << 16;
/// Larger files are skipped: nothing fills one in a minute to hide a text.
const FILE_CAP: u64 = 64 << 20;
/// Where a secret could be. The host's own programs contain no secret of a run.
const SEARCH_DIRS: [&str; 9] =
    ["/workspace", "/home", "/exchange", "/tmp", "/run", "/etc", "/dev/shm", "/var", "/root"];

/// Inverts every bit of a text.
pub(super) fn invert_bits(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| !byte).collect()
}

/// Searches environments, command lines, memory and files, and returns a line for every match.
pub(super) fn search_everywhere(inverted: &[u8]) -> String {
    let mut search = LeakSearch { inverted, found: String::new(), looked: 0 };
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
        // Skips the searching program, which contains the suite's own strings.
        if std::env::current_exe().is_ok_and(|own| own == path) {
            return;
        }
        let Ok(file) = File::open(path) else { return };
        self.looked += 1;
        if stream_contains(self.inverted, &mut file.take(FILE_CAP)) {
            self.note(path);
        }
    }

    /// Searches the memory of a process, as far as it is readable.
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

/// Reads to the end and returns whether the text was found. The chunks overlap by the length of the text.
fn stream_contains(inverted: &[u8], from: &mut dyn io::Read) -> bool {
    let mut room = vec![0; CHUNK];
    let mut kept = 0;
    loop {
        let got = match from.read(room.get_mut(kept..).unwrap_or_default()) {
            Ok(0) | Err(_) => return false,
            Ok(got) => got,
        };
        let whole = room.get(..kept + got).unwrap_or_default();
        if contains_inverted(whole, inverted) {
            return true;
        }
        let start = whole.len().saturating_sub(inverted.len());
        let end = whole.len();
        room.copy_within(start..end, 0);
        kept = end - start;
    }
}

fn contains_inverted(bytes: &[u8], inverted: &[u8]) -> bool {
    let Some(first) = inverted.first() else { return false };
    bytes.windows(inverted.len()).any(|window| {
        window.first() == Some(&!first) && window.iter().zip(inverted).all(|(one, other)| *one == !*other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_text_across_two_chunks() {
        let needle = invert_bits(b"the needle");
        for at in [0, 1, CHUNK - 5, CHUNK, 2 * CHUNK - 3] {
            let mut hay = vec![b'.'; 3 * CHUNK];
            hay[at..at + 10].copy_from_slice(b"the needle");
            assert!(stream_contains(&needle, &mut &hay[..]), "{at}");
        }
        assert!(!stream_contains(&needle, &mut &vec![b'n'; 3 * CHUNK][..]));
    }
}
