//! Whose profile counts: the user's over the project's over the shipped ones, profile by profile.

use std::collections::{BTreeMap, BTreeSet};

use super::yaml::{BadFile, Profile, parse};
use crate::config::Origin;
use crate::{hash, text};

/// The profiles that ship with ralph.
pub const SHIPPED: &str = include_str!("../../../../config/models.yaml");

/// Files a person has looked at and trusts, by the hash of their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    pub sha256: BTreeSet<String>,
}

/// One `models.yaml` that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// `Project` or `User`, with the path.
    pub origin: Origin,
    pub text: String,
}

/// A profile and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub profile: Profile,
    pub origin: Origin,
    /// Hash of the file that holds the profile: what `ralph trust` pins.
    pub sha256: String,
    /// Fields that a stranger must not set, named by a project file nobody has trusted yet.
    pub untrusted: Vec<&'static str>,
}

impl Entry {
    pub fn needs_trust(&self) -> bool {
        !self.untrusted.is_empty()
    }
}

/// Every profile a run may name.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles(BTreeMap<String, Entry>);

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("model profiles could not be read")]
    File(#[source] BadFile),
    #[error("there is no model profile `{name}`")]
    Unknown { name: String, meant: Option<String>, known: Vec<String> },
    #[error("model profile `{name}` of {file} sets {}, and that file is not trusted", .fields.join(", "))]
    NeedsTrust { name: String, file: String, fields: Vec<&'static str> },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(bad) => bad.hint(),
            Self::Unknown { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Unknown { known, .. } => Some(format!("the profiles are {}", known.join(", "))),
            Self::NeedsTrust { file, .. } => Some(format!("read {file}, then run `ralph trust`")),
        }
    }
}

impl Profiles {
    /// Puts the found files over the shipped one. Among files of the same kind the first given wins.
    pub fn load(sources: &[Source], trust: &Trust) -> Result<Self, Error> {
        let shipped = Source { origin: Origin::BuiltIn, text: SHIPPED.to_owned() };
        let mut ranked: Vec<&Source> = sources.iter().chain([&shipped]).collect();
        ranked.sort_by_key(|source| order(&source.origin));
        let mut profiles = BTreeMap::new();
        for source in ranked {
            let file = source.origin.place();
            let sha256 = hash::sha256(source.text.as_bytes());
            let trusted = source.origin.is_trusted() || trust.sha256.contains(&sha256);
            for (name, profile) in parse(&source.text, file).map_err(Error::File)? {
                let untrusted = if trusted { Vec::new() } else { profile.sensitive() };
                profiles.entry(name).or_insert(Entry {
                    profile,
                    origin: source.origin.clone(),
                    sha256: sha256.clone(),
                    untrusted,
                });
            }
        }
        Ok(Self(profiles))
    }

    /// Returns a profile that may be used.
    pub fn get(&self, name: &str) -> Result<&Entry, Error> {
        let Some(entry) = self.0.get(name) else {
            return Err(Error::Unknown {
                name: text::plain(text::first_line(name, 60)),
                meant: text::did_you_mean(name, self.0.keys().map(String::as_str)).map(str::to_owned),
                known: self.0.keys().cloned().collect(),
            });
        };
        if entry.needs_trust() {
            return Err(Error::NeedsTrust {
                name: name.to_owned(),
                file: entry.origin.place().to_owned(),
                fields: entry.untrusted.clone(),
            });
        }
        Ok(entry)
    }

    /// Lists every profile by name, those that need trust included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

/// Unlike options, profiles of the user win over those of a project: they hold keys and prices.
fn order(origin: &Origin) -> u8 {
    match origin {
        Origin::Flag | Origin::Env(_) | Origin::User(_) => 0,
        Origin::Task(_) | Origin::Project(_) => 1,
        Origin::BuiltIn => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::Table;

    fn source(origin: Origin, text: &str) -> Source {
        Source { origin, text: text.to_owned() }
    }

    fn project(text: &str) -> Source {
        source(Origin::Project("models.yaml".into()), text)
    }

    #[test]
    fn the_shipped_profiles_work() {
        let profiles = Profiles::load(&[], &Trust::default()).expect("the shipped file parses");
        let names: Vec<_> = profiles.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["claude", "codex-like", "default-cheap", "gemini", "local", "strong-doctor"]);
        for (name, entry) in profiles.iter() {
            assert!(entry.profile.price(&Table::shipped()).is_some(), "{name} has no price");
            assert!(profiles.get(name).is_ok(), "{name} is not usable");
        }
        let cheap = profiles.get("default-cheap").expect("the default");
        assert_eq!((cheap.profile.litellm_model.as_str(), &cheap.origin), ("zai/glm-4.7", &Origin::BuiltIn));
    }

    #[test]
    fn layers() {
        let user =
            source(Origin::User("u.yaml".into()), "profiles: {a: {litellm_model: zai/user, base_url: 'https://x.io'}}");
        let file = project("profiles: {a: {litellm_model: zai/project}, local: {litellm_model: zai/mine}}");
        let second = project("profiles: {local: {litellm_model: zai/second}, b: {litellm_model: zai/b}}");
        let profiles = Profiles::load(&[file, second, user], &Trust::default()).expect("files");
        for (name, model, origin) in [
            ("a", "zai/user", Origin::User("u.yaml".into())),
            ("local", "zai/mine", Origin::Project("models.yaml".into())),
            ("b", "zai/b", Origin::Project("models.yaml".into())),
            ("default-cheap", "zai/glm-4.7", Origin::BuiltIn),
        ] {
            let entry = profiles.get(name).expect("usable");
            assert_eq!((entry.profile.litellm_model.as_str(), &entry.origin), (model, &origin), "{name}");
        }
    }

    #[test]
    fn strangers_are_asked_about() {
        let file = project("profiles: {default-cheap: {litellm_model: openai/x, base_url: 'https://evil.example'}}");
        let profiles = Profiles::load(std::slice::from_ref(&file), &Trust::default()).expect("a file");
        let error = profiles.get("default-cheap").expect_err("not trusted");
        assert_eq!(
            (error.to_string(), error.hint()),
            (
                "model profile `default-cheap` of models.yaml sets base_url, and that file is not trusted".to_owned(),
                Some("read models.yaml, then run `ralph trust`".to_owned())
            )
        );
        let mut trust = Trust { sha256: BTreeSet::from([hash::sha256(file.text.as_bytes())]) };
        assert!(Profiles::load(std::slice::from_ref(&file), &trust).expect("a file").get("default-cheap").is_ok());
        trust.sha256 = BTreeSet::from([hash::sha256(b"an older version of the file")]);
        assert!(Profiles::load(&[file], &trust).expect("a file").get("default-cheap").is_err());
    }

    #[test]
    fn unknown_names() {
        let profiles = Profiles::load(&[], &Trust::default()).expect("shipped");
        for (name, want) in [
            ("default-chaep", "did you mean `default-cheap`?"),
            ("zzz", "the profiles are claude, codex-like, default-cheap, gemini, local, strong-doctor"),
        ] {
            assert_eq!(profiles.get(name).expect_err("unknown").hint().as_deref(), Some(want));
        }
    }
}
