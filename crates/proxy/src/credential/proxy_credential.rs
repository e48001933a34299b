//! Defines a credential that the proxy injects: the sandbox holds a phantom, and the proxy replaces it with the real
//! one.
//!
//! Credentials that a client sends never pass unchanged. A phantom is replaced by the real credential on its way to
//! its own host; anything else that looks like a credential is removed from a request into which one is injected, and
//! a phantom on its way to another host raises an alarm.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use ralph_core::policy::{BadHost, canonical_host};
use ralph_core::redact::encodings;
use ralph_core::secret::Secret;

use super::header_filter;
use super::phantom::{PhantomCredential, RandomSourceError};

/// The part of a request that carries a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialPlacement {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`, as the password; git does this.
    Basic,
    /// The header in which the client sent the phantom, with the text before it; as the password of a `Basic` value
    /// if it was sent so; otherwise `Bearer`.
    AsSent,
    /// A header of its own, such as `x-api-key`.
    Header(HeaderName),
}

impl CredentialPlacement {
    /// Returns the placement in a header of its own, by its name in small letters.
    pub fn header(name: &'static str) -> Self {
        Self::Header(HeaderName::from_static(name))
    }
}

/// Headers that carry credentials, in the spelling to which all others are normalized.
const CREDENTIAL_HEADERS: [&str; 12] = [
    "api-key",
    "authentication",
    "authorization",
    "cookie",
    "cookie2",
    "private-token",
    "proxy-authorization",
    "x-access-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
    "x-goog-iam-authorization-token",
];

/// A credential of one sandbox.
pub struct ProxyCredential {
    name: String,
    secret: Secret,
    phantom: PhantomCredential,
    /// The phantom as it would appear in the name of a header, in small letters.
    phantom_lowercase: String,
    place: CredentialPlacement,
    /// The hosts it is for; a route needs none.
    hosts: Vec<String>,
    /// A value that has to be in a list header beside it.
    extra_list_value: Option<(HeaderName, &'static str)>,
    revoked: AtomicBool,
    /// Whether its phantom was seen where it is not needed, which is reported once.
    misuse_reported: AtomicBool,
}

impl fmt::Debug for ProxyCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, place, hosts, .. } = self;
        f.debug_struct("ProxyCredential")
            .field("name", name)
            .field("place", place)
            .field("hosts", hosts)
            .finish_non_exhaustive()
    }
}

/// Why a credential cannot be granted.
#[derive(Debug, thiserror::Error)]
pub enum BadCredential {
    #[error(transparent)]
    Random(#[from] RandomSourceError),
    #[error("credential `{name}` is empty or contains a character that is not allowed in a header")]
    Unsendable { name: String },
    #[error("credential `{name}` names an invalid host")]
    Host { name: String, source: BadHost },
}

impl ProxyCredential {
    pub fn new(name: impl Into<String>, secret: &Secret, place: CredentialPlacement) -> Result<Self, BadCredential> {
        let name = name.into();
        // Values read from files end with a line break.
        let secret = Secret::new(secret.expose().trim());
        if secret.expose().is_empty() || HeaderValue::from_str(secret.expose()).is_err() {
            return Err(BadCredential::Unsendable { name });
        }
        let phantom = PhantomCredential::shaped_like(secret.expose())?;
        let small = phantom.as_str().to_ascii_lowercase();
        Ok(Self {
            name,
            secret,
            phantom,
            phantom_lowercase: small,
            place,
            hosts: Vec::new(),
            extra_list_value: None,
            revoked: AtomicBool::default(),
            misuse_reported: AtomicBool::default(),
        })
    }

    /// Binds the credential to hosts, to which it is sent over verified TLS.
    pub fn for_hosts<S: AsRef<str>>(mut self, hosts: impl IntoIterator<Item = S>) -> Result<Self, BadCredential> {
        for host in hosts {
            let host = canonical_host(host.as_ref())
                .map_err(|source| BadCredential::Host { name: self.name.clone(), source })?;
            self.hosts.push(host);
        }
        Ok(self)
    }

    /// Adds the header that Anthropic requires beside the token of a subscription.
    #[must_use]
    pub fn for_subscription(mut self) -> Self {
        self.extra_list_value = Some((HeaderName::from_static("anthropic-beta"), "oauth-2025-04-20"));
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the phantom that goes into the sandbox.
    pub fn phantom(&self) -> &str {
        self.phantom.as_str()
    }

    /// Makes the phantom worthless from now on.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Says whether this is the first time that its phantom was seen where it is not needed.
    pub(crate) fn is_first_misuse(&self) -> bool {
        !self.misuse_reported.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_for_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| known == host)
    }

