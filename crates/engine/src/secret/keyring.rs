//! Stores secrets in the system's keyring through its command-line program: `secret-tool` (Secret Service) or
//! `security` (macOS). A value goes in by standard input only, never as an argument, which other programs can see.

use std::path::PathBuf;
use std::time::Duration;

use ralph_core::env_vars::Env;
use ralph_core::hash;
use ralph_core::secret::{Secret, SecretName};

use super::error::Error;
use super::helper_program::{self, HelperOutput};

/// The user may have to unlock the keyring.
const TIMEOUT: Duration = Duration::from_mins(1);
/// `security` reads its commands in lines and cuts longer ones.
const LONGEST_LINE: usize = 4000;
/// The exit code of `security` for a missing item.
const ITEM_NOT_FOUND: i32 = 44;
/// Marks a value written in hex, because it has line ends or quotes.
const HEX_PREFIX: &str = "hex:";

/// The program that manages the keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyringKind {
    SecretTool,
    Security,
}

/// The keyring of this system.
#[derive(Debug, Clone)]
pub(super) struct Keyring {
    kind: KeyringKind,
    program: PathBuf,
    env: Env,
}

impl KeyringKind {
    pub(super) const NATIVE: Self = if cfg!(target_os = "macos") { Self::Security } else { Self::SecretTool };

    pub(super) fn program(self) -> &'static str {
        match self {
            Self::SecretTool => "secret-tool",
            Self::Security => "security",
        }
    }
}

impl Keyring {
    pub(super) fn find(flavour: KeyringKind, env: &Env) -> Option<Self> {
        let program = helper_program::find(flavour.program(), env)?;
        Some(Self { kind: flavour, program, env: env.clone() })
    }

