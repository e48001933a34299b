//! Describes one attack on a sandbox: what it does, and where the same payload must work.

use std::fmt;
use std::pin::Pin;

use ralph_sandbox::Error;
use ralph_sandbox::embedded::IsolationMechanism;

use super::arena::SandboxArena;
use crate::case::{AttackCase, AttackPayload};
use crate::report::AttackVerdict;

/// One attack on a sandbox.
pub type SandboxAttack = AttackCase<SandboxPayload>;

/// The attack itself, and what it needs.
#[derive(Debug, Clone, Copy)]
pub struct SandboxPayload {
    /// Mechanisms disabled for the attack itself, so that it tests only the one behind them.
    pub(super) without_walls: &'static [IsolationMechanism],
    pub(super) action: PayloadAction,
    /// The Landlock version without which this attack is not refused.
    pub(super) landlock: u8,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum PayloadAction {
    /// A shell line that prints `GOT` if the attack succeeded.
    Line(&'static str, PayloadControl),
    /// A system call, as arguments for the probe, and the only acceptable result.
    Call(&'static str, &'static str, PayloadControl),
    /// An attack in several steps, with its own control.
    Custom(&'static [IsolationMechanism], SandboxAttackSteps),
}

pub(super) type SandboxAttackFuture<'a> =
    Pin<Box<dyn Future<Output = Result<AttackVerdict, SandboxAttackError>> + Send + 'a>>;
pub(super) type SandboxAttackSteps = for<'a> fn(&'a SandboxArena<'a>, &'a SandboxAttack) -> SandboxAttackFuture<'a>;

/// Where the same payload must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum PayloadControl {
    /// In a cage without these mechanisms.
    Without(&'static [IsolationMechanism]),
    /// In a cage without these mechanisms, unless the host lacks what is needed, for the given reason.
    IfSupported(&'static [IsolationMechanism], &'static str),
    /// On the host itself.
    Host,
}

impl fmt::Debug for PayloadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line, _) => f.debug_tuple("Line").field(line).finish(),
            Self::Call(words, refusal, _) => f.debug_tuple("Call").field(words).field(refusal).finish(),
            Self::Custom(mechanisms, _) => f.debug_tuple("Custom").field(mechanisms).finish(),
        }
    }
}

impl SandboxAttack {
    const fn new(id: &'static str, name: &'static str, action: PayloadAction) -> Self {
        Self { id, name, payload: SandboxPayload { without_walls: &[], action, landlock: 0 } }
    }

    pub(super) const fn line(
        id: &'static str,
        name: &'static str,
        line: &'static str,
        control: PayloadControl,
    ) -> Self {
        Self::new(id, name, PayloadAction::Line(line, control))
    }

    pub(super) const fn call(
        id: &'static str,
        name: &'static str,
        words: &'static str,
        refusal: &'static str,
        control: PayloadControl,
    ) -> Self {
        Self::new(id, name, PayloadAction::Call(words, refusal, control))
    }

    pub(super) const fn custom(
        id: &'static str,
        name: &'static str,
        mechanisms: &'static [IsolationMechanism],
        steps: SandboxAttackSteps,
    ) -> Self {
        Self::new(id, name, PayloadAction::Custom(mechanisms, steps))
    }

    /// Disables mechanisms for the attack itself.
    pub(super) const fn without_walls(self, off: &'static [IsolationMechanism]) -> Self {
        Self { payload: SandboxPayload { without_walls: off, ..self.payload }, ..self }
    }

    /// Requires a Landlock version.
    pub(super) const fn landlock(self, landlock: u8) -> Self {
        Self { payload: SandboxPayload { landlock, ..self.payload }, ..self }
    }
}

impl AttackPayload for SandboxPayload {
    fn mechanisms(&self) -> &'static [IsolationMechanism] {
        match self.action {
            PayloadAction::Line(_, control) | PayloadAction::Call(_, _, control) => match control {
                PayloadControl::Without(mechanisms) | PayloadControl::IfSupported(mechanisms, _) => mechanisms,
                PayloadControl::Host => &[],
            },
            PayloadAction::Custom(mechanisms, _) => mechanisms,
        }
    }
}

/// Why a case has no verdict of its own.
#[derive(Debug)]
pub(super) enum SandboxAttackError {
    Broken(String),
    Skip(String),
}

impl SandboxAttackError {
    pub(super) fn verdict(self) -> AttackVerdict {
        match self {
            Self::Broken(why) => AttackVerdict::Invalid(why),
            Self::Skip(why) => AttackVerdict::Skipped(why),
        }
    }
}

impl From<Error> for SandboxAttackError {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        Self::Broken(format!("{error}{source}"))
    }
}

impl From<std::io::Error> for SandboxAttackError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(format!("on the host: {error}"))
    }
}

/// Fails a case whose control does not work.
pub(super) fn require_control(what: &str, works: bool) -> Result<(), SandboxAttackError> {
    if works { Ok(()) } else { Err(SandboxAttackError::Broken(format!("the control does not work: {what}"))) }
}

/// Returns the verdict on an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "every case ends with this call")]
pub(super) fn attack_verdict(escaped: bool, how: impl Into<String>) -> Result<AttackVerdict, SandboxAttackError> {
    Ok(if escaped { AttackVerdict::Escaped(how.into()) } else { AttackVerdict::Held })
}
