//! SOCKS5: a tunnel to a name or an address. No passwords (the door itself says who is calling), no UDP, no listening.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::notice::{Entry, Why};
use crate::pipeline::Pipeline;
use crate::stream::{Client, say_and_close};
use crate::target::{BadTarget, Target};
use crate::tunnel;

pub(crate) const VERSION: u8 = 5;

const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The answers of the protocol that we give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Code {
    Yes = 0,
    Failed = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    CommandUnknown = 7,
    AddressUnknown = 8,
}

/// A part of the conversation, read from the bytes that came so far.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step<T> {
    /// Not all of it is here.
    More,
    /// It is here, and took so many bytes.
    Done(T, usize),
}

/// Where a client wants to go, as it wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    host: String,
    target: Result<Target, BadTarget>,
    port: u16,
}

/// Serves one client; `bytes` is what it said so far.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, mut client: impl Client, mut bytes: Vec<u8>) {
    let wish = match timeout(pipeline.limits.head_time, converse(&mut client, &mut bytes)).await {
        Ok(Ok(wish)) => wish,
        Ok(Err(Some(farewell))) => {
            pipeline.refused_text(Entry::Socks, "", 0, &Why::Malformed("not a SOCKS request that is carried"));
            return say_and_close(client, &farewell).await;
        }
        Ok(Err(None)) => return,
        Err(_) => return pipeline.refused_text(Entry::Socks, "", 0, &Why::Slow),
    };
    let target = match wish.target {
        Ok(target) => target,
        Err(bad) => {
            pipeline.refused_text(Entry::Socks, &wish.host, wish.port, &Why::Target(bad));
            return say_and_close(client, &answer(Code::NotAllowed)).await;
        }
    };
    match tunnel::ask(pipeline, Entry::Socks, &target).await {
        Ok(ready) => {
            if client.write_all(&answer(Code::Yes)).await.is_ok() {
                let client = crate::stream::Rewound::new(bytes, client);
                tunnel::carry(pipeline, Entry::Socks, &target, ready, client).await;
            }
        }
        Err(refused) => {
            let code = match refused.why {
                Why::Unresolved => Code::HostUnreachable,
                Why::Unreachable => Code::Refused,
                _ => Code::NotAllowed,
            };
            say_and_close(client, &answer(code)).await;
        }
    }
}

/// Talks until the client has said where it wants to go. What it said beyond that stays in `bytes`. The error is the
/// last thing to tell it, if it is still there.
async fn converse(client: &mut impl Client, bytes: &mut Vec<u8>) -> Result<Wish, Option<Vec<u8>>> {
    let accepted = await_step(client, bytes, |bytes| Ok(greeting(bytes))).await?;
    if !accepted {
        return Err(Some(vec![VERSION, NO_METHOD]));
    }
    client.write_all(&[VERSION, NO_PASSWORD]).await.map_err(|_| None)?;
    await_step(client, bytes, request).await
}

async fn await_step<T>(
    client: &mut impl Client,
    bytes: &mut Vec<u8>,
    step: impl Fn(&[u8]) -> Result<Step<T>, Code>,
) -> Result<T, Option<Vec<u8>>> {
    loop {
        match step(bytes) {
            Ok(Step::Done(value, length)) => {
                bytes.drain(..length.min(bytes.len()));
                return Ok(value);
            }
            // Every step is shorter than 263 bytes, so this ends.
            Ok(Step::More) => match client.read_buf(bytes).await {
                Ok(0) | Err(_) => return Err(None),
                Ok(_) => (),
            },
            Err(code) => return Err(Some(answer(code))),
        }
    }
}

/// Reads the greeting: does the client go without a password?
fn greeting(bytes: &[u8]) -> Step<bool> {
    let [version, count, rest @ ..] = bytes else { return Step::More };
    match rest.get(..usize::from(*count)) {
        Some(methods) => Step::Done(*version == VERSION && methods.contains(&NO_PASSWORD), methods.len() + 2),
        None => Step::More,
    }
}

