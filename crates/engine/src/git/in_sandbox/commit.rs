//! Commits in the clone under the run's identity, and restores single paths.

use ralph_sandbox::Sandbox;

use super::super::commit_message::compose_message;
use super::super::validated_names::tree_path;
use super::super::{CommitStamp, CommitTrailer, Error, Sha};
use super::script::GitScript;

/// Selects the paths of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitPaths<'a> {
    /// Everything that is not ignored.
    All,
    /// Only these paths, whatever else is staged.
    Only(&'a [&'a str]),
}

// Exit 1 of `commit` may mean that nothing was staged; only then is that checked.
const COMMIT_ALL: &str = r#"set -e
git add -A .
git commit -q --no-verify --cleanup=verbatim -F - >/dev/null || {
  code=$?
  if git diff --cached --quiet --no-ext-diff HEAD; then exit 0; fi
  exit "$code"
}
git rev-parse HEAD"#;

const COMMIT_ONLY: &str = r#"set -e
git add -A -- "$@"
git commit -q --no-verify --cleanup=verbatim -F - --only -- "$@" >/dev/null || {
  code=$?
  if git diff --cached --quiet --no-ext-diff HEAD -- "$@"; then exit 0; fi
  exit "$code"
}
git rev-parse HEAD"#;

/// Creates a commit; `None` if there was nothing to commit.
pub async fn commit(
    sandbox: &dyn Sandbox,
    message: &str,
    paths: CommitPaths<'_>,
    trailers: &[CommitTrailer],
    stamp: &CommitStamp,
) -> Result<Option<Sha>, Error> {
    const DOING: &str = "commit";
    let (text, args) = match paths {
        CommitPaths::All => (COMMIT_ALL, Vec::new()),
        CommitPaths::Only([]) => return Ok(None),
        CommitPaths::Only(paths) => {
            (COMMIT_ONLY, paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?)
        }
    };
    let mut script = GitScript::new(DOING, text, args);
    script.stdin = compose_message(message, trailers).into_bytes();
    script.env = stamp.env();
    let text = script.run(sandbox).await?.text();
    if text.is_empty() {
        return Ok(None);
    }
    Sha::parse(&text).map(Some).map_err(|_| Error::UnexpectedOutput { doing: DOING })
}

// Obstacles are removed first: a folder in place of a file, a link in place of a folder, and an index entry marked to
// be skipped.
const REVERT: &str = r#"set -e
base=$1
shift
for path; do
  rm -rf -- "./$path"
  git rm -rfq --cached --sparse --ignore-unmatch -- "$path"
  if git cat-file -e "$base:$path" 2>/dev/null; then git checkout -q "$base" -- "$path"; fi
done"#;

/// Restores paths to a commit's version, in index and work tree; removes those that the commit does not have.
pub async fn revert_paths(sandbox: &dyn Sandbox, base: &Sha, paths: &[&str]) -> Result<(), Error> {
    let paths = paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?;
    // Argument lists are limited; a hundred paths per process stay far below.
    for chunk in paths.chunks(100) {
        let args = std::iter::once(base.as_str()).chain(chunk.iter().copied()).collect();
        GitScript::new("restore paths", REVERT, args).run(sandbox).await?;
    }
    Ok(())
}
