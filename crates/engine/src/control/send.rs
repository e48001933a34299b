//! Delivers a control to the process that works on a run, or carries it out here when the run rests.

use std::time::{Duration, Instant};

use ralph_core::control::Control;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::request::{ControlAck, ControlRequest, RequestLine, ResponseLine};
use super::socket::LINE_CAP;
use crate::error::Error;
use crate::host::HostContext;
use crate::run::apply_at_rest;
use crate::store::{RunFolder, short_socket_path};

/// How long an answer may take: pausing waits for the action under way, and a session may be one.
const RESPONSE_TIMEOUT: Duration = Duration::from_hours(25);

/// How long a run may be held by a process that does not listen: one that is just taking it up or letting go of it.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a control is sent again to processes that let go of the run before they got to it.
const MAX_RETRIES: u32 = 5;

/// How long is waited before a control is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Asks a run for something and waits until it has acknowledged it.
pub async fn send(host: &HostContext, folder: &RunFolder, control: &Control, by: &str) -> Result<ControlAck, Error> {
    send_request(host, folder, &ControlRequest::new(control.clone(), by)?).await
}

/// As [`send`], under an id of the caller's choice: a request that is sent again is not applied again.
pub async fn send_request(
    host: &HostContext,
    folder: &RunFolder,
    request: &ControlRequest,
) -> Result<ControlAck, Error> {
    let ack = |live| ControlAck { id: request.id.clone(), live };
    let (mut held_since, mut retries) = (Instant::now(), 0);
    loop {
        match ask_live_process(folder, request).await {
            LiveAnswer::Applied => return Ok(ack(true)),
            LiveAnswer::Refused(why) => {
                let (run, control) = (folder.id(), request.control.kind().to_owned());
                return Err(Error::ControlRefused { run, control, why });
            }
            LiveAnswer::Lost if retries < MAX_RETRIES => {
                retries += 1;
                held_since = Instant::now();
            }
            LiveAnswer::Lost => return Err(Error::NotRunning { run: folder.id() }),
            // Going on takes a process that outlives this request.
            LiveAnswer::NotListening if request.control == Control::Resume => {
                return Err(Error::NotRunning { run: folder.id() });
            }
            LiveAnswer::NotListening => match Box::pin(apply_at_rest(host, folder.clone(), request)).await {
                Err(Error::Locked { .. }) if held_since.elapsed() < HANDOVER_TIMEOUT => (),
                applied => return applied.map(|()| ack(false)),
            },
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// What became of a request on the control socket.
#[derive(Debug)]
enum LiveAnswer {
    Applied,
    Refused(String),
    /// A process took the request and ended, or let go of the run, before it answered.
    Lost,
    NotListening,
}

async fn ask_live_process(folder: &RunFolder, request: &ControlRequest) -> LiveAnswer {
    let Ok((_dir, path)) = short_socket_path(folder) else { return LiveAnswer::NotListening };
    let Ok(stream) = UnixStream::connect(path).await else { return LiveAnswer::NotListening };
    let (read, mut write) = stream.into_split();
    let mut text = serde_json::to_string(&RequestLine::from(request)).unwrap_or_default();
    text.push('\n');
    if write.write_all(text.as_bytes()).await.is_err() {
        return LiveAnswer::Lost;
    }
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(LINE_CAP));
    if !matches!(timeout(RESPONSE_TIMEOUT, reader.read_line(&mut line)).await, Ok(Ok(_))) {
        return LiveAnswer::Lost;
    }
    match serde_json::from_str(&line) {
        Ok(ResponseLine::Ok) => LiveAnswer::Applied,
        Ok(ResponseLine::Refused { retry: true, .. }) | Err(_) => LiveAnswer::Lost,
        Ok(ResponseLine::Refused { why, .. }) => LiveAnswer::Refused(why),
    }
}
