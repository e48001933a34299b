//! Searches for real credentials inside: in memory, files, environments and in answers that echo them.

use ralph_core::redact::encodings;
use ralph_sandbox::{ExecRequest, capture};

use super::super::arena::{EgressArena, suite_error};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::client_codec::escape;
use super::super::leak_search::invert_bits;
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

/// A text planted where a secret could be, to show that the search would find it.
const DECOY: &str = "decoy-1f6c0e5a93b7d248";

/// The ways in which a server echoes what it received.
macro_rules! reflected {
    ($($id:literal $name:literal $answer:literal,)*) => {
        &[$(
            EgressCase::custom(concat!("PC-13.", $id), $name, |g| Box::pin(reflected(g, concat!("/", $answer)))),
            EgressCase::custom(concat!("PC-13.route-", $id), concat!($name, ", by a route"), |g| {
                Box::pin(by_route(g, concat!("/v1/models?/", $answer)))
            }),
        )*]
    };
}

pub(super) const REFLECTED: &[EgressCase] = reflected![
    "body" "the credential in a body" "echo",
    "base64" "the credential in a body, encoded" "base64",
    "url" "the credential in a body, escaped" "url",
    "split" "the credential in a body, in two pieces" "split",
    "header" "the credential in a header" "header",
    "name" "the credential as the name of a header" "name",
    "reason" "the credential in a reason phrase" "reason",
    "location" "the credential in a redirect" "location",
    "trailer" "the credential in a trailer" "trailer",
    "early" "the credential in an early hint" "early",
    "encoded" "the credential in a body marked as compressed" "encoded",
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-01.inside", "the credentials in memory, environments and files", |g| {
        Box::pin(search_inside(g))
    }),
    EgressCase::custom("PC-01.answers", "the credentials in the listener's own answers", |g| Box::pin(answers(g))),
    EgressCase::custom("PC-01.host", "the credentials in files on the host", |g| Box::pin(on_host(g))),
    EgressCase::custom("PC-13.cookie", "a session cookie set by the host", |g| Box::pin(cookie(g))),
    EgressCase::custom("PC-13.switch", "a host that switches the protocol unasked", |g| Box::pin(switch(g))),
];

fn contains_secret(arena: &EgressArena, reply: &str) -> bool {
    let reply = reply.to_lowercase();
    arena.secrets().any(|secret| encodings(secret).iter().any(|form| reply.contains(&form.to_lowercase())))
}

async fn search_inside(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    // Uses every credential at least once before the search.
    arena
        .run_client(
            &cage,
            &[
                "connect:api.test:443",
                "tls:api.test",
                r"send:GET /echo HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
                "receive",
            ],
        )
        .await?;
    let search = |needle: &str| format!("search:{}", escape(&invert_bits(needle.as_bytes())));
    for secret in arena.secrets() {
        // Only the random part: a prefix could be cut off.
        let random = secret.split_once("CANARY").map_or(secret, |(_, random)| random);
        let reply = arena.run_client(&cage, &[search(random)]).await?;
        require_control(&reply, reply.contains("looked at"))?;
        if reply.contains("FOUND") {
            return case_verdict(true, reply);
        }
    }
    let line = format!("echo {DECOY} > decoy; DECOY={DECOY} exec sleep 4");
    let exec = ExecRequest::shell(&line, std::time::Duration::from_secs(8));
    let sleeping = capture(&*cage.sandbox, &exec, 1 << 10);
    let looking = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        arena.run_client(&cage, &[search(DECOY)]).await
    };
    let reply = tokio::select! {
        reply = looking => reply?,
        ended = sleeping => return Err(suite_error(format!("{ended:?}"))),
    };
    for place in ["/environ", "/mem", "/workspace/decoy"] {
        require_control(format!("nothing is found in {place}: {reply}"), reply.contains(place))?;
    }
    case_verdict(false, "")
}

