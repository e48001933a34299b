//! Makes the `/etc` of cages: a copy of the host's public settings, and the files that identify the user and the
//! host. It is made once for all sandboxes and mounted read-only, so that a cage has one mount here instead of
//! thirty.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ralph_core::hash::sha256;

use super::visible_host_paths::identity_files;
use crate::{files, random_name};

/// Settings that contain no secrets and that programs need to run.
const PUBLIC_SETTINGS: [&str; 27] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "dotnet",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    // Not its `settings.xml`, which may have passwords.
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile.d",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
];

/// Name prefixes of directories with the settings of one version of a language.
const VERSIONED_PREFIXES: [&str; 4] = ["java-", "python3", "perl", "php"];

/// The most entries that are copied; no host has more public settings.
const MAX_ENTRIES: usize = 50_000;
const MAX_FILE_BYTES: u64 = 32 << 20;

/// One entry of the host to copy.
#[derive(Debug)]
struct EtcEntry {
    /// Its path on the host, and its path in the copy.
    from: PathBuf,
    to: PathBuf,
    kind: EtcEntryKind,
    /// Changes when the entry changes.
    fingerprint: String,
}

#[derive(Debug, PartialEq, Eq)]
enum EtcEntryKind {
    Directory,
    File,
    Link(PathBuf),
}

/// Returns the path of the copy of the host's settings in a folder, making it if it is missing or the settings have
/// changed.
pub(super) fn ensure_copy(dir: &Path, etc: &Path, hostname: &str, home: &str) -> io::Result<PathBuf> {
    let parts = list_settings(etc);
    let texts = identity_files(hostname, home);
    let seen: String = parts.iter().map(|part| part.fingerprint.as_str()).collect::<Vec<_>>().join("\n");
    let own: String = texts.iter().flat_map(|file| [file.target.as_str(), "\n", file.text.as_str(), "\n"]).collect();
    let name: String = sha256(format!("{seen}\n{own}").as_bytes()).chars().take(24).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let place = fs::canonicalize(dir)?.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let fresh = place.with_extension(random_name::random());
    let made = write_copy(&fresh, &parts, &texts).and_then(|()| fs::rename(&fresh, &place));
    match made {
        Ok(()) => Ok(place),
        Err(error) => {
            // Another process may have made the same copy first.
            let _ = files::remove_tree(&fresh);
            if place.is_dir() { Ok(place) } else { Err(error) }
        }
    }
}

fn write_copy(fresh: &Path, parts: &[EtcEntry], texts: &[super::plan::TextFile]) -> io::Result<()> {
    make_dir(fresh)?;
    for part in parts {
        let to = fresh.join(&part.to);
        match &part.kind {
            EtcEntryKind::Directory => make_dir(&to)?,
            EtcEntryKind::Link(target) => symlink(target, &to)?,
            EtcEntryKind::File => {
                // A file that was removed meanwhile is missing inside too.
                let Ok(mut from) = File::open(&part.from) else { continue };
                let mut file = File::create_new(&to)?;
                io::copy(&mut from, &mut file)?;
                file.set_permissions(fs::Permissions::from_mode(0o644))?;
            }
        }
    }
    for file in texts {
        let to = fresh.join(file.target.trim_start_matches("/etc/"));
        fs::write(&to, &file.text)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Lists the entries to copy, directories before their content.
fn list_settings(etc: &Path) -> Vec<EtcEntry> {
    let versioned = fs::read_dir(etc).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        (VERSIONED_PREFIXES.iter().any(|start| name.starts_with(start)) && entry.path().is_dir()).then_some(name)
    });
    let mut names: Vec<String> = PUBLIC_SETTINGS.iter().map(ToString::to_string).chain(versioned).collect();
    names.sort();
    let mut parts = Vec::new();
    for name in names {
        // A link is followed here, once: the copy contains its target.
        let Ok(real) = fs::canonicalize(etc.join(&name)) else { continue };
        for above in Path::new(&name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            parts.push(EtcEntry {
                from: etc.join(above),
                to: above.to_owned(),
                kind: EtcEntryKind::Directory,
                fingerprint: String::new(),
            });
        }
        add_tree(&mut parts, real, PathBuf::from(name));
    }
    parts
}

fn add_tree(parts: &mut Vec<EtcEntry>, from: PathBuf, to: PathBuf) {
    let mut open = vec![(from, to)];
    while let Some((from, to)) = open.pop() {
        if parts.len() > MAX_ENTRIES {
            return;
        }
        let Ok(found) = fs::symlink_metadata(&from) else { continue };
        let kind = if found.is_symlink() {
            match fs::read_link(&from) {
                Ok(target) => EtcEntryKind::Link(target),
                Err(_) => continue,
            }
        } else if found.is_dir() {
            let mut entries: Vec<_> = fs::read_dir(&from).into_iter().flatten().flatten().collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            open.extend(entries.iter().map(|entry| (entry.path(), to.join(entry.file_name()))));
            EtcEntryKind::Directory
        } else if found.is_file() && found.mode() & 0o004 != 0 && found.len() <= MAX_FILE_BYTES {
            // A file that only some users of the host may read is not public.
            EtcEntryKind::File
        } else {
            continue;
        };
        let seen = format!("{} {:?} {} {}", to.display(), kind, found.len(), found.mtime_nsec() ^ found.mtime());
        parts.push(EtcEntry { from, to, kind, fingerprint: seen });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_settings_are_copied() {
        let host = tempfile::tempdir().unwrap();
        let etc = host.path().join("etc");
        for dir in ["ssl/certs", "ssl/private", "python3.11", "ssh"] {
            fs::create_dir_all(etc.join(dir)).unwrap();
        }
        for (name, mode) in [
            ("ssl/certs/a.pem", 0o644),
            ("ssl/certs/key.pem", 0o600),
            ("ssl/private/key", 0o644),
            ("shadow", 0o644),
            ("ssh/config", 0o644),
            ("services", 0o644),
        ] {
            fs::write(etc.join(name), name).unwrap();
            fs::set_permissions(etc.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("a.pem", etc.join("ssl/certs/link")).unwrap();
        let dir = host.path().join("system");
        let place = ensure_copy(&dir, &etc, "cage", "/home/agent").unwrap();
        let has = |name: &str| fs::symlink_metadata(place.join(name)).is_ok();
        for name in ["ssl/certs/a.pem", "ssl/certs/link", "services", "python3.11", "passwd", "hosts", "resolv.conf"] {
            assert!(has(name), "{name}");
        }
        for name in ["ssl/certs/key.pem", "ssl/private", "shadow", "ssh"] {
            assert!(!has(name), "{name}");
        }
        assert!(fs::read_to_string(place.join("hosts")).unwrap().contains("cage"));
        // Unchanged settings give the same copy; a change gives another.
        assert_eq!(ensure_copy(&dir, &etc, "cage", "/home/agent").unwrap(), place);
        fs::write(etc.join("services"), "other content").unwrap();
        assert_ne!(ensure_copy(&dir, &etc, "cage", "/home/agent").unwrap(), place);
    }
}
