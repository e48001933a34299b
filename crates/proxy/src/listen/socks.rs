//! Serves SOCKS5: a tunnel to a name or an address. Passwords are not supported (the listener identifies the
//! sandbox), nor are UDP and `BIND`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ralph_core::egress::{BadTarget, EgressTarget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connection_context::ConnectionContext;
use crate::egress_events::{DecisionReason, EgressEntry};
use crate::inspect::tunnel;
use crate::wrapped_streams::{ClientStream, write_and_close};

pub(crate) const VERSION: u8 = 5;

const NO_AUTH: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The reply codes that the proxy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum SocksReplyCode {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    CommandUnknown = 7,
    AddressUnknown = 8,
}

/// The result of parsing one step of the handshake from the bytes received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SocksParse<T> {
    /// The step is incomplete.
    Incomplete,
    /// The step is complete and took this many bytes.
    Complete(T, usize),
}

/// The requested target, as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SocksRequest {
    host: String,
    target: Result<EgressTarget, BadTarget>,
    port: u16,
}

/// Serves one client; `bytes` is what it has sent so far.
pub(crate) async fn serve(context: &Arc<ConnectionContext>, mut client: impl ClientStream, mut bytes: Vec<u8>) {
    let requested = match timeout(context.limits.head_time, negotiate(&mut client, &mut bytes)).await {
        Ok(Ok(requested)) => requested,
        Ok(Err(Some(last_reply))) => {
            context.report_refused_text(
                EgressEntry::Socks,
                "",
                0,
                &DecisionReason::Malformed("not a supported SOCKS request"),
            );
            return write_and_close(client, &last_reply).await;
        }
        Ok(Err(None)) => return,
        Err(_) => return context.report_refused_text(EgressEntry::Socks, "", 0, &DecisionReason::ClientTimeout),
    };
    let target = match requested.target {
        Ok(target) => target,
        Err(bad) => {
            context.report_refused_text(
                EgressEntry::Socks,
                &requested.host,
                requested.port,
                &DecisionReason::Target(bad),
            );
            return write_and_close(client, &reply_bytes(SocksReplyCode::NotAllowed)).await;
        }
    };
    match tunnel::prepare(context, EgressEntry::Socks, &target).await {
        Ok(ready) => {
            if client.write_all(&reply_bytes(SocksReplyCode::Succeeded)).await.is_ok() {
                let client = crate::wrapped_streams::PrefixedStream::new(bytes, client);
                tunnel::serve(context, EgressEntry::Socks, &target, ready, client).await;
            }
        }
        Err(refused) => {
            let code = match refused.why {
                DecisionReason::Unresolved => SocksReplyCode::HostUnreachable,
                DecisionReason::Unreachable => SocksReplyCode::Refused,
                _ => SocksReplyCode::NotAllowed,
            };
            write_and_close(client, &reply_bytes(code)).await;
        }
    }
}

/// Negotiates until the client has named its target. What it sent beyond that stays in `bytes`. The error is the last
/// reply to send, if the client is still connected.
async fn negotiate(client: &mut impl ClientStream, bytes: &mut Vec<u8>) -> Result<SocksRequest, Option<Vec<u8>>> {
    let accepted = read_message(client, bytes, |bytes| Ok(parse_greeting(bytes))).await?;
    if !accepted {
        return Err(Some(vec![VERSION, NO_METHOD]));
    }
    client.write_all(&[VERSION, NO_AUTH]).await.map_err(|_| None)?;
    read_message(client, bytes, parse_request).await
}

async fn read_message<T>(
    client: &mut impl ClientStream,
    bytes: &mut Vec<u8>,
    step: impl Fn(&[u8]) -> Result<SocksParse<T>, SocksReplyCode>,
) -> Result<T, Option<Vec<u8>>> {
    loop {
        match step(bytes) {
            Ok(SocksParse::Complete(value, length)) => {
                bytes.drain(..length.min(bytes.len()));
                return Ok(value);
            }
            // Every step is shorter than 263 bytes, so this ends.
            Ok(SocksParse::Incomplete) => match client.read_buf(bytes).await {
                Ok(0) | Err(_) => return Err(None),
                Ok(_) => (),
            },
            Err(code) => return Err(Some(reply_bytes(code))),
        }
    }
}

/// Parses the greeting, and says whether the client accepts to go without a password.
fn parse_greeting(bytes: &[u8]) -> SocksParse<bool> {
    let [version, count, rest @ ..] = bytes else { return SocksParse::Incomplete };
    match rest.get(..usize::from(*count)) {
        Some(methods) => SocksParse::Complete(*version == VERSION && methods.contains(&NO_AUTH), methods.len() + 2),
        None => SocksParse::Incomplete,
    }
}

