//! Parses the JSON documents of an image, as the OCI image specification and Docker write them. Unused fields are
//! skipped, and `null` means the default.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::ImageConfig;
use super::decompress::BlobCompression;
use super::digest::Digest;

pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// What a descriptor points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageMediaType {
    Index,
    Manifest,
    Config,
    Layer(BlobCompression),
    /// A layer whose content is stored elsewhere, so its digest cannot be checked.
    ForeignLayer,
    Unknown,
}

impl ImageMediaType {
    pub(super) fn of(media_type: &str) -> Self {
        match media_type {
            "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json" => {
                Self::Index
            }
            "application/vnd.oci.image.manifest.v1+json" | "application/vnd.docker.distribution.manifest.v2+json" => {
                Self::Manifest
            }
            "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json" => {
                Self::Config
            }
            "application/vnd.oci.image.layer.v1.tar" | "application/vnd.docker.image.rootfs.diff.tar" => {
                Self::Layer(BlobCompression::Plain)
            }
            "application/vnd.oci.image.layer.v1.tar+gzip" | "application/vnd.docker.image.rootfs.diff.tar.gzip" => {
                Self::Layer(BlobCompression::Gzip)
            }
            "application/vnd.oci.image.layer.v1.tar+zstd" | "application/vnd.docker.image.rootfs.diff.tar.zstd" => {
                Self::Layer(BlobCompression::Zstd)
            }
            other if other.contains(".nondistributable.") || other.contains(".foreign.") => Self::ForeignLayer,
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlobDescriptor {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) platform: Option<ImagePlatform>,
}

impl BlobDescriptor {
    pub(super) fn tag(&self) -> Option<&str> {
        self.annotations.get(REF_NAME).map(String::as_str)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ImagePlatform {
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) variant: Option<String>,
}

/// An index or a manifest. A document that is both is refused, because two readers would see two different images in
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IndexOrManifest {
    #[serde(default)]
    pub(super) media_type: Option<String>,
    #[serde(default)]
    pub(super) manifests: Option<Vec<BlobDescriptor>>,
    #[serde(default)]
    pub(super) config: Option<BlobDescriptor>,
    #[serde(default)]
    pub(super) layers: Option<Vec<BlobDescriptor>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ImageConfigDocument {
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) config: ContainerConfig,
    pub(super) rootfs: RootfsDiffIds,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct RootfsDiffIds {
    #[serde(deserialize_with = "or_default")]
    pub(super) diff_ids: Vec<Digest>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ContainerConfig {
    #[serde(deserialize_with = "or_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    working_dir: String,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

impl From<ContainerConfig> for ImageConfig {
    fn from(run: ContainerConfig) -> Self {
        let some = |text: String| (!text.is_empty()).then_some(text);
        Self {
            env: run.env,
            workdir: some(run.working_dir),
            user: some(run.user),
            entrypoint: run.entrypoint,
            cmd: run.cmd,
            labels: run.labels,
        }
    }
}

/// One image in the `manifest.json` of `docker save`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerSaveEntry {
    pub(super) config: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) repo_tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) layers: Vec<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
