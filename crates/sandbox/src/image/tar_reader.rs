//! Reads a tar from a stream, one member after another.
//!
//! The `tar` crate reads the fields of a header. This module iterates over the headers itself for three reasons: a
//! hostile archive must not decide how much memory an extended header takes, values may contain line breaks, and
//! anything that two readers could interpret differently is refused instead of guessed.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::ImageLimits;
use super::pax_header::{self, PaxHeader, TarTimestamp};

const BLOCK: usize = 512;
/// The most extents of a sparse file.
const MAX_EXTENTS: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TarEntryKind {
    File,
    Directory,
    Symlink,
    Hardlink,
    Character,
    Block,
    Fifo,
}

/// One member of an archive, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TarEntry {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: TarEntryKind,
    pub(super) mode: u32,
    pub(super) mtime: TarTimestamp,
    /// The size of the file once unpacked.
    pub(super) size: u64,
    /// Where the stored bytes belong, for a sparse file.
    pub(super) extents: Option<Vec<SparseExtent>>,
    /// The offset of the stored bytes in the archive, and their number.
    pub(super) at: u64,
    pub(super) stored: u64,
}

/// A part of a sparse file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SparseExtent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Why there is no next member.
#[derive(Debug)]
pub(super) enum TarError {
    Io(io::Error),
    Refused { name: Vec<u8>, why: &'static str },
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A reader that may be able to skip bytes without reading them.
pub(super) trait SkipRead: Read + Sized {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.by_ref().take(bytes), &mut io::sink())?;
        if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

pub(super) struct TarReader<'a, R> {
    inner: R,
    limits: &'a ImageLimits,
    position: u64,
    /// Bytes of the current member that are not read yet, and its padding.
    left: u64,
    padding: u64,
}

impl<'a, R: SkipRead> TarReader<'a, R> {
    pub(super) fn new(inner: R, limits: &'a ImageLimits) -> Self {
        Self { inner, limits, position: 0, left: 0, padding: 0 }
    }

    /// Moves to the next member, skipping what was not read of the current one.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>, TarError> {
        let mut extended: Option<PaxHeader> = None;
        let (mut long_name, mut long_link) = (None, None);
        loop {
            self.skip_rest()?;
            let announced = extended.is_some() || long_name.is_some() || long_link.is_some();
            let Some(header) = self.header()? else {
                return if announced { Err(refused(b"", "an extended header has no entry")) } else { Ok(None) };
            };
            let name = header.path_bytes().into_owned();
            let twice = || Err(refused(&name, "two extended headers of one kind describe one entry"));
            match header.entry_type() {
                EntryType::GNULongName if long_name.is_some() => return twice(),
                EntryType::GNULongName => long_name = Some(self.read_long_name(&header, &name)?),
                EntryType::GNULongLink if long_link.is_some() => return twice(),
                EntryType::GNULongLink => long_link = Some(self.read_long_name(&header, &name)?),
                EntryType::XHeader if extended.is_some() => return twice(),
                EntryType::XHeader => {
                    let records = self.read_extended_header(&header, &name)?;
                    extended = Some(pax_header::parse(&records).map_err(|why| refused(&name, why))?);
                }
                EntryType::XGlobalHeader => {
                    let records = self.read_extended_header(&header, &name)?;
                    let global = pax_header::parse(&records).map_err(|why| refused(&name, why))?;
                    // Comments are common here; a name or size that applies to everything after it is an attack.
                    if (PaxHeader { mtime: None, ..global }) != PaxHeader::default() {
                        return Err(refused(&name, "a global header changes names or sizes"));
                    }
                }
                _ => return self.read_entry(&header, extended.unwrap_or_default(), long_name, long_link).map(Some),
            }
        }
    }

