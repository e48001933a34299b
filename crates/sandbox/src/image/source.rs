//! Opens the files of an image, in a directory or in an archive that is read in place.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::decompress::{BlobCompression, CountingReader, LimitExceeded, LimitedReader};
use super::error::printable;
use super::tar_reader::{SkipRead, TarEntryKind, TarError, TarReader};
use super::{ImageError, ImageLimits, entry_path};
use crate::files::{self, RootDir};
use crate::random_name;

/// The most files an archive may have; the largest real archives have three per layer.
const MAX_MEMBERS: usize = 10_000;

#[derive(Debug)]
pub(super) enum ImageSource {
    Layout { root: RootDir, path: PathBuf, image: String },
    Archive { file: File, members: BTreeMap<Vec<u8>, ArchiveMember>, image: String },
}

/// What an archive has under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArchiveMember {
    Bytes {
        at: u64,
        size: u64,
    },
    /// Older versions of `docker save` store a layer that two images share once, and links to it.
    Link(Vec<u8>),
}

/// The content of one file of an image.
pub(super) struct BlobReader<'a> {
    pub(super) size: u64,
    reader: BlobContent<'a>,
}

enum BlobContent<'a> {
    File(File),
    Section(FileSection<'a>),
}

impl Read for BlobReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.reader {
            BlobContent::File(file) => file.read(into),
            BlobContent::Section(section) => section.read(into),
        }
    }
}

impl ImageSource {
    /// Opens an OCI image layout.
    pub(super) fn layout(dir: &Path, image: String) -> Result<Self, ImageError> {
        let read = |source| ImageError::Read { path: dir.to_owned(), source };
        let path = dir.canonicalize().map_err(read)?;
        match RootDir::open(&image, &path) {
            Ok(root) => Ok(Self::Layout { root, path, image }),
            Err(crate::Error::Host { source, .. }) => Err(read(source)),
            Err(other) => Err(read(io::Error::other(other))),
        }
    }

    /// Opens an archive; a compressed one is first unpacked into an unnamed file in `store`.
    pub(super) fn archive(path: &Path, image: String, store: &Path, limits: &ImageLimits) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(ImageError::Unusable { image, why: "it is not a file".to_owned() });
        }
        let mut start = Vec::new();
        file.by_ref().take(4).read_to_end(&mut start).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let encoding = BlobCompression::sniff(&start);
        if encoding != BlobCompression::Plain {
            file = decompress_to_file(file, encoding, &image, path, store, limits)?;
        }
        let size = file.metadata().map_err(failed)?.len();
        let members = index(&file, size, &image, path, limits)?;
        Ok(Self::Archive { file, members, image })
    }

    pub(super) fn image(&self) -> &str {
        match self {
            Self::Layout { image, .. } | Self::Archive { image, .. } => image,
        }
    }

    /// Opens a file of the image; `None` if no file has this name.
    pub(super) fn open(&self, name: &str) -> Result<Option<BlobReader<'_>>, ImageError> {
        match self {
            Self::Layout { root, path, .. } => {
                let whole = path.join(name);
                let failed = |source| ImageError::Read { path: whole.clone(), source };
                match files::open(root, Path::new(name), u64::MAX) {
                    Ok(file) => {
                        let size = file.metadata().map_err(failed)?.len();
                        Ok(Some(BlobReader { size, reader: BlobContent::File(file) }))
                    }
                    Err(crate::Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(crate::Error::File { source, .. }) => Err(failed(source)),
                    Err(crate::Error::Refused { why, .. }) => Err(failed(io::Error::other(why))),
                    Err(other) => Err(failed(io::Error::other(other))),
                }
            }
            Self::Archive { file, members, .. } => {
                let mut key = name.as_bytes();
                for _ in 0..2 {
                    match members.get(key) {
                        Some(ArchiveMember::Bytes { at, size }) => {
                            let section = FileSection { file, at: *at, left: *size };
                            return Ok(Some(BlobReader { size: *size, reader: BlobContent::Section(section) }));
                        }
                        Some(ArchiveMember::Link(target)) => key = target,
                        None => return Ok(None),
                    }
                }
                Ok(None)
            }
        }
    }

    /// Reads a whole document of the image.
    pub(super) fn document(&self, name: &str, what: &str, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(blob) = self.open(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let path = PathBuf::from(name);
        blob.take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|source| ImageError::Read { path, source })?;
        if bytes.len() as u64 > limit {
            return Err(ImageError::Large { image: self.image().to_owned(), what: what.to_owned(), limit });
        }
        Ok(Some(bytes))
    }
}

