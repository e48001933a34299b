//! Builds and parses the names that are visible outside the program: sandboxes, branches, task and run ids.
//!
//! Each type can only hold a legal name, so callers need no further checks. Whether a name is already in use is asked
//! through a function argument: nothing here does I/O.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::{hash, text};

/// The longest sandbox name: what DNS labels, Kubernetes and every backend accept.
const MAX_SANDBOX: usize = 63;
const MAX_SLUG: usize = 100;
/// Digits of run ids, without the letters that are easily mistaken for digits or for each other.
const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const RUN_ID_LEN: usize = 12;
/// 42 bits of milliseconds last until the year 2109; the 18 bits that remain are random.
const RANDOM_BITS: u32 = 18;
const TIME_BITS: u32 = 42;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{text}` is not a task id")]
    TaskId { text: String },
    #[error("`{text}` is not a branch of ralph")]
    Branch { text: String },
    #[error("`{text}` is not a run id")]
    RunId { text: String },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TaskId { .. } => {
                "use lower-case letters, digits and dashes, at most 63, starting with a letter or digit".to_owned()
            }
            Self::Branch { .. } => "branches are called `ralph/<task>/<slug>`, in lower case".to_owned(),
            Self::RunId { .. } => "a run id has 12 lower-case letters and digits, none of them i, l, o or u".to_owned(),
        })
    }
}

/// Returns the name of the sandbox of an agent on a branch: `agent-loop-<agent>-<branch>` in `[a-z0-9-]`, at most 63
/// bytes, with a suffix of eight hex digits when it had to be cut or `taken` says that it is in use.
pub fn sandbox_name(agent: &str, branch: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let name = format!("agent-loop-{}-{}", dash_separated(agent), dash_separated(branch));
    if name.len() <= MAX_SANDBOX && !taken(&name) {
        return name;
    }
    let mut round = 0_u32;
    loop {
        let suffix = hash::short_sha256(format!("{agent}\0{branch}\0{round}").as_bytes());
        let stem = text::head(&name, MAX_SANDBOX - suffix.len() - 1).trim_end_matches('-');
        let suffixed = format!("{stem}-{suffix}");
        // A `taken` that is always true must not loop forever: the backend refuses the name in the end.
        if round == 1000 || !taken(&suffixed) {
            return suffixed;
        }
        round += 1;
    }
}

/// Keeps `[a-z0-9]` and turns every other run of characters into one dash.
fn dash_separated(part: &str) -> String {
    let words: Vec<String> = part
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    if words.is_empty() { "x".to_owned() } else { words.join("-") }
}

/// Implements the string conversions of a name type. Deserializing parses, so a stored file cannot hold an illegal
/// name.
macro_rules! string_type {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        /// Derefs to text, because a name is mostly shown, compared or passed to a program.
        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

/// The id of a task: `[a-z0-9][a-z0-9-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(String);

impl TaskId {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 63 || text.starts_with('-') || !text.bytes().all(legal) {
            return Err(Error::TaskId { text: text::first_line(&text::strip_control(text), 80).to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

string_type!(TaskId);

/// A branch that may be pushed: `ralph/<task>/<slug>`, a legal git ref name. No other branch can be represented.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskBranch(String);

impl TaskBranch {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || Error::Branch { text: text::first_line(&text::strip_control(text), 120).to_owned() };
        let (task, slug) = text.strip_prefix("ralph/").and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
        if TaskId::parse(task).is_err() || !legal_slug(slug) {
            return Err(bad());
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the branch of a task, made from its title; a title without a usable character gives `work`.
    pub fn new(task: &TaskId, title: &str) -> Self {
        let slug = text::slug(title, 60);
        let slug = if slug.is_empty() { "work" } else { &slug };
        Self(format!("ralph/{task}/{slug}"))
    }

    pub fn task(&self) -> &str {
        self.parts().0
    }

    pub fn slug(&self) -> &str {
        self.parts().1
    }

    /// Returns the branch of the `n`th run of the task: the first keeps the name, later ones get `-v2`, `-v3`, …
    pub fn with_version(&self, n: u32) -> Self {
        if n <= 1 {
            return self.clone();
        }
        let (task, slug) = self.parts();
        let version = format!("-v{n}");
        // The slug is ASCII, so it may be cut anywhere; the end that the cut leaves must still be a legal ref.
        let stem = text::head(slug, MAX_SLUG - version.len());
        Self(format!("ralph/{task}/{stem}{version}"))
    }

    pub fn ref_name(&self) -> String {
        format!("refs/heads/{}", self.0)
    }

    fn parts(&self) -> (&str, &str) {
        self.0.strip_prefix("ralph/").and_then(|rest| rest.split_once('/')).unwrap_or(("", ""))
    }
}

string_type!(TaskBranch);

/// Returns whether git allows the text as the last part of a ref name, and no character of it ever needs quoting.
fn legal_slug(slug: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    !slug.is_empty()
        && slug.len() <= MAX_SLUG
        && slug.bytes().all(legal)
        && !slug.starts_with(['-', '.'])
        && !slug.ends_with('.')
        && slug.strip_suffix(".lock").is_none()
        && !slug.contains("..")
}

/// The id of a run: twelve digits of lower-case Crockford base 32, which sort by the time the run was created.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Creates an id from milliseconds since 1970 and random bytes, of which the low 18 bits are used.
    pub fn new(ms: u64, random: [u8; 4]) -> Self {
        let time = ms & ((1 << TIME_BITS) - 1);
        let random = u64::from(u32::from_be_bytes(random)) & ((1 << RANDOM_BITS) - 1);
        let bits = time << RANDOM_BITS | random;
        let digits = (0..RUN_ID_LEN).rev().map(|place| {
            let digit = usize::try_from(bits >> (place * 5) & 31).unwrap_or(0);
            char::from(CROCKFORD[digit])
        });
        Self(digits.collect())
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() != RUN_ID_LEN || !text.bytes().all(|byte| CROCKFORD.contains(&byte)) {
            return Err(Error::RunId { text: text::first_line(&text::strip_control(text), 40).to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns when the run was created, in milliseconds since 1970.
    pub fn ms(&self) -> u64 {
        let bits = self.0.bytes().fold(0_u64, |bits, byte| {
            let digit = CROCKFORD.iter().position(|known| *known == byte).unwrap_or(0);
            bits << 5 | u64::try_from(digit).unwrap_or(0)
        });
        bits >> RANDOM_BITS
    }
}

string_type!(RunId);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sandbox_names() {
        let long = "ralph/task-001/a-very-long-slug-that-goes-on-and-on-and-on";
        for (agent, branch, taken, want) in [
            ("claude", "ralph/t1/fix", &[][..], "agent-loop-claude-ralph-t1-fix"),
            ("Claude Code", "Ralph//T1/__fix__", &[], "agent-loop-claude-code-ralph-t1-fix"),
            ("", "…", &[], "agent-loop-x-x"),
            ("codex", "a/b", &["agent-loop-codex-a-b"], "agent-loop-codex-a-b-ffba7ed8"),
            (
                "codex",
                "a/b",
                &["agent-loop-codex-a-b", "agent-loop-codex-a-b-ffba7ed8"],
                "agent-loop-codex-a-b-de776400",
            ),
            ("claude", long, &[], "agent-loop-claude-ralph-task-001-a-very-long-slug-that-8582064f"),
        ] {
            assert_eq!(sandbox_name(agent, branch, &|name| taken.contains(&name)), want);
        }
        assert!(sandbox_name("a", "b", &|_| true).len() <= 63, "a `taken` that is always true must not loop forever");
    }

    #[track_caller]
    fn branch(name: &str, legal: bool) {
        assert_eq!(TaskBranch::parse(name).ok().as_ref().map(TaskBranch::as_str), legal.then_some(name), "{name:?}");
    }

    #[test]
    fn branches() {
        for name in ["ralph/t1/fix-auth", "ralph/1/a", "ralph/task-001/v1.2_x", "ralph/t/x-v2"] {
            branch(name, true);
        }
        for name in [
            "",
            "main",
            "ralph",
            "ralph/",
            "ralph/t1",
            "ralph/t1/",
            "ralph//x",
            "ralph/t1/a/b",
            "ralph/T1/a",
            "ralph/t1/A",
            "ralph/-t/a",
            "ralph/t1/-a",
            "ralph/t1/.a",
            "ralph/t1/a.",
            "ralph/t1/a..b",
            "ralph/t1/a.lock",
            "ralph/t1/a b",
            "ralph/t1/a~1",
            "ralph/t1/a^",
            "ralph/t1/a:b",
            "ralph/t1/a@{1}",
            "ralph/t1/a\\b",
            "ralph/t1/a\n",
            "ralph/t1/ä",
            "refs/heads/ralph/t1/a",
            "+ralph/t1/a",
            "../ralph/t1/a",
            "ralph/../main",
        ] {
            branch(name, false);
        }
        branch(&format!("ralph/t1/{}", "a".repeat(100)), true);
        branch(&format!("ralph/t1/{}", "a".repeat(101)), false);
    }

    #[test]
    fn branch_parts_and_versions() {
        let task = TaskId::parse("t1").unwrap();
        let made = TaskBranch::new(&task, "Fix: the Auth!");
        assert_eq!((made.as_str(), made.task(), made.slug()), ("ralph/t1/fix-the-auth", "t1", "fix-the-auth"));
        assert_eq!(TaskBranch::new(&task, "…").as_str(), "ralph/t1/work");
        for (n, want) in [
            (0, "ralph/t1/fix-the-auth"),
            (1, "ralph/t1/fix-the-auth"),
            (2, "ralph/t1/fix-the-auth-v2"),
            (13, "ralph/t1/fix-the-auth-v13"),
        ] {
            assert_eq!(made.with_version(n).as_str(), want);
        }
        let long = TaskBranch::parse(&format!("ralph/t1/{}", "a".repeat(100))).unwrap().with_version(2);
        assert_eq!(long.slug(), format!("{}-v2", "a".repeat(97)));
    }

    #[test]
    fn task_ids() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for (text, legal) in [
            ("task-001", true),
            ("0", true),
            ("a--b-", true),
            (&*longest, true),
            (&*longer, false),
            ("", false),
            ("-a", false),
            ("A", false),
            ("a_b", false),
            ("a/b", false),
            ("a\n", false),
        ] {
            assert_eq!(TaskId::parse(text).is_ok(), legal, "{text:?}");
        }
    }

    #[test]
    fn run_ids() {
        let id = RunId::new(1_767_225_600_000, [0xff, 0xff, 0xff, 0xff]);
        assert_eq!((id.as_str(), id.ms()), ("cvevdag07zzz", 1_767_225_600_000));
        for (text, legal) in [
            ("0123456789ab", true),
            ("0123456789a", false),
            ("0123456789abc", false),
            ("0123456789ai", false),
            ("0123456789AB", false),
            ("../../etc/xx", false),
        ] {
            assert_eq!(RunId::parse(text).is_ok(), legal, "{text:?}");
        }
        assert_eq!(serde_json::from_str::<RunId>("\"../../etc/xx\"").ok(), None);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"cvevdag07zzz\"");
    }

    proptest! {
        #[test]
        fn sandbox_names_are_always_legal(agent in ".{0,80}", branch in ".{0,80}", taken in any::<bool>()) {
            let first = std::cell::Cell::new(taken);
            let name = sandbox_name(&agent, &branch, &|_| first.replace(false));
            prop_assert!(name.len() <= 63 && name.starts_with("agent-loop-") && !name.ends_with('-'), "{name}");
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
        }

        #[test]
        fn versions_stay_legal(slug in "[a-z0-9][a-z0-9._-]{0,99}", n in any::<u32>()) {
            if let Ok(branch) = TaskBranch::parse(&format!("ralph/t1/{slug}")) {
                let version = branch.with_version(n);
                prop_assert_eq!(TaskBranch::parse(version.as_str()), Ok(version));
            }
        }

        #[test]
        fn run_ids_sort_by_time(a in 0_u64..1 << 42, b in 0_u64..1 << 42, ra: [u8; 4], rb: [u8; 4]) {
            let (x, y) = (RunId::new(a, ra), RunId::new(b, rb));
            prop_assert_eq!((x.ms(), y.ms()), (a, b));
            prop_assert!(a == b || (a < b) == (x < y));
            prop_assert_eq!(RunId::parse(x.as_str()), Ok(x));
        }
    }
}
