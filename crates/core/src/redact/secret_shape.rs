//! Recognises secrets by their shape: prefixes and formats that issuers chose so that tools like this one can find
//! them.
//!
//! Few false alarms matter as much as matches, since a match stops an import: plain hashes, UUIDs and base64 data have
//! no such format and are ignored.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use super::private_key_block::private_key_blocks;
use crate::source_span::Span;

/// The shape of a match, or the known secret it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretShape {
    /// A secret that was registered by name.
    Known(String),
    AnthropicKey,
    OpenAiKey,
    GitHubToken,
    AwsKey,
    SlackToken,
    GoogleKey,
    GitLabToken,
    /// A credential of another issuer whose prefix is known.
    ApiToken,
    PrivateKey,
    BearerToken,
    Jwt,
}

impl fmt::Display for SecretShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known(name) => name,
            Self::AnthropicKey => "anthropic-key",
            Self::OpenAiKey => "openai-key",
            Self::GitHubToken => "github-token",
            Self::AwsKey => "aws-key",
            Self::SlackToken => "slack-token",
            Self::GoogleKey => "google-key",
            Self::GitLabToken => "gitlab-token",
            Self::ApiToken => "api-token",
            Self::PrivateKey => "private-key",
            Self::BearerToken => "bearer-token",
            Self::Jwt => "jwt",
        })
    }
}

struct ShapeRule {
    shape: SecretShape,
    /// Group 1, if there is one, is the secret itself; otherwise the whole match.
    regex: Regex,
    is_plausible: fn(&str) -> bool,
}

/// Every quantifier is over one class, every pattern begins with a literal, and no alternative reads further than the one
/// after it: the search is linear and mostly skips. Private keys are not like that and have their own search.
static RULES: LazyLock<Vec<ShapeRule>> = LazyLock::new(|| {
    let rule = |shape, pattern: &str, believe| ShapeRule {
        shape,
        regex: Regex::new(pattern).expect("the patterns are constants and tested"),
        is_plausible: believe,
    };
    vec![
        rule(SecretShape::AnthropicKey, r"\bsk-ant-[A-Za-z0-9_-]{20,}", |key| {
            // `sk-ant-api03-` itself contains digits.
            looks_random(key.get(13..).unwrap_or(""))
        }),
        rule(
            SecretShape::OpenAiKey,
            r"\bsk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})",
            looks_random,
        ),
        rule(SecretShape::GitHubToken, r"\b(?:gh[pousr]_[A-Za-z0-9_]{30,}|github_pat_[A-Za-z0-9_]{30,})", looks_random),
        rule(SecretShape::AwsKey, r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", |key| {
            looks_random(key) && !key.ends_with("EXAMPLE")
        }),
        rule(SecretShape::SlackToken, r"\bxox[abeoprs]-[A-Za-z0-9-]{16,}", looks_random),
        rule(SecretShape::GoogleKey, r"\bAIza[A-Za-z0-9_-]{35}", looks_random),
        rule(SecretShape::GitLabToken, r"\bglpat-[A-Za-z0-9_.-]{20,}", looks_random),
        rule(
            SecretShape::ApiToken,
            r"\b(?:npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|nvapi-[A-Za-z0-9_-]{40,}|pplx-[A-Za-z0-9]{40,}|pypi-AgE[A-Za-z0-9_-]{50,}|[sr]k_live_[A-Za-z0-9]{20,}|dtn_[A-Za-z0-9]{32,})",
            looks_random,
        ),
        rule(SecretShape::BearerToken, r"\b[Bb](?:earer|EARER)[ \t]+([A-Za-z0-9._~+/=-]{20,})", looks_random),
        rule(SecretShape::Jwt, r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}", looks_random),
    ]
});

