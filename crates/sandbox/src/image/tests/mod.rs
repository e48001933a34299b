//! Tests images of every format, valid and hostile, through the public API.

mod formats;
mod hostile;
mod layers;
mod property;
mod store;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::build::{ImageBuilder, LayerBuilder};
use super::{ImageError, ImageLimits, ImageReference, ImageRootfs, ImageStore};

/// A folder with an image, a store, and files outside that must not change.
struct ImageFixture {
    folder: TempDir,
    limits: ImageLimits,
}

impl ImageFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("outside/inner")).unwrap();
        fs::write(folder.path().join("outside/canary"), "alive").unwrap();
        fs::set_permissions(folder.path().join("outside/canary"), fs::Permissions::from_mode(0o640)).unwrap();
        Self { folder, limits: ImageLimits::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> ImageStore {
        ImageStore::with_limits(self.path("store"), self.limits.clone())
    }

    fn oci(&self) -> ImageReference {
        ImageReference::Oci { dir: self.path("image"), tag: None }
    }

    fn archive(&self, bytes: &[u8]) -> ImageReference {
        let file = self.path("image.tar");
        fs::write(&file, bytes).unwrap();
        ImageReference::DockerArchive { file }
    }

    /// Writes an image as a layout and unpacks it.
    fn prepare(&self, image: &ImageBuilder) -> Result<ImageRootfs, ImageError> {
        image.write_layout(&self.path("image"), None).unwrap();
        self.store().prepare(&self.oci())
    }

    /// Returns everything outside, with all that a stray write, link or chmod would change.
    fn outside(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        walk(&self.path("outside"), "", &mut |name, path| {
            let meta = fs::symlink_metadata(path).unwrap();
            let content = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            let text = format!("{:o} {} {} {times:?} {content}", meta.mode(), meta.nlink(), meta.ino());
            found.insert(name.to_owned(), text);
        });
        found
    }

    fn store_entries(&self) -> Vec<String> {
        names(&self.path("store"))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns a tree as lines: type, permissions, name and content.
fn lines(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(root, "", &mut |name, path| {
        let meta = fs::symlink_metadata(path).unwrap();
        let mode = meta.mode() & 0o7777;
        lines.push(if meta.is_dir() {
            format!("d{mode:o} {name}")
        } else if meta.is_symlink() {
            format!("l {name} -> {}", fs::read_link(path).unwrap().display())
        } else {
            assert!(meta.is_file(), "{name}");
            format!("f{mode:o} {name} {}", String::from_utf8_lossy(&fs::read(path).unwrap()))
        });
    });
    lines
}

fn walk(root: &Path, prefix: &str, see: &mut dyn FnMut(&str, &Path)) {
    let mut entries: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        see(&name, &entry.path());
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{name}/"), see);
        }
    }
}

/// Returns an error with all its sources.
fn error_chain(error: &ImageError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn small_layer() -> LayerBuilder {
    LayerBuilder::new().directory("bin/", 0o755).file("bin/sh", 0o755, "shell")
}
