//! Serves the listener for clients that know of no proxy: they connect to a synthetic address, which identifies the
//! name that they resolved.

use std::net::SocketAddr;
use std::sync::Arc;

use ralph_core::egress::{AccessRequest, EgressTarget, HTTPS_PORT};

use crate::connection_context::ConnectionContext;
use crate::egress_events::{DecisionReason, EgressEntry};
use crate::inspect::tunnel::{self, TunnelEnd};
use crate::wrapped_streams::ClientStream;

const ENTRY: EgressEntry = EgressEntry::Transparent;

/// Serves one client that connected to `wanted`.
pub(crate) async fn serve(context: &Arc<ConnectionContext>, client: impl ClientStream, wanted: SocketAddr) {
    let named = context.name_of_address(wanted.ip()).and_then(|name| EgressTarget::new(&name, wanted.port()).ok());
    let Some(target) = named else {
        return context.report_refused_text(
            ENTRY,
            &wanted.ip().to_string(),
            wanted.port(),
            &DecisionReason::UnassignedAddress,
        );
    };
    if target.port() == HTTPS_PORT && context.inspection_ca(&target).is_none() {
        return serve_tls(context, client, &target).await;
    }
    if let Ok(ready) = tunnel::prepare(context, ENTRY, &target).await {
        tunnel::serve(context, ENTRY, &target, ready, client).await;
    }
}

/// Reads the hello before anything is resolved or dialled, which is possible here because the client waits for no
/// reply.
async fn serve_tls(context: &Arc<ConnectionContext>, mut client: impl ClientStream, target: &EgressTarget) {
    if context.check_policy(ENTRY, target, &AccessRequest::Tunnel).is_err() {
        return;
    }
    match tunnel::read_client_hello(context, &mut client, target).await {
        Ok(first) => {
            if let Ok(way) = context.open(ENTRY, target, AccessRequest::Tunnel).await {
                tunnel::relay(context, ENTRY, target, way, client, Some(first)).await;
            }
        }
        Err(TunnelEnd::Cut(why)) => context.report_refusal(ENTRY, target, &why),
        Err(TunnelEnd::Disconnected) => (),
    }
}
