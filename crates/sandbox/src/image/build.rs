//! Builds images: valid ones from a directory, and arbitrary ones for tests, which can choose every byte of a layer.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ralph_core::hash::{Sha256Hasher, sha256};
use serde_json::{Value, json};

use super::oci_json::REF_NAME;
use super::{ImageConfig, manifest};

/// The modification time of everything in a built image.
pub const MTIME: u64 = 1_700_000_000;
const BLOCK: usize = 512;

/// A layer, built entry by entry. Nothing is checked; the reader under test has to do that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerBuilder {
    tar: Vec<u8>,
}

impl LayerBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn directory(self, name: &str, mode: u32) -> Self {
        self.member(b'5', name.as_bytes(), b"", mode, b"")
    }

    pub fn file(self, name: &str, mode: u32, content: &str) -> Self {
        self.member(b'0', name.as_bytes(), b"", mode, content.as_bytes())
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.member(b'2', name.as_bytes(), target.as_bytes(), 0o777, b"")
    }

    pub fn hardlink(self, name: &str, target: &str) -> Self {
        self.member(b'1', name.as_bytes(), target.as_bytes(), 0o644, b"")
    }

    /// Hides what lower layers have at a path.
    pub fn whiteout(self, path: &str) -> Self {
        let (parent, name) = path.rsplit_once('/').map_or(("", path), |(parent, name)| (parent, name));
        let slash = if parent.is_empty() { "" } else { "/" };
        self.file(&format!("{parent}{slash}.wh.{name}"), 0o644, "")
    }

    /// Hides everything that lower layers have in a directory.
    pub fn opaque(self, directory: &str) -> Self {
        self.file(&format!("{directory}/.wh..wh..opq"), 0o644, "")
    }

    /// Adds a member of any kind under any name; what does not fit into a header goes into an extended header.
    pub fn member(mut self, kind: u8, name: &[u8], link: &[u8], mode: u32, content: &[u8]) -> Self {
        let mut records = Vec::new();
        for (key, value) in [("path", name), ("linkpath", link)] {
            if value.len() > 100 || value.contains(&0) {
                records.extend(record(key, value));
            }
        }
        if !records.is_empty() {
            self.tar.extend(header(b'x', b"extended", b"", 0o644, records.len()));
            self = self.append_padded(&records);
        }
        self.tar.extend(header(kind, name, link, mode, content.len()));
        self.append_padded(content)
    }

    /// Adds raw bytes.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.tar.extend_from_slice(bytes);
        self
    }

    /// Adds content, padded to a whole block.
    fn append_padded(mut self, content: &[u8]) -> Self {
        self.tar.extend_from_slice(content);
        let padded = self.tar.len().next_multiple_of(BLOCK);
        self.tar.resize(padded, 0);
        self
    }

    /// Returns the layer as a tar archive, with its end marker.
    pub fn tar(&self) -> Vec<u8> {
        let mut tar = self.tar.clone();
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }
}

/// Returns one record of an extended header; its length includes its own digits.
pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// Returns a header with the names truncated to fit.
pub fn header(kind: u8, name: &[u8], link: &[u8], mode: u32, size: usize) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    let old = header.as_old_mut();
    for (field, value) in [(&mut old.name, name), (&mut old.linkname, link)] {
        field.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    }
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(mode);
    header.set_mtime(MTIME);
    header.set_size(size as u64);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerCompression {
    Plain,
    Gzip,
    Zstd,
}

impl LayerCompression {
    pub fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(bytes.to_vec()),
            Self::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                gzip.write_all(bytes)?;
                gzip.finish()
            }
            Self::Zstd => zstd::encode_all(bytes, 0),
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// How `docker save` lays out an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DockerSaveFormat {
    /// A `manifest.json` and layers by name: the original format.
    Classic,
    /// An OCI image layout in a tar, used since version 25.
    Layout,
}

/// An image to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBuilder {
    pub layers: Vec<LayerBuilder>,
    pub compression: LayerCompression,
    pub config: ImageConfig,
    pub architecture: String,
}

impl ImageBuilder {
    /// Takes layers from the lowest to the highest, for this machine's platform.
    pub fn new(layers: impl IntoIterator<Item = LayerBuilder>) -> Self {
        Self {
            layers: layers.into_iter().collect(),
            compression: LayerCompression::Gzip,
            config: ImageConfig::default(),
            architecture: manifest::architecture().to_owned(),
        }
    }

