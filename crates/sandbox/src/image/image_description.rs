//! Reads and writes `image.json`, the store's description of an unpacked image.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::{ImageConfig, ImageError};

pub(super) const META_FILE: &str = "image.json";
const FORMAT: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ImageMeta {
    pub(super) format: u64,
    pub(super) digest: Digest,
    /// The reference it was first unpacked from.
    pub(super) from: String,
    pub(super) config: ImageConfig,
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

#[derive(Deserialize)]
struct ImageMetaFormat {
    format: u64,
}

impl ImageMeta {
    pub(super) fn new(digest: Digest, from: &str, config: ImageConfig, bytes: u64, entries: u64) -> Self {
        Self { format: FORMAT, digest, from: from.to_owned(), config, bytes, entries }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), ImageError> {
        let path = folder.join(META_FILE);
        let bytes = serde_json::to_vec_pretty(self).expect("strings and numbers serialise");
        fs::write(&path, bytes).map_err(|source| ImageError::Store { doing: "write", path, source })
    }

    /// Reads the description in `folder`; `None` if it is missing or invalid.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, ImageError> {
        let path = folder.join(META_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(ImageError::Store { doing: "read", path, source }),
        };
        // The format number first: a newer format may have nothing else in common with this one.
        match serde_json::from_slice(&bytes) {
            Ok(ImageMetaFormat { format: found }) if found > FORMAT => {
                Err(ImageError::Format { path, found, known: FORMAT })
            }
            Ok(_) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(_) => Ok(None),
        }
    }
}
