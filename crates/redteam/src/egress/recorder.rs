//! Runs the servers of the fake network: they record every message as it arrived, and echo what an attack on
//! credentials could use.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fake_network::{NetworkTrace, RecordedMessage, lock};

/// The longest message that is recorded.
const MESSAGE_CAP: usize = 1 << 20;

/// Serves connections until the task is aborted.
pub(super) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, happened: Arc<Mutex<NetworkTrace>>) {
    let mut all = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, happened) = (tls.clone(), Arc::clone(&happened));
        all.spawn(async move {
            match tls {
                None => record_connection(stream, None, &happened).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        let name = stream.get_ref().1.server_name().map(str::to_owned);
                        record_connection(stream, name, &happened).await;
                    }
                    // The client did not trust the certificate, or it was not TLS: the dial is already recorded.
                    Err(error) => tracing::debug!(%error, "no TLS at a recorder"),
                },
            }
        });
        while all.try_join_next().is_some() {}
    }
}

/// Records datagrams until the task is aborted.
pub(super) async fn record_datagrams(socket: UdpSocket, happened: Arc<Mutex<NetworkTrace>>) {
    let mut room = [0; 2048];
    while let Ok((got, from)) = socket.recv_from(&mut room).await {
        let text = String::from_utf8_lossy(room.get(..got).unwrap_or_default()).into_owned();
        lock(&happened).messages.push(RecordedMessage { name: None, text });
        // The sender may already be gone.
        socket.send_to(b"received", from).await.ok();
    }
}

async fn record_connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    name: Option<String>,
    happened: &Mutex<NetworkTrace>,
) {
    let mut bytes = Vec::new();
    loop {
        let Some(message) = read_message(&mut stream, &mut bytes).await else { return };
        let text = String::from_utf8_lossy(&message).into_owned();
        lock(happened).messages.push(RecordedMessage { name: name.clone(), text: text.clone() });
        if write_answer(&mut stream, &text).await.is_err() {
            return;
        }
    }
}

/// Reads one request with its body, or any other message.
async fn read_message(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(length) = message_length(bytes) {
            return Some(bytes.drain(..length).collect());
        }
        match stream.read_buf(bytes).await {
            Ok(1..) if bytes.len() < MESSAGE_CAP => (),
            // An incomplete message is recorded as well.
            _ if !bytes.is_empty() => return Some(std::mem::take(bytes)),
            _ => return None,
        }
    }
}

/// Returns the length of the message at the beginning, if it is complete.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let request = bytes.first()?.is_ascii_uppercase() && bytes.get(..32).is_none_or(|start| start.contains(&b' '));
    if !request || bytes.starts_with(b"SSH-") {
        return Some(bytes.len());
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase();
    let body = bytes.get(end..)?;
    if head.contains("transfer-encoding: chunked") {
        return body.windows(5).position(|five| five == b"0\r\n\r\n").map(|at| end + at + 5);
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let whole = end + length.unwrap_or(0);
    (bytes.len() >= whole).then_some(whole)
}

/// Returns the credential in a request.
fn credential(request: &str) -> &str {
    let value = request.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        ["x-api-key", "authorization"].contains(&name.to_ascii_lowercase().as_str()).then_some(value)
    });
    value.unwrap_or("none").trim_start_matches("Bearer ").trim_start_matches("Basic ")
}

/// Returns the output tokens that a call allows.
pub(super) fn granted_tokens(request: &str) -> Option<u64> {
    let (_, rest) = request.split_once("\"max_tokens\":")?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

async fn write_answer(stream: &mut (impl AsyncWrite + Unpin), request: &str) -> io::Result<()> {
    let path = request.split(' ').nth(1).unwrap_or("");
    let secret = credential(request);
    let plain =
        |head: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    // The path selects the answer, or the query where the path is fixed.
    let selector = path.split_once('?').map_or(path, |(_, query)| query);
    let text = match selector {
        "/v1/messages" if request.starts_with("POST") => {
            // Slow enough for parallel calls to arrive meanwhile; every granted token is used.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let used = granted_tokens(request).unwrap_or(0);
            let body = format!(
                r#"{{"id":"m","type":"message","role":"assistant","model":"canary-model","content":[{{"type":"text","text":"hello"}}],"stop_reason":"end_turn","usage":{{"input_tokens":10,"output_tokens":{used}}}}}"#
            );
            plain("Content-Type: application/json\r\n", &body)
        }
        "/echo" => plain("", request),
        "/base64" => plain("", &BASE64.encode(format!("xy{secret}"))),
        "/url" => plain(
            "",
            &secret.bytes().fold(String::new(), |mut out, byte| {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    out.push(char::from(byte));
                } else {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "%{byte:02X}");
                }
                out
            }),
        ),
        "/header" => plain(&format!("X-Echo: a{secret}b\r\n"), "hello"),
        "/name" => plain(&format!("{secret}: hello\r\n"), "hello"),
        "/reason" => format!("HTTP/1.1 200 {secret}\r\nContent-Length: 5\r\n\r\nhello"),
        "/encoded" => plain("Content-Encoding: gzip\r\n", secret),
        "/cookie" => plain("Set-Cookie: session=real\r\nAuthentication-Info: real\r\n", "hello"),
        "/redirect" => plain("Location: https://other.test/stolen\r\n", "").replace("200 OK", "302 Found"),
        "/location" => plain(&format!("Location: https://other.test/?{secret}\r\n"), "").replace("200 OK", "302 Found"),
        "/switch" => "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_owned(),
        "/trailer" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-echo\r\n\r\n5\r\nhello\r\n0\r\nx-echo: {secret}\r\n\r\n"
        ),
        "/early" => format!("HTTP/1.1 103 Early Hints\r\nLink: <{secret}>\r\n\r\n{}", plain("", "hello")),
        "/split" => {
            let (one, other) = secret.split_at(secret.len() / 2);
            stream
                .write_all(plain("", &format!("a{secret}b")).split_once(secret).map_or("", |(a, _)| a).as_bytes())
                .await?;
            for piece in [one, other, "b"] {
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
                stream.write_all(piece.as_bytes()).await?;
            }
            return stream.flush().await;
        }
        _ if request.contains(" HTTP/1.") => plain("", "hello"),
        _ => "received".to_owned(),
    };
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}
