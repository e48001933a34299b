//! From an index, through whatever it points to, to one image: its configuration and its layers.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::digest::Digest;
use super::document::{Configuration, Descriptor, Media, Node, Saved};
use super::error::shown;
use super::source::Source;
use super::stream::Encoding;
use super::{Error, ImageConfig, Limits};

/// Indexes inside indexes.
const NESTING: usize = 4;

/// One image, read and checked except for the content of its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Of its manifest, or of its configuration where there is no manifest with digests.
    pub(super) digest: Digest,
    pub(super) config: ImageConfig,
    pub(super) layers: Vec<Layer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// The file of the image it is in.
    pub(super) blob: String,
    /// What the file must be; unknown in the older form of `docker save`.
    pub(super) digest: Option<Digest>,
    pub(super) size: Option<u64>,
    /// How it is compressed; `None` when its first bytes tell.
    pub(super) encoding: Option<Encoding>,
    /// What it must be without compression.
    pub(super) diff: Digest,
}

/// Finds the one image that is meant.
pub(super) fn resolve(source: &Source, tag: Option<&str>, limits: &Limits) -> Result<Image, Error> {
    if let Some(index) = source.document("index.json", "the index", limits.document)? {
        return oci(source, &index, tag, limits);
    }
    match source.document("manifest.json", "the manifest", limits.document)? {
        Some(manifest) if matches!(source, Source::Archive { .. }) => saved(source, &manifest, limits),
        _ => Err(unusable(source, "it has no `index.json`, so it is no image layout")),
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

fn oci(source: &Source, index: &[u8], tag: Option<&str>, limits: &Limits) -> Result<Image, Error> {
    let node: Node = read(source, "the index", index)?;
    let mut candidates = children(source, "the index", node)?;
    let tags: BTreeSet<String> = candidates.iter().filter_map(Descriptor::tag).map(str::to_owned).collect();
    let known = || tags.iter().cloned().collect();
    if let Some(tag) = tag {
        candidates.retain(|candidate| candidate.tag() == Some(tag));
        if candidates.is_empty() {
            return Err(Error::Tag { image: source.image().to_owned(), tag: tag.to_owned(), known: known() });
        }
    }
    let many = || Error::Many { image: source.image().to_owned(), known: known() };
    let mut chosen = choose(source, candidates, Some(&many))?;
    for _ in 0..NESTING {
        let bytes = blob(source, &chosen, limits)?;
        let what = named(&chosen);
        let node: Node = read(source, &what, &bytes)?;
        if node.media_type.as_ref().is_some_and(|own| *own != chosen.media_type) {
            return Err(unusable(source, &format!("{what} says of itself that it is something else")));
        }
        match Media::of(&chosen.media_type) {
            Media::Index => chosen = choose(source, children(source, &what, node)?, None)?,
            Media::Manifest => return manifest(source, chosen.digest, node, limits),
            _ => return Err(unknown(source, &chosen)),
        }
    }
    Err(unusable(source, "its indexes point to indexes without end"))
}

/// Returns what an index points to.
fn children(source: &Source, what: &str, node: Node) -> Result<Vec<Descriptor>, Error> {
    if node.config.is_some() || node.layers.is_some() {
        return Err(unusable(source, &format!("{what} is an index and a manifest at once")));
    }
    match node.manifests {
        Some(manifests) if !manifests.is_empty() => Ok(manifests),
        _ => Err(unusable(source, &format!("{what} is empty"))),
    }
}

/// Chooses what this machine can run. More than one is an error where `many` says so, else the first is as good.
fn choose(source: &Source, candidates: Vec<Descriptor>, many: Option<&dyn Fn() -> Error>) -> Result<Descriptor, Error> {
    let platforms: BTreeSet<String> = candidates
        .iter()
        .filter_map(|candidate| candidate.platform.as_ref())
        .map(|platform| shown(format!("{}/{}", platform.os, platform.architecture).as_bytes()))
        .collect();
    let mut fit: Vec<Descriptor> = Vec::new();
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
    // Finer variants of a processor may need more than this one has; the plain one runs everywhere.
    let plain = |candidate: &Descriptor| candidate.platform.as_ref().is_none_or(|platform| platform.variant.is_none());
    if fit.iter().any(plain) {
        fit.retain(plain);
    }
    let count = fit.len();
    match (fit.into_iter().next(), many) {
        (Some(_), Some(many)) if count > 1 => Err(many()),
        (Some(first), _) => Ok(first),
        (None, _) => Err(Error::Platform {
            image: source.image().to_owned(),
            wanted: format!("linux/{}", architecture()),
            known: platforms.into_iter().collect(),
        }),
    }
}

fn manifest(source: &Source, digest: Digest, node: Node, limits: &Limits) -> Result<Image, Error> {
    let what = format!("the manifest {digest}");
    if node.manifests.is_some() {
        return Err(unusable(source, &format!("{what} is an index and a manifest at once")));
    }
    let (Some(config), Some(layers)) = (node.config, node.layers) else {
        return Err(unusable(source, &format!("{what} has no configuration or no layers")));
    };
    if Media::of(&config.media_type) != Media::Config {
        return Err(unknown(source, &config));
    }
    let mut found = Vec::new();
    for layer in layers {
        let encoding = match Media::of(&layer.media_type) {
            Media::Layer(encoding) => encoding,
            Media::Elsewhere => {
                let why = format!("the content of its layer {} is kept elsewhere and is not pulled", layer.digest);
                return Err(unusable(source, &why));
            }
            _ => return Err(unknown(source, &layer)),
        };
        found.push((layer.digest.blob(), Some(layer.digest), Some(layer.size), Some(encoding)));
    }
    let configuration = read(source, "the configuration", &blob(source, &config, limits)?)?;
    image(source, digest, configuration, found, limits)
}

/// Reads the older form of `docker save`, whose files are found by name and whose layers have no digests of their own.
fn saved(source: &Source, manifest: &[u8], limits: &Limits) -> Result<Image, Error> {
    let images: Vec<Saved> = read(source, "the manifest", manifest)?;
    let [image_saved] = images.as_slice() else {
        let known = images.into_iter().flat_map(|image| image.repo_tags).collect();
        return Err(Error::Many { image: source.image().to_owned(), known });
    };
    let missing = |name: &str| unusable(source, &format!("its file `{}` is missing", shown(name.as_bytes())));
    let bytes = source
        .document(&image_saved.config, "the configuration", limits.document)?
        .ok_or_else(|| missing(&image_saved.config))?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = digest_in(&image_saved.config).filter(|expected| *expected != digest) {
        return Err(mismatch(source, "the configuration", &expected, &digest));
    }
    let mut layers = Vec::new();
    for layer in &image_saved.layers {
        if source.open(layer)?.is_none() {
            return Err(missing(layer));
        }
        // Only under `blobs` is a name in hex the digest of the file; `ID/layer.tar` is something else.
        let expected = layer.strip_prefix("blobs/sha256/").and_then(Digest::from_hex);
        layers.push((layer.clone(), expected, None, None));
    }
    image(source, digest, read(source, "the configuration", &bytes)?, layers, limits)
}

/// Returns the digest a configuration is named after.
fn digest_in(name: &str) -> Option<Digest> {
    Digest::from_hex(name.strip_suffix(".json").unwrap_or(name).rsplit('/').next()?)
}

type Found = (String, Option<Digest>, Option<u64>, Option<Encoding>);

fn image(
    source: &Source,
    digest: Digest,
    configuration: Configuration,
    layers: Vec<Found>,
    limits: &Limits,
) -> Result<Image, Error> {
    let Configuration { architecture: built_for, os, config, rootfs } = configuration;
    let fits = |said: &str, wanted: &str| said.is_empty() || said == wanted;
    if !fits(&os, "linux") || !fits(&built_for, architecture()) {
        return Err(Error::Platform {
            image: source.image().to_owned(),
            wanted: format!("linux/{}", architecture()),
            known: vec![shown(format!("{os}/{built_for}").as_bytes())],
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
        .map(|((blob, digest, size, encoding), diff)| Layer { blob, digest, size, encoding, diff })
        .collect();
    Ok(Image { digest, config: config.into(), layers })
}

/// Reads a whole document and checks that it is the one its descriptor means.
fn blob(source: &Source, descriptor: &Descriptor, limits: &Limits) -> Result<Vec<u8>, Error> {
    let what = named(descriptor);
    let Some(bytes) = source.document(&descriptor.digest.blob(), &what, limits.document)? else {
        return Err(unusable(source, &format!("{what} is missing")));
    };
    if bytes.len() as u64 != descriptor.size {
        let (expected, found) = (format!("{} bytes", descriptor.size), format!("{} bytes", bytes.len()));
        return Err(Error::Mismatch { image: source.image().to_owned(), what, expected, found });
    }
    let found = Digest::of(&bytes);
    if found != descriptor.digest {
        return Err(mismatch(source, &what, &descriptor.digest, &found));
    }
    Ok(bytes)
}

fn named(descriptor: &Descriptor) -> String {
    let kind = match Media::of(&descriptor.media_type) {
        Media::Index => "index",
        Media::Manifest => "manifest",
        Media::Config => "configuration",
        Media::Layer(_) | Media::Elsewhere => "layer",
        Media::Unknown => "document",
    };
    format!("the {kind} {}", descriptor.digest)
}

fn read<'a, T: Deserialize<'a>>(source: &Source, what: &str, bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Document {
        image: source.image().to_owned(),
        what: what.to_owned(),
        source: error,
    })
}

pub(super) fn mismatch(source: &Source, what: &str, expected: &Digest, found: &Digest) -> Error {
    let (expected, found) = (expected.to_string(), found.to_string());
    Error::Mismatch { image: source.image().to_owned(), what: what.to_owned(), expected, found }
}

fn unusable(source: &Source, why: &str) -> Error {
    Error::Unusable { image: source.image().to_owned(), why: why.to_owned() }
}

fn unknown(source: &Source, descriptor: &Descriptor) -> Error {
    let why = format!("`{}` is not a kind of content ralph knows", shown(descriptor.media_type.as_bytes()));
    unusable(source, &why)
}
