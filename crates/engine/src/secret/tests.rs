//! Tests the store as a whole: which source wins, what is refused, what is recorded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use ralph_core::env_vars::Env;
use ralph_core::redact::Redactor;
use ralph_core::secret::{Secret, SecretKind, SecretName};

use super::keyring::tests::{SECRET_TOOL, fake_program};
use super::{Error, NewSecret, SecretSource, SecretStorage, SecretStore};
use crate::store::RalphHome;

/// A home, and a folder of programs with a keyring in it.
struct SecretFixture {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
    dotenv: Vec<(String, String)>,
}

impl SecretFixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), env: Vec::new(), dotenv: Vec::new() }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn with_dotenv(mut self, name: &str, value: &str) -> Self {
        self.dotenv.push((name.to_owned(), value.to_owned()));
        self
    }

    fn programs(&self) -> std::path::PathBuf {
        let path = self.dir.path().join("bin");
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn with_keyring(self) -> Self {
        fake_program(&self.programs(), "secret-tool", SECRET_TOOL);
        self
    }

    fn program(&self, name: &str, text: &str) {
        fake_program(&self.programs(), name, &format!("#!/bin/sh\n{text}\n"));
    }

    fn store(&self) -> SecretStore {
        let path = format!("{}:/usr/bin:/bin", self.programs().display());
        let env = self.env.iter().cloned().chain([("PATH".to_owned(), path)]);
        let env = Env::new(env).with_dotenv(self.dotenv.iter().cloned());
        SecretStore::open(&RalphHome::new(self.dir.path().join("state"), self.dir.path().join("config")), &env)
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("config/secrets/MY_KEY")
    }

    /// Returns value and source of `MY_KEY`, or the error.
    fn found(&self) -> String {
        match self.store().find("MY_KEY") {
            Ok(Some(found)) => format!("{} {}", found.source.as_str(), found.secret.expose()),
            Ok(None) => "nothing".to_owned(),
            Err(error) => format!("{error} | {}", error.hint().unwrap_or_default()),
        }
    }
}

fn name() -> SecretName {
    SecretName::parse("MY_KEY").unwrap()
}

fn new(place: Option<SecretStorage>) -> NewSecret {
    NewSecret { kind: SecretKind::ApiKey, expires: None, place }
}

