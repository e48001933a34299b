//! Validates a secret before it is stored: by one real, minimal call, or for a private key by parsing it. A success
//! counts only if the same call without the secret is refused.

use std::time::Duration;

use aws_lc_rs::rsa::KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ralph_core::env_vars::Env;
use ralph_core::secret::{Secret, SecretKind, build_probe};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};

use super::error::Error;
use crate::model;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The header in which GitHub states when a token expires.
const GITHUB_EXPIRY: &str = "github-authentication-token-expiration";

/// The result for a secret that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretValidation {
    pub verdict: ValidationVerdict,
    /// When the secret expires, if the server says so.
    pub expires: Option<Timestamp>,
}

/// How much a validation proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationVerdict {
    /// The host accepted it, and refuses requests without it.
    Accepted { host: String },
    /// The host answers without a credential, so nothing is known about the secret.
    NotRequired { host: String },
    /// It is a private key in a valid form.
    WellFormed,
}

/// Validates a secret; an error says that it was refused, or why that is not known.
pub async fn validate(
    name: &str,
    kind: SecretKind,
    secret: &Secret,
    base_url: Option<&str>,
    env: &Env,
) -> Result<SecretValidation, Error> {
    let Some(probe) = build_probe(name, kind, secret, base_url, env)? else {
        check_pem(name, secret)?;
        return Ok(SecretValidation { verdict: ValidationVerdict::WellFormed, expires: None });
    };
    let host = host_of(&probe.url);
    let client = model::client(None).map_err(Error::Client)?;
    let (header, value) = &probe.credential;
    // A value that no header can hold is not accepted anywhere.
    let Ok(mut value) = HeaderValue::from_str(value.expose()) else {
        return Err(Error::Refused { name: name.to_owned(), host, status: 401 });
    };
    value.set_sensitive(true);
    let ask = async |credential: Option<HeaderValue>| {
        let mut request = client.get(&probe.url).timeout(TIMEOUT);
        for (header, value) in &probe.headers {
            request = request.header(*header, *value);
        }
        if let Some(credential) = credential {
            request = request.header(*header, credential);
        }
        request.send().await.map_err(|source| Error::Unreachable {
            name: name.to_owned(),
            host: host.clone(),
            source: source.without_url(),
        })
    };
    let answer = ask(Some(value)).await?;
    let status = answer.status().as_u16();
    let expires = match status {
        200..=299 => token_expiry(answer.headers()),
        401 | 403 => return Err(Error::Refused { name: name.to_owned(), host, status }),
        // Google answers a wrong key with this status.
        400 if *header == "x-goog-api-key" => return Err(Error::Refused { name: name.to_owned(), host, status }),
        status => return Err(Error::Inconclusive { name: name.to_owned(), host, status }),
    };
    let verdict = match ask(None).await?.status().as_u16() {
        200..=299 => ValidationVerdict::NotRequired { host },
        status @ (408 | 429 | 500..) => return Err(Error::Inconclusive { name: name.to_owned(), host, status }),
        _ => ValidationVerdict::Accepted { host },
    };
    Ok(SecretValidation { verdict, expires })
}

fn host_of(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "the server".to_owned() };
    let host = url.host_str().unwrap_or("the server");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Parses `2026-12-31 10:00:00 UTC` and `2026-12-31 10:00:00 -0800`.
fn token_expiry(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(GITHUB_EXPIRY)?.to_str().ok()?;
    let mut words = text.split_whitespace();
    let (date, time, zone) = (words.next()?, words.next()?, words.next().unwrap_or("UTC"));
    let zone = if zone == "UTC" { "Z" } else { zone };
    format!("{date}T{time}{zone}").parse().ok()
}

/// Checks that a text is an RSA key as GitHub creates them for an App.
fn check_pem(name: &str, secret: &Secret) -> Result<(), Error> {
    let wrong = |why| Error::Pem { name: name.to_owned(), why };
    let text = secret.expose();
    let begin = text.strip_prefix("-----BEGIN ").ok_or_else(|| wrong("it does not start with -----BEGIN"))?;
    let (label, rest) = begin.split_once("-----").ok_or_else(|| wrong("its first line is not whole"))?;
    let (body, _) =
        rest.split_once(&format!("-----END {label}-----")).ok_or_else(|| wrong("its last line is missing"))?;
    let body: String = body.split_whitespace().collect();
    let der = zeroize::Zeroizing::new(STANDARD.decode(body).map_err(|_| wrong("it is not base 64 inside"))?);
    let read = match label {
        "RSA PRIVATE KEY" => KeyPair::from_der(&der),
        "PRIVATE KEY" => KeyPair::from_pkcs8(&der),
        "ENCRYPTED PRIVATE KEY" => return Err(wrong("it needs a passphrase, which ralph does not have")),
        _ => return Err(wrong("it is something else in PEM")),
    };
    read.map(drop).map_err(|_| wrong("it is not an RSA key of 2048 bits or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_dates() {
        for (text, want) in [
            ("2026-12-31 10:00:00 UTC", Some("2026-12-31T10:00:00Z")),
            ("2026-12-31 10:00:00 -0800", Some("2026-12-31T18:00:00Z")),
            ("2026-12-31 10:00:00", Some("2026-12-31T10:00:00Z")),
            ("never", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(GITHUB_EXPIRY.parse().unwrap(), HeaderValue::from_static(text))]);
            assert_eq!(token_expiry(&headers), want.map(|want| want.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn keys() {
        let made = KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let der = aws_lc_rs::encoding::AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'static>>::as_der(&made).unwrap();
        let wrapped = |label: &str, bytes: &[u8]| {
            let body = STANDARD.encode(bytes);
            let lines: Vec<&str> = body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----", lines.join("\n"))
        };
        let result = |text: &str| match check_pem("K", &Secret::new(text)) {
            Ok(()) => "good".to_owned(),
            Err(Error::Pem { why, .. }) => why.to_owned(),
            Err(error) => error.to_string(),
        };
        let label = ["PRIVATE", " KEY"].concat();
        assert_eq!(result(&wrapped(&label, der.as_ref())), "good");
        for (text, want) in [
            (wrapped(&format!("RSA {label}"), der.as_ref()), "it is not an RSA key of 2048 bits or more"),
            (wrapped(&label, b"nonsense"), "it is not an RSA key of 2048 bits or more"),
            (wrapped("CERTIFICATE", b"nonsense"), "it is something else in PEM"),
            (wrapped(&format!("ENCRYPTED {label}"), b"x"), "it needs a passphrase, which ralph does not have"),
            (format!("-----BEGIN {label}-----\n!!\n-----END {label}-----"), "it is not base 64 inside"),
            (format!("-----BEGIN {label}-----\nAAAA"), "its last line is missing"),
            ("-----BEGIN".to_owned(), "it does not start with -----BEGIN"),
            ("-----BEGIN x".to_owned(), "its first line is not whole"),
        ] {
            assert_eq!(result(&text), want, "{text}");
        }
    }
}
