//! Serves the listener for clients that are configured to use a proxy: three protocols on one port, told apart by the
//! first byte.

use std::sync::Arc;

use hyper::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::connect;
use super::socks;
use crate::connection_context::ConnectionContext;
use crate::egress_events::{DecisionReason, EgressEntry};
use crate::inspect::http_forward;
use crate::inspect::http_forward::TargetForm;
use crate::parse::request_head;
use crate::refusal_reply::ProxyReply;
use crate::wrapped_streams::{ClientStream, PrefixedStream, write_and_close};

/// Serves one client.
pub(crate) async fn serve(context: &Arc<ConnectionContext>, mut client: impl ClientStream) {
    let mut bytes = Vec::new();
    match timeout(context.limits.head_time, client.read_buf(&mut bytes)).await {
        Ok(Ok(1..)) => (),
        // The client closed the connection without sending anything.
        Ok(Ok(0) | Err(_)) => return,
        Err(_) => return context.report_refused_text(EgressEntry::Unknown, "", 0, &DecisionReason::ClientTimeout),
    }
    match bytes.first() {
        Some(&socks::VERSION) => socks::serve(context, client, bytes).await,
        Some(b'A'..=b'Z') => serve_http(context, client, bytes).await,
        _ => {
            let why = DecisionReason::Malformed("it is neither HTTP nor SOCKS5");
            context.report_refused_text(EgressEntry::Unknown, "", 0, &why);
            write_and_close(client, &ProxyReply::new(StatusCode::BAD_REQUEST, why.to_string()).bytes()).await;
        }
    }
}

async fn serve_http(context: &Arc<ConnectionContext>, mut client: impl ClientStream, mut bytes: Vec<u8>) {
    match request_head::read(&mut client, &mut bytes, &context.limits).await {
        Ok((head, end)) if head.method == "CONNECT" => {
            let rest = bytes.split_off(end.min(bytes.len()));
            connect::serve(context, PrefixedStream::new(rest, client), &head).await;
        }
        Ok(_) => http_forward::serve(context, EgressEntry::Http, client, &bytes, TargetForm::Absolute).await,
        Err(fault) => {
            if let Some(why) = fault.reason() {
                context.report_refused_text(EgressEntry::Unknown, "", 0, &why);
            }
            if let Some(reply) = ProxyReply::head_error(fault) {
                write_and_close(client, &reply.bytes()).await;
            }
        }
    }
}