fn request(bytes: &[u8]) -> Result<Step<Wish>, Code> {
    let [version, command, reserved, kind, rest @ ..] = bytes else { return Ok(Step::More) };
    if *version != VERSION || *reserved != 0 {
        return Err(Code::Failed);
    }
    if *command != CONNECT {
        return Err(Code::CommandUnknown);
    }
    let (before, length) = match (kind, rest.first()) {
        (1, _) => (0, 4),
        (3, Some(length)) => (1, usize::from(*length)),
        (3, None) => return Ok(Step::More),
        (4, _) => (0, 16),
        _ => return Err(Code::AddressUnknown),
    };
    let Some(host) = rest.get(before..before + length) else { return Ok(Step::More) };
    let Some([high, low]) = rest.get(before + length..before + length + 2) else { return Ok(Step::More) };
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Step::Done(wish(host, *kind, port), 4 + before + length + 2))
}

fn wish(host: &[u8], kind: u8, port: u16) -> Wish {
    let text = match kind {
        1 => <[u8; 4]>::try_from(host).ok().map(|octets| Ipv4Addr::from(octets).to_string()),
        4 => <[u8; 16]>::try_from(host).ok().map(|octets| Ipv6Addr::from(octets).to_string()),
        _ => std::str::from_utf8(host).ok().filter(|host| host.is_ascii()).map(str::to_owned),
    };
    match text {
        Some(host) => Wish { target: Target::new(&host, port), host, port },
        None => Wish { target: Err(BadTarget::Text), host: String::from_utf8_lossy(host).into_owned(), port },
    }
}

/// Reads a greeting and then a request: how many bytes each took, and the target if there is one. Nothing as long as
/// something is missing.
pub fn read(bytes: &[u8]) -> Option<(usize, usize, Option<Target>)> {
    let Step::Done(_, greeted) = greeting(bytes) else { return None };
    match request(bytes.get(greeted..)?) {
        Ok(Step::Done(wish, asked)) => Some((greeted, asked, wish.target.ok())),
        Ok(Step::More) => None,
        Err(_) => Some((greeted, 0, None)),
    }
}

/// Writes an answer. The address in it is nobody's: ours is not the client's business.
fn answer(code: Code) -> Vec<u8> {
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
    fn check(bytes: &[u8], want: Result<Option<&str>, Code>) {
        let got = match request(bytes) {
            Ok(Step::Done(wish, length)) => {
                assert_eq!(length, bytes.len());
                Ok(wish.target.ok().map(|target| target.to_string()))
            }
            Ok(Step::More) => panic!("{bytes:?} is all there is"),
            Err(code) => Err(code),
        };
        assert_eq!(got.as_ref().map(Option::as_deref), want.as_ref().map(|want| *want), "{bytes:?}");
        for n in 0..bytes.len() {
            assert!(matches!(request(&bytes[..n]), Ok(Step::More)) || want.is_err(), "{:?}", &bytes[..n]);
        }
    }

    #[test]
    fn requests() {
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
        check(&[5, 2, 0, 1], Err(Code::CommandUnknown));
        check(&[5, 3, 0, 1], Err(Code::CommandUnknown));
        check(&[5, 1, 0, 2], Err(Code::AddressUnknown));
        check(&[5, 1, 1, 1], Err(Code::Failed));
        check(&[4, 1, 0, 1], Err(Code::Failed));
    }

    #[test]
    fn greetings() {
        for (bytes, want) in [
            (&[5, 1, 0][..], Step::Done(true, 3)),
            (&[5, 2, 2, 0, 9], Step::Done(true, 4)),
            (&[5, 1, 2], Step::Done(false, 3)),
            (&[5, 0], Step::Done(false, 2)),
            (&[5, 2, 0], Step::More),
            (&[5], Step::More),
            (&[4, 1, 0], Step::Done(false, 3)),
        ] {
            assert_eq!(greeting(bytes), want, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            greeting(&bytes);
            drop(request(&bytes));
            if let Ok(Step::Done(_, length)) = request(&[&[5, 1, 0, 3][..], &bytes].concat()) {
                prop_assert!(length <= bytes.len() + 4);
            }
        }
    }
}
