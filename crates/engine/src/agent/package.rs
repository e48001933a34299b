//! Reads the layout of an agent's package as npm or pip installed it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns the processor's name in npm package names.
pub(super) fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" }
}

/// Splits a path below `node_modules` into its package and the rest: `@scope/name` and `bin/x`.
pub(super) fn split_package_path(below: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = below.split('/').collect();
    let many = if below.starts_with('@') { 2 } else { 1 };
    if parts.len() <= many || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return None;
    }
    Some((parts[..many].join("/"), parts[many..].join("/")))
}

/// The fields of a `package.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NpmManifest {
    pub(super) name: String,
    pub(super) version: String,
    /// The script of a program, below the package's folder.
    bins: Vec<(String, String)>,
}

impl NpmManifest {
    /// Parses a manifest; `None` for an invalid name, version or path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let name = value.get("name")?.as_str()?.to_owned();
        let version = value.get("version")?.as_str().filter(|version| is_version(version))?.to_owned();
        let own = name.rsplit('/').next().unwrap_or(&name).to_owned();
        let bins = match value.get("bin") {
            Some(Value::String(path)) => vec![(own, path.clone())],
            Some(Value::Object(map)) => {
                map.iter().filter_map(|(name, path)| Some((name.clone(), path.as_str()?.to_owned()))).collect()
            }
            _ => Vec::new(),
        };
        let bins = bins.into_iter().filter_map(|(name, path)| Some((name, plain_relative_path(&path)?))).collect();
        Some(Self { name, version, bins })
    }

    /// Returns the path of a program's script below the package's folder.
    pub(super) fn bin(&self, program: &str) -> Option<&str> {
        self.bins.iter().find(|(name, _)| name == program).map(|(_, path)| path.as_str())
    }
}

/// Returns a path of plain parts only, without a leading `./`.
fn plain_relative_path(path: &str) -> Option<String> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let fine = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    fine.then(|| path.to_owned())
}

/// Reports whether a text is a plain version, safe as a folder name and as a word of a command line.
pub(super) fn is_version(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_');
    text.len() <= 64 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(fine)
}

/// Expands `*` in a path; returns the first match that is a file.
pub(super) fn expand_glob(root: &Path, pattern: &str) -> Option<PathBuf> {
    let pattern = pattern.replace("{arch}", arch());
    let mut places = vec![root.to_owned()];
    for part in pattern.split('/') {
        places = places
            .into_iter()
            .flat_map(|place| {
                if part != "*" {
                    return vec![place.join(part)];
                }
                let entries = std::fs::read_dir(&place).into_iter().flatten().flatten();
                let mut all: Vec<PathBuf> = entries.take(64).map(|entry| entry.path()).collect();
                all.sort();
                all
            })
            .filter(|place| place.exists())
            .collect();
    }
    places.into_iter().find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn package_paths_are_split() {
        for (below, want) in [
            ("@a/b/c/d", Some(("@a/b", "c/d"))),
            ("a/b", Some(("a", "b"))),
            ("a", None),
            ("@a/b", None),
            ("a/../b", None),
            ("/a", None),
        ] {
            let got = split_package_path(below);
            assert_eq!(got.as_ref().map(|(package, rest)| (package.as_str(), rest.as_str())), want, "{below}");
        }
    }

    #[test]
    fn manifests() {
        let read = |text: &str, program: &str| {
            let manifest = NpmManifest::parse(text)?;
            Some((manifest.version.clone(), manifest.bin(program).map(str::to_owned)))
        };
        for (text, program, want) in [
            (r#"{"name":"@a/tool","version":"1.2.3","bin":"./cli.js"}"#, "tool", Some(("1.2.3", Some("cli.js")))),
            (
                r#"{"name":"a","version":"1.0.0-rc.1+x","bin":{"t":"bin/t.js"}}"#,
                "t",
                Some(("1.0.0-rc.1+x", Some("bin/t.js"))),
            ),
            (r#"{"name":"a","version":"1","bin":{"t":"../../etc/x"}}"#, "t", Some(("1", None))),
            (r#"{"name":"a","version":"1","bin":{"t":"/etc/x"}}"#, "t", Some(("1", None))),
            (r#"{"name":"a","version":"../1"}"#, "t", None),
            (r#"{"name":"a","version":"-rf"}"#, "t", None),
            (r#"{"name":"a"}"#, "t", None),
            ("x", "t", None),
        ] {
            let got = read(text, program);
            let got = got.as_ref().map(|(version, bin)| (version.as_str(), bin.as_deref()));
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn expanding() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join(format!("@o/c-{}/vendor/triple/bin", arch()));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("c"), "").unwrap();
        assert_eq!(expand_glob(root.path(), "@o/c-{arch}/vendor/*/bin/c"), Some(at.join("c")));
        assert_eq!(expand_glob(root.path(), "@o/c-{arch}/vendor/*/bin/d"), None);
        assert_eq!(expand_glob(root.path(), "@o/c-{arch}/vendor/*/bin"), None);
    }

    proptest! {
        #[test]
        fn any_manifest_parses_without_panic(text in "\\PC{0,60}", path in "\\PC{0,30}") {
            NpmManifest::parse(&text);
            let json = serde_json::json!({"name": "a", "version": "1", "bin": {"t": path}}).to_string();
            let manifest = NpmManifest::parse(&json).unwrap();
            if let Some(bin) = manifest.bin("t") {
                prop_assert!(Path::new(bin).components().all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
