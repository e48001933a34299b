//! Finds the project's own test target: a target of `make` or a recipe of `just`.

use super::detect::TestStack;
use super::project_files::ProjectFolder;

/// Returns the target that runs the tests, if there is one.
pub(super) fn test_target(place: &ProjectFolder<'_>) -> Option<TestStack> {
    const TARGETS: [&str; 2] = ["test", "check"];
    let stack = |name, program: &str, file: &str, target: &str| TestStack {
        name,
        folder: String::new(),
        command: format!("{program} {target}"),
        because: format!("{file} has `{target}`"),
    };
    for file in ["justfile", "Justfile", ".justfile"] {
        let text = place.text(file).unwrap_or_default();
        if let Some(target) = TARGETS.into_iter().find(|target| text.lines().any(|line| is_just_recipe(line, target))) {
            return Some(stack("Just", "just", file, target));
        }
    }
    for file in ["GNUmakefile", "makefile", "Makefile"] {
        let text = place.text(file).unwrap_or_default();
        if let Some(target) = TARGETS.into_iter().find(|target| text.lines().any(|line| is_make_rule(line, target))) {
            return Some(stack("Make", "make", file, target));
        }
    }
    None
}

/// Matches `test: build` and `lint test:`; not `test := x`, not a recipe line.
fn is_make_rule(line: &str, target: &str) -> bool {
    let Some((targets, rest)) = line.split_once(':') else { return false };
    !line.starts_with(['\t', '#'])
        && !rest.trim_start_matches(':').starts_with('=')
        && targets.split_whitespace().any(|word| word == target)
}

/// Matches `test:` and `@test *args: build`; a recipe with required parameters cannot be used.
fn is_just_recipe(line: &str, target: &str) -> bool {
    let Some((head, rest)) = line.split_once(':') else { return false };
    let mut words = head.trim_start_matches('@').split_whitespace();
    !line.starts_with([' ', '\t', '#'])
        && !rest.starts_with('=')
        && words.next() == Some(target)
        && words.all(|word| word.starts_with('*') || word.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_recipes() {
        for (line, rule, recipe) in [
            ("test:", true, true),
            ("test: build lint", true, true),
            ("lint test:", true, false),
            ("test:: x", true, true),
            ("test := x", false, false),
            ("\ttest: x", false, false),
            ("# test: x", false, false),
            ("tests:", false, false),
            ("test", false, false),
            ("@test *args: build", false, true),
            ("test name:", true, false),
            ("test name=\"x\":", true, true),
        ] {
            assert_eq!((is_make_rule(line, "test"), is_just_recipe(line, "test")), (rule, recipe), "{line:?}");
        }
    }
}
