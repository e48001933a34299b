//! Formats the numbers of a report.

/// Formats small numbers with more digits than large ones.
pub(super) fn format_number(value: f64) -> String {
    match value.abs() {
        small if small < 1.0 => format!("{value:.3}"),
        medium if medium < 1000.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        #[track_caller]
        fn check(value: f64, want: &str) {
            assert_eq!(format_number(value), want);
        }
        check(0.0, "0.000");
        check(-0.0126, "-0.013");
        check(1.0, "1.00");
        check(-999.5, "-999.50");
        check(1000.0, "1000");
        check(56_023.4, "56023");
        check(f64::NAN, "NaN");
    }
}
