//! A value that cannot be printed or serialised by accident.

use std::fmt;

/// A credential held on the host. It has no `Display` and no `Serialize`; [`Secret::expose`] is the one door.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_nothing() {
        assert_eq!(format!("{:?}", Secret::new("sk-live-123")), "Secret(…)");
    }
}
