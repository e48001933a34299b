//! The door for clients that know of a proxy. One port, three protocols, told apart by the first byte.

use std::sync::Arc;

use hyper::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::http_forward::TargetForm;
use crate::observer::{DecisionReason, EgressEntry};
use crate::pipeline::Pipeline;
use crate::reply::ProxyReply;
use crate::stream::{ClientStream, PrefixedStream, write_and_close};
use crate::{connect, http_forward, request_head, socks};

/// Serves one client.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, mut client: impl ClientStream) {
    let mut bytes = Vec::new();
    match timeout(pipeline.limits.head_time, client.read_buf(&mut bytes)).await {
        Ok(Ok(1..)) => (),
        // It came and went without a word.
        Ok(Ok(0) | Err(_)) => return,
        Err(_) => return pipeline.report_refused_text(EgressEntry::Unknown, "", 0, &DecisionReason::ClientTimeout),
    }
    match bytes.first() {
        Some(&socks::VERSION) => socks::serve(pipeline, client, bytes).await,
        Some(b'A'..=b'Z') => serve_http(pipeline, client, bytes).await,
        _ => {
            let why = DecisionReason::Malformed("it is neither HTTP nor SOCKS5");
            pipeline.report_refused_text(EgressEntry::Unknown, "", 0, &why);
            write_and_close(client, &ProxyReply::new(StatusCode::BAD_REQUEST, why.to_string()).bytes()).await;
        }
    }
}

async fn serve_http(pipeline: &Arc<Pipeline>, mut client: impl ClientStream, mut bytes: Vec<u8>) {
    match request_head::read(&mut client, &mut bytes, &pipeline.limits).await {
        Ok((head, end)) if head.method == "CONNECT" => {
            let rest = bytes.split_off(end.min(bytes.len()));
            connect::serve(pipeline, PrefixedStream::new(rest, client), &head).await;
        }
        Ok(_) => http_forward::serve(pipeline, EgressEntry::Http, client, &bytes, TargetForm::Absolute).await,
        Err(fault) => {
            if let Some(why) = fault.reason() {
                pipeline.report_refused_text(EgressEntry::Unknown, "", 0, &why);
            }
            if let Some(reply) = ProxyReply::head_error(fault) {
                write_and_close(client, &reply.bytes()).await;
            }
        }
    }
}
