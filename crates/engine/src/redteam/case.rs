//! One attack on the way out: what is said, what must not happen, and where the same words must work.

use std::fmt;
use std::pin::Pin;

use ralph_sandbox::redteam::{Area, Verdict, is_meant};

use super::ground::Ground;
use super::rules::Rules;

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub id: &'static str,
    pub name: &'static str,
    pub(super) attack: Attack,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum Attack {
    /// Words for the caller, under these rules.
    Words { rules: Rules, words: &'static [&'static str], want: Want, control: Control },
    /// Something with more than one step, which brings its own control.
    Own(Steps),
}

/// What must come of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing at all happens in the world, and the caller is told one of these (divided by `|`): a refusal by whoever
    /// should refuse, and not a failure on the way there.
    Nothing(&'static str),
    /// No recorder hears a word; asking for the name and dialling it were allowed.
    Silence(&'static str),
}

/// Where words must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control {
    /// The same words reach a recorder under these rules.
    Same(Rules),
    /// Other words do.
    Other(Rules, &'static [&'static str]),
    /// Other words are answered by this under these rules.
    Says(Rules, &'static [&'static str], &'static str),
    /// These words reach a recorder on the host itself.
    Host(&'static [&'static str]),
}

pub(super) type Told<'a> = Pin<Box<dyn Future<Output = Result<Verdict, Verdict>> + Send + 'a>>;
pub(super) type Steps = for<'a> fn(&'a Ground) -> Told<'a>;

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words { words, .. } => f.debug_tuple("Words").field(words).finish(),
            Self::Own(_) => f.debug_tuple("Own").finish(),
        }
    }
}

impl Case {
    /// Words under the strict rules that must come to nothing.
    pub(super) const fn nothing(
        id: &'static str,
        name: &'static str,
        words: &'static [&'static str],
        says: &'static str,
        control: Control,
    ) -> Self {
        Self { id, name, attack: Attack::Words { rules: Rules::Strict, words, want: Want::Nothing(says), control } }
    }

    /// The same under other rules.
    pub(super) const fn under(self, rules: Rules) -> Self {
        match self.attack {
            Attack::Words { words, want, control, .. } => {
                Self { attack: Attack::Words { rules, words, want, control }, ..self }
            }
            Attack::Own(_) => self,
        }
    }

    /// The same where names may be asked for and dialled, but nothing may be said.
    pub(super) const fn silent(self) -> Self {
        match self.attack {
            Attack::Words { rules, words, want: Want::Nothing(says), control } => {
                Self { attack: Attack::Words { rules, words, want: Want::Silence(says), control }, ..self }
            }
            _ => self,
        }
    }

    pub(super) const fn own(id: &'static str, name: &'static str, steps: Steps) -> Self {
        Self { id, name, attack: Attack::Own(steps) }
    }

    pub fn area(&self) -> Area {
        Area::of(self.id)
    }

    /// Returns whether a person's choice means this case.
    pub fn is_meant(&self, only: &str) -> bool {
        is_meant(self.id, only)
    }
}

/// Stops a case whose control does not work.
pub(super) fn control(what: impl fmt::Display, works: bool) -> Result<(), Verdict> {
    if works { Ok(()) } else { Err(Verdict::Invalid(short(&format!("the control does not work: {what}")))) }
}

/// Judges an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "it is what a case ends with")]
pub(super) fn judged(escaped: bool, how: impl fmt::Display) -> Result<Verdict, Verdict> {
    Ok(if escaped { Verdict::Escaped(short(&how.to_string())) } else { Verdict::Held })
}

pub(super) fn short(told: &str) -> String {
    ralph_core::text::head(told.trim(), 300).to_string()
}
