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
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 50), Some(2.0));
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 90), Some(3.0));
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 100), Some(3.0));
    }
}
