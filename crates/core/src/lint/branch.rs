//! Checks which branches a task may ask for.

/// The reasons why a branch name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchFlaw {
    /// It is not below `ralph/`.
    OutsideRalph,
    /// Git would refuse it.
    NotARef,
}

/// Returns why a run could not push this branch, if there is a reason.
pub fn branch_flaw(name: &str) -> Option<BranchFlaw> {
    if !is_ref(name) {
        return Some(BranchFlaw::NotARef);
    }
    (!name.starts_with("ralph/")).then_some(BranchFlaw::OutsideRalph)
}

/// Follows `git check-ref-format --branch`, with a maximum length that still fits a file name.
pub(super) fn is_ref(name: &str) -> bool {
    let illegal = |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    let part = |part: &str| {
        !part.is_empty() && part.len() <= 200 && !part.starts_with('.') && !part.to_ascii_lowercase().ends_with(".lock")
    };
    name.len() <= 240
        && !name.contains(illegal)
        && !name.contains("..")
        && !name.contains("@{")
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && name.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches() {
        use BranchFlaw::{NotARef, OutsideRalph};
        for (name, want) in [
            ("ralph/t-1/foo", None),
            ("ralph/t-1/foo.bar_é@x", None),
            ("main", Some(OutsideRalph)),
            ("ralphx/a", Some(OutsideRalph)),
            ("feature/ralph/a", Some(OutsideRalph)),
            ("ralph/", Some(NotARef)),
            ("ralph//a", Some(NotARef)),
            ("ralph/a..b", Some(NotARef)),
            ("ralph/../main", Some(NotARef)),
            ("ralph/.a", Some(NotARef)),
            ("ralph/a.lock", Some(NotARef)),
            ("ralph/a.lock/b", Some(NotARef)),
            ("ralph/a.", Some(NotARef)),
            ("ralph/a b", Some(NotARef)),
            ("ralph/a~1", Some(NotARef)),
            ("ralph/a@{1}", Some(NotARef)),
            ("ralph/a\u{7f}", Some(NotARef)),
            ("-x", Some(NotARef)),
            ("HEAD", Some(NotARef)),
            ("", Some(NotARef)),
        ] {
            assert_eq!(branch_flaw(name), want, "{name:?}");
        }
    }
}
