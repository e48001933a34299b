//! Parses server-sent events step by step: bytes in any pieces, with any line ends, in bounded memory.

/// A line, or the data of one event, was longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SseTooLong;

/// The result of one step over the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SseStep {
    /// The bytes ended within a line.
    Part,
    /// The second half of a line end whose first half came before.
    Tail,
    Comment,
    /// A line of an event that has not ended.
    Field,
    /// The end of an event without data.
    Nothing,
    /// The end of an event, with its data lines joined.
    Event(Vec<u8>),
}

/// The parser of one stream of events.
#[derive(Debug)]
pub(super) struct SseParser {
    most: usize,
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    after_return: bool,
    first: bool,
}

impl SseParser {
    /// Creates a parser for lines and events of at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, line: Vec::new(), data: None, after_return: false, first: true }
    }

    /// Consumes bytes up to the end of the next line, and returns how many.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, SseStep), SseTooLong> {
        if std::mem::take(&mut self.after_return) && bytes.first() == Some(&b'\n') {
            return Ok((1, SseStep::Tail));
        }
        let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.append(bytes)?;
            return Ok((bytes.len(), SseStep::Part));
        };
        let (line, end) = bytes.split_at(at);
        self.append(line)?;
        let taken = match end {
            [b'\r', b'\n', ..] => 2,
            [b'\r'] => {
                self.after_return = true;
                1
            }
            _ => 1,
        };
        Ok((at + taken, self.end_line()?))
    }

    /// Ends the stream, and returns the data of an event that was not terminated.
    pub(super) fn finish(&mut self) -> Result<Option<Vec<u8>>, SseTooLong> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        Ok(self.data.take())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SseTooLong> {
        if self.line.len().saturating_add(bytes.len()) > self.most {
            return Err(SseTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<SseStep, SseTooLong> {
        let kept = std::mem::take(&mut self.line);
        let mark = std::mem::take(&mut self.first);
        let line = if mark { kept.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&kept) } else { &kept };
        if line.is_empty() {
            return Ok(self.data.take().map_or(SseStep::Nothing, SseStep::Event));
        }
        if line.starts_with(b":") {
            return Ok(SseStep::Comment);
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => Some(&[][..]),
            Some([b':', value @ ..]) => Some(value.strip_prefix(b" ").unwrap_or(value)),
            _ => None,
        };
        if let Some(value) = value {
            match &mut self.data {
                Some(data) => {
                    if data.len().saturating_add(value.len()) >= self.most {
                        return Err(SseTooLong);
                    }
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        }
        Ok(SseStep::Field)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]], most: usize) -> Result<Vec<String>, SseTooLong> {
        let mut sse = SseParser::new(most);
        let mut events = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (taken, step) = sse.step(rest)?;
                rest = &rest[taken..];
                if let SseStep::Event(data) = step {
                    events.push(String::from_utf8_lossy(&data).into_owned());
                }
            }
        }
        events.extend(sse.finish()?.map(|data| String::from_utf8_lossy(&data).into_owned()));
        Ok(events)
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
            assert_eq!(read(&[text.as_bytes()], 99).expect("short lines"), want, "{text:?}");
        }
    }

    #[test]
    fn events() {
        check("", &[]);
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("event: x\nid: 7\ndata:  a\n\n", &[" a"]);
        check("data: a\ndata\ndata: b\n\n", &["a\n\nb"]);
        check(": hello\n\n:\n\ndata: a\n: in between\n\n", &["a"]);
        check("\u{feff}data: a\n\n\n\n\ndata: \u{feff}b", &["a", "\u{feff}b"]);
        check("database: a\ndat: b\n data: c\nDATA: d\n\n", &[]);
        check("data: not closed", &["not closed"]);
        check("data: half\nda", &["half"]);
    }

    #[test]
    fn too_long() {
        assert_eq!(read(&[b"data: 1234\n\n"], 10), Ok(vec!["1234".to_owned()]));
        for text in ["data: 12345\n\n", ": 123456789", "data: 1234\ndata: 1234\ndata: 1\n\n"] {
            assert_eq!(read(&[text.as_bytes()], 10), Err(SseTooLong), "{text}");
        }
    }

    proptest! {
        #[test]
        fn splitting_the_input_makes_no_difference(
            text in "(data|:|[ a]|\r|\n|\r\n|\n\n|\u{feff}|é){0,40}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
            most in 1..30usize,
        ) {
            let bytes = text.as_bytes();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces, most), read(&[bytes], most));
        }
    }
}
