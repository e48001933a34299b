//! Parses the target of a connection: one canonical host and a port.
//!
//! An [`EgressTarget`] exists only in canonical form, and the same value is decided, resolved, dialled, compared and
//! logged. [`canonical_host`] defines the spelling.

use core::net::IpAddr;
use std::fmt;

use crate::policy::{BadHost, canonical_host};
use crate::text;

pub const HTTP_PORT: u16 = 80;
pub const HTTPS_PORT: u16 = 443;

/// A host in canonical spelling, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EgressTarget {
    host: String,
    port: u16,
}

/// Why a text names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error(transparent)]
    Host(#[from] BadHost),
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("the target has a user name in it")]
    User,
    #[error("the target is not ASCII text")]
    Text,
}

impl EgressTarget {
    pub fn new(host: &str, port: u16) -> Result<Self, BadTarget> {
        if port == 0 {
            return Err(BadTarget::Port);
        }
        Ok(Self { host: canonical_host(host)?, port })
    }

    /// Parses `host:port` as written in a request; `usual` is the port of a text without one.
    pub fn parse_authority(text: &str, usual: Option<u16>) -> Result<Self, BadTarget> {
        if !text.is_ascii() {
            return Err(BadTarget::Text);
        }
        if text.contains('@') {
            return Err(BadTarget::User);
        }
        // Without brackets the port cannot be told from the last group of an IPv6 address.
        let port_at = match text.rfind(']') {
            Some(end) => text.get(end + 1..).filter(|rest| !rest.is_empty()).map(|_| end + 1),
            None if text.matches(':').count() > 1 => return Err(BadTarget::Port),
            None => text.find(':'),
        };
        let (host, port) = match port_at {
            Some(at) => (text.get(..at), text.get(at..).and_then(parse_port)),
            None => (Some(text), usual),
        };
        Self::new(host.unwrap_or_default(), port.ok_or(BadTarget::Port)?)
    }

    /// Returns the target that an address literal names. An address that embeds another one becomes that one.
    pub fn from_address(address: IpAddr, port: u16) -> Self {
        let host = match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        Self { host, port }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, if the host is one and not a name.
    pub fn ip_address(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// Returns the rule that allows this target and nothing else.
    pub fn allow_rule(&self) -> String {
        if self.port == HTTPS_PORT { self.host.clone() } else { self.to_string() }
    }

    /// Returns the value of a `Host` header of a request, over TLS or not.
    pub fn host_header(&self, tls: bool) -> String {
        if self.port == if tls { HTTPS_PORT } else { HTTP_PORT } { self.host.clone() } else { self.to_string() }
    }
}

impl fmt::Display for EgressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(':')?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// Returns what a client wrote as a host, shortened, without a password and without terminal control characters.
pub fn printable_host(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    text::strip_control(text::first_line(host, 80))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, usual: Option<u16>, want: Option<&str>) {
        let got = EgressTarget::parse_authority(text, usual).map(|target| target.to_string());
        assert_eq!(got.as_deref().ok(), want, "{text:?} {got:?}");
    }

    #[test]
    fn authorities_are_canonical_or_refused() {
        check("X.io:443", None, Some("x.io:443"));
        check("x.io.:443", None, Some("x.io:443"));
        check("x.io", None, None);
        check("x.io", Some(80), Some("x.io:80"));
        check("[::1]:80", None, Some("[::1]:80"));
        check("[::1]", Some(80), Some("[::1]:80"));
        for bad in [
            "",
            ":80",
            "x.io:",
            "x.io:0",
            "x.io:080",
            "x.io:+80",
            "x.io:65536",
            "x.io:80:80",
            "::1:80",
            "[::1]80",
            "[::1]:80]",
            "user@x.io:80",
            "x.io:80@evil.io",
            "x.io:80/",
            "x.io\0:80",
            "x.io :80",
            "bücher.io:80",
            "[::ffff:127.0.0.1]:80",
            "0x7f.1:80",
            "2130706433:80",
        ] {
            check(bad, Some(80), None);
        }
    }

    #[test]
    fn address_literals() {
        for (host, want) in
            [("127.0.0.1", Some("127.0.0.1")), ("[2001:DB8::1]", Some("2001:db8::1")), ("x.io", None), ("1.io", None)]
        {
            let literal = EgressTarget::new(host, 443).unwrap().ip_address();
            assert_eq!(literal.map(|address| address.to_string()).as_deref(), want);
        }
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(EgressTarget::from_address(mapped, 443).allow_rule(), "10.0.0.1");
    }

    #[test]
    fn a_printable_host_has_no_password() {
        assert_eq!(printable_host("user:word@x.io:80"), "x.io:80");
        assert_eq!(printable_host("a\u{1b}[31mb\nc"), "ab");
    }

    proptest! {
        #[test]
        fn never_panics_and_is_stable(text in "\\PC{0,40}|[a-c0-9.:@\\[\\]]{0,20}", usual in any::<Option<u16>>()) {
            if let Ok(target) = EgressTarget::parse_authority(&text, usual) {
                prop_assert_eq!(EgressTarget::parse_authority(&target.to_string(), None), Ok(target));
            }
        }
    }
}
