//! Requests to reverse routes: a fixed list of endpoints, the credential put in, and every call paid for in advance.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use ralph_core::price::CacheWrites;
use tokio::time::timeout;

use crate::charge::Pending;
use crate::credential;
use crate::ledger::Rate;
use crate::meter::{self, Endpoint, Refusal, Said, Tee, endpoint};
use crate::notice::{Entry, Exchanged, Told, Wrong};
use crate::passing::{Ending, Metered, Passing};
use crate::pipeline::{Pipeline, alarm};
use crate::route::{self, Route};
use crate::scan::Scan;
use crate::wash;

/// What the client gets back.
pub(crate) type Answer = Response<Either<Full<Bytes>, Passing>>;

/// Says what serves here, and nothing else.
pub(crate) fn health(pipeline: &Pipeline) -> Answer {
    let mode = pipeline.mode();
    let body = format!("{{\"ralph\":\"{}\",\"mode\":\"{mode}\"}}\n", env!("CARGO_PKG_VERSION"));
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Serves a request to a route.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, route: &Route, rest: &str, request: Request<Incoming>) -> Answer {
    let told = Exchanged {
        entry: Entry::Route,
        host: route.upstream.target.host().to_owned(),
        port: route.upstream.target.port(),
        method: request.method().as_str().to_owned(),
        path: route.path(rest),
        status: None,
        sent: 0,
        received: 0,
        credential: None,
        call: None,
    };
    let mut visit = Visit { pipeline, route, told };
    match visit.carry(rest, request).await {
        Ok(answer) => answer,
        Err(refusal) => visit.refuse(&refusal),
    }
}

/// One request on its way through a route.
struct Visit<'a> {
    pipeline: &'a Arc<Pipeline>,
    route: &'a Route,
    told: Exchanged,
}

