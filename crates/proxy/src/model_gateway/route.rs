//! Defines a model route: a base URL inside the sandbox that leads to one model endpoint.
//!
//! Programs are given `http://…/r/NAME` as the address of their provider. A fixed list of endpoints and models is
//! allowed, with the credential injected and every call metered. The address of the endpoint comes from the host's
//! own configuration, so it needs no rule of the network policy. A rule that denies it applies.

use std::collections::BTreeMap;
use std::sync::Arc;

use ralph_core::egress::{BadTarget, EgressTarget, HTTP_PORT, HTTPS_PORT};
use ralph_core::price::Price;

use crate::credential::ProxyCredential;
use crate::meter::RouteApi;

/// The first segment of every route's path.
pub(crate) const ROUTE_PREFIX: &str = "/r/";

/// A model route.
#[derive(Debug, Clone)]
pub struct ModelRoute {
    name: String,
    api: RouteApi,
    pub(crate) upstream: Arc<RouteUpstream>,
    credential: Option<Arc<ProxyCredential>>,
    models: Arc<RouteModels>,
    /// Whether the endpoint may know the output limit only by its older name.
    pub(crate) legacy_limit: bool,
}

/// The models that may be called, by their name on the wire.
pub(crate) type RouteModels = BTreeMap<String, RouteModel>;

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteUpstream {
    pub(crate) https: bool,
    pub(crate) target: EgressTarget,
    /// Whether a credential is sent there.
    pub(crate) sends_credential: bool,
    /// The path before every endpoint, without a slash at its end.
    base: String,
}

impl RouteUpstream {
    /// Says whether two upstreams may share connections. A connection opened for calls without a key was not checked
    /// for whether a key may be sent over it.
    pub(crate) fn shares_connections_with(&self, other: &Self) -> bool {
        self.https == other.https && self.target == other.target && self.sends_credential == other.sends_credential
    }
}

/// What is known about a model that may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteModel {
    /// `None` if it is unknown; then the run needs a token cap.
    pub price: Option<Price>,
    /// The longest answer it gives, in tokens.
    pub max_output: u64,
    /// The longest answer to a call that names none.
    pub default_output: u64,
}

/// Why a route is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRoute {
    #[error("`{name}` is not a name for a route: letters, digits, `-`, `_` and `.` only")]
    Name { name: String },
    #[error("the base URL of route `{route}` is not `https://host/path` or `http://host/path`")]
    Url { route: String },
    #[error("the base URL of route `{route}` names no host")]
    Host { route: String, source: BadTarget },
}

impl ModelRoute {
    /// Makes a route to a base URL, as `models.yaml` and the table of providers define it.
    pub fn new(name: &str, wire: RouteApi, base_url: &str) -> Result<Self, BadRoute> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.starts_with('.') {
            return Err(BadRoute::Name { name: ralph_core::text::strip_control(name) });
        }
        let route = || name.to_owned();
        let (https, rest) = match (base_url.strip_prefix("https://"), base_url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(BadRoute::Url { route: route() }),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let odd = |byte: u8| !byte.is_ascii_graphic() || b"?#\\%".contains(&byte);
        if path.bytes().any(odd) || path.split('/').any(|part| part == ".." || part == ".") {
            return Err(BadRoute::Url { route: route() });
        }
        let target = EgressTarget::parse_authority(authority, Some(if https { HTTPS_PORT } else { HTTP_PORT }))
            .map_err(|source| BadRoute::Host { route: route(), source })?;
        let upstream = Arc::new(RouteUpstream {
            https,
            target,
            sends_credential: false,
            base: path.trim_end_matches('/').to_owned(),
        });
        Ok(Self { name: route(), api: wire, upstream, credential: None, models: Arc::default(), legacy_limit: false })
    }

    /// Injects a credential into every request of the route.
    #[must_use]
    pub fn with_credential(mut self, credential: Arc<ProxyCredential>) -> Self {
        self.credential = Some(credential);
        self.upstream = Arc::new(RouteUpstream { sends_credential: true, ..RouteUpstream::clone(&self.upstream) });
        self
    }

