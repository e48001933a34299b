//! The payload of attacks on the way out: a client that says anything to anybody, byte by byte.
//!
//! It is this very program under another name, so that the suite needs no interpreter inside a sandbox. It has no rights
//! of its own, and believes every certificate unless it is told whom to believe: an attacker would.
//!
//! Each word is a step: where to connect to, what to say, what to listen for. The first step that fails ends it.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::search;
use super::socket::{Socket, secure};
use super::words::{is_whole, question, shown, told, unescaped};

/// The name the caller is started under.
pub(super) const NAME: &str = "ralph-caller";

/// Stands between scripts that have nothing to do with one another, and between what was heard in each.
pub(super) const NEXT: &str = "--next--";

const DOOR: &str = "127.0.0.1:3128";
const PATIENCE: Duration = Duration::from_secs(4);
/// The most that is heard at once.
const MOST: usize = 1 << 20;

/// Becomes the caller, if this process was started as one. To be called early in `main`, before any thread.
pub fn entry() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let own = words.next()?;
    if Path::new(&own).file_name()? != NAME {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    // Whoever asked may be gone, and then nobody wants the answer.
    for script in words.split(|word| word == NEXT) {
        let _ = writeln!(io::stdout(), "{}{NEXT}", act(script));
    }
    Some(ExitCode::SUCCESS)
}

/// Takes every step and returns what was heard on the way.
fn act(words: &[String]) -> String {
    if let Some((first, rest)) = words.split_first()
        && let Some(many) = first.strip_prefix("many:").and_then(|many| many.parse::<usize>().ok())
    {
        return together(many, rest);
    }
    let mut caller = Caller::default();
    for word in words {
        match caller.step(word) {
            Ok(true) => (),
            Ok(false) => return caller.said,
            Err(error) => {
                caller.note(&format!("failed at {}: {error}", shown(word.as_bytes())));
                return caller.said;
            }
        }
    }
    caller.note("done");
    caller.said
}

/// Takes the same steps many times at the same moment.
fn together(many: usize, words: &[String]) -> String {
    let running: Vec<_> = (0..many.min(512))
        .map(|_| {
            let words = words.to_vec();
            std::thread::spawn(move || act(&words))
        })
        .collect();
    running.into_iter().filter_map(|thread| thread.join().ok()).collect()
}

#[derive(Debug, Default)]
struct Caller {
    socket: Option<Socket>,
    /// Connections that are kept open and silent.
    kept: Vec<TcpStream>,
    said: String,
}

impl Caller {
    fn note(&mut self, line: &str) {
        self.said.push_str(line);
        self.said.push('\n');
    }

