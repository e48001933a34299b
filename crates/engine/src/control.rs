//! The door of a live run: `control.sock` in its folder, one JSON line in, one JSON line out.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use ralph_core::control::Control;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// The longest line the door takes: an edited task file fits.
const LINE_CAP: u64 = 1 << 20;

/// How long an answer may take: pausing waits for the action under way, and a session may be one.
const RESPONSE_TIMEOUT: Duration = Duration::from_hours(25);

#[derive(Debug, Serialize, Deserialize)]
struct ControlRequest {
    control: Control,
    by: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ControlResponse {
    Ok,
    Refused { why: String },
}

/// A control somebody asked for, waiting to be answered.
#[derive(Debug)]
pub(crate) struct IncomingControl {
    pub(crate) control: Control,
    pub(crate) by: String,
    pub(crate) answer: oneshot::Sender<Result<(), String>>,
}

/// The listening end; it closes when dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    _task: AbortOnDropHandle<()>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A socket file left behind is harmless: the next owner replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ControlSocket {
    /// Opens the door of a run. A `stop` also cancels `halt` at once, so that the action under way ends.
    pub(crate) fn open(
        folder: &RunFolder,
        halt: CancellationToken,
    ) -> Result<(Self, mpsc::Receiver<IncomingControl>), Error> {
        let path = folder.socket_path();
        let _ = std::fs::remove_file(&path);
        let listener = bind(folder).map_err(file_error("listen on", &path))?;
        let (sender, receiver) = mpsc::channel(16);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, halt) = (sender.clone(), halt.clone());
                // Each visitor is bounded by the line cap and ends with its connection.
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, sender, halt).await {
                        tracing::debug!(%error, "a control connection ended early");
                    }
                });
            }
        });
        Ok((Self { path, _task: AbortOnDropHandle::new(task) }, receiver))
    }
}

/// A socket address holds about 100 bytes; going through the folder's descriptor keeps any path short enough.
fn short_socket_path(folder: &RunFolder) -> io::Result<(Option<std::fs::File>, PathBuf)> {
    if cfg!(target_os = "linux") {
        let dir = std::fs::File::open(folder.path())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd()));
        return Ok((Some(dir), path));
    }
    Ok((None, folder.socket_path()))
}

fn bind(folder: &RunFolder) -> io::Result<UnixListener> {
    let (_dir, path) = short_socket_path(folder)?;
    UnixListener::bind(path)
}

async fn serve(stream: UnixStream, sender: mpsc::Sender<IncomingControl>, halt: CancellationToken) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LINE_CAP)).read_line(&mut line).await?;
    let answer = match serde_json::from_str::<ControlRequest>(&line) {
        Ok(request) => forward(request, &sender, &halt).await,
        Err(error) => ControlResponse::Refused { why: format!("not a control: {error}") },
    };
    let mut text = serde_json::to_string(&answer).unwrap_or_default();
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

async fn forward(
    request: ControlRequest,
    sender: &mpsc::Sender<IncomingControl>,
    halt: &CancellationToken,
) -> ControlResponse {
    let (answer, answered) = oneshot::channel();
    let stop = request.control == Control::Stop;
    if sender.send(IncomingControl { control: request.control, by: request.by, answer }).await.is_err() {
        return ControlResponse::Refused { why: "the run has just ended".to_owned() };
    }
    if stop {
        halt.cancel();
    }
    match answered.await {
        Ok(Ok(())) => ControlResponse::Ok,
        Ok(Err(why)) => ControlResponse::Refused { why },
        Err(_) => ControlResponse::Refused { why: "the run ended before it got to it".to_owned() },
    }
}

/// Asks a live run for something and waits until it has acknowledged it.
pub async fn send(folder: &RunFolder, control: &Control, by: &str) -> Result<(), Error> {
    let run = folder.id();
    let not_running = |_| Error::NotRunning { run: run.clone() };
    let (_dir, path) = short_socket_path(folder).map_err(not_running)?;
    let stream = UnixStream::connect(path).await.map_err(|_| Error::NotRunning { run: run.clone() })?;
    let (read, mut write) = stream.into_split();
    let mut text =
        serde_json::to_string(&ControlRequest { control: control.clone(), by: by.to_owned() }).unwrap_or_default();
    text.push('\n');
    write.write_all(text.as_bytes()).await.map_err(|_| Error::NotRunning { run: run.clone() })?;
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(LINE_CAP));
    let read = tokio::time::timeout(RESPONSE_TIMEOUT, reader.read_line(&mut line)).await;
    if !matches!(read, Ok(Ok(_))) {
        return Err(Error::NotRunning { run: folder.id() });
    }
    match serde_json::from_str(&line) {
        Ok(ControlResponse::Ok) => Ok(()),
        Ok(ControlResponse::Refused { why }) => {
            Err(Error::ControlRefused { run: folder.id(), control: control.kind().to_owned(), why })
        }
        Err(_) => Err(Error::NotRunning { run: folder.id() }),
    }
}
