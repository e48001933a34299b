//! Attacks that exhaust the egress proxy, kill it, bypass it, or write to its audit log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ralph_engine::audit;

use super::super::arena::{EgressArena, ample_ledger, suite_error};
use super::super::case::EgressControl::Other;
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

const PLAIN: &[&str] = &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"];
const ALLOWED: &[&str] =
    &["connect:allowed.test:443", "tls:allowed.test", r"send:GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "receive"];
const HEALTH: &[&str] = &["proxy", r"send:GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "receive"];
/// The most memory by which this process may grow during a flood.
const MOST_GROWTH: u64 = 96 << 20;

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "PC-26.slow",
        "a request that never ends",
        &["proxy", "send:GET http://plain.test/ HT", "receive"],
        "HTTP/1.1 408",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.slow-socks",
        "a SOCKS greeting that never ends",
        &["proxy", r"send:\x05\x02\x00", "receive"],
        "received \n|failed at receive: Connection reset",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.slow-tls",
        "a TLS hello that never ends",
        &["connect:api.test:443", r"send:\x16\x03\x01\x40\x00\x01", "receive"],
        "received \n|failed at receive: Connection reset",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.slow-dns",
        "a DNS query over TCP that never ends",
        &["tcp:127.0.0.53:53", r"send:\x00\x30\x00", "receive"],
        "received \n|failed at receive: Connection reset",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.headers",
        "endless headers",
        &[
            "proxy",
            r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n",
            r"pad:200000:X-A: b\r\n",
            "receive",
        ],
        "HTTP/1.1 431|cut|failed at receive",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.header",
        "an endless header",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nX-A: ", "pad:268435456:a", "receive"],
        "HTTP/1.1 431|cut|failed at receive",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.target",
        "an endless URL",
        &["proxy", "send:GET http://plain.test/", "pad:16777216:a", "receive"],
        "HTTP/1.1 431|cut|failed at receive",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.count",
        "a thousand small headers",
        &[
            "proxy",
            r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n",
            r"pad:1000:A: b\r\n",
            r"send:\r\n",
            "receive",
        ],
        "HTTP/1.1 400",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.chunk",
        "a chunk whose size never ends",
        &[
            "proxy",
            r"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nTransfer-Encoding: chunked\r\n\r\n",
            "pad:100000:0",
            "receive",
        ],
        "HTTP/1.1 400|cut|failed at receive",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-26.body",
        "an endless call",
        &[
            "proxy",
            r"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 100000000\r\n\r\n",
            "pad:100000000:a",
            "receive",
        ],
        "HTTP/1.1 413|cut",
        Other(Strict, PLAIN),
    ),
    EgressCase::custom("PC-26.idle", "more connections than allowed", |g| Box::pin(idle(g))),
    EgressCase::custom("PC-26.memory", "the memory of the host during a flood", |g| Box::pin(memory(g))),
    EgressCase::custom("PC-27.cut", "a tunnel when the proxy dies", |g| Box::pin(proxy_dies_in_tunnel(g))),
    EgressCase::custom("PC-27.requests", "a connection between requests when the proxy dies", |g| {
        Box::pin(proxy_dies_between_requests(g))
    }),
    EgressCase::custom("PC-22.ports", "a port of the host that leads to the proxy", |g| Box::pin(ports(g))),
    EgressCase::custom("PC-32.escaped", "a forged line in the audit log", |g| Box::pin(forged_audit_line(g))),
    EgressCase::custom("PC-32.hidden", "the audit log, from inside", |g| Box::pin(hidden_audit_log(g))),
    EgressCase::custom("PC-32.changed", "a changed audit log", |g| Box::pin(changed_audit_log(g))),
];

