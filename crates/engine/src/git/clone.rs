//! Clones a repository that a task names and that is not checked out here, once, and keeps the clone up to date.

use std::path::Path;
use std::time::Duration;

use super::publish::with_auth;
use super::subprocess::GitProgram;
use super::{Error, GitAuth, GitRemote, UserRepo};

const DOING: &str = "clone the repository";

/// Large histories take time.
const CLONE_TIMEOUT: Duration = Duration::from_hours(1);

/// Returns a clone of a remote; its files are never checked out, because only its objects are read.
pub async fn clone(tool: &GitProgram, remote: &GitRemote, folder: &Path, auth: &GitAuth) -> Result<UserRepo, Error> {
    let io = |doing| move |source| Error::Io { doing, path: folder.to_owned(), source };
    if folder.exists() {
        let call = remote.allow_protocol(tool.command(DOING)).git_dir(&folder.join(".git"));
        let call = call.args(["fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head"]);
        let call = call.args(["--no-recurse-submodules", "--"]).arg(remote.address());
        with_auth(call.arg("+refs/heads/*:refs/remotes/origin/*"), auth).timeout(CLONE_TIMEOUT).run_checked().await?;
        return UserRepo::find(tool, folder).await;
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(io("make a place for"))?;
    let new = folder.with_extension("new");
    // Remains of an interrupted clone are of no use.
    let _ = std::fs::remove_dir_all(&new);
    let call = remote.allow_protocol(tool.command(DOING)).args([
        "clone",
        "--quiet",
        "--no-checkout",
        "--no-tags",
        "--template=",
    ]);
    with_auth(call.arg("--").arg(remote.address()).arg(&new), auth).timeout(CLONE_TIMEOUT).run_checked().await?;
    // A password in the address is used for this call only and not stored.
    let config = tool.command(DOING).git_dir(&new.join(".git")).args(["config", "remote.origin.url"]);
    config.arg(remote.display_url()).run_checked().await?;
    std::fs::rename(&new, folder).map_err(io("keep"))?;
    UserRepo::find(tool, folder).await
}

/// Reports whether two addresses mean the same repository, regardless of spelling.
pub fn same_address(one: &str, other: &str) -> bool {
    normalized_address(one) == normalized_address(other)
}

fn normalized_address(address: &str) -> String {
    let address = address.trim().trim_end_matches('/').trim_end_matches(".git");
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    // `git@host:owner/repo` and `ssh://git@host/owner/repo` are the same place.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, path) = rest.split_once(['/', ':']).unwrap_or((rest, ""));
    format!("{}/{}", host.to_ascii_lowercase(), path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (one, other, same) in [
            ("https://github.com/o/r.git", "git@github.com:o/r", true),
            ("https://me:tok@GitHub.com/o/r/", "ssh://git@github.com/o/r.git", true),
            ("https://github.com/o/r", "https://github.com/o/s", false),
            ("https://github.com/o/r", "https://example.com/o/r", false),
            ("/srv/r.git", "/srv/r", true),
        ] {
            assert_eq!(same_address(one, other), same, "{one} {other}");
        }
    }
}