/// Calls `found` for every string that looks like a secret, rule by rule: its shape, its span, and the start of the
/// text by which it was recognised.
pub(super) fn each_match(text: &str, mut found: impl FnMut(&SecretShape, Span, usize)) {
    for rule in RULES.iter() {
        for captures in rule.regex.captures_iter(text) {
            let whole = captures.get_match();
            let secret = captures.get(1).unwrap_or(whole);
            let before = text.get(..secret.start()).and_then(|before| before.chars().next_back());
            // In the middle of base64 data a prefix occurs by chance.
            let in_data = matches!(before, Some('+' | '/'));
            if !in_data && (rule.is_plausible)(secret.as_str()) {
                found(&rule.shape, Span::new(secret.start(), secret.end()), whole.start());
            }
        }
    }
    for block in private_key_blocks(text) {
        if text.get(block.clone()).is_some_and(has_key_body) {
            found(&SecretShape::PrivateKey, Span::new(block.start, block.end), block.start);
        }
    }
}

/// Distinguishes random text from words: `sk-learn-…` class names and `<your-token-here>` have no digits or few
/// characters.
fn looks_random(text: &str) -> bool {
    let mut seen = [false; 128];
    for byte in text.bytes() {
        if let Some(seen) = seen.get_mut(usize::from(byte)) {
            *seen = true;
        }
    }
    let distinct = seen.iter().filter(|seen| **seen).count();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    distinct >= 10 && digits >= 2 && letters >= 4 && !text.contains("xxxx") && !text.contains("XXXX")
}

