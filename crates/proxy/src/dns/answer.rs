//! Answers one DNS message, without waiting and without asking any other server.

use ralph_core::egress::EgressTarget;
use ralph_core::policy::canonical_host;

use super::packet::{self, DnsMessage, DnsQueryKind, DnsResponseCode};
use crate::connection_context::ConnectionContext;
use crate::egress_events::{DecisionReason, EgressEntry};

/// Answers a message; `None` if it must not be answered.
///
/// A name that is not allowed is reported as nonexistent: a refusal would make resolvers ask again and again.
pub(super) fn answer(context: &ConnectionContext, message: &[u8]) -> Option<Vec<u8>> {
    let question = match packet::parse(message) {
        DnsMessage::Question(question) => question,
        DnsMessage::Invalid(code) => {
            let why = match code {
                DnsResponseCode::NotImplemented => "only A and AAAA questions are answered",
                _ => "it is not exactly one question",
            };
            context.report_refused_text(EgressEntry::Dns, "", 0, &DecisionReason::Malformed(why));
            return Some(packet::response(message, code));
        }
        DnsMessage::Ignored => return None,
    };
    let Some(name) = question.name.as_deref() else {
        context.report_refused_text(
            EgressEntry::Dns,
            "",
            0,
            &DecisionReason::Malformed("the name has a byte that is not allowed in a host name"),
        );
        return Some(packet::response(message, DnsResponseCode::NoSuchName));
    };
    // An address is not a name; a client that has an address does not need to resolve it.
    let named = EgressTarget::new(name, 443).ok().filter(|target| target.ip_address().is_none());
    let Some(target) = named else {
        let why = canonical_host(name)
            .err()
            .map_or(DecisionReason::Malformed("an address is not a name"), |bad| DecisionReason::Target(bad.into()));
        context.report_refused_text(EgressEntry::Dns, name, 0, &why);
        return Some(packet::response(message, DnsResponseCode::NoSuchName));
    };
    Some(match (context.synthetic_address(target.host()), question.kind) {
        (Ok(address), DnsQueryKind::V4) => packet::address_response(message, &question, address),
        // The name exists, but not as IPv6.
        (Ok(_), DnsQueryKind::V6) => packet::response(message, DnsResponseCode::NoError),
        (Err(_), _) => packet::response(message, DnsResponseCode::NoSuchName),
    })
}
