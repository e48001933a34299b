//! Delivers a control to the process that works on a run, or applies it in this process if no other works on the run.

use std::time::{Duration, Instant};

use ralph_core::control_request::Control;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::request::{ControlAck, ControlRequest, RequestLine, ResponseLine};
use super::socket::LINE_CAP;
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::run::apply_at_rest;
use crate::store::{RunFolder, short_socket_path};

/// How long a response may take: a pause waits for the current action, and a whole session can be one.
const RESPONSE_TIMEOUT: Duration = Duration::from_hours(25);

/// How long a process may hold a run without listening: one that is just opening or releasing it.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a control is sent again after the process released the run before handling it.
const MAX_RETRIES: u32 = 5;

/// The delay before a control is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Sends a control to a run and waits until the run has acknowledged it.
pub async fn send(host: &HostContext, folder: &RunFolder, control: &Control, by: &str) -> Result<ControlAck, Error> {
    send_request(host, folder, &ControlRequest::new(control.clone(), by)?).await
}

/// As [`send`], with an id chosen by the caller: a repeated request is not applied again.
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
            // Resuming takes a process that outlives this request.
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

/// The outcome of a request on the control socket.
#[derive(Debug)]
enum LiveAnswer {
    Applied,
    Refused(String),
    /// A process accepted the request and ended, or released the run, before it answered.
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