    fn read_entry(
        &mut self,
        header: &Header,
        extended: PaxHeader,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<TarEntry, TarError> {
        let own = header.path_bytes().into_owned();
        let sparse_name = extended.sparse.as_ref().and_then(|sparse| sparse.name.clone());
        if long_name.is_some() && extended.path.is_some() || long_link.is_some() && extended.link.is_some() {
            return Err(refused(&own, "two extended headers of one kind describe one entry"));
        }
        let name = sparse_name.or(extended.path).or(long_name).unwrap_or(own);
        let own_link = || header.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
        let link = extended.link.or(long_link).unwrap_or_else(own_link);
        let kind = match header.entry_type() {
            EntryType::Regular if name.ends_with(b"/") => TarEntryKind::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => TarEntryKind::File,
            EntryType::Directory => TarEntryKind::Directory,
            EntryType::Symlink => TarEntryKind::Symlink,
            EntryType::Link => TarEntryKind::Hardlink,
            EntryType::Char => TarEntryKind::Character,
            EntryType::Block => TarEntryKind::Block,
            EntryType::Fifo => TarEntryKind::Fifo,
            _ => return Err(refused(&name, "it has an unknown type")),
        };
        let size = match extended.size {
            Some(size) => size,
            None => size_of(header).ok_or_else(|| refused(&name, "its size is malformed"))?,
        };
        if kind != TarEntryKind::File && size != 0 {
            return Err(refused(&name, "it has content although it is not a file"));
        }
        let mode = match &header.as_old().mode {
            field if is_blank(field) => 0,
            _ => header.mode().map_err(|_| refused(&name, "its mode is malformed"))?,
        };
        let mtime = extended.mtime.unwrap_or_else(|| {
            TarTimestamp::new(header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0), 0)
        });
        self.set_remaining(size, &name)?;
        let mut member = TarEntry { name, link, kind, mode, mtime, size, extents: None, at: 0, stored: size };
        if header.entry_type() == EntryType::GNUSparse {
            self.read_gnu_sparse_map(header, &mut member)?;
        } else if let Some(sparse) = extended.sparse {
            if kind != TarEntryKind::File {
                return Err(refused(&member.name, "it has content although it is not a file"));
            }
            self.read_pax_sparse_map(sparse.size, &mut member)?;
        }
        member.at = self.position;
        Ok(member)
    }

    /// Reads the map of a sparse file from its header and the blocks that may follow it.
    fn read_gnu_sparse_map(&mut self, header: &Header, member: &mut TarEntry) -> Result<(), TarError> {
        let wrong = || refused(&member.name, "the map of this sparse file is malformed");
        let gnu = header.as_gnu().ok_or_else(wrong)?;
        let mut pieces = Vec::new();
        let mut add = |blocks: &[GnuSparseHeader]| -> Result<(), TarError> {
            for block in blocks.iter().filter(|block| !block.is_empty()) {
                let (Ok(offset), Ok(length)) = (block.offset(), block.length()) else { return Err(wrong()) };
                if pieces.len() == MAX_EXTENTS {
                    return Err(wrong());
                }
                pieces.push(SparseExtent { offset, length });
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut extension = GnuExtSparseHeader::new();
            self.inner.read_exact(extension.as_mut_bytes())?;
            self.position = self.position.saturating_add(BLOCK as u64);
            add(extension.sparse())?;
            more = extension.is_extended();
        }
        member.size = gnu.real_size().map_err(|_| wrong())?;
        check_sparse_map(&pieces, member.size, member.stored).ok_or_else(wrong)?;
        member.extents = Some(pieces);
        Ok(())
    }

    /// Reads the map of a sparse file from the beginning of its data: one number per line, padded to whole blocks.
    fn read_pax_sparse_map(&mut self, size: Option<u64>, member: &mut TarEntry) -> Result<(), TarError> {
        let wrong = || refused(&member.name, "the map of this sparse file is malformed");
        let size = size.ok_or_else(wrong)?;
        let mut text = Vec::new();
        let mut numbers: Vec<u64> = Vec::new();
        let mut wanted = 1;
        while numbers.len() < wanted {
            let mut block = [0; BLOCK];
            self.exact(&mut block).map_err(|_| wrong())?;
            text.extend_from_slice(&block);
            while numbers.len() < wanted {
                let Some(end) = text.iter().position(|byte| *byte == b'\n') else { break };
                let line: Vec<u8> = text.drain(..=end).collect();
                let number =
                    pax_header::number(line.strip_suffix(b"\n").unwrap_or(&line)).ok().flatten().ok_or_else(wrong)?;
                if numbers.is_empty() {
                    let count = usize::try_from(number).ok().filter(|count| *count <= MAX_EXTENTS).ok_or_else(wrong)?;
                    wanted += 2 * count;
                }
                numbers.push(number);
            }
            if text.len() > BLOCK && numbers.len() < wanted {
                return Err(wrong());
            }
        }
        let (pairs, _) = numbers.get(1..).unwrap_or_default().as_chunks::<2>();
        let pieces: Vec<SparseExtent> = pairs.iter().map(|&[offset, length]| SparseExtent { offset, length }).collect();
        member.stored = self.left;
        member.size = size;
        check_sparse_map(&pieces, member.size, member.stored).ok_or_else(wrong)?;
        member.extents = Some(pieces);
        Ok(())
    }

    /// Reads the next header; the archive ends with two empty blocks or with the end of the stream.
    fn header(&mut self) -> Result<Option<Header>, TarError> {
        let mut header = Header::new_old();
        if !self.block(header.as_mut_bytes())? {
            return Ok(None);
        }
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            let mut second = [0; BLOCK];
            let more = self.block(&mut second)? && second.iter().any(|byte| *byte != 0);
            return if more { Err(refused(b"", "something follows the end of the archive")) } else { Ok(None) };
        }
        let sum = |range: std::ops::Range<usize>| -> u32 {
            header.as_bytes().get(range).unwrap_or_default().iter().map(|byte| u32::from(*byte)).sum()
        };
        // The checksum is computed with its own eight bytes as spaces.
        let counted = sum(0..148) + 8 * 32 + sum(156..BLOCK);
        if header.cksum().ok() != Some(counted) {
            return Err(TarError::Io(io::Error::new(io::ErrorKind::InvalidData, "a tar header has a wrong checksum")));
        }
        Ok(Some(header))
    }

