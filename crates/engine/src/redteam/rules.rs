//! The policies under which the attacks are made.

use ralph_core::policy::{BadRule, Mode, Policy};

/// Under which policy a cage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rules {
    /// A list of names that may be reached, and nothing else.
    Strict,
    /// Everything may be reached.
    Open,
    /// Everything but a few names.
    Denying,
    /// This one rule.
    Listing(&'static str),
}

/// Names the list allows. Some of them lead inside, which must not help them.
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

impl Rules {
    pub(super) fn policy(self) -> Result<Policy, BadRule> {
        match self {
            Self::Strict => Policy::parse(Mode::Allowlist, &ALLOWED, &[]),
            Self::Open => Policy::parse::<&str>(Mode::Open, &[], &[]),
            Self::Denying => Policy::parse(Mode::Open, &[], &DENIED),
            Self::Listing(rule) => Policy::parse(Mode::Allowlist, &[rule], &[]),
        }
    }
}
