//! Defines the one spelling of a host name. All code that compares hosts compares the result of [`canonical_host`], so
//! that `GitHub.com.` and `github.com` are one host and `0x7f.1` is none.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::text;

/// The reasons why a text is not a host name that can be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    #[error("the host name is empty")]
    Empty,
    #[error("host `{host}` has an empty label, or one longer than 63 bytes")]
    Label { host: String },
    #[error("host `{host}` is longer than 253 bytes")]
    Long { host: String },
    #[error("host `{host}` has a character that is not a letter, a digit or a dash inside a label")]
    Character { host: String },
    #[error("host `{host}` is an unusual spelling of an address")]
    OddAddress { host: String },
}

impl BadHost {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Character { .. } => Some("write international names in their `xn--` form".to_owned()),
            Self::OddAddress { .. } => Some("write IPv4 as four decimal numbers, IPv6 in brackets".to_owned()),
            Self::Empty | Self::Label { .. } | Self::Long { .. } => None,
        }
    }
}

/// Returns the canonical spelling of a host: lower case, no trailing dot, addresses in their shortest usual form.
///
/// IPv6 is returned in brackets. Addresses that disguise another one (mapped IPv4, zone ids, hex, octal, short forms)
/// are refused, because the program that connects to them may interpret them differently from the one that checked
/// them.
pub fn canonical_host(host: &str) -> Result<String, BadHost> {
    if host.is_empty() || host == "." {
        return Err(BadHost::Empty);
    }
    if host.starts_with('[') || host.contains(':') {
        return canonical_ipv6(host);
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.len() > 253 {
        return Err(BadHost::Long { host: excerpt(host) });
    }
    for label in name.split('.') {
        check_label(label, host)?;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if ends_in_a_number(last) {
        return match name.parse::<Ipv4Addr>() {
            Ok(address) if !host.ends_with('.') => Ok(address.to_string()),
            _ => Err(BadHost::OddAddress { host: excerpt(host) }),
        };
    }
    Ok(name.to_ascii_lowercase())
}

fn check_label(label: &str, host: &str) -> Result<(), BadHost> {
    if label.is_empty() || label.len() > 63 {
        return Err(BadHost::Label { host: excerpt(host) });
    }
    let ldh = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !ldh || label.starts_with('-') || label.ends_with('-') {
        return Err(BadHost::Character { host: excerpt(host) });
    }
    Ok(())
}

/// Returns whether the last label is a number: some resolvers read every such name as an IPv4 address.
fn ends_in_a_number(last: &str) -> bool {
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn canonical_ipv6(host: &str) -> Result<String, BadHost> {
    let odd = || BadHost::OddAddress { host: excerpt(host) };
    let inner = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or_else(odd)?,
        None => host,
    };
    // A dotted quad inside is an IPv4 address in disguise.
    if inner.contains('.') {
        return Err(odd());
    }
    let address: Ipv6Addr = inner.parse().map_err(|_| odd())?;
    let inner_v4 = address.to_ipv4().is_some() && !address.is_loopback() && !address.is_unspecified();
    if inner_v4 { Err(odd()) } else { Ok(format!("[{address}]")) }
}

/// Shortens a host name for a message. It comes from the sandbox, so terminal control characters are removed.
fn excerpt(host: &str) -> String {
    text::strip_control(text::first_line(host, 80))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(host: &str, want: Option<&str>) {
        assert_eq!(canonical_host(host).ok().as_deref(), want, "{host:?}");
    }

    #[test]
    fn names() {
        check("GitHub.com", Some("github.com"));
        check("github.com.", Some("github.com"));
        check("github.com..", None);
        check("", None);
        check(".", None);
        check(".com", None);
        check("a..b", None);
        check("localhost", Some("localhost"));
        check("xn--bcher-kva.example", Some("xn--bcher-kva.example"));
        check("bücher.example", None);
        check("a_b.example", None);
        check("-a.example", None);
        check("a-.example", None);
        check("git\0hub.com", None);
        check("github.com ", None);
        check("user@github.com", None);
        check(&format!("{}.com", "a".repeat(64)), None);
        check(&"a.".repeat(130), None);
    }

    #[test]
    fn addresses() {
        check("127.0.0.1", Some("127.0.0.1"));
        check("127.0.0.1.", None);
        check("127.1", None);
        check("0x7f.1", None);
        check("0x7f000001", None);
        check("2130706433", None);
        check("0177.0.0.1", None);
        check("1.2.3.4.5", None);
        check("example.1", None);
        check("1.example", Some("1.example"));
        check("[::1]", Some("[::1]"));
        check("::1", Some("[::1]"));
        check("[2001:DB8:0::1]", Some("[2001:db8::1]"));
        check("[::ffff:127.0.0.1]", None);
        check("[::ffff:7f00:1]", None);
        check("[::7f00:1]", None);
        check("[fe80::1%eth0]", None);
        check("[::1", None);
        check("::1]", None);
    }

    #[test]
    fn messages_contain_no_control_characters() {
        let error = canonical_host("a\u{1b}[31mb").expect_err("an escape is no letter");
        assert_eq!(
            error.to_string(),
            "host `ab` has a character that is not a letter, a digit or a dash inside a label"
        );
    }

    proptest! {
        #[test]
        fn never_panics_and_is_stable(host in "\\PC{0,40}|[0-9a-fA-Fx.:\\[\\]-]{0,24}") {
            if let Ok(once) = canonical_host(&host) {
                prop_assert_eq!(canonical_host(&once), Ok(once.clone()));
            }
        }
    }
}
