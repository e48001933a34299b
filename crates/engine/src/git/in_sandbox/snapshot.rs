//! Restores an earlier state of the clone.
//!
//! A snapshot is three names of git objects in the clone itself: commit, index and work tree (untracked files
//! included). Ignored files and empty folders are not part of it, and a nested repository only by its commit.

use ralph_sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use super::super::{Error, Sha};
use super::script::GitScript;

/// A state of the clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneSnapshot {
    pub head: Sha,
    /// The full name of the checked-out ref, `None` for a detached commit.
    pub branch: Option<String>,
    pub index: Sha,
    pub tree: Sha,
}

// Everything present is staged first, so that `read-tree` knows what to remove; `clean` then removes what only a
// changed ignore file had hidden. Unfinished merges and rebases belong to the state being left.
const RESTORE: &str = r#"set -e
for sha in "$1" "$3" "$4"; do git cat-file -e "$sha"; done
rm -rf -- .git/index.lock .git/HEAD.lock .git/rebase-merge .git/rebase-apply .git/sequencer
rm -f -- .git/MERGE_HEAD .git/MERGE_MODE .git/MERGE_MSG .git/CHERRY_PICK_HEAD .git/REVERT_HEAD .git/BISECT_LOG .git/AUTO_MERGE
if [ "$2" = HEAD ]; then
  git update-ref --no-deref HEAD "$1"
else
  git update-ref "$2" "$1"
  git symbolic-ref HEAD "$2"
fi
git add -A --ignore-errors . 2>/dev/null || [ $? = 1 ]
git read-tree --reset -u "$4"
git clean -ffdq
git read-tree "$3"
git update-index -q --refresh || :"#;

/// Restores commit, index and work tree; leaves ignored files alone.
pub async fn restore(sandbox: &dyn Sandbox, to: &CloneSnapshot) -> Result<(), Error> {
    let branch = to.branch.as_deref().unwrap_or("HEAD");
    let args = vec![to.head.as_str(), branch, to.index.as_str(), to.tree.as_str()];
    GitScript::new("restore a snapshot", RESTORE, args).run(sandbox).await?;
    Ok(())
}
