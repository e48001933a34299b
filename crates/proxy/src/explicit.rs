//! The door for clients that know of a proxy. One port, three protocols, told apart by the first byte.

use std::sync::Arc;

use hyper::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::http::Form;
use crate::notice::{Entry, Why};
use crate::pipeline::Pipeline;
use crate::reply::Reply;
use crate::stream::{Client, Rewound, say_and_close};
use crate::{connect, head, http, socks};

/// Serves one client.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, mut client: impl Client) {
    let mut bytes = Vec::new();
    match timeout(pipeline.limits.head_time, client.read_buf(&mut bytes)).await {
        Ok(Ok(1..)) => (),
        // It came and went without a word.
        Ok(Ok(0) | Err(_)) => return,
        Err(_) => return pipeline.refused_text(Entry::Unknown, "", 0, &Why::Slow),
    }
    match bytes.first() {
        Some(&socks::VERSION) => socks::serve(pipeline, client, bytes).await,
        Some(b'A'..=b'Z') => request(pipeline, client, bytes).await,
        _ => {
            let why = Why::Malformed("it is neither HTTP nor SOCKS5");
            pipeline.refused_text(Entry::Unknown, "", 0, &why);
            say_and_close(client, &Reply::new(StatusCode::BAD_REQUEST, why.to_string()).bytes()).await;
        }
    }
}

async fn request(pipeline: &Arc<Pipeline>, mut client: impl Client, mut bytes: Vec<u8>) {
    match head::read(&mut client, &mut bytes, &pipeline.limits).await {
        Ok((head, end)) if head.method == "CONNECT" => {
            let rest = bytes.split_off(end.min(bytes.len()));
            connect::serve(pipeline, Rewound::new(rest, client), &head).await;
        }
        Ok(_) => http::serve(pipeline, Entry::Http, client, &bytes, Form::Absolute).await,
        Err(fault) => {
            if let Some(why) = fault.why() {
                pipeline.refused_text(Entry::Unknown, "", 0, &why);
            }
            if let Some(reply) = Reply::fault(fault) {
                say_and_close(client, &reply.bytes()).await;
            }
        }
    }
}