fn parse_request(bytes: &[u8]) -> Result<SocksParse<SocksRequest>, SocksReplyCode> {
    let [version, command, reserved, kind, rest @ ..] = bytes else { return Ok(SocksParse::Incomplete) };
    if *version != VERSION || *reserved != 0 {
        return Err(SocksReplyCode::Failed);
    }
    if *command != CONNECT {
        return Err(SocksReplyCode::CommandUnknown);
    }
    let (before, length) = match (kind, rest.first()) {
        (1, _) => (0, 4),
        (3, Some(length)) => (1, usize::from(*length)),
        (3, None) => return Ok(SocksParse::Incomplete),
        (4, _) => (0, 16),
        _ => return Err(SocksReplyCode::AddressUnknown),
    };
    let Some(host) = rest.get(before..before + length) else { return Ok(SocksParse::Incomplete) };
    let Some([high, low]) = rest.get(before + length..before + length + 2) else { return Ok(SocksParse::Incomplete) };
    let port = u16::from_be_bytes([*high, *low]);
    Ok(SocksParse::Complete(socks_request(host, *kind, port), 4 + before + length + 2))
}

fn socks_request(host: &[u8], kind: u8, port: u16) -> SocksRequest {
    let text = match kind {
        1 => <[u8; 4]>::try_from(host).ok().map(|octets| Ipv4Addr::from(octets).to_string()),
        4 => <[u8; 16]>::try_from(host).ok().map(|octets| Ipv6Addr::from(octets).to_string()),
        _ => std::str::from_utf8(host).ok().filter(|host| host.is_ascii()).map(str::to_owned),
    };
    match text {
        Some(host) => SocksRequest { target: EgressTarget::new(&host, port), host, port },
        None => SocksRequest { target: Err(BadTarget::Text), host: String::from_utf8_lossy(host).into_owned(), port },
    }
}

/// Parses a greeting and then a request: how many bytes each took, and the target if there is one. `None` as long as
/// something is missing.
pub fn parse_handshake(bytes: &[u8]) -> Option<(usize, usize, Option<EgressTarget>)> {
    let SocksParse::Complete(_, greeted) = parse_greeting(bytes) else { return None };
    match parse_request(bytes.get(greeted..)?) {
        Ok(SocksParse::Complete(requested, asked)) => Some((greeted, asked, requested.target.ok())),
        Ok(SocksParse::Incomplete) => None,
        Err(_) => Some((greeted, 0, None)),
    }
}

/// Serializes a reply. The address in it is zero: the proxy's own is of no concern to the client.
fn reply_bytes(code: SocksReplyCode) -> Vec<u8> {
    vec![VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(host: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, 3, u8::try_from(host.len()).unwrap()], host, &port.to_be_bytes()].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], want: Result<Option<&str>, SocksReplyCode>) {
        let got = match parse_request(bytes) {
            Ok(SocksParse::Complete(requested, length)) => {
                assert_eq!(length, bytes.len());
                Ok(requested.target.ok().map(|target| target.to_string()))
            }
            Ok(SocksParse::Incomplete) => panic!("{bytes:?} is all there is"),
            Err(code) => Err(code),
        };
        assert_eq!(got.as_ref().map(Option::as_deref), want.as_ref().map(|want| *want), "{bytes:?}");
        for n in 0..bytes.len() {
            assert!(
                matches!(parse_request(&bytes[..n]), Ok(SocksParse::Incomplete)) || want.is_err(),
                "{:?}",
                &bytes[..n]
            );
        }
    }

    #[test]
    fn requests_are_parsed() {
        check(&named(b"X.io.", 443), Ok(Some("x.io:443")));
        check(&[5, 1, 0, 1, 1, 1, 1, 1, 0, 80], Ok(Some("1.1.1.1:80")));
        let v6 = Ipv6Addr::LOCALHOST.octets();
        check(&[&[5, 1, 0, 4][..], &v6, &[0, 80]].concat(), Ok(Some("[::1]:80")));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        check(&[&[5, 1, 0, 4][..], &mapped, &[0, 80]].concat(), Ok(None));
        for bad in [&b""[..], b"evil\0.x.io", b"x.io\0", b"a@x.io", b"x.io:443", b"0x7f.1", b"\xff.io", b"2130706433"] {
            check(&named(bad, 443), Ok(None));
        }
        check(&named(b"x.io", 0), Ok(None));
        check(&[5, 2, 0, 1], Err(SocksReplyCode::CommandUnknown));
        check(&[5, 3, 0, 1], Err(SocksReplyCode::CommandUnknown));
        check(&[5, 1, 0, 2], Err(SocksReplyCode::AddressUnknown));
        check(&[5, 1, 1, 1], Err(SocksReplyCode::Failed));
        check(&[4, 1, 0, 1], Err(SocksReplyCode::Failed));
    }

    #[test]
    fn greetings_are_parsed() {
        for (bytes, want) in [
            (&[5, 1, 0][..], SocksParse::Complete(true, 3)),
            (&[5, 2, 2, 0, 9], SocksParse::Complete(true, 4)),
            (&[5, 1, 2], SocksParse::Complete(false, 3)),
            (&[5, 0], SocksParse::Complete(false, 2)),
            (&[5, 2, 0], SocksParse::Incomplete),
            (&[5], SocksParse::Incomplete),
            (&[4, 1, 0], SocksParse::Complete(false, 3)),
        ] {
            assert_eq!(parse_greeting(bytes), want, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse_greeting(&bytes);
            drop(parse_request(&bytes));
            if let Ok(SocksParse::Complete(_, length)) = parse_request(&[&[5, 1, 0, 3][..], &bytes].concat()) {
                prop_assert!(length <= bytes.len() + 4);
            }
        }
    }
}
