//! The image's own settings for running programs in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of an image's configuration that a sandbox needs. All of it comes from the author of the image, so it is
/// untrusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ImageConfig {
    /// `NAME=value`, in the order of the image.
    pub env: Vec<String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub labels: BTreeMap<String, String>,
}
