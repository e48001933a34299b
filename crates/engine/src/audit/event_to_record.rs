//! Converts egress events to audit records: known secrets masked, every text bounded.

use jiff::{Timestamp, Unit};
use ralph_core::audit::{AuditRecord, AuditRecordKind};
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_proxy::egress_events::{EgressAlarm, EgressEvent, EgressExchange, EgressTunnel};

/// The longest path kept, in bytes; longer ones end with an ellipsis.
const MAX_PATH_BYTES: usize = 1024;
/// The longest of every other text.
const MAX_TEXT_BYTES: usize = 300;

/// Returns the record of an egress event of a sandbox.
pub(super) fn record(sandbox: &str, event: &EgressEvent, redactor: &Redactor) -> AuditRecord {
    let masked = |text: &str| redact_and_truncate(text, MAX_TEXT_BYTES, redactor);
    let some = |text: &str| (!text.is_empty()).then(|| masked(text));
    let base = AuditRecord { at: now(), sandbox: masked(sandbox), ..AuditRecord::default() };
    match event {
        EgressEvent::Decision(decided) => AuditRecord {
            kind: AuditRecordKind::Decision,
            entry: Some(decided.entry.as_str().to_owned()),
            decision: Some(if decided.allowed { "allowed" } else { "denied" }.to_owned()),
            reason: some(&decided.why.to_string()),
            // A rule that contains a secret must not be shown, and with the secret masked it is no valid rule.
            remedy: decided.suggested_rule().filter(|rule| redactor.redact(rule) == *rule),
            host: some(&decided.host),
            port: port(decided.port),
            method: decided.request.as_ref().map(|request| masked(&request.method)),
            path: decided.request.as_ref().map(|request| redact_and_truncate(&request.path, MAX_PATH_BYTES, redactor)),
            address: decided.address.map(|address| address.to_string()),
            ..base
        },
        EgressEvent::Exchange(exchanged) => {
            AuditRecord { kind: AuditRecordKind::Exchange, ..exchange(exchanged, base, redactor) }
        }
        EgressEvent::Tunnel(EgressTunnel { entry, host, port: at, sent, received, took }) => AuditRecord {
            kind: AuditRecordKind::Tunnel,
            entry: Some(entry.as_str().to_owned()),
            decision: Some("allowed".to_owned()),
            host: some(host),
            port: port(*at),
            sent: Some(*sent),
            received: Some(*received),
            took_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            ..base
        },
        EgressEvent::CallReserved { route, model, cost, tokens, .. } => AuditRecord {
            kind: AuditRecordKind::Calling,
            route: some(route),
            model: some(model),
            tokens: Some(TokenUsage { input: *tokens, ..TokenUsage::default() }),
            cost: Some(*cost),
            charge: Some("worst".to_owned()),
            ..base
        },
        EgressEvent::Alarm(EgressAlarm { what, credential, host, port: at }) => AuditRecord {
            kind: AuditRecordKind::Alarm,
            reason: Some(what.to_string()),
            credential: some(credential),
            host: some(host),
            port: port(*at),
            ..base
        },
        EgressEvent::BudgetSpent { route, model, why } => AuditRecord {
            kind: AuditRecordKind::Spent,
            route: some(route),
            model: some(model),
            reason: some(why),
            ..base
        },
        EgressEvent::Restarted { why } => AuditRecord { kind: AuditRecordKind::Restarted, reason: some(why), ..base },
    }
}

fn exchange(exchanged: &EgressExchange, base: AuditRecord, redactor: &Redactor) -> AuditRecord {
    let masked = |text: &str| redact_and_truncate(text, MAX_TEXT_BYTES, redactor);
    // Queries carry tokens; the proxy should have removed the query already.
    let path = exchanged.path.split(['?', '#']).next().unwrap_or_default();
    let call = exchanged.call.as_ref();
    let refused = exchanged.refused.as_ref().is_some_and(|refusal| !refusal.is_failure());
    AuditRecord {
        entry: Some(exchanged.entry.as_str().to_owned()),
        decision: Some(if refused { "denied" } else { "allowed" }.to_owned()),
        reason: exchanged.refused.as_ref().map(|refusal| masked(refusal.why())).or_else(|| {
            let by = call.and_then(|call| call.answered_by.as_deref());
            by.map(|by| masked(&format!("`{by}` says it answered")))
        }),
        host: Some(masked(&exchanged.host)),
        port: port(exchanged.port),
        method: Some(masked(&exchanged.method)),
        path: Some(redact_and_truncate(path, MAX_PATH_BYTES, redactor)),
        status: exchanged.status,
        sent: Some(exchanged.sent),
        received: Some(exchanged.received),
        credential: exchanged.credential.as_deref().map(masked),
        tokens: call.map(|call| call.usage),
        cost: call.map(|call| call.cost),
        charge: call.map(|call| call.charge.as_str().to_owned()),
        route: call.map(|call| masked(&call.route)),
        model: call.map(|call| masked(&call.model)),
        ..base
    }
}

fn port(port: u16) -> Option<u16> {
    (port != 0).then_some(port)
}

/// Masks first and cuts afterwards: half a secret would not be recognised.
pub(super) fn redact_and_truncate(text: &str, bytes: usize, redactor: &Redactor) -> String {
    let text = redactor.redact(text);
    if text.len() <= bytes { text.into_owned() } else { format!("{}…", text::head(&text, bytes)) }
}

pub(super) fn now() -> Timestamp {
    Timestamp::now().round(Unit::Millisecond).unwrap_or_else(|_| Timestamp::now())
}