fn put(fixture: &SecretFixture, value: &str, place: Option<SecretStorage>) -> super::SecretSetReport {
    fixture.store().set(&name(), &Secret::new(value), new(place)).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn order_of_sources() {
    let fixture = SecretFixture::new().with_keyring();
    assert_eq!(fixture.found(), "nothing");
    let fixture = fixture.with_dotenv("MY_KEY", "from-dotenv");
    assert_eq!(fixture.found(), "dot-env from-dotenv");
    let fixture = fixture.with("MY_KEY", "from-environment");
    assert_eq!(fixture.found(), "environment from-environment");
    let stored = put(&fixture, "from-file", Some(SecretStorage::File));
    assert_eq!(stored.source, SecretSource::File);
    assert_eq!(
        stored.remarks,
        ["`MY_KEY` is also set in the environment; the value that was stored now is used instead"]
    );
    assert_eq!(fixture.found(), "file from-file");
    let kept = fs::read(fixture.file()).unwrap();
    // The keyring is the default place, and storing there removes the file's copy.
    assert_eq!(put(&fixture, "from-keyring", None).source, SecretSource::Keyring);
    assert!(!fixture.file().exists());
    fs::write(fixture.file(), kept).unwrap();
    fs::set_permissions(fixture.file(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fixture.found(), "keyring from-keyring");
    let known: Vec<String> =
        fixture.store().all_values().into_iter().map(|(_, secret)| secret.expose().to_owned()).collect();
    assert_eq!(known, ["from-environment", "from-keyring", "from-file"]);
    assert_eq!(fixture.store().remove(&name()).unwrap(), [SecretSource::Keyring, SecretSource::File]);
    assert_eq!(fixture.found(), "environment from-environment");
    let refused = fixture.store().remove(&name()).unwrap_err();
    assert_eq!(refused.to_string(), "`MY_KEY` is set in the environment, which ralph does not change");
}

#[cfg(target_os = "linux")]
#[test]
fn a_broken_keyring_falls_back_to_a_file() {
    let fixture = SecretFixture::new().with_keyring();
    fs::write(fixture.programs().join("broken"), "").unwrap();
    let stored = put(&fixture, "value-1", None);
    assert_eq!(stored.source, SecretSource::File);
    assert_eq!(
        stored.remarks,
        [
            "the keyring did not store `MY_KEY`: secret-tool: Cannot autolaunch D-Bus without X11 $DISPLAY; it is kept in a file instead"
        ]
    );
    // An explicit request for the keyring gets the keyring or an error.
    let refused = fixture.store().set(&name(), &Secret::new("value-2"), new(Some(SecretStorage::Keyring))).unwrap_err();
    assert!(matches!(refused, Error::Keyring { .. }), "{refused}");
    assert_eq!(fixture.found(), "file value-1");
    fs::remove_file(fixture.programs().join("broken")).unwrap();
    put(&fixture, "value-3", None);
    // A value in the keyring is not silently replaced by another source.
    fs::write(fixture.programs().join("broken"), "").unwrap();
    assert_eq!(
        fixture.with("MY_KEY", "other-value").found(),
        "the keyring did not return `MY_KEY`: secret-tool: Cannot autolaunch D-Bus without X11 $DISPLAY | ralph secret set MY_KEY --source file"
    );
}

#[test]
fn no_keyring_program() {
    let fixture = SecretFixture::new();
    assert_eq!(put(&fixture, "value-1", None).source, SecretSource::File);
    let refused = fixture.store().set(&name(), &Secret::new("x"), new(Some(SecretStorage::Keyring))).unwrap_err();
    assert!(matches!(refused, Error::NoProgram { .. }), "{refused}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_keyring_is_queried_only_for_stored_secrets() {
    let fixture = SecretFixture::new().with_keyring().with("OTHER", "abcdefgh");
    fixture.store().find("OTHER").unwrap();
    fixture.store().all_values();
    assert!(!fixture.programs().join("calls").exists());
}

#[test]
fn commands() {
    let fixture = SecretFixture::new();
    fixture.program("teller", "echo asked >> \"$(dirname \"$0\")/asked\"; printf 'told-%s\\n' \"$1\"");
    put(&fixture, "cmd://teller 'a-b'", None);
    assert_eq!(fixture.found(), "command told-a-b");
    // The answer is cached for a while.
    assert_eq!(fixture.found(), "command told-a-b");
    assert_eq!(fs::read_to_string(fixture.programs().join("asked")).unwrap(), "asked\n");
    let listed = fixture.store().list().unwrap();
    assert_eq!((listed[0].source, listed[0].problem.clone()), (SecretSource::Command, None));
    put(&fixture, "cmd://teller short\nttl 0", None);
    fixture.found();
    fixture.found();
    assert_eq!(fs::read_to_string(fixture.programs().join("asked")).unwrap(), "asked\nasked\nasked\n");
    let refused = fixture.store().set(&name(), &Secret::new("cmd://x"), new(Some(SecretStorage::Keyring))).unwrap_err();
    assert!(matches!(refused, Error::CommandInKeyring { .. }), "{refused}");
}

#[test]
fn a_command_is_run_last() {
    let fixture = SecretFixture::new();
    fixture.program("teller", "echo asked >> \"$(dirname \"$0\")/asked\"; echo told-by-a-command");
    put(&fixture, "cmd://teller", None);
    // A checkout cannot replace the user's key with its own.
    let fixture = fixture.with_dotenv("MY_KEY", "from-dotenv");
    assert_eq!(fixture.found(), "command told-by-a-command");
    assert_eq!(fixture.store().list().unwrap()[0].source, SecretSource::Command);
    fs::remove_file(fixture.programs().join("asked")).unwrap();
    let fixture = fixture.with("MY_KEY", "from-environment");
    assert_eq!(fixture.found(), "environment from-environment");
    assert_eq!(fixture.store().list().unwrap()[0].source, SecretSource::Environment);
    assert!(!fixture.programs().join("asked").exists(), "the command was run");
    let stored = put(&fixture, "cmd://teller", None);
    assert_eq!(
        stored.remarks,
        ["`MY_KEY` is also set in the environment; that value is used, and the command is not run"]
    );
}

#[test]
fn commands_without_a_valid_answer() {
    for (line, program, want) in [
        ("cmd://absent", "", "`absent` is not on PATH"),
        ("cmd://./teller", "echo x", "`./teller` is not on PATH"),
        ("cmd://teller", "echo locked >&2; exit 3", "`teller` ended with 3: locked"),
        ("cmd://teller", "kill -9 $$", "`teller` was killed: "),
        ("cmd://teller", "true", "of its answer, nothing was given"),
        ("cmd://teller", "echo two words", "of its answer, it contains whitespace or control characters"),
        ("cmd://teller", "printf '\\377'", "its answer is not UTF-8"),
        ("cmd://teller", "echo cmd://teller", "its answer is a `cmd://` line again"),
    ] {
        let fixture = SecretFixture::new();
        fixture.program("teller", program);
        put(&fixture, line, None);
        let message = format!("the command of `MY_KEY` returned no secret: {want} | ralph secret set MY_KEY");
        assert_eq!(fixture.found(), message, "{line} {program}");
        assert_eq!(fixture.store().all_values(), vec![]);
    }
}

#[test]
fn a_checkout_cannot_name_a_command() {
    for fixture in
        [SecretFixture::new().with("MY_KEY", "cmd://id"), SecretFixture::new().with_dotenv("MY_KEY", "cmd://id")]
    {
        assert_eq!(
            fixture.found(),
            "`MY_KEY` of the environment is a `cmd://` line, and those are taken from your own secret files only | unset MY_KEY, and give the line to: ralph secret set MY_KEY"
        );
    }
}

#[test]
fn a_program_does_not_get_the_checkouts_variables() {
    let fixture = SecretFixture::new().with("MINE", "yes").with_dotenv("THEIRS", "yes");
    fixture.program("teller", "echo \"mine=$MINE,theirs=$THEIRS\"");
    put(&fixture, "cmd://teller", None);
    assert_eq!(fixture.found(), "command mine=yes,theirs=");
}

#[test]
fn expired_secrets_are_the_last_choice() {
    let fixture = SecretFixture::new();
    let store = fixture.store();
    let store_secret = |name: &str, expires| {
        let new = NewSecret { kind: SecretKind::Oauth, expires, place: Some(SecretStorage::File) };
        store.set(&SecretName::parse(name).unwrap(), &Secret::new("value-1"), new).unwrap();
    };
    let names = ["A", "B", "C"].map(str::to_owned);
    assert_eq!(store.first_valid(&names).unwrap(), None);
    store_secret("B", Some(Timestamp::now() - SignedDuration::from_hours(1)));
    assert_eq!(store.first_valid(&names).unwrap().unwrap().name, "B");
    store_secret("C", Some(Timestamp::now() + SignedDuration::from_hours(1)));
    let found = store.first_valid(&names).unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.kind), ("C", SecretKind::Oauth));
}

#[test]
fn uses_are_recorded() {
    let fixture = SecretFixture::new().with("MY_KEY", "abcdefgh");
    let store = fixture.store();
    store.mark_used("MY_KEY").unwrap();
    let first = store.metadata.entry("MY_KEY").unwrap();
    assert!(first.last_used.is_some() && first.source.is_none());
    store.mark_used("MY_KEY").unwrap();
    assert_eq!(store.metadata.entry("MY_KEY").unwrap(), first);
    put(&fixture, "value-2", Some(SecretStorage::File));
    assert_eq!(store.metadata.entry("MY_KEY").unwrap().last_used, first.last_used);
    let text = fs::read_to_string(fixture.dir.path().join("state/secrets.json")).unwrap();
    assert!(!text.contains("value-2"), "{text}");
}

#[test]
fn lists_report_problems() {
    let fixture = SecretFixture::new().with("GITHUB_PAT", &["gh", "p_abc"].concat());
    put(&fixture, "value-1", Some(SecretStorage::File));
    fs::set_permissions(fixture.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let listed = fixture.store().list().unwrap();
    let rows: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.kind, one.source)).collect();
    assert_eq!(
        rows,
        [
            ("GITHUB_PAT", Some(SecretKind::GithubPat), SecretSource::Environment),
            ("MY_KEY", Some(SecretKind::ApiKey), SecretSource::File)
        ]
    );
    assert!(listed[1].problem.as_ref().unwrap().contains("others can read"), "{listed:?}");
    fs::remove_file(fixture.file()).unwrap();
    assert_eq!(fixture.store().list().unwrap()[1].problem.as_deref(), Some("it is gone"));
    assert_eq!(fixture.store().remove(&name()).unwrap(), []);
    assert!(matches!(fixture.store().remove(&name()), Err(Error::Missing { .. })));
}

