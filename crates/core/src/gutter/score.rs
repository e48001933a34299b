//! Computes the loop score: how much the last iterations look like going in circles, between 0 and 1, with evidence.
//!
//! | part | weight | when |
//! |---|---|---|
//! | A | 0.5 | the same failure in at least 3 of the last 5 iterations |
//! | B | 0.3 | no net change in each of the last 3 or more iterations |
//! | C | 0.2 | a file's content went A B A B |
//!
//! Progress (a newly verified box, fewer failing tests) caps the sum at 0.5. How the rule is applied:
//!
//! - *Waiting is not stuck.* An iteration that only waited for one long command is left out;
//!   if it is the last one, there is nothing to score. Waiting for the same command more than 5 times in a row is
//!   retrying: then each of these iterations is a failure like any other.
//! - *Repeated success is not stuck.* B counts an iteration that changed nothing unless it showed something working:
//!   a box verified, or tests that ran and all passed with no command failing. Such an iteration ends the streak. One
//!   that did nothing at all showed nothing, and counts.
//! - *Once per iteration.* An agent may try a failing command ten times in one session; A counts iterations.
//!
//! Test counts are read from output the agent can shape, so they may only lower a score, never end a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{TestCounts, normalise};
use crate::text;

/// How many iterations A and C look back.
pub const WINDOW: usize = 5;

/// The score from which an iteration counts as gutter.
pub const GUTTER_THRESHOLD: f64 = 0.7;

const SAME_FAILURE_WEIGHT: f64 = 0.5;
const NO_CHANGE_WEIGHT: f64 = 0.3;
const FLIPS_WEIGHT: f64 = 0.2;
const PROGRESS_CAP: f64 = 0.5;
const MIN_REPEATS: usize = 3;
/// How often in a row waiting for the same command counts as waiting.
const MAX_WAITS: usize = 5;

/// The observations of one iteration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IterationSample {
    pub n: u32,
    /// The commands and checks that failed.
    pub failures: Vec<FailureSignature>,
    /// Lines added and removed, in commits and in the work tree together.
    pub changed_lines: u64,
    /// The files it touched, each with the hash of its content afterwards.
    pub files: BTreeMap<String, String>,
    pub newly_verified: u32,
    /// The counts of the last test run, if recognised.
    pub tests: Option<TestCounts>,
    /// It only waited for one long command.
    pub waiting: bool,
}

/// What makes two failures the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FailureSignature {
    pub command: String,
    pub code: i32,
    /// Error text without accidental details.
    pub stderr: String,
}

impl FailureSignature {
    /// Returns the signature of a failed command.
    ///
    /// Test runners that report on stdout leave stderr empty, and then every failure looks the same: pass the end of
    /// the output instead.
    pub fn of(command: &str, code: i32, stderr: &str) -> Self {
        const COMMAND_BYTES: usize = 1000;
        Self { command: text::head(command.trim(), COMMAND_BYTES).to_owned(), code, stderr: normalise(stderr) }
    }
}

/// A loop score and how it came about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopScore {
    /// The sum of the parts, or the cap if there was progress.
    pub total: f64,
    pub a: f64,
    pub b: f64,
    pub c: f64,
    /// One sentence for every part that counted, and for a score that was left out.
    pub evidence: Vec<String>,
    /// The progress that caps the score.
    pub veto: Option<String>,
}

impl LoopScore {
    pub fn is_gutter(&self) -> bool {
        self.total >= GUTTER_THRESHOLD
    }
}

/// Scores the last iteration of a history, given oldest first.
///
/// `min_changed_lines` is the smallest number of lines that counts as a change; 0 switches B off.
pub fn score(history: &[IterationSample], min_changed_lines: u64) -> LoopScore {
    let mut score = LoopScore::default();
    let Some(last) = history.last() else { return score };
    let Some(seen) = scored_iterations(history) else {
        score.evidence.push(format!("iteration {} waited for one long command: nothing to score", last.n));
        return score;
    };
    let recent = seen.get(seen.len().saturating_sub(WINDOW)..).unwrap_or_default();

    let parts = [same_failure(recent), no_change(&seen, min_changed_lines), flipping_files(&seen)];
    for part in parts.iter().filter(|part| part.counts) {
        score.evidence.push(format!("{} {}: {}", part.letter, part.weight, part.why));
    }
    let [a, b, c] = parts.map(|part| if part.counts { part.weight } else { 0.0 });
    (score.a, score.b, score.c) = (a, b, c);
    score.veto = progress(recent);
    let sum = score.a + score.b + score.c;
    score.total = if score.veto.is_some() { sum.min(PROGRESS_CAP) } else { sum };
    score
}

