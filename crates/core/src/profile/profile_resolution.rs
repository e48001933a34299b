//! Resolves profiles from several files: the user's beat the project's, which beat the shipped ones, profile by
//! profile.

use std::collections::{BTreeMap, BTreeSet};

use super::models_yaml::{BadModelsFile, Profile, parse};
use crate::config::ConfigOrigin;
use crate::{hash, text};

/// The profiles that ship with ralph.
pub const SHIPPED: &str = include_str!("../../../../config/models.yaml");

/// Files that the user has reviewed and trusts, by the hash of their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedFiles {
    pub sha256: BTreeSet<String>,
}

/// One `models.yaml` that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFile {
    /// `Project` or `User`, with the path.
    pub origin: ConfigOrigin,
    pub text: String,
}

/// A profile and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileEntry {
    pub profile: Profile,
    pub origin: ConfigOrigin,
    /// Hash of the file that holds the profile: what `ralph trust` pins.
    pub sha256: String,
    /// Sensitive fields set by a project file that the user has not trusted yet.
    pub untrusted: Vec<&'static str>,
}

impl ProfileEntry {
    pub fn needs_trust(&self) -> bool {
        !self.untrusted.is_empty()
    }
}

/// Every profile a run may name.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileCatalog(BTreeMap<String, ProfileEntry>);

/// The reasons why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("model profiles could not be read")]
    File(#[source] BadModelsFile),
    #[error("there is no model profile `{name}`")]
    Unknown { name: String, meant: Option<String>, known: Vec<String> },
    #[error("model profile `{name}` of {file} sets {}, and that file is not trusted", .fields.join(", "))]
    NeedsTrust { name: String, file: String, fields: Vec<&'static str> },
}

impl ProfileError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(bad) => bad.hint(),
            Self::Unknown { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Unknown { known, .. } => Some(format!("the profiles are {}", known.join(", "))),
            Self::NeedsTrust { file, .. } => Some(format!("read {file}, then run `ralph trust`")),
        }
    }
}

