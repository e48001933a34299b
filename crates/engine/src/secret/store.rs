//! Finds, stores and removes secrets by name.

use std::collections::BTreeSet;

use jiff::Timestamp;
use ralph_core::env_vars::{self, Env};
use ralph_core::redact::is_too_short;
use ralph_core::secret::{CredentialCommand, Secret, SecretKind, SecretName, known_credentials};

use super::command;
use super::error::Error;
use super::file::SecretFiles;
use super::keyring::{Keyring, KeyringKind};
use super::metadata::{SecretMetadata, SecretMetadataFile, SecretSource};
use crate::store::RalphHome;

/// Uses within this time of the last recorded one are not recorded again.
const MARK_USED_INTERVAL_S: i64 = 60;

/// The secrets of a user.
#[derive(Debug, Clone)]
pub struct SecretStore {
    env: Env,
    files: SecretFiles,
    pub(super) metadata: SecretMetadataFile,
    keyring_kind: KeyringKind,
}

/// A secret that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSecret {
    pub name: String,
    pub secret: Secret,
    pub kind: SecretKind,
    pub source: SecretSource,
    pub expires: Option<Timestamp>,
}

impl ResolvedSecret {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// Where the user wants a secret stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretStorage {
    Keyring,
    File,
}

/// The metadata of a value to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSecret {
    pub kind: SecretKind,
    pub expires: Option<Timestamp>,
    /// `None` means the keyring if one works, else a file.
    pub place: Option<SecretStorage>,
}

/// Where a value was stored, and remarks for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSetReport {
    pub source: SecretSource,
    pub remarks: Vec<String>,
}

/// One line of a list: everything but the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSummary {
    pub name: String,
    pub kind: Option<SecretKind>,
    pub source: SecretSource,
    pub expires: Option<Timestamp>,
    pub set_at: Option<Timestamp>,
    pub last_used: Option<Timestamp>,
    /// Why it cannot be used as it is.
    pub problem: Option<String>,
}

impl SecretStore {
    pub fn open(home: &RalphHome, env: &Env) -> Self {
        Self {
            env: env.clone(),
            files: SecretFiles::new(home),
            metadata: SecretMetadataFile::new(home),
            keyring_kind: KeyringKind::NATIVE,
        }
    }

    /// Finds a secret: in the keyring, then in its file, then in the environment, then by the command its file names.
    /// A checkout's `.env` never replaces what the user stored, commands included.
    pub fn find(&self, name: &str) -> Result<Option<ResolvedSecret>, Error> {
        // A name that is not a valid secret name can still be that of a variable.
        let Ok(parsed) = SecretName::parse(name) else { return self.in_environment(name) };
        let entry = self.metadata.entry(name)?;
        let found = |secret: Secret, source| {
            let kind = entry.kind.unwrap_or_else(|| SecretKind::guess(name, secret.expose()));
            ResolvedSecret { name: name.to_owned(), secret, kind, source, expires: entry.expires }
        };
        if entry.source == Some(SecretSource::Keyring)
            && let Some(secret) = self.keyring_of(&parsed)?.lookup(&parsed)?
        {
            return Ok(Some(found(secret, SecretSource::Keyring)));
        }
        if self.files.read(&parsed)?.is_some_and(|line| CredentialCommand::is_command(line.expose()))
            && self.is_set_in_process(name)
        {
            return self.in_environment(name);
        }
        match self.in_file(&parsed)? {
            Some((secret, source)) => Ok(Some(found(secret, source))),
            None => self.in_environment(name),
        }
    }

    /// Finds the first of several that exists and has not expired; an expired one is better than none.
    pub fn first_valid(&self, names: &[String]) -> Result<Option<ResolvedSecret>, Error> {
        let now = Timestamp::now();
        let mut expired = None;
        for name in names {
            match self.find(name)? {
                Some(found) if found.is_expired(now) => expired = expired.or(Some(found)),
                Some(found) => return Ok(Some(found)),
                None => (),
            }
        }
        Ok(expired)
    }

    /// Records that a secret was used now.
    pub fn mark_used(&self, name: &str) -> Result<(), Error> {
        let now = Timestamp::now();
        let last = self.metadata.entry(name)?.last_used;
        if last.is_some_and(|last| now.duration_since(last).as_secs().abs() < MARK_USED_INTERVAL_S) {
            return Ok(());
        }
        self.metadata.update(|secrets| secrets.entry(name.to_owned()).or_default().last_used = Some(now))
    }

