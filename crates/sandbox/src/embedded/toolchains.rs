//! Makes the user's toolchains visible inside a cage, as mounts, files and variables.

use std::io;
use std::path::{Component, Path, PathBuf};

use ralph_core::config::ToolchainSelection;

use super::layout;
use super::plan::{CageBind, CageVolume, IdMapping};
use super::{HOME, visible_host_paths};
use crate::files::{self, RootDir};
use crate::image::ImageConfig;
use crate::platform::HostUser;
use crate::toolchain::{self, ToolchainHost, ToolchainSetup};
use crate::{Error, HostLayer};

/// The `PATH` that works with every base.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The directory of the layers over shared caches, in a sandbox's folder.
const CACHES_DIR: &str = "caches";

/// The toolchains found for one selection.
#[derive(Debug)]
pub(super) struct CageToolchains {
    found: ToolchainSetup,
    path: String,
}

/// The mounts of the toolchains and layers in one cage.
#[derive(Debug, Default)]
pub(super) struct ToolchainMounts {
    pub(super) binds: Vec<CageBind>,
    pub(super) volumes: Vec<CageVolume>,
    pub(super) masks: Vec<String>,
}

impl CageToolchains {
    /// Finds the toolchains that a sandbox requested; none without a user.
    pub(super) fn find(asked: &ToolchainSelection, user: Option<&HostUser>) -> Result<Self, Error> {
        let found = match user {
            None => ToolchainSetup::default(),
            Some(user) => {
                let env = |name: &str| user.env.get(name).map(Into::into);
                let host = ToolchainHost { home: &user.home, path: &user.path, env: &env };
                toolchain::find(asked, &host).map_err(|source| Error::Toolchains { source })?
            }
        };
        for note in &found.notes {
            tracing::info!(note, "toolchains");
        }
        let path: Vec<_> = found.path.iter().map(|dir| dir.to_string_lossy()).collect();
        let path = if path.is_empty() { DEFAULT_PATH.to_owned() } else { path.join(":") };
        Ok(Self { found, path })
    }

    /// Uses an image's own variables.
    pub(super) fn from_image(config: &ImageConfig) -> Self {
        let split = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut env: std::collections::BTreeMap<String, String> = config.env.iter().filter_map(split).collect();
        let path = env.remove("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned());
        Self { found: ToolchainSetup { env, ..ToolchainSetup::default() }, path }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns notes for the user about what is and is not visible.
    pub(super) fn notes(&self) -> &[String] {
        &self.found.notes
    }

    /// Writes the files that toolchains expect in a new home.
    pub(super) fn write_home_files(&self, id: &str, home: &Path) -> Result<(), Error> {
        let root = RootDir::open(id, home)?;
        for file in &self.found.files {
            if let Ok(below) = file.path.strip_prefix(HOME) {
                files::replace(&root, below, file.content.as_bytes(), Some(0o600))?;
            }
        }
        Ok(())
    }

    /// Returns the mounts of a cage for the sandbox in `folder`.
    pub(super) fn mounts(&self, folder: &Path, share_caches: bool, ids: &IdMapping) -> io::Result<ToolchainMounts> {
        let mut shown = ToolchainMounts::default();
        // A directory that was removed since it was found is missing inside too.
        for bind in self.found.binds.iter().filter(|bind| bind.source.exists()) {
            shown.binds.push(visible_host_paths::bind(&bind.source, &bind.target.to_string_lossy())?);
            shown.add_masks(bind);
        }
        for cache in self.found.caches.iter().filter(|_| share_caches) {
            let Some(lower) = cache.lower.as_ref().filter(|lower| lower.source.is_dir()) else { continue };
            let own = folder.join(CACHES_DIR).join(cache.name);
            for part in ["upper", "work"] {
                if !own.join(part).exists() {
                    std::fs::create_dir_all(&own)?;
                    layout::create_agent_dir(&own.join(part), ids)?;
                }
            }
            shown.volumes.push(CageVolume {
                target: cache.dir.to_string_lossy().into_owned(),
                upper: visible_host_paths::mount_source(&own.join("upper"))?,
                lower: vec![visible_host_paths::mount_source(&lower.source)?],
                work: Some(visible_host_paths::mount_source(&own.join("work"))?),
            });
            shown.add_masks(lower);
        }
        Ok(shown)
    }
}

impl ToolchainMounts {
    /// Adds further directories at their host paths.
    pub(super) fn add_binds(&mut self, binds: &[PathBuf], masks: &[PathBuf]) -> io::Result<()> {
        for path in binds.iter().filter(|path| path.exists()) {
            self.binds
                .push(visible_host_paths::bind(&visible_host_paths::canonical_path(path)?, &path.to_string_lossy())?);
        }
        self.masks.extend(masks.iter().map(|path| path.to_string_lossy().into_owned()));
        Ok(())
    }

    /// Adds files and directories of the host at paths of their own. A missing one is an error, because the sandbox
    /// needs it.
    pub(super) fn add_layers(&mut self, layers: &[HostLayer]) -> io::Result<()> {
        for layer in layers {
            let parts: Vec<Component<'_>> = layer.inside.components().collect();
            let plain = parts.iter().skip(1).all(|part| matches!(part, Component::Normal(_)));
            let target = layer.inside.to_str().filter(|_| layer.inside.is_absolute() && plain && parts.len() > 2);
            let target = target.ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{} is not a valid path for it", layer.inside.display()),
                )
            })?;
            self.binds.push(visible_host_paths::bind(&visible_host_paths::canonical_path(&layer.host)?, target)?);
        }
        Ok(())
    }

    fn add_masks(&mut self, bind: &toolchain::ToolchainBind) {
        self.masks.extend(bind.mask.iter().map(|mask| bind.target.join(&mask.below).to_string_lossy().into_owned()));
    }
}