/// Checks that a sandbox that uses all its connections does not affect another one.
async fn idle(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let (cage, other) = (arena.new_cage(Strict, ample_ledger()).await?, arena.shared_cage(Strict).await?);
    let before = arena.run_client(&cage, HEALTH).await?;
    require_control(&before, before.contains("HTTP/1.1 200"))?;
    let mut reply = Err(AttackVerdict::Invalid("no connection was tried".to_owned()));
    let look = async || {
        let began = Instant::now();
        reply = async {
            let crowded = arena.run_client(&cage, HEALTH).await?;
            let neighbour = arena.run_client(&other, ALLOWED).await?;
            Ok((crowded, neighbour, began.elapsed()))
        }
        .await;
    };
    let (kept, _) = arena.run_interrupted(&cage, &["keep:300".to_owned()], &[], look).await?;
    let after = arena.run_client(&cage, HEALTH).await?;
    let _ = cage.sandbox.destroy().await;
    let (crowded, neighbour, took) = reply?;
    require_control(&kept, kept.contains("kept 2"))?;
    let refused = kept.contains("kept 256 refused 44") && crowded.contains("HTTP/1.1 503");
    let fine = neighbour.contains("HTTP/1.1 200") && took < Duration::from_secs(5) && after.contains("HTTP/1.1 200");
    case_verdict(!refused || !fine, format!("{kept} {crowded} {neighbour} after {took:?} {after}"))
}

/// Checks that a flood does not stay in the host's memory.
async fn memory(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let before =
        resident().ok_or_else(|| AttackVerdict::Skipped("this process cannot read its memory usage".to_owned()))?;
    let flood = [
        "many:24",
        "proxy",
        r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nX-A: ",
        "pad:16777216:a",
        "receive",
    ];
    let reply = arena.run_client(&cage, &flood).await?;
    let grown = resident().unwrap_or(0).saturating_sub(before);
    let _ = cage.sandbox.destroy().await;
    require_control(&reply, reply.contains("HTTP/1.1 431") || reply.contains("cut"))?;
    // The same amount, held on purpose, is measured.
    let held: Vec<Vec<u8>> = (0..24).map(|_| vec![7; 16 << 20]).collect();
    let seen = resident().unwrap_or(0).saturating_sub(before);
    require_control(format!("{seen} bytes are measured"), seen > MOST_GROWTH && held.len() == 24)?;
    case_verdict(grown > MOST_GROWTH, format!("{} MiB more", grown >> 20))
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Checks that the open connection is closed, nothing passes without the proxy, and the listeners are served again.
async fn proxy_dies_in_tunnel(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let first = |path: &str| format!(r"send:GET /{path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
    let start =
        ["connect:allowed.test:443".to_owned(), "tls:allowed.test".to_owned(), first("one"), "receive".to_owned()];
    interrupted(arena, &start, &[first("two"), "receive".to_owned()]).await
}

async fn proxy_dies_between_requests(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let get =
        |path: &str| format!(r"send:GET /{path} HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {{api}}\r\n\r\n");
    let start = ["connect:api.test:443".to_owned(), "tls:api.test".to_owned(), get("one"), "receive".to_owned()];
    interrupted(arena, &start, &[get("two"), "receive".to_owned()]).await
}

async fn interrupted(arena: &EgressArena, first: &[String], then: &[String]) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let (kept, before) = arena.run_interrupted(&cage, first, then, async || ()).await?;
    let fail = async || {
        cage.with_egress(ralph_engine::egress::EgressLease::kill_proxy);
    };
    let (reply, after) = arena.run_interrupted(&cage, first, then, fail).await?;
    let restarts = cage.with_egress(ralph_engine::egress::EgressLease::restarts);
    let (again, served) = arena.run_attack(&cage, ALLOWED).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(kept, before.received("GET /two"))?;
    require_control(&reply, after.received("GET /one"))?;
    require_control(&again, !served.messages.is_empty() && restarts == Some(1))?;
    case_verdict(after.received("GET /two"), reply)
}

/// Checks that no listening socket of this process is reachable from the host's network.
async fn ports(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let before = listening();
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let (reply, happened) = arena.run_attack(&cage, ALLOWED).await?;
    require_control(reply, !happened.messages.is_empty())?;
    let after = listening();
    let _ = cage.sandbox.destroy().await;
    let own = std::net::TcpListener::bind("127.0.0.1:0").map_err(suite_error)?;
    require_control("an opened port is not detected", listening().difference(&before).next().is_some())?;
    drop(own);
    let new: Vec<&String> = after.difference(&before).collect();
    case_verdict(!new.is_empty(), format!("{new:?}"))
}

/// Returns the sockets of this process that are reachable from the host's network.
fn listening() -> BTreeSet<String> {
    let own: BTreeSet<String> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(state), Some(inode)) = (words.get(1), words.get(3), words.get(9)) else { continue };
            // Listening for TCP; for UDP, without a fixed peer.
            let waits = *state == "0A" || (table.starts_with("udp") && *state == "07");
            if waits && own.contains(*inode) {
                found.insert(format!("{table} {local}"));
            }
        }
    }
    found
}