    /// Returns every encoding in which the real credential could come back.
    pub(crate) fn secret_encodings(&self) -> impl Iterator<Item = (String, String)> {
        encodings(self.secret.expose()).into_iter().map(|form| (form, self.name.clone()))
    }

    /// Returns every encoding in which the phantom could be sent out.
    pub(crate) fn phantom_encodings(&self) -> impl Iterator<Item = (String, String)> {
        encodings(self.phantom.as_str()).into_iter().map(|form| (form, self.name.clone()))
    }

    /// Says whether a request carries the phantom as a credential, in any header and form.
    pub(crate) fn phantom_in_headers(&self, headers: &HeaderMap) -> bool {
        headers.iter().filter(|(name, _)| self.may_inject_into(name)).any(|(_, value)| self.phantom_in_value(value))
    }

    /// Says whether the real credential may be put into a header. A server may store other headers and show them to
    /// others.
    fn may_inject_into(&self, name: &HeaderName) -> bool {
        is_credential_header(name) || (self.place == CredentialPlacement::AsSent && is_credential_name(name.as_str()))
    }

    /// Finds the header whose value ends with the phantom, and the text before it.
    fn find_sent_header(&self, headers: &HeaderMap) -> Option<(HeaderName, String)> {
        let plain = |(name, value): (&HeaderName, &HeaderValue)| {
            let before = value.to_str().ok()?.strip_suffix(self.phantom.as_str())?;
            // `Bearer …`, `token …`, `Token token=…`, `session=…`.
            let fits = before.is_empty() || (before.len() <= 32 && before.ends_with([' ', '=']));
            (fits && !self.phantom_in_text(before)).then(|| (name.clone(), before.to_owned()))
        };
        let usual = headers.get(AUTHORIZATION).map(|value| (&AUTHORIZATION, value));
        usual.into_iter().chain(headers.iter().filter(|(name, _)| self.may_inject_into(name))).find_map(plain)
    }

    /// Says whether a value contains the phantom, plainly or as the user or password of a `Basic` value.
    pub(crate) fn phantom_in_value(&self, value: &HeaderValue) -> bool {
        let phantom = self.phantom.as_str();
        if value.len() < phantom.len() {
            return false;
        }
        // A byte beside it that is not text must not hide it.
        let text = String::from_utf8_lossy(value.as_bytes());
        text.contains(phantom) || parse_basic(&text).is_some_and(|(user, word)| user == phantom || word == phantom)
    }

    pub(crate) fn phantom_in_text(&self, text: &str) -> bool {
        text.contains(self.phantom.as_str())
    }

    /// Removes every header that contains the phantom, and says whether there was one.
    pub(crate) fn remove_phantom(&self, headers: &mut HeaderMap) -> bool {
        let holds = |(name, value): &(&HeaderName, &HeaderValue)| {
            self.phantom_in_value(value) || name.as_str().contains(&self.phantom_lowercase)
        };
        let named: Vec<HeaderName> = headers.iter().filter(holds).map(|(name, _)| name.clone()).collect();
        for name in &named {
            headers.remove(name);
        }
        !named.is_empty()
    }

    /// Removes every credential from a request and inserts the real one in its place.
    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        let user = headers.get(AUTHORIZATION).and_then(|value| parse_basic(value.to_str().ok()?)).map(|(user, _)| user);
        let sent = if self.place == CredentialPlacement::AsSent { self.find_sent_header(headers) } else { None };
        strip_credentials(headers);
        let place = match &self.place {
            CredentialPlacement::AsSent if user.is_some() => &CredentialPlacement::Basic,
            place => place,
        };
        let (name, text) = match (sent, place) {
            (Some((name, before)), _) => (name, format!("{before}{}", self.secret.expose())),
            (None, place) => self.default_header(place, user),
        };
        if let Ok(mut value) = HeaderValue::from_str(&text) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        if let Some((name, wanted)) = &self.extra_list_value {
            add_to_list(headers, name, wanted);
        }
    }

    /// Returns the header for a placement and its value.
    fn default_header(&self, place: &CredentialPlacement, user: Option<String>) -> (HeaderName, String) {
        match place {
            CredentialPlacement::Bearer | CredentialPlacement::AsSent => {
                (AUTHORIZATION, format!("Bearer {}", self.secret.expose()))
            }
            CredentialPlacement::Basic => {
                let user = user.filter(|user| user != self.phantom.as_str());
                let pair = format!("{}:{}", user.as_deref().unwrap_or("x-access-token"), self.secret.expose());
                (AUTHORIZATION, format!("Basic {}", BASE64.encode(pair)))
            }
            CredentialPlacement::Header(name) => (name.clone(), self.secret.expose().to_owned()),
        }
    }
}