    /// Takes one step; false ends the script without being a failure.
    fn step(&mut self, word: &str) -> io::Result<bool> {
        let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
        match verb {
            "door" => self.socket = Some(Socket::Plain(dial(DOOR)?)),
            "tcp" => self.socket = Some(Socket::Plain(dial(rest)?)),
            "name" => {
                let to = rest.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
                self.note(&format!("address {}", to.ip()));
                self.socket = Some(Socket::Plain(dial(&to.to_string())?));
            }
            "lookup" => {
                let found: Vec<String> = (rest, 0).to_socket_addrs()?.map(|found| found.ip().to_string()).collect();
                self.note(&format!("address {}", found.first().map_or("", String::as_str)));
            }
            "udp" => {
                let any = if rest.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let to = rest.parse().map_err(io::Error::other)?;
                self.socket = Some(Socket::Datagram(UdpSocket::bind(any)?, to));
            }
            "connect" => return self.tunnel(rest),
            "socks" => {
                let (host, port) = rest.rsplit_once(':').ok_or(ErrorKind::InvalidInput)?;
                let host = unescaped(host);
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
            // To be listened for, and to send datagrams.
            "socksbind" => return self.socks(2, &[1, 0, 0, 0, 0], rest),
            "socksudp" => return self.socks(3, &[1, 0, 0, 0, 0], rest),
            "tls" => {
                let mut parts = rest.split(',');
                let (name, believed) = (parts.next().unwrap_or(""), parts.next());
                let later = parts.next().and_then(|later| later.parse().ok()).unwrap_or(0);
                let Some(Socket::Plain(stream)) = self.socket.take() else {
                    return Err(ErrorKind::NotConnected.into());
                };
                let (socket, certificate) = secure(stream, name, believed, later)?;
                self.note(&format!("certificate {certificate}"));
                self.socket = Some(socket);
            }
            "say" => self.socket()?.write(&unescaped(rest))?,
            "pad" => {
                let (many, text) = rest.split_once(':').ok_or(ErrorKind::InvalidInput)?;
                let many = many.parse().map_err(io::Error::other)?;
                self.pad(many, &unescaped(text))?;
            }
            "hear" => {
                let heard = self.hear()?;
                self.note(&format!("heard {}", shown(&heard)));
            }
            "ask" => {
                let (kind, name) = rest.split_once(':').ok_or(ErrorKind::InvalidInput)?;
                let asked = question(kind.parse().map_err(io::Error::other)?, &unescaped(name));
                self.ask(&asked)?;
            }
            "packet" => self.ask(&unescaped(rest))?,
            "keep" => self.keep(rest.parse().map_err(io::Error::other)?),
            "ping" => self.note(&format!("socket {}", ping())),
            "pause" => std::thread::sleep(Duration::from_millis(rest.parse().map_err(io::Error::other)?)),
            "mark" => std::fs::write(rest, "")?,
            "wait" => wait(Path::new(rest))?,
            "search" => self.said.push_str(&search::everywhere(&unescaped(rest))),
            _ => return Err(io::Error::other("this step means nothing")),
        }
        Ok(true)
    }

    fn socket(&mut self) -> io::Result<&mut Socket> {
        self.socket.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Asks the door for a tunnel, in the words of HTTP.
    fn tunnel(&mut self, authority: &str) -> io::Result<bool> {
        let mut stream = dial(DOOR)?;
        let authority = unescaped(authority);
        stream.write_all(&[b"CONNECT ", &authority[..], b" HTTP/1.1\r\nHost: ", &authority, b"\r\n\r\n"].concat())?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 && stream.read(&mut byte)? == 1 {
            head.push(byte[0]);
        }
        self.socket = Some(Socket::Plain(stream));
        if head.starts_with(b"HTTP/1.1 200") {
            return Ok(true);
        }
        let rest = self.hear().unwrap_or_default();
        self.note(&format!("heard {}{}", shown(&head), shown(&rest)));
        Ok(false)
    }

    /// Asks the door for something in the words of SOCKS.
    fn socks(&mut self, command: u8, address: &[u8], port: &str) -> io::Result<bool> {
        let port: u16 = port.parse().map_err(io::Error::other)?;
        let mut stream = dial(DOOR)?;
        stream.write_all(&[5, 1, 0])?;
        let mut hello = [0; 2];
        stream.read_exact(&mut hello)?;
        stream.write_all(&[&[5, command, 0][..], address, &port.to_be_bytes()].concat())?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        self.note(&format!("socks {}", answer[1]));
        self.socket = Some(Socket::Plain(stream));
        Ok(answer[1] == 0)
    }

    /// Says something over and over, until all is said or nobody takes it any more.
    fn pad(&mut self, many: usize, text: &[u8]) -> io::Result<()> {
        let block = text.repeat((1 << 14) / text.len().max(1) + 1);
        let mut left = many.saturating_mul(text.len());
        while left > 0 {
            let piece = block.get(..left.min(block.len())).unwrap_or_default();
            if let Err(error) = self.socket()?.write(piece) {
                self.note(&format!("cut: {error}, {left} bytes unsaid"));
                return Ok(());
            }
            left -= piece.len();
        }
        Ok(())
    }

    /// Listens until the other side is done, an answer is whole, or nothing comes any more.
    fn hear(&mut self) -> io::Result<Vec<u8>> {
        let socket = self.socket()?;
        let mut heard = Vec::new();
        let mut room = [0; 4096];
        while heard.len() < MOST && !is_whole(&heard) {
            match socket.read(&mut room) {
                Ok(0) => break,
                Ok(got) => heard.extend_from_slice(room.get(..got).unwrap_or_default()),
                // A connection that is cut says as much as one that is closed.
                Err(error) if heard.is_empty() && error.kind() != ErrorKind::UnexpectedEof => return Err(error),
                Err(_) => break,
            }
            if matches!(socket, Socket::Datagram(..)) {
                break;
            }
        }
        Ok(heard)
    }

    /// Sends a message to a name server, and notes what it answers.
    fn ask(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        let stream = !matches!(self.socket()?, Socket::Datagram(..));
        let framed = if stream { [&length.to_be_bytes(), message].concat() } else { message.to_vec() };
        let socket = self.socket()?;
        socket.write(&framed)?;
        let mut room = vec![0; 5000];
        let got = socket.read(&mut room)?;
        let answer = room.get(if stream { 2 } else { 0 }..got).unwrap_or_default();
        let line = told(answer);
        self.note(&line);
        Ok(())
    }

    /// Opens connections to the door, says something on each, and keeps those that are answered well.
    fn keep(&mut self, many: usize) {
        let mut refused = 0;
        for _ in 0..many {
            let answer = dial(DOOR).and_then(|mut stream| {
                stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")?;
                let mut start = [0; 12];
                stream.read_exact(&mut start)?;
                Ok((stream, start))
            });
            match answer {
                Ok((stream, start)) if start.ends_with(b"200") => self.kept.push(stream),
                _ => refused += 1,
            }
        }
        let made = self.kept.len();
        self.note(&format!("kept {made} refused {refused}"));
    }
}

fn dial(to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Makes the socket that a ping without rights needs.
fn ping() -> String {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    match socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)) {
        Ok(_) => "made".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Waits for a file, by which the host says that it is time.
fn wait(file: &Path) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(10);
    while !file.exists() {
        if Instant::now() > until {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