    /// Returns every value that must never be shown: stored secrets, if reading them needs no unlocking, and variables
    /// with a telling or known name. A value that cannot be read is left out and logged; it cannot leak from here.
    ///
    /// The programs of `cmd://` lines are run too: an unknown value cannot be masked.
    pub fn all_values(&self) -> Vec<(String, Secret)> {
        // A metadata file that cannot be read must not keep the secret files from being masked.
        let files = self.files.names().unwrap_or_default();
        let entries = self.metadata.read().unwrap_or_default();
        let mut values: Vec<(String, Secret)> = Vec::new();
        for (name, value) in self.env.iter() {
            let upper = name.to_ascii_uppercase();
            let telling = ["KEY", "TOKEN", "SECRET", "PASSWORD", "_PAT", "PEM"].iter().any(|part| upper.contains(part));
            // Whatever its name: it was stored or used as a secret before.
            let known = entries.contains_key(name) || files.iter().any(|file| file.as_str() == name);
            if (telling || known) && !is_too_short(value) {
                values.push((name.to_owned(), Secret::new(value)));
            }
        }
        let kept = entries.iter().filter(|(_, entry)| entry.source == Some(SecretSource::Keyring));
        let kept: BTreeSet<SecretName> = kept.filter_map(|(name, _)| SecretName::parse(name).ok()).collect();
        let in_keyring =
            kept.iter().map(|name| (name, self.keyring_of(name).and_then(|ring| ring.lookup_unlocked(name))));
        let in_files = files.iter().map(|name| (name, self.in_file(name).map(|found| found.map(|(secret, _)| secret))));
        for (name, read) in in_keyring.chain(in_files) {
            match read {
                Ok(secret) => values.extend(secret.map(|secret| (name.to_string(), secret))),
                Err(error) => tracing::warn!(%error, name = name.as_str(), "a secret cannot be masked"),
            }
        }
        values
    }

    /// Stores a value and removes older copies of it elsewhere.
    pub fn set(&self, name: &SecretName, secret: &Secret, new: NewSecret) -> Result<SecretSetReport, Error> {
        let command = CredentialCommand::is_command(secret.expose());
        let mut remarks = Vec::new();
        let place = match new.place {
            Some(SecretStorage::Keyring) if command => return Err(Error::CommandInKeyring { name: name.to_string() }),
            Some(SecretStorage::Keyring) => {
                let program = self.keyring_kind.program();
                let missing = || Error::NoProgram { name: name.to_string(), program };
                Keyring::find(self.keyring_kind, &self.env).ok_or_else(missing)?.store(name, secret)?;
                SecretStorage::Keyring
            }
            None if !command => {
                match Keyring::find(self.keyring_kind, &self.env).map(|ring| ring.store(name, secret)) {
                    Some(Ok(())) => SecretStorage::Keyring,
                    Some(Err(error)) => {
                        remarks.push(format!("{error}; it is kept in a file instead"));
                        SecretStorage::File
                    }
                    None => SecretStorage::File,
                }
            }
            Some(SecretStorage::File) | None => SecretStorage::File,
        };
        let before = self.metadata.entry(name)?;
        let source = match place {
            SecretStorage::Keyring => SecretSource::Keyring,
            SecretStorage::File if command => SecretSource::Command,
            SecretStorage::File => SecretSource::File,
        };
        if place == SecretStorage::File {
            self.files.write(name, secret)?;
        }
        self.metadata.update(|secrets| {
            let entry = SecretMetadata {
                kind: Some(new.kind),
                source: Some(source),
                set_at: Some(Timestamp::now()),
                expires: new.expires,
                ..before.clone()
            };
            secrets.insert(name.to_string(), entry);
        })?;
        match place {
            SecretStorage::Keyring => {
                self.files.remove(name)?;
            }
            SecretStorage::File if before.source == Some(SecretSource::Keyring) => {
                if let Err(error) = self.keyring_of(name).and_then(|keyring| keyring.clear(name)) {
                    remarks.push(format!("the older value is still in the keyring: {error}"));
                }
            }
            SecretStorage::File => (),
        }
        if let Some((_, from)) = self.env.lookup(name) {
            let place = if from == env_vars::EnvSource::DotEnv { "`.env`" } else { "the environment" };
            let used = if source == SecretSource::Command && from == env_vars::EnvSource::Process {
                "that value is used, and the command is not run"
            } else {
                "the value that was stored now is used instead"
            };
            remarks.push(format!("`{name}` is also set in {place}; {used}"));
        }
        Ok(SecretSetReport { source, remarks })
    }

    /// Removes a secret wherever ralph stores it, and returns where that was.
    pub fn remove(&self, name: &SecretName) -> Result<Vec<SecretSource>, Error> {
        let entry = self.metadata.entry(name)?;
        let mut removed = Vec::new();
        if entry.source == Some(SecretSource::Keyring) && self.keyring_of(name)?.clear(name)? {
            removed.push(SecretSource::Keyring);
        }
        if self.files.remove(name)? {
            removed.push(SecretSource::File);
        }
        if removed.is_empty() && entry.source.is_none() {
            return Err(match self.env.lookup(name) {
                Some((_, env_vars::EnvSource::DotEnv)) => Error::NotOurs { name: name.to_string(), place: "`.env`" },
                Some(_) => Error::NotOurs { name: name.to_string(), place: "the environment" },
                None => Error::Missing { name: name.to_string() },
            });
        }
        self.metadata.update(|secrets| {
            secrets.remove(name.as_str());
        })?;
        Ok(removed)
    }

