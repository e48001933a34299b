//! Finds, keeps and forgets secrets by their names.

use std::collections::BTreeSet;

use jiff::Timestamp;
use ralph_core::env::{self, Env};
use ralph_core::redact::too_short;
use ralph_core::secret::{Command, Kind, Name, Secret, credentials};

use super::command;
use super::error::Error;
use super::file::Files;
use super::keyring::{Flavour, Keyring};
use super::meta::{Book, Entry, Source};
use crate::store::Home;

/// Using a secret again so soon is not written down again.
const USED_AGAIN_S: i64 = 60;

/// The secrets of a user.
#[derive(Debug, Clone)]
pub struct Store {
    env: Env,
    files: Files,
    pub(super) book: Book,
    flavour: Flavour,
}

/// A secret that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub secret: Secret,
    pub kind: Kind,
    pub source: Source,
    pub expires: Option<Timestamp>,
}

impl Found {
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// Where somebody wants a secret kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Keyring,
    File,
}

/// What is to be kept beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New {
    pub kind: Kind,
    pub expires: Option<Timestamp>,
    /// `None` is the keyring where one works, else a file.
    pub place: Option<Place>,
}

/// Where a value was put, and what a person should hear about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub source: Source,
    pub remarks: Vec<String>,
}

/// One line of a list: everything but the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub kind: Option<Kind>,
    pub source: Source,
    pub expires: Option<Timestamp>,
    pub set_at: Option<Timestamp>,
    pub last_used: Option<Timestamp>,
    /// Why it cannot be used as it is.
    pub trouble: Option<String>,
}

impl Store {
    pub fn open(home: &Home, env: &Env) -> Self {
        Self { env: env.clone(), files: Files::new(home), book: Book::new(home), flavour: Flavour::HERE }
    }

    /// Finds a secret: in the keyring, then in its file, then in the environment, then by the command its file names. What
    /// a checkout brings in its `.env` takes the place of nothing that a person stored, commands included.
    pub fn find(&self, name: &str) -> Result<Option<Found>, Error> {
        // A name that is not one of ours can still be that of a variable.
        let Ok(parsed) = Name::parse(name) else { return self.in_environment(name) };
        let entry = self.book.entry(name)?;
        let found = |secret: Secret, source| {
            let kind = entry.kind.unwrap_or_else(|| Kind::guess(name, secret.expose()));
            Found { name: name.to_owned(), secret, kind, source, expires: entry.expires }
        };
        if entry.source == Some(Source::Keyring)
            && let Some(secret) = self.keyring_of(&parsed)?.lookup(&parsed)?
        {
            return Ok(Some(found(secret, Source::Keyring)));
        }
        if self.files.read(&parsed)?.is_some_and(|line| Command::is(line.expose())) && self.in_process(name) {
            return self.in_environment(name);
        }
        match self.in_file(&parsed)? {
            Some((secret, source)) => Ok(Some(found(secret, source))),
            None => self.in_environment(name),
        }
    }

    /// Finds the first of several that is there and not over; one that is over is better than none.
    pub fn first(&self, names: &[String]) -> Result<Option<Found>, Error> {
        let now = Timestamp::now();
        let mut over = None;
        for name in names {
            match self.find(name)? {
                Some(found) if found.is_over(now) => over = over.or(Some(found)),
                Some(found) => return Ok(Some(found)),
                None => (),
            }
        }
        Ok(over)
    }

    /// Writes down that a secret was used now.
    pub fn used(&self, name: &str) -> Result<(), Error> {
        let now = Timestamp::now();
        let last = self.book.entry(name)?.last_used;
        if last.is_some_and(|last| now.duration_since(last).as_secs().abs() < USED_AGAIN_S) {
            return Ok(());
        }
        self.book.change(|secrets| secrets.entry(name.to_owned()).or_default().last_used = Some(now))
    }

