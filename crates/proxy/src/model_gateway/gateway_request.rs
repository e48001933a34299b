//! Forwards one request to the endpoint of a route, and reports it once, however it ends.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use ralph_core::policy::PolicyRule;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::body_buffers::release_unused_buffer;
use super::call_charge::{self, PendingCharge};
use super::call_reservation::PreparedCall;
use super::drain::InFlightRequest;
use super::endpoint_pool::{ConnectionLease, EndpointError};
use super::response_body::{CallMeter, ExchangeReport, MeteredBody, ResponseConnection, RoutePermit};
use super::route::{self, ModelRoute};
use crate::connection_context::ConnectionContext;
use crate::credential::header_filter;
use crate::credential::leak_scan::LeakScanner;
use crate::egress_events::{AlarmKind, ChargedCall as Charged, EgressEntry, EgressEvent, EgressExchange};
use crate::meter::{self, GatewayRefusal, RefusalResponse, RouteApi, RouteEndpoint, UsageTee, classify_endpoint};

/// A body that takes noticeably long to parse.
const LONG_BODY: usize = 256 * 1024;

/// The response to the client.
pub(crate) type GatewayResponse = Response<Either<Full<Bytes>, MeteredBody>>;

/// Answers a health check: says what serves here, and nothing else.
pub(crate) fn health(context: &ConnectionContext) -> GatewayResponse {
    let mode = context.policy.mode();
    let body = format!("{{\"ralph\":\"{}\",\"mode\":\"{mode}\"}}\n", env!("CARGO_PKG_VERSION"));
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Serves a request to a route.
pub(crate) async fn serve(
    context: &Arc<ConnectionContext>,
    route: &ModelRoute,
    rest: &str,
    request: Request<Incoming>,
) -> GatewayResponse {
    let path = route.upstream_path(rest);
    let exchange = EgressExchange {
        entry: EgressEntry::Route,
        host: route.upstream.target.host().to_owned(),
        port: route.upstream.target.port(),
        method: request.method().as_str().to_owned(),
        path: path.clone(),
        status: None,
        refused: None,
        sent: 0,
        received: 0,
        credential: None,
        call: None,
    };
    let mut visit =
        GatewayRequest { context, route, exchange: Some(exchange), pending: None, in_flight: None, answered: false };
    match visit.forward(rest, path, request).await {
        Ok(answer) => answer,
        Err(refusal) => visit.refusal_response(&refusal),
    }
}

/// One request on its way through a route. If it is dropped on the way, it is reported as one whose client hung up.
pub(super) struct GatewayRequest<'a> {
    pub(super) context: &'a Arc<ConnectionContext>,
    pub(super) route: &'a ModelRoute,
    /// The exchange to report at the end, once.
    pub(super) exchange: Option<EgressExchange>,
    /// The call that was allowed, until it is charged.
    pub(super) pending: Option<PendingCharge>,
    /// The request under way, until its answer begins.
    in_flight: Option<InFlightRequest>,
    answered: bool,
}

impl Drop for GatewayRequest<'_> {
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        match (self.pending.take(), self.in_flight.take()) {
            (Some(pending), Some(in_flight)) => {
                let metered = in_flight.tee(None);
                let drains = self.context.drains.clone();
                let metered = metered.map(|tee| CallMeter { pending, tee, drains });
                in_flight.drain_after_hangup(ExchangeReport::new(
                    Arc::clone(&self.context.observer),
                    Some(exchange),
                    metered,
                ));
                return;
            }
            // Nothing is left that could read its usage.
            (Some(pending), None) if self.answered => exchange.call = Some(pending.charge_worst_case()),
            (Some(pending), None) => exchange.call = Some(pending.charge_nothing()),
            (None, _) => (),
        }
        self.context.observer.observe(EgressEvent::Exchange(exchange));
    }
}

