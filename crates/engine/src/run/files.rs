//! The `.ralph` files in the sandbox and their mirror on the host.
//!
//! The agent may read and extend them; what is append-only stays so. The mirror is what a restore and a resume go by.

use std::path::{Path, PathBuf};

use ralph_core::prompt::templates;
use ralph_sandbox::{Error as SandboxError, Sandbox};

use crate::error::Error;
use crate::store::{Folder, write_atomic, write_unflushed};

/// The version of the layout below `.ralph`.
const FORMAT: &str = "1\n";

/// Files that only ever grow.
pub(super) const APPEND_ONLY: [&str; 4] = ["guardrails.md", "diagnostics.md", "errors.log", "activity.log"];

/// Files the agent writes as it likes.
pub(super) const FREE: [&str; 2] = ["progress.md", "notes.md"];

/// No `.ralph` file may be larger; a larger one is put back.
const CAP: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Files {
    folder: Folder,
}

/// Returns where a `.ralph` file stands in the workspace.
pub(super) fn inside(name: &str) -> PathBuf {
    Path::new(".ralph").join(name)
}

impl Files {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder }
    }

    /// Writes the starting templates, or what the mirror holds when a sandbox is made anew.
    pub(super) async fn start(&self, sandbox: &dyn Sandbox) -> Result<(), Error> {
        sandbox.write(&inside("format"), FORMAT.as_bytes(), None).await?;
        for name in APPEND_ONLY.into_iter().chain(FREE) {
            let mirror = self.folder.mirror(name);
            let content = match self.folder.read(&mirror)? {
                Some(content) => content,
                None => {
                    let template = templates::start(name).into_bytes();
                    write_atomic(&mirror, &template)?;
                    template
                }
            };
            sandbox.write(&inside(name), &content, None).await?;
        }
        Ok(())
    }

    /// Takes the files of an adopted sandbox over as they are; nothing else is left of them.
    pub(super) async fn recover(&self, sandbox: &dyn Sandbox) -> Result<(), Error> {
        for name in APPEND_ONLY.into_iter().chain(FREE) {
            let content =
                sandbox.read(&inside(name), CAP).await.unwrap_or_else(|_| templates::start(name).into_bytes());
            write_atomic(&self.folder.mirror(name), &content)?;
        }
        Ok(())
    }

    /// Reads a `.ralph` file as the agent sees it.
    pub(super) async fn read(&self, sandbox: &dyn Sandbox, name: &str) -> String {
        match sandbox.read(&inside(name), CAP).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                tracing::debug!(%error, name, "a .ralph file could not be read");
                String::new()
            }
        }
    }

    /// Appends to a file as the agent might do, and follows it on the host.
    pub(super) async fn append(&self, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        let appended = match sandbox.append(&inside(name), text.as_bytes()).await {
            Ok(()) => true,
            // What stands in the way there is found by `astray` and put right from here.
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let followed = if FREE.contains(&name) {
            self.copy(sandbox, name).await?;
            appended
        } else {
            self.follow(sandbox, name).await? && appended
        };
        if followed {
            return Ok(());
        }
        write_atomic(&self.folder.mirror(name), &[&self.mirror(name)?, text.as_bytes()].concat())
    }

    /// Appends one step's own lines to a log that was `at` bytes long before that step; doing it twice is doing it once.
    pub(super) async fn append_at(&self, sandbox: &dyn Sandbox, name: &str, at: u64, text: &str) -> Result<(), Error> {
        let mirror = self.mirror(name)?;
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(mirror.len());
        let again = at < mirror.len();
        let written = if again {
            let whole = [mirror.get(..at).unwrap_or_default(), text.as_bytes()].concat();
            write_atomic(&self.folder.mirror(name), &whole)?;
            sandbox.write(&inside(name), &whole, None).await
        } else {
            self.remember(name, text)?;
            sandbox.append(&inside(name), text.as_bytes()).await
        };
        match written {
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for a step that always has the same to say: its lines may be the last ones already.
    pub(super) async fn append_last(&self, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        let mirror = self.mirror(name)?;
        let said = if mirror.ends_with(text.as_bytes()) { text.len() } else { 0 };
        self.append_at(sandbox, name, mirror.len().saturating_sub(said) as u64, text).await
    }

    /// Appends to the host's copy alone, unless that ends so already; a sandbox that is made anew gets it from there.
    pub(super) fn remember(&self, name: &str, text: &str) -> Result<(), Error> {
        let mirror = self.mirror(name)?;
        if mirror.ends_with(text.as_bytes()) {
            return Ok(());
        }
        write_atomic(&self.folder.mirror(name), &[&mirror, text.as_bytes()].concat())
    }

    /// Returns how long the host's copy of a file is.
    pub(super) fn length(&self, name: &str) -> Result<u64, Error> {
        Ok(self.mirror(name)?.len() as u64)
    }

    fn mirror(&self, name: &str) -> Result<Vec<u8>, Error> {
        Ok(self.folder.read(&self.folder.mirror(name))?.unwrap_or_default())
    }

    /// Takes over what an append-only file has more than its copy; false when it does not begin like its copy any more.
    async fn follow(&self, sandbox: &dyn Sandbox, name: &str) -> Result<bool, Error> {
        let mirror = self.mirror(name)?;
        match sandbox.read(&inside(name), CAP).await {
            Ok(content) if content == mirror => Ok(true),
            Ok(content) if content.starts_with(&mirror) => {
                write_atomic(&self.folder.mirror(name), &content)?;
                Ok(true)
            }
            Ok(_) | Err(SandboxError::Refused { .. } | SandboxError::File { .. } | SandboxError::TooLarge { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over a file the agent writes as it likes.
    async fn copy(&self, sandbox: &dyn Sandbox, name: &str) -> Result<(), Error> {
        match sandbox.read(&inside(name), CAP).await {
            Ok(content) if content != self.mirror(name)? => write_atomic(&self.folder.mirror(name), &content),
            // One that cannot be read is the agent's own loss.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Follows the files that grew and returns the append-only ones that were cut or overwritten.
    pub(super) async fn astray(&self, sandbox: &dyn Sandbox) -> Result<Vec<&'static str>, Error> {
        let mut astray = Vec::new();
        for name in APPEND_ONLY {
            if !self.follow(sandbox, name).await? {
                astray.push(name);
            }
        }
        for name in FREE {
            self.copy(sandbox, name).await?;
        }
        Ok(astray)
    }

    /// Puts a file back to what its copy says.
    pub(super) async fn put_back(&self, sandbox: &dyn Sandbox, name: &str) -> Result<(), Error> {
        clear_way(sandbox, &inside(name)).await?;
        Ok(sandbox.write(&inside(name), &self.mirror(name)?, None).await?)
    }

    /// Writes an artefact of an iteration on the host and in the sandbox. No decision of the run rests on it, so nobody
    /// waits for the disk.
    pub(super) async fn artefact(&self, sandbox: &dyn Sandbox, n: u32, name: &str, bytes: &[u8]) -> Result<(), Error> {
        write_unflushed(&self.folder.iteration(n).join(name), bytes)?;
        self.show(sandbox, n, name, bytes).await
    }

    /// Writes an artefact in the sandbox alone: the host's is there already.
    pub(super) async fn show(&self, sandbox: &dyn Sandbox, n: u32, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = inside("iterations").join(n.to_string()).join(name);
        match sandbox.write(&path, bytes, None).await {
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => {
                clear_way(sandbox, &inside("iterations")).await?;
                Ok(sandbox.write(&path, bytes, None).await?)
            }
            other => Ok(other?),
        }
    }
}

/// Removes a link, pipe or folder that an agent put where one of our files belongs. `rm` runs inside the sandbox, so it
/// can reach nothing that commands there cannot reach anyway.
async fn clear_way(sandbox: &dyn Sandbox, path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut lines = String::from(
        "for p in \"$@\"; do if [ -L \"$p\" ] || { [ -e \"$p\" ] && [ ! -d \"$p\" ]; }; then rm -f -- \"$p\"; fi; done;",
    );
    lines.push_str(" last=; for p in \"$@\"; do last=$p; done; if [ -d \"$last\" ] && [ ! -L \"$last\" ]; then chmod -R u+rwX -- \"$last\"; fi");
    if path.extension().is_some() {
        lines.push_str("; rm -rf -- \"$last\"");
    }
    let argv = [
        "sh".to_owned(),
        "-c".to_owned(),
        lines,
        "sh".to_owned(),
        parent.display().to_string(),
        path.display().to_string(),
    ];
    let exec = ralph_sandbox::Exec::new(argv, std::time::Duration::from_secs(30));
    ralph_sandbox::capture(sandbox, &exec, 4096).await?;
    Ok(())
}
