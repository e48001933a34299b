//! Applies one layer to the tree: its additions, replacements and whiteouts.
//!
//! Extended attributes and owners are ignored: everything belongs to the invoking user. Devices are never created.
//! The few that old base images have under `dev/` are skipped, because a sandbox has its own `/dev`; any other
//! device, fifo or unknown entry type refuses the image.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::decompress::{LimitExceeded, LimitedReader, add_bytes};
use super::error::printable;
use super::tar_reader::{self, SkipRead, TarEntry, TarEntryKind, TarReader};
use super::tree::{self, ImageTree};
use super::{ImageError, ImageLimits, entry_path};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bookkeeping entries of AUFS, a file system on which images were once built.
const AUFS_METADATA: &[u8] = b".wh..wh.";

/// Devices in `dev/` of images made from an installed system.
const DEVICES: [&[u8]; 9] = [b"console", b"full", b"fuse", b"null", b"ptmx", b"random", b"tty", b"urandom", b"zero"];

/// Counts over all layers of an image.
#[derive(Debug, Default)]
pub(super) struct UnpackTotals {
    pub(super) bytes: Cell<u64>,
    pub(super) entries: Cell<u64>,
}

/// Applies a layer from an already decompressed stream; `layer` counts from one, for messages.
pub(super) fn apply_layer(
    tree: &mut ImageTree<'_>,
    stream: impl SkipRead,
    layer: usize,
    progress: &UnpackTotals,
    limits: &ImageLimits,
) -> Result<(), ImageError> {
    tree.next_layer();
    let mut members = TarReader::new(stream, limits);
    let mut last = Vec::new();
    loop {
        let member = match members.next() {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(()),
            Err(tar_reader::TarError::Io(error)) => return Err(stream_error(layer, &last, error)),
            Err(tar_reader::TarError::Refused { name, why }) => {
                return Err(ImageError::Entry { layer, entry: printable(&name), why });
            }
        };
        progress.entries.set(progress.entries.get().saturating_add(1));
        if progress.entries.get() > limits.entries {
            let why = format!("the image has more than {} entries", limits.entries);
            return Err(ImageError::Limit { layer, entry: printable(&member.name), why });
        }
        apply_entry(tree, &mut members, &member, progress, limits).map_err(|fault| match fault {
            LayerEntryError::Tree(tree::ImageTreeError::Refused(why)) => {
                ImageError::Entry { layer, entry: printable(&member.name), why }
            }
            LayerEntryError::Tree(tree::ImageTreeError::Io(source))
                if LimitExceeded::downcast_from(&source).is_none() =>
            {
                ImageError::Unpack { layer, entry: printable(&member.name), source }
            }
            LayerEntryError::Tree(tree::ImageTreeError::Io(error)) | LayerEntryError::Stream(error) => {
                stream_error(layer, &member.name, error)
            }
        })?;
        last = member.name;
    }
}

/// Unpacks one uncompressed layer into an empty directory, for tests without a whole image.
#[doc(hidden)]
pub fn unpack_layer(tar: impl Read, into: &Path, limits: &ImageLimits) -> Result<(), ImageError> {
    let failed = |source| ImageError::Store { doing: "unpack into", path: into.to_owned(), source };
    let mut tree = ImageTree::open(into, limits).map_err(failed)?;
    let progress = UnpackTotals::default();
    let packed = Cell::new(u64::MAX);
    let stream = LimitedReader::new(tar, limits, &progress.bytes, &packed);
    apply_layer(&mut tree, stream, 1, &progress, limits)?;
    tree.finish().map_err(failed)
}

enum LayerEntryError {
    Tree(tree::ImageTreeError),
    /// The layer itself could not be read any further.
    Stream(io::Error),
}

impl From<tree::ImageTreeError> for LayerEntryError {
    fn from(fault: tree::ImageTreeError) -> Self {
        Self::Tree(fault)
    }
}

fn refused(why: &'static str) -> LayerEntryError {
    LayerEntryError::Tree(tree::ImageTreeError::Refused(why))
}

