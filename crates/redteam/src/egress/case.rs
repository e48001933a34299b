//! One attack on the way out: what is said, what must not happen, and where the same words must work.

use std::fmt;
use std::pin::Pin;

use ralph_sandbox::embedded::IsolationMechanism;

use super::arena::EgressArena;
use super::policies::PolicyPreset;
use crate::case::{AttackCase, AttackPayload};
use crate::report::AttackVerdict;

/// One attack on the egress proxy.
pub type EgressCase = AttackCase<EgressPayload>;

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub struct EgressPayload(pub(super) EgressAttack);

impl AttackPayload for EgressPayload {
    /// The proxy stands in front of these attacks, whatever the cage is made of.
    fn walls(&self) -> &'static [IsolationMechanism] {
        &[]
    }
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum EgressAttack {
    /// Words for the caller, under these rules.
    Script { rules: PolicyPreset, words: &'static [&'static str], want: ExpectedEffect, control: EgressControl },
    /// Something with more than one step, which brings its own control.
    Custom(EgressCaseFn),
}

/// What must come of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedEffect {
    /// Nothing at all happens in the world, and the caller is told one of these (divided by `|`): a refusal by whoever
    /// should refuse, and not a failure on the way there.
    NoTraffic(&'static str),
    /// No recorder hears a word; asking for the name and dialling it were allowed.
    NoMessage(&'static str),
}

/// Where words must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum EgressControl {
    /// The same words reach a recorder under these rules.
    Same(PolicyPreset),
    /// Other words do.
    Other(PolicyPreset, &'static [&'static str]),
    /// Other words are answered by this under these rules.
    Says(PolicyPreset, &'static [&'static str], &'static str),
    /// These words reach a recorder on the host itself.
    Host(&'static [&'static str]),
}

pub(super) type EgressCaseFuture<'a> = Pin<Box<dyn Future<Output = Result<AttackVerdict, AttackVerdict>> + Send + 'a>>;
pub(super) type EgressCaseFn = for<'a> fn(&'a EgressArena) -> EgressCaseFuture<'a>;

impl fmt::Debug for EgressAttack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script { words, .. } => f.debug_tuple("Script").field(words).finish(),
            Self::Custom(_) => f.debug_tuple("Custom").finish(),
        }
    }
}

impl EgressCase {
    /// Words under the strict rules that must come to nothing.
    pub(super) const fn blocked(
        id: &'static str,
        name: &'static str,
        words: &'static [&'static str],
        says: &'static str,
        control: EgressControl,
    ) -> Self {
        Self {
            id,
            name,
            payload: EgressPayload(EgressAttack::Script {
                rules: PolicyPreset::Strict,
                words,
                want: ExpectedEffect::NoTraffic(says),
                control,
            }),
        }
    }

    /// The same under other rules.
    pub(super) const fn under(self, rules: PolicyPreset) -> Self {
        match self.payload.0 {
            EgressAttack::Script { words, want, control, .. } => {
                Self { payload: EgressPayload(EgressAttack::Script { rules, words, want, control }), ..self }
            }
            EgressAttack::Custom(_) => self,
        }
    }

    /// The same where names may be asked for and dialled, but nothing may be said.
    pub(super) const fn silent(self) -> Self {
        match self.payload.0 {
            EgressAttack::Script { rules, words, want: ExpectedEffect::NoTraffic(says), control } => Self {
                payload: EgressPayload(EgressAttack::Script {
                    rules,
                    words,
                    want: ExpectedEffect::NoMessage(says),
                    control,
                }),
                ..self
            },
            _ => self,
        }
    }

    pub(super) const fn custom(id: &'static str, name: &'static str, steps: EgressCaseFn) -> Self {
        Self { id, name, payload: EgressPayload(EgressAttack::Custom(steps)) }
    }
}

/// Stops a case whose control does not work.
pub(super) fn require_control(what: impl fmt::Display, works: bool) -> Result<(), AttackVerdict> {
    if works { Ok(()) } else { Err(AttackVerdict::Invalid(shortened(&format!("the control does not work: {what}")))) }
}

/// Judges an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "it is what a case ends with")]
pub(super) fn case_verdict(escaped: bool, how: impl fmt::Display) -> Result<AttackVerdict, AttackVerdict> {
    Ok(if escaped { AttackVerdict::Escaped(shortened(&how.to_string())) } else { AttackVerdict::Held })
}

pub(super) fn shortened(told: &str) -> String {
    ralph_core::text::head(told.trim(), 300).to_string()
}