/// Returns whether a block has a long unbroken run of base64, as a key has and a sentence about keys has not.
fn has_key_body(block: &str) -> bool {
    let body = block.splitn(3, "-----").nth(2).unwrap_or("");
    body.split(|c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c))).any(|run| run.len() >= 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        each_match(text, |shape, span, _| found.push((shape.to_string(), span.of(text).to_owned())));
        found
    }

    /// Joins parts that are split in the source, so that secret scanners find nothing in this repository.
    fn joined(parts: &[&str]) -> String {
        parts.concat()
    }

    #[test]
    fn secrets() {
        let body = "MIIEowIBAAKCAQEAx3J0Zk9vYmFyQmF6UXV4Q29y".repeat(3);
        for (shape, secret) in [
            ("anthropic-key", joined(&["sk-", "ant-api03-Ab3dEf6hIj9lMn0pQr-StUv_WxYz12"])),
            ("anthropic-key", joined(&["sk-", "ant-oat01-q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1"])),
            ("openai-key", joined(&["sk-", "T3BlbkFJq8Wz7Xv6Cu5Tb4Sn3Rm2"])),
            ("openai-key", joined(&["sk-", "proj-q8Wz7Xv6_Cu5Tb4-Sn3Rm2Pl1Kk0"])),
            ("openai-key", joined(&["sk-", "or-v1-0123456789abcdef0123456789abcdef"])),
            ("github-token", joined(&["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"])),
            ("github-token", joined(&["gh", "o_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"])),
            ("github-token", joined(&["gh", "s_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"])),
            ("github-token", joined(&["github", "_pat_11ABCDEFG0q8Wz7Xv6Cu5T_b4Sn3Rm2Pl1Kk0Jj9Ii8Hh7Gg6Ff5"])),
            ("aws-key", joined(&["AK", "IAQ3ZTH7PLMN5WXYR2"])),
            ("slack-token", joined(&["xo", "xb-123456789012-1234567890123-AbCdEfGhIjKlMnOp"])),
            ("google-key", joined(&["AI", "zaSyD3X4mpl3K3yQ8Wz7Xv6Cu5Tb4Sn3Rm2Pl"])),
            ("gitlab-token", joined(&["glp", "at-q8Wz7Xv6Cu5Tb4Sn3Rm2"])),
            ("api-token", joined(&["np", "m_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"])),
            ("api-token", joined(&["h", "f_qWzXvCuTbSnRmPlKkJjIiHhGgFfEe01"])),
            ("api-token", joined(&["py", "pi-AgEIcHlwaS5vcmcCJGQ0ZmI2M2Y4LTk0Y2EtNGQ1Ni05_x-Kq8Wz7Xv6Cu5"])),
            ("api-token", joined(&["sk", "_live_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1K"])),
            ("api-token", joined(&["dt", "n_0123456789abcdef0123456789abcdef01234567"])),
            ("jwt", joined(&["ey", "JhbGciOiJIUzI1NiJ9.ey", "JzdWIiOiIxMjM0In0.q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9"])),
            ("private-key", format!("-----BEGIN RSA {}\n{body}\n-----END RSA PRIVATE KEY-----", "PRIVATE KEY-----")),
            ("private-key", format!("-----BEGIN {}\\n{body}\\n-----END PRIVATE KEY-----", "PRIVATE KEY-----")),
            (
                "private-key",
                format!(
                    "-----BEGIN EC {}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,A1\n\n{body}\n-----END EC PRIVATE KEY-----",
                    "PRIVATE KEY-----"
                ),
            ),
            // The end was cut off.
            ("private-key", format!("-----BEGIN OPENSSH {}\n{body}", "PRIVATE KEY-----")),
        ] {
            let want = vec![(shape.to_owned(), secret.clone())];
            assert_eq!(shapes(&secret), want);
            assert_eq!(shapes(&format!("KEY={secret}\"; x")), want);
            assert_eq!(shapes(&format!("é '{secret}' y")), want);
        }
        let token = "q8Wz7Xv6.Cu5Tb4/Sn3Rm2+Pl1";
        for header in ["Authorization: Bearer ", "authorization: bearer  ", "BEARER\t"] {
            assert_eq!(shapes(&format!("{header}{token}")), vec![("bearer-token".to_owned(), token.to_owned())]);
        }
    }

    #[test]
    fn no_secrets() {
        let header = "PRIVATE KEY-----";
        for text in [
            "pip install scikit-learn sk-learn",
            "class=\"sk-estimator-doc-link sk-toggleable__control-arrow2 sk-text-repr-fallback\"",
            "sk-this-is-a-rather-long-css-class-name-2",
            "sk-ant-api03-your-key-here",
            "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxx12",
            "sk-proj-your-api-key-goes-here-please",
            "the task-force risk-averse desk-bound 12345678901234567890",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "123e4567-e89b-12d3-a456-426614174000",
            "\"integrity\": \"sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==\"",
            "checksum = \"320119579fcad9c21884f5c4861d16174d0e06250625266f50fe6898340abefa\"",
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
            "AKIAIOSFODNN7EXAMPLE",
            "AKIAAAAAAAAAAAAAAAAA",
            "MAKIAQ3ZTH7PLMN5WXYR2",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "ghp_short1",
            "xoxb-your-token",
            "AIzaSy",
            "glpat-xxxxxxxxxxxxxxxxxxxx",
            "npm_config_registry_of_the_second_mirror_2_and_1",
            "npm_package_version",
            "hf_hub_download_of_the_model_7b_instruct_v2",
            "pplx-70b-online-and-pplx-7b-chat",
            "xai-grok-code-fast-1",
            "pypi-publish-action-of-the-release-workflow-v1-and-of-the-other-one-2",
            "sk_live_your_key_here",
            "Bearer <token>",
            "Bearer $GITHUB_TOKEN_FOR_THE_RELEASE",
            "Bearer authentication-is-described-below",
            "the bearer of this letter",
            "eyJhbGciOiJIUzI1NiJ9",
            &format!("text.starts_with(\"-----BEGIN {header}\")"),
            &format!(
                "-----BEGIN {header} starts a block and -----END {header} ends it, as everybody who has seen one knows."
            ),
            "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEx3J0Zk9vYmFyQmF6\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQIRi6zePL6mKjOipn+dNuaTAKBggqhkjOPQQDAjASMRAw\n-----END CERTIFICATE-----",
            "[redacted:github-token]",
        ] {
            assert_eq!(shapes(text), vec![], "{text}");
        }
        // A prefix by chance inside data.
        let data = ["q8Wz7Xv6+", "AI", "zaSyD3X4mpl3K3yQ8Wz7Xv6Cu5Tb4Sn3Rm2Pl"].concat();
        assert_eq!(shapes(&data), vec![]);
    }
}
