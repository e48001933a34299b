//! What the status of an answer says about its bill.

/// Tells whether somebody on the way gave up waiting: the provider behind may have gone on, and charge for it. Every other
/// error means that the call failed, and nobody charges for that unless the error itself says what it cost.
pub fn is_timeout_status(status: u16) -> bool {
    matches!(status, 408 | 499 | 504 | 520..=524)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
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
