//! Reads a typed or piped value as a secret, and detects common mistakes of pasting.

use super::{BadCommand, CredentialCommand, Secret};
use crate::redact::{SHORTEST, is_too_short};

/// More than any key; less than a file that was piped in by mistake.
pub const LONGEST: usize = 64 * 1024;

/// The reasons why a text is not a secret. The text itself is never shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    #[error("nothing was given")]
    Empty,
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("it has fewer than {SHORTEST} characters, too few to mask it or to keep it out of responses")]
    Short,
    #[error("it has several lines but is not PEM")]
    Lines,
    #[error("it contains whitespace or control characters")]
    Blanks,
    #[error("it is still enclosed in quotes")]
    Quotes,
    #[error("it is a whole `NAME=value` line")]
    Assignment,
    #[error(transparent)]
    Command(#[from] BadCommand),
}

impl BadValue {
    pub fn hint(&self) -> Option<String> {
        if let Self::Command(command) = self {
            return command.hint();
        }
        if *self == Self::Short {
            return Some(format!(
                "have its issuer create one of at least {SHORTEST} characters (LiteLLM: `LITELLM_MASTER_KEY`), and \
                 store that"
            ));
        }
        Some(
            "give the value alone: printf %s VALUE | ralph secret set NAME, or `ralph secret set NAME` at a terminal"
                .to_owned(),
        )
    }
}

/// Reads a value that is to be stored. A value too short to search for is refused; one stored earlier is still
/// accepted.
pub fn read_new(given: &str) -> Result<Secret, BadValue> {
    let secret = read(given)?;
    if is_too_short(secret.expose()) { Err(BadValue::Short) } else { Ok(secret) }
}

/// Reads a value as given; line ends around it are not part of it.
pub fn read(given: &str) -> Result<Secret, BadValue> {
    let value = given.strip_prefix('\u{feff}').unwrap_or(given).trim();
    if value.is_empty() {
        return Err(BadValue::Empty);
    }
    if value.len() > LONGEST {
        return Err(BadValue::Long);
    }
    if CredentialCommand::is_command(value) {
        CredentialCommand::parse(value)?;
        return Ok(Secret::new(value));
    }
    if value.starts_with("-----BEGIN ") {
        // A key in one line with `\n` written out, as in `.env` files.
        let lines = if value.contains('\n') { value.replace('\r', "") } else { value.replace("\\n", "\n") };
        return Ok(Secret::new(lines));
    }
    if value.contains('\n') {
        return Err(BadValue::Lines);
    }
    if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(if value.starts_with("export ") { BadValue::Assignment } else { BadValue::Blanks });
    }
    if value.starts_with(['"', '\'']) && value.len() > 1 && value.ends_with(['"', '\'']) {
        return Err(BadValue::Quotes);
    }
    let upper = |c: char| c.is_ascii_uppercase() || c == '_';
    if value
        .split_once('=')
        .is_some_and(|(name, rest)| !rest.is_empty() && name.contains('_') && name.chars().all(upper))
    {
        return Err(BadValue::Assignment);
    }
    Ok(Secret::new(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(given: &str, want: Result<&str, BadValue>) {
        assert_eq!(read(given).map(|secret| secret.expose().to_owned()), want.map(str::to_owned), "{given:?}");
    }

    #[test]
    fn values() {
        check("abcdefgh\n", Ok("abcdefgh"));
        check("\u{feff}abcdefgh\r\n", Ok("abcdefgh"));
        check("abcdef=b==", Ok("abcdef=b=="));
        check("-----BEGIN K-----\r\nx\r\n-----END K-----\n", Ok("-----BEGIN K-----\nx\n-----END K-----"));
        check("-----BEGIN K-----\\nx\\n-----END K-----", Ok("-----BEGIN K-----\nx\n-----END K-----"));
        check("cmd://op read x\nttl 5\n", Ok("cmd://op read x\nttl 5"));
        check("cmd://", Err(BadValue::Command(BadCommand::Empty)));
        check(" \n", Err(BadValue::Empty));
        check("a\nb", Err(BadValue::Lines));
        check("a b", Err(BadValue::Blanks));
        check("a\u{1b}b", Err(BadValue::Blanks));
        check("\"abc\"", Err(BadValue::Quotes));
        check("OPENAI_API_KEY=abc", Err(BadValue::Assignment));
        check("export X_Y=abc", Err(BadValue::Assignment));
        check(&"x".repeat(LONGEST + 1), Err(BadValue::Long));
    }

    #[test]
    fn new_values() {
        let new = |given: &str| read_new(given).map(|secret| secret.expose().to_owned());
        assert_eq!(new("sk-1234\n"), Err(BadValue::Short));
        assert_eq!(new("sk-12345\n"), Ok("sk-12345".to_owned()));
        assert_eq!(new("cmd://op"), Ok("cmd://op".to_owned()));
        assert_eq!(new("a b"), Err(BadValue::Blanks));
        assert_eq!(read("sk-1234\n").map(|secret| secret.expose().to_owned()), Ok("sk-1234".to_owned()));
    }

    proptest! {
        #[test]
        fn never_panics_and_never_shows(given in "\\PC{0,40}|[a-z\"'=\n \\\\]{0,20}") {
            if let Err(error) = read(&given) {
                let message = format!("{error} {}", error.hint().unwrap_or_default());
                prop_assert!(given.trim().len() < 12 || !message.contains(given.trim()));
            }
        }
    }
}
