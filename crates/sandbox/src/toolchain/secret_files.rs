//! Recognises secrets by file name, and finds them below a directory with a bounded walk.
//!
//! It checks names, because contents would have to be interpreted; the exception is a private key, which is easy to
//! recognise. A file mistaken for a secret is empty in the sandbox, which would break a toolchain if it is code:
//! names that are common for code are therefore not treated as secrets.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::fs_probe::{self, HostFileKind};
use super::setup::{BindMask, MaskKind};

/// How many levels below a bind are searched for secrets.
pub const MASK_DEPTH: usize = 3;
/// The most names scanned below one bind.
const MAX_SCANNED: usize = 200_000;

const SECRET_FILES: &[&str] = &[
    ".bash_history",
    ".boto",
    ".condarc",
    ".databrickscfg",
    ".dockercfg",
    ".envrc",
    ".git-credentials",
    ".gitconfig",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".node_repl_history",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".python_history",
    ".s3cfg",
    ".terraformrc",
    ".token",
    ".vault-token",
    ".yarnrc",
    ".yarnrc.yml",
    ".zsh_history",
    "_netrc",
    "application_default_credentials.json",
    "auth.json",
    // The URLs of fetched repositories, with any credentials in them.
    "fetch_head",
    "gradle.properties",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "npmrc",
    "pip.conf",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service-account.json",
    "service_account.json",
    "settings-security.xml",
    "terraform.rc",
    "token.json",
    "tokens.json",
];

const SECRET_EXTENSIONS: &[&str] = &["jks", "kdbx", "keystore", "ovpn", "p12", "pfx", "ppk"];

/// `credentials.py` is a program, `credentials.toml` is not.
const DATA_EXTENSIONS: &[&str] =
    &["bak", "cfg", "csv", "db", "enc", "ini", "json", "old", "toml", "txt", "xml", "yaml", "yml", "tfrc.json"];

const SECRET_DIRECTORIES: &[&str] = &[
    ".1password",
    ".aws",
    ".azure",
    ".claude",
    ".codex",
    ".config",
    ".docker",
    // The history keeps everything that was ever committed, and the configuration keeps URLs with their tokens.
    ".git",
    ".gnupg",
    ".kube",
    ".password-store",
    ".ssh",
    "keyrings",
];

/// Names that are unremarkable by themselves, and the folders in which they hold tokens and passwords.
const SECRET_FILES_BY_FOLDER: &[(&str, &[&str])] = &[
    ("bundle", &["config"]),
    ("cabal", &["config"]),
    ("cargo", &["config", "config.toml"]),
    ("gh", &["hosts.yml"]),
    ("m2", &["settings.xml"]),
    ("nuget", &["nuget.config"]),
    ("stack", &["config.yaml"]),
];

/// Returns whether a file of this name is treated as a secret.
pub(super) fn is_secret_file(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.as_str();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    SECRET_FILES.contains(&name) || SECRET_EXTENSIONS.contains(&ending) || is_credentials(name) || is_dot_env(name)
}

pub(super) fn is_secret_directory(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    SECRET_DIRECTORIES.contains(&name.as_str())
}

/// Returns whether a file is a secret because of the folder it is in.
fn is_secret_in_folder(dir: &Path, name: &OsStr) -> bool {
    let Some(folder) = dir.file_name().map(|folder| folder.to_string_lossy().to_lowercase()) else { return false };
    let name = name.to_string_lossy().to_lowercase();
    let folder = folder.trim_start_matches('.');
    SECRET_FILES_BY_FOLDER.iter().any(|(known, names)| *known == folder && names.contains(&name.as_str()))
}

fn is_credentials(name: &str) -> bool {
    let Some(rest) = name.trim_start_matches('.').strip_prefix("credentials") else { return false };
    rest.is_empty() || rest.strip_prefix('.').is_some_and(|ending| DATA_EXTENSIONS.contains(&ending))
}

fn is_dot_env(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(".env") else { return false };
    rest.is_empty() || (rest.starts_with('.') && ![".example", ".sample", ".template"].contains(&rest))
}

/// Returns whether a `.pem` or `.key` file holds more than certificates.
fn is_private_key(path: &Path) -> bool {
    let key =
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("pem") || ending.eq_ignore_ascii_case("key"));
    // A file that cannot be read might be a key.
    key && fs_probe::text(path).is_none_or(|text| text.contains("PRIVATE KEY"))
}

