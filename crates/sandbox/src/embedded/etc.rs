//! `/etc` of a cage: a copy of the host's public settings, and the files that tell programs who and where they are. Made
//! once for all sandboxes and shown read-only, so that a cage has one mount here instead of thirty.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ralph_core::hash::sha256;

use super::system::texts;
use crate::{files, token};

/// Settings that hold no secrets and that programs do not run without.
const SETTINGS: [&str; 24] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
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

/// Directories whose name begins so hold the settings of one version of a language.
const VERSIONED: [&str; 4] = ["java-", "python3", "perl", "php"];

/// More than this no host's public settings are.
const MOST_ENTRIES: usize = 50_000;
const LARGEST: u64 = 32 << 20;

/// One thing of the host to have in the copy.
#[derive(Debug)]
struct Part {
    /// Where it is, and where it goes.
    from: PathBuf,
    to: PathBuf,
    kind: Kind,
    /// What tells that it is still the same.
    seen: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link(PathBuf),
}

/// Returns the copy of the host's settings in a folder, making it when it is not there or they have changed.
pub(super) fn stage(dir: &Path, etc: &Path, hostname: &str, home: &str) -> io::Result<PathBuf> {
    let parts = look(etc);
    let texts = texts(hostname, home);
    let seen: String = parts.iter().map(|part| part.seen.as_str()).collect::<Vec<_>>().join("\n");
    let told: String = texts.iter().flat_map(|file| [file.target.as_str(), "\n", file.text.as_str(), "\n"]).collect();
    let name: String = sha256(format!("{seen}\n{told}").as_bytes()).chars().take(24).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let place = fs::canonicalize(dir)?.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let fresh = place.with_extension(token::random());
    let made = fill(&fresh, &parts, &texts).and_then(|()| fs::rename(&fresh, &place));
    match made {
        Ok(()) => Ok(place),
        Err(error) => {
            // Somebody else may have been faster, and then theirs is as good.
            let _ = files::remove_tree(&fresh);
            if place.is_dir() { Ok(place) } else { Err(error) }
        }
    }
}

fn fill(fresh: &Path, parts: &[Part], texts: &[super::plan::TextFile]) -> io::Result<()> {
    make(fresh)?;
    for part in parts {
        let to = fresh.join(&part.to);
        match &part.kind {
            Kind::Directory => make(&to)?,
            Kind::Link(target) => symlink(target, &to)?,
            Kind::File => {
                // One that has gone meanwhile is missing inside, as it is outside.
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

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Lists what is to be copied, directories before what is in them.
fn look(etc: &Path) -> Vec<Part> {
    let versioned = fs::read_dir(etc).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        (VERSIONED.iter().any(|start| name.starts_with(start)) && entry.path().is_dir()).then_some(name)
    });
    let mut names: Vec<String> = SETTINGS.iter().map(ToString::to_string).chain(versioned).collect();
    names.sort();
    let mut parts = Vec::new();
    for name in names {
        // A link is followed here, once: inside, the place holds what it led to.
        let Ok(real) = fs::canonicalize(etc.join(&name)) else { continue };
        for above in Path::new(&name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            parts.push(Part {
                from: etc.join(above),
                to: above.to_owned(),
                kind: Kind::Directory,
                seen: String::new(),
            });
        }
        add(&mut parts, real, PathBuf::from(name));
    }
    parts
}

fn add(parts: &mut Vec<Part>, from: PathBuf, to: PathBuf) {
    let mut open = vec![(from, to)];
    while let Some((from, to)) = open.pop() {
        if parts.len() > MOST_ENTRIES {
            return;
        }
        let Ok(found) = fs::symlink_metadata(&from) else { continue };
        let kind = if found.is_symlink() {
            match fs::read_link(&from) {
                Ok(target) => Kind::Link(target),
                Err(_) => continue,
            }
        } else if found.is_dir() {
            let mut entries: Vec<_> = fs::read_dir(&from).into_iter().flatten().flatten().collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            open.extend(entries.iter().map(|entry| (entry.path(), to.join(entry.file_name()))));
            Kind::Directory
        } else if found.is_file() && found.mode() & 0o004 != 0 && found.len() <= LARGEST {
            // What not everybody on the host may read is not public.
            Kind::File
        } else {
            continue;
        };
        let seen = format!("{} {:?} {} {}", to.display(), kind, found.len(), found.mtime_nsec() ^ found.mtime());
        parts.push(Part { from, to, kind, seen });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_settings_are_copied_and_nothing_else() {
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
        let place = stage(&dir, &etc, "cage", "/home/agent").unwrap();
        let has = |name: &str| fs::symlink_metadata(place.join(name)).is_ok();
        for name in ["ssl/certs/a.pem", "ssl/certs/link", "services", "python3.11", "passwd", "hosts", "resolv.conf"] {
            assert!(has(name), "{name}");
        }
        for name in ["ssl/certs/key.pem", "ssl/private", "shadow", "ssh"] {
            assert!(!has(name), "{name}");
        }
        assert!(fs::read_to_string(place.join("hosts")).unwrap().contains("cage"));
        // The same again is the same place; a change is another.
        assert_eq!(stage(&dir, &etc, "cage", "/home/agent").unwrap(), place);
        fs::write(etc.join("services"), "other content").unwrap();
        assert_ne!(stage(&dir, &etc, "cage", "/home/agent").unwrap(), place);
    }
}