#[test]
fn the_redactor_knows_every_stored_value() {
    let fixture = SecretFixture::new().with("SOME_TOKEN", "from-the-environment");
    put(&fixture, "from-a-file", Some(SecretStorage::File));
    let redactor = Redactor::new(fixture.store().all_values());
    assert_eq!(
        redactor.redact("a from-a-file b from-the-environment c"),
        "a [redacted:MY_KEY] b [redacted:SOME_TOKEN] c"
    );
    // A variable is known once it was used as a secret, whatever its name.
    let fixture = fixture.with("PLAIN_WORD", "of-the-environment");
    let masked =
        |fixture: &SecretFixture| Redactor::new(fixture.store().all_values()).redact("of-the-environment").into_owned();
    assert_eq!(masked(&fixture), "of-the-environment");
    fixture.store().mark_used("PLAIN_WORD").unwrap();
    assert_eq!(masked(&fixture), "[redacted:PLAIN_WORD]");
}

#[test]
fn damaged_metadata_does_not_stop_masking() {
    let fixture = SecretFixture::new();
    put(&fixture, "from-a-file", Some(SecretStorage::File));
    fs::write(fixture.dir.path().join("state/secrets.json"), "{").unwrap();
    assert!(matches!(fixture.store().find("MY_KEY"), Err(Error::Damaged { .. })));
    assert_eq!(fixture.store().all_values(), vec![("MY_KEY".to_owned(), Secret::new("from-a-file"))]);
}

#[test]
fn debug_shows_no_value() {
    let fixture = SecretFixture::new().with("SOME_TOKEN", "from-the-environment");
    put(&fixture, "from-a-file", Some(SecretStorage::File));
    let store = fixture.store();
    let shown = format!("{store:?} {:?} {:?}", store.find("MY_KEY"), store.all_values());
    assert!(!shown.contains("from-"), "{shown}");
    assert!(Path::new(&fixture.file()).exists());
}