/// Checks that whatever a client sends as a name, an address or a program stays inside the one line about it.
async fn forged_audit_line(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_audited_cage(Strict).await?;
    let forged = r#"{\"kind\":\"decided\",\"allowed\":true,\"forged\":1}"#;
    for words in [
        vec!["connect:evil.test:443".to_owned()],
        PLAIN.iter().map(ToString::to_string).collect(),
        vec![format!(r"connect:evil.test\x0a{forged}:443")],
        vec![format!(r"socks:evil.test\x0a{forged}:443")],
        vec!["socks:evil\\x1b[31m.test:443".to_owned()],
        vec![
            "proxy".to_owned(),
            format!(
                r"send:GET http://evil.test/%0a{forged} HTTP/1.1\r\nHost: evil.test\r\nUser-Agent: \x1b[2J{forged}\r\n\r\n"
            ),
            "receive".to_owned(),
        ],
        vec![
            "proxy".to_owned(),
            format!(
                r"send:GET http://plain.test/%0a%0d?{forged} HTTP/1.1\r\nHost: plain.test\r\nUser-Agent: \x1b]0;x\x07\r\n\r\n"
            ),
            "receive".to_owned(),
        ],
        vec!["udp:127.0.0.53:53".to_owned(), r"ask:1:evil\x0aforged.test".to_owned()],
    ] {
        arena.run_client(&cage, &words).await?;
    }
    let _ = cage.sandbox.destroy().await;
    let text = std::fs::read_to_string(audit::path(&arena.run_folder())).map_err(suite_error)?;
    require_control("the audit log is empty", text.contains("evil.test") && text.contains("plain.test"))?;
    let mut bad = Vec::new();
    for line in text.lines() {
        let read: Result<serde_json::Value, _> = serde_json::from_str(line);
        let own = read.is_ok_and(|value| value.get("forged").is_none() && value.get("seq").is_some());
        if !own || line.chars().any(char::is_control) {
            bad.push(line.escape_debug().to_string());
        }
    }
    case_verdict(!bad.is_empty(), format!("{bad:?}"))
}

/// Checks that nothing inside leads to the audit log.
async fn hidden_audit_log(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_audited_cage(Strict).await?;
    arena.run_client(&cage, PLAIN).await?;
    let path = audit::path(&arena.run_folder());
    let (shown, folder) = (path.display().to_string(), arena.run_folder().path().display().to_string());
    let line =
        "for f in \"$1\" \"$2\"; do [ -e \"$f\" ] && echo SEEN; done; echo x >> \"$1\" && echo WRITTEN; echo ended";
    let exec = ralph_sandbox::ExecRequest::new(["sh", "-c", line, "sh", &shown, &folder], Duration::from_secs(10));
    let output = ralph_sandbox::capture(&*cage.sandbox, &exec, 1 << 16).await.map_err(suite_error)?;
    let _ = cage.sandbox.destroy().await;
    let there = std::fs::read_to_string(&path).map_err(suite_error)?;
    require_control("the audit log does not exist", there.contains("plain.test"))?;
    require_control(output.stderr_text(), output.stdout_text().contains("ended"))?;
    let reply = output.stdout_text();
    let touched = ["SEEN", "WRITTEN"].iter().any(|word| reply.contains(word)) || there.contains("\nx\n");
    case_verdict(touched, reply)
}

/// Checks that the audit log is valid, and that it is not with a single letter changed.
async fn changed_audit_log(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_audited_cage(Strict).await?;
    arena.run_client(&cage, PLAIN).await?;
    let _ = cage.sandbox.destroy().await;
    let folder = arena.run_folder();
    let path = audit::path(&folder);
    let whole = audit::verify(&folder).map_err(suite_error)?;
    let text = std::fs::read_to_string(&path).map_err(suite_error)?;
    std::fs::write(&path, text.replacen("plain.test", "plane.test", 1)).map_err(suite_error)?;
    let changed = audit::verify(&folder).map_err(suite_error);
    std::fs::write(&path, &text).map_err(suite_error)?;
    require_control(format!("the audit log is not valid: {whole:?}"), whole.is_ok())?;
    case_verdict(changed?.is_ok(), "a changed line is not detected")
}
