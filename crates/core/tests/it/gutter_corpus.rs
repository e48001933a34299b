//! Tests the loop score against a corpus of labelled traces: recorded from real loops, and written by hand for corner
//! cases.
//!
//! A label is what a person watching the model would say, not what the score says. The README states the outcome;
//! `RALPH_BLESS=1 cargo nextest run -p ralph-core -E 'test(corpus::)'` rewrites that sentence.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ralph_core::gutter::{IterationSample, score};
use ralph_core::run::SCORE_WINDOW;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelledTrace {
    name: String,
    kind: String,
    why: String,
    label: TraceLabel,
    /// The iteration from which a person would say that it goes in circles.
    gutter_from: Option<u32>,
    #[serde(default = "one")]
    min_changed_lines: u64,
    samples: Vec<IterationSample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TraceLabel {
    Healthy,
    Gutter,
}

fn one() -> u64 {
    1
}

impl LabelledTrace {
    /// Returns the iterations with a gutter verdict, scored as in a run: over the last few iterations.
    fn verdicts(&self) -> Vec<u32> {
        (1..=self.samples.len())
            .filter(|end| {
                let window = &self.samples[end.saturating_sub(SCORE_WINDOW)..*end];
                score(window, self.min_changed_lines).is_gutter()
            })
            .map(|end| self.samples[end - 1].n)
            .collect()
    }
}

/// The score's results on the corpus.
#[derive(Debug, Default, PartialEq)]
struct CorpusOutcome {
    healthy: u32,
    gutter: u32,
    found: u32,
    /// Traces with a verdict that a person would not share.
    alarms: Vec<String>,
    /// Traces that go in circles without a verdict.
    missed: Vec<String>,
}

impl CorpusOutcome {
    fn precision(&self) -> f64 {
        f64::from(self.found) / (f64::from(self.found) + self.alarms.len() as f64)
    }

    fn recall(&self) -> f64 {
        f64::from(self.found) / f64::from(self.gutter)
    }
}

fn corpus() -> Vec<LabelledTrace> {
    let mut all = Vec::new();
    for folder in ["recorded", "made"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            let trace: LabelledTrace =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(Some(trace.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            all.push(trace);
        }
    }
    all
}

fn score_corpus(corpus: &[LabelledTrace]) -> CorpusOutcome {
    let mut outcome = CorpusOutcome::default();
    for trace in corpus {
        let verdicts = trace.verdicts();
        let from = trace.gutter_from.unwrap_or(u32::MAX);
        if verdicts.iter().any(|n| *n < from) {
            outcome.alarms.push(trace.name.clone());
        }
        match trace.label {
            TraceLabel::Healthy => outcome.healthy += 1,
            TraceLabel::Gutter => {
                outcome.gutter += 1;
                if verdicts.iter().any(|n| *n >= from) {
                    outcome.found += 1;
                } else {
                    outcome.missed.push(trace.name.clone());
                }
            }
        }
    }
    outcome
}

#[test]
fn the_corpus_is_large_and_balanced() {
    let corpus = corpus();
    assert!(corpus.len() >= 60, "{} traces", corpus.len());
    let healthy = corpus.iter().filter(|trace| trace.label == TraceLabel::Healthy).count();
    assert!(healthy * 2 >= corpus.len(), "{healthy} of {} are healthy", corpus.len());
    let kinds: BTreeSet<&str> = corpus.iter().map(|trace| trace.kind.as_str()).collect();
    let want = ["abab", "flaky", "healthy", "noop", "same", "slow", "success", "wait", "wandering"];
    assert_eq!(kinds, BTreeSet::from(want));
    let mut names = BTreeSet::new();
    for trace in &corpus {
        assert!(names.insert(&trace.name), "{} occurs twice", trace.name);
        assert!(trace.why.len() > 20 && !trace.why.contains('\n'), "{}: one sentence says why", trace.name);
        assert_eq!(trace.label == TraceLabel::Gutter, trace.gutter_from.is_some(), "{}", trace.name);
        let numbers: Vec<u32> = trace.samples.iter().map(|sample| sample.n).collect();
        assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<u32>>(), "{}", trace.name);
        assert!(trace.gutter_from.is_none_or(|from| numbers.contains(&from)), "{}", trace.name);
    }
}

#[test]
fn the_score_agrees_with_the_labels() {
    let outcome = score_corpus(&corpus());
    assert_eq!(outcome.alarms, Vec::<String>::new(), "a person would not call these stuck");
    assert!(outcome.precision() >= 0.95, "{outcome:?}");
    assert!(outcome.recall() >= 0.9, "{outcome:?}");
}

const BEGIN: &str = "<!-- corpus: made by a test -->\n";
const END: &str = "<!-- end of corpus -->";

#[test]
fn the_readme_states_the_measured_figures() {
    let corpus = corpus();
    let outcome = score_corpus(&corpus);
    let sentence = format!(
        "Measured on {} labelled traces ({} healthy, {} going in circles): precision {:.2}, recall {:.2}, {} false alarms.\n",
        corpus.len(),
        outcome.healthy,
        outcome.gutter,
        outcome.precision(),
        outcome.recall(),
        outcome.alarms.len(),
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the README has a place for it");
    let (stated, after) = rest.split_once(END).expect("the place has an end");
    if std::env::var_os("RALPH_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{sentence}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(stated, sentence, "RALPH_BLESS=1 rewrites it");
}
