//! Defines text that was searched for secrets, so that events cannot hold any other.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::Redactor;

/// Text in which every known secret is masked: only a [`Redactor`] makes it from text that is not part of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaskedText(String);

impl MaskedText {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// Returns the first line, cut to a number of bytes: a part of masked text has no secret either.
    #[must_use]
    pub fn first_line(&self, bytes: usize) -> Self {
        Self(crate::text::first_line(&self.0, bytes).to_owned())
    }
}

impl Redactor {
    /// Masks every secret in a text that is written into an event.
    pub fn mask(&self, text: &str) -> MaskedText {
        MaskedText(self.redact(text).into_owned())
    }
}

/// A text of the program's own holds no secret.
impl From<&'static str> for MaskedText {
    fn from(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

impl Deref for MaskedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MaskedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for MaskedText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for MaskedText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn secrets_are_masked_and_the_form_on_disk_is_plain_text() {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        let masked = redactor.mask("use planted-value\nnow");
        assert_eq!(masked, "use [redacted:KEY]\nnow");
        assert_eq!(masked.first_line(5), "use [");
        assert_eq!(serde_json::to_string(&masked).unwrap(), r#""use [redacted:KEY]\nnow""#);
        assert_eq!(serde_json::from_str::<MaskedText>(r#""x""#).unwrap(), "x");
    }
}
