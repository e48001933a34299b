//! Resolves an index, directly or through nested indexes, to one image: its configuration and its layers.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::decompress::BlobCompression;
use super::digest::Digest;
use super::error::printable;
use super::oci_json::{BlobDescriptor, DockerSaveEntry, ImageConfigDocument, ImageMediaType, IndexOrManifest};
use super::source::ImageSource;
use super::{ImageConfig, ImageError, ImageLimits};

/// The most indexes nested in each other.
const MAX_INDEX_DEPTH: usize = 4;

/// One image, read and checked except for the content of its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedImage {
    /// The digest of its manifest, or of its configuration if there is no manifest with digests.
    pub(super) digest: Digest,
    pub(super) config: ImageConfig,
    pub(super) layers: Vec<ImageLayer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageLayer {
    /// The file of the image that contains it.
    pub(super) blob: String,
    /// The expected digest of the file; unknown in the older format of `docker save`.
    pub(super) digest: Option<Digest>,
    pub(super) size: Option<u64>,
    /// Its compression; `None` if that is detected from its first bytes.
    pub(super) encoding: Option<BlobCompression>,
    /// The expected digest of the uncompressed layer.
    pub(super) diff: Digest,
}

/// Resolves the one image that the reference names.
pub(super) fn resolve(
    source: &ImageSource,
    tag: Option<&str>,
    limits: &ImageLimits,
) -> Result<ResolvedImage, ImageError> {
    if let Some(index) = source.document("index.json", "the index", limits.document)? {
        return resolve_oci(source, &index, tag, limits);
    }
    match source.document("manifest.json", "the manifest", limits.document)? {
        Some(manifest) if matches!(source, ImageSource::Archive { .. }) => {
            resolve_docker_save(source, &manifest, limits)
        }
        _ => Err(unusable(source, "it has no `index.json`, so it is not an image layout")),
    }
}

/// Returns the name images use for the running processor.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn resolve_oci(
    source: &ImageSource,
    index: &[u8],
    tag: Option<&str>,
    limits: &ImageLimits,
) -> Result<ResolvedImage, ImageError> {
    let node: IndexOrManifest = parse_json(source, "the index", index)?;
    let mut candidates = children(source, "the index", node)?;
    let tags: BTreeSet<String> = candidates.iter().filter_map(BlobDescriptor::tag).map(str::to_owned).collect();
    let known = || tags.iter().cloned().collect();
    if let Some(tag) = tag {
        candidates.retain(|candidate| candidate.tag() == Some(tag));
        if candidates.is_empty() {
            return Err(ImageError::Tag { image: source.image().to_owned(), tag: tag.to_owned(), known: known() });
        }
    }
    let many = || ImageError::Many { image: source.image().to_owned(), known: known() };
    let mut chosen = choose_platform(source, candidates, Some(&many))?;
    for _ in 0..MAX_INDEX_DEPTH {
        let bytes = read_blob(source, &chosen, limits)?;
        let what = describe(&chosen);
        let node: IndexOrManifest = parse_json(source, &what, &bytes)?;
        if node.media_type.as_ref().is_some_and(|own| *own != chosen.media_type) {
            return Err(unusable(source, &format!("{what} declares a different media type")));
        }
        match ImageMediaType::of(&chosen.media_type) {
            ImageMediaType::Index => chosen = choose_platform(source, children(source, &what, node)?, None)?,
            ImageMediaType::Manifest => return resolve_manifest(source, chosen.digest, node, limits),
            _ => return Err(unknown_media_type(source, &chosen)),
        }
    }
    Err(unusable(source, "its indexes are nested too deeply"))
}

/// Returns the descriptors of an index.
fn children(source: &ImageSource, what: &str, node: IndexOrManifest) -> Result<Vec<BlobDescriptor>, ImageError> {
    if node.config.is_some() || node.layers.is_some() {
        return Err(unusable(source, &format!("{what} is an index and a manifest at once")));
    }
    match node.manifests {
        Some(manifests) if !manifests.is_empty() => Ok(manifests),
        _ => Err(unusable(source, &format!("{what} is empty"))),
    }
}

