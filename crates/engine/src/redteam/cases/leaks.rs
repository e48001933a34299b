//! Where a real credential could be found inside: in memory, files, environments and in answers that give it back.

use ralph_core::redact::forms;
use ralph_sandbox::redteam::Verdict;
use ralph_sandbox::{Exec, capture};

use super::super::case::{Case, control, judged};
use super::super::ground::{Ground, broken};
use super::super::rules::Rules::Strict;
use super::super::search::turned;
use super::super::words::escaped;

/// What stands where a secret could, so that it is seen that it would be found.
const DECOY: &str = "decoy-1f6c0e5a93b7d248";

/// Ways in which a server gives back what it was sent.
macro_rules! reflected {
    ($($id:literal $name:literal $wish:literal,)*) => {
        &[$(
            Case::own(concat!("PC-13.", $id), $name, |g| Box::pin(reflected(g, concat!("/", $wish)))),
            Case::own(concat!("PC-13.route-", $id), concat!($name, ", by a route"), |g| {
                Box::pin(by_route(g, concat!("/v1/models?/", $wish)))
            }),
        )*]
    };
}

pub(super) const REFLECTED: &[Case] = reflected![
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

pub(super) const CASES: &[Case] = &[
    Case::own("PC-01.inside", "the credentials in memory, environments and files", |g| Box::pin(inside(g))),
    Case::own("PC-01.answers", "the credentials in what the door says of itself", |g| Box::pin(answers(g))),
    Case::own("PC-01.host", "the credentials in what the host writes down", |g| Box::pin(on_host(g))),
    Case::own("PC-13.cookie", "a session of the host's own", |g| Box::pin(cookie(g))),
    Case::own("PC-13.switch", "a host that changes the protocol unasked", |g| Box::pin(switch(g))),
];

fn holds(ground: &Ground, told: &str) -> bool {
    let told = told.to_lowercase();
    ground.secrets().any(|secret| forms(secret).iter().any(|form| told.contains(&form.to_lowercase())))
}

async fn inside(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    // Everything is in use at least once before it is looked for.
    ground
        .call(
            &cage,
            &[
                "connect:api.test:443",
                "tls:api.test",
                r"say:GET /echo HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
                "hear",
            ],
        )
        .await?;
    let search = |needle: &str| format!("search:{}", escaped(&turned(needle.as_bytes())));
    for secret in ground.secrets() {
        // The random part alone: a prefix could be cut off.
        let random = secret.split_once("CANARY").map_or(secret, |(_, random)| random);
        let told = ground.call(&cage, &[search(random)]).await?;
        control(&told, told.contains("looked at"))?;
        if told.contains("FOUND") {
            return judged(true, told);
        }
    }
    let line = format!("echo {DECOY} > decoy; DECOY={DECOY} exec sleep 4");
    let exec = Exec::shell(&line, std::time::Duration::from_secs(8));
    let sleeping = capture(&*cage.sandbox, &exec, 1 << 10);
    let looking = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        ground.call(&cage, &[search(DECOY)]).await
    };
    let told = tokio::select! {
        told = looking => told?,
        ended = sleeping => return Err(broken(format!("{ended:?}"))),
    };
    for place in ["/environ", "/mem", "/workspace/decoy"] {
        control(format!("nothing is found in {place}: {told}"), told.contains(place))?;
    }
    judged(false, "")
}

async fn answers(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let mut all = String::new();
    for path in ["/health", "/", "/r/", "/r/anthropic", "/r/none/v1/models", "/debug", "/metrics", "/r/anthropic/v1/x"]
    {
        for method in ["GET", "POST", "OPTIONS"] {
            let line = format!(r"say:{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            all.push_str(&ground.call(&cage, &["door".to_owned(), line, "hear".to_owned()]).await?);
        }
    }
    control(&all, all.contains("\\\"mode\\\":\\\"allowlist\\\"") && all.contains("HTTP/1.1 404"))?;
    let named = ["API_TOKEN", "GITHUB_PAT", "EXPIRED_TOKEN", "model.test"].iter().any(|name| all.contains(name));
    judged(holds(ground, &all) || named, all)
}

/// Nothing that the suite's own ralph wrote on the host holds a credential.
async fn on_host(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.audited(Strict).await?;
    ground
        .call(
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
        .call(
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
    std::fs::write(&decoy, DECOY).map_err(broken)?;
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
        if holds(ground, &text) {
            found.push(file);
        }
    }
    let _ = std::fs::remove_file(decoy);
    control("the decoy is not found", decoys > 0)?;
    control("what happened stands in no book", book)?;
    judged(!found.is_empty(), format!("{found:?}"))
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
async fn reflected(ground: &Ground, path: &str) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let (told, happened) = ground.attack(&cage, &get("api.test", path, "{api}")).await?;
    control(&told, happened.heard(ground.secret("api")))?;
    if holds(ground, &told) {
        return judged(true, told);
    }
    gives_back(ground, path).await?;
    judged(false, "")
}

async fn by_route(ground: &Ground, path: &str) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let line = format!(r"say:GET /r/anthropic{path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\n\r\n");
    let (told, happened) = ground.attack(&cage, &["door".to_owned(), line, "hear".to_owned()]).await?;
    control(&told, happened.heard(ground.secret("model")))?;
    if holds(ground, &told) {
        return judged(true, told);
    }
    gives_back(ground, path).await?;
    judged(false, "")
}

/// Shows that the server gives back what the caller sends where nobody looks into it.
async fn gives_back(ground: &Ground, path: &str) -> Result<(), Verdict> {
    let cage = ground.cage(Strict).await?;
    let (told, _) = ground.attack(&cage, &get("allowed.test", path, DECOY)).await?;
    let told = told.to_lowercase();
    control(&told, forms(DECOY).iter().any(|form| told.contains(&form.to_lowercase())))
}

async fn cookie(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let (told, _) = ground.attack(&cage, &get("api.test", "/cookie", "{api}")).await?;
    let (there, _) = ground.attack(&cage, &get("allowed.test", "/cookie", "x")).await?;
    control(&there, there.contains("session=real"))?;
    control(&told, told.contains("HTTP/1.1 200"))?;
    judged(told.contains("real"), told)
}

async fn switch(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let mut words = get("api.test", "/switch", "{api}").to_vec();
    words.extend([r"say:GET /after HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(), "hear".to_owned()]);
    let (told, happened) = ground.attack(&cage, &words).await?;
    control(&told, happened.heard("/switch"))?;
    judged(told.contains("HTTP/1.1 101") || happened.heard("/after"), told)
}