impl GatewayRequest<'_> {
    pub(super) fn update_exchange(&mut self, what: impl FnOnce(&mut EgressExchange)) {
        if let Some(exchange) = &mut self.exchange {
            what(exchange);
        }
    }

    /// Charges the call that was allowed, if there is one.
    pub(super) fn charge(&mut self, how: impl FnOnce(PendingCharge) -> Charged) {
        if let Some(pending) = self.pending.take() {
            let call = how(pending);
            self.update_exchange(|exchange| exchange.call = Some(call));
        }
    }

    /// Forwards a request whose path is `rest` on the route and `path` at the endpoint.
    async fn forward(
        &mut self,
        rest: &str,
        path: String,
        request: Request<Incoming>,
    ) -> Result<GatewayResponse, GatewayRefusal> {
        // Its host comes from the host's own configuration and needs no rule. A rule that denies it applies all the
        // same.
        let mut check = self.context.policy.route_check(&self.route.upstream, request.method(), &path);
        if let Some(rule) = check.denying_rule() {
            return Err(self.policy_refusal(&rule));
        }
        if request.method() == Method::GET && is_websocket_upgrade(request.headers()) {
            let text = format!("route `{}` supports HTTP only, without upgrades", self.route.name());
            return Err(GatewayRefusal::Upgrade(text));
        }
        let Some(endpoint) = classify_endpoint(self.route.api(), request.method().as_str(), rest) else {
            let text = format!("`{} {rest}` is not an endpoint of route `{}`", request.method(), self.route.name());
            return Err(GatewayRefusal::Endpoint(text));
        };
        let query = request.uri().query().and_then(|query| filter_query(self.route, query));
        let (mut parts, body) = request.into_parts();
        self.inject_credential(&mut parts.headers, rest, parts.uri.query())?;
        let (body, buffer) = self.read_body(body).await?;
        let long = body.len() > LONG_BODY;
        let turn = if long { self.context.bodies.acquire_parser().await } else { None };
        // Reading the body took a while, and nothing has been paid for yet.
        if let Some(rule) = check.newly_denying_rule() {
            return Err(self.policy_refusal(&rule));
        }
        let path = match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        // A long body takes a while to parse and rewrite, and other connections are served by the same thread.
        let prepare = || {
            self.check_body_phantoms(&body)?;
            match endpoint {
                RouteEndpoint::Free => Ok((body, None, None)),
                RouteEndpoint::Count(call) => Ok((self.rewrite_count_request(&call, &body)?, None, None)),
                RouteEndpoint::Call(call) => {
                    let PreparedCall { body, usage_added, calling } = self.reserve(&call, &body)?;
                    Ok((body, Some((call, usage_added)), Some(calling)))
                }
            }
        };
        let (body, call, calling) = if long { run_blocking(prepare) } else { prepare() }?;
        drop(turn);
        if let Some(calling) = calling {
            self.persist_call(calling).await?;
        }
        self.update_exchange(|exchange| exchange.sent = body.len() as u64);
        if call.is_none() {
            // It costs nothing, so no budget limits it.
            self.context.count_outflow(body.len(), &self.route.upstream.target);
        }
        let request = self.build_request(parts.method, &path, parts.headers, body)?;
        let in_flight = InFlightRequest::new(self.context, &self.route.upstream, request, buffer, call.clone());
        let mut permit = RoutePermit::new(self.context, &self.route.upstream, check);
        let sent = tokio::select! {
            sent = self.in_flight.insert(in_flight).response() => sent,
            rule = permit.wait_revoked() => {
                let dialled = self.in_flight.take().is_some_and(|in_flight| in_flight.is_dialled());
                self.charge(if dialled { PendingCharge::charge_worst_case } else { PendingCharge::charge_nothing });
                return Err(self.policy_refusal(&rule));
            }
        };
        self.in_flight = None;
        self.answered = true;
        let (response, lease) = match sent {
            Ok(answered) => answered,
            Err(failed) => {
                // The provider may have worked on the request, and charge for that.
                self.charge(if matches!(failed, EndpointError::Lost(_)) {
                    PendingCharge::charge_worst_case
                } else {
                    PendingCharge::charge_nothing
                });
                if let EndpointError::NotPermitted(why) = &failed {
                    let host = self.route.upstream.target.host();
                    return Err(GatewayRefusal::Barred(format!("`{host}` cannot be called: {why}")));
                }
                let (host, why) = (self.route.upstream.target.host(), printable(&failed.to_string()));
                tracing::debug!(route = self.route.name(), why, "an endpoint could not be reached");
                return Err(GatewayRefusal::Upstream(format!("`{host}` does not answer: {why}")));
            }
        };
        self.build_response(response, lease, call, permit)
    }

    /// Reports a rule that denies the request.
    fn policy_refusal(&self, rule: &PolicyRule) -> GatewayRefusal {
        let target = &self.route.upstream.target;
        let text =
            format!("`{target}` is denied by rule `{rule}` of the network policy, which only a person can change");
        GatewayRefusal::Policy(text)
    }

    /// Reads a body as a whole, within the buffer space that all bodies of the sandbox share.
    async fn read_body(&mut self, body: Incoming) -> Result<(Bytes, OwnedSemaphorePermit), GatewayRefusal> {
        let limits = &self.context.limits;
        let length = hyper::body::Body::size_hint(&body).exact();
        let Ok(buffer) = timeout(limits.buffer_wait_time, self.context.bodies.reserve(length)).await else {
            let text = "the other calls of this sandbox use all the buffer space; try again later";
            return Err(GatewayRefusal::Unavailable(text.to_owned()));
        };
        let mut buffer = buffer.ok_or_else(|| GatewayRefusal::Unavailable("the sandbox is being closed".to_owned()))?;
        match timeout(limits.body_time, Limited::new(body, limits.body_bytes).collect()).await {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                release_unused_buffer(&mut buffer, body.len());
                Ok((body, buffer))
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(GatewayRefusal::TooLarge(format!("a request has at most {} MiB", limits.body_bytes >> 20)))
            }
            Ok(Err(_)) => Err(GatewayRefusal::BadRequest("the request was cut short".to_owned())),
            Err(_) => Err(GatewayRefusal::BadRequest("the request took too long to arrive".to_owned())),
        }
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, GatewayRefusal> {
        let wrong = || GatewayRefusal::BadRequest("the request cannot be rewritten".to_owned());
        let upstream = &self.route.upstream;
        let uri: Uri = path.parse().map_err(|_| wrong())?;
        let host = HeaderValue::from_str(&upstream.target.host_header(upstream.https)).map_err(|_| wrong())?;
        header_filter::remove_hop_by_hop(&mut headers);
        header_filter::retain_call_headers(&mut headers);
        headers.insert(HOST, host);
        // An answer in another encoding could be neither metered nor scanned.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn build_response(
        &mut self,
        response: Response<Incoming>,
        lease: ConnectionLease,
        call: Option<(meter::ModelCallKind, bool)>,
        permit: RoutePermit,
    ) -> Result<GatewayResponse, GatewayRefusal> {
        let (mut parts, body) = response.into_parts();
        self.update_exchange(|exchange| exchange.status = Some(parts.status.as_u16()));
        if let Some(pending) = &mut self.pending {
            pending.limits = call_charge::rate_limit_headers(&parts.headers);
        }
        let status = parts.status.as_u16();
        if meter::is_timeout_status(status) {
            self.charge(PendingCharge::charge_worst_case);
        }
        if let Some(pending) = &mut self.pending {
            pending.record_status(status);
        }
        if header_filter::is_encoded(&parts.headers) {
            self.charge(PendingCharge::charge_unreadable);
            return Err(GatewayRefusal::Upstream("the answer has an encoding that cannot be inspected".to_owned()));
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            self.charge(PendingCharge::charge_worst_case);
            return Err(GatewayRefusal::Upstream("the endpoint asked to switch protocols".to_owned()));
        }
        if let Some(name) = header_filter::find_leak(&parts.headers, &self.context.credentials.secrets) {
            self.context.raise_alarm(AlarmKind::SecretReturned, name.to_owned(), &self.route.upstream.target);
            self.charge(PendingCharge::charge_unreadable);
            return Err(GatewayRefusal::Upstream("the answer contained a real credential and was cut off".to_owned()));
        }
        let metered = self.pending.take().zip(call).map(|(pending, (call, usage_added))| {
            let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let usage_added = usage_added && !pending.refused;
            let tee = UsageTee::new(&call, kind, usage_added);
            if usage_added {
                // A chunk may be omitted, and a wrong length would be worse than none.
                parts.headers.remove(CONTENT_LENGTH);
            }
            CallMeter { pending, tee, drains: self.context.drains.clone() }
        });
        header_filter::filter_credentialed_response(&mut parts.headers, parts.version);
        parts.version = hyper::Version::HTTP_11;
        // For example the reason phrase, which was not scanned.
        parts.extensions.clear();
        // From here on the body reports the exchange.
        let report = ExchangeReport::new(Arc::clone(&self.context.observer), self.exchange.take(), metered);
        let scan = LeakScanner::new(self.context.credentials.secrets.clone());
        let passing = MeteredBody::new(body, ResponseConnection::Lease(lease), scan, report).with_permit(permit);
        Ok(Response::from_parts(parts, Either::Right(passing)))
    }

    fn refusal_response(&mut self, refusal: &GatewayRefusal) -> GatewayResponse {
        let RefusalResponse { status, body, headers } = meter::refusal_response(self.route.api(), refusal);
        self.update_exchange(|exchange| {
            exchange.status = Some(status);
            exchange.refused = Some(Box::new(refusal.clone()));
        });
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}

