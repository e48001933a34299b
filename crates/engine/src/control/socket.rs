//! Serves the control socket of a live run: `control.sock` in its folder, one JSON line in, one JSON line out.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ralph_core::control_request::Control;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::request::{ID_CAP, RequestLine, ResponseLine};
use crate::error::{Error, file_error};
use crate::store::{RunFolder, short_socket_path};

/// The delay before the next connection is accepted after one could not be.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The longest line read: an edited task file fits.
pub(super) const LINE_CAP: u64 = 1 << 20;

/// A received control that waits for its answer.
#[derive(Debug)]
pub(crate) struct IncomingControl {
    pub(crate) control: Control,
    pub(crate) by: String,
    /// The id of the request; earlier versions send none.
    pub(crate) id: Option<String>,
    pub(crate) answer: oneshot::Sender<Result<(), String>>,
}

/// The listening end; dropping it closes it.
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
    /// Listens on the control socket of a run. A `stop` also cancels `halt` at once, so that the current action ends.
    pub(crate) fn open(
        folder: &RunFolder,
        halt: CancellationToken,
    ) -> Result<(Self, mpsc::Receiver<IncomingControl>), Error> {
        let path = folder.socket_path();
        let _ = std::fs::remove_file(&path);
        let listener = bind(folder).map_err(file_error("listen on", &path))?;
        let (sender, receiver) = mpsc::channel(16);
        let task = tokio::spawn(async move {
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    // Mostly too many open files, which passes. A run that stopped listening would look dead.
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a control connection");
                        tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                        continue;
                    }
                };
                let (sender, halt) = (sender.clone(), halt.clone());
                // Each client is bounded by the line cap and ends with its connection.
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

fn bind(folder: &RunFolder) -> io::Result<UnixListener> {
    let (_dir, path) = short_socket_path(folder)?;
    UnixListener::bind(path)
}

async fn serve(stream: UnixStream, sender: mpsc::Sender<IncomingControl>, halt: CancellationToken) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LINE_CAP)).read_line(&mut line).await?;
    if line.is_empty() {
        // A client only probed whether the run is live.
        return Ok(());
    }
    let answer = match serde_json::from_str::<RequestLine>(&line) {
        Ok(request) if request.id.as_ref().is_some_and(|id| id.len() > ID_CAP) => {
            ResponseLine::refused(format!("its request id is longer than {ID_CAP} bytes; send a shorter one"))
        }
        Ok(request) => forward(request, &sender, &halt).await,
        Err(error) => ResponseLine::refused(format!("not a control: {error}")),
    };
    let mut text = serde_json::to_string(&answer).unwrap_or_default();
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

async fn forward(
    request: RequestLine,
    sender: &mpsc::Sender<IncomingControl>,
    halt: &CancellationToken,
) -> ResponseLine {
    let (answer, answered) = oneshot::channel();
    let RequestLine { control, by, id } = request;
    let stop = control == Control::Stop;
    if sender.send(IncomingControl { control, by, id, answer }).await.is_err() {
        return ResponseLine::retry("the run has just ended");
    }
    if stop {
        halt.cancel();
    }
    match answered.await {
        Ok(Ok(())) => ResponseLine::Ok,
        Ok(Err(why)) => ResponseLine::refused(why),
        Err(_) => ResponseLine::retry("the run ended before it handled the control"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream as BlockingStream;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::store::RalphHome;

    /// Connects while this process may open one more file only, which the client gets: accepting the connection fails.
    async fn connect_without_files(folder: &RunFolder) -> BlockingStream {
        let (_dir, path) = short_socket_path(folder).unwrap();
        let before = getrlimit(Resource::Nofile);
        let free = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), ..before }).unwrap();
        let client = BlockingStream::connect(path);
        let full = File::open("/dev/null").is_err();
        tokio::time::sleep(ACCEPT_RETRY_INTERVAL * 2).await;
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(full, "the client took the last descriptor");
        client.unwrap()
    }

    #[tokio::test]
    async fn a_failed_accept_does_not_end_the_listener() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RalphHome::new(dir.path().join("state"), dir.path().join("config")).run_folder("lab-001");
        std::fs::create_dir_all(folder.path()).unwrap();
        let (_socket, mut received) = ControlSocket::open(&folder, CancellationToken::new()).unwrap();
        let mut client = connect_without_files(&folder).await;
        io::Write::write_all(&mut client, b"{\"control\":{\"type\":\"pause\"}}\n").unwrap();
        let asked = tokio::time::timeout(Duration::from_secs(10), received.recv()).await.unwrap().unwrap();
        assert_eq!(asked.control, Control::Pause);
    }
}