/// One part of a score, whether it counted or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScorePart {
    pub letter: char,
    /// What it adds when it counts.
    pub weight: f64,
    pub counts: bool,
    /// One sentence about what was observed.
    pub why: String,
}

/// Returns every part of the score of the last iteration; empty if it only waited.
pub fn score_parts(history: &[IterationSample], min_changed_lines: u64) -> Vec<ScorePart> {
    let Some(seen) = scored_iterations(history) else { return Vec::new() };
    let recent = seen.get(seen.len().saturating_sub(WINDOW)..).unwrap_or_default();
    vec![same_failure(recent), no_change(&seen, min_changed_lines), flipping_files(&seen)]
}

/// Returns the iterations that count; `None` when the last one is not among them.
fn scored_iterations(history: &[IterationSample]) -> Option<Vec<&IterationSample>> {
    // The awaited command was killed, so it is among the failures.
    let commands = |sample: &IterationSample| -> BTreeSet<String> {
        sample.failures.iter().map(|failure| failure.command.clone()).collect()
    };
    let stretches: Vec<&[IterationSample]> = history
        .chunk_by(|one, next| one.waiting && next.waiting && commands(one) == commands(next))
        .filter(|stretch| stretch.len() > MAX_WAITS || stretch.first().is_some_and(|first| !first.waiting))
        .collect();
    let last = history.last()?.n;
    let seen: Vec<&IterationSample> = stretches.into_iter().flatten().collect();
    seen.last().is_some_and(|sample| sample.n == last).then_some(seen)
}

fn same_failure(recent: &[&IterationSample]) -> ScorePart {
    let part = |counts: bool, why: String| ScorePart { letter: 'A', weight: SAME_FAILURE_WEIGHT, counts, why };
    let mut seen_in: BTreeMap<&FailureSignature, BTreeSet<usize>> = BTreeMap::new();
    for (at, sample) in recent.iter().enumerate() {
        for failure in sample.failures.iter().filter(|failure| failure.code != 0) {
            seen_in.entry(failure).or_default().insert(at);
        }
    }
    // Reversed, because `max_by_key` returns the last of equal items and the first one reads more naturally.
    let Some((failure, places)) = seen_in.iter().rev().max_by_key(|(_, places)| places.len()) else {
        return part(false, format!("nothing failed in the last {}", iterations(recent.len())));
    };
    let numbers: Vec<String> =
        places.iter().filter_map(|at| recent.get(*at)).map(|sample| sample.n.to_string()).collect();
    let (command, code, numbers) = (short_name(&failure.command), failure.code, numbers.join(", "));
    let why = match places.len() {
        1 => format!("`{command}` failed with exit code {code} in iteration {numbers}, and not like that before"),
        times => format!(
            "`{command}` failed with exit code {code} and the same error in {times} of the last {} iterations ({numbers})",
            recent.len()
        ),
    };
    part(places.len() >= MIN_REPEATS, why)
}

fn no_change(seen: &[&IterationSample], min_changed_lines: u64) -> ScorePart {
    let still = |sample: &&&IterationSample| sample.changed_lines < min_changed_lines && !succeeded(sample);
    let streak = seen.iter().rev().take_while(still).count();
    let why = match (streak, min_changed_lines) {
        (_, 0) => "not looked at, since `min_changed_lines` is 0".to_owned(),
        (0, _) => "the last iteration changed something or showed something working".to_owned(),
        (_, 1) => format!("nothing changed in the last {}", iterations(streak)),
        (_, min) => format!("fewer than {min} lines changed in each of the last {}", iterations(streak)),
    };
    ScorePart { letter: 'B', weight: NO_CHANGE_WEIGHT, counts: streak >= MIN_REPEATS, why }
}

fn iterations(count: usize) -> String {
    if count == 1 { "iteration".to_owned() } else { format!("{count} iterations") }
}

/// Returns whether an iteration showed something working, so that no change is not a sign of being stuck.
fn succeeded(sample: &IterationSample) -> bool {
    let passed = sample.tests.is_some_and(|tests| tests.passed > 0 && tests.failed == 0);
    sample.newly_verified > 0 || (passed && sample.failures.iter().all(|failure| failure.code == 0))
}

