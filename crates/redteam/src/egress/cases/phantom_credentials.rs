//! Attacks with phantoms in the wrong place: other hosts, hosts of other credentials, plain text, and after they were
//! revoked.

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
    r"send:GET /fine HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
    "receive",
];
const LOOK: &[&str] =
    &["connect:look.test:443", "tls:look.test", r"send:GET /public/x HTTP/1.1\r\nHost: look.test\r\n\r\n", "receive"];
const PLAIN: &[&str] = &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"];
const API_PLAIN: &[&str] = &["proxy", r"send:GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "receive"];
const GIT: &[&str] =
    &["connect:git.test:443", "tls:git.test", r"send:GET / HTTP/1.1\r\nHost: git.test\r\n\r\n", "receive"];
const ROUTE: &[&str] =
    &["proxy", r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n\r\n", "receive"];

/// A phantom in a request to a host that it is not valid for.
macro_rules! astray {
    ($($id:literal $name:literal $host:literal $path:literal $line:literal $fine:expr,)*) => {
        &[$(
            EgressCase::blocked($id, $name,
                &[concat!("connect:", $host, ":443"), concat!("tls:", $host),
                    concat!("send:GET ", $path, r" HTTP/1.1\r\nHost: ", $host, r"\r\n", $line, r"\r\n\r\n"), "receive"],
                "HTTP/1.1 403", Other(Strict, $fine)),
        )*]
    };
}

pub(super) const WRONG_HOST: &[EgressCase] = astray![
    "PC-02.header" "a phantom to an inspected host" "look.test" "/public/x" "X-Api-Key: {api}" LOOK,
    "PC-02.bearer" "a phantom as a bearer token" "look.test" "/public/x" "Authorization: Bearer {model}" LOOK,
    "PC-02.odd" "a phantom in an unknown header" "look.test" "/public/x" "X-Notes: so {api} it is" LOOK,
    "PC-02.cookie" "a phantom in a cookie" "look.test" "/public/x" "Cookie: a={git}" LOOK,
    "PC-02.query" "a phantom in the query" "look.test" "/public/x?{api}" "X-A: b" LOOK,
    "PC-02.path" "a phantom in the path" "look.test" "/public/{api}" "X-A: b" LOOK,
    "PC-02.high" "a phantom next to a byte that is not text" "look.test" "/public/x" r"X-Notes: {api}\xff" LOOK,
    "PC-02.agent" "a phantom in the user agent" "look.test" "/public/x" "User-Agent: {model}" LOOK,
    "PC-03.api-git" "a phantom to the host of another credential" "git.test" "/" "Authorization: Bearer {api}" GIT,
    "PC-03.git-api" "the Git phantom to the API host" "api.test" "/" "Authorization: Bearer {git}" API,
    "PC-03.model-api" "the model's phantom to another host" "api.test" "/" "X-Api-Key: {model}" API,
    "PC-03.both" "two phantoms in one request" "api.test" "/" r"Authorization: Bearer {api}\r\nX-Api-Key: {git}" API,
    "PC-03.beside" "a phantom next to the right one" "api.test" "/?{model}" "Authorization: Bearer {api}" API,
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "PC-02.plain",
        "a phantom in plain text",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nX-Api-Key: {api}\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-03.route",
        "a host's phantom to a model",
        &["proxy", r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api}\r\n\r\n", "receive"],
        "HTTP/1.1 401",
        Other(Strict, ROUTE),
    ),
    EgressCase::blocked(
        "PC-03.route-both",
        "a host's phantom next to the model's",
        &[
            "proxy",
            r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nX-A: {git}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 401",
        Other(Strict, ROUTE),
    ),
    EgressCase::blocked(
        "PC-11.absolute",
        "a phantom to its own host without TLS",
        &[
            "proxy",
            r"send:GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::blocked(
        "PC-11.tunnel",
        "a phantom to its own host without TLS, in a tunnel",
        &[
            "connect:api.test:80",
            r"send:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::blocked(
        "PC-11.named",
        "a phantom to its own host without TLS, by a direct connection",
        &[
            "name:api.test:80",
            r"send:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, API_PLAIN),
    ),
    EgressCase::custom("PC-02.opaque", "a phantom to a host that is not inspected", |g| Box::pin(opaque(g))),
    EgressCase::custom("PC-02.body", "a phantom in a body", |g| Box::pin(body(g))),
    EgressCase::custom("PC-12.redirect", "a redirect to another host", |g| Box::pin(redirect(g))),
    EgressCase::custom("PC-19.basic", "a phantom as a password", |g| Box::pin(basic(g))),
    EgressCase::custom("PC-19.other", "a phantom as a password to a host it is not valid for", |g| {
        Box::pin(other_password(g))
    }),
    EgressCase::custom("PC-21.revoked", "a revoked phantom", |g| Box::pin(revoked(g))),
    EgressCase::custom("PC-21.other", "a phantom of another sandbox", |g| Box::pin(other_cage(g))),
    EgressCase::custom("PC-21.stripped", "the client's own credentials next to the right one", |g| {
        Box::pin(stripped(g))
    }),
    EgressCase::custom("PC-21.hop", "a `Connection` header that removes the credential", |g| {
        Box::pin(hop_by_hop_header(g))
    }),
];

fn get(host: &str, path: &str, line: &str) -> [String; 4] {
    [
        format!("connect:{host}:443"),
        format!("tls:{host}"),
        format!(r"send:GET {path} HTTP/1.1\r\nHost: {host}\r\n{line}\r\n\r\n"),
        "receive".to_owned(),
    ]
}

/// Shows that a phantom is replaced by the real credential at its own host.
async fn require_substitution(arena: &EgressArena, cage: &ArenaCage) -> Result<(), AttackVerdict> {
    let (reply, happened) = arena.run_attack(cage, API).await?;
    require_control(reply, happened.received(arena.secret("api")) && !happened.received(&cage.phantom("api")))
}

fn holds_a_secret(arena: &EgressArena, happened: &super::super::fake_network::NetworkTrace) -> bool {
    arena.secrets().any(|secret| {
        ralph_core::redact::encodings(secret).iter().any(|form| happened.received(form)) || happened.received(secret)
    })
}

async fn opaque(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    require_substitution(arena, &cage).await?;
    for line in ["Authorization: Bearer {api}", "X-Api-Key: {model}", "Authorization: Bearer {git}"] {
        let (reply, happened) = arena.run_attack(&cage, &get("other.test", "/", line)).await?;
        require_control(reply, !happened.messages.is_empty())?;
        if holds_a_secret(arena, &happened) {
            return case_verdict(true, happened.summary());
        }
    }
    case_verdict(false, "")
}

/// Checks that a body with a phantom to the wrong host is cut off, in one chunk and in two.
async fn body(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let phantom = cage.phantom("git");
    let (one, two) = phantom.split_at(phantom.len() / 2);
    let head = |length: usize| format!(r"send:POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: {length}\r\n\r\n");
    let start = ["connect:api.test:443".to_owned(), "tls:api.test".to_owned()];
    let whole = vec![head(phantom.len()), format!("send:{phantom}"), "receive".to_owned()];
    let halves = vec![
        head(phantom.len()),
        format!("send:{one}"),
        "pause:30".to_owned(),
        format!("send:{two}"),
        "receive".to_owned(),
    ];
    let fine = vec![head(5), "send:hello".to_owned(), "receive".to_owned()];
    for words in [whole, halves] {
        let words: Vec<String> = start.iter().cloned().chain(words).collect();
        let (_, happened) = arena.run_attack(&cage, &words).await?;
        if happened.received(&phantom) || holds_a_secret(arena, &happened) {
            return case_verdict(true, happened.summary());
        }
    }
    let words: Vec<String> = start.into_iter().chain(fine).collect();
    let (reply, happened) = arena.run_attack(&cage, &words).await?;
    require_control(reply, happened.received("hello"))?;
    case_verdict(false, "")
}

/// Checks that the proxy follows no redirect, and that a client that does sends only a phantom.
async fn redirect(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let line = "Authorization: Bearer {api}";
    let (reply, happened) = arena.run_attack(&cage, &get("api.test", "/redirect", line)).await?;
    require_control(&reply, reply.contains("https://other.test/stolen") && happened.received(arena.secret("api")))?;
    if happened.dials.len() != 1 {
        return case_verdict(true, happened.summary());
    }
    let (reply, happened) = arena.run_attack(&cage, &get("other.test", "/stolen", line)).await?;
    require_control(reply, happened.received("/stolen"))?;
    case_verdict(holds_a_secret(arena, &happened), happened.summary())
}

fn password(cage: &ArenaCage, short: &str) -> String {
    format!("Authorization: Basic {}", BASE64.encode(format!("x:{}", cage.phantom(short))))
}

/// Checks that a password is replaced, and only as the password.
async fn basic(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let (reply, happened) = arena.run_attack(&cage, &get("git.test", "/", &password(&cage, "git"))).await?;
    let want = BASE64.encode(format!("x:{}", arena.secret("git")));
    require_control(reply, happened.received(&want))?;
    case_verdict(happened.received(&cage.phantom("git")), happened.summary())
}

async fn other_password(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    for (host, short) in [("git.test", "api"), ("api.test", "git"), ("look.test", "git"), ("git.test", "model")] {
        let (reply, happened) = arena.run_attack(&cage, &get(host, "/public/x", &password(&cage, short))).await?;
        if !happened.is_empty() {
            return case_verdict(true, format!("{host} {short}: {}", happened.summary()));
        }
        require_control(&reply, reply.contains("HTTP/1.1 403"))?;
    }
    let (reply, happened) = arena.run_attack(&cage, &get("git.test", "/", &password(&cage, "git"))).await?;
    require_control(reply, !happened.messages.is_empty())?;
    case_verdict(false, "")
}

async fn revoked(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let words: Vec<Vec<String>> = vec![
        API.iter().map(ToString::to_string).collect(),
        ROUTE.iter().map(ToString::to_string).collect(),
        get("git.test", "/", &password(&cage, "git")).into(),
    ];
    for words in &words {
        let (reply, happened) = arena.run_attack(&cage, words).await?;
        require_control(reply, !happened.messages.is_empty())?;
    }
    drop(super::super::fake_network::lock(&cage.lease).take());
    let mut verdict = case_verdict(false, "");
    for words in &words {
        let (reply, happened) = arena.run_attack(&cage, words).await?;
        if !happened.messages.is_empty() || !(reply.contains("HTTP/1.1 401") || reply.contains("HTTP/1.1 403")) {
            verdict = case_verdict(true, format!("{} and the client got {reply}", happened.summary()));
        }
    }
    let _ = cage.sandbox.destroy().await;
    verdict
}

/// Checks that a phantom is worth nothing except on the listeners it was issued for.
async fn other_cage(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let (cage, other) = (arena.shared_cage(Strict).await?, arena.new_cage(Strict, ample_ledger()).await?);
    require_substitution(arena, &cage).await?;
    let mut verdict = case_verdict(false, "");
    let line = |short: &str| format!("Authorization: Bearer {}", cage.phantom(short));
    let route =
        format!(r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {}\r\n\r\n", cage.phantom("model"));
    for words in [
        get("api.test", "/", &line("api")).to_vec(),
        get("git.test", "/", &password(&cage, "git")).to_vec(),
        vec!["proxy".to_owned(), route, "receive".to_owned()],
    ] {
        let (_, happened) = arena.run_attack(&other, &words).await?;
        if holds_a_secret(arena, &happened) {
            verdict = case_verdict(true, happened.summary());
        }
    }
    let _ = other.sandbox.destroy().await;
    verdict
}

/// Checks that credentials added by the client do not reach the host next to the granted one.
async fn stripped(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let lines = r"Authorization: Bearer {api}\r\nX_Api_Key: mine-1\r\nx-api-key: mine-2\r\nX.Auth.Token: mine-3\r\nCookie: mine-4\r\nProxy-Authorization: Basic mine-5\r\nPrivate_Token: mine-6\r\nX-Kept: kept";
    let (reply, happened) = arena.run_attack(&cage, &get("api.test", "/", lines)).await?;
    require_control(reply, happened.received("kept") && happened.received(arena.secret("api")))?;
    case_verdict(happened.received("mine-"), happened.messages.first().map_or("", |message| &message.text))
}

/// Checks that a client cannot name the credential as a hop-by-hop header.
async fn hop_by_hop_header(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let lines = r"Authorization: Bearer {api}\r\nConnection: authorization, host, content-length";
    let (_, happened) = arena.run_attack(&cage, &get("api.test", "/", lines)).await?;
    require_substitution(arena, &cage).await?;
    // Losing the phantom harms only the client; forwarding it would be a failure of the proxy.
    case_verdict(happened.received(&cage.phantom("api")) || !happened.received("host: api.test"), happened.summary())
}