/// Says whether the name of a header marks it as a credential, as with `circle-token` and `dd-api-key`. Many names
/// with `key` or `token` do not: `idempotency-key`, or `x-amz-meta-token`, which a store keeps beside an object.
fn is_credential_name(name: &str) -> bool {
    let mut words = name.rsplit(['-', '_', '.']);
    let (last, before) = (words.next().unwrap_or(name), words.next().unwrap_or(""));
    let key = ["api", "auth", "access", "secret", "private", "application", "subscription"];
    let meant = match last {
        "token" | "apikey" | "auth" | "authorization" | "secret" | "password" => true,
        "key" => key.iter().any(|word| before.ends_with(word)),
        _ => false,
    };
    meant && !name.contains("meta")
}

fn add_to_list(headers: &mut HeaderMap, name: &HeaderName, wanted: &'static str) {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    if values.iter().flat_map(|value| value.split(',')).any(|word| word.trim() == wanted) {
        return;
    }
    let all = values.into_iter().filter(|value| !value.is_empty()).chain([wanted]).collect::<Vec<_>>().join(",");
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert(name.clone(), value);
    }
}

/// Removes every header that carries a credential, in any spelling.
pub(crate) fn strip_credentials(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers.keys().filter(|name| is_credential_header(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Says whether a header carries a credential. Servers read `X_Api_Key` and `x.api.key` as `x-api-key`.
fn is_credential_header(name: &HeaderName) -> bool {
    CREDENTIAL_HEADERS.iter().any(|carrier| header_filter::matches_header_name(name, carrier))
}

fn parse_basic(value: &str) -> Option<(String, String)> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64.decode(rest.trim()).ok()?).ok()?;
    let (user, word) = pair.split_once(':')?;
    Some((user.to_owned(), word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::leak_scan::ForbiddenTexts;

    const REAL: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn each_placement_injects_into_its_header() {
        let injected = |place, sent: &dyn Fn(&str) -> Vec<(&'static str, String)>| {
            let credential = ProxyCredential::new("PAT", &Secret::new(format!("{REAL}\n")), place).unwrap();
            let sent = sent(credential.phantom());
            let pairs: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut headers = headers(&pairs);
            assert!(credential.phantom_in_headers(&headers));
            credential.inject(&mut headers);
            assert!(!credential.phantom_in_headers(&headers));
            shown(&headers)
        };
        let bearer = |phantom: &str| vec![("authorization", format!("Bearer {phantom}")), ("accept", "x".to_owned())];
        assert_eq!(
            injected(CredentialPlacement::Bearer, &bearer),
            ["accept: x", &format!("authorization: Bearer {REAL}")]
        );
        let key = HeaderName::from_static("x-api-key");
        // A phantom sent in another header is injected in the right one; what is smuggled beside it is removed.
        let both = |phantom: &str| {
            vec![
                ("authorization", format!("Bearer {phantom}")),
                ("x_api_key", "own".to_owned()),
                ("cookie", "a=b".to_owned()),
            ]
        };
        assert_eq!(injected(CredentialPlacement::Header(key), &both), [format!("x-api-key: {REAL}")]);
        let git = |phantom: &str| vec![("authorization", format!("Basic {}", BASE64.encode(format!("me:{phantom}"))))];
        let want = format!("authorization: Basic {}", BASE64.encode(format!("me:{REAL}")));
        assert_eq!(injected(CredentialPlacement::Basic, &git), [want]);
        assert_eq!(
            injected(CredentialPlacement::AsSent, &bearer),
            ["accept: x", &format!("authorization: Bearer {REAL}")]
        );
        assert_eq!(
            injected(CredentialPlacement::AsSent, &git),
            [format!("authorization: Basic {}", BASE64.encode(format!("me:{REAL}")))]
        );
        let user = |phantom: &str| vec![("authorization", format!("basic {}", BASE64.encode(format!("{phantom}:"))))];
        let want = format!("authorization: Basic {}", BASE64.encode(format!("x-access-token:{REAL}")));
        assert_eq!(injected(CredentialPlacement::Basic, &user), [want]);
    }

    #[test]
    fn the_real_credential_replaces_the_phantom_as_it_was_sent() {
        #[track_caller]
        fn check(sent: &[(&str, &str)], want: Option<&[(&str, &str)]>) {
            let credential = ProxyCredential::new("PAT", &Secret::new(REAL), CredentialPlacement::AsSent).unwrap();
            let filled = |pairs: &[(&str, &str)], with: &str| {
                headers(
                    &pairs
                        .iter()
                        .map(|(name, value)| (*name, value.replace('*', with)))
                        .collect::<Vec<_>>()
                        .iter()
                        .map(|(name, value)| (*name, value.as_str()))
                        .collect::<Vec<_>>(),
                )
            };
            let mut headers = filled(sent, credential.phantom());
            assert_eq!(credential.phantom_in_headers(&headers), want.is_some(), "{sent:?}");
            let Some(want) = want else { return };
            credential.inject(&mut headers);
            assert_eq!(shown(&headers), shown(&filled(want, REAL)), "{sent:?}");
            assert!(
                headers
                    .values()
                    .filter(|value| value.as_bytes().ends_with(REAL.as_bytes()))
                    .all(HeaderValue::is_sensitive)
            );
        }
        for sent in [
            ("x-api-key", "*"),
            ("circle-token", "*"),
            ("x-figma-token", "*"),
            ("dd-api-key", "*"),
            ("x-rapidapi-key", "*"),
            ("private-token", "*"),
            ("authorization", "token *"),
            ("authorization", "Token token=*"),
            ("authorization", "*"),
            ("cookie", "session=*"),
        ] {
            check(&[sent, ("accept", "x")], Some(&[sent, ("accept", "x")]));
        }
        // If it is sent twice, one header is enough; everything else that looks like a credential is removed.
        check(&[("x-api-key", "*"), ("authorization", "Bearer *")], Some(&[("authorization", "Bearer *")]));
        check(&[("x-api-key", "*"), ("authorization", "Bearer own")], Some(&[("x-api-key", "*")]));
        // Text follows it: it is injected where most servers look for it.
        check(&[("cookie", "a=*; b=c")], Some(&[("authorization", "Bearer *")]));
        // Headers that a server may show to others, or read as something else.
        for name in [
            "x-amz-meta-key",
            "x-goog-meta-token",
            "user-agent",
            "referer",
            "x-note",
            "sec-websocket-key",
            "idempotency-key",
        ] {
            check(&[(name, "*")], None);
        }
    }

    #[test]
    fn text_beside_a_phantom_does_not_hide_it() {
        let credential = ProxyCredential::new("T", &Secret::new(REAL), CredentialPlacement::Bearer).unwrap();
        let is_found = |bytes: &[u8]| credential.phantom_in_value(&HeaderValue::from_bytes(bytes).unwrap());
        let phantom = credential.phantom().as_bytes();
        assert!(is_found(phantom));
        assert!(is_found(&[b"a ", phantom, b"\xff"].concat()));
        assert!(!is_found(&phantom[1..]));
        assert!(!is_found(b""));
    }

    #[test]
    fn a_subscription_adds_its_beta_header() {
        for (sent, want) in [
            (&[][..], "oauth-2025-04-20"),
            (&[("anthropic-beta", "a, b")], "a, b,oauth-2025-04-20"),
            (&[("anthropic-beta", "a,oauth-2025-04-20")], "a,oauth-2025-04-20"),
        ] {
            let credential =
                ProxyCredential::new("T", &Secret::new(REAL), CredentialPlacement::Bearer).unwrap().for_subscription();
            let mut headers = headers(sent);
            credential.inject(&mut headers);
            assert_eq!(headers.get("anthropic-beta").unwrap(), want);
        }
    }

    #[test]
    fn credentials_that_cannot_be_sent_are_refused() {
        for bad in ["", " \n", "a\nb"] {
            assert!(ProxyCredential::new("X", &Secret::new(bad), CredentialPlacement::Bearer).is_err(), "{bad:?}");
        }
        let credential = ProxyCredential::new("X", &Secret::new(REAL), CredentialPlacement::Bearer).unwrap();
        assert!(!format!("{credential:?}").contains("ghp_"));
        assert!(credential.for_hosts(["a b"]).is_err());
    }

    #[test]
    fn the_real_credential_is_found_in_every_encoding() {
        let credential = ProxyCredential::new("X", &Secret::new(REAL), CredentialPlacement::Bearer).unwrap();
        let forbidden = ForbiddenTexts::new(credential.secret_encodings());
        assert_eq!(forbidden.find(format!("x{REAL}y").as_bytes()), Some("X"));
        assert_eq!(forbidden.find(BASE64.encode(format!("me:{REAL}")).as_bytes()), Some("X"));
        assert_eq!(forbidden.find(credential.phantom().as_bytes()), None);
    }
}
