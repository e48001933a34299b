//! Prepares a host directory that is used directly as the root of a sandbox. It has no digest: its owner can change
//! it at any time.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{ImageConfig, ImageError, ImageRootfs};

/// At least one of these exists in every root that programs can run in.
const ROOTFS_MARKERS: [&str; 3] = ["usr", "bin", "nix"];

pub(super) fn prepare(dir: &Path, image: &str) -> Result<ImageRootfs, ImageError> {
    let failed = |source: io::Error| ImageError::Read { path: dir.to_owned(), source };
    let unusable = |why: &str| ImageError::Unusable { image: image.to_owned(), why: why.to_owned() };
    let root = dir.canonicalize().map_err(failed)?;
    let found = fs::metadata(&root).map_err(failed)?;
    if !found.is_dir() {
        return Err(unusable("it is not a directory"));
    }
    let host = fs::metadata("/").map_err(failed)?;
    if (found.dev(), found.ino()) == (host.dev(), host.ino()) {
        return Err(unusable("it is the root of this machine, with everything you own in it"));
    }
    if !ROOTFS_MARKERS.iter().any(|sign| root.join(sign).symlink_metadata().is_ok()) {
        return Err(unusable("it has neither `usr` nor `bin`, so nothing could run in it"));
    }
    let key = format!("rootfs:{}@{}:{}", root.display(), found.dev(), found.ino());
    Ok(ImageRootfs { root, digest: None, key, config: ImageConfig::default() })
}
