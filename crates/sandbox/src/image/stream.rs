//! From compressed bytes to plain ones, with the limits that make a bomb harmless.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::io::{self, BufRead, Read};

use super::Limits;
use super::members::Skip;

/// How a layer or an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Recognises an encoding by its first bytes.
    pub(super) fn sniff(start: &[u8]) -> Self {
        if start.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }

    pub(super) fn decode<'a>(self, from: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Plain => Box::new(from),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(from)?),
        })
    }
}

/// Counts what is read through it.
pub(super) struct Counting<'a, R> {
    pub(super) inner: R,
    pub(super) count: &'a Cell<u64>,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.count.set(self.count.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// Counts unpacked bytes and ends the reading where a limit is passed.
pub(super) struct Meter<'a, R> {
    inner: R,
    limits: &'a Limits,
    /// Unpacked bytes of the whole image so far.
    total: &'a Cell<u64>,
    /// Compressed bytes of this stream so far.
    packed: &'a Cell<u64>,
    unpacked: u64,
}

impl<'a, R: Read> Meter<'a, R> {
    pub(super) fn new(inner: R, limits: &'a Limits, total: &'a Cell<u64>, packed: &'a Cell<u64>) -> Self {
        Self { inner, limits, total, packed, unpacked: 0 }
    }
}

impl<R: Read> Read for Meter<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.unpacked = self.unpacked.saturating_add(read as u64);
        grow(self.total, read as u64, self.limits)?;
        let allowed = self.packed.get().saturating_mul(self.limits.ratio).max(self.limits.ratio_from);
        if self.unpacked > allowed {
            let ratio = self.limits.ratio;
            return Err(Excess(format!("it unpacks to more than {ratio} times its size")).into());
        }
        Ok(read)
    }
}

impl<R: Read> Skip for Meter<'_, R> {}

/// Adds to the bytes of an image, and refuses what is too much.
pub(super) fn grow(total: &Cell<u64>, bytes: u64, limits: &Limits) -> Result<(), Excess> {
    total.set(total.get().saturating_add(bytes));
    if total.get() > limits.bytes {
        return Err(Excess(format!("the image unpacks to more than {} bytes", limits.bytes)));
    }
    Ok(())
}

/// A limit that was passed, travelling through readers as an I/O error.
#[derive(Debug)]
pub(super) struct Excess(pub(super) String);

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Excess {}

impl From<Excess> for io::Error {
    fn from(excess: Excess) -> Self {
        Self::other(excess)
    }
}

impl Excess {
    /// Finds the limit behind an I/O error.
    pub(super) fn behind(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}
