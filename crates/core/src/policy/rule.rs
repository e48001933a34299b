//! One line of a policy: `host`, `*.suffix`, `host:port`, `METHOD host/path`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::canonical_host::{BadHost, canonical_host};
use super::{path_pattern, preset};
use crate::text;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The port of a rule that names none.
pub(super) const HTTPS_PORT: u16 = 443;

/// The hosts a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// Exactly this host.
    Exact(String),
    /// Every host below this name, but not the name itself.
    Subdomains(String),
}

impl HostPattern {
    /// Returns whether a canonical host name matches the pattern.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Subdomains(suffix) => host.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.')),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Exact(_), Self::Subdomains(_)) => false,
            (Self::Subdomains(wide), Self::Subdomains(narrow)) => wide == narrow || self.matches(narrow),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Subdomains(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

/// One rule. It exists only in canonical form, so equal rules have equal texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyRule {
    pub(super) host: HostPattern,
    pub(super) port: Option<u16>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
}

impl PolicyRule {
    pub fn host(&self) -> &HostPattern {
        &self.host
    }

    /// Returns the port a rule names; without one an allow rule means 443, a deny rule every port.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether the rule can only be decided when the request is known, not when the connection is made.
    pub fn needs_request(&self) -> bool {
        self.method.is_some() || self.path.is_some()
    }

    /// Returns whether this rule allows everything that `other` allows, both read as allow rules.
    pub fn covers(&self, other: &Self) -> bool {
        self.port.unwrap_or(HTTPS_PORT) == other.port.unwrap_or(HTTPS_PORT) && self.covers_any_port(other)
    }

    /// As [`PolicyRule::covers`], with this rule read as a deny rule.
    pub(super) fn denies_all_of(&self, other: &Self) -> bool {
        self.port.is_none_or(|port| port == other.port.unwrap_or(HTTPS_PORT)) && self.covers_any_port(other)
    }

    fn covers_any_port(&self, other: &Self) -> bool {
        let method = match (&self.method, &other.method) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wide), Some(narrow)) => method_matches(wide, narrow),
        };
        let path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(wide), None) => wide == "/*",
            (Some(wide), Some(narrow)) => path_pattern::covers(wide, narrow),
        };
        method && path && self.host.covers(&other.host)
    }
}

/// Returns whether a rule's method allows a request's method. A rule for `GET` allows `HEAD` too.
pub(super) fn method_matches(rule: &str, method: &str) -> bool {
    rule == method || (rule == "GET" && method == "HEAD")
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, "{method} ")?;
        }
        write!(f, "{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.path.as_deref().unwrap_or(""))
    }
}

/// The reasons why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error("rule `{rule}` has no host")]
    Empty { rule: String },
    #[error("rule `{rule}` would match every host")]
    Everything { rule: String },
    #[error("rule `{rule}` has a scheme")]
    Scheme { rule: String },
    #[error("rule `{rule}` names the method `{method}`, which ralph does not know")]
    Method { rule: String, method: String },
    #[error("rule `{rule}` names a port that is not 1 to 65535")]
    Port { rule: String },
    #[error("rule `{rule}` has an invalid path")]
    Path { rule: String },
    #[error("rule `{rule}` is neither a preset nor a full host name")]
    Word { rule: String, meant: Option<&'static str> },
    #[error("rule `{rule}` has a `*` that is not its whole first label")]
    Star { rule: String },
    #[error("rule `{rule}` has an invalid host")]
    Host { rule: String, source: BadHost },
}

impl BadRule {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Empty { .. } => Some("write `METHOD host/path`, or only the host".to_owned()),
            Self::Everything { .. } => Some("name the hosts, or request the policy `open` explicitly".to_owned()),
            Self::Scheme { .. } => Some("leave out `https://`; for plain HTTP write `host:80`".to_owned()),
            Self::Method { .. } => Some(format!("use one of {}", METHODS.join(", "))),
            Self::Port { .. } => None,
            Self::Path { .. } => {
                Some("write the path without escapes or a query; `*` may stand for one whole segment".to_owned())
            }
            Self::Word { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Word { meant: None, .. } => Some(format!("the presets are {}", preset::names().join(", "))),
            Self::Star { .. } => Some("write `*.example.com`".to_owned()),
            Self::Host { source, .. } => source.hint(),
        }
    }
}