impl ProfileCatalog {
    /// Overlays the given files on the shipped one. Among files of the same kind the first one wins.
    pub fn load(sources: &[ProfileFile], trust: &TrustedFiles) -> Result<Self, ProfileError> {
        let shipped = ProfileFile { origin: ConfigOrigin::BuiltIn, text: SHIPPED.to_owned() };
        let mut ranked: Vec<&ProfileFile> = sources.iter().chain([&shipped]).collect();
        ranked.sort_by_key(|source| precedence(&source.origin));
        let mut profiles = BTreeMap::new();
        for source in ranked {
            let file = source.origin.location();
            let sha256 = hash::sha256(source.text.as_bytes());
            let trusted = source.origin.is_trusted() || trust.sha256.contains(&sha256);
            for (name, profile) in parse(&source.text, file).map_err(ProfileError::File)? {
                let untrusted = if trusted { Vec::new() } else { profile.sensitive_fields() };
                profiles.entry(name).or_insert(ProfileEntry {
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
    pub fn get(&self, name: &str) -> Result<&ProfileEntry, ProfileError> {
        let Some(entry) = self.0.get(name) else {
            return Err(ProfileError::Unknown {
                name: text::strip_control(text::first_line(name, 60)),
                meant: text::did_you_mean(name, self.0.keys().map(String::as_str)).map(str::to_owned),
                known: self.0.keys().cloned().collect(),
            });
        };
        if entry.needs_trust() {
            return Err(ProfileError::NeedsTrust {
                name: name.to_owned(),
                file: entry.origin.location().to_owned(),
                fields: entry.untrusted.clone(),
            });
        }
        Ok(entry)
    }

    /// Lists every profile by name, those that need trust included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ProfileEntry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

/// Unlike options, the user's profiles take precedence over those of a project: they hold keys and prices.
fn precedence(origin: &ConfigOrigin) -> u8 {
    match origin {
        ConfigOrigin::Flag | ConfigOrigin::Env(_) | ConfigOrigin::User(_) => 0,
        ConfigOrigin::Task(_) | ConfigOrigin::Project(_) => 1,
        ConfigOrigin::BuiltIn => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::PriceTable;

    fn source(origin: ConfigOrigin, text: &str) -> ProfileFile {
        ProfileFile { origin, text: text.to_owned() }
    }

    fn project(text: &str) -> ProfileFile {
        source(ConfigOrigin::Project("models.yaml".into()), text)
    }

    #[test]
    fn shipped_profiles_load() {
        let profiles = ProfileCatalog::load(&[], &TrustedFiles::default()).expect("the shipped file parses");
        let names: Vec<_> = profiles.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["claude", "codex-like", "default-cheap", "gemini", "local", "strong-doctor"]);
        for (name, entry) in profiles.iter() {
            assert!(entry.profile.price(&PriceTable::shipped()).is_some(), "{name} has no price");
            assert!(profiles.get(name).is_ok(), "{name} is not usable");
        }
        let cheap = profiles.get("default-cheap").expect("the default");
        assert_eq!((cheap.profile.litellm_model.as_str(), &cheap.origin), ("zai/glm-4.7", &ConfigOrigin::BuiltIn));
    }

    #[test]
    fn layers() {
        let user = source(
            ConfigOrigin::User("u.yaml".into()),
            "profiles: {a: {litellm_model: zai/user, base_url: 'https://x.io'}}",
        );
        let file = project("profiles: {a: {litellm_model: zai/project}, local: {litellm_model: zai/mine}}");
        let second = project("profiles: {local: {litellm_model: zai/second}, b: {litellm_model: zai/b}}");
        let profiles = ProfileCatalog::load(&[file, second, user], &TrustedFiles::default()).expect("files");
        for (name, model, origin) in [
            ("a", "zai/user", ConfigOrigin::User("u.yaml".into())),
            ("local", "zai/mine", ConfigOrigin::Project("models.yaml".into())),
            ("b", "zai/b", ConfigOrigin::Project("models.yaml".into())),
            ("default-cheap", "zai/glm-4.7", ConfigOrigin::BuiltIn),
        ] {
            let entry = profiles.get(name).expect("usable");
            assert_eq!((entry.profile.litellm_model.as_str(), &entry.origin), (model, &origin), "{name}");
        }
    }

    #[test]
    fn sensitive_fields_need_trust() {
        let file = project("profiles: {default-cheap: {litellm_model: openai/x, base_url: 'https://evil.example'}}");
        let profiles = ProfileCatalog::load(std::slice::from_ref(&file), &TrustedFiles::default()).expect("a file");
        let error = profiles.get("default-cheap").expect_err("not trusted");
        assert_eq!(
            (error.to_string(), error.hint()),
            (
                "model profile `default-cheap` of models.yaml sets base_url, and that file is not trusted".to_owned(),
                Some("read models.yaml, then run `ralph trust`".to_owned())
            )
        );
        let mut trust = TrustedFiles { sha256: BTreeSet::from([hash::sha256(file.text.as_bytes())]) };
        assert!(
            ProfileCatalog::load(std::slice::from_ref(&file), &trust).expect("a file").get("default-cheap").is_ok()
        );
        trust.sha256 = BTreeSet::from([hash::sha256(b"an older version of the file")]);
        assert!(ProfileCatalog::load(&[file], &trust).expect("a file").get("default-cheap").is_err());
    }

    #[test]
    fn unknown_names() {
        let profiles = ProfileCatalog::load(&[], &TrustedFiles::default()).expect("shipped");
        for (name, want) in [
            ("default-chaep", "did you mean `default-cheap`?"),
            ("zzz", "the profiles are claude, codex-like, default-cheap, gemini, local, strong-doctor"),
        ] {
            assert_eq!(profiles.get(name).expect_err("unknown").hint().as_deref(), Some(want));
        }
    }
}
