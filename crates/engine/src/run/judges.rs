//! What judges a task besides its command lines, found in the commit the run starts from.

use ralph_core::event::PinnedBox;
use ralph_core::proof::{self, Base, Judges};
use ralph_core::task::Task;

use crate::error::Error;
use crate::git::{Bare, Sha};

/// So much of a script is looked at; a larger one is protected, but not read.
const SCRIPT_CAP: usize = 256 << 10;

/// How often a script may lead to another.
const ROUNDS: usize = 16;

/// Finds what judges a task.
pub(super) async fn judges(bare: &Bare, start: &Sha, task: &Task) -> Result<Judges, Error> {
    let front = &task.front;
    let gates: Vec<&String> = front.test_command.iter().chain(&front.verify_commands).collect();
    let boxes = PinnedBox::all(task);
    let proofs: Vec<&String> =
        boxes.iter().flat_map(|pinned| &pinned.proofs).filter(|proof| !gates.contains(proof)).collect();
    let mut base = Base::default();
    base.files.extend(bare.odb().files_at(start).await?.into_iter().map(|entry| entry.path));
    let mut found = Judges::default();
    for _ in 0..ROUNDS {
        found = proof::judges(gates.iter().copied(), proofs.iter().copied(), &base, &front.protected_paths);
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