/// Returns whether a directory directly contains secrets; an unclaimed directory that does is not shown at all.
pub(super) fn has_secrets(dir: &Path) -> bool {
    let (mut masks, mut deeper) = (Vec::new(), Vec::new());
    scan_dir(dir, Path::new(""), &mut masks, &mut deeper);
    // A folder with programs may well be a repository.
    masks.iter().any(|mask| mask.below != Path::new(".git"))
}

/// Returns what must be masked below a directory, sorted, and whether the scan was complete.
///
/// Links are not followed: their target is either below a bind and found there, or not in the sandbox.
pub(super) fn masks(dir: &Path) -> (Vec<BindMask>, bool) {
    let mut masks = Vec::new();
    let mut complete = true;
    let mut left = MAX_SCANNED;
    let mut next = VecDeque::from([(PathBuf::new(), 1)]);
    while let Some((below, depth)) = next.pop_front() {
        let mut deeper = Vec::new();
        let here = if below.as_os_str().is_empty() { dir.to_owned() } else { dir.join(&below) };
        let (seen, all) = scan_dir(&here, &below, &mut masks, &mut deeper);
        complete &= all;
        if depth < MASK_DEPTH {
            next.extend(deeper.into_iter().map(|below| (below, depth + 1)));
        }
        left = left.saturating_sub(seen);
        if left == 0 {
            complete &= next.is_empty();
            break;
        }
    }
    masks.sort();
    (masks, complete)
}

fn scan_dir(dir: &Path, below: &Path, masks: &mut Vec<BindMask>, deeper: &mut Vec<PathBuf>) -> (usize, bool) {
    let (names, all) = fs_probe::names(dir);
    let seen = names.len();
    for (name, kind) in names {
        let here = below.join(&name);
        let masked = match kind {
            // A link may point to the real secret next to it; a link cannot be masked, but its target is.
            HostFileKind::Link => continue,
            HostFileKind::Special => Some(MaskKind::File),
            HostFileKind::Directory if is_secret_directory(&name) => Some(MaskKind::Directory),
            HostFileKind::Directory => {
                deeper.push(here.clone());
                None
            }
            HostFileKind::File => {
                let secret =
                    is_secret_file(&name) || is_secret_in_folder(dir, &name) || is_private_key(&dir.join(&name));
                secret.then_some(MaskKind::File)
            }
        };
        masks.extend(masked.map(|kind| BindMask { below: here, kind }));
    }
    (seen, all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn secrets_are_recognised_by_name() {
        let check = |name: &str, want: bool| assert_eq!(is_secret_file(OsStr::new(name)), want, "{name}");
        for name in [".npmrc", ".NPMRC", "credentials", "credentials.toml", ".credentials.json", ".env", ".env.local"] {
            check(name, true);
        }
        for name in ["id_ed25519", "auth.json", "store.p12", "pip.conf", "credentials.tfrc.json", "FETCH_HEAD"] {
            check(name, true);
        }
        for name in
            ["credentials.py", "credentials.d.ts", "git-credential-store", ".env.example", "environment", "auth.js"]
        {
            check(name, false);
        }
        check("id_ed25519.pub", false);
    }

    #[test]
    fn the_walk_finds_secrets_sockets_and_keys_but_not_certificates() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        for (name, content) in [
            ("bin/tool", "x"),
            ("a/b/credentials.toml", "token"),
            ("a/b/c/credentials.toml", "too deep"),
            ("a/ca.pem", "-----BEGIN CERTIFICATE-----"),
            ("a/own.pem", "-----BEGIN RSA PRIVATE KEY-----"),
            (".cargo/config.toml", "token"),
            ("a/config.toml", "plain"),
            (".git/config", "url"),
            ("a/.ssh/config", "x"),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, content).expect("written");
        }
        std::os::unix::fs::symlink("credentials.toml", root.join("a/b/.npmrc")).expect("linked");
        let _socket = std::os::unix::net::UnixListener::bind(root.join("a/daemon")).expect("bound");
        let mask = |below: &str, kind| BindMask { below: PathBuf::from(below), kind };
        let want = vec![
            mask(".cargo/config.toml", MaskKind::File),
            mask(".git", MaskKind::Directory),
            mask("a/.ssh", MaskKind::Directory),
            mask("a/b/credentials.toml", MaskKind::File),
            mask("a/daemon", MaskKind::File),
            mask("a/own.pem", MaskKind::File),
        ];
        assert_eq!(masks(root), (want, true));
    }
}