fn flipping_files(seen: &[&IterationSample]) -> ScorePart {
    /// The last four different contents of a file, oldest first, and when the newest one came.
    struct ContentHistory<'a>([Option<&'a str>; 4], usize);

    let mut tracks: BTreeMap<&str, ContentHistory<'_>> = BTreeMap::new();
    for (at, sample) in seen.iter().enumerate() {
        for (path, hash) in &sample.files {
            let ContentHistory(contents, when) = tracks.entry(path).or_insert(ContentHistory([None; 4], at));
            if contents[3] != Some(hash) {
                contents.rotate_left(1);
                contents[3] = Some(hash);
                *when = at;
            }
        }
    }
    // An old flip in a file that was not touched since says nothing about the present.
    let oldest = seen.len().saturating_sub(WINDOW);
    let flipping: Vec<&str> = tracks
        .into_iter()
        .filter(|(_, ContentHistory([a, b, c, d], when))| *when >= oldest && a.is_some() && a == c && b == d && a != b)
        .map(|(path, _)| path)
        .collect();
    let Some((first, others)) = flipping.split_first() else {
        let why = "no file went back and forth between the same two contents".to_owned();
        return ScorePart { letter: 'C', weight: FLIPS_WEIGHT, counts: false, why };
    };
    let mut why = format!("`{}`", short_name(first));
    if !others.is_empty() {
        write!(why, " and {} more", others.len()).expect("writing to a String cannot fail");
    }
    why.push_str(" went back and forth between the same two contents");
    ScorePart { letter: 'C', weight: FLIPS_WEIGHT, counts: true, why }
}

fn progress(recent: &[&IterationSample]) -> Option<String> {
    let (last, earlier) = recent.split_last()?;
    match last.newly_verified {
        0 => (),
        1 => return Some("a box was newly verified".to_owned()),
        boxes => return Some(format!("{boxes} boxes were newly verified")),
    }
    let now = last.tests.filter(|tests| tests.passed > 0 || tests.failed > 0)?;
    // Against the best of the window: 3, 2, 3, 2 failing tests is a circle, not progress every second time.
    let before = earlier.iter().filter_map(|sample| sample.tests).map(|tests| tests.failed).min()?;
    (now.failed < before).then(|| format!("{} tests fail, {before} did before", now.failed))
}

