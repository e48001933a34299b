//! Finds the files that decide whether a task is proved, besides its command lines, in the run's start commit.

use ralph_core::event::PinnedBox;
use ralph_core::proof_files::{self, ProofFiles, StartCommitFiles};
use ralph_core::task::Task;

use crate::error::Error;
use crate::git::{self, BareRepo, Sha};

/// How much of a script is read; a larger one is protected, but not read.
const SCRIPT_CAP: usize = 256 << 10;

/// How deep scripts may call other scripts.
const MAX_SCRIPT_DEPTH: usize = 16;

/// Finds the files that decide whether a task is proved.
pub(super) async fn find_proof_files(bare: &BareRepo, start: &Sha, task: &Task) -> Result<ProofFiles, Error> {
    let front = &task.front;
    let gates: Vec<&String> = front.test_command.iter().chain(&front.verify_commands).collect();
    let boxes = PinnedBox::from_task(task);
    let proofs: Vec<&String> =
        boxes.iter().flat_map(|pinned| &pinned.proofs).filter(|proof| !gates.contains(proof)).collect();
    let mut found = find_files_of_commands(bare, start, &gates, &proofs, &front.protected_paths).await?;
    // What the task gives to the run is not protected from it.
    let freed = git::globs(front.freed_paths().iter());
    found.files.retain(|path| !freed.is_match(path));
    found.parts.retain(|part| !freed.is_match(&part.path));
    Ok(found)
}

/// Finds the files that decide whether commands succeed, without those that `protected` excludes with a `!path`.
pub(crate) async fn find_files_of_commands(
    bare: &BareRepo,
    start: &Sha,
    gates: &[&String],
    proofs: &[&String],
    protected: &[String],
) -> Result<ProofFiles, Error> {
    let mut base = StartCommitFiles::default();
    base.files.extend(bare.odb().files_at(start).await?.into_iter().map(|entry| entry.path));
    let mut found = ProofFiles::default();
    for _ in 0..MAX_SCRIPT_DEPTH {
        found = proof_files::find_proof_files(gates.iter().copied(), proofs.iter().copied(), &base, protected);
        if found.unread.is_empty() {
            break;
        }
        for path in &found.unread {
            let bytes = bare.odb().file_at(start, path, SCRIPT_CAP).await.ok();
            base.read.insert(path.clone(), bytes.and_then(|bytes| String::from_utf8(bytes).ok()));
        }
    }
    Ok(found)
}
