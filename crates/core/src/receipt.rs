//! What a finished run proves: the commands, how they ended, on which commit, signed by the installation.
//!
//! Signing and the key are not here; this room says which bytes are signed and what "the same result" means.

use serde::{Deserialize, Serialize};

use crate::money::Micros;

/// The number of the receipt's format.
pub const FORMAT: u32 = 1;

/// A signed statement of what ralph saw when it re-ran the checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub format: u32,
    pub body: Body,
    /// The installation's ed25519 public key, in hex.
    pub key: String,
    /// The signature over [`signed_bytes`], in hex.
    pub signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    pub run: String,
    pub ralph: String,
    pub task_id: String,
    pub task_sha256: String,
    pub branch: String,
    pub commit: String,
    pub base_commit: String,
    pub backend: String,
    /// The image digest, or a fingerprint of the base the backend ran on.
    pub base_fingerprint: String,
    pub model: String,
    pub cost: Micros,
    pub policy_sha256: String,
    pub timeout_s: u64,
    pub checks: Vec<Check>,
}

/// One command of the proof and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub command: String,
    pub proves: Vec<String>,
    pub code: i32,
    pub timed_out: bool,
    pub duration_ms: u64,
    pub output_sha256: String,
}

impl Check {
    pub fn passed(&self) -> bool {
        self.code == 0 && !self.timed_out
    }
}

/// Returns the bytes a receipt signs. The prefix keeps the signature from meaning anything elsewhere.
pub fn signed_bytes(body: &Body) -> Vec<u8> {
    let mut bytes = b"ralph receipt 1\n".to_vec();
    bytes.extend(serde_json::to_vec(body).expect("a receipt holds only plain data"));
    bytes
}

/// What a re-execution says about one line of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Again {
    Same,
    Different,
    Cannot,
}

/// Compares one line with its re-execution. Durations and output differ between honest runs; the verdict does not.
pub fn compare(then: &Check, now: Option<&Check>) -> Again {
    match now {
        None => Again::Cannot,
        Some(now) if now.code == 127 && then.code != 127 => Again::Cannot,
        Some(now) if now.code == then.code && now.timed_out == then.timed_out => Again::Same,
        Some(_) => Again::Different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: i32, timed_out: bool) -> Check {
        Check {
            command: "make test".to_owned(),
            proves: vec!["test".to_owned()],
            code,
            timed_out,
            duration_ms: 5,
            output_sha256: String::new(),
        }
    }

    #[test]
    fn verdicts() {
        let ok = check(0, false);
        for (now, want) in [
            (Some(Check { duration_ms: 9, output_sha256: "ff".to_owned(), ..check(0, false) }), Again::Same),
            (Some(check(1, false)), Again::Different),
            (Some(check(0, true)), Again::Different),
            (Some(check(127, false)), Again::Cannot),
            (None, Again::Cannot),
        ] {
            assert_eq!(compare(&ok, now.as_ref()), want, "{now:?}");
        }
    }
}