/// Chooses the image for this machine's platform. Several matches are an error if `many` is given; otherwise the
/// first one is used.
fn choose_platform(
    source: &ImageSource,
    candidates: Vec<BlobDescriptor>,
    many: Option<&dyn Fn() -> ImageError>,
) -> Result<BlobDescriptor, ImageError> {
    let platforms: BTreeSet<String> = candidates
        .iter()
        .filter_map(|candidate| candidate.platform.as_ref())
        .map(|platform| printable(format!("{}/{}", platform.os, platform.architecture).as_bytes()))
        .collect();
    let mut fit: Vec<BlobDescriptor> = Vec::new();
    let mut seen = BTreeSet::new();
    for candidate in candidates {
        let runs = candidate
            .platform
            .as_ref()
            .is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture());
        if runs && seen.insert(candidate.digest.clone()) {
            fit.push(candidate);
        }
    }
    // Specific variants of a processor may need features that this one lacks; the plain one runs everywhere.
    let plain =
        |candidate: &BlobDescriptor| candidate.platform.as_ref().is_none_or(|platform| platform.variant.is_none());
    if fit.iter().any(plain) {
        fit.retain(plain);
    }
    let count = fit.len();
    match (fit.into_iter().next(), many) {
        (Some(_), Some(many)) if count > 1 => Err(many()),
        (Some(first), _) => Ok(first),
        (None, _) => Err(ImageError::Platform {
            image: source.image().to_owned(),
            wanted: format!("linux/{}", architecture()),
            known: platforms.into_iter().collect(),
        }),
    }
}

fn resolve_manifest(
    source: &ImageSource,
    digest: Digest,
    node: IndexOrManifest,
    limits: &ImageLimits,
) -> Result<ResolvedImage, ImageError> {
    let what = format!("the manifest {digest}");
    if node.manifests.is_some() {
        return Err(unusable(source, &format!("{what} is an index and a manifest at once")));
    }
    let (Some(config), Some(layers)) = (node.config, node.layers) else {
        return Err(unusable(source, &format!("{what} has no configuration or no layers")));
    };
    if ImageMediaType::of(&config.media_type) != ImageMediaType::Config {
        return Err(unknown_media_type(source, &config));
    }
    let mut found = Vec::new();
    for layer in layers {
        let encoding = match ImageMediaType::of(&layer.media_type) {
            ImageMediaType::Layer(encoding) => encoding,
            ImageMediaType::ForeignLayer => {
                let why = format!("the content of its layer {} is kept elsewhere and is not pulled", layer.digest);
                return Err(unusable(source, &why));
            }
            _ => return Err(unknown_media_type(source, &layer)),
        };
        found.push((layer.digest.blob_path(), Some(layer.digest), Some(layer.size), Some(encoding)));
    }
    let configuration = parse_json(source, "the configuration", &read_blob(source, &config, limits)?)?;
    assemble_image(source, digest, configuration, found, limits)
}

/// Reads the older format of `docker save`, whose files are found by name and whose layers have no digests of their
/// own.
fn resolve_docker_save(
    source: &ImageSource,
    manifest: &[u8],
    limits: &ImageLimits,
) -> Result<ResolvedImage, ImageError> {
    let images: Vec<DockerSaveEntry> = parse_json(source, "the manifest", manifest)?;
    let [image_saved] = images.as_slice() else {
        let known = images.into_iter().flat_map(|image| image.repo_tags).collect();
        return Err(ImageError::Many { image: source.image().to_owned(), known });
    };
    let missing = |name: &str| unusable(source, &format!("its file `{}` is missing", printable(name.as_bytes())));
    let bytes = source
        .document(&image_saved.config, "the configuration", limits.document)?
        .ok_or_else(|| missing(&image_saved.config))?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = digest_from_name(&image_saved.config).filter(|expected| *expected != digest) {
        return Err(mismatch(source, "the configuration", &expected, &digest));
    }
    let mut layers = Vec::new();
    for layer in &image_saved.layers {
        if source.open(layer)?.is_none() {
            return Err(missing(layer));
        }
        // Only under `blobs` is a hex name the digest of the file; the ID in `ID/layer.tar` is something else.
        let expected = layer.strip_prefix("blobs/sha256/").and_then(Digest::from_hex);
        layers.push((layer.clone(), expected, None, None));
    }
    assemble_image(source, digest, parse_json(source, "the configuration", &bytes)?, layers, limits)
}

