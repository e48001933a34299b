//! Decompresses layers and archives, with limits against decompression bombs.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::io::{self, BufRead, Read};

use super::ImageLimits;
use super::tar_reader::SkipRead;

/// How a layer or an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobCompression {
    Plain,
    Gzip,
    Zstd,
}

impl BlobCompression {
    /// Detects the compression from the first bytes.
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

/// A reader that counts what is read through it.
pub(super) struct CountingReader<'a, R> {
    pub(super) inner: R,
    pub(super) count: &'a Cell<u64>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.count.set(self.count.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// A reader that counts unpacked bytes and fails at a limit.
pub(super) struct LimitedReader<'a, R> {
    inner: R,
    limits: &'a ImageLimits,
    /// Unpacked bytes of the whole image so far.
    total: &'a Cell<u64>,
    /// Compressed bytes of this stream so far.
    packed: &'a Cell<u64>,
    unpacked: u64,
}

impl<'a, R: Read> LimitedReader<'a, R> {
    pub(super) fn new(inner: R, limits: &'a ImageLimits, total: &'a Cell<u64>, packed: &'a Cell<u64>) -> Self {
        Self { inner, limits, total, packed, unpacked: 0 }
    }
}

impl<R: Read> Read for LimitedReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.unpacked = self.unpacked.saturating_add(read as u64);
        add_bytes(self.total, read as u64, self.limits)?;
        let allowed = self.packed.get().saturating_mul(self.limits.ratio).max(self.limits.ratio_from);
        if self.unpacked > allowed {
            let ratio = self.limits.ratio;
            return Err(LimitExceeded(format!("it unpacks to more than {ratio} times its size")).into());
        }
        Ok(read)
    }
}

impl<R: Read> SkipRead for LimitedReader<'_, R> {}

/// Adds to the byte count of an image, and fails if it exceeds the limit.
pub(super) fn add_bytes(total: &Cell<u64>, bytes: u64, limits: &ImageLimits) -> Result<(), LimitExceeded> {
    total.set(total.get().saturating_add(bytes));
    if total.get() > limits.bytes {
        return Err(LimitExceeded(format!("the image unpacks to more than {} bytes", limits.bytes)));
    }
    Ok(())
}

/// An exceeded limit, passed through readers as an I/O error.
#[derive(Debug)]
pub(super) struct LimitExceeded(pub(super) String);

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for LimitExceeded {}

impl From<LimitExceeded> for io::Error {
    fn from(excess: LimitExceeded) -> Self {
        Self::other(excess)
    }
}

impl LimitExceeded {
    /// Returns the exceeded limit inside an I/O error.
    pub(super) fn downcast_from(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}