/// Parses one entry of a rule list: a preset name becomes its rules, anything else one rule.
pub fn expand(entry: &str) -> Result<Vec<PolicyRule>, BadRule> {
    match preset::find(entry.trim()) {
        Some(preset) => preset.rules.iter().map(|rule| rule.parse()).collect(),
        None => Ok(vec![entry.parse()?]),
    }
}

impl FromStr for PolicyRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let rule = || text::strip_control(text::first_line(text, 120));
        let (method, target) = match text.trim().split_once(char::is_whitespace) {
            Some((method, target)) => (Some(method), target.trim_start()),
            None => (None, text.trim()),
        };
        if let Some(method) = method.filter(|method| !METHODS.contains(method)) {
            return Err(BadRule::Method { rule: rule(), method: text::strip_control(text::first_line(method, 20)) });
        }
        if target.contains("://") {
            return Err(BadRule::Scheme { rule: rule() });
        }
        let (authority, path) = match target.find('/') {
            Some(at) => (target.get(..at).unwrap_or(""), target.get(at..)),
            None => (target, None),
        };
        if path.is_some_and(|path| !path_pattern::is_pattern(path)) {
            return Err(BadRule::Path { rule: rule() });
        }
        let (host, port) = split_port(authority).ok_or_else(|| BadRule::Port { rule: rule() })?;
        if host.is_empty() {
            return Err(BadRule::Empty { rule: rule() });
        }
        Ok(Self {
            host: parse_host_pattern(host, &rule)?,
            port,
            method: method.map(str::to_owned),
            path: path.map(str::to_owned),
        })
    }
}

fn parse_host_pattern(host: &str, rule: &dyn Fn() -> String) -> Result<HostPattern, BadRule> {
    let name = |host: &str| canonical_host(host).map_err(|source| BadRule::Host { rule: rule(), source });
    if host == "*" {
        return Err(BadRule::Everything { rule: rule() });
    }
    if let Some(suffix) = host.strip_prefix("*.") {
        if suffix.contains('*') {
            return Err(BadRule::Star { rule: rule() });
        }
        let suffix = name(suffix)?;
        // A whole top-level domain is nearly every host, and an address has no subdomains.
        if !suffix.contains('.') || suffix.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(BadRule::Everything { rule: rule() });
        }
        return Ok(HostPattern::Subdomains(suffix));
    }
    if host.contains('*') {
        return Err(BadRule::Star { rule: rule() });
    }
    let host = name(host)?;
    // A lone word is far more often a mistyped preset than a host of the local network.
    if !host.contains(['.', ':']) && host != "localhost" {
        return Err(BadRule::Word { rule: rule(), meant: text::did_you_mean(&host, preset::names()) });
    }
    Ok(HostPattern::Exact(host))
}

/// Splits `host:port`; `None` when the port is invalid. A bare IPv6 address has no port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let colon = match authority.rfind(']') {
        Some(end) => match authority.get(end + 1..)? {
            "" => return Some((authority, None)),
            rest if rest.starts_with(':') => end + 1,
            _ => return None,
        },
        None if authority.matches(':').count() == 1 => authority.find(':')?,
        None => return Some((authority, None)),
    };
    let digits = authority.get(colon + 1..)?;
    let port = digits.parse().ok().filter(|port| *port != 0 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((authority.get(..colon)?, Some(port)))
}

impl TryFrom<String> for PolicyRule {
    type Error = BadRule;
    fn try_from(text: String) -> Result<Self, BadRule> {
        text.parse()
    }
}

impl From<PolicyRule> for String {
    fn from(rule: PolicyRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        match text.parse::<PolicyRule>() {
            Ok(rule) => assert_eq!(rule.to_string(), want),
            Err(error) => assert_eq!(format!("{error} | {}", error.hint().unwrap_or_default()), want),
        }
    }

