//! The payload of attacks on the egress proxy: a client that sends arbitrary bytes to any address.
//!
//! It is this same program under another name, so that the suite needs no interpreter inside a sandbox. It has no
//! privileges, and trusts every certificate unless it is given a list, as an attacker would.
//!
//! Each argument is a step: where to connect, what to send, what to wait for. The first step that fails ends the
//! script.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::client_codec::{dns_answer_summary, dns_query, is_complete_answer, printable, unescape};
use super::client_socket::{ClientSocket, connect_tls};
use super::leak_search;

/// The name under which the client is started.
pub(super) const PROGRAM_NAME: &str = "ralph-caller";

/// Separates independent scripts, and their outputs.
pub(super) const SCRIPT_SEPARATOR: &str = "--next--";

const PROXY_ADDRESS: &str = "127.0.0.1:3128";
const IO_TIMEOUT: Duration = Duration::from_secs(4);
/// The most bytes read at once.
const READ_CAP: usize = 1 << 20;

/// Runs the client if this process was started as one. Must be called early in `main`, before any thread starts.
pub fn run_if_client() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let own = words.next()?;
    if Path::new(&own).file_name()? != PROGRAM_NAME {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    // The process that started the client may be gone; then the output is not needed.
    for script in words.split(|word| word == SCRIPT_SEPARATOR) {
        let _ = writeln!(io::stdout(), "{}{SCRIPT_SEPARATOR}", run_script(script));
    }
    Some(ExitCode::SUCCESS)
}

/// Runs every step and returns the output.
fn run_script(words: &[String]) -> String {
    if let Some((first, rest)) = words.split_first()
        && let Some(many) = first.strip_prefix("many:").and_then(|many| many.parse::<usize>().ok())
    {
        return run_many(many, rest);
    }
    let mut client = AttackClient::default();
    for word in words {
        match client.step(word) {
            Ok(true) => (),
            Ok(false) => return client.output,
            Err(error) => {
                client.note(&format!("failed at {}: {error}", printable(word.as_bytes())));
                return client.output;
            }
        }
    }
    client.note("done");
    client.output
}

/// Runs the same steps in many threads at once.
fn run_many(many: usize, words: &[String]) -> String {
    let running: Vec<_> = (0..many.min(512))
        .map(|_| {
            let words = words.to_vec();
            std::thread::spawn(move || run_script(&words))
        })
        .collect();
    running.into_iter().filter_map(|thread| thread.join().ok()).collect()
}

#[derive(Debug, Default)]
struct AttackClient {
    socket: Option<ClientSocket>,
    /// Idle connections that are kept open.
    held_connections: Vec<TcpStream>,
    output: String,
}

impl AttackClient {
    fn note(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }

    /// Runs one step; `false` ends the script without a failure.
    fn step(&mut self, word: &str) -> io::Result<bool> {
        let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
        match verb {
            "proxy" => self.socket = Some(ClientSocket::Plain(dial(PROXY_ADDRESS)?)),
            "tcp" => self.socket = Some(ClientSocket::Plain(dial(rest)?)),
            "name" => {
                let to = rest.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
                self.note(&format!("address {}", to.ip()));
                self.socket = Some(ClientSocket::Plain(dial(&to.to_string())?));
            }
            "lookup" => {
                let found: Vec<String> = (rest, 0).to_socket_addrs()?.map(|found| found.ip().to_string()).collect();
                self.note(&format!("address {}", found.first().map_or("", String::as_str)));
            }
            "udp" => {
                let any = if rest.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let to = rest.parse().map_err(io::Error::other)?;
                self.socket = Some(ClientSocket::Datagram(UdpSocket::bind(any)?, to));
            }
            "connect" => return self.tunnel(rest),
            "socks" => {
                let (host, port) = rest.rsplit_once(':').ok_or(ErrorKind::InvalidInput)?;
                let host = unescape(host);
                let length = u8::try_from(host.len()).map_err(io::Error::other)?;
                return self.socks(1, &[&[3, length][..], &host].concat(), port);
            }
            "socksip" => {
                let to: SocketAddr = rest.parse().map_err(io::Error::other)?;
                let address = match to {
                    SocketAddr::V4(v4) => [&[1][..], &v4.ip().octets()].concat(),
                    SocketAddr::V6(v6) => [&[4][..], &v6.ip().octets()].concat(),
                };
                return self.socks(1, &address, &to.port().to_string());
            }
            // To bind a port, and to send datagrams.
            "socksbind" => return self.socks(2, &[1, 0, 0, 0, 0], rest),
            "socksudp" => return self.socks(3, &[1, 0, 0, 0, 0], rest),
            "tls" => {
                let mut parts = rest.split(',');
                let (name, trusted) = (parts.next().unwrap_or(""), parts.next());
                let later = parts.next().and_then(|later| later.parse().ok()).unwrap_or(0);
                let Some(ClientSocket::Plain(stream)) = self.socket.take() else {
                    return Err(ErrorKind::NotConnected.into());
                };
                let (socket, certificate) = connect_tls(stream, name, trusted, later)?;
                self.note(&format!("certificate {certificate}"));
                self.socket = Some(socket);
            }
            "send" => self.socket()?.write(&unescape(rest))?,
            "pad" => {
                let (many, text) = rest.split_once(':').ok_or(ErrorKind::InvalidInput)?;
                let many = many.parse().map_err(io::Error::other)?;
                self.write_repeated(many, &unescape(text))?;
            }
            "receive" => {
                let answer = self.read_answer()?;
                self.note(&format!("received {}", printable(&answer)));
            }
            "ask" => {
                let (kind, name) = rest.split_once(':').ok_or(ErrorKind::InvalidInput)?;
                let asked = dns_query(kind.parse().map_err(io::Error::other)?, &unescape(name));
                self.query_dns(&asked)?;
            }
            "packet" => self.query_dns(&unescape(rest))?,
            "keep" => self.hold_connections(rest.parse().map_err(io::Error::other)?),
            "ping" => self.note(&format!("socket {}", ping())),
            "pause" => std::thread::sleep(Duration::from_millis(rest.parse().map_err(io::Error::other)?)),
            "mark" => std::fs::write(rest, "")?,
            "wait" => wait_for_file(Path::new(rest))?,
            "search" => self.output.push_str(&leak_search::search_everywhere(&unescape(rest))),
            _ => return Err(io::Error::other("unknown step")),
        }
        Ok(true)
    }

