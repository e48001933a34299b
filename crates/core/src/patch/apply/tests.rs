//! Diffs as models write them, right and wrong.

use proptest::prelude::*;
use similar::TextDiff;

use super::super::stat;
use super::*;

const FILE: &str = "one\ntwo\nthree\nfour\nfive\nsix\n";
const TWICE: &str = "fn a() {\n    go();\n}\n\nfn b() {\n    go();\n}\n";

#[track_caller]
fn good(original: &str, patch: &str, want: &str) {
    assert_eq!(apply(original, patch), Ok(want.to_owned()), "{patch}");
}

#[track_caller]
fn bad(original: &str, patch: &str, want: PatchError) {
    assert_eq!(apply(original, patch), Err(want), "{patch}");
}

#[test]
fn correct_diffs() {
    let changed = "one\ntwo\nTHREE\nfour\nfive\nsix\n";
    for patch in [
        // As `diff -u` writes it.
        "--- a/f\n+++ b/f\n@@ -1,5 +1,5 @@\n one\n two\n-three\n+THREE\n four\n five\n",
        // As git writes it.
        "diff --git a/f b/f\nindex 123..456 100644\n--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@ fn x()\n two\n-three\n+THREE\n four\n",
        // No file headers.
        "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n",
        // No newline at the end of the patch.
        "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four",
        // Wrong line numbers.
        "@@ -40,3 +40,3 @@\n two\n-three\n+THREE\n four\n",
        "@@ -0,0 +1 @@\n two\n-three\n+THREE\n four\n",
        // Wrong counts.
        "@@ -2,9 +2,1 @@\n two\n-three\n+THREE\n four\n",
        "@@ -2 +2 @@\n two\n-three\n+THREE\n four\n",
        // No numbers at all.
        "@@\n two\n-three\n+THREE\n four\n",
        "@@ @@\n-three\n+THREE\n",
        "@@ ... @@\n-three\n+THREE\n",
        "@@ def three():\n-three\n+THREE\n",
        "@@ -99999999999999999999999,1 +1 @@\n-three\n+THREE\n",
        // Fences, with and without text before.
        "```diff\n@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n```\n",
        "Here is the patch:\n\n```\n--- f\n+++ f\n@@ -3 +3 @@\n-three\n+THREE\n```",
        // The other well-known envelope.
        "*** Begin Patch\n*** Update File: f\n@@\n two\n-three\n+THREE\n*** End Patch\n",
        // A gap at the end.
        "@@ -3,1 +3,1 @@\n-three\n+THREE\n\n",
        "@@ -3,1 +3,1 @@\n-three\n+THREE\n\n\n",
        // The whole patch with carriage returns.
        "--- f\r\n+++ f\r\n@@ -2,3 +2,3 @@\r\n two\r\n-three\r\n+THREE\r\n four\r\n",
        // Only its lines with carriage returns.
        "@@ -2,3 +2,3 @@\n two\r\n-three\r\n+THREE\r\n four\r\n",
        // Added before removed.
        "@@ -3 +3 @@\n+THREE\n-three\n",
    ] {
        good(FILE, patch, changed);
    }
}

#[test]
fn several_hunks() {
    let two = "one\nTWO\nthree\nfour\nFIVE\nsix\n";
    good(FILE, "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n@@ -5,2 +5,2 @@\n-five\n+FIVE\n six\n", two);
    good(FILE, "@@\n-two\n+TWO\n\n@@\n-five\n+FIVE\n", two);
    // Lines that touch but do not overlap.
    good("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-b\n+B\n", "A\nB\n");
    bad(FILE, "@@\n-five\n+FIVE\n@@\n-two\n+TWO\n", PatchError::NoSuchPlace { hunk: 2 });
    bad(FILE, "@@\n two\n-three\n+x\n@@\n-three\n+y\n", PatchError::NoSuchPlace { hunk: 2 });
}

