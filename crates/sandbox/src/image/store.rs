//! Stores unpacked images: `<hex of the digest>/rootfs` with `image.json` next to it.
//!
//! An image is unpacked into `<hex>.part` and renamed once it is complete and checked, so a folder with the plain
//! name can be used. A process that is killed halfway leaves a `.part` and a `.lock`, which the next unpacking
//! removes. This is safe against killed processes, not against power loss. The store does not know whether a sandbox
//! still uses an image: callers must check before `remove`.

use std::cell::Cell;
use std::fs::{self, DirBuilder};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::decompress::{BlobCompression, CountingReader, LimitedReader};
use super::digest::{Digest, HashingReader};
use super::image_description::ImageMeta;
use super::layer::{UnpackTotals, apply_layer};
use super::lock::ImageLock;
use super::manifest::{self, ImageLayer, ResolvedImage, mismatch};
use super::source::ImageSource;
use super::tree::ImageTree;
use super::{ImageConfig, ImageError, ImageLimits, ImageReference, disk_usage, rootfs};
use crate::files;

const ROOTFS_DIR: &str = "rootfs";

/// A directory that a sandbox can use as its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRootfs {
    pub root: PathBuf,
    /// The `sha256:…` of an image; `None` for a directory.
    pub digest: Option<String>,
    /// Differs for different roots: the digest, or the directory and its identity.
    pub key: String,
    pub config: ImageConfig,
}

/// An image that is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    pub digest: String,
    /// The reference it was first unpacked from.
    pub from: String,
    pub root: PathBuf,
    /// Its size on disk.
    pub bytes: u64,
    pub entries: u64,
}

/// The images of one user. All functions block; none needs privileges.
#[derive(Debug, Clone)]
pub struct ImageStore {
    dir: PathBuf,
    limits: ImageLimits,
}

