//! Where a real credential could be found inside: in memory, files, environments and in answers that give it back.

use ralph_core::redact::encodings;
use ralph_sandbox::{ExecRequest, capture};

use super::super::arena::{EgressArena, suite_error};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::client_codec::escape;
use super::super::leak_search::invert_bits;
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

/// What stands where a secret could, so that it is seen that it would be found.
const DECOY: &str = "decoy-1f6c0e5a93b7d248";

/// Ways in which a server gives back what it was sent.
macro_rules! reflected {
    ($($id:literal $name:literal $wish:literal,)*) => {
        &[$(
            EgressCase::custom(concat!("PC-13.", $id), $name, |g| Box::pin(reflected(g, concat!("/", $wish)))),
            EgressCase::custom(concat!("PC-13.route-", $id), concat!($name, ", by a route"), |g| {
                Box::pin(by_route(g, concat!("/v1/models?/", $wish)))
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
    "reason" "the credential in the words of a status" "reason",
    "location" "the credential in a redirect" "location",
    "trailer" "the credential behind the last chunk" "trailer",
    "early" "the credential in an early hint" "early",
    "encoded" "the credential in what claims to be compressed" "encoded",
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-01.inside", "the credentials in memory, environments and files", |g| {
        Box::pin(search_inside(g))
    }),
    EgressCase::custom("PC-01.answers", "the credentials in what the door says of itself", |g| Box::pin(answers(g))),
    EgressCase::custom("PC-01.host", "the credentials in what the host writes down", |g| Box::pin(on_host(g))),
    EgressCase::custom("PC-13.cookie", "a session of the host's own", |g| Box::pin(cookie(g))),
    EgressCase::custom("PC-13.switch", "a host that changes the protocol unasked", |g| Box::pin(switch(g))),
];

fn contains_secret(ground: &EgressArena, told: &str) -> bool {
    let told = told.to_lowercase();
    ground.secrets().any(|secret| encodings(secret).iter().any(|form| told.contains(&form.to_lowercase())))
}

async fn search_inside(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    // Everything is in use at least once before it is looked for.
    ground
        .run_client(
            &cage,
            &[
                "connect:api.test:443",
                "tls:api.test",
                r"say:GET /echo HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
                "hear",
            ],
        )
        .await?;
    let search = |needle: &str| format!("search:{}", escape(&invert_bits(needle.as_bytes())));
    for secret in ground.secrets() {
        // The random part alone: a prefix could be cut off.
        let random = secret.split_once("CANARY").map_or(secret, |(_, random)| random);
        let told = ground.run_client(&cage, &[search(random)]).await?;
        require_control(&told, told.contains("looked at"))?;
        if told.contains("FOUND") {
            return case_verdict(true, told);
        }
    }
    let line = format!("echo {DECOY} > decoy; DECOY={DECOY} exec sleep 4");
    let exec = ExecRequest::shell(&line, std::time::Duration::from_secs(8));
    let sleeping = capture(&*cage.sandbox, &exec, 1 << 10);
    let looking = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        ground.run_client(&cage, &[search(DECOY)]).await
    };
    let told = tokio::select! {
        told = looking => told?,
        ended = sleeping => return Err(suite_error(format!("{ended:?}"))),
    };
    for place in ["/environ", "/mem", "/workspace/decoy"] {
        require_control(format!("nothing is found in {place}: {told}"), told.contains(place))?;
    }
    case_verdict(false, "")
}

async fn answers(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let mut all = String::new();
    for path in ["/health", "/", "/r/", "/r/anthropic", "/r/none/v1/models", "/debug", "/metrics", "/r/anthropic/v1/x"]
    {
        for method in ["GET", "POST", "OPTIONS"] {
            let line = format!(r"say:{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            all.push_str(&ground.run_client(&cage, &["door".to_owned(), line, "hear".to_owned()]).await?);
        }
    }
    require_control(&all, all.contains("\\\"mode\\\":\\\"allowlist\\\"") && all.contains("HTTP/1.1 404"))?;
    let named = ["API_TOKEN", "GITHUB_PAT", "EXPIRED_TOKEN", "model.test"].iter().any(|name| all.contains(name));
    case_verdict(contains_secret(ground, &all) || named, all)
}

/// Nothing that the suite's own ralph wrote on the host holds a credential.
async fn on_host(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_audited_cage(Strict).await?;
    ground
        .run_client(
            &cage,
            &[
                "connect:api.test:443",
                "tls:api.test",
                r"say:GET /echo HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
                "hear",
            ],
        )
        .await?;
    ground
        .run_client(
            &cage,
            &[
                "door",
                r"say:GET /r/anthropic/v1/models?/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n\r\n",
                "hear",
            ],
        )
        .await?;
    let _ = cage.sandbox.destroy().await;
    let decoy = ground.path().join("state/decoy");
    std::fs::write(&decoy, DECOY).map_err(suite_error)?;
    let (mut found, mut decoys, mut book) = (Vec::new(), 0, false);
    for file in files(ground.path()) {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        // The program itself is not something that was written down.
        if bytes.len() > 8 << 20 {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        decoys += usize::from(text.contains(DECOY));
        book |= text.contains("api.test") && text.contains("API_TOKEN");
        if contains_secret(ground, &text) {
            found.push(file);
        }
    }
    let _ = std::fs::remove_file(decoy);
    require_control("the decoy is not found", decoys > 0)?;
    require_control("what happened stands in no book", book)?;
    case_verdict(!found.is_empty(), format!("{found:?}"))
}

/// Returns every file below a folder, following no link.
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
        format!(r"say:GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"),
        "hear".to_owned(),
    ]
}

/// A server that gives back what it was sent gives back nothing here; where nobody looks, it does.
async fn reflected(ground: &EgressArena, path: &str) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let (told, happened) = ground.run_attack(&cage, &get("api.test", path, "{api}")).await?;
    require_control(&told, happened.received(ground.secret("api")))?;
    if contains_secret(ground, &told) {
        return case_verdict(true, told);
    }
    require_echo(ground, path).await?;
    case_verdict(false, "")
}

async fn by_route(ground: &EgressArena, path: &str) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let line = format!(r"say:GET /r/anthropic{path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\n\r\n");
    let (told, happened) = ground.run_attack(&cage, &["door".to_owned(), line, "hear".to_owned()]).await?;
    require_control(&told, happened.received(ground.secret("model")))?;
    if contains_secret(ground, &told) {
        return case_verdict(true, told);
    }
    require_echo(ground, path).await?;
    case_verdict(false, "")
}

/// Shows that the server gives back what the caller sends where nobody looks into it.
async fn require_echo(ground: &EgressArena, path: &str) -> Result<(), AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let (told, _) = ground.run_attack(&cage, &get("allowed.test", path, DECOY)).await?;
    let told = told.to_lowercase();
    require_control(&told, encodings(DECOY).iter().any(|form| told.contains(&form.to_lowercase())))
}

async fn cookie(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let (told, _) = ground.run_attack(&cage, &get("api.test", "/cookie", "{api}")).await?;
    let (there, _) = ground.run_attack(&cage, &get("allowed.test", "/cookie", "x")).await?;
    require_control(&there, there.contains("session=real"))?;
    require_control(&told, told.contains("HTTP/1.1 200"))?;
    case_verdict(told.contains("real"), told)
}

async fn switch(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let mut words = get("api.test", "/switch", "{api}").to_vec();
    words.extend([r"say:GET /after HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(), "hear".to_owned()]);
    let (told, happened) = ground.run_attack(&cage, &words).await?;
    require_control(&told, happened.received("/switch"))?;
    case_verdict(told.contains("HTTP/1.1 101") || happened.received("/after"), told)
}
