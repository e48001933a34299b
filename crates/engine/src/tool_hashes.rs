//! Hashes the programs of this machine that checks were seen to run: what a receipt says of the environment of its proof.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ralph_core::hash::Sha256Hasher;
use ralph_core::proof_files::ObservedFiles;

/// How many programs are listed.
const MAX_PROGRAMS: usize = 50;

/// Of a larger program only the size, the start and the end are hashed.
const PART_BYTES: u64 = 2 << 20;

/// Modules are loaded by a program, which stands for them.
const MODULE_ENDS: [&str; 7] = ["py", "pyc", "so", "rb", "pm", "pl", "lua"];

/// Returns the hash of every program that was seen to run and that this machine has at the same place.
pub(crate) fn tool_hashes<'a>(observed: impl IntoIterator<Item = &'a ObservedFiles>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in observed.into_iter().flat_map(|seen| &seen.outside) {
        let is_module =
            Path::new(path).extension().and_then(|end| end.to_str()).is_some_and(|end| MODULE_ENDS.contains(&end));
        if is_module || found.contains_key(path) || found.len() == MAX_PROGRAMS {
            continue;
        }
        if let Ok(Some(hash)) = hash_program(Path::new(path)) {
            found.insert(path.clone(), hash);
        }
    }
    found
}

/// Returns the programs whose hash is not the recorded one any more.
pub(crate) fn changed_tools(recorded: &BTreeMap<String, String>) -> Vec<String> {
    let differs =
        |(path, hash): &(&String, &String)| hash_program(Path::new(path)).ok().flatten().as_ref() != Some(*hash);
    recorded.iter().filter(differs).map(|(path, _)| path.clone()).collect()
}

/// Returns the hash of an executable file; `None` if it is none.
fn hash_program(path: &Path) -> io::Result<Option<String>> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut hasher = Sha256Hasher::default();
    hasher.update(&meta.len().to_le_bytes());
    let mut part = Vec::new();
    file.by_ref().take(PART_BYTES).read_to_end(&mut part)?;
    hasher.update(&part);
    if meta.len() > PART_BYTES {
        file.seek(SeekFrom::Start(meta.len().saturating_sub(PART_BYTES).max(PART_BYTES)))?;
        part.clear();
        file.take(PART_BYTES).read_to_end(&mut part)?;
        hasher.update(&part);
    }
    Ok(Some(hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let put = |name: &str, text: &[u8], mode: u32| {
            std::fs::write(at(name), text).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        put("tool", b"one", 0o755);
        put("notes", b"one", 0o644);
        put("module.py", b"one", 0o755);
        let large = vec![b'x'; 5 << 20];
        put("large", &large, 0o755);
        let outside = ["tool", "notes", "module.py", "large", "missing"].map(&at).into();
        let seen = ObservedFiles { outside, ..ObservedFiles::default() };
        let hashes = tool_hashes([&seen]);
        assert_eq!(hashes.keys().cloned().collect::<Vec<_>>(), [at("large"), at("tool")]);
        assert_eq!(changed_tools(&hashes), Vec::<String>::new());
        put("tool", b"two", 0o755);
        let mut other = large;
        other.push(b'y');
        put("large", &other, 0o755);
        assert_eq!(changed_tools(&hashes), [at("large"), at("tool")]);
    }
}