/// Shortens an untrusted command or path for use in a sentence.
fn short_name(text: &str) -> String {
    const BYTES: usize = 120;
    text::strip_control(text::first_line(text, BYTES)).replace('`', "'")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a sample from its short form: `X` and `Y` failures, `+` a change, `w` waiting, `v` a box, `k` tests that
    /// pass, a digit for failing tests, `a`…`d` the content of one file.
    fn sample(n: u32, marks: &str) -> IterationSample {
        let mut sample = IterationSample { n, ..IterationSample::default() };
        for mark in marks.chars() {
            match mark {
                'X' | 'Y' => sample.failures.push(FailureSignature::of("make test", 2, &format!("broke {mark}"))),
                'Z' => sample.failures.push(FailureSignature::of("make test", 0, "")),
                '+' => sample.changed_lines = 7,
                'w' => sample.waiting = true,
                'v' => sample.newly_verified += 1,
                'k' => sample.tests = Some(TestCounts { passed: 9, failed: 0 }),
                '0'..='9' => sample.tests = Some(TestCounts { passed: 1, failed: mark.to_digit(10).unwrap() }),
                'a'..='d' => drop(sample.files.insert("src/a.rs".to_owned(), mark.to_string())),
                _ => (),
            }
        }
        sample
    }

    fn history(marks: &str) -> Vec<IterationSample> {
        (1..).zip(marks.split(' ')).map(|(n, marks)| sample(n, marks)).collect()
    }

    /// Checks which parts count, whether there was progress, and the total.
    #[track_caller]
    fn check(marks: &str, want: &str) {
        let score = score(&history(marks), 1);
        let part = |value: f64, name: &'static str| if value > 0.0 { name } else { "" };
        let veto = if score.veto.is_some() { "!" } else { "" };
        let gutter = if score.is_gutter() { " gutter" } else { "" };
        let parts = [part(score.a, "A"), part(score.b, "B"), part(score.c, "C"), veto].concat();
        assert_eq!(format!("{parts} {}{gutter}", score.total), want, "{marks}");
    }

    #[test]
    fn repeated_failures_count() {
        check("X+ X+ X+", "A 0.5");
        check("X+ X+", " 0");
        check("XXXX+", " 0");
        check("X+ + X+ + X+", "A 0.5");
        check("X+ X+ + + + X+", " 0");
        check("X+ Y+ X+ Y+ X+", "A 0.5");
        check("Z+ Z+ Z+ Z+", " 0");
    }

    #[test]
    fn iterations_without_change_count() {
        check("- - -", "B 0.3");
        check("- -", " 0");
        check("- - - +", " 0");
        check("X X X", "AB 0.8 gutter");
        check("X+ X+ X - -", "AB 0.8 gutter");
        assert_eq!(score(&history("- - -"), 0).total.to_string(), "0");
        assert_eq!(score(&history("+ + +"), 8).total.to_string(), "0.3");
    }

    #[test]
    fn flipping_contents_count() {
        check("a+ b+ a+ b+", "C 0.2");
        check("a+ b+ a+", " 0");
        check("a+ b+ b+ + a+ b+", "C 0.2");
        check("a+ b+ c+ b+ a+", " 0");
        check("a+ b+ a+ b+ c+", " 0");
        check("a+ b+ a+ b+ + + + +", "C 0.2");
        check("a+ b+ a+ b+ + + + + +", " 0");
        check("Xa+ Xb+ Xa+ Xb+", "AC 0.7 gutter");
        check("Xa Xb Xa Xb", "ABC 1 gutter");
    }

    #[test]
    fn progress_caps_the_score() {
        check("X X Xv", "A! 0.5");
        check("X- X- X- Xva", "A! 0.5");
        check("Xv X X X", "AB 0.8 gutter");
        check("X5 X5 X4", "AB! 0.5");
        check("X5 X5 X5", "AB 0.8 gutter");
        check("Xa3+ Xb2+ Xa3+ Xb2+", "AC 0.7 gutter");
        check("Xa3+ Xb2+ Xa3+ Xb1+", "AC! 0.5");
        check("X4 X X3", "AB! 0.5");
    }

    #[test]
    fn waiting_is_not_stuck() {
        check("X X Xw", " 0");
        check("w w w w", " 0");
        check("X w X w w X", "AB 0.8 gutter");
        check("- w - w", " 0");
        // Once more with the same command is no longer waiting.
        check("Xw Xw Xw Xw Xw", " 0");
        check("Xw Xw Xw Xw Xw Xw", "AB 0.8 gutter");
        check("Xw Xw Xw Xw Xw Xw Xw Xw Xw", "AB 0.8 gutter");
        check("Xw Xw Xw Xw Xw +", " 0");
        check("Xw Xw Xw + Xw Xw Xw", " 0");
        check("Xw Xw Xw w Xw Xw Xw", " 0");
        check("w w w w w w w", "B 0.3");
        // The failure changes each time, or the wait leads to a verified box.
        check("Xw Yw Xw Yw Zw Zw Zw", "B 0.3");
        check("Xw Xw Xw Xw Xw Xw v", "A! 0.5");
    }

    #[test]
    fn repeated_success_is_not_stuck() {
        check("k k k k", " 0");
        check("- - k", " 0");
        check("k - -", " 0");
        check("Xk Xk Xk", "AB 0.8 gutter");
        check("v v v", "! 0");
    }

    #[test]
    fn the_score_has_evidence() {
        let mut stuck = history("Xa Xb X Xa Xb");
        stuck[0].files.insert("b.rs".to_owned(), "x".to_owned());
        let want = LoopScore {
            total: 1.0,
            a: 0.5,
            b: 0.3,
            c: 0.2,
            evidence: vec![
                "A 0.5: `make test` failed with exit code 2 and the same error in 5 of the last 5 iterations (1, 2, 3, 4, 5)"
                    .to_owned(),
                "B 0.3: nothing changed in the last 5 iterations".to_owned(),
                "C 0.2: `src/a.rs` went back and forth between the same two contents".to_owned(),
            ],
            veto: None,
        };
        assert_eq!(score(&stuck, 1), want);
        assert_eq!(score(&history("X Xw"), 1).evidence, ["iteration 2 waited for one long command: nothing to score"]);
        assert_eq!(score(&history("X3 X1"), 1).veto.as_deref(), Some("1 tests fail, 3 did before"));
        assert_eq!(score(&[], 1), LoopScore::default());
    }

    fn samples() -> impl Strategy<Value = Vec<IterationSample>> {
        proptest::collection::vec("[XYZvwkabcd+0-9]{0,5}", 0..12)
            .prop_map(|marks| (1..).zip(&marks).map(|(n, marks)| sample(n, marks)).collect())
    }

    proptest! {
        #[test]
        fn the_score_is_between_zero_and_one(history in samples(), min in 0u64..9) {
            let score = score(&history, min);
            prop_assert!((0.0..=1.0).contains(&score.total));
            prop_assert!(score.veto.is_none() || score.total <= 0.5);
            prop_assert_eq!(score.is_gutter(), score.veto.is_none() && score.a > 0.0 && score.b + score.c > 0.0);
        }

        #[test]
        fn order_inside_an_iteration_does_not_matter(mut history in samples()) {
            let before = score(&history, 1);
            for sample in &mut history {
                sample.failures.reverse();
            }
            prop_assert_eq!(score(&history, 1), before);
        }

        #[test]
        fn samples_round_trip_through_json(history in samples()) {
            let stored = serde_json::to_string(&history).unwrap();
            prop_assert_eq!(serde_json::from_str::<Vec<IterationSample>>(&stored).unwrap(), history);
        }
    }
}
