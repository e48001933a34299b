//! Seeds the sandbox with the repository, and takes the work out again as a bundle file.

use std::path::Path;
use std::time::Duration;

use ralph_sandbox::Sandbox;

use ralph_core::event::CommitIdentity;
use ralph_core::identifiers::TaskBranch;

use super::super::{Error, Sha};
use super::script::GitScript;

/// The source of a sandbox's clone.
#[derive(Debug, Clone, Copy)]
pub struct CloneSeed<'a> {
    /// A bundle on the host that contains the branch.
    pub bundle: &'a Path,
    pub branch: &'a TaskBranch,
    pub identity: &'a CommitIdentity,
    /// Where the history ends, if the user's clone is shallow.
    pub shallow: Option<&'a [u8]>,
    pub state: StateFiles,
}

/// Whether ralph's own files in the repository become part of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFiles {
    /// `.ralph/` is excluded.
    Excluded,
    /// `commit_state: true`.
    Committed,
}

// Every step may be repeated: an interrupted seed is simply run again. Files are checked out byte for byte: an attribute
// of the commit could otherwise turn a test into another text. Caches that Python writes beside every test are no work.
const SEED: &str = r#"set -e
git init -q -b "$1" .
if [ "$5" = shallow ]; then cat > .git/shallow; fi
git fetch -q --no-tags --update-head-ok "$2" "+refs/heads/$1:refs/heads/$1"
git symbolic-ref HEAD "refs/heads/$1"
mkdir -p .git/info
echo '* -text !eol -ident !filter !working-tree-encoding' > .git/info/attributes
git reset -q --hard
git config user.name "$3"
git config user.email "$4"
printf '%s\n' __pycache__/ .pytest_cache/ > .git/info/exclude
if [ "$6" = out ]; then echo /.ralph/ >> .git/info/exclude; fi
rm -f -- "$2"
git rev-parse HEAD"#;

/// Creates the clone in the workspace: the branch checked out, no remotes, no settings of the host. Returns its
/// commit.
pub async fn seed(sandbox: &dyn Sandbox, seed: CloneSeed<'_>) -> Result<Sha, Error> {
    const DOING: &str = "make the clone";
    let inside = sandbox.exchange().join("ralph-seed.bundle");
    sandbox
        .copy_in(seed.bundle, &inside)
        .await
        .map_err(|source| Error::Sandbox { doing: "receive the bundle", source })?;
    let inside = inside.to_string_lossy();
    let shallow = if seed.shallow.is_some() { "shallow" } else { "whole" };
    let state = if seed.state == StateFiles::Excluded { "out" } else { "in" };
    let identity = seed.identity;
    let args = vec![seed.branch.as_str(), &inside, &identity.name, &identity.email, shallow, state];
    let mut script = GitScript::new(DOING, SEED, args);
    script.stdin = seed.shallow.unwrap_or_default().to_vec();
    script.timeout = Duration::from_mins(20);
    let text = script.run(sandbox).await?.text();
    Sha::parse(&text).map_err(|_| Error::UnexpectedOutput { doing: DOING })
}

/// The outcome of bundling the sandbox's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleOutcome {
    /// The branch has not moved.
    Nothing,
    /// A file at the given host path; its content is not checked yet.
    File { bytes: u64 },
}

// The same file as `git bundle create` writes, with one process instead of three: this runs in every iteration.
const BUNDLE: &str = r#"set -e
rm -f -- "$3"
tip=$(git rev-parse "refs/heads/$1^{commit}")
if [ "$tip" = "$2" ]; then echo nothing; exit 0; fi
case ${#tip} in
  40) start='# v2 git bundle' ;;
  *) start='# v3 git bundle
@object-format=sha256' ;;
esac
{
  printf '%s\n-%s\n%s %s\n\n' "$start" "$2" "$tip" "refs/heads/$1"
  printf '%s\n^%s\n' "$tip" "$2" | git pack-objects -q --revs --thin --delta-base-offset --threads=1 --stdout
} > "$3"
echo file"#;

/// Source and destination of a bundle.
#[derive(Debug, Clone, Copy)]
pub struct BundleRequest<'a> {
    pub branch: &'a TaskBranch,
    /// A commit the host has: what it reaches is not bundled again.
    pub known: &'a Sha,
    /// A host path that must not exist yet.
    pub host: &'a Path,
    pub cap: u64,
}

/// Creates a bundle of the branch and copies it out.
pub async fn bundle(sandbox: &dyn Sandbox, request: BundleRequest<'_>) -> Result<BundleOutcome, Error> {
    let inside = sandbox.exchange().join("ralph-work.bundle");
    let name = inside.to_string_lossy();
    let script =
        GitScript::new("bundle the branch", BUNDLE, vec![request.branch.as_str(), request.known.as_str(), &name]);
    if script.run(sandbox).await?.text() == "nothing" {
        return Ok(BundleOutcome::Nothing);
    }
    let copied = sandbox.copy_out(&inside, request.host, request.cap).await;
    let bytes = copied.map_err(|source| Error::Sandbox { doing: "copy out the bundle", source })?;
    Ok(BundleOutcome::File { bytes })
}