async fn answers(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let mut all = String::new();
    for path in ["/health", "/", "/r/", "/r/anthropic", "/r/none/v1/models", "/debug", "/metrics", "/r/anthropic/v1/x"]
    {
        for method in ["GET", "POST", "OPTIONS"] {
            let line = format!(r"send:{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            all.push_str(&arena.run_client(&cage, &["proxy".to_owned(), line, "receive".to_owned()]).await?);
        }
    }
    require_control(&all, all.contains("\\\"mode\\\":\\\"allowlist\\\"") && all.contains("HTTP/1.1 404"))?;
    let named = ["API_TOKEN", "GITHUB_PAT", "EXPIRED_TOKEN", "model.test"].iter().any(|name| all.contains(name));
    case_verdict(contains_secret(arena, &all) || named, all)
}

/// Checks that no file that the suite's ralph wrote on the host contains a credential.
async fn on_host(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_audited_cage(Strict).await?;
    arena
        .run_client(
            &cage,
            &[
                "connect:api.test:443",
                "tls:api.test",
                r"send:GET /echo HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
                "receive",
            ],
        )
        .await?;
    arena
        .run_client(
            &cage,
            &[
                "proxy",
                r"send:GET /r/anthropic/v1/models?/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n\r\n",
                "receive",
            ],
        )
        .await?;
    let _ = cage.sandbox.destroy().await;
    let decoy = arena.path().join("state/decoy");
    std::fs::write(&decoy, DECOY).map_err(suite_error)?;
    let (mut found, mut decoys, mut logged) = (Vec::new(), 0, false);
    for file in files(arena.path()) {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        // Skips the copy of the program, which is not an output.
        if bytes.len() > 8 << 20 {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        decoys += usize::from(text.contains(DECOY));
        logged |= text.contains("api.test") && text.contains("API_TOKEN");
        if contains_secret(arena, &text) {
            found.push(file);
        }
    }
    let _ = std::fs::remove_file(decoy);
    require_control("the decoy is not found", decoys > 0)?;
    require_control("the audit log does not contain the request", logged)?;
    case_verdict(!found.is_empty(), format!("{found:?}"))
}

/// Returns every file below a folder, without following links.
pub(super) fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => all.push(entry.path()),
                _ => (),
            }
        }
    }
    all
}

fn get(host: &str, path: &str, key: &str) -> [String; 4] {
    [
        format!("connect:{host}:443"),
        format!("tls:{host}"),
        format!(r"send:GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"),
        "receive".to_owned(),
    ]
}

/// Checks that a server's echo of the credential does not reach the client; it does where the proxy does not inspect.
async fn reflected(arena: &EgressArena, path: &str) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let (reply, happened) = arena.run_attack(&cage, &get("api.test", path, "{api}")).await?;
    require_control(&reply, happened.received(arena.secret("api")))?;
    if contains_secret(arena, &reply) {
        return case_verdict(true, reply);
    }
    require_echo(arena, path).await?;
    case_verdict(false, "")
}

async fn by_route(arena: &EgressArena, path: &str) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let line = format!(r"send:GET /r/anthropic{path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\n\r\n");
    let (reply, happened) = arena.run_attack(&cage, &["proxy".to_owned(), line, "receive".to_owned()]).await?;
    require_control(&reply, happened.received(arena.secret("model")))?;
    if contains_secret(arena, &reply) {
        return case_verdict(true, reply);
    }
    require_echo(arena, path).await?;
    case_verdict(false, "")
}

/// Shows that the server echoes what the client sends where the proxy does not inspect.
async fn require_echo(arena: &EgressArena, path: &str) -> Result<(), AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let (reply, _) = arena.run_attack(&cage, &get("allowed.test", path, DECOY)).await?;
    let reply = reply.to_lowercase();
    require_control(&reply, encodings(DECOY).iter().any(|form| reply.contains(&form.to_lowercase())))
}

async fn cookie(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let (reply, _) = arena.run_attack(&cage, &get("api.test", "/cookie", "{api}")).await?;
    let (there, _) = arena.run_attack(&cage, &get("allowed.test", "/cookie", "x")).await?;
    require_control(&there, there.contains("session=real"))?;
    require_control(&reply, reply.contains("HTTP/1.1 200"))?;
    case_verdict(reply.contains("real"), reply)
}

async fn switch(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let mut words = get("api.test", "/switch", "{api}").to_vec();
    words.extend([r"send:GET /after HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(), "receive".to_owned()]);
    let (reply, happened) = arena.run_attack(&cage, &words).await?;
    require_control(&reply, happened.received("/switch"))?;
    case_verdict(reply.contains("HTTP/1.1 101") || happened.received("/after"), reply)
}