#[test]
fn ambiguous_hunks() {
    let second = "fn a() {\n    go();\n}\n\nfn b() {\n    stop();\n}\n";
    let first = "fn a() {\n    stop();\n}\n\nfn b() {\n    go();\n}\n";
    good(TWICE, "@@ -6 +6 @@\n-    go();\n+    stop();\n", second);
    good(TWICE, "@@ -2 +2 @@\n-    go();\n+    stop();\n", first);
    good(TWICE, "@@ -5,2 +5,2 @@\n fn b() {\n-    go();\n+    stop();\n", second);
    for header in ["@@", "@@ -3 +3 @@", "@@ -60 +60 @@", "@@ -5 +5 @@"] {
        let patch = format!("{header}\n-    go();\n+    stop();\n");
        bad(TWICE, &patch, PatchError::Ambiguous { hunk: 1, lines: vec![2, 6] });
    }
    // The hunk before is off by three, so this one is assumed to be off by three as well.
    let both = "fn A() {\n    go();\n}\n\nfn b() {\n    stop();\n}\n";
    good(TWICE, "@@ -4 +4 @@\n-fn a() {\n+fn A() {\n@@ -9 +9 @@\n-    go();\n+    stop();\n", both);
    // The line number points to the second place, the drift to the first.
    bad(
        "x\na\na\n",
        "@@ -2 +2 @@\n-x\n+X\n@@ -3 +3 @@\n-a\n+A\n",
        PatchError::Ambiguous { hunk: 2, lines: vec![2, 3] },
    );
    // A hunk that fits only before the next one is located by it.
    good("a\nb\na\n", "@@\n-a\n+A\n@@\n-b\n+B\n", "A\nB\na\n");
    good("a\nb\na\n", "@@\n-b\n+B\n@@\n-a\n+A\n", "a\nB\nA\n");
}

