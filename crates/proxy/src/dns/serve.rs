//! Serves DNS over UDP and TCP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::answer::answer;
use super::packet::MAX_MESSAGE;
use crate::connection_context::ConnectionContext;
use crate::wrapped_streams::ClientStream;

const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Answers one datagram after the other: an answer takes no time, so no client waits for another's.
pub(crate) async fn serve_udp(context: Arc<ConnectionContext>, socket: UdpSocket) {
    // One byte more, so that a message that is too long is detected.
    let mut message = vec![0; MAX_MESSAGE + 1];
    loop {
        match socket.recv_from(&mut message).await {
            Ok((length, from)) => {
                if let Some(answer) = answer(&context, message.get(..length).unwrap_or_default()) {
                    // A client that misses the answer asks again.
                    socket.send_to(&answer, from).await.ok();
                }
            }
            // For example a client that closed its socket. The delay keeps a lasting error from using a whole core.
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// Answers the questions on one connection.
pub(crate) async fn serve_tcp(context: &ConnectionContext, mut client: impl ClientStream) {
    while let Ok(Ok(())) = timeout(context.limits.head_time, answer_one(context, &mut client)).await {}
}

async fn answer_one(context: &ConnectionContext, client: &mut impl ClientStream) -> io::Result<()> {
    let length = client.read_u16().await?;
    if usize::from(length) > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length.into()];
    client.read_exact(&mut message).await?;
    let answer = answer(context, &message).ok_or(io::ErrorKind::InvalidData)?;
    let length = u16::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    client.write_all(&[&length.to_be_bytes(), &answer[..]].concat()).await
}
