//! Decides what the status of an answer means for its charge.

/// Says whether a server on the way gave up waiting: the provider behind it may have continued, and charge for it.
/// Every other error means that the call failed, which providers do not charge for unless the error itself says what
/// it cost.
pub fn is_timeout_status(status: u16) -> bool {
    matches!(status, 408 | 499 | 504 | 520..=524)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_timeout_statuses_may_be_charged() {
        for (status, want) in [
            (400, false),
            (408, true),
            (429, false),
            (499, true),
            (500, false),
            (502, false),
            (503, false),
            (504, true),
        ] {
            assert_eq!(is_timeout_status(status), want, "{status}");
        }
        assert!((520..=524).all(is_timeout_status) && !is_timeout_status(529));
    }
}