#[test]
fn new_files() {
    good("", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n");
    good("", "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", "a\n");
    good("", "@@\n+a\n+\n+b", "a\n\nb\n");
    good("", "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n", "a");
    bad("x\n", "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", PatchError::Exists);
    bad("", "@@ -1 +1 @@\n-a\n+b\n", PatchError::NoSuchLine { hunk: 1, line: "a".to_owned() });
}

#[test]
fn last_newlines() {
    let swap = "@@ -2 +2 @@\n-b\n+c\n";
    good("a\nb\n", swap, "a\nc\n");
    good("a\nb", swap, "a\nc");
    good("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n", "a\nc\n");
    good("a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n", "a\nc");
    good("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n");
    good("a\nb", "@@ -1,2 +1 @@\n a\n-b\n", "a\n");
    good("a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\nb\nc");
    good("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n", "A\nb");
    good("a", "@@ -1 +0,0 @@\n-a\n", "");
    // An empty line without a newline would not be a line.
    good("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+\n", "a\n\n");
    good("x\na\nx\na", "@@\n-a\n+b\n\\ No newline at end of file\n", "x\na\nx\nb");
    bad("a\nb\n", "@@ -1 +1 @@\n-a\n+c\n\\ No newline at end of file\n", PatchError::NoSuchPlace { hunk: 1 });
}

#[test]
fn carriage_returns() {
    let patch = "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c\n";
    good("a\r\nb\r\n", patch, "a\r\nB\r\nc\r\n");
    good("a\r\nb", patch, "a\r\nB\r\nc");
    good("a\r\nb", "@@\n a\n b\n+c\n\\ No newline at end of file\n", "a\r\nb\r\nc");
    // A carriage return at the very end of the file is content.
    good("a\r", "@@\n+b\n a\n", "b\na\r");
    good("a\r\nb\r\n", "@@ -1 +1 @@\r\n-a\r\n+A\r\n", "A\r\nb\r\n");
    // A file with both endings keeps both.
    good("a\r\nb\nc\r\nd\n", "@@\n b\n c\n+x\n d\n", "a\r\nb\nc\r\nx\r\nd\n");
    good("a\r\nb\nc\n", "@@\n b\n+x\n c\n", "a\r\nb\nx\nc\n");
    // Lines that match byte for byte are taken as written.
    good("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\r\n", "a\nb\r\n");
    bad("a\r\nb\r\n", "@@\n-a\n+a\n b\n", PatchError::NoChange);
}

#[test]
fn lines_that_look_like_headers() {
    good("-- x\ny\n", "@@ -1,2 +1,2 @@\n--- x\n+++ x\n y\n", "++ x\ny\n");
    good("-- x\ny\n", "@@ -1 +1 @@\n--- x\n+++ x\n@@ -2 +2 @@\n-y\n+z\n", "++ x\nz\n");
    good("```\na\n```\n", "@@ -1,3 +1,3 @@\n ```\n-a\n+b\n ```\n", "```\nb\n```\n");
    good("@@ x\n", "@@ -1 +1 @@\n-@@ x\n+@@ y\n", "@@ y\n");
}

#[test]
fn trimmed_context() {
    // An editor or a model trimmed the space of the empty context lines.
    good("a\n\nb\n\nc\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n\nc\n");
    good("a\n\nb\n\nc\n", "@@ -3,2 +3,2 @@\n-b\n+B\n\n", "a\n\nB\n\nc\n");
    // With a correct count, the empty line is context and must be there.
    bad("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+A\n\n", PatchError::NoSuchLine { hunk: 1, line: String::new() });
}

#[test]
fn wrong_diffs() {
    let line = |line: &str| PatchError::NoSuchLine { hunk: 1, line: line.to_owned() };
    // Wrong context, wrong removed line, wrong white space, lines that exist but not consecutively.
    bad(FILE, "@@ -2,2 +2,2 @@\n TWO\n-three\n+3\n", line("TWO"));
    bad(FILE, "@@ -2,2 +2,2 @@\n two\n-thre\n+3\n", line("thre"));
    bad(FILE, "@@ -3 +3 @@\n-three \n+3\n", line("three "));
    bad(FILE, "@@ -3 +3 @@\n- three\n+3\n", line(" three"));
    bad(FILE, "@@ -2,2 +2,2 @@\n two\n-four\n+4\n", PatchError::NoSuchPlace { hunk: 1 });
    bad(FILE, "@@ -5,3 +5,3 @@\n five\n-six\n+6\n seven\n", line("seven"));
    // Already applied.
    bad("one\nTWO\n", "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n", line("two"));
    // Nothing changed.
    bad(FILE, "", PatchError::NoHunk);
    bad(FILE, "--- a\n+++ b\n", PatchError::NoHunk);
    bad(FILE, "-three\n+THREE\n", PatchError::NoHunk);
    bad(FILE, "@@", PatchError::EmptyHunk { hunk: 1 });
    bad(FILE, "@@ -1,2 +1,2 @@\n one\n two\n", PatchError::EmptyHunk { hunk: 1 });
    bad(FILE, "@@\n-two\n+TWO\n@@\n", PatchError::EmptyHunk { hunk: 2 });
    bad(FILE, "@@ -3 +3 @@\n-three\n+three\n", PatchError::NoChange);
    bad(FILE, "@@ -3,0 +4 @@\n+new\n", PatchError::NoContext { hunk: 1 });
    // Not a unified diff of one file.
    let malformed = |line, text: &str| PatchError::Malformed { line, text: text.to_owned() };
    bad(FILE, "-three\n@@ -4 +4 @@\n-four\n", malformed(1, "-three"));
    bad(FILE, "I changed this:\n@@ -4 +4 @@\n-four\n", malformed(1, "I changed this:"));
    bad(FILE, "@@ -2,2 +2,2 @@\n two\nthree\n-four\n", malformed(3, "three"));
    bad(FILE, "```\n@@\n-two\n```\nand\n```\n@@\n-six\n```\n", malformed(5, "and"));
    bad(FILE, "@@\n-two\n```\n@@\n-six\n", malformed(4, "@@"));
    bad(FILE, "@@\n\\ No newline at end of file\n-two\n", malformed(2, "\\ No newline at end of file"));
    bad(FILE, "@@\n-two\n\\ No newline at end of file\n-three\n", malformed(4, "-three"));
    bad(FILE, "--- a\n+++ a\n@@\n-two\n--- b\n+++ b\n@@\n-one\n", PatchError::SecondFile { line: 5 });
    bad(FILE, "@@\n-two\ndiff --git a/b b/b\n", PatchError::SecondFile { line: 3 });
    bad(FILE, "--- a\n--- b\n@@\n-two\n", PatchError::SecondFile { line: 2 });
    bad(FILE, "--- a\n+++ /dev/null\n@@ -1,6 +0,0 @@\n-one\n", PatchError::DeletesFile);
    bad(FILE, &"@@\n-two\n+x\n".repeat(201), PatchError::TooManyHunks { max: 200 });
}

#[test]
fn repetitive_files_stay_fast() {
    let original = "\n".repeat(200_000);
    let hunk = format!("@@ -1 +1 @@\n{}-\n+x\n", " \n".repeat(300));
    let lines = vec![1, 2, 3, 4, 5];
    bad(
        &original,
        &hunk.repeat(3),
        PatchError::Ambiguous { hunk: 2, lines: lines.iter().map(|line| line + 301).collect() },
    );
    bad(&original, &format!("@@\n{}-\n+x\n", " \n".repeat(100_000)), PatchError::Ambiguous { hunk: 1, lines });
}

#[test]
fn stats() {
    for (diff, want) in [
        ("", (0, 0)),
        ("--- a\n+++ b\n", (0, 0)),
        ("--- a\n+++ b\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n", (1, 1)),
        (
            "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n a\n+b\ndiff --git a/c b/c\n--- a/c\n+++ b/c\n@@ -1,2 +0,0 @@\n-x\n-y\n",
            (1, 2),
        ),
        ("--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n--- b\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", (2, 2)),
        ("@@ -1,2 +1,2 @@\n--- x\n+++ y\n z\n", (1, 1)),
        ("@@\n-a\n\\ No newline at end of file\n+b", (1, 1)),
        ("+no hunk\n-no hunk\n", (0, 0)),
    ] {
        assert_eq!(stat(diff), want, "{diff}");
    }
}

fn diff(old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().header("a", "b").to_string()
}

/// Few different lines, some of which look like parts of a diff: repetition is what makes locating hunks hard.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[ab]{0,2}",
        "[ab]{0,1}\r",
        Just("-- a".to_owned()),
        Just("++ b".to_owned()),
        Just("@@ -1 +1 @@".to_owned()),
        Just("\\ No newline".to_owned()),
        Just("```".to_owned()),
        Just("ñ ".to_owned()),
    ];
    (proptest::collection::vec(line, 0..30), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended {
            text.push('\n');
        }
        // The diff library treats a lone carriage return at the end as a line ending; ralph does not.
        text.trim_end_matches('\r').to_owned()
    })
}

