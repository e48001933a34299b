//! Attacks on the certificate authority that a sandbox trusts, and certificates that the proxy must not trust.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::arena::{EgressArena, ample_ledger, suite_error};
use super::super::case::EgressControl::Other;
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::client_codec::escape;
use super::super::leak_search::invert_bits;
use super::super::policies::PolicyPreset::{Open, Strict};
use super::credential_leaks::files;
use crate::report::AttackVerdict;

const BUNDLE: &str = "/exchange/ca-certificates.crt";
/// Longer than the marker that TLS libraries contain themselves.
const KEY: &str = "PRIVATE KEY-----\n";

const FINE: &[&str] = &[
    "connect:api.test:443",
    "tls:api.test",
    r"send:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
    "receive",
];

/// A host with an untrusted certificate, to which a credential is granted.
macro_rules! untrusted_host {
    ($($short:literal $name:literal $host:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!("PC-25.", $short), concat!($name, ", by `CONNECT`"),
                &[concat!("connect:", $host, ":443"), concat!("tls:", $host),
                    concat!(r"send:GET / HTTP/1.1\r\nHost: ", $host, r"\r\nAuthorization: Bearer {", $short, r"}\r\n\r\n"), "receive"],
                "HTTP/1.1 502", Other(Strict, FINE)).silent(),
            EgressCase::blocked(concat!("PC-25.", $short, "-named"), concat!($name, ", by a direct connection"),
                &[concat!("name:", $host, ":443"), concat!("tls:", $host),
                    concat!(r"send:GET / HTTP/1.1\r\nHost: ", $host, r"\r\nAuthorization: Bearer {", $short, r"}\r\n\r\n"), "receive"],
                "HTTP/1.1 502", Other(Strict, FINE)).silent(),
        )*]
    };
}

pub(super) const UNTRUSTED: &[EgressCase] = untrusted_host![
    "expired" "a host with an expired certificate" "expired.test",
    "stranger" "a host with a certificate of an unknown authority" "stranger.test",
    "misnamed" "a host with a certificate for another name" "misnamed.test",
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-23.unique", "another sandbox's authority", |g| Box::pin(unique(g))),
    EgressCase::custom("PC-23.key", "the key of the authority", |g| Box::pin(key(g))),
    EgressCase::custom("PC-23.host", "the authority among those the host trusts", |g| Box::pin(trusted_by_host(g))),
    EgressCase::custom("PC-24.spliced", "a certificate for a host that is not inspected", |g| Box::pin(spliced(g))),
    EgressCase::custom("PC-24.unlisted", "a certificate for an unlisted host", |g| Box::pin(unlisted(g))),
    EgressCase::custom("PC-24.lifetime", "a certificate that is valid long after the run", |g| Box::pin(lifetime(g))),
];

/// Checks that only its own sandbox trusts an authority.
async fn unique(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let (cage, other) = (arena.shared_cage(Strict).await?, arena.new_cage(Strict, ample_ledger()).await?);
    let bundle = other.sandbox.read(BUNDLE.as_ref(), 8 << 20).await.map_err(suite_error)?;
    let _ = other.sandbox.destroy().await;
    cage.sandbox.write("other.pem".as_ref(), &bundle, None).await.map_err(suite_error)?;
    let own = arena.run_client(&cage, &["connect:api.test:443".to_owned(), format!("tls:api.test,{BUNDLE}")]).await?;
    require_control(&own, own.contains("done"))?;
    let reply = arena.run_client(&cage, &["connect:api.test:443", "tls:api.test,other.pem"]).await?;
    case_verdict(!reply.contains("failed at tls"), reply)
}

/// Checks that the key is in no file and no memory inside, and in no file on the host.
async fn key(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    arena.run_client(&cage, FINE).await?;
    let search = [format!("search:{}", escape(&invert_bits(KEY.as_bytes())))];
    let reply = arena.run_client(&cage, &search).await?;
    let written: Vec<_> = files(&arena.path().join("state"))
        .into_iter()
        .filter(|file| std::fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(KEY)))
        .collect();
    cage.sandbox.write("key.pem".as_ref(), KEY.as_bytes(), None).await.map_err(suite_error)?;
    let there = arena.run_client(&cage, &search).await?;
    let removed = arena.path().join("state");
    let planted = files(&removed).into_iter().any(|file| file.file_name().is_some_and(|name| name == "key.pem"));
    let _ = cage.sandbox.write("key.pem".as_ref(), b"", None).await;
    require_control(&there, there.contains("FOUND /workspace/key.pem"))?;
    require_control("the host does not see the sandbox's files", planted)?;
    case_verdict(reply.contains("FOUND") || !written.is_empty(), format!("{reply} {written:?}"))
}

/// Checks that the host's trusted certificates are unchanged.
async fn trusted_by_host(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let bundle = cage.sandbox.read(BUNDLE.as_ref(), 8 << 20).await.map_err(suite_error)?;
    let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok).collect();
    let own = all
        .last()
        .cloned()
        .ok_or_else(|| AttackVerdict::Invalid("there is no certificate in the bundle".to_owned()))?;
    let host = rustls_native_certs::load_native_certs().certs;
    require_control("the host's own certificates are not in the bundle", host.iter().all(|one| all.contains(one)))?;
    case_verdict(host.contains(&own), "the host trusts the sandbox's authority")
}

/// Checks that a host that is only allowed shows its own certificate.
async fn spliced(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let words = |host: &str| [format!("connect:{host}:443"), format!("tls:{host},{BUNDLE}")];
    let own = arena.run_client(&cage, &words("api.test")).await?;
    require_control(&own, own.contains("certificate ") && own.contains("done"))?;
    let reply = arena.run_client(&cage, &words("allowed.test")).await?;
    case_verdict(!reply.contains("failed at tls"), reply)
}

/// Checks that no certificate is shown for a host that may not be reached, by any kind of connection.
async fn unlisted(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    for words in [
        ["connect:evil.test:443", "tls:evil.test"],
        ["socks:evil.test:443", "tls:evil.test"],
        ["connect:api.test:443", "tls:evil.test"],
        ["connect:api.test:443", "tls:git.test"],
        ["name:api.test:443", "tls:evil.test"],
    ] {
        let reply = arena.run_client(&cage, &words).await?;
        if reply.contains("certificate ") {
            return case_verdict(true, format!("{words:?}: {reply}"));
        }
    }
    let open = arena.shared_cage(Open).await?;
    let reply = arena.run_client(&open, &["connect:evil.test:443", "tls:evil.test"]).await?;
    require_control(&reply, reply.contains("certificate "))?;
    case_verdict(false, "")
}

/// Checks that the authority expires soon after any run has ended.
async fn lifetime(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let words =
        |days: u64| ["connect:api.test:443".to_owned(), format!("tls:api.test,{BUNDLE},{}", days * 24 * 60 * 60)];
    let now = arena.run_client(&cage, &words(0)).await?;
    require_control(&now, now.contains("done"))?;
    let later = arena.run_client(&cage, &words(60)).await?;
    case_verdict(!later.contains("failed at tls"), later)
}