    /// Lists stored secrets and credentials in the environment, by name. No keyring value is read for it.
    pub fn list(&self) -> Result<Vec<SecretSummary>, Error> {
        let entries = self.metadata.read()?;
        let files: BTreeSet<SecretName> = self.files.names()?.into_iter().collect();
        let mut listed = Vec::new();
        let all: BTreeSet<SecretName> = self
            .names()?
            .into_iter()
            .chain(known_credentials().iter().filter_map(|name| SecretName::parse(name).ok()))
            .collect();
        for name in all {
            let entry = entries.get(name.as_str()).cloned().unwrap_or_default();
            let mut problem = None;
            let (source, guess) = if entry.source == Some(SecretSource::Keyring) {
                if Keyring::find(self.keyring_kind, &self.env).is_none() {
                    problem = Some(format!("`{}` is not installed", self.keyring_kind.program()));
                }
                (SecretSource::Keyring, None)
            } else if files.contains(&name) {
                match self.files.read(&name) {
                    Ok(Some(line)) if CredentialCommand::is_command(line.expose()) && self.is_set_in_process(&name) => {
                        (SecretSource::Environment, Some(SecretKind::guess(&name, self.env.get(&name).unwrap_or(""))))
                    }
                    Ok(Some(line)) if CredentialCommand::is_command(line.expose()) => {
                        (SecretSource::Command, Some(SecretKind::guess(&name, "")))
                    }
                    Ok(Some(value)) => (SecretSource::File, Some(SecretKind::guess(&name, value.expose()))),
                    Ok(None) => continue,
                    Err(error) => {
                        problem = Some(error.to_string());
                        (SecretSource::File, None)
                    }
                }
            } else if let Some((value, from)) = self.env.lookup(&name) {
                (environment_source(from), Some(SecretKind::guess(&name, value)))
            } else if let Some(source) = entry.source {
                problem = Some("it is gone".to_owned());
                (source, None)
            } else {
                continue;
            };
            let ours = !matches!(source, SecretSource::Environment | SecretSource::DotEnv);
            listed.push(SecretSummary {
                name: name.to_string(),
                kind: entry.kind.filter(|_| ours).or(guess),
                source,
                expires: entry.expires.filter(|_| ours),
                set_at: entry.set_at.filter(|_| ours),
                last_used: entry.last_used,
                problem,
            });
        }
        Ok(listed)
    }

    /// Returns the names of all secrets that ralph stores.
    fn names(&self) -> Result<BTreeSet<SecretName>, Error> {
        let mut names: BTreeSet<SecretName> = self.files.names()?.into_iter().collect();
        let kept = self.metadata.read()?.into_iter().filter(|(_, entry)| entry.source.is_some());
        names.extend(kept.filter_map(|(name, _)| SecretName::parse(&name).ok()));
        Ok(names)
    }

    /// Returns the content of a name's file, or the answer of the command in it.
    fn in_file(&self, name: &SecretName) -> Result<Option<(Secret, SecretSource)>, Error> {
        Ok(match self.files.read(name)? {
            Some(line) if CredentialCommand::is_command(line.expose()) => {
                Some((command::read_from_command(name, &line, &self.env)?, SecretSource::Command))
            }
            other => other.map(|secret| (secret, SecretSource::File)),
        })
    }

    fn keyring_of(&self, name: &SecretName) -> Result<Keyring, Error> {
        let program = self.keyring_kind.program();
        Keyring::find(self.keyring_kind, &self.env).ok_or_else(|| Error::NoKeyring { name: name.to_string(), program })
    }

    /// Reports whether the user who started ralph set a variable of this name.
    fn is_set_in_process(&self, name: &str) -> bool {
        matches!(self.env.lookup(name), Some((_, env_vars::EnvSource::Process)))
    }

    fn in_environment(&self, name: &str) -> Result<Option<ResolvedSecret>, Error> {
        let Some((value, from)) = self.env.lookup(name) else { return Ok(None) };
        // A checkout may bring a `.env`; it must not be able to run a program.
        if CredentialCommand::is_command(value) {
            return Err(Error::CommandInEnvironment { name: name.to_owned() });
        }
        Ok(Some(ResolvedSecret {
            name: name.to_owned(),
            secret: Secret::new(value),
            kind: SecretKind::guess(name, value),
            source: environment_source(from),
            expires: None,
        }))
    }
}

fn environment_source(from: env_vars::EnvSource) -> SecretSource {
    match from {
        env_vars::EnvSource::Process => SecretSource::Environment,
        env_vars::EnvSource::DotEnv => SecretSource::DotEnv,
    }
}