    /// Returns every value that must never be shown: what is stored, as far as no person has to unlock it, and what the
    /// environment holds under a telling or known name. One that cannot be read is left out and logged; it cannot leak from here.
    ///
    /// The programs of `cmd://` lines are asked too: a value that is not known cannot be masked.
    pub fn all_values(&self) -> Vec<(String, Secret)> {
        // A book that cannot be read must not hide the files from the mask.
        let files = self.files.names().unwrap_or_default();
        let entries = self.book.read().unwrap_or_default();
        let mut values: Vec<(String, Secret)> = Vec::new();
        for (name, value) in self.env.iter() {
            let upper = name.to_ascii_uppercase();
            let telling = ["KEY", "TOKEN", "SECRET", "PASSWORD", "_PAT", "PEM"].iter().any(|part| upper.contains(part));
            // Whatever its name: it was kept or used as a secret before.
            let known = entries.contains_key(name) || files.iter().any(|file| file.as_str() == name);
            if (telling || known) && !too_short(value) {
                values.push((name.to_owned(), Secret::new(value)));
            }
        }
        let kept = entries.iter().filter(|(_, entry)| entry.source == Some(Source::Keyring));
        let kept: BTreeSet<Name> = kept.filter_map(|(name, _)| Name::parse(name).ok()).collect();
        let in_keyring = kept.iter().map(|name| (name, self.keyring_of(name).and_then(|ring| ring.peek(name))));
        let in_files = files.iter().map(|name| (name, self.in_file(name).map(|found| found.map(|(secret, _)| secret))));
        for (name, read) in in_keyring.chain(in_files) {
            match read {
                Ok(secret) => values.extend(secret.map(|secret| (name.to_string(), secret))),
                Err(error) => tracing::warn!(%error, name = name.as_str(), "a secret cannot be masked"),
            }
        }
        values
    }

    /// Keeps a value and forgets older copies of it in the other place.
    pub fn set(&self, name: &Name, secret: &Secret, new: New) -> Result<Stored, Error> {
        let command = Command::is(secret.expose());
        let mut remarks = Vec::new();
        let place = match new.place {
            Some(Place::Keyring) if command => return Err(Error::CommandInKeyring { name: name.to_string() }),
            Some(Place::Keyring) => {
                let program = self.flavour.program();
                let missing = || Error::NoProgram { name: name.to_string(), program };
                Keyring::find(self.flavour, &self.env).ok_or_else(missing)?.store(name, secret)?;
                Place::Keyring
            }
            None if !command => match Keyring::find(self.flavour, &self.env).map(|ring| ring.store(name, secret)) {
                Some(Ok(())) => Place::Keyring,
                Some(Err(error)) => {
                    remarks.push(format!("{error}; it is kept in a file instead"));
                    Place::File
                }
                None => Place::File,
            },
            Some(Place::File) | None => Place::File,
        };
        let before = self.book.entry(name)?;
        let source = match place {
            Place::Keyring => Source::Keyring,
            Place::File if command => Source::Command,
            Place::File => Source::File,
        };
        if place == Place::File {
            self.files.write(name, secret)?;
        }
        self.book.change(|secrets| {
            let entry = Entry {
                kind: Some(new.kind),
                source: Some(source),
                set_at: Some(Timestamp::now()),
                expires: new.expires,
                ..before.clone()
            };
            secrets.insert(name.to_string(), entry);
        })?;
        match place {
            Place::Keyring => {
                self.files.remove(name)?;
            }
            Place::File if before.source == Some(Source::Keyring) => {
                if let Err(error) = self.keyring_of(name).and_then(|keyring| keyring.clear(name)) {
                    remarks.push(format!("the older value is still in the keyring: {error}"));
                }
            }
            Place::File => (),
        }
        if let Some((_, from)) = self.env.lookup(name) {
            let place = if from == env::Source::DotEnv { "`.env`" } else { "the environment" };
            let used = if source == Source::Command && from == env::Source::Process {
                "that value is used, and the command is not asked"
            } else {
                "the value that was stored now is used instead"
            };
            remarks.push(format!("`{name}` is also set in {place}; {used}"));
        }
        Ok(Stored { source, remarks })
    }

    /// Forgets a secret wherever ralph keeps it, and tells where that was.
    pub fn remove(&self, name: &Name) -> Result<Vec<Source>, Error> {
        let entry = self.book.entry(name)?;
        let mut removed = Vec::new();
        if entry.source == Some(Source::Keyring) && self.keyring_of(name)?.clear(name)? {
            removed.push(Source::Keyring);
        }
        if self.files.remove(name)? {
            removed.push(Source::File);
        }
        if removed.is_empty() && entry.source.is_none() {
            return Err(match self.env.lookup(name) {
                Some((_, env::Source::DotEnv)) => Error::NotOurs { name: name.to_string(), place: "`.env`" },
                Some(_) => Error::NotOurs { name: name.to_string(), place: "the environment" },
                None => Error::Missing { name: name.to_string() },
            });
        }
        self.book.change(|secrets| {
            secrets.remove(name.as_str());
        })?;
        Ok(removed)
    }