/// Says whether a request asks for a web socket, which could not be inspected.
fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(UPGRADE).iter().filter_map(|offer| offer.to_str().ok());
    offers.flat_map(|offer| offer.split(',')).any(|offer| offer.trim().eq_ignore_ascii_case("websocket"))
}

/// Keeps the query parameters that are known to be harmless. Others carry keys of their own, or make the provider
/// omit its usage from the answer.
fn filter_query(route: &ModelRoute, query: &str) -> Option<String> {
    let known: &[&str] = match route.api() {
        RouteApi::Anthropic => &["beta", "limit", "after_id", "before_id"],
        RouteApi::OpenAi => &["api-version"],
        RouteApi::Gemini => &["alt", "pageSize", "pageToken"],
    };
    let name = |pair: &str| pair.split_once('=').map_or(pair, |(name, _)| name).to_owned();
    let holds = |pair: &str| route.credential().is_some_and(|credential| credential.phantom_in_text(pair));
    let kept: Vec<&str> =
        query.split('&').filter(|pair| known.contains(&name(pair).as_str()) && !holds(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Runs something that takes a while, moving other tasks to another thread meanwhile if possible.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

pub(super) fn printable(text: &str) -> String {
    ralph_core::text::strip_control(ralph_core::text::first_line(text, 80))
}

/// Returns the route that a path names.
pub(crate) fn find_route<'a, 'p>(
    context: &'a ConnectionContext,
    path: &'p str,
) -> Option<(Option<&'a ModelRoute>, &'p str, &'p str)> {
    let (name, rest) = route::split_route_path(path)?;
    Some((context.routes.iter().find(|route| route.name() == name), name, rest))
}
