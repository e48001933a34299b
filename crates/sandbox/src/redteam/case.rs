//! One attack: what it does, and where it must work.

use std::fmt;
use std::pin::Pin;

use super::range::Range;
use super::report::{Area, Verdict};
use crate::Error;
use crate::embedded::Wall;

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub id: &'static str,
    pub name: &'static str,
    /// Walls left out for the attack itself, to meet the one behind them alone.
    pub(super) off: &'static [Wall],
    pub(super) attack: Attack,
    /// The version of Landlock without which nothing stands here.
    pub(super) landlock: u8,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum Attack {
    /// A shell line that says `GOT` when it got what it came for.
    Line(&'static str, Control),
    /// A system call, as words for the probe, that must be answered by exactly this.
    Call(&'static str, &'static str, Control),
    /// Something with more than one step, which brings its own control.
    Own(&'static [Wall], Steps),
}

pub(super) type Told<'a> = Pin<Box<dyn Future<Output = Result<Verdict, Trouble>> + Send + 'a>>;
pub(super) type Steps = for<'a> fn(&'a Range<'a>, &'a Case) -> Told<'a>;

/// Where the same payload must work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control {
    /// In a cage without these walls.
    Without(&'static [Wall]),
    /// There too, unless the host lacks what is needed, in these words.
    Maybe(&'static [Wall], &'static str),
    /// On the host itself.
    Host,
}

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line, _) => f.debug_tuple("Line").field(line).finish(),
            Self::Call(words, refusal, _) => f.debug_tuple("Call").field(words).field(refusal).finish(),
            Self::Own(walls, _) => f.debug_tuple("Own").field(walls).finish(),
        }
    }
}

impl Case {
    pub(super) const fn line(id: &'static str, name: &'static str, line: &'static str, control: Control) -> Self {
        Self { id, name, off: &[], landlock: 0, attack: Attack::Line(line, control) }
    }

    pub(super) const fn call(
        id: &'static str,
        name: &'static str,
        words: &'static str,
        refusal: &'static str,
        control: Control,
    ) -> Self {
        Self { id, name, off: &[], landlock: 0, attack: Attack::Call(words, refusal, control) }
    }

    pub(super) const fn own(id: &'static str, name: &'static str, walls: &'static [Wall], steps: Steps) -> Self {
        Self { id, name, off: &[], landlock: 0, attack: Attack::Own(walls, steps) }
    }

    /// Leaves walls out for the attack itself.
    pub(super) const fn off(self, off: &'static [Wall]) -> Self {
        Self { off, ..self }
    }

    /// Needs a version of Landlock.
    pub(super) const fn landlock(self, landlock: u8) -> Self {
        Self { landlock, ..self }
    }

    pub fn area(&self) -> Area {
        Area::of(self.id)
    }

    /// Returns the walls whose absence this case may notice.
    pub fn walls(&self) -> &'static [Wall] {
        match self.attack {
            Attack::Line(_, control) | Attack::Call(_, _, control) => match control {
                Control::Without(walls) | Control::Maybe(walls, _) => walls,
                Control::Host => &[],
            },
            Attack::Own(walls, _) => walls,
        }
    }

    /// Returns whether a person's choice means this case: an area, a number, a number's beginning with `*`, or
    /// `wall:` and the name of a wall.
    pub fn is_meant(&self, only: &str) -> bool {
        if let Some(wall) = only.strip_prefix("wall:") {
            return self.walls().iter().any(|one| name(*one) == wall);
        }
        is_meant(self.id, only)
    }
}

/// Returns whether a choice means a case of this number: an area, a number, or a number's beginning with `*`.
pub fn is_meant(id: &str, only: &str) -> bool {
    let start = only.strip_suffix('*').unwrap_or(only);
    let whole = !only.ends_with('*') && start.len() > 2;
    match id.strip_prefix(start) {
        Some(rest) => !whole || rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

/// Returns a wall's name as it is written.
pub(super) fn name(wall: Wall) -> String {
    serde_json::to_value(wall).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Why a case could not be brought to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    Broken(String),
    Skip(String),
}

impl Trouble {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Broken(why) => Verdict::Invalid(why),
            Self::Skip(why) => Verdict::Skipped(why),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        Self::Broken(format!("{error}{source}"))
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(format!("on the host: {error}"))
    }
}

/// Stops a case whose control does not work.
pub(super) fn control(what: &str, works: bool) -> Result<(), Trouble> {
    if works { Ok(()) } else { Err(Trouble::Broken(format!("the control does not work: {what}"))) }
}

/// Judges an attack whose control has worked.
#[expect(clippy::unnecessary_wraps, reason = "it is what a case ends with")]
pub(super) fn judged(escaped: bool, how: impl Into<String>) -> Result<Verdict, Trouble> {
    Ok(if escaped { Verdict::Escaped(how.into()) } else { Verdict::Held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        let case = Case::line("KS-04.mount", "x", "", Control::Without(&[Wall::Seccomp, Wall::InnerUser]));
        let check = |only: &str, want: bool| assert_eq!(case.is_meant(only), want, "{only}");
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