    /// Stores a value and checks that it can be read back.
    pub(super) fn store(&self, name: &SecretName, secret: &Secret) -> Result<(), Error> {
        let mut answer = match self.kind {
            KeyringKind::SecretTool => {
                let label = format!("--label=ralph {name}");
                self.run("store", name, &["store", &label, "service", "ralph", "name", name], secret.expose())?
            }
            KeyringKind::Security => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=".contains(c);
                let value = secret.expose();
                let as_it_is = value.chars().all(plain) && !value.starts_with(HEX_PREFIX) && !value.starts_with('-');
                let value =
                    if as_it_is { value.to_owned() } else { format!("{HEX_PREFIX}{}", hash::hex(value.as_bytes())) };
                let line = zeroize::Zeroizing::new(format!("add-generic-password -U -s ralph -a {name} -w {value}\n"));
                if line.len() > LONGEST_LINE {
                    return Err(Error::TooLong { name: name.to_string() });
                }
                self.run("store", name, &["-i"], &line)?
            }
        };
        if answer.code != Some(0) {
            // The error may repeat the input.
            for form in [secret.expose(), &hash::hex(secret.expose().as_bytes())] {
                answer.stderr_line = answer.stderr_line.replace(form, "…");
            }
            return Err(keyring_error("store", name, &answer));
        }
        match self.lookup(name)? {
            Some(kept) if kept == *secret => Ok(()),
            _ => Err(Error::Keyring {
                doing: "keep",
                name: name.to_string(),
                why: "it returned another value than the one it was given".to_owned(),
            }),
        }
    }

    /// Reads a value. A locked keyring asks the user to unlock it.
    pub(super) fn lookup(&self, name: &SecretName) -> Result<Option<Secret>, Error> {
        let args: &[&str] = match self.kind {
            KeyringKind::SecretTool => &["lookup", "service", "ralph", "name", name],
            KeyringKind::Security => &["find-generic-password", "-s", "ralph", "-a", name, "-w"],
        };
        let answer = self.run("return", name, args, "")?;
        match answer.code {
            Some(0) => self.parse_value(name, &answer.stdout),
            _ if self.is_missing(&answer) => Ok(None),
            _ => Err(keyring_error("return", name, &answer)),
        }
    }

    /// Reads a value if that needs no interaction; a locked keyring returns nothing.
    pub(super) fn lookup_unlocked(&self, name: &SecretName) -> Result<Option<Secret>, Error> {
        if self.kind == KeyringKind::Security {
            return self.lookup(name);
        }
        // Unlike a lookup, a search unlocks only on request.
        let answer = self.run("show", name, &["search", "service", "ralph", "name", name], "")?;
        let Some(text) = std::str::from_utf8(&answer.stdout).ok().filter(|_| answer.code == Some(0)) else {
            return Ok(None);
        };
        let value = text.split_once("\nsecret = ").map(|(_, rest)| rest.split("\ncreated = ").next().unwrap_or(rest));
        Ok(value.map(str::trim_end).filter(|value| !value.is_empty()).map(Secret::new))
    }

    /// Deletes a value; returns whether there was one.
    pub(super) fn clear(&self, name: &SecretName) -> Result<bool, Error> {
        let there = self.lookup(name)?.is_some();
        if !there {
            return Ok(false);
        }
        let args: &[&str] = match self.kind {
            KeyringKind::SecretTool => &["clear", "service", "ralph", "name", name],
            KeyringKind::Security => &["delete-generic-password", "-s", "ralph", "-a", name],
        };
        let answer = self.run("delete", name, args, "")?;
        if answer.code == Some(0) { Ok(true) } else { Err(keyring_error("delete", name, &answer)) }
    }

    fn run(&self, doing: &'static str, name: &SecretName, args: &[&str], input: &str) -> Result<HelperOutput, Error> {
        helper_program::run(&self.program, args, &self.env, input.as_bytes(), TIMEOUT).map_err(|why| Error::Keyring {
            doing,
            name: name.to_string(),
            why,
        })
    }

    fn is_missing(&self, answer: &HelperOutput) -> bool {
        match self.kind {
            // It prints nothing if there is no item, and complains if something is wrong.
            KeyringKind::SecretTool => answer.code == Some(1) && answer.stderr_line.is_empty(),
            KeyringKind::Security => answer.code == Some(ITEM_NOT_FOUND),
        }
    }

    fn parse_value(&self, name: &SecretName, bytes: &[u8]) -> Result<Option<Secret>, Error> {
        let wrong = |why: &str| Error::Keyring { doing: "return", name: name.to_string(), why: why.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("its answer is not UTF-8"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        let written = text.strip_prefix(HEX_PREFIX).filter(|_| self.kind == KeyringKind::Security);
        match written {
            Some(hex) => {
                let bytes = hash::unhex(hex).and_then(|bytes| String::from_utf8(bytes).ok());
                bytes.map(|value| Some(Secret::new(value))).ok_or_else(|| wrong("its answer is damaged"))
            }
            None => Ok((!text.is_empty()).then(|| Secret::new(text))),
        }
    }
}

fn keyring_error(doing: &'static str, name: &SecretName, answer: &HelperOutput) -> Error {
    let why = match (answer.stderr_line.as_str(), answer.code) {
        ("", Some(code)) => format!("its program ended with {code}"),
        ("", None) => "its program was killed".to_owned(),
        (stderr, _) => stderr.to_owned(),
    };
    Error::Keyring { doing, name: name.to_string(), why }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// `secret-tool` as its manual describes it: items are files named after their attributes. A file `locked` beside
    /// them makes a search hide values; `broken` is a session without a bus.
    pub(in crate::secret) const SECRET_TOOL: &str = r#"#!/bin/sh
dir=@DIR@
echo "$@" >> "$dir/calls"
[ -e "$dir/broken" ] && { echo "secret-tool: Cannot autolaunch D-Bus without X11 \$DISPLAY" >&2; exit 1; }
verb=$1; shift
case $1 in --label=*) shift ;; esac
[ "$1 $3" = "service name" ] || exit 2
item="$dir/item-$2-$4"
case $verb in
store) cat > "$item" ;;
lookup) [ -e "$item" ] || exit 1; cat "$item" ;;
search)
    [ -e "$item" ] || exit 0
    printf '[/org/freedesktop/secrets/collection/login/1]\nlabel = ralph %s\n' "$4"
    [ -e "$dir/locked" ] || printf 'secret = %s\n' "$(cat "$item")"
    printf 'created = 2026-01-01 00:00:00\nmodified = 2026-01-01 00:00:00\nschema = org.freedesktop.Secret.Generic\n'
    printf 'attribute.name = %s\nattribute.service = ralph\n' "$4" >&2 ;;
clear) rm -f "$item" ;;
*) exit 2 ;;
esac
"#;

    /// `security` as its manual describes it: `-i` reads commands, `-w` prints a value, 44 means no such item.
    const SECURITY: &str = r#"#!/bin/sh
dir=@DIR@
echo "$@" >> "$dir/calls"
if [ "$1" = -i ]; then
    read -r verb u s service a name w value
    [ "$verb $u $s $a $w" = "add-generic-password -U -s -a -w" ] || { echo "security: bad: $value" >&2; exit 2; }
    printf '%s' "$value" > "$dir/item-$service-$name"
    exit 0