    /// Lists what is stored and which credentials the environment holds, by name. No value is taken out for it.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let entries = self.book.read()?;
        let files: BTreeSet<Name> = self.files.names()?.into_iter().collect();
        let mut listed = Vec::new();
        let all: BTreeSet<Name> =
            self.names()?.into_iter().chain(credentials().iter().filter_map(|name| Name::parse(name).ok())).collect();
        for name in all {
            let entry = entries.get(name.as_str()).cloned().unwrap_or_default();
            let mut trouble = None;
            let (source, guess) = if entry.source == Some(Source::Keyring) {
                if Keyring::find(self.flavour, &self.env).is_none() {
                    trouble = Some(format!("`{}` is not installed", self.flavour.program()));
                }
                (Source::Keyring, None)
            } else if files.contains(&name) {
                match self.files.read(&name) {
                    Ok(Some(line)) if Command::is(line.expose()) && self.in_process(&name) => {
                        (Source::Environment, Some(Kind::guess(&name, self.env.get(&name).unwrap_or(""))))
                    }
                    Ok(Some(line)) if Command::is(line.expose()) => (Source::Command, Some(Kind::guess(&name, ""))),
                    Ok(Some(value)) => (Source::File, Some(Kind::guess(&name, value.expose()))),
                    Ok(None) => continue,
                    Err(error) => {
                        trouble = Some(error.to_string());
                        (Source::File, None)
                    }
                }
            } else if let Some((value, from)) = self.env.lookup(&name) {
                (from_environment(from), Some(Kind::guess(&name, value)))
            } else if let Some(source) = entry.source {
                trouble = Some("it is gone".to_owned());
                (source, None)
            } else {
                continue;
            };
            let ours = !matches!(source, Source::Environment | Source::DotEnv);
            listed.push(Listed {
                name: name.to_string(),
                kind: entry.kind.filter(|_| ours).or(guess),
                source,
                expires: entry.expires.filter(|_| ours),
                set_at: entry.set_at.filter(|_| ours),
                last_used: entry.last_used,
                trouble,
            });
        }
        Ok(listed)
    }

    /// Returns the names of all that ralph keeps.
    fn names(&self) -> Result<BTreeSet<Name>, Error> {
        let mut names: BTreeSet<Name> = self.files.names()?.into_iter().collect();
        let kept = self.book.read()?.into_iter().filter(|(_, entry)| entry.source.is_some());
        names.extend(kept.filter_map(|(name, _)| Name::parse(&name).ok()));
        Ok(names)
    }

    /// Returns what the file of a name holds, or what the command in it tells.
    fn in_file(&self, name: &Name) -> Result<Option<(Secret, Source)>, Error> {
        Ok(match self.files.read(name)? {
            Some(line) if Command::is(line.expose()) => Some((command::ask(name, &line, &self.env)?, Source::Command)),
            other => other.map(|secret| (secret, Source::File)),
        })
    }

    fn keyring_of(&self, name: &Name) -> Result<Keyring, Error> {
        let program = self.flavour.program();
        Keyring::find(self.flavour, &self.env).ok_or_else(|| Error::NoKeyring { name: name.to_string(), program })
    }

    /// Says whether the person who started ralph set a variable of this name.
    fn in_process(&self, name: &str) -> bool {
        matches!(self.env.lookup(name), Some((_, env::Source::Process)))
    }

    fn in_environment(&self, name: &str) -> Result<Option<Found>, Error> {
        let Some((value, from)) = self.env.lookup(name) else { return Ok(None) };
        // A checkout may bring a `.env`; it must not be able to run a program.
        if Command::is(value) {
            return Err(Error::CommandInEnvironment { name: name.to_owned() });
        }
        Ok(Some(Found {
            name: name.to_owned(),
            secret: Secret::new(value),
            kind: Kind::guess(name, value),
            source: from_environment(from),
            expires: None,
        }))
    }
}

fn from_environment(from: env::Source) -> Source {
    match from {
        env::Source::Process => Source::Environment,
        env::Source::DotEnv => Source::DotEnv,
    }
}
