//! Defines a figure and compares it with its target.

use serde::Serialize;

use super::number::format_number;

/// The limit that a figure must keep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureTarget {
    AtMost(f64),
    AtLeast(f64),
}

impl FigureTarget {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// A figure that follows from the measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchFigure {
    /// The heading under which it is shown.
    pub section: &'static str,
    pub name: String,
    pub unit: &'static str,
    /// `None` if the figure is only reported.
    pub target: Option<FigureTarget>,
    /// The value, or why there is none.
    pub value: Result<f64, String>,
}

impl BenchFigure {
    /// Returns whether the target is met; `None` without a target or a value.
    pub fn pass(&self) -> Option<bool> {
        self.target.zip(self.value.as_ref().ok()).map(|(target, value)| target.is_met_by(*value))
    }

    pub fn is_measured(&self) -> bool {
        self.value.is_ok()
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.pass() {
            Some(true) => "PASS",
            Some(false) => "FAIL",
            None if self.is_measured() => "",
            None => "NOT MEASURED",
        }
    }

    /// Returns the target with its sign and unit, or nothing.
    pub(super) fn target_text(&self) -> String {
        let text = match self.target {
            Some(FigureTarget::AtMost(most)) => format!("≤ {} {}", format_number(most), self.unit),
            Some(FigureTarget::AtLeast(least)) => format!("≥ {} {}", format_number(least), self.unit),
            None => String::new(),
        };
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        #[track_caller]
        fn check(target: Option<FigureTarget>, value: Result<f64, &str>, want: (Option<bool>, &str)) {
            let value = value.map_err(str::to_owned);
            let figure = BenchFigure { section: "s", name: "n".to_owned(), unit: "ms", target, value };
            assert_eq!((figure.pass(), figure.verdict()), want, "{figure:?}");
        }
        let (most, least) = (Some(FigureTarget::AtMost(2.0)), Some(FigureTarget::AtLeast(2.0)));
        let (pass, fail) = ((Some(true), "PASS"), (Some(false), "FAIL"));
        check(most, Ok(1.9), pass);
        check(most, Ok(2.0), pass);
        check(most, Ok(2.1), fail);
        check(least, Ok(1.9), fail);
        check(least, Ok(2.0), pass);
        check(least, Ok(2.1), pass);
        // What cannot be compared is no success.
        check(most, Ok(f64::NAN), fail);
        check(least, Ok(f64::NAN), fail);
        check(most, Err("no"), (None, "NOT MEASURED"));
        check(None, Err("no"), (None, "NOT MEASURED"));
        check(None, Ok(3.0), (None, ""));
    }

    #[test]
    fn targets() {
        #[track_caller]
        fn check(target: Option<FigureTarget>, unit: &'static str, want: &str) {
            let figure = BenchFigure { section: "s", name: "n".to_owned(), unit, target, value: Ok(1.0) };
            assert_eq!(figure.target_text(), want);
        }
        check(Some(FigureTarget::AtMost(0.5)), "ms", "≤ 0.500 ms");
        check(Some(FigureTarget::AtLeast(10.0)), "×", "≥ 10.00 ×");
        check(Some(FigureTarget::AtMost(0.0)), "", "≤ 0.000");
        check(None, "ms", "");
    }
}
