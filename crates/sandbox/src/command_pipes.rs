//! Copies a command's input and output in chunks of fixed size.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::ioctl_fionread;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{OutputSink, OutputStream};

const BUFFER_BYTES: usize = 64 << 10;
const TICK: Duration = Duration::from_millis(20);
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The three pipes of a command and the input that is still to be written.
pub(crate) struct CommandPipes<'a, I, O, E> {
    stdin: Option<I>,
    input: &'a [u8],
    out: OutputPipe<O>,
    err: OutputPipe<E>,
}

/// One stream of output, read through a buffer of fixed size.
struct OutputPipe<R> {
    pipe: Option<R>,
    buffer: Vec<u8>,
    seen: u64,
}

impl<'a, I, O, E> CommandPipes<'a, I, O, E>
where
    I: AsyncWrite + Unpin,
    O: AsyncRead + AsFd + Unpin,
    E: AsyncRead + AsFd + Unpin,
{
    pub(crate) fn new(stdin: Option<I>, input: &'a [u8], out: Option<O>, err: Option<E>) -> Self {
        Self { stdin, input, out: OutputPipe::new(out), err: OutputPipe::new(err) }
    }

    /// Copies one chunk through one of the pipes; waits forever when all are closed.
    pub(crate) async fn step(&mut self, sink: &mut dyn OutputSink) -> io::Result<()> {
        tokio::select! {
            read = self.out.fill() => self.out.forward(read?, OutputStream::Stdout, sink),
            read = self.err.fill() => self.err.forward(read?, OutputStream::Stderr, sink),
            () = write_input(&mut self.stdin, &mut self.input) => (),
        }
        Ok(())
    }

    /// Forwards everything that was in the pipes when the command ended, and whatever follows within the grace period.
    pub(crate) async fn drain(&mut self, grace: Duration, sink: &mut dyn OutputSink) -> io::Result<()> {
        self.stdin = None;
        let (out, err) = (self.out.target(), self.err.target());
        let grace = tokio::time::sleep(grace);
        tokio::pin!(grace);
        let mut over = false;
        while !(self.out.pipe.is_none() && self.err.pipe.is_none()) {
            if over && (self.out.reached(out) || self.out.is_empty()) && (self.err.reached(err) || self.err.is_empty())
            {
                break;
            }
            tokio::select! {
                moved = self.step(sink) => moved?,
                () = &mut grace, if !over => over = true,
                // Another process that holds the pipe may read the counted bytes, so this checks again instead of
                // waiting for them.
                () = tokio::time::sleep(TICK), if over => (),
            }
        }
        Ok(())
    }
}

/// Writes a chunk of the input and closes the pipe after the last; if the command does not read it, the rest is
/// dropped.
async fn write_input<I: AsyncWrite + Unpin>(stdin: &mut Option<I>, input: &mut &[u8]) {
    let Some(pipe) = stdin else { return std::future::pending().await };
    match pipe.write(input).await {
        Ok(written) if written > 0 => *input = input.get(written..).unwrap_or_default(),
        _ => *input = &[],
    }
    if input.is_empty() {
        *stdin = None;
    }
}

impl<R: AsyncRead + AsFd + Unpin> OutputPipe<R> {
    fn new(pipe: Option<R>) -> Self {
        Self { pipe, buffer: vec![0; BUFFER_BYTES], seen: 0 }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        match &mut self.pipe {
            // Reading a terminal fails with EIO once its last program is gone: that is the end of the output.
            Some(pipe) => match pipe.read(&mut self.buffer).await {
                Err(error) if error.raw_os_error() == Some(EIO) => Ok(0),
                read => read,
            },
            None => std::future::pending().await,
        }
    }

    fn forward(&mut self, read: usize, stream: OutputStream, sink: &mut dyn OutputSink) {
        if read == 0 {
            self.pipe = None;
            return;
        }
        self.seen += read as u64;
        sink.chunk(stream, self.buffer.get(..read).unwrap_or_default());
    }

    /// Returns how many bytes will have been seen once the current content of the pipe has been read.
    fn target(&self) -> u64 {
        let waiting = self.pipe.as_ref().map_or(0, |pipe| ioctl_fionread(pipe).unwrap_or(0));
        self.seen + waiting
    }

    /// Returns whether the pipe is empty now: another process may have read its content.
    fn is_empty(&self) -> bool {
        self.pipe.as_ref().is_none_or(|pipe| ioctl_fionread(pipe).unwrap_or(0) == 0)
    }

    fn reached(&self, target: u64) -> bool {
        self.pipe.is_none() || self.seen >= target
    }
}
