//! Parses the extended headers of a tar: longer names, larger sizes, finer times, and the maps of sparse files.
//!
//! Records are split by their lengths, as the format requires, so a value may contain line breaks. Extended
//! attributes are ignored: an unpacked image has none.

/// What the extended headers before an entry say about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaxHeader {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<TarTimestamp>,
    pub(super) sparse: Option<PaxSparse>,
}

/// A sparse file whose map is stored at the start of its data (GNU format 1.0).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

/// A time, in seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TarTimestamp {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

impl TarTimestamp {
    /// Clamps the time to what every file system in use can store.
    pub(super) fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds: seconds.clamp(-(1 << 31), 1 << 33), nanoseconds: nanoseconds.min(999_999_999) }
    }

    /// Parses seconds with an optional fraction.
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let seconds: i64 = whole.parse().ok()?;
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let nanoseconds: u32 = digits.parse().ok()?;
        // The fraction has the sign of the whole number: -1.5 is before -1, but nanoseconds only count up.
        if whole.starts_with('-') && nanoseconds > 0 {
            return Some(Self::new(seconds.saturating_sub(1), 1_000_000_000 - nanoseconds));
        }
        Some(Self::new(seconds, nanoseconds))
    }
}

const MALFORMED: &str = "its extended header is malformed";

/// Parses the records of one extended header.
pub(super) fn parse(records: &[u8]) -> Result<PaxHeader, &'static str> {
    let mut extended = PaxHeader::default();
    let mut sparse = PaxSparse::default();
    let mut rest = records;
    while !rest.is_empty() {
        let (key, value, after) = record(rest).ok_or(MALFORMED)?;
        rest = after;
        // An empty value cancels an earlier one.
        let bytes = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => extended.path = bytes(),
            b"linkpath" => extended.link = bytes(),
            b"size" => extended.size = number(value)?,
            b"mtime" => {
                let text = std::str::from_utf8(value).map_err(|_| MALFORMED)?;
                extended.mtime = if text.is_empty() { None } else { Some(TarTimestamp::parse(text).ok_or(MALFORMED)?) };
            }
            b"GNU.sparse.major" => sparse.major = number(value)?,
            b"GNU.sparse.minor" => sparse.minor = number(value)?,
            b"GNU.sparse.name" => sparse.name = bytes(),
            b"GNU.sparse.realsize" => sparse.size = number(value)?,
            b"GNU.sparse.map" | b"GNU.sparse.offset" | b"GNU.sparse.numbytes" | b"GNU.sparse.numblocks" => {
                return Err("it is a sparse file in an old format");
            }
            _ => (),
        }
    }
    if sparse != PaxSparse::default() {
        if (sparse.major, sparse.minor) != (Some(1), Some(0)) {
            return Err("it is a sparse file in an unknown format");
        }
        extended.sparse = Some(sparse);
    }
    Ok(extended)
}

/// Returns the key and value of the first record, and the rest.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(bytes.get(..space)?).ok()??).ok()?;
    let (record, rest) = (bytes.get(space + 1..length)?, bytes.get(length..)?);
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

/// Parses a decimal number; empty input is `None`.
pub(super) fn number(digits: &[u8]) -> Result<Option<u64>, &'static str> {
    if digits.is_empty() {
        return Ok(None);
    }
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    let text = std::str::from_utf8(digits).map_err(|_| MALFORMED)?;
    text.parse().map(Some).map_err(|_| MALFORMED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(records: &str, want: Result<PaxHeader, &str>) {
        assert_eq!(parse(records.as_bytes()).map_err(str::to_owned), want.map_err(str::to_owned), "{records:?}");
    }

    #[test]
    fn records() {
        check("", Ok(PaxHeader::default()));
        check("9 path=a\n", Ok(PaxHeader { path: Some(b"a".to_vec()), ..PaxHeader::default() }));
        check(
            "13 path=a\nb\n\n9 size=7\n",
            Ok(PaxHeader { path: Some(b"a\nb\n".to_vec()), size: Some(7), ..PaxHeader::default() }),
        );
        check("9 path=a\n8 path=\n", Ok(PaxHeader::default()));
        check("9 size=x\n", Err(MALFORMED));
        check("10 size=-1\n", Err(MALFORMED));
        check("9 path=ab\n", Err(MALFORMED));
        check("99 path=a\n", Err(MALFORMED));
        check("2 path=a\n", Err(MALFORMED));
        check("path=a\n", Err(MALFORMED));
        check("999999999999999999999999 path=a\n", Err(MALFORMED));
        check("22 GNU.sparse.major=0\n", Err("it is a sparse file in an unknown format"));
        check("24 GNU.sparse.map=0,512\n", Err("it is a sparse file in an old format"));
    }

    #[track_caller]
    fn time(text: &str, want: Option<(i64, u32)>) {
        let want = want.map(|(seconds, nanoseconds)| TarTimestamp { seconds, nanoseconds });
        assert_eq!(TarTimestamp::parse(text), want, "{text:?}");
    }

    #[test]
    fn times() {
        time("1700000000", Some((1_700_000_000, 0)));
        time("1700000000.25", Some((1_700_000_000, 250_000_000)));
        time("1.0000000019", Some((1, 1)));
        time("-1.5", Some((-2, 500_000_000)));
        time("-0.5", Some((-1, 500_000_000)));
        time("99999999999999999", Some((1 << 33, 0)));
        time("-99999999999999999", Some((-(1 << 31), 0)));
        time("1.-5", None);
        time("x", None);
        time("", None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(records in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&records);
        }

        #[test]
        fn nearly_valid_records_do_not_panic(records in "([0-9]{1,3} (path|size|mtime|GNU.sparse.major)=[0-9a.é\n-]{0,6}\n?){0,4}") {
            let _ = parse(records.as_bytes());
        }
    }
}
