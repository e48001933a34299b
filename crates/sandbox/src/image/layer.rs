//! Applies one layer to the tree: what it adds, what it replaces and what it hides.
//!
//! Extended attributes and owners are passed over: everything belongs to the invoking user. Devices are never made. The
//! few that old base images have under `dev/` are skipped, because a sandbox has a `/dev` of its own; any other device,
//! fifo or unknown kind refuses the image.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::error::shown;
use super::members::{self, Kind, Member, Members, Skip};
use super::stream::{Excess, Meter, grow};
use super::tree::{self, Tree};
use super::{Error, Limits, name};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bookkeeping of a file system that images were once made on.
const BOOKKEEPING: &[u8] = b".wh..wh.";

/// What is in `dev/` of images made from an installed system.
const DEVICES: [&[u8]; 9] = [b"console", b"full", b"fuse", b"null", b"ptmx", b"random", b"tty", b"urandom", b"zero"];

/// Counts over all layers of an image.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: Cell<u64>,
    pub(super) entries: Cell<u64>,
}

/// Applies the layer in a stream that is decompressed already; `layer` counts from one, for messages.
pub(super) fn apply(
    tree: &mut Tree<'_>,
    stream: impl Skip,
    layer: usize,
    progress: &Progress,
    limits: &Limits,
) -> Result<(), Error> {
    tree.next_layer();
    let mut members = Members::new(stream, limits);
    let mut last = Vec::new();
    loop {
        let member = match members.next() {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(()),
            Err(members::Fault::Io(error)) => return Err(unreadable(layer, &last, error)),
            Err(members::Fault::Refused { name, why }) => {
                return Err(Error::Entry { layer, entry: shown(&name), why });
            }
        };
        progress.entries.set(progress.entries.get().saturating_add(1));
        if progress.entries.get() > limits.entries {
            let why = format!("the image has more than {} entries", limits.entries);
            return Err(Error::Limit { layer, entry: shown(&member.name), why });
        }
        place(tree, &mut members, &member, progress, limits).map_err(|fault| match fault {
            Fault::Tree(tree::Fault::Refused(why)) => Error::Entry { layer, entry: shown(&member.name), why },
            Fault::Tree(tree::Fault::Io(source)) if Excess::behind(&source).is_none() => {
                Error::Unpack { layer, entry: shown(&member.name), source }
            }
            Fault::Tree(tree::Fault::Io(error)) | Fault::Stream(error) => unreadable(layer, &member.name, error),
        })?;
        last = member.name;
    }
}

/// Unpacks one uncompressed layer into an empty directory; for tests that have no image around it.
#[doc(hidden)]
pub fn unpack_layer(tar: impl Read, into: &Path, limits: &Limits) -> Result<(), Error> {
    let failed = |source| Error::Store { doing: "unpack into", path: into.to_owned(), source };
    let mut tree = Tree::open(into, limits).map_err(failed)?;
    let progress = Progress::default();
    let packed = Cell::new(u64::MAX);
    let stream = Meter::new(tar, limits, &progress.bytes, &packed);
    apply(&mut tree, stream, 1, &progress, limits)?;
    tree.finish().map_err(failed)
}

enum Fault {
    Tree(tree::Fault),
    /// The layer itself could not be read on.
    Stream(io::Error),
}

impl From<tree::Fault> for Fault {
    fn from(fault: tree::Fault) -> Self {
        Self::Tree(fault)
    }
}

fn refused(why: &'static str) -> Fault {
    Fault::Tree(tree::Fault::Refused(why))
}

