//! Reads the server name from a TLS ClientHello, and nothing else.
//!
//! This is not a TLS implementation: it follows the lengths of records, handshake and extensions, and rejects
//! anything inconsistent. A hello may come in many records and many packets; a name may come only once.

/// The longest hello, records included. Post-quantum hellos are about two thousand bytes long.
pub(crate) const MAX_HELLO: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const MAX_RECORD: usize = 1 << 14;

/// The result of reading the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientHello {
    /// An incomplete hello.
    Incomplete,
    /// Not the beginning of a TLS connection.
    NotTls,
    /// It began like a hello and then was inconsistent.
    Malformed,
    /// A complete hello, with the server name it asks for.
    Complete(Option<String>),
}

/// Parses what a client has sent so far.
pub(crate) fn read(bytes: &[u8]) -> ClientHello {
    match bytes {
        [] | [HANDSHAKE] => return ClientHello::Incomplete,
        [HANDSHAKE, 3, ..] => (),
        _ => return ClientHello::NotTls,
    }
    match assemble_handshake(bytes) {
        Ok(Some(hello)) => server_name_extensions(&hello)
            .and_then(|names| single_server_name(&names))
            .unwrap_or(ClientHello::Malformed),
        Ok(None) if bytes.len() <= MAX_HELLO => ClientHello::Incomplete,
        Ok(None) | Err(MalformedHello) => ClientHello::Malformed,
    }
}

struct MalformedHello;

/// Assembles the hello from its records; `None` as long as some of it is missing.
fn assemble_handshake(bytes: &[u8]) -> Result<Option<Vec<u8>>, MalformedHello> {
    let mut records = HelloReader(bytes);
    let mut message = Vec::new();
    while !records.0.is_empty() {
        let Some(kind) = records.u8() else { return Ok(None) };
        let Some(version) = records.u16() else {
            return if kind == HANDSHAKE { Ok(None) } else { Err(MalformedHello) };
        };
        if kind != HANDSHAKE || version >> 8 != 3 {
            return Err(MalformedHello);
        }
        let Some(length) = records.u16().map(usize::from) else { return Ok(None) };
        if length == 0 || length > MAX_RECORD {
            return Err(MalformedHello);
        }
        let whole = records.0.len() >= length;
        message.extend_from_slice(records.take(length.min(records.0.len())).unwrap_or_default());
        let mut head = HelloReader(&message);
        let (kind, length) = (head.u8(), head.u24());
        if kind.is_some_and(|kind| kind != CLIENT_HELLO) || length.is_some_and(|length| length > MAX_HELLO) {
            return Err(MalformedHello);
        }
        let Some(length) = length else {
            if whole {
                continue;
            }
            return Ok(None);
        };
        // What follows the hello in its own record cannot be interpreted, so it is rejected.
        match head.0.len().cmp(&length) {
            std::cmp::Ordering::Less => (),
            std::cmp::Ordering::Equal if whole => return Ok(Some(head.0.to_vec())),
            std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => return Err(MalformedHello),
        }
    }
    Ok(None)
}

/// Returns the server name extensions of a hello; `None` if the hello is malformed.
fn server_name_extensions(hello: &[u8]) -> Option<Vec<&[u8]>> {
    let mut hello = HelloReader(hello);
    let (_version, _random) = (hello.u16()?, hello.take(32)?);
    let (_session, _suites, _compressions) = (hello.vector8()?, hello.vector16()?, hello.vector8()?);
    if hello.0.is_empty() {
        return Some(Vec::new());
    }
    let mut extensions = HelloReader(hello.vector16()?);
    if !hello.0.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.u16()?, extensions.vector16()?);
        if kind == SERVER_NAME {
            found.push(content);
        }
    }
    Some(found)
}

/// Returns the hello with its server name. Two names are malformed: they would be two answers to one question.
fn single_server_name(extensions: &[&[u8]]) -> Option<ClientHello> {
    match extensions {
        [] => Some(ClientHello::Complete(None)),
        [extension] => parse_server_name(extension).map(|name| ClientHello::Complete(Some(name))),
        _ => None,
    }
}

fn parse_server_name(extension: &[u8]) -> Option<String> {
    let mut extension = HelloReader(extension);
    let mut names = HelloReader(extension.vector16()?);
    let (kind, name) = (names.u8()?, names.vector16()?);
    if kind != HOST_NAME || !names.0.is_empty() || !extension.0.is_empty() || !name.is_ascii() {
        return None;
    }
    String::from_utf8(name.to_vec()).ok()
}

struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u24(&mut self) -> Option<usize> {
        self.take(3).map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let n = self.u8()?;
        self.take(n.into())
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let n = self.u16()?;
        self.take(n.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
    }

    fn server_name(name: &str) -> Vec<u8> {
        let entry = [&[HOST_NAME][..], &vector16(name.as_bytes())].concat();
        [&SERVER_NAME.to_be_bytes()[..], &vector16(&vector16(&entry))].concat()
    }

    fn handshake(extensions: &[u8]) -> Vec<u8> {
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &vector16(extensions)].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vector16(part)].concat()).collect()
    }

    /// Returns a hello as a client sends it.
    pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
        // A session ticket and GREASE surround the name.
        let around = [0, 35, 0, 0];
        let grease = [0x0a, 0x0a, 0, 1, 0];
        let name = name.map(server_name).unwrap_or_default();
        records(&handshake(&[&grease[..], &name, &around].concat()), 4096)
    }

    #[track_caller]
    fn check(bytes: &[u8], want: &ClientHello) {
        assert_eq!(read(bytes), *want);
    }

    #[test]
    fn complete_hellos_are_read() {
        check(&hello(Some("x.io")), &ClientHello::Complete(Some("x.io".to_owned())));
        check(&hello(None), &ClientHello::Complete(None));
        let message = handshake(&server_name("x.io"));
        for size in 1..message.len() {
            check(&records(&message, size), &ClientHello::Complete(Some("x.io".to_owned())));
        }
        let bare = [&[CLIENT_HELLO, 0, 0, 41, 3, 1][..], &[7; 32], &[0], &[0, 2, 0, 1], &[1, 0]].concat();
        check(&records(&bare, 4096), &ClientHello::Complete(None));
    }

    #[test]
    fn an_incomplete_hello_is_not_decided() {
        for bytes in [hello(Some("x.io")), records(&handshake(&server_name("x.io")), 7)] {
            for n in 0..bytes.len() {
                check(&bytes[..n], &ClientHello::Incomplete);
            }
        }
    }

    #[test]
    fn other_protocols_are_not_tls() {
        for other in [&b"SSH-2.0-x"[..], b"GET / HTTP/1.1\r\n", &[0], &[HANDSHAKE, 2], &[0x80, 0x2e, 1, 3, 1], &[21, 3]]
        {
            check(other, &ClientHello::NotTls);
        }
    }

    #[test]
    fn inconsistent_hellos_are_malformed() {
        let twice = [server_name("x.io"), server_name("x.io")].concat();
        let entry = [&[HOST_NAME][..], &vector16(b"x.io")].concat();
        let two_names = [&[0, 0][..], &vector16(&vector16(&[&entry[..], &entry].concat()))].concat();
        let tail = [&[0, 0][..], &vector16(&[&vector16(&entry)[..], &[0]].concat())].concat();
        for extensions in [&twice[..], &two_names, &tail, &[0, 0, 0, 9], &[0, 0, 0, 0], &[1]] {
            check(&records(&handshake(extensions), 4096), &ClientHello::Malformed);
        }
        check(&[HANDSHAKE, 3, 1, 0, 0], &ClientHello::Malformed);
        check(&[HANDSHAKE, 3, 1, 0xff, 0xff], &ClientHello::Malformed);
        check(&[HANDSHAKE, 3, 1, 0, 4, 2], &ClientHello::Malformed);
        check(&[HANDSHAKE, 3, 1, 0, 4, CLIENT_HELLO, 0xff, 0, 0], &ClientHello::Malformed);
        check(&[&hello(None)[..9], &[23, 3, 3]].concat(), &ClientHello::Incomplete);
        let split = records(&handshake(&server_name("x.io")), 20);
        check(&[&split[..25], &[23, 3, 3]].concat(), &ClientHello::Malformed);
        let mut trailing = handshake(&server_name("x.io"));
        trailing.push(0);
        check(&records(&trailing, 4096), &ClientHello::Malformed);
        let endless: Vec<u8> = records(&[&[CLIENT_HELLO, 0, 0x40, 0][..], &[0; 16_000]].concat(), 1);
        check(&endless, &ClientHello::Malformed);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
            read(&records(&bytes, 50));
            read(&records(&handshake(&bytes), 50));
        }

        #[test]
        fn one_changed_byte_yields_no_other_name(at in 0..200usize, to: u8) {
            let mut bytes = hello(Some("allowed.test"));
            let n = bytes.len();
            bytes[at % n] = to;
            read(&bytes);
        }

        #[test]
        fn written_names_are_read_back(name in "[a-z0-9.-]{1,80}", size in 1..200usize) {
            let bytes = records(&handshake(&server_name(&name)), size);
            prop_assert_eq!(read(&bytes), ClientHello::Complete(Some(name)));
        }
    }
}
