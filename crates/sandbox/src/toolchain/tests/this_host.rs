//! Tests the host on which the tests run, whatever is installed: only what must hold everywhere.

use std::path::{Path, PathBuf};

use ralph_core::config::ToolchainSelection;

use crate::toolchain::{ToolchainHost, find};

#[test]
#[expect(clippy::disallowed_methods, reason = "it is about this host")]
fn this_host_is_shown_without_its_secrets() {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir())
    else {
        println!("skipped: there is no home folder");
        return;
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let host = ToolchainHost { home: &home, path: &path, env: &|name| std::env::var_os(name) };
    let found = find(&ToolchainSelection::Auto, &host).expect("auto only notes");
    for bind in &found.binds {
        assert_eq!(bind.source.canonicalize().ok().as_ref(), Some(&bind.source), "{bind:?}");
        assert!(!home.starts_with(&bind.source), "{bind:?}");
        for name in [".npmrc", "credentials.toml", "credentials", ".netrc", ".ssh", ".git"] {
            let there = bind.source.join(name).exists();
            assert_eq!(there, bind.mask.iter().any(|mask| mask.below == Path::new(name)), "{bind:?} {name}");
        }
    }
    for dir in &found.path {
        let system = ["/usr", "/bin", "/sbin"].iter().any(|system| dir.starts_with(system));
        assert!(system || found.binds.iter().any(|bind| dir.starts_with(&bind.target)), "{dir:?}");
    }
    let has_cargo = |dir: &Path| dir.join("cargo").is_file();
    let before = std::env::split_paths(&path).any(|dir| dir.starts_with(&home) && has_cargo(&dir));
    let noted = found.notes.iter().any(|note| note.contains("is not shown"));
    assert!(!before || noted || found.path.iter().any(|dir| has_cargo(dir)), "{found:?}");
}
