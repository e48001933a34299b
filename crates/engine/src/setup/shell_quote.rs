//! Quotes a path for a command that a person may paste.

use std::path::Path;

/// Makes a path one word of a shell.
pub fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
