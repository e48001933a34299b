//! The policies that the attacks run under.

use ralph_core::policy::{BadRule, Policy, PolicyMode};

/// The policy of a cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolicyPreset {
    /// A list of allowed names, and nothing else.
    Strict,
    /// Everything is allowed.
    Open,
    /// Everything except a few names is allowed.
    Denying,
    /// This one rule.
    Listing(&'static str),
}

/// The names that the list allows. Some of them resolve to internal addresses, which must not help them.
const ALLOWED: [&str; 20] = [
    "allowed.test",
    "other.test",
    "plain.test:80",
    "*.wild.test",
    "GET look.test/public/*",
    "api.test",
    "api.test:80",
    "git.test",
    "expired.test",
    "stranger.test",
    "misnamed.test",
    "rebind.test",
    "rebind-api.test",
    "private.test",
    "host.docker.internal",
    "loop.test",
    "loop.test:80",
    "mapped.test",
    "metadata.google.internal",
    "*.google.internal",
];

const DENIED: [&str; 3] = ["evil.test", "*.canary.test", "169.254.169.254"];

impl PolicyPreset {
    pub(super) fn policy(self) -> Result<Policy, BadRule> {
        match self {
            Self::Strict => Policy::parse(PolicyMode::Allowlist, &ALLOWED, &[]),
            Self::Open => Policy::parse::<&str>(PolicyMode::Open, &[], &[]),
            Self::Denying => Policy::parse(PolicyMode::Open, &[], &DENIED),
            Self::Listing(rule) => Policy::parse(PolicyMode::Allowlist, &[rule], &[]),
        }
    }
}
