//! Copies a tree of plain files out of a sandbox.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ralph_sandbox::{DirectoryEntryKind, Sandbox};

/// Limits of a package; no real agent exceeds them, and a package that does is refused.
const MOST_FILES: usize = 100_000;
const MOST_BYTES: u64 = 4 << 30;
const DEEPEST: usize = 40;

/// Why a tree was not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackageCopyError {
    #[error("it has more than {MOST_FILES} files")]
    Files,
    #[error("it has more than 4 GiB")]
    Bytes,
    #[error("its folders are nested too deeply")]
    Depth,
    #[error("a file in it has an invalid name")]
    Name,
    #[error("{0}")]
    Host(String),
    #[error("a file of it cannot be copied out: {0}")]
    Sandbox(#[from] ralph_sandbox::Error),
}

/// Copies everything below `from` in the workspace to a new folder on the host. Links are left out: their targets
/// inside are not what they would lead to on the host.
pub(super) async fn copy_tree(sandbox: &dyn Sandbox, from: &Path, to: &Path) -> Result<(), PackageCopyError> {
    let host = |error: std::io::Error| PackageCopyError::Host(format!("`{}`: {error}", to.display()));
    fs::create_dir_all(to).map_err(host)?;
    let mut open: Vec<(PathBuf, PathBuf, usize)> = vec![(from.to_owned(), to.to_owned(), 0)];
    let (mut files, mut bytes) = (0_usize, 0_u64);
    while let Some((inside, outside, depth)) = open.pop() {
        if depth > DEEPEST {
            return Err(PackageCopyError::Depth);
        }
        for entry in sandbox.list(&inside).await? {
            if entry.name.is_empty() || entry.name.contains(['/', '\0']) || matches!(entry.name.as_str(), "." | "..") {
                return Err(PackageCopyError::Name);
            }
            files += 1;
            if files > MOST_FILES {
                return Err(PackageCopyError::Files);
            }
            let (there, here) = (inside.join(&entry.name), outside.join(&entry.name));
            match entry.kind {
                DirectoryEntryKind::Directory => {
                    fs::create_dir(&here).map_err(host)?;
                    open.push((there, here, depth + 1));
                }
                DirectoryEntryKind::File => {
                    let left = MOST_BYTES.saturating_sub(bytes);
                    if entry.size > left {
                        return Err(PackageCopyError::Bytes);
                    }
                    bytes += sandbox.copy_out(&there, &here, left).await?;
                    // Only the package's author knows which files are programs; a mode is no protection inside.
                    fs::set_permissions(&here, Permissions::from_mode(0o755)).map_err(host)?;
                }
                DirectoryEntryKind::Link | DirectoryEntryKind::Other => (),
            }
        }
    }
    Ok(())
}
