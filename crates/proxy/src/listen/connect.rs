//! Serves `CONNECT`: a tunnel to a name and a port.

use std::sync::Arc;

use ralph_core::egress::EgressTarget;
use tokio::io::AsyncWriteExt;

use crate::connection_context::ConnectionContext;
use crate::egress_events::{DecisionReason, EgressEntry};
use crate::inspect::tunnel;
use crate::parse::request_head::RequestHead;
use crate::refusal_reply::ProxyReply;
use crate::wrapped_streams::{ClientStream, write_and_close};

/// Serves one `CONNECT` request; the client's stream begins after its head.
pub(crate) async fn serve(context: &Arc<ConnectionContext>, mut client: impl ClientStream, head: &RequestHead) {
    let target = match connect_target(head) {
        Ok(target) => target,
        Err(why) => {
            context.report_refused_text(EgressEntry::Connect, &head.target, 0, &why);
            return write_and_close(client, &ProxyReply::bad_target(&why).bytes()).await;
        }
    };
    match tunnel::prepare(context, EgressEntry::Connect, &target).await {
        Ok(ready) => {
            if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
                tunnel::serve(context, EgressEntry::Connect, &target, ready, client).await;
            }
        }
        Err(refused) => {
            let reply = ProxyReply::refusal(&target, None, &refused.why, refused.address, context.run());
            write_and_close(client, &reply.bytes()).await;
        }
    }
}

fn connect_target(head: &RequestHead) -> Result<EgressTarget, DecisionReason> {
    let target = EgressTarget::parse_authority(&head.target, None)?;
    // Old clients send no `Host`, and some omit the port in it.
    if let Some(host) = &head.host
        && EgressTarget::parse_authority(host, Some(target.port())).ok().as_ref() != Some(&target)
    {
        return Err(DecisionReason::HostMismatch);
    }
    if head.has_body {
        return Err(DecisionReason::Malformed("a tunnel has no body"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::request_head::BodyFraming;
    use ralph_core::egress::BadTarget;

    #[track_caller]
    fn check(target: &str, host: Option<&str>, body: bool, want: Result<&str, DecisionReason>) {
        let (method, target, host) = ("CONNECT".to_owned(), target.to_owned(), host.map(str::to_owned));
        let head = RequestHead { method, target, host, framing: BodyFraming::Length(0), has_body: body };
        assert_eq!(connect_target(&head).map(|target| target.to_string()), want.map(str::to_owned));
    }

    #[test]
    fn targets_must_agree_with_the_host_header() {
        check("X.io:443", None, false, Ok("x.io:443"));
        check("x.io:443", Some("x.io:443"), false, Ok("x.io:443"));
        check("x.io:443", Some("x.io"), false, Ok("x.io:443"));
        check("x.io:443", Some("x.io:80"), false, Err(DecisionReason::HostMismatch));
        check("x.io:443", Some("y.io"), false, Err(DecisionReason::HostMismatch));
        check("x.io:443", Some(""), false, Err(DecisionReason::HostMismatch));
        check("x.io", None, false, Err(DecisionReason::Target(BadTarget::Port)));
        check("x.io@y.io:443", None, false, Err(DecisionReason::Target(BadTarget::User)));
        check("x.io:443", None, true, Err(DecisionReason::Malformed("a tunnel has no body")));
    }
}
