//! Creates ralph's own commits in the clone, and detects those that already exist so that none is created twice.

use std::time::Duration;

use ralph_sandbox::{ExecRequest, Sandbox, capture};

use super::super::validated_names::tree_path;
use super::super::{CommitStamp, Error, Sha};
use super::script::{GitScript, with_safe_config};

const FIND_CHILD: &str = r#"set -e
if [ "$(git rev-parse -q --verify 'HEAD^' || :)" = "$1" ]; then git rev-parse HEAD; git log -1 --format=%B; fi"#;

/// Returns HEAD if it is the commit with exactly this message on top of `parent`.
pub async fn head_if_child_of(sandbox: &dyn Sandbox, parent: &str, message: &str) -> Result<Option<String>, Error> {
    let text = GitScript::new("look for a commit", FIND_CHILD, vec![parent]).run(sandbox).await?.text();
    let found = text.split_once('\n').filter(|(_, body)| body.trim() == message.trim());
    Ok(found.map(|(sha, _)| sha.to_owned()))
}

// Plumbing on a separate index: files that the checks left in the work tree do not become part of the commit.
const COMMIT_VERIFIED: &str = r#"set -e
tree=$1 path=$2 message=$3
export GIT_INDEX_FILE=.git/ralph-tick
rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock" .git/index.lock .git/HEAD.lock
git read-tree "${tree:-HEAD}"
blob=$(git hash-object -w --no-filters --stdin)
git update-index --add --cacheinfo "100644,$blob,$path"
new=$(git write-tree)
rm -f "$GIT_INDEX_FILE"
unset GIT_INDEX_FILE
if [ "$new" != "$(git rev-parse 'HEAD^{tree}')" ]; then
  git update-ref HEAD "$(printf %s "$message" | git commit-tree -p HEAD -F - "$new")"
fi
git reset -q || { rm -rf .git/index; git reset -q; }"#;

/// Commits a tree as it was checked, with the task file as given; does nothing if HEAD already has that tree.
pub async fn commit_verified(
    sandbox: &dyn Sandbox,
    tree: Option<&str>,
    task: (&str, &[u8]),
    message: &str,
    stamp: &CommitStamp,
) -> Result<(), Error> {
    let mut script = GitScript::new(
        "commit what was verified",
        COMMIT_VERIFIED,
        vec![tree.unwrap_or(""), tree_path(task.0)?, message],
    );
    script.stdin = task.1.to_vec();
    script.env = stamp.env();
    script.run(sandbox).await?;
    Ok(())
}

// As above: the index and the work tree already have the old paths, and the agent's other changes stay out of the
// commit.
const COMMIT_REVERTED: &str = r#"set -e
base=$1 message=$2
shift 2
export GIT_INDEX_FILE=.git/ralph-tick
rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
git read-tree HEAD
for path; do
  git rm -rfq --cached --ignore-unmatch -- "$path"
  git ls-tree -r -z "$base" -- "$path" | git update-index -z --index-info
done
new=$(git write-tree)
rm -f "$GIT_INDEX_FILE"
unset GIT_INDEX_FILE
if [ "$new" != "$(git rev-parse 'HEAD^{tree}')" ]; then
  git update-ref HEAD "$(printf %s "$message" | git commit-tree -p HEAD -F - "$new")"
fi"#;

/// Commits paths as they were in `base`; does nothing if HEAD already has them so.
pub async fn commit_reverted(
    sandbox: &dyn Sandbox,
    base: &Sha,
    paths: &[&str],
    message: &str,
    stamp: &CommitStamp,
) -> Result<(), Error> {
    let paths = paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?;
    let args = [base.as_str(), message].into_iter().chain(paths).collect();
    let mut script = GitScript::new("commit the restored paths", COMMIT_REVERTED, args);
    script.env = stamp.env();
    script.run(sandbox).await?;
    Ok(())
}

const ATTACH_TO_BRANCH: &str = r#"set -e
git update-ref "refs/heads/$1" HEAD
git symbolic-ref HEAD "refs/heads/$1""#;

/// Makes the checked-out commit the tip of a branch, and checks out that branch.
pub async fn attach_to_branch(sandbox: &dyn Sandbox, branch: &str) -> Result<(), Error> {
    GitScript::new("go back to the branch", ATTACH_TO_BRANCH, vec![branch]).run(sandbox).await?;
    Ok(())
}

/// Discards ralph's own index of the clone: the next status reads every file, whatever the agent wrote into that
/// index.
pub async fn discard_status_index(sandbox: &dyn Sandbox) -> Result<(), Error> {
    GitScript::new("discard an index", "rm -rf .git/ralph-index .git/ralph-index.lock .git/ralph-head", vec![])
        .run(sandbox)
        .await?;
    Ok(())
}

const CLEAR: &str = r#"rest=$1 folder=.
while :; do
  case $rest in */*) ;; *) break ;; esac
  folder=$folder/${rest%%/*} rest=${rest#*/}
  if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -d "$folder" ]; }; then rm -f -- "$folder"; fi
done
if [ -L "$1" ] || [ ! -f "$1" ]; then rm -rf -- "./$1"; fi"#;

/// Removes anything at a path that is not a plain file, and links and files in the place of the folders above it.
pub async fn remove_non_file(sandbox: &dyn Sandbox, path: &str) -> Result<(), Error> {
    GitScript::new("clear a path", CLEAR, vec![tree_path(path)?]).run(sandbox).await?;
    Ok(())
}

// A folder that is empty then did not exist before: git has no empty folders.
const REMOVE: &str = r#"for path; do
  rm -rf -- "./$path"
  case $path in */*) rmdir -p -- "${path%/*}" 2>/dev/null || : ;; esac
done"#;

/// Removes whatever is at these paths, and the folders that are empty without it.
pub async fn remove_paths(sandbox: &dyn Sandbox, paths: &[&str]) -> Result<(), Error> {
    let paths = paths.iter().map(|path| tree_path(path)).collect::<Result<Vec<_>, _>>()?;
    for chunk in paths.chunks(100) {
        GitScript::new("remove files", REMOVE, chunk.to_vec()).run(sandbox).await?;
    }
    Ok(())
}

const UNLOCK: &str = r"[ -d .git ] || exit 0
find .git -maxdepth 1 -name '*.lock' -exec rm -f {} +
if [ -d .git/refs ]; then find .git/refs -name '*.lock' -exec rm -f {} + ; fi
find . -name .git -prune -o -type f -name '.ralph-*.tmp' -exec rm -f {} +";

/// Removes leftovers of a dead owner: locks of its git processes and files not yet renamed to their final name.
/// Nothing else runs in the sandbox then.
pub async fn remove_stale_locks(sandbox: &dyn Sandbox) -> Result<(), Error> {
    GitScript::new("remove old locks", UNLOCK, vec![]).run(sandbox).await?;
    Ok(())
}

/// Prints the difference of two trees, cut in the middle when it is longer than `cap`.
pub async fn diff(sandbox: &dyn Sandbox, from: &str, to: &str, cap: usize) -> Result<String, Error> {
    const DOING: &str = "compare two trees";
    let argv =
        ["git", "diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", from, to];
    let exec = with_safe_config(ExecRequest::new(argv, Duration::from_mins(1)));
    let out = capture(sandbox, &exec, cap).await.map_err(|source| Error::Sandbox { doing: DOING, source })?;
    Ok(out.stdout_text())
}
