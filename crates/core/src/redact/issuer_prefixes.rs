//! The prefixes of credentials, by issuer. They show what a credential is, not its value: a phantom keeps its own
//! prefix, and text that begins with one and continues at random is treated as a secret.

/// A longer prefix comes before those it begins with.
pub const ISSUER_PREFIXES: [&str; 36] = [
    "sk-ant-api03-",
    "sk-ant-oat01-",
    "sk-ant-ort01-",
    "sk-ant-admin01-",
    "sk-ant-",
    "sk-proj-",
    "sk-svcacct-",
    "sk-admin-",
    "sk-or-v1-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "AIza",
    "AKIA",
    "ASIA",
    "xai-",
    "gsk_",
    "nvapi-",
    "pplx-",
    "hf_",
    "npm_",
    "pypi-AgE",
    "dtn_",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;

    /// Every prefix that a phantom can have is found when the real credential occurs in a text.
    #[test]
    fn every_issuer_has_a_shape() {
        let redactor = Redactor::new([]);
        for (at, prefix) in ISSUER_PREFIXES.into_iter().enumerate() {
            let length = if prefix.starts_with('A') && prefix != "AIza" { 16 } else { 86 };
            let random = "Q3ZTH7PLMN5WXYR2q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7Gg6Ff5Ee4Dd3Cc2Bb1Aa0Zz9Yy8Xx7Ww6Vv5";
            let secret = [prefix, &random[..length]].concat();
            let masked = redactor.redact(&secret).into_owned();
            assert!(masked.starts_with("[redacted:"), "{prefix}: {masked}");
            assert!(!ISSUER_PREFIXES[..at].iter().any(|longer| prefix.starts_with(longer)), "{prefix} comes too late");
        }
    }
}