fi
item="$dir/item-$3-$5"
[ -e "$item" ] || { echo 'security: SecKeychainSearchCopyNext: The specified item could not be found in the keychain.' >&2; exit 44; }
case $1 in
find-generic-password) cat "$item"; echo ;;
delete-generic-password) rm "$item" ;;
esac
"#;

    /// Writes a fake program into a folder, and returns an environment that finds it.
    pub(in crate::secret) fn fake_program(dir: &Path, program: &str, text: &str) -> Env {
        let path = dir.join(program);
        std::fs::write(&path, text.replace("@DIR@", dir.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("relative:{}:/usr/bin:/bin", dir.display());
        Env::new([("PATH".to_owned(), path)])
    }

    #[track_caller]
    fn round_trip(flavour: KeyringKind, text: &str) {
        let dir = tempfile::tempdir().unwrap();
        let env = fake_program(dir.path(), flavour.program(), text);
        let keyring = Keyring::find(flavour, &env).unwrap();
        let name = SecretName::parse("MY_KEY").unwrap();
        assert_eq!(keyring.lookup(&name).unwrap(), None);
        assert_eq!(keyring.lookup_unlocked(&name).unwrap(), None);
        for value in
            ["sk-plain_1.2", "-w", "hex:00", "with \"quotes\" and 'more' \\", "-----BEGIN K-----\nab\n-----END K-----"]
        {
            let secret = Secret::new(value);
            keyring.store(&name, &secret).unwrap();
            assert_eq!(keyring.lookup(&name).unwrap(), Some(secret.clone()), "{value}");
            assert_eq!(keyring.lookup_unlocked(&name).unwrap(), Some(secret), "{value}");
            let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
            assert!(!calls.contains(value) || value == "-w", "a value was given as an argument: {calls}");
        }
        assert!(keyring.clear(&name).unwrap());
        assert!(!keyring.clear(&name).unwrap());
        assert_eq!(keyring.lookup(&name).unwrap(), None);
    }

    #[test]
    fn secret_service() {
        round_trip(KeyringKind::SecretTool, SECRET_TOOL);
    }

    #[test]
    fn keychain() {
        round_trip(KeyringKind::Security, SECURITY);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let env = fake_program(dir.path(), "security", SECURITY);
        let keyring = Keyring::find(KeyringKind::Security, &env).unwrap();
        let stored = keyring.store(&SecretName::parse("K").unwrap(), &Secret::new("x".repeat(5000)));
        assert!(matches!(stored, Err(Error::TooLong { .. })));
    }

    #[test]
    fn a_locked_keyring_returns_nothing_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let env = fake_program(dir.path(), "secret-tool", SECRET_TOOL);
        let keyring = Keyring::find(KeyringKind::SecretTool, &env).unwrap();
        let name = SecretName::parse("K").unwrap();
        keyring.store(&name, &Secret::new("value")).unwrap();
        std::fs::write(dir.path().join("locked"), "").unwrap();
        assert_eq!(keyring.lookup_unlocked(&name).unwrap(), None);
        assert_eq!(keyring.lookup(&name).unwrap(), Some(Secret::new("value")));
    }

    #[test]
    fn errors_do_not_contain_the_value() {
        for (program, flavour, text, want) in [
            (
                "secret-tool",
                KeyringKind::SecretTool,
                "echo no bus >&2; exit 1",
                "the keyring did not store `K`: no bus",
            ),
            (
                "secret-tool",
                KeyringKind::SecretTool,
                "exit 3",
                "the keyring did not store `K`: its program ended with 3",
            ),
            (
                "secret-tool",
                KeyringKind::SecretTool,
                "cat >/dev/null; echo other",
                "the keyring did not keep `K`: it returned another value than the one it was given",
            ),
            (
                "security",
                KeyringKind::Security,
                "read l; echo \"bad: $l\" >&2; exit 2",
                "the keyring did not store `K`: bad: add-generic-password -U -s ralph -a K -w …",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let env = fake_program(dir.path(), program, &format!("#!/bin/sh\n{text}\n"));
            let error = Keyring::find(flavour, &env)
                .unwrap()
                .store(&SecretName::parse("K").unwrap(), &Secret::new("planted-1"))
                .unwrap_err();
            assert_eq!(error.to_string(), want);
        }
        assert!(Keyring::find(KeyringKind::SecretTool, &Env::default()).is_none());
    }
}