    /// Fills a block; `false` if the stream ended just before it.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> io::Result<bool> {
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.inner.read(rest) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        self.position = self.position.saturating_add(BLOCK as u64);
        Ok(true)
    }

    /// Returns the content of an extended header.
    fn read_extended_header(&mut self, header: &Header, name: &[u8]) -> Result<Vec<u8>, TarError> {
        let size = size_of(header).ok_or_else(|| refused(name, "its size is malformed"))?;
        if size > self.limits.header {
            return Err(refused(name, "its extended header is too large"));
        }
        self.set_remaining(size, name)?;
        let mut bytes = Vec::new();
        self.by_ref().take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(TarError::Io(io::ErrorKind::UnexpectedEof.into())) }
    }

    /// Returns a long name, which ends with a NUL byte.
    fn read_long_name(&mut self, header: &Header, name: &[u8]) -> Result<Vec<u8>, TarError> {
        let mut bytes = self.read_extended_header(header, name)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn set_remaining(&mut self, size: u64, name: &[u8]) -> Result<(), TarError> {
        let padding = size.wrapping_neg() % BLOCK as u64;
        // Sizes near the largest integer would overflow; no archive is that long.
        if size > i64::MAX.unsigned_abs() / 2 {
            return Err(refused(name, "its size is malformed"));
        }
        (self.left, self.padding) = (size, padding);
        Ok(())
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        if rest > 0 {
            self.inner.skip(rest)?;
            self.position = self.position.saturating_add(rest);
        }
        Ok(())
    }

    fn exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.read_exact(into)
    }
}

/// Reads the stored bytes of the current member.
impl<R: SkipRead> Read for TarReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(into.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}

fn refused(name: &[u8], why: &'static str) -> TarError {
    TarError::Refused { name: name.to_vec(), why }
}

fn size_of(header: &Header) -> Option<u64> {
    if is_blank(&header.as_old().size) { Some(0) } else { header.entry_size().ok() }
}

/// Returns whether a number field is blank, which all readers take as zero.
fn is_blank(field: &[u8]) -> bool {
    field.iter().all(|byte| matches!(byte, 0 | b' '))
}

/// Checks that the extents are in order, lie inside the file and use exactly the stored bytes.
fn check_sparse_map(pieces: &[SparseExtent], size: u64, stored: u64) -> Option<()> {
    let (mut end, mut sum) = (0_u64, 0_u64);
    for piece in pieces {
        if piece.offset < end {
            return None;
        }
        end = piece.offset.checked_add(piece.length)?;
        sum = sum.checked_add(piece.length)?;
    }
    (end <= size && sum == stored).then_some(())
}
