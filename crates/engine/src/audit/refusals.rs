//! Collects the refusals in an audit log, for the next prompt or report.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};

use ralph_core::audit::{AuditRecord, AuditRecordKind};
use ralph_core::prompt::EgressRefusals;
use ralph_proxy::egress_events::DecisionReason;

use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// The most bytes read at once: a flood of refusals repeats itself.
const MAX_READ_BYTES: u64 = 8 << 20;

/// Returns the refusals after an offset of the file, and the offset after them.
pub fn read_refusals(folder: &RunFolder, from: u64) -> Result<(EgressRefusals, u64), Error> {
    let path = super::path(folder);
    let mut refusals = EgressRefusals::default();
    let mut opened = match File::open(&path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((refusals, 0)),
        Err(error) => return Err(file_error("open", &path)(error)),
    };
    let through = opened.metadata().map_err(file_error("look at", &path))?.len();
    let from = if from <= through { from } else { 0 };
    opened.seek(SeekFrom::Start(from)).map_err(file_error("read", &path))?;
    let mut reader = BufReader::with_capacity(1 << 16, opened.take((through - from).min(MAX_READ_BYTES)));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(file_error("read", &path))? > 0 {
        if let Some(record) = AuditRecord::parse(line.trim_ascii_end()).filter(is_refusal) {
            refusals.add(&refused_target(&record), record.reason.as_deref().unwrap_or_default());
        }
        line.clear();
    }
    Ok((refusals, through))
}

/// Excludes hosts that do not answer and sandboxes that ask for too much at once: no policy refused those.
fn is_refusal(record: &AuditRecord) -> bool {
    let failures = [
        DecisionReason::Unresolved,
        DecisionReason::Unreachable,
        DecisionReason::TooManyConnections,
        DecisionReason::ClientTimeout,
    ]
    .map(|why| why.to_string());
    record.is_denial() && !record.reason.as_ref().is_some_and(|reason| failures.contains(reason))
}

/// Names the target of a refusal: a DNS lookup and a connection to the same name count as one.
fn refused_target(record: &AuditRecord) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let host = match record.port {
        None | Some(443) => text(&record.host),
        Some(port) => format!("{}:{port}", text(&record.host)),
    };
    match record.kind {
        AuditRecordKind::Exchange | AuditRecordKind::Decision if record.method.is_some() => {
            format!("{} {host}{}", text(&record.method), text(&record.path))
        }
        _ if host.is_empty() => "a request that names no host".to_owned(),
        _ => host,
    }
}