/// Returns the digest in the name of a configuration.
fn digest_from_name(name: &str) -> Option<Digest> {
    Digest::from_hex(name.strip_suffix(".json").unwrap_or(name).rsplit('/').next()?)
}

type LayerBlob = (String, Option<Digest>, Option<u64>, Option<BlobCompression>);

fn assemble_image(
    source: &ImageSource,
    digest: Digest,
    configuration: ImageConfigDocument,
    layers: Vec<LayerBlob>,
    limits: &ImageLimits,
) -> Result<ResolvedImage, ImageError> {
    let ImageConfigDocument { architecture: built_for, os, config, rootfs } = configuration;
    let fits = |said: &str, wanted: &str| said.is_empty() || said == wanted;
    if !fits(&os, "linux") || !fits(&built_for, architecture()) {
        return Err(ImageError::Platform {
            image: source.image().to_owned(),
            wanted: format!("linux/{}", architecture()),
            known: vec![printable(format!("{os}/{built_for}").as_bytes())],
        });
    }
    if layers.len() != rootfs.diff_ids.len() {
        let why = format!("it has {} layers and {} digests for them", layers.len(), rootfs.diff_ids.len());
        return Err(unusable(source, &why));
    }
    if layers.len() > limits.layers {
        return Err(unusable(source, &format!("it has more than {} layers", limits.layers)));
    }
    let layers = layers
        .into_iter()
        .zip(rootfs.diff_ids)
        .map(|((blob, digest, size, encoding), diff)| ImageLayer { blob, digest, size, encoding, diff })
        .collect();
    Ok(ResolvedImage { digest, config: config.into(), layers })
}

/// Reads a whole document and checks it against its descriptor.
fn read_blob(source: &ImageSource, descriptor: &BlobDescriptor, limits: &ImageLimits) -> Result<Vec<u8>, ImageError> {
    let what = describe(descriptor);
    let Some(bytes) = source.document(&descriptor.digest.blob_path(), &what, limits.document)? else {
        return Err(unusable(source, &format!("{what} is missing")));
    };
    if bytes.len() as u64 != descriptor.size {
        let (expected, found) = (format!("{} bytes", descriptor.size), format!("{} bytes", bytes.len()));
        return Err(ImageError::Mismatch { image: source.image().to_owned(), what, expected, found });
    }
    let found = Digest::of(&bytes);
    if found != descriptor.digest {
        return Err(mismatch(source, &what, &descriptor.digest, &found));
    }
    Ok(bytes)
}

fn describe(descriptor: &BlobDescriptor) -> String {
    let kind = match ImageMediaType::of(&descriptor.media_type) {
        ImageMediaType::Index => "index",
        ImageMediaType::Manifest => "manifest",
        ImageMediaType::Config => "configuration",
        ImageMediaType::Layer(_) | ImageMediaType::ForeignLayer => "layer",
        ImageMediaType::Unknown => "document",
    };
    format!("the {kind} {}", descriptor.digest)
}

fn parse_json<'a, T: Deserialize<'a>>(source: &ImageSource, what: &str, bytes: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::Document {
        image: source.image().to_owned(),
        what: what.to_owned(),
        source: error,
    })
}

pub(super) fn mismatch(source: &ImageSource, what: &str, expected: &Digest, found: &Digest) -> ImageError {
    let (expected, found) = (expected.to_string(), found.to_string());
    ImageError::Mismatch { image: source.image().to_owned(), what: what.to_owned(), expected, found }
}

fn unusable(source: &ImageSource, why: &str) -> ImageError {
    ImageError::Unusable { image: source.image().to_owned(), why: why.to_owned() }
}

fn unknown_media_type(source: &ImageSource, descriptor: &BlobDescriptor) -> ImageError {
    let why = format!("`{}` is not a known media type", printable(descriptor.media_type.as_bytes()));
    unusable(source, &why)
}
