//! The user's toolchains inside a cage: what was found on the host, as mounts, files and variables.

use std::io;
use std::path::{Component, Path, PathBuf};

use ralph_core::config::Toolchains;

use super::backend::User;
use super::layout;
use super::plan::{Bind, Ids, Volume};
use super::{HOME, system};
use crate::files::{self, Root};
use crate::image::ImageConfig;
use crate::toolchain::{self, Found, Host};
use crate::{Error, Layer};

/// Where programs are in every base.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where the layers over shared caches lie in a sandbox's folder.
const CACHES: &str = "caches";

/// What was found for one wish.
#[derive(Debug)]
pub(super) struct Tools {
    found: Found,
    path: String,
}

/// What of it is mounted in one cage.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) binds: Vec<Bind>,
    pub(super) volumes: Vec<Volume>,
    pub(super) masks: Vec<String>,
}

impl Tools {
    /// Looks for what a sandbox wishes to see; nothing where nobody is told of.
    pub(super) fn find(asked: &Toolchains, user: Option<&User>) -> Result<Self, Error> {
        let found = match user {
            None => Found::default(),
            Some(user) => {
                let env = |name: &str| user.env.get(name).map(Into::into);
                let host = Host { home: &user.home, path: &user.path, env: &env };
                toolchain::find(asked, &host).map_err(|source| Error::Toolchains { source })?
            }
        };
        for note in &found.notes {
            tracing::info!(note, "toolchains");
        }
        let path: Vec<_> = found.path.iter().map(|dir| dir.to_string_lossy()).collect();
        let path = if path.is_empty() { PATH.to_owned() } else { path.join(":") };
        Ok(Self { found, path })
    }

    /// Takes an image's own variables.
    pub(super) fn of_image(config: &ImageConfig) -> Self {
        let split = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut env: std::collections::BTreeMap<String, String> = config.env.iter().filter_map(split).collect();
        let path = env.remove("PATH").unwrap_or_else(|| PATH.to_owned());
        Self { found: Found { env, ..Found::default() }, path }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What a person should know about what is and is not shown.
    pub(super) fn notes(&self) -> &[String] {
        &self.found.notes
    }

    /// Writes what toolchains expect in a fresh home.
    pub(super) fn furnish(&self, id: &str, home: &Path) -> Result<(), Error> {
        let root = Root::open(id, home)?;
        for file in &self.found.files {
            if let Ok(below) = file.path.strip_prefix(HOME) {
                files::replace(&root, below, file.content.as_bytes(), Some(0o600))?;
            }
        }
        Ok(())
    }

    /// Returns the mounts of a cage over the sandbox in `folder`.
    pub(super) fn shown(&self, folder: &Path, share_caches: bool, ids: &Ids) -> io::Result<Shown> {
        let mut shown = Shown::default();
        // One that has gone since it was found is missing inside, as it is outside.
        for bind in self.found.binds.iter().filter(|bind| bind.source.exists()) {
            shown.binds.push(system::bind(&bind.source, &bind.target.to_string_lossy())?);
            shown.mask(bind);
        }
        for cache in self.found.caches.iter().filter(|_| share_caches) {
            let Some(lower) = cache.lower.as_ref().filter(|lower| lower.source.is_dir()) else { continue };
            let own = folder.join(CACHES).join(cache.name);
            for part in ["upper", "work"] {
                if !own.join(part).exists() {
                    std::fs::create_dir_all(&own)?;
                    layout::own(&own.join(part), ids)?;
                }
            }
            shown.volumes.push(Volume {
                target: cache.dir.to_string_lossy().into_owned(),
                upper: system::source(&own.join("upper"))?,
                lower: vec![system::source(&lower.source)?],
                work: Some(system::source(&own.join("work"))?),
            });
            shown.mask(lower);
        }
        Ok(shown)
    }
}

impl Shown {
    /// Shows further directories at the place they have on the host.
    pub(super) fn add(&mut self, binds: &[PathBuf], masks: &[PathBuf]) -> io::Result<()> {
        for path in binds.iter().filter(|path| path.exists()) {
            self.binds.push(system::bind(&system::plain(path)?, &path.to_string_lossy())?);
        }
        self.masks.extend(masks.iter().map(|path| path.to_string_lossy().into_owned()));
        Ok(())
    }

    /// Shows files and directories of the host at a place of their own. One that is gone is told: whoever asked for it
    /// cannot do without.
    pub(super) fn layers(&mut self, layers: &[Layer]) -> io::Result<()> {
        for layer in layers {
            let parts: Vec<Component<'_>> = layer.inside.components().collect();
            let plain = parts.iter().skip(1).all(|part| matches!(part, Component::Normal(_)));
            let target = layer.inside.to_str().filter(|_| layer.inside.is_absolute() && plain && parts.len() > 2);
            let target = target.ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no place for it", layer.inside.display()))
            })?;
            self.binds.push(system::bind(&system::plain(&layer.host)?, target)?);
        }
        Ok(())
    }

    fn mask(&mut self, bind: &toolchain::Bind) {
        self.masks.extend(bind.mask.iter().map(|mask| bind.target.join(&mask.below).to_string_lossy().into_owned()));
    }
}
