//! Splits chunks of output into lines of limited length.

/// Splits output into lines. A line that is too long is dropped: half of a JSON object is useless.
#[derive(Debug)]
pub struct LineSplitter {
    most: usize,
    kept: Vec<u8>,
    dropping: bool,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(4 << 20)
    }
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), dropping: false }
    }

    /// Adds a chunk and passes on every line it completes, without the line ending. Invalid UTF-8 is replaced.
    pub fn push(&mut self, chunk: &[u8], mut line: impl FnMut(&str)) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            if self.kept.len() + text.len() > self.most {
                self.dropping = true;
                self.kept = Vec::new();
            }
            if !self.dropping {
                self.kept.extend_from_slice(text);
            }
            if ended {
                self.emit_line(&mut line);
            }
        }
    }

    /// Passes on what follows the last line ending.
    pub fn finish(mut self, mut line: impl FnMut(&str)) {
        if !self.kept.is_empty() {
            self.emit_line(&mut line);
        }
    }

    fn emit_line(&mut self, line: &mut impl FnMut(&str)) {
        if !std::mem::take(&mut self.dropping) {
            let text = String::from_utf8_lossy(&self.kept);
            line(text.strip_suffix('\r').unwrap_or(&text));
        }
        self.kept.clear();
        // A single long line must not hold its memory for the rest of the session.
        self.kept.shrink_to(64 << 10);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(most: usize, chunks: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut got) = (LineSplitter::new(most), Vec::new());
        for chunk in chunks {
            reader.push(chunk, |line| got.push(line.to_owned()));
        }
        reader.finish(|line| got.push(line.to_owned()));
        got
    }

    #[test]
    fn output_is_split_into_lines() {
        for (most, chunks, want) in [
            (9, &[b"a\nb".as_slice(), b"c\r\n\nd"] as &[&[u8]], &["a", "bc", "", "d"] as &[&str]),
            (3, &[b"abc\nabcd\nab", b"cd", b"e\nf\n"], &["abc", "f"]),
            (3, &[b"abcdefg"], &[]),
            (9, &[b"\xff\n"], &["\u{fffd}"]),
        ] {
            assert_eq!(lines(most, chunks), want);
        }
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(bytes: Vec<u8>, at: prop::sample::Index) {
            let at = at.index(bytes.len() + 1);
            prop_assert_eq!(lines(8, &[&bytes[..at], &bytes[at..]]), lines(8, &[&bytes]));
        }

        #[test]
        fn no_line_exceeds_the_limit(chunks: Vec<Vec<u8>>) {
            let (mut reader, mut longest) = (LineSplitter::new(8), 0);
            for chunk in &chunks {
                reader.push(chunk, |line| longest = longest.max(line.chars().count()));
                prop_assert!(reader.kept.len() <= 8);
            }
            prop_assert!(longest <= 8);
        }
    }
}