impl ImageStore {
    /// Takes the folder, which is created when the first image is unpacked.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_limits(dir, ImageLimits::default())
    }

    pub fn with_limits(dir: impl Into<PathBuf>, limits: ImageLimits) -> Self {
        Self { dir: dir.into(), limits }
    }

    /// Returns the directory of an unpacked image, unpacking it first if necessary.
    pub fn prepare(&self, reference: &ImageReference) -> Result<ImageRootfs, ImageError> {
        let image = reference.to_string();
        let (source, tag) = match reference {
            ImageReference::Rootfs { dir } => return rootfs::prepare(dir, &image),
            ImageReference::Oci { dir, tag } => (ImageSource::layout(dir, image)?, tag.as_deref()),
            ImageReference::DockerArchive { file } => {
                self.create_dir()?;
                (ImageSource::archive(file, image, &self.dir, &self.limits)?, None)
            }
        };
        let found = manifest::resolve(&source, tag, &self.limits)?;
        if let Some(prepared) = self.find(&found.digest)? {
            return Ok(prepared);
        }
        self.create_dir()?;
        self.sweep()?;
        let lock = ImageLock::wait(&self.path(&found.digest, "lock"))?;
        // Another process may have unpacked it while this one waited.
        if let Some(prepared) = self.find(&found.digest)? {
            return Ok(prepared);
        }
        let part = self.path(&found.digest, "part");
        remove(&part)?;
        let made = self.unpack(&source, &found, &part).and_then(|()| self.publish(&found.digest, &part));
        if let Err(error) = made {
            // The caller gets the refusal; a folder that cannot be removed now is swept later.
            if let Err(left) = remove(&part) {
                tracing::warn!(%left, "could not remove a partly unpacked image");
            }
            return Err(error);
        }
        drop(lock);
        tracing::debug!(image = source.image(), digest = %found.digest, "image unpacked");
        let missing = || store_error("find", &self.path(&found.digest, ""))(io::ErrorKind::NotFound.into());
        self.find(&found.digest)?.ok_or_else(missing)
    }

    /// Lists the unpacked images by digest.
    pub fn list(&self) -> Result<Vec<StoredImage>, ImageError> {
        let mut images = Vec::new();
        for name in self.names()? {
            let Some(digest) = Digest::from_hex(&name) else { continue };
            let folder = self.path(&digest, "");
            if let Some(meta) = ImageMeta::read(&folder)? {
                let (digest, root) = (digest.to_string(), folder.join(ROOTFS_DIR));
                images.push(StoredImage { digest, from: meta.from, root, bytes: meta.bytes, entries: meta.entries });
            }
        }
        Ok(images)
    }

    /// Returns the size of all images on disk.
    pub fn bytes(&self) -> Result<u64, ImageError> {
        Ok(self.list()?.iter().fold(0, |sum, image| sum.saturating_add(image.bytes)))
    }

    /// Removes an image, given as `sha256:…`; returns whether it existed.
    pub fn remove(&self, digest: &str) -> Result<bool, ImageError> {
        let Some(digest) = Digest::parse(digest) else { return Ok(false) };
        let folder = self.path(&digest, "");
        if !exists(&folder)? {
            return Ok(false);
        }
        let _lock = ImageLock::wait(&self.path(&digest, "lock"))?;
        if !exists(&folder)? {
            return Ok(false);
        }
        self.remove_published(&digest)?;
        Ok(true)
    }

    /// Removes the leftovers of killed processes and returns their number. Skips what other processes are working on.
    pub fn sweep(&self) -> Result<usize, ImageError> {
        let mut swept = 0;
        for name in self.names()? {
            let left = self.dir.join(&name);
            let Some((stem, kind)) = name.split_once('.') else { continue };
            if !exists(&left)? {
                continue;
            }
            match (Digest::from_hex(stem), kind) {
                (Some(digest), "part" | "lock") => {
                    // Taking a lock that is free also removes its file.
                    let Some(_lock) = ImageLock::attempt(&self.path(&digest, "lock"))? else { continue };
                    remove(&self.path(&digest, "part"))?;
                }
                // The file has a name only for a moment, and nothing looks it up by that name.
                (None, "tmp") => remove(&left)?,
                _ => continue,
            }
            swept += 1;
        }
        Ok(swept)
    }

    fn unpack(&self, source: &ImageSource, image: &ResolvedImage, part: &Path) -> Result<(), ImageError> {
        let root = part.join(ROOTFS_DIR);
        DirBuilder::new().mode(0o700).create(part).map_err(store_error("make", part))?;
        DirBuilder::new().mode(0o755).create(&root).map_err(store_error("make", &root))?;
        let mut tree = ImageTree::open(&root, &self.limits).map_err(store_error("open", &root))?;
        let progress = UnpackTotals::default();
        for (n, layer) in image.layers.iter().enumerate() {
            self.unpack_layer(source, &mut tree, layer, n + 1, &progress)?;
        }
        tree.finish().map_err(store_error("finish", &root))?;
        let bytes = disk_usage::measure(&root).map_err(store_error("measure", &root))?;
        let entries = progress.entries.get();
        ImageMeta::new(image.digest.clone(), source.image(), image.config.clone(), bytes, entries).write(part)
    }

    /// Unpacks one layer and checks it in the same pass, both as stored and uncompressed.
    fn unpack_layer(
        &self,
        source: &ImageSource,
        tree: &mut ImageTree<'_>,
        layer: &ImageLayer,
        n: usize,
        progress: &UnpackTotals,
    ) -> Result<(), ImageError> {
        let what = format!("layer {n}");
        let unreadable = |source| ImageError::Layer { layer: n, source };
        let missing = || ImageError::Unusable { image: source.image().to_owned(), why: format!("{what} is missing") };
        let mut blob = source.open(&layer.blob)?.ok_or_else(missing)?;
        if let Some(size) = layer.size.filter(|size| *size != blob.size) {
            let (expected, found) = (format!("{size} bytes"), format!("{} bytes", blob.size));
            return Err(ImageError::Mismatch { image: source.image().to_owned(), what, expected, found });
        }
        let encoding = match layer.encoding {
            Some(encoding) => encoding,
            None => {
                let mut start = Vec::new();
                blob.take(4).read_to_end(&mut start).map_err(unreadable)?;
                blob = source.open(&layer.blob)?.ok_or_else(missing)?;
                BlobCompression::sniff(&start)
            }
        };
        let packed = Cell::new(0);
        // A file that grows while it is read is longer than measured; the extra bytes are not read.
        let size = blob.size;
        let mut blob = HashingReader::new(CountingReader { inner: blob.take(size), count: &packed });
        let unpacked = {
            let plain = encoding.decode(BufReader::with_capacity(64 << 10, &mut blob)).map_err(unreadable)?;
            let metered = LimitedReader::new(plain, &self.limits, &progress.bytes, &packed);
            let mut hashed = HashingReader::new(metered);
            apply_layer(tree, &mut hashed, n, progress, &self.limits)
                .and_then(|()| hashed.finish().map_err(|error| super::layer::stream_error(n, b"", error)))
        };
        // A damaged layer can fail in many ways; the digest mismatch is the error worth reporting.
        if let Some(expected) = &layer.digest {
            let found = blob.finish().map_err(unreadable)?;
            if found != *expected {
                return Err(mismatch(source, &what, expected, &found));
            }
        }
        let found = unpacked?;
        if found != layer.diff {
            return Err(mismatch(source, &format!("{what}, unpacked,"), &layer.diff, &found));
        }
        Ok(())
    }

    /// Renames a complete image to its final name.
    fn publish(&self, digest: &Digest, part: &Path) -> Result<(), ImageError> {
        let folder = self.path(digest, "");
        // Something with that name that is not an image; `find` has checked.
        remove(&folder)?;
        fs::rename(part, &folder).map_err(store_error("rename", part))
    }

    /// Removes the name first, so that half an image is never found under it.
    fn remove_published(&self, digest: &Digest) -> Result<(), ImageError> {
        let (folder, part) = (self.path(digest, ""), self.path(digest, "part"));
        remove(&part)?;
        fs::rename(&folder, &part).map_err(store_error("rename", &folder))?;
        remove(&part)
    }

    fn find(&self, digest: &Digest) -> Result<Option<ImageRootfs>, ImageError> {
        let folder = self.path(digest, "");
        let Some(meta) = ImageMeta::read(&folder)?.filter(|meta| meta.digest == *digest) else { return Ok(None) };
        let root = folder.join(ROOTFS_DIR);
        if !exists(&root)? {
            return Ok(None);
        }
        let root = root.canonicalize().map_err(store_error("find", &root))?;
        Ok(Some(ImageRootfs { root, digest: Some(digest.to_string()), key: digest.to_string(), config: meta.config }))
    }

    fn path(&self, digest: &Digest, kind: &str) -> PathBuf {
        match kind {
            "" => self.dir.join(digest.hex()),
            kind => self.dir.join(format!("{}.{kind}", digest.hex())),
        }
    }

    fn create_dir(&self) -> Result<(), ImageError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(store_error("make", &self.dir))
    }

    fn names(&self) -> Result<Vec<String>, ImageError> {
        let failed = |source| store_error("list", &self.dir)(source);
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }
}

fn store_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Store { doing, path, source }
}

fn exists(path: &Path) -> Result<bool, ImageError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(source) => Err(ImageError::Store { doing: "find", path: path.to_owned(), source }),
    }
}

fn remove(path: &Path) -> Result<(), ImageError> {
    match files::remove_tree(path) {
        Ok(()) => Ok(()),
        Err(crate::Error::Host { source, .. }) => Err(store_error("remove", path)(source)),
        Err(other) => Err(store_error("remove", path)(io::Error::other(other))),
    }
}