impl Visit<'_> {
    async fn carry(&mut self, rest: &str, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let Some(endpoint) = endpoint(self.route.wire(), request.method().as_str(), rest) else {
            let text = format!("`{} {rest}` is not an endpoint of route `{}`", request.method(), self.route.name());
            return Err(Refusal::Endpoint(text));
        };
        let query = request.uri().query().and_then(without_key);
        let (mut parts, body) = request.into_parts();
        self.lend(&mut parts.headers, parts.uri.query())?;
        let body = self.read(body).await?;
        let path = match query {
            Some(query) => format!("{}?{query}", self.route.path(rest)),
            None => self.route.path(rest),
        };
        let (body, call) = match endpoint {
            Endpoint::Free => (body, None),
            Endpoint::Call(call) => {
                let (body, pending, usage_added) = self.reserve(&call, &body)?;
                (body, Some((call, pending, usage_added)))
            }
        };
        self.told.sent = body.len() as u64;
        let request = self.write(parts.method, &path, parts.headers, body)?;
        let response = match self.pipeline.endpoints.send(request).await {
            Ok(response) => response,
            Err(error) => {
                if let Some((_, pending, _)) = call {
                    // Nothing that was sent may have been worked on only where there was no connection.
                    self.told.call = Some(if error.is_connect() { pending.nothing() } else { pending.worst() });
                }
                tracing::debug!(route = self.route.name(), error = %root(&error), "an endpoint could not be asked");
                return Err(Refusal::Upstream(format!("`{}` does not answer: {}", self.told.host, root(&error))));
            }
        };
        self.answer(response, call)
    }

    fn lend(&mut self, headers: &mut HeaderMap, query: Option<&str>) -> Result<(), Refusal> {
        let by_query = |phantom: &str| {
            query.is_some_and(|query| query.split('&').any(|pair| pair.strip_prefix("key=") == Some(phantom)))
        };
        // A stand-in of another credential has no business here.
        if let Some(other) = self.pipeline.astray(headers, query.unwrap_or(""), self.route.credential()) {
            alarm(&*self.pipeline.notice, Wrong::PhantomAstray, other, &self.route.upstream.target);
            return Err(Refusal::Credential("this stand-in is for another host".to_owned()));
        }
        let Some(credential) = self.route.credential() else {
            credential::strip(headers);
            return Ok(());
        };
        if !credential.is_in(headers) && !by_query(credential.phantom()) {
            let text = format!(
                "route `{}` takes the stand-in that the sandbox was given, and no other key",
                self.route.name()
            );
            return Err(Refusal::Credential(text));
        }
        if credential.is_revoked() {
            alarm(
                &*self.pipeline.notice,
                Wrong::PhantomRevoked,
                credential.name().to_owned(),
                &self.route.upstream.target,
            );
            return Err(Refusal::Credential("this stand-in was revoked".to_owned()));
        }
        credential.lend(headers);
        self.told.credential = Some(credential.name().to_owned());
        Ok(())
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let limits = &self.pipeline.limits;
        let whole = timeout(limits.body_time, Limited::new(body, limits.body_bytes).collect()).await;
        match whole {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Refusal::TooLarge(format!("a request has at most {} MiB", limits.body_bytes >> 20)))
            }
            Ok(Err(_)) => Err(Refusal::BadRequest("the request was cut short".to_owned())),
            Err(_) => Err(Refusal::BadRequest("the request took too long to arrive".to_owned())),
        }
    }

    /// Sets the worst case of a call aside and writes the request so that it cannot become worse.
    fn reserve(&mut self, call: &meter::Call, body: &[u8]) -> Result<(Bytes, Pending, bool), Refusal> {
        let asked = meter::Request::parse(call, body).map_err(|bad| Refusal::BadRequest(bad.to_string()))?;
        let name = asked.model().to_owned();
        let Some(model) = self.route.model(&name) else {
            let known: Vec<&str> = self.route.models().collect();
            let text = format!("model `{}` may not be called here, only {}", shown(&name), known.join(", "));
            return Err(Refusal::Model(text));
        };
        let room = self.pipeline.ledger.room();
        if model.price.is_none() && room.tokens.is_none() {
            return Err(Refusal::Model(format!(
                "nobody knows what `{}` costs, and the run has no cap of tokens",
                shown(&name)
            )));
        }
        let input = asked.input();
        let wanted = asked.wanted_output().unwrap_or(model.most_output).min(model.most_output).max(1);
        let writes = if asked.long_cache() { CacheWrites::Long } else { CacheWrites::Short };
        let rate = model.price.map_or(Rate::default(), |price| Rate::worst(&price, input, writes));
        let (reservation, output) = self.pipeline.ledger.reserve_call(rate, input, wanted).map_err(|refused| {
            let (route, model, why) = (self.route.name().to_owned(), name.clone(), refused.to_string());
            self.pipeline.notice.tell(Told::Spent { route, model, why: why.clone() });
            Refusal::Budget(why)
        })?;
        let written = asked.write(output);
        for change in &written.changed {
            tracing::debug!(route = self.route.name(), change, "a request was changed");
        }
        let worst = reservation.worst();
        let route = self.route.name().to_owned();
        let (cost, tokens) = (worst.cost, worst.tokens);
        self.pipeline.notice.tell(Told::Calling { route: route.clone(), model: name.clone(), cost, tokens });
        let (price, limits) = (model.price, Vec::new());
        let pending = Pending { reservation, price, route, model: name, input, output, limits };
        Ok((written.body.into(), pending, written.usage_added))
    }

    fn write(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Refusal> {
        let wrong = || Refusal::BadRequest("the request cannot be written anew".to_owned());
        let upstream = &self.route.upstream;
        let scheme = if upstream.https { "https" } else { "http" };
        let uri: Uri =
            format!("{scheme}://{}{path}", upstream.target.host_header(upstream.https)).parse().map_err(|_| wrong())?;
        wash::clean(&mut headers);
        for name in [HOST, ACCEPT_ENCODING, hyper::header::CONTENT_LENGTH, HeaderName::from_static("forwarded")] {
            headers.remove(name);
        }
        // An answer in another encoding could be neither metered nor looked through.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn answer(
        &mut self,
        response: Response<Incoming>,
        call: Option<(meter::Call, Pending, bool)>,
    ) -> Result<Answer, Refusal> {
        let (mut parts, body) = response.into_parts();
        self.told.status = Some(parts.status.as_u16());
        let call = call.map(|(call, mut pending, usage_added)| {
            pending.limits = limits(&parts.headers);
            (call, pending, usage_added)
        });
        if parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            self.told.call = call.map(|(_, pending, _)| pending.worst());
            return Err(Refusal::Upstream("the answer came in an encoding that cannot be looked through".to_owned()));
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            self.told.call = call.map(|(_, pending, _)| pending.worst());
            return Err(Refusal::Upstream("the endpoint wants to speak another protocol".to_owned()));
        }
        if let Some(name) = wash::leak(&parts.headers, &self.pipeline.forbidden) {
            alarm(&*self.pipeline.notice, Wrong::SecretReturned, name.to_owned(), &self.route.upstream.target);
            self.told.call = call.map(|(_, pending, _)| pending.worst());
            return Err(Refusal::Upstream("the answer held a real credential and was cut".to_owned()));
        }
        let shortened = call.as_ref().is_some_and(|(_, _, usage_added)| *usage_added);
        let metered = match call {
            Some((call, pending, usage_added)) if parts.status.is_success() => {
                let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
                Some(Metered { pending, tee: Tee::new(&call, kind, usage_added) })
            }
            // The provider refused it, and nobody charges for that.
            Some((_, pending, _)) => {
                self.told.call = Some(pending.nothing());
                None
            }
            None => None,
        };
        wash::answer(&mut parts.headers, parts.version);
        if shortened {
            // A chunk may be left out, and a length that is not true would be worse than none.
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
        }
        parts.version = hyper::Version::HTTP_11;
        // The words of the status came from outside as well, and nobody reads them.
        parts.extensions.clear();
        let ending = Ending::new(Arc::clone(&self.pipeline.notice), self.told.clone(), metered);
        let scan = Scan::new(self.pipeline.forbidden.clone());
        Ok(Response::from_parts(parts, Either::Right(Passing::new(body, None, scan, ending))))
    }

    fn refuse(&mut self, refusal: &Refusal) -> Answer {
        let Said { status, body, headers } = meter::refusal(self.route.wire(), refusal);
        self.told.status = Some(status);
        self.pipeline.notice.tell(Told::Exchanged(self.told.clone()));
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}

/// Takes the stand-in off a query and leaves the rest as it is.
fn without_key(query: &str) -> Option<String> {
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=") && !pair.is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Returns what a provider says about its rate limits.
fn limits(headers: &HeaderMap) -> Vec<(String, String)> {
    let telling = |name: &str| name.contains("ratelimit") || name.starts_with("retry-after");
    headers
        .iter()
        .filter(|(name, _)| telling(name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), shown(value.to_str().ok()?))))
        .take(24)
        .collect()
}

fn shown(text: &str) -> String {
    ralph_core::text::plain(ralph_core::text::first_line(text, 80))
}

/// The last cause says what happened; those before it only where.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    shown(&cause.to_string())
}

/// Finds the route a path names.
pub(crate) fn find<'a, 'p>(pipeline: &'a Pipeline, path: &'p str) -> Option<(Option<&'a Route>, &'p str, &'p str)> {
    let (name, rest) = route::split(path)?;
    Some((pipeline.routes.iter().find(|route| route.name() == name), name, rest))
}
