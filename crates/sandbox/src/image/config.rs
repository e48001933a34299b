//! What an image says about how programs in it want to be run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of an image's configuration a sandbox needs. All of it was written by whoever made the image.
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