    fn socket(&mut self) -> io::Result<&mut ClientSocket> {
        self.socket.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Requests a tunnel from the listener with HTTP `CONNECT`.
    fn tunnel(&mut self, authority: &str) -> io::Result<bool> {
        let mut stream = dial(PROXY_ADDRESS)?;
        let authority = unescape(authority);
        stream.write_all(&[b"CONNECT ", &authority[..], b" HTTP/1.1\r\nHost: ", &authority, b"\r\n\r\n"].concat())?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 && stream.read(&mut byte)? == 1 {
            head.push(byte[0]);
        }
        self.socket = Some(ClientSocket::Plain(stream));
        if head.starts_with(b"HTTP/1.1 200") {
            return Ok(true);
        }
        let rest = self.read_answer().unwrap_or_default();
        self.note(&format!("received {}{}", printable(&head), printable(&rest)));
        Ok(false)
    }

    /// Sends a SOCKS request to the listener.
    fn socks(&mut self, command: u8, address: &[u8], port: &str) -> io::Result<bool> {
        let port: u16 = port.parse().map_err(io::Error::other)?;
        let mut stream = dial(PROXY_ADDRESS)?;
        stream.write_all(&[5, 1, 0])?;
        let mut hello = [0; 2];
        stream.read_exact(&mut hello)?;
        stream.write_all(&[&[5, command, 0][..], address, &port.to_be_bytes()].concat())?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        self.note(&format!("socks {}", answer[1]));
        self.socket = Some(ClientSocket::Plain(stream));
        Ok(answer[1] == 0)
    }

    /// Sends a text repeatedly, until all of it is sent or the peer stops reading.
    fn write_repeated(&mut self, many: usize, text: &[u8]) -> io::Result<()> {
        let block = text.repeat((1 << 14) / text.len().max(1) + 1);
        let mut left = many.saturating_mul(text.len());
        while left > 0 {
            let piece = block.get(..left.min(block.len())).unwrap_or_default();
            if let Err(error) = self.socket()?.write(piece) {
                self.note(&format!("cut: {error}, {left} bytes not sent"));
                return Ok(());
            }
            left -= piece.len();
        }
        Ok(())
    }

    /// Reads until the peer closes, an answer is complete, or nothing more arrives.
    fn read_answer(&mut self) -> io::Result<Vec<u8>> {
        let socket = self.socket()?;
        let mut answer = Vec::new();
        let mut room = [0; 4096];
        while answer.len() < READ_CAP && !is_complete_answer(&answer) {
            match socket.read(&mut room) {
                Ok(0) => break,
                Ok(got) => answer.extend_from_slice(room.get(..got).unwrap_or_default()),
                // A broken connection counts like a closed one.
                Err(error) if answer.is_empty() && error.kind() != ErrorKind::UnexpectedEof => return Err(error),
                Err(_) => break,
            }
            if matches!(socket, ClientSocket::Datagram(..)) {
                break;
            }
        }
        Ok(answer)
    }

    /// Sends a message to a name server, and notes its answer.
    fn query_dns(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        let stream = !matches!(self.socket()?, ClientSocket::Datagram(..));
        let framed = if stream { [&length.to_be_bytes(), message].concat() } else { message.to_vec() };
        let socket = self.socket()?;
        socket.write(&framed)?;
        let mut room = vec![0; 5000];
        let got = socket.read(&mut room)?;
        let answer = room.get(if stream { 2 } else { 0 }..got).unwrap_or_default();
        let line = dns_answer_summary(answer);
        self.note(&line);
        Ok(())
    }

    /// Opens connections to the listener, sends a request on each, and keeps those that get a good answer.
    fn hold_connections(&mut self, many: usize) {
        let mut refused = 0;
        for _ in 0..many {
            let answer = dial(PROXY_ADDRESS).and_then(|mut stream| {
                stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")?;
                let mut start = [0; 12];
                stream.read_exact(&mut start)?;
                Ok((stream, start))
            });
            match answer {
                Ok((stream, start)) if start.ends_with(b"200") => self.held_connections.push(stream),
                _ => refused += 1,
            }
        }
        let made = self.held_connections.len();
        self.note(&format!("kept {made} refused {refused}"));
    }
}

fn dial(to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&to, IO_TIMEOUT)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    Ok(stream)
}

/// Opens the socket that an unprivileged ping needs.
fn ping() -> String {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    match socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)) {
        Ok(_) => "made".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Waits for a file that the host creates as a signal.
fn wait_for_file(file: &Path) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(10);
    while !file.exists() {
        if Instant::now() > until {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