    /// Writes an OCI image layout, or adds to an existing one; returns the digest of the manifest.
    pub fn write_layout(&self, dir: &Path, tag: Option<&str>) -> io::Result<String> {
        let blobs = dir.join("blobs").join("sha256");
        fs::create_dir_all(&blobs)?;
        let (files, mut manifest) = self.blobs()?;
        for bytes in &files {
            fs::write(blobs.join(sha256(bytes)), bytes)?;
        }
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        if let (Some(tag), Some(manifest)) = (tag, manifest.as_object_mut()) {
            manifest.insert("annotations".to_owned(), json!({ REF_NAME: tag }));
        }
        let digest = manifest.get("digest").and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = dir.join("index.json");
        let mut manifests = match fs::read(&path) {
            Ok(index) => match serde_json::from_slice::<Value>(&index)?.get("manifests") {
                Some(Value::Array(manifests)) => manifests.clone(),
                _ => Vec::new(),
            },
            Err(_) => Vec::new(),
        };
        manifests.push(manifest);
        fs::write(path, serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": manifests }))?)?;
        Ok(digest)
    }

    /// Returns the archive that `docker save` would write.
    pub fn archive(&self, form: DockerSaveFormat) -> io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        match form {
            DockerSaveFormat::Classic => {
                let config = self.config_json(self.layers.iter().map(|layer| sha256(&layer.tar())))?;
                let mut names = Vec::new();
                for (n, layer) in self.layers.iter().enumerate() {
                    let name = format!("layer-{n}/layer.tar");
                    append_bytes(&mut tar, &name, &self.compression.compress(&layer.tar())?)?;
                    names.push(name);
                }
                append_classic_manifest(&mut tar, &config, &names)?;
            }
            DockerSaveFormat::Layout => {
                let (files, manifest) = self.blobs()?;
                for bytes in &files {
                    append_bytes(&mut tar, &format!("blobs/sha256/{}", sha256(bytes)), bytes)?;
                }
                append_bytes(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
                let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
                append_bytes(&mut tar, "index.json", &serde_json::to_vec(&index)?)?;
            }
        }
        tar.into_inner()
    }

    /// Returns all blobs, and the descriptor of the manifest.
    fn blobs(&self) -> io::Result<(Vec<Vec<u8>>, Value)> {
        let tars: Vec<Vec<u8>> = self.layers.iter().map(LayerBuilder::tar).collect();
        let mut files = Vec::new();
        let mut layers = Vec::new();
        for tar in &tars {
            let packed = self.compression.compress(tar)?;
            layers.push(descriptor(self.compression.media_type(), &packed));
            files.push(packed);
        }
        let config = self.config_json(tars.iter().map(|tar| sha256(tar)))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers,
        }))?;
        files.push(config);
        let described = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        files.push(manifest);
        Ok((files, described))
    }

    fn config_json(&self, diffs: impl Iterator<Item = String>) -> io::Result<Vec<u8>> {
        let ImageConfig { env, workdir, user, entrypoint, cmd, labels } = &self.config;
        let diffs: Vec<String> = diffs.map(|hex| format!("sha256:{hex}")).collect();
        Ok(serde_json::to_vec(&json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "Env": env, "WorkingDir": workdir, "User": user,
                "Entrypoint": entrypoint, "Cmd": cmd, "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": diffs },
        }))?)
    }
}

/// Returns the descriptor of a blob.
pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() })
}

/// Builds a base image from a directory, in the format that `docker load` and ralph read; returns its digest.
///
/// Sockets, pipes and devices are left out. The layer is buffered in a file next to `archive`, not in memory.
pub fn archive_directory(directory: &Path, archive: &Path) -> io::Result<String> {
    let layer = archive.with_added_extension("layer");
    let file = File::create_new(&layer)?;
    let made = (|| {
        let writer = HashingWriter { inner: BufWriter::new(file), hasher: Sha256Hasher::default() };
        let mut tar = tar::Builder::new(writer);
        tar.follow_symlinks(false);
        append_tree(&mut tar, directory, Path::new(""))?;
        let mut writer = tar.into_inner()?;
        writer.inner.flush()?;
        let config = ImageBuilder::new([]).config_json(std::iter::once(writer.hasher.finish()))?;
        let mut tar = tar::Builder::new(BufWriter::new(File::create_new(archive)?));
        tar.append_file("layer/layer.tar", &mut File::open(&layer)?)?;
        append_classic_manifest(&mut tar, &config, &["layer/layer.tar".to_owned()])?;
        tar.into_inner()?.flush()?;
        Ok(format!("sha256:{}", sha256(&config)))
    })();
    match fs::remove_file(&layer) {
        Err(error) if made.is_ok() => Err(error),
        _ => made,
    }
}

fn append_tree(tar: &mut tar::Builder<impl Write>, directory: &Path, name: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(directory.join(name))?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (kind, name) = (entry.file_type()?, name.join(entry.file_name()));
        if kind.is_dir() || kind.is_file() || kind.is_symlink() {
            tar.append_path_with_name(entry.path(), &name)?;
        }
        if kind.is_dir() {
            append_tree(tar, directory, &name)?;
        }
    }
    Ok(())
}

fn append_classic_manifest(tar: &mut tar::Builder<impl Write>, config: &[u8], layers: &[String]) -> io::Result<()> {
    let name = format!("{}.json", sha256(config));
    append_bytes(tar, &name, config)?;
    let manifest = json!([{ "Config": name, "RepoTags": ["base:latest"], "Layers": layers }]);
    append_bytes(tar, "manifest.json", &serde_json::to_vec(&manifest)?)
}

fn append_bytes(tar: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}

struct HashingWriter<W> {
    inner: W,
    hasher: Sha256Hasher,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
