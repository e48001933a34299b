//! Errors about images, and their hints.

use std::io;
use std::path::PathBuf;

use ralph_core::text;

/// The longest part of a hostile name that is shown, and the most names of a hostile list.
const MAX_SHOWN_BYTES: usize = 200;
const MAX_LISTED: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("`{given}` cannot be the image of a sandbox: {why}")]
    Reference { given: String, why: &'static str },
    #[error("`{given}` is the name of an image in a registry, and images are not pulled")]
    NotLocal { given: String },
    #[error("could not read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("could not {doing} `{path}` in the image store")]
    Store { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("`{path}` is written in format {found}; this ralph knows formats up to {known}")]
    Format { path: PathBuf, found: u64, known: u64 },
    #[error("`{image}` cannot be used: {why}")]
    Unusable { image: String, why: String },
    #[error("`{image}` has no image named `{tag}`")]
    Tag { image: String, tag: String, known: Vec<String> },
    #[error("`{image}` holds more than one image")]
    Many { image: String, known: Vec<String> },
    #[error("`{image}` has no image for {wanted}, only for {}", list(.known))]
    Platform { image: String, wanted: String, known: Vec<String> },
    #[error("{what} of `{image}` is larger than {limit} bytes")]
    Large { image: String, what: String, limit: u64 },
    #[error("{what} of `{image}` does not match: expected {expected}, found {found}")]
    Mismatch { image: String, what: String, expected: String, found: String },
    #[error("could not parse {what} of `{image}`")]
    Document { image: String, what: String, source: serde_json::Error },
    #[error("could not read layer {layer} of the image")]
    Layer { layer: usize, source: io::Error },
    #[error("layer {layer} of the image: refused `{entry}`: {why}")]
    Entry { layer: usize, entry: String, why: &'static str },
    #[error("layer {layer} of the image: refused after `{entry}`: {why}")]
    Limit { layer: usize, entry: String, why: String },
    #[error("layer {layer} of the image: could not unpack `{entry}`")]
    Unpack { layer: usize, entry: String, source: io::Error },
}

impl ImageError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Reference { .. } => {
                Some("use `oci:DIR`, `oci:DIR:TAG`, `docker-archive:FILE` or `rootfs:DIR`".to_owned())
            }
            Self::NotLocal { given } => {
                let name = given.rsplit("://").next().unwrap_or(given);
                Some(format!(
                    "docker save {name} -o image.tar (or: skopeo copy docker://{name} docker-archive:image.tar), \
                     then use `docker-archive:image.tar`"
                ))
            }
            Self::Format { .. } => {
                Some("this image was unpacked by a newer ralph: use that one, or upgrade".to_owned())
            }
            Self::Tag { image, known, .. } | Self::Many { image, known } => tag_hint(image, known),
            Self::Platform { wanted, .. } => {
                Some(format!("save the image again for this machine, e.g. docker pull --platform {wanted}"))
            }
            Self::Mismatch { .. } | Self::Layer { .. } => {
                Some("the image is damaged or was changed: save it again from its source".to_owned())
            }
            Self::Large { .. } | Self::Entry { .. } | Self::Limit { .. } => {
                Some("nothing of this image was kept: use one whose origin you trust".to_owned())
            }
            Self::Read { .. }
            | Self::Store { .. }
            | Self::Unusable { .. }
            | Self::Document { .. }
            | Self::Unpack { .. } => None,
        }
    }
}

fn tag_hint(image: &str, known: &[String]) -> Option<String> {
    if image.starts_with("docker-archive:") {
        return Some("save one image per archive".to_owned());
    }
    let known: Vec<String> = known.iter().map(|tag| format!("`{}`", printable(tag.as_bytes()))).collect();
    (!known.is_empty()).then(|| format!("use `oci:DIR:TAG` with one of {}", list(&known)))
}

fn list(names: &[String]) -> String {
    let more = if names.len() > MAX_LISTED { ", …" } else { "" };
    format!("{}{more}", names.get(..MAX_LISTED).unwrap_or(names).join(", "))
}

/// Makes a name from an image safe to print in a message.
pub(super) fn printable(name: &[u8]) -> String {
    let text = text::strip_control(&String::from_utf8_lossy(name)).replace(['\n', '\r', '\t'], " ");
    match text::head(&text, MAX_SHOWN_BYTES) {
        whole if whole.len() == text.len() => text,
        cut => format!("{cut}…"),
    }
}
