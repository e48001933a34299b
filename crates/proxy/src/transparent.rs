//! The door for clients that know of no proxy: they connect to a synthetic address, and the address says which name
//! they asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::judge::Ask;
use crate::notice::{Entry, Why};
use crate::pipeline::Pipeline;
use crate::stream::Client;
use crate::target::{HTTPS, Target};
use crate::tunnel::{self, End};

const ENTRY: Entry = Entry::Transparent;

/// Serves one client that connected to `wanted`.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, client: impl Client, wanted: SocketAddr) {
    let named = pipeline.named(wanted.ip()).and_then(|name| Target::new(&name, wanted.port()).ok());
    let Some(target) = named else {
        return pipeline.refused_text(ENTRY, &wanted.ip().to_string(), wanted.port(), &Why::Stranger);
    };
    if target.port() == HTTPS && pipeline.looks_into(&target).is_none() {
        return tls(pipeline, client, &target).await;
    }
    if let Ok(ready) = tunnel::ask(pipeline, ENTRY, &target).await {
        tunnel::carry(pipeline, ENTRY, &target, ready, client).await;
    }
}

/// Nobody waits for a yes here, so the hello can be heard before anything is resolved or dialled.
async fn tls(pipeline: &Arc<Pipeline>, mut client: impl Client, target: &Target) {
    if pipeline.judge(ENTRY, target, &Ask::Tunnel).is_err() {
        return;
    }
    match tunnel::first_words(pipeline, &mut client, target).await {
        Ok(first) => {
            if let Ok(way) = pipeline.open(ENTRY, target, Ask::Tunnel).await {
                tunnel::relay(pipeline, ENTRY, target, way, client, Some(first)).await;
            }
        }
        Err(End::Cut(why)) => pipeline.refused(ENTRY, target, &why),
        Err(End::Gone) => (),
    }
}
