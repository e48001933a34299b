//! Quotes a path for a command that the user may paste.

use std::path::Path;

/// Quotes a path as one shell word.
pub fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
