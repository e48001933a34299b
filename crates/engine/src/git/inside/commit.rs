//! Committing in the clone under the run's identity, and taking single paths back.

use ralph_sandbox::Sandbox;

use super::super::message::compose;
use super::super::names::tree_path;
use super::super::{Error, Sha, Stamp, Trailer};
use super::start::Script;

/// What a commit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paths<'a> {
    /// Everything that is not ignored.
    All,
    /// These paths alone, whatever else is staged.
    Only(&'a [&'a str]),
}

// Exit 1 of `commit` may mean that nothing was staged; only then it is worth a look.
const ALL: &str = r#"set -e
git add -A .
git commit -q --no-verify --cleanup=verbatim -F - >/dev/null || {
  code=$?
  if git diff --cached --quiet --no-ext-diff HEAD; then exit 0; fi
  exit "$code"
}
git rev-parse HEAD"#;

const ONLY: &str = r#"set -e
git add -A -- "$@"
git commit -q --no-verify --cleanup=verbatim -F - --only -- "$@" >/dev/null || {
  code=$?
  if git diff --cached --quiet --no-ext-diff HEAD -- "$@"; then exit 0; fi
  exit "$code"
}
git rev-parse HEAD"#;

/// Commits; `None` when there was nothing to commit.
pub async fn commit(
    sandbox: &dyn Sandbox,
    message: &str,
    paths: Paths<'_>,
    trailers: &[Trailer],
    stamp: &Stamp,
) -> Result<Option<Sha>, Error> {
    const DOING: &str = "commit";
    let (text, args) = match paths {
        Paths::All => (ALL, Vec::new()),
        Paths::Only([]) => return Ok(None),
        Paths::Only(paths) => (ONLY, paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?),
    };
    let mut script = Script::new(DOING, text, args);
    script.stdin = compose(message, trailers).into_bytes();
    script.env = stamp.env();
    let text = script.run(sandbox).await?.text();
    if text.is_empty() {
        return Ok(None);
    }
    Sha::parse(&text).map(Some).map_err(|_| Error::Odd { doing: DOING })
}

// What stands in the way goes first: a folder where a file was, a link where a folder was, and in the index an entry
// that was told to look away.
const REVERT: &str = r#"set -e
base=$1
shift
for path; do
  rm -rf -- "./$path"
  git rm -rfq --cached --sparse --ignore-unmatch -- "$path"
  if git cat-file -e "$base:$path" 2>/dev/null; then git checkout -q "$base" -- "$path"; fi
done"#;

/// Puts paths back to what they are in a commit, in index and work tree; those it does not have are removed.
pub async fn revert_paths(sandbox: &dyn Sandbox, base: &Sha, paths: &[&str]) -> Result<(), Error> {
    let paths = paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?;
    // Argument lists are limited; a hundred paths a start stay far below.
    for chunk in paths.chunks(100) {
        let args = std::iter::once(base.as_str()).chain(chunk.iter().copied()).collect();
        Script::new("put paths back", REVERT, args).run(sandbox).await?;
    }
    Ok(())
}