fn apply_entry(
    tree: &mut ImageTree<'_>,
    content: &mut TarReader<'_, impl SkipRead>,
    member: &TarEntry,
    progress: &UnpackTotals,
    limits: &ImageLimits,
) -> Result<(), LayerEntryError> {
    let names = entry_path::parse(&member.name, limits).map_err(refused)?;
    let Some((last, parents)) = names.split_last() else {
        return match member.kind {
            TarEntryKind::Directory => Ok(tree.directory(&[], member.mode, member.mtime)?),
            _ => Err(refused("the root of the image can only be a directory")),
        };
    };
    if parents.iter().any(|name| name.starts_with(WHITEOUT)) {
        return Err(refused("a directory in its path is named like a whiteout"));
    }
    if last.starts_with(WHITEOUT) {
        return apply_whiteout(tree, member, parents, last);
    }
    match member.kind {
        TarEntryKind::Directory => Ok(tree.directory(&names, member.mode, member.mtime)?),
        TarEntryKind::Symlink => Ok(tree.symlink(&names, &member.link, member.mtime)?),
        TarEntryKind::Hardlink => {
            let target = entry_path::parse(&member.link, limits)
                .map_err(|_| refused("it is a hard link to a path that is not plain"))?;
            Ok(tree.hardlink(&names, &target)?)
        }
        TarEntryKind::Character if matches!(names.as_slice(), [b"dev", name] if DEVICES.contains(name)) => Ok(()),
        TarEntryKind::Fifo if matches!(names.as_slice(), [b"dev", b"initctl"]) => Ok(()),
        TarEntryKind::Character | TarEntryKind::Block => Err(refused("it is a device")),
        TarEntryKind::Fifo => Err(refused("it is a named pipe")),
        TarEntryKind::File => write_file(tree, content, member, &names, progress, limits),
    }
}

fn apply_whiteout(
    tree: &mut ImageTree<'_>,
    member: &TarEntry,
    parents: &[&[u8]],
    last: &[u8],
) -> Result<(), LayerEntryError> {
    if !matches!(member.kind, TarEntryKind::File | TarEntryKind::Hardlink) {
        return Err(refused("a whiteout can only be a file"));
    }
    if last == OPAQUE {
        return Ok(tree.hide_children(parents)?);
    }
    if last.starts_with(AUFS_METADATA) {
        return Ok(());
    }
    match last.strip_prefix(WHITEOUT).unwrap_or_default() {
        b"" | b"." | b".." => Err(refused("it is a whiteout without a valid name")),
        hidden => Ok(tree.hide(&[parents, &[hidden]].concat())?),
    }
}

fn write_file(
    tree: &mut ImageTree<'_>,
    content: &mut TarReader<'_, impl SkipRead>,
    member: &TarEntry,
    names: &[&[u8]],
    progress: &UnpackTotals,
    limits: &ImageLimits,
) -> Result<(), LayerEntryError> {
    if member.size > limits.file {
        let excess = LimitExceeded(format!("a file is larger than {} bytes", limits.file));
        return Err(LayerEntryError::Stream(excess.into()));
    }
    // Stored bytes are counted where they are read; holes are added here.
    let holes = member.size.saturating_sub(member.stored);
    add_bytes(&progress.bytes, holes, limits).map_err(|excess| LayerEntryError::Stream(excess.into()))?;
    let mut file = tree.file(names)?;
    let failed = |error| LayerEntryError::Tree(tree::ImageTreeError::Io(error));
    match &member.extents {
        None => copy(content, &mut file, member.size)?,
        Some(pieces) => {
            for piece in pieces {
                file.seek(SeekFrom::Start(piece.offset)).map_err(failed)?;
                copy(content, &mut file, piece.length)?;
            }
            file.set_len(member.size).map_err(failed)?;
        }
    }
    tree::set_mode_and_time(&file, member.mode, member.mtime).map_err(failed)
}

/// Copies from the layer into a file. Read and write errors stay apart, because the user gets different messages for
/// them.
fn copy(from: &mut impl Read, to: &mut impl Write, mut left: u64) -> Result<(), LayerEntryError> {
    let mut buffer = [0; 16 << 10];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = match from.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(0) => return Err(LayerEntryError::Stream(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LayerEntryError::Stream(error)),
        };
        to.write_all(buffer.get(..read).unwrap_or_default())
            .map_err(|error| LayerEntryError::Tree(tree::ImageTreeError::Io(error)))?;
        left -= read as u64;
    }
    Ok(())
}

pub(super) fn stream_error(layer: usize, entry: &[u8], error: io::Error) -> ImageError {
    match LimitExceeded::downcast_from(&error) {
        Some(LimitExceeded(why)) => ImageError::Limit { layer, entry: printable(entry), why: why.clone() },
        None => ImageError::Layer { layer, source: error },
    }
}
