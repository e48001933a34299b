//! The authority that a sandbox trusts, and the certificates that the way out must not believe.

use ralph_sandbox::redteam::Verdict;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::case::Control::Other;
use super::super::case::{Case, control, judged};
use super::super::ground::{Ground, broken, plenty};
use super::super::rules::Rules::{Open, Strict};
use super::super::search::turned;
use super::super::words::escaped;
use super::leaks::files;

const BUNDLE: &str = "/exchange/ca-certificates.crt";
/// Longer than what a library keeps among its own words.
const KEY: &str = "PRIVATE KEY-----\n";

const FINE: &[&str] = &[
    "connect:api.test:443",
    "tls:api.test",
    r"say:GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
    "hear",
];

/// A host that cannot be believed, lent a credential of its own.
macro_rules! unbelieved {
    ($($short:literal $name:literal $host:literal,)*) => {
        &[$(
            Case::nothing(concat!("PC-25.", $short), concat!($name, ", by `CONNECT`"),
                &[concat!("connect:", $host, ":443"), concat!("tls:", $host),
                    concat!(r"say:GET / HTTP/1.1\r\nHost: ", $host, r"\r\nAuthorization: Bearer {", $short, r"}\r\n\r\n"), "hear"],
                "HTTP/1.1 502", Other(Strict, FINE)).silent(),
            Case::nothing(concat!("PC-25.", $short, "-named"), concat!($name, ", as if there were no proxy"),
                &[concat!("name:", $host, ":443"), concat!("tls:", $host),
                    concat!(r"say:GET / HTTP/1.1\r\nHost: ", $host, r"\r\nAuthorization: Bearer {", $short, r"}\r\n\r\n"), "hear"],
                "HTTP/1.1 502", Other(Strict, FINE)).silent(),
        )*]
    };
}

pub(super) const UNBELIEVED: &[Case] = unbelieved![
    "expired" "a host whose certificate is over" "expired.test",
    "stranger" "a host that nobody vouches for" "stranger.test",
    "misnamed" "a host with another's certificate" "misnamed.test",
];

pub(super) const CASES: &[Case] = &[
    Case::own("PC-23.unique", "another sandbox's authority", |g| Box::pin(unique(g))),
    Case::own("PC-23.key", "the key of the authority", |g| Box::pin(key(g))),
    Case::own("PC-23.host", "the authority among those the host trusts", |g| Box::pin(trusted(g))),
    Case::own("PC-24.spliced", "a certificate for a host nobody has to look into", |g| Box::pin(spliced(g))),
    Case::own("PC-24.unlisted", "a certificate for an unlisted host", |g| Box::pin(unlisted(g))),
    Case::own("PC-24.lifetime", "a certificate that outlives the run by far", |g| Box::pin(lifetime(g))),
];

/// Nobody believes the authority but the sandbox it was made for.
async fn unique(ground: &Ground) -> Result<Verdict, Verdict> {
    let (cage, other) = (ground.cage(Strict).await?, ground.fresh(Strict, plenty()).await?);
    let bundle = other.sandbox.read(BUNDLE.as_ref(), 8 << 20).await.map_err(broken)?;
    let _ = other.sandbox.destroy().await;
    cage.sandbox.write("other.pem".as_ref(), &bundle, None).await.map_err(broken)?;
    let own = ground.call(&cage, &["connect:api.test:443".to_owned(), format!("tls:api.test,{BUNDLE}")]).await?;
    control(&own, own.contains("done"))?;
    let told = ground.call(&cage, &["connect:api.test:443", "tls:api.test,other.pem"]).await?;
    judged(!told.contains("failed at tls"), told)
}

/// The key is in no file and no memory inside, and in no file of the host's.
async fn key(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    ground.call(&cage, FINE).await?;
    let search = [format!("search:{}", escaped(&turned(KEY.as_bytes())))];
    let told = ground.call(&cage, &search).await?;
    let written: Vec<_> = files(&ground.path().join("state"))
        .into_iter()
        .filter(|file| std::fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(KEY)))
        .collect();
    cage.sandbox.write("key.pem".as_ref(), KEY.as_bytes(), None).await.map_err(broken)?;
    let there = ground.call(&cage, &search).await?;
    let removed = ground.path().join("state");
    let planted = files(&removed).into_iter().any(|file| file.file_name().is_some_and(|name| name == "key.pem"));
    let _ = cage.sandbox.write("key.pem".as_ref(), b"", None).await;
    control(&there, there.contains("FOUND /workspace/key.pem"))?;
    control("the host does not see the sandbox's files", planted)?;
    judged(told.contains("FOUND") || !written.is_empty(), format!("{told} {written:?}"))
}

/// The host trusts whom it trusted before.
async fn trusted(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let bundle = cage.sandbox.read(BUNDLE.as_ref(), 8 << 20).await.map_err(broken)?;
    let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok).collect();
    let own = all.last().cloned().ok_or_else(|| Verdict::Invalid("there is no certificate inside".to_owned()))?;
    let host = rustls_native_certs::load_native_certs().certs;
    control("the host's own certificates are not in the bundle", host.iter().all(|one| all.contains(one)))?;
    judged(host.contains(&own), "the host trusts the sandbox's authority")
}

/// A host that is only allowed shows its own certificate.
async fn spliced(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let words = |host: &str| [format!("connect:{host}:443"), format!("tls:{host},{BUNDLE}")];
    let own = ground.call(&cage, &words("api.test")).await?;
    control(&own, own.contains("certificate ") && own.contains("done"))?;
    let told = ground.call(&cage, &words("allowed.test")).await?;
    judged(!told.contains("failed at tls"), told)
}

/// No certificate is shown for a host that may not be reached, whatever way it is asked for.
async fn unlisted(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    for words in [
        ["connect:evil.test:443", "tls:evil.test"],
        ["socks:evil.test:443", "tls:evil.test"],
        ["connect:api.test:443", "tls:evil.test"],
        ["connect:api.test:443", "tls:git.test"],
        ["name:api.test:443", "tls:evil.test"],
    ] {
        let told = ground.call(&cage, &words).await?;
        if told.contains("certificate ") {
            return judged(true, format!("{words:?}: {told}"));
        }
    }
    let open = ground.cage(Open).await?;
    let told = ground.call(&open, &["connect:evil.test:443", "tls:evil.test"]).await?;
    control(&told, told.contains("certificate "))?;
    judged(false, "")
}

/// The authority is over soon after any run is.
async fn lifetime(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let words =
        |days: u64| ["connect:api.test:443".to_owned(), format!("tls:api.test,{BUNDLE},{}", days * 24 * 60 * 60)];
    let now = ground.call(&cage, &words(0)).await?;
    control(&now, now.contains("done"))?;
    let later = ground.call(&cage, &words(60)).await?;
    judged(!later.contains("failed at tls"), later)
}