    /// Allows a model by its name on the wire.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<String>, model: RouteModel) -> Self {
        Arc::make_mut(&mut self.models).insert(name.into(), model);
        self
    }

    /// Marks an endpoint that may know the output limit of a chat only as `max_tokens`, as most but OpenAI's do.
    #[must_use]
    pub fn with_legacy_limit(mut self) -> Self {
        self.legacy_limit = true;
        self
    }

    /// Says whether another route leads to the same endpoint in the same way.
    pub fn has_same_upstream(&self, other: &Self) -> bool {
        let place = |route: &Self| RouteUpstream { sends_credential: false, ..RouteUpstream::clone(&route.upstream) };
        self.api == other.api && place(self) == place(other)
    }

    /// Says whether a model is either not known here yet, or known at this price. The usual length of its answers may
    /// differ between callers.
    pub fn accepts_model(&self, name: &str, model: RouteModel) -> bool {
        let usual_output = model.default_output;
        self.models.get(name).is_none_or(|known| RouteModel { default_output: usual_output, ..*known } == model)
    }

    pub fn has_model(&self, name: &str) -> bool {
        self.models.contains_key(name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn api(&self) -> RouteApi {
        self.api
    }

    pub fn credential(&self) -> Option<&Arc<ProxyCredential>> {
        self.credential.as_ref()
    }

    /// Returns the base URL for programs in the sandbox, given the address of the proxy's listener.
    pub fn base_url(&self, listener: &str) -> String {
        let version = match self.api {
            RouteApi::OpenAi => "/v1",
            RouteApi::Anthropic | RouteApi::Gemini => "",
        };
        format!("{listener}{ROUTE_PREFIX}{}{version}", self.name)
    }

    pub(crate) fn model(&self, name: &str) -> Option<RouteModel> {
        self.models.get(name).copied()
    }

    pub(crate) fn models(&self) -> &Arc<RouteModels> {
        &self.models
    }

    /// Returns the path at the endpoint. Either side may or may not include the version.
    pub(crate) fn upstream_path(&self, rest: &str) -> String {
        let base = self.upstream.base.as_str();
        let (version, in_base) = match self.api {
            RouteApi::Anthropic => ("/v1", base.ends_with("/v1")),
            // Most include it, and some another one.
            RouteApi::OpenAi => ("/v1", true),
            RouteApi::Gemini => ("/v1beta", base.ends_with("/v1beta")),
        };
        let below = rest.strip_prefix(version).filter(|below| below.starts_with('/')).unwrap_or(rest);
        [base, if in_base { "" } else { version }, below].concat()
    }
}

/// Splits the path of a request into the name of a route and what follows it.
pub(crate) fn split_route_path(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(ROUTE_PREFIX)?;
    let at = rest.find('/').unwrap_or(rest.len());
    Some(rest.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_paths() {
        #[track_caller]
        fn check(wire: RouteApi, base: &str, rest: &str, want: &str) {
            let route = ModelRoute::new("x", wire, base).unwrap();
            assert_eq!(route.upstream_path(rest), want);
        }
        check(RouteApi::Anthropic, "https://api.anthropic.com", "/v1/messages", "/v1/messages");
        check(RouteApi::Anthropic, "https://x.io/anthropic/", "/v1/messages", "/anthropic/v1/messages");
        check(RouteApi::Anthropic, "https://x.io/a/v1", "/v1/messages", "/a/v1/messages");
        check(RouteApi::OpenAi, "https://api.openai.com/v1", "/v1/responses", "/v1/responses");
        check(RouteApi::OpenAi, "https://api.openai.com/v1", "/responses", "/v1/responses");
        check(
            RouteApi::OpenAi,
            "https://api.z.ai/api/paas/v4",
            "/v1/chat/completions",
            "/api/paas/v4/chat/completions",
        );
        check(RouteApi::OpenAi, "http://127.0.0.1:4000", "/v1/chat/completions", "/chat/completions");
        let models = "/v1beta/models/m:generateContent";
        check(RouteApi::Gemini, "https://g.io/v1beta", models, models);
        check(RouteApi::Gemini, "https://g.io", "/models/m:generateContent", models);
    }

    #[test]
    fn bad_routes() {
        for (name, url) in [
            ("", "https://x.io"),
            ("a/b", "https://x.io"),
            ("..", "https://x.io"),
            ("x", "x.io"),
            ("x", "ftp://x.io"),
            ("x", "https://"),
            ("x", "https://user@x.io"),
            ("x", "https://x.io/a?b"),
            ("x", "https://x.io/../a"),
        ] {
            assert!(ModelRoute::new(name, RouteApi::OpenAi, url).is_err(), "{name} {url}");
        }
    }

    #[test]
    fn names_in_paths() {
        assert_eq!(split_route_path("/r/a/v1/x"), Some(("a", "/v1/x")));
        assert_eq!(split_route_path("/r/a"), Some(("a", "")));
        assert_eq!(split_route_path("/x/a"), None);
        let route = ModelRoute::new("a", RouteApi::OpenAi, "https://x.io").unwrap();
        assert_eq!(route.base_url("http://127.0.0.1:3128"), "http://127.0.0.1:3128/r/a/v1");
    }
}
