//! The door for clients that know of no proxy: they connect to a synthetic address, and the address says which name
//! they asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use ralph_core::egress::{AccessRequest, EgressTarget, HTTPS_PORT};

use crate::observer::{DecisionReason, EgressEntry};
use crate::pipeline::Pipeline;
use crate::stream::ClientStream;
use crate::tunnel::{self, TunnelEnd};

const ENTRY: EgressEntry = EgressEntry::Transparent;

/// Serves one client that connected to `wanted`.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, client: impl ClientStream, wanted: SocketAddr) {
    let named = pipeline.name_of_address(wanted.ip()).and_then(|name| EgressTarget::new(&name, wanted.port()).ok());
    let Some(target) = named else {
        return pipeline.report_refused_text(
            ENTRY,
            &wanted.ip().to_string(),
            wanted.port(),
            &DecisionReason::UnassignedAddress,
        );
    };
    if target.port() == HTTPS_PORT && pipeline.inspection_ca(&target).is_none() {
        return serve_tls(pipeline, client, &target).await;
    }
    if let Ok(ready) = tunnel::prepare(pipeline, ENTRY, &target).await {
        tunnel::serve(pipeline, ENTRY, &target, ready, client).await;
    }
}

/// Nobody waits for a yes here, so the hello can be heard before anything is resolved or dialled.
async fn serve_tls(pipeline: &Arc<Pipeline>, mut client: impl ClientStream, target: &EgressTarget) {
    if pipeline.check_policy(ENTRY, target, &AccessRequest::Tunnel).is_err() {
        return;
    }
    match tunnel::read_client_hello(pipeline, &mut client, target).await {
        Ok(first) => {
            if let Ok(way) = pipeline.open(ENTRY, target, AccessRequest::Tunnel).await {
                tunnel::relay(pipeline, ENTRY, target, way, client, Some(first)).await;
            }
        }
        Err(TunnelEnd::Cut(why)) => pipeline.report_refusal(ENTRY, target, &why),
        Err(TunnelEnd::Disconnected) => (),
    }
}