fn place(
    tree: &mut Tree<'_>,
    content: &mut Members<'_, impl Skip>,
    member: &Member,
    progress: &Progress,
    limits: &Limits,
) -> Result<(), Fault> {
    let names = name::parse(&member.name, limits).map_err(refused)?;
    let Some((last, parents)) = names.split_last() else {
        return match member.kind {
            Kind::Directory => Ok(tree.directory(&[], member.mode, member.mtime)?),
            _ => Err(refused("the root of the image can only be a directory")),
        };
    };
    if parents.iter().any(|name| name.starts_with(WHITEOUT)) {
        return Err(refused("a directory in its path has the name of a whiteout"));
    }
    if last.starts_with(WHITEOUT) {
        return whiteout(tree, member, parents, last);
    }
    match member.kind {
        Kind::Directory => Ok(tree.directory(&names, member.mode, member.mtime)?),
        Kind::Symlink => Ok(tree.symlink(&names, &member.link, member.mtime)?),
        Kind::Hardlink => {
            let target = name::parse(&member.link, limits)
                .map_err(|_| refused("it is a hard link to a path that is not plain"))?;
            Ok(tree.hardlink(&names, &target)?)
        }
        Kind::Character if matches!(names.as_slice(), [b"dev", name] if DEVICES.contains(name)) => Ok(()),
        Kind::Fifo if matches!(names.as_slice(), [b"dev", b"initctl"]) => Ok(()),
        Kind::Character | Kind::Block => Err(refused("it is a device")),
        Kind::Fifo => Err(refused("it is a named pipe")),
        Kind::File => file(tree, content, member, &names, progress, limits),
    }
}

fn whiteout(tree: &mut Tree<'_>, member: &Member, parents: &[&[u8]], last: &[u8]) -> Result<(), Fault> {
    if !matches!(member.kind, Kind::File | Kind::Hardlink) {
        return Err(refused("a whiteout can only be a file"));
    }
    if last == OPAQUE {
        return Ok(tree.hide_inside(parents)?);
    }
    if last.starts_with(BOOKKEEPING) {
        return Ok(());
    }
    match last.strip_prefix(WHITEOUT).unwrap_or_default() {
        b"" | b"." | b".." => Err(refused("it is a whiteout of no plain name")),
        hidden => Ok(tree.hide(&[parents, &[hidden]].concat())?),
    }
}

fn file(
    tree: &mut Tree<'_>,
    content: &mut Members<'_, impl Skip>,
    member: &Member,
    names: &[&[u8]],
    progress: &Progress,
    limits: &Limits,
) -> Result<(), Fault> {
    if member.size > limits.file {
        let excess = Excess(format!("a file is larger than {} bytes", limits.file));
        return Err(Fault::Stream(excess.into()));
    }
    // What is stored is counted where it is read; the holes come on top.
    let holes = member.size.saturating_sub(member.stored);
    grow(&progress.bytes, holes, limits).map_err(|excess| Fault::Stream(excess.into()))?;
    let mut file = tree.file(names)?;
    let failed = |error| Fault::Tree(tree::Fault::Io(error));
    match &member.pieces {
        None => copy(content, &mut file, member.size)?,
        Some(pieces) => {
            for piece in pieces {
                file.seek(SeekFrom::Start(piece.offset)).map_err(failed)?;
                copy(content, &mut file, piece.length)?;
            }
            file.set_len(member.size).map_err(failed)?;
        }
    }
    tree::seal(&file, member.mode, member.mtime).map_err(failed)
}

/// Copies from the layer into a file; whose fault an error is decides what the user is told.
fn copy(from: &mut impl Read, to: &mut impl Write, mut left: u64) -> Result<(), Fault> {
    let mut buffer = [0; 16 << 10];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = match from.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(0) => return Err(Fault::Stream(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::Stream(error)),
        };
        to.write_all(buffer.get(..read).unwrap_or_default()).map_err(|error| Fault::Tree(tree::Fault::Io(error)))?;
        left -= read as u64;
    }
    Ok(())
}

pub(super) fn unreadable(layer: usize, entry: &[u8], error: io::Error) -> Error {
    match Excess::behind(&error) {
        Some(Excess(why)) => Error::Limit { layer, entry: shown(entry), why: why.clone() },
        None => Error::Layer { layer, source: error },
    }
}
