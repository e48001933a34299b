//! Computes percentiles of samples.

/// Returns the value below which `percent` of the values lie.
pub fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        #[track_caller]
        fn check(values: &[f64], percent: usize, want: Option<f64>) {
            assert_eq!(percentile(values, percent), want, "p{percent} of {values:?}");
        }
        check(&[], 0, None);
        check(&[], 50, None);
        check(&[], 100, None);
        for percent in [0, 50, 99, 100] {
            check(&[7.0], percent, Some(7.0));
        }
        check(&[3.0, 1.0, 2.0], 0, Some(1.0));
        check(&[3.0, 1.0, 2.0], 50, Some(2.0));
        check(&[3.0, 1.0, 2.0], 90, Some(3.0));
        check(&[3.0, 1.0, 2.0], 100, Some(3.0));
        // The upper one of the two values in the middle.
        check(&[4.0, 1.0, 3.0, 2.0], 50, Some(3.0));
        check(&[-1.0, 0.0, -2.0], 50, Some(-1.0));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        check(&hundred, 90, Some(91.0));
        check(&hundred, 99, Some(100.0));
        check(&hundred, 1, Some(2.0));
    }
}