/// A part of a file, read without moving the file's own position, so that several parts can be open.
pub(super) struct FileSection<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for FileSection<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read_at(into.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl SkipRead for BufReader<FileSection<'_>> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let buffered = (self.buffer().len() as u64).min(bytes);
        self.consume(usize::try_from(buffered).unwrap_or(0));
        let rest = bytes - buffered;
        let section = self.get_mut();
        if rest > section.left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        section.at += rest;
        section.left -= rest;
        Ok(())
    }
}

/// Builds an index of an archive's files by name.
fn index(
    file: &File,
    size: u64,
    image: &str,
    path: &Path,
    limits: &ImageLimits,
) -> Result<BTreeMap<Vec<u8>, ArchiveMember>, ImageError> {
    let unusable = |why: String| ImageError::Unusable { image: image.to_owned(), why };
    let mut reader = TarReader::new(BufReader::new(FileSection { file, at: 0, left: size }), limits);
    let mut members = BTreeMap::new();
    loop {
        let member = match reader.next() {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(members),
            Err(TarError::Io(error)) if error.kind() == io::ErrorKind::InvalidData && members.is_empty() => {
                return Err(unusable("it is not a tar archive".to_owned()));
            }
            Err(TarError::Io(source)) => return Err(ImageError::Read { path: path.to_owned(), source }),
            Err(TarError::Refused { name, why }) => {
                return Err(unusable(format!("`{}` in it: {why}", printable(&name))));
            }
        };
        let refused = |why: &str| unusable(format!("`{}` in it: {why}", printable(&member.name)));
        let names = entry_path::parse(&member.name, limits).map_err(refused)?;
        let stored = match member.kind {
            TarEntryKind::File if member.extents.is_none() => {
                ArchiveMember::Bytes { at: member.at, size: member.stored }
            }
            TarEntryKind::Symlink => ArchiveMember::Link(
                resolve_link(&names, &member.link).ok_or_else(|| refused("its link leads outside"))?,
            ),
            TarEntryKind::Directory => continue,
            _ => return Err(refused("it is not a plain file")),
        };
        if members.len() == MAX_MEMBERS {
            return Err(unusable(format!("it holds more than {MAX_MEMBERS} files")));
        }
        if members.insert(names.join(&b'/'), stored).is_some() {
            return Err(refused("it occurs twice"));
        }
    }
}

/// Returns the archive name that a relative link points to.
fn resolve_link(names: &[&[u8]], link: &[u8]) -> Option<Vec<u8>> {
    let mut way: Vec<&[u8]> = names.get(..names.len().checked_sub(1)?)?.to_vec();
    if link.starts_with(b"/") {
        return None;
    }
    for part in link.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => (),
            b".." => drop(way.pop()?),
            part => way.push(part),
        }
    }
    Some(way.join(&b'/'))
}

/// Unpacks a compressed archive, because its files are looked up by name.
fn decompress_to_file(
    file: File,
    encoding: BlobCompression,
    image: &str,
    path: &Path,
    store: &Path,
    limits: &ImageLimits,
) -> Result<File, ImageError> {
    let temporary = store.join(format!("{}.tmp", random_name::random()));
    let failed = |doing| {
        let path = temporary.clone();
        move |source| ImageError::Store { doing, path, source }
    };
    let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).to_owned();
    let mut to = options.open(&temporary).map_err(failed("create"))?;
    // Without a name the file disappears with this process, even if the process is killed.
    std::fs::remove_file(&temporary).map_err(failed("remove"))?;
    let (packed, total) = (Cell::new(0), Cell::new(0));
    let counted = CountingReader { inner: file, count: &packed };
    let unreadable = |source: io::Error| match LimitExceeded::downcast_from(&source) {
        Some(LimitExceeded(why)) => ImageError::Unusable { image: image.to_owned(), why: why.clone() },
        None => ImageError::Read { path: path.to_owned(), source },
    };
    let plain = encoding.decode(BufReader::new(counted)).map_err(unreadable)?;
    io::copy(&mut LimitedReader::new(plain, limits, &total, &packed), &mut to).map_err(unreadable)?;
    Ok(to)
}
