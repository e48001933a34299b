//! Describes one attack on the egress proxy: what the client does, what must not happen, and where the same steps
//! must work.

use std::fmt;
use std::pin::Pin;

use ralph_sandbox::embedded::IsolationMechanism;

use super::arena::EgressArena;
use super::policies::PolicyPreset;
use crate::case::{AttackCase, AttackPayload};
use crate::report::AttackVerdict;

/// One attack on the egress proxy.
pub type EgressCase = AttackCase<EgressPayload>;

/// The attack itself.
#[derive(Debug, Clone, Copy)]
pub struct EgressPayload(pub(super) EgressAttack);

impl AttackPayload for EgressPayload {
    /// The proxy has to stop these attacks, whatever mechanisms the cage has.
    fn mechanisms(&self) -> &'static [IsolationMechanism] {
        &[]
    }
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum EgressAttack {
    /// Steps for the attacking client, under this policy.
    Script { rules: PolicyPreset, words: &'static [&'static str], want: ExpectedEffect, control: EgressControl },
    /// An attack in several steps, with its own control.
    Custom(EgressCaseFn),
}

/// The required result of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedEffect {
    /// Nothing at all happens in the fake network, and the client's output contains one of these (separated by `|`):
    /// a refusal by the component that should refuse, not a failure before it.
    NoTraffic(&'static str),
    /// No recorder receives a message; resolving and dialling the name is allowed.
    NoMessage(&'static str),
}

/// Where the steps must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum EgressControl {
    /// The same steps reach a recorder under this policy.
    Same(PolicyPreset),
    /// Other steps reach a recorder under this policy.
    Other(PolicyPreset, &'static [&'static str]),
    /// Other steps get this answer under this policy.
    Says(PolicyPreset, &'static [&'static str], &'static str),
    /// These steps reach a recorder from the host itself.
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
    /// Creates an attack that must cause no traffic under the strict policy.
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

    /// Uses another policy.
    pub(super) const fn under(self, rules: PolicyPreset) -> Self {
        match self.payload.0 {
            EgressAttack::Script { words, want, control, .. } => {
                Self { payload: EgressPayload(EgressAttack::Script { rules, words, want, control }), ..self }
            }
            EgressAttack::Custom(_) => self,
        }
    }

    /// Allows names to be resolved and dialled, but no message to be sent.
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

/// Fails a case whose control does not work.
pub(super) fn require_control(what: impl fmt::Display, works: bool) -> Result<(), AttackVerdict> {
    if works { Ok(()) } else { Err(AttackVerdict::Invalid(shortened(&format!("the control does not work: {what}")))) }
}

/// Returns the verdict on an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "every case ends with this call")]
pub(super) fn case_verdict(escaped: bool, how: impl fmt::Display) -> Result<AttackVerdict, AttackVerdict> {
    Ok(if escaped { AttackVerdict::Escaped(shortened(&how.to_string())) } else { AttackVerdict::Held })
}

pub(super) fn shortened(text: &str) -> String {
    ralph_core::text::head(text.trim(), 300).to_string()
}