    #[test]
    fn rules() {
        check(" GitHub.com. ", "github.com");
        check("*.Example.com", "*.example.com");
        check("example.com:80", "example.com:80");
        check("GET api.github.com/repos/*", "GET api.github.com/repos/*");
        check("example.com/a", "example.com/a");
        check("POST  example.com:8443/a", "POST example.com:8443/a");
        check("[2001:DB8::1]:8080", "[2001:db8::1]:8080");
        check("2001:db8::1", "[2001:db8::1]");
        check("localhost:3000", "localhost:3000");
    }

    #[test]
    fn invalid_rules_are_refused() {
        check("*", "rule `*` would match every host | name the hosts, or request the policy `open` explicitly");
        check("*:443", "rule `*:443` would match every host | name the hosts, or request the policy `open` explicitly");
        check("*.com", "rule `*.com` would match every host | name the hosts, or request the policy `open` explicitly");
        check("a*.com", "rule `a*.com` has a `*` that is not its whole first label | write `*.example.com`");
        check("*.*.com", "rule `*.*.com` has a `*` that is not its whole first label | write `*.example.com`");
        check("npmm", "rule `npmm` is neither a preset nor a full host name | did you mean `npm`?");
        check(
            "https://x.io",
            "rule `https://x.io` has a scheme | leave out `https://`; for plain HTTP write `host:80`",
        );
        check(
            "get x.io",
            "rule `get x.io` names the method `get`, which ralph does not know | use one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
        );
        check("x.io:0", "rule `x.io:0` names a port that is not 1 to 65535 | ");
        check("x.io:+80", "rule `x.io:+80` names a port that is not 1 to 65535 | ");
        check("x.io:99999", "rule `x.io:99999` names a port that is not 1 to 65535 | ");
        check(
            "x.io/../y",
            "rule `x.io/../y` has an invalid path | write the path without escapes or a query; `*` may stand for one whole segment",
        );
        check("", "rule `` has no host | write `METHOD host/path`, or only the host");
        check("127.1", "rule `127.1` has an invalid host | write IPv4 as four decimal numbers, IPv6 in brackets");
    }

    #[test]
    fn suffixes_end_at_a_dot() {
        let rule: PolicyRule = "*.example.com".parse().expect("a rule");
        for (host, want) in
            [("a.example.com", true), ("a.b.example.com", true), ("example.com", false), ("evilexample.com", false)]
        {
            assert_eq!(rule.host().matches(host), want, "{host}");
        }
    }

    #[test]
    fn covering() {
        for (wide, narrow, want) in [
            ("*.x.io", "a.x.io", true),
            ("*.x.io", "*.a.x.io", true),
            ("*.x.io", "*.x.io", true),
            ("*.a.x.io", "*.x.io", false),
            ("*.x.io", "x.io", false),
            ("x.io", "x.io:443", true),
            ("x.io", "x.io:80", false),
            ("x.io", "GET x.io/a", true),
            ("GET x.io", "x.io", false),
            ("GET x.io", "HEAD x.io", true),
            ("GET x.io/a/*", "GET x.io/a/b", true),
            ("x.io/a", "x.io", false),
        ] {
            let parse = |text: &str| text.parse::<PolicyRule>().expect("a rule");
            assert_eq!(parse(wide).covers(&parse(narrow)), want, "{wide} over {narrow}");
        }
    }

    /// What the presets allow is tested beside them, in `preset`.
    #[test]
    fn presets_become_rules() {
        for preset in preset::PRESETS {
            let rules = expand(preset.name).expect("a preset's rules parse");
            assert_eq!(rules.iter().map(ToString::to_string).collect::<Vec<_>>(), preset.rules);
        }
        assert_eq!(expand("x.io").map(|rules| rules.len()), Ok(1));
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips(text in "\\PC{0,40}|((GET|PUT) )?(\\*\\.)?[a-c.]{1,9}(:[0-9]{1,5})?(/[ab*/]{0,6})?") {
            if let Ok(rule) = text.parse::<PolicyRule>() {
                prop_assert_eq!(rule.to_string().parse::<PolicyRule>(), Ok(rule.clone()));
                prop_assert!(rule.covers(&rule));
            }
        }
    }
}
