//! One attack: what it does, and where it must work.

use std::fmt;
use std::pin::Pin;

use super::arena::SandboxArena;
use super::report::{AttackArea, AttackVerdict, is_selected};
use crate::Error;
use crate::embedded::IsolationMechanism;

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct SandboxAttack {
    pub id: &'static str,
    pub name: &'static str,
    /// Walls left out for the attack itself, to meet the one behind them alone.
    pub(super) without_walls: &'static [IsolationMechanism],
    pub(super) attack: SandboxPayload,
    /// The version of Landlock without which nothing stands here.
    pub(super) landlock: u8,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum SandboxPayload {
    /// A shell line that says `GOT` when it got what it came for.
    Line(&'static str, PayloadControl),
    /// A system call, as words for the probe, that must be answered by exactly this.
    Call(&'static str, &'static str, PayloadControl),
    /// Something with more than one step, which brings its own control.
    Custom(&'static [IsolationMechanism], SandboxAttackSteps),
}

pub(super) type SandboxAttackFuture<'a> =
    Pin<Box<dyn Future<Output = Result<AttackVerdict, SandboxAttackError>> + Send + 'a>>;
pub(super) type SandboxAttackSteps = for<'a> fn(&'a SandboxArena<'a>, &'a SandboxAttack) -> SandboxAttackFuture<'a>;

/// Where the same payload must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum PayloadControl {
    /// In a cage without these walls.
    Without(&'static [IsolationMechanism]),
    /// There too, unless the host lacks what is needed, in these words.
    IfSupported(&'static [IsolationMechanism], &'static str),
    /// On the host itself.
    Host,
}

impl fmt::Debug for SandboxPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line, _) => f.debug_tuple("Line").field(line).finish(),
            Self::Call(words, refusal, _) => f.debug_tuple("Call").field(words).field(refusal).finish(),
            Self::Custom(walls, _) => f.debug_tuple("Custom").field(walls).finish(),
        }
    }
}

impl SandboxAttack {
    pub(super) const fn line(
        id: &'static str,
        name: &'static str,
        line: &'static str,
        control: PayloadControl,
    ) -> Self {
        Self { id, name, without_walls: &[], landlock: 0, attack: SandboxPayload::Line(line, control) }
    }

    pub(super) const fn call(
        id: &'static str,
        name: &'static str,
        words: &'static str,
        refusal: &'static str,
        control: PayloadControl,
    ) -> Self {
        Self { id, name, without_walls: &[], landlock: 0, attack: SandboxPayload::Call(words, refusal, control) }
    }

    pub(super) const fn custom(
        id: &'static str,
        name: &'static str,
        walls: &'static [IsolationMechanism],
        steps: SandboxAttackSteps,
    ) -> Self {
        Self { id, name, without_walls: &[], landlock: 0, attack: SandboxPayload::Custom(walls, steps) }
    }

    /// Leaves walls out for the attack itself.
    pub(super) const fn without_walls(self, off: &'static [IsolationMechanism]) -> Self {
        Self { without_walls: off, ..self }
    }

    /// Needs a version of Landlock.
    pub(super) const fn landlock(self, landlock: u8) -> Self {
        Self { landlock, ..self }
    }

    pub fn area(&self) -> AttackArea {
        AttackArea::of(self.id)
    }

    /// Returns the walls whose absence this case may notice.
    pub fn walls(&self) -> &'static [IsolationMechanism] {
        match self.attack {
            SandboxPayload::Line(_, control) | SandboxPayload::Call(_, _, control) => match control {
                PayloadControl::Without(walls) | PayloadControl::IfSupported(walls, _) => walls,
                PayloadControl::Host => &[],
            },
            SandboxPayload::Custom(walls, _) => walls,
        }
    }

    /// Returns whether a person's choice means this case: an area, a number, a number's beginning with `*`, or
    /// `wall:` and the name of a wall.
    pub fn is_selected(&self, only: &str) -> bool {
        if let Some(wall) = only.strip_prefix("wall:") {
            return self.walls().iter().any(|one| wall_name(*one) == wall);
        }
        is_selected(self.id, only)
    }
}

/// Returns a wall's name as it is written.
pub(super) fn wall_name(wall: IsolationMechanism) -> String {
    serde_json::to_value(wall).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Why a case could not be brought to its end.
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

/// Stops a case whose control does not work.
pub(super) fn require_control(what: &str, works: bool) -> Result<(), SandboxAttackError> {
    if works { Ok(()) } else { Err(SandboxAttackError::Broken(format!("the control does not work: {what}"))) }
}

/// Judges an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "it is what a case ends with")]
pub(super) fn attack_verdict(escaped: bool, how: impl Into<String>) -> Result<AttackVerdict, SandboxAttackError> {
    Ok(if escaped { AttackVerdict::Escaped(how.into()) } else { AttackVerdict::Held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        let case = SandboxAttack::line(
            "KS-04.mount",
            "x",
            "",
            PayloadControl::Without(&[IsolationMechanism::Seccomp, IsolationMechanism::InnerUser]),
        );
        let check = |only: &str, want: bool| assert_eq!(case.is_selected(only), want, "{only}");
        check("KS", true);
        check("KS-04", true);
        check("KS-04.mount", true);
        check("KS-*", true);
        check("KS-0*", true);
        check("KS-0", false);
        check("KS-04.mo", false);
        check("FS", false);
        check("wall:inner-user", true);
        check("wall:network", false);
    }
}