/// Unique lines everywhere, and a version of them with lines removed, inserted and changed.
fn unique() -> impl Strategy<Value = (String, String)> {
    proptest::collection::vec(0_u8..12, 3..60).prop_map(|choices| {
        let (mut old, mut new) = (String::new(), String::new());
        for (n, choice) in choices.iter().enumerate() {
            let line = format!("line {n}\n");
            if *choice != 0 {
                old.push_str(&line);
            }
            match choice {
                1 => (),
                2 => new.extend(["changed ", &line]),
                _ => new.push_str(&line),
            }
        }
        (old, new)
    })
}

/// Adds `by` to the line number in every hunk header.
fn shifted(patch: &str, by: usize) -> String {
    let shift = |line: &str| match line.strip_prefix("@@ -").and_then(|rest| rest.split_once([',', ' '])) {
        Some((start, rest)) => format!("@@ -{},{}", start.parse::<usize>().unwrap() + by, rest),
        None => line.to_owned(),
    };
    patch.lines().map(shift).collect::<Vec<_>>().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn true_diffs_apply_exactly(old in text(), new in text()) {
        prop_assume!(old != new);
        prop_assert_eq!(apply(&old, &diff(&old, &new)), Ok(new));
    }

    #[test]
    fn shifted_diffs_apply_exactly((old, new) in unique(), by in 0_usize..100) {
        prop_assume!(old != new && !old.is_empty());
        let patch = diff(&old, &new);
        prop_assert_eq!(apply(&old, &shifted(&patch, by)), Ok(new.clone()));
        let bare: Vec<&str> = patch.lines().map(|line| if line.starts_with("@@") { "@@" } else { line }).collect();
        prop_assert_eq!(apply(&old, &bare.join("\n")), Ok(new.clone()));
        prop_assert_eq!(apply(&old.replace('\n', "\r\n"), &patch), Ok(new.replace('\n', "\r\n")));
    }

    /// A patch never applies to a file in which one of the lines it touches was changed.
    #[test]
    fn a_changed_file_is_noticed((old, new) in unique(), at in any::<prop::sample::Index>()) {
        prop_assume!(old != new);
        let patch = diff(&old, &new);
        let touched: Vec<&str> = patch.lines().skip(2).filter_map(|line| line.strip_prefix([' ', '-'])).collect();
        prop_assume!(!touched.is_empty());
        let line = format!("{}\n", touched[at.index(touched.len())]);
        let other = format!("\n{old}").replace(&format!("\n{line}"), "\nelse\n");
        prop_assert!(apply(other.trim_start_matches('\n'), &patch).is_err());
    }

    #[test]
    fn arbitrary_text_never_panics(original in "(?s).{0,60}", patch in "(?s).{0,60}") {
        let _applied_or_not = apply(&original, &patch);
        let _counted = stat(&patch);
    }

    #[test]
    fn arbitrary_patches_never_panic(original in text(), parts in proptest::collection::vec(
        prop_oneof![
            Just("@@"), Just("@@ -1,2 +1,2 @@"), Just(" a"), Just("-a"), Just("+b"), Just("-"), Just("+"), Just(" "), Just(""),
            Just("--- a"), Just("+++ b"), Just("\\ No"), Just("```"), Just("\r"), Just("-a\r"), Just("diff --git a b"), Just("ñ"),
        ], 0..14)) {
        let patch = parts.join("\n");
        if let Ok(result) = apply(&original, &patch) {
            prop_assert!(result != original);
        }
        let _counted = stat(&patch);
    }
}
