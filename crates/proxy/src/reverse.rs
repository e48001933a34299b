//! Requests to reverse routes: a fixed list of endpoints, the credential put in, and every call paid for in advance.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use ralph_core::policy::Rule;
use ralph_core::price::CacheWrites;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::charge::{self, Pending};
use crate::credential::{self, Credential};
use crate::late::Asking;
use crate::ledger::Rate;
use crate::meter::{self, Endpoint, Refusal, Said, Tee, Wire, endpoint};
use crate::notice::{Call as Charged, Entry, Exchanged, Told, Wrong};
use crate::passing::{Ending, Keep, Leave, Metered, Passing};
use crate::pipeline::{Pipeline, alarm, fit};
use crate::route::{self, Model, Route};
use crate::scan::Scan;
use crate::upstream::{Failed, Lease};
use crate::wash;

/// A body that takes noticeably long to read.
const LONG: usize = 256 * 1024;

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
    let path = route.path(rest);
    let told = Exchanged {
        entry: Entry::Route,
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
    let mut visit = Visit { pipeline, route, told: Some(told), pending: None, asking: None, answered: false };
    match visit.carry(rest, path, request).await {
        Ok(answer) => answer,
        Err(refusal) => visit.refuse(&refusal),
    }
}

/// One request on its way through a route. Dropped on the way, it is told as one whose client hung up.
struct Visit<'a> {
    pipeline: &'a Arc<Pipeline>,
    route: &'a Route,
    /// What is told at its end, which is told once.
    told: Option<Exchanged>,
    /// The call that was let through, until it is charged.
    pending: Option<Pending>,
    /// The request under way, until its answer begins.
    asking: Option<Asking>,
    answered: bool,
}

/// A call that is paid for in advance.
struct Reserved {
    body: Bytes,
    /// The provider was asked for a count that the client did not ask for.
    usage_added: bool,
    /// What is written down before it is dialled.
    calling: Told,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        match (self.pending.take(), self.asking.take()) {
            (Some(pending), Some(asking)) => {
                let metered = asking.tee(None);
                let drains = self.pipeline.drains.clone();
                let metered = metered.map(|tee| Metered { pending, tee, drains });
                asking.left(Ending::new(Arc::clone(&self.pipeline.notice), Some(told), metered));
                return;
            }
            // Nobody is left to read what it cost.
            (Some(pending), None) if self.answered => told.call = Some(pending.worst()),
            (Some(pending), None) => told.call = Some(pending.nothing()),
            (None, _) => (),
        }
        self.pipeline.notice.tell(Told::Exchanged(told));
    }
}

impl Visit<'_> {
    fn note(&mut self, what: impl FnOnce(&mut Exchanged)) {
        if let Some(told) = &mut self.told {
            what(told);
        }
    }

    /// Charges the call that was let through, if there is one.
    fn charge(&mut self, how: impl FnOnce(Pending) -> Charged) {
        if let Some(pending) = self.pending.take() {
            let call = how(pending);
            self.note(|told| told.call = Some(call));
        }
    }

    /// Carries a request whose path is `rest` here and `path` at the endpoint.
    async fn carry(&mut self, rest: &str, path: String, request: Request<Incoming>) -> Result<Answer, Refusal> {
        // Its host stands in the host's own configuration and needs no rule. A rule against it counts all the same.
        let mut asked = self.pipeline.asked(&self.route.upstream, request.method(), &path);
        if let Some(rule) = asked.denied() {
            return Err(self.denied(&rule));
        }
        if request.method() == Method::GET && is_websocket(request.headers()) {
            let text = format!("route `{}` speaks HTTP, and no other protocol over it", self.route.name());
            return Err(Refusal::Upgrade(text));
        }
        let Some(endpoint) = endpoint(self.route.wire(), request.method().as_str(), rest) else {
            let text = format!("`{} {rest}` is not an endpoint of route `{}`", request.method(), self.route.name());
            return Err(Refusal::Endpoint(text));
        };
        let query = request.uri().query().and_then(|query| kept(self.route, query));
        let (mut parts, body) = request.into_parts();
        self.lend(&mut parts.headers, rest, parts.uri.query())?;
        let (body, room) = self.read(body).await?;
        let long = body.len() > LONG;
        let turn = if long { self.pipeline.turn().await } else { None };
        // That took a while, and nothing has been paid for yet.
        if let Some(rule) = asked.denied_since() {
            return Err(self.denied(&rule));
        }
        let path = match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        // A long body takes a while to read and write anew, and others are served by the same thread.
        let prepare = || {
            self.look_through(&body)?;
            match endpoint {
                Endpoint::Free => Ok((body, None, None)),
                Endpoint::Count(call) => Ok((self.count(&call, &body)?, None, None)),
                Endpoint::Call(call) => {
                    let Reserved { body, usage_added, calling } = self.reserve(&call, &body)?;
                    Ok((body, Some((call, usage_added)), Some(calling)))
                }
            }
        };
        let (body, call, calling) = if long { crowd_out(prepare) } else { prepare() }?;
        drop(turn);
        if let Some(calling) = calling {
            self.keep(calling).await?;
        }
        self.note(|told| told.sent = body.len() as u64);
        if call.is_none() {
            // Nobody pays for it, so no budget bounds it.
            self.pipeline.leaves(body.len(), &self.route.upstream.target);
        }
        let request = self.write(parts.method, &path, parts.headers, body)?;
        let asking = Asking::new(self.pipeline, &self.route.upstream, request, room, call.clone());
        let mut leave = Leave::new(self.pipeline, &self.route.upstream, asked);
        let sent = tokio::select! {
            sent = self.asking.insert(asking).answered() => sent,
            rule = leave.ended() => {
                let dialled = self.asking.take().is_some_and(|asking| asking.is_dialled());
                self.charge(if dialled { Pending::worst } else { Pending::nothing });
                return Err(self.denied(&rule));
            }
        };
        self.asking = None;
        self.answered = true;
        let (response, lease) = match sent {
            Ok(answered) => answered,
            Err(failed) => {
                // The provider may have worked on what it was asked, and charge for that.
                self.charge(if matches!(failed, Failed::Lost(_)) { Pending::worst } else { Pending::nothing });
                if let Failed::Barred(why) = &failed {
                    let host = self.route.upstream.target.host();
                    return Err(Refusal::Barred(format!("`{host}` cannot be asked: {why}")));
                }
                let (host, why) = (self.route.upstream.target.host(), shown(&failed.to_string()));
                tracing::debug!(route = self.route.name(), why, "an endpoint could not be asked");
                return Err(Refusal::Upstream(format!("`{host}` does not answer: {why}")));
            }
        };
        self.answer(response, lease, call, leave)
    }

    /// Tells of a rule that is against the request.
    fn denied(&self, rule: &Rule) -> Refusal {
        let target = &self.route.upstream.target;
        let text =
            format!("`{target}` is denied by rule `{rule}` of the network policy, which only a person can change");
        Refusal::Policy(text)
    }

    fn lend(&mut self, headers: &mut HeaderMap, rest: &str, query: Option<&str>) -> Result<(), Refusal> {
        let by_query = |phantom: &str| {
            query.is_some_and(|query| query.split('&').any(|pair| pair.strip_prefix("key=") == Some(phantom)))
        };
        // A stand-in of another credential has no business here.
        let asked = format!("{rest}?{}", query.unwrap_or(""));
        if let Some(other) = self.pipeline.astray(headers, &asked, self.route.credential()) {
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
        if credential.stands_in(rest) {
            self.said(credential);
            return Err(Refusal::Credential("a stand-in has no place in an address".to_owned()));
        }
        credential.lend(headers);
        if credential.take_out(headers) {
            self.said(credential);
        }
        self.note(|told| told.credential = Some(credential.name().to_owned()));
        Ok(())
    }

    /// Looks for stand-ins in a body, before anything is set aside or dialled for it.
    fn look_through(&self, body: &[u8]) -> Result<(), Refusal> {
        let own = self.route.credential();
        for held in self.pipeline.held_by(body) {
            if own.is_some_and(|own| Arc::ptr_eq(own, held)) {
                self.said(held);
            } else {
                alarm(
                    &*self.pipeline.notice,
                    Wrong::PhantomAstray,
                    held.name().to_owned(),
                    &self.route.upstream.target,
                );
                let text = format!("the request holds the stand-in for `{}`, which is for another host", held.name());
                return Err(Refusal::Credential(text));
            }
        }
        Ok(())
    }

    /// Raises the alarm about a stand-in that its own model is told, the first time: a conversation repeats itself with
    /// every call.
    fn said(&self, credential: &Credential) {
        if credential.is_said_first() {
            alarm(
                &*self.pipeline.notice,
                Wrong::PhantomSaid,
                credential.name().to_owned(),
                &self.route.upstream.target,
            );
        }
    }

    /// Reads a body as a whole, in the room that all bodies of the sandbox have together.
    async fn read(&mut self, body: Incoming) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
        let limits = &self.pipeline.limits;
        let length = hyper::body::Body::size_hint(&body).exact();
        let Ok(room) = timeout(limits.room_time, self.pipeline.room(length)).await else {
            let text = "the other calls of this sandbox take all the room there is; ask again later";
            return Err(Refusal::Unavailable(text.to_owned()));
        };
        let mut room = room.ok_or_else(|| Refusal::Unavailable("the sandbox is being closed".to_owned()))?;
        match timeout(limits.body_time, Limited::new(body, limits.body_bytes).collect()).await {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                fit(&mut room, body.len());
                Ok((body, room))
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Refusal::TooLarge(format!("a request has at most {} MiB", limits.body_bytes >> 20)))
            }
            Ok(Err(_)) => Err(Refusal::BadRequest("the request was cut short".to_owned())),
            Err(_) => Err(Refusal::BadRequest("the request took too long to arrive".to_owned())),
        }
    }

    /// Writes a question anew that is only counted. Nobody pays for it; it is held to the same models and fields.
    fn count(&self, call: &meter::Call, body: &[u8]) -> Result<Bytes, Refusal> {
        let asked = meter::Request::parse(call, body).map_err(|bad| Refusal::BadRequest(bad.to_string()))?;
        self.model(asked.model())?;
        Ok(asked.write_to_count().into())
    }

    /// Returns what is known about a model that may be called.
    fn model(&self, name: &str) -> Result<Model, Refusal> {
        self.route.model(name).ok_or_else(|| {
            let known: Vec<&str> = self.route.models().keys().map(String::as_str).collect();
            Refusal::Model(format!("model `{}` may not be called here, only {}", shown(name), known.join(", ")))
        })
    }

    /// Sets the worst case of a call aside and writes the request so that it cannot become worse.
    fn reserve(&mut self, call: &meter::Call, body: &[u8]) -> Result<Reserved, Refusal> {
        let asked = meter::Request::parse(call, body).map_err(|bad| Refusal::BadRequest(bad.to_string()))?;
        let asked = if self.route.old_limit { asked.with_old_limit() } else { asked };
        let name = asked.model().to_owned();
        let model = self.model(&name)?;
        let room = self.pipeline.ledger.room();
        if model.price.is_none() && room.tokens.is_none() {
            return Err(Refusal::Model(format!(
                "nobody knows what `{}` costs, and the run has no cap of tokens",
                shown(&name)
            )));
        }
        let input = asked.input();
        let choices = asked.choices();
        // The limits of a model and of a profile are those of one answer.
        let each = asked.wanted_output().map_or(model.usual_output, |all| all / choices).min(model.most_output);
        let wanted = each.saturating_mul(choices).max(choices);
        let writes = if asked.long_cache() { CacheWrites::Long } else { CacheWrites::Short };
        let rate = model.price.map_or(Rate::default(), |price| Rate::worst(&price, input, writes));
        let spent = |why: String| {
            let (route, model) = (self.route.name().to_owned(), name.clone());
            self.pipeline.notice.tell(Told::Spent { route, model, why: why.clone() });
            Refusal::Budget(why)
        };
        let reserved = self.pipeline.ledger.reserve_call(rate, input, wanted);
        let (reservation, output) = reserved.map_err(|refused| spent(refused.to_string()))?;
        if output < choices {
            // A limit of nothing for each would be no limit at all.
            reservation.release();
            return Err(spent(format!("budget spent: {output} tokens are left for {choices} answers")));
        }
        let written = asked.write(output);
        for change in &written.changed {
            tracing::debug!(route = self.route.name(), change, "a request was changed");
        }
        let worst = reservation.worst();
        let route = self.route.name().to_owned();
        let (cost, tokens) = (worst.cost, worst.tokens);
        let id = reservation.id();
        let calling = Told::Calling { id, route: route.clone(), model: name.clone(), cost, tokens };
        self.pending = Some(Pending {
            id,
            reservation,
            price: model.price,
            route,
            model: name,
            models: Arc::clone(self.route.models()),
            answered_by: None,
            input,
            output,
            writes,
            limits: Vec::new(),
            refused: false,
        });
        Ok(Reserved { body: written.body.into(), usage_added: written.usage_added, calling })
    }

    /// Has the call written down before it is dialled: what nobody would know of after a crash is not made.
    async fn keep(&mut self, calling: Told) -> Result<(), Refusal> {
        let notice = Arc::clone(&self.pipeline.notice);
        let kept = notice.keep(calling).await;
        kept.map_err(|why| {
            self.charge(Pending::nothing);
            tracing::warn!(route = self.route.name(), %why, "a call could not be written down");
            Refusal::Unavailable(format!("the call could not be written down, so it was not made: {why}"))
        })
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
        let uri: Uri = path.parse().map_err(|_| wrong())?;
        let host = HeaderValue::from_str(&upstream.target.host_header(upstream.https)).map_err(|_| wrong())?;
        wash::clean(&mut headers);
        wash::of_a_call(&mut headers);
        headers.insert(HOST, host);
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
        lease: Lease,
        call: Option<(meter::Call, bool)>,
        leave: Leave,
    ) -> Result<Answer, Refusal> {
        let (mut parts, body) = response.into_parts();
        self.note(|told| told.status = Some(parts.status.as_u16()));
        if let Some(pending) = &mut self.pending {
            pending.limits = charge::limits(&parts.headers);
        }
        let status = parts.status.as_u16();
        if meter::gave_up_waiting(status) {
            self.charge(Pending::worst);
        }
        if let Some(pending) = &mut self.pending {
            pending.answered(status);
        }
        if wash::is_encoded(&parts.headers) {
            self.charge(Pending::unread);
            return Err(Refusal::Upstream("the answer came in an encoding that cannot be looked through".to_owned()));
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            self.charge(Pending::worst);
            return Err(Refusal::Upstream("the endpoint wants to speak another protocol".to_owned()));
        }
        if let Some(name) = wash::leak(&parts.headers, &self.pipeline.forbidden) {
            alarm(&*self.pipeline.notice, Wrong::SecretReturned, name.to_owned(), &self.route.upstream.target);
            self.charge(Pending::unread);
            return Err(Refusal::Upstream("the answer held a real credential and was cut".to_owned()));
        }
        let metered = self.pending.take().zip(call).map(|(pending, (call, usage_added))| {
            let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let usage_added = usage_added && !pending.refused;
            let tee = Tee::new(&call, kind, usage_added);
            if usage_added {
                // A chunk may be left out, and a length that is not true would be worse than none.
                parts.headers.remove(CONTENT_LENGTH);
            }
            Metered { pending, tee, drains: self.pipeline.drains.clone() }
        });
        wash::answer(&mut parts.headers, parts.version);
        parts.version = hyper::Version::HTTP_11;
        // Such as the words beside a status, which nobody looked through.
        parts.extensions.clear();
        // From here on whoever carries the body tells of it.
        let ending = Ending::new(Arc::clone(&self.pipeline.notice), self.told.take(), metered);
        let scan = Scan::new(self.pipeline.forbidden.clone());
        let passing = Passing::new(body, Keep::Lease(lease), scan, ending).within(leave);
        Ok(Response::from_parts(parts, Either::Right(passing)))
    }

    fn refuse(&mut self, refusal: &Refusal) -> Answer {
        let Said { status, body, headers } = meter::refusal(self.route.wire(), refusal);
        self.note(|told| {
            told.status = Some(status);
            told.refused = Some(Box::new(refusal.clone()));
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

/// Says whether a request asks to go on in the protocol of web sockets, which nobody could look into.
fn is_websocket(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(UPGRADE).iter().filter_map(|offer| offer.to_str().ok());
    offers.flat_map(|offer| offer.split(',')).any(|offer| offer.trim().eq_ignore_ascii_case("websocket"))
}

/// Keeps of a query what is known to be harmless. Others bring keys of their own, or have the provider leave its count
/// out of the answer.
fn kept(route: &Route, query: &str) -> Option<String> {
    let known: &[&str] = match route.wire() {
        Wire::Anthropic => &["beta", "limit", "after_id", "before_id"],
        Wire::OpenAi => &["api-version"],
        Wire::Gemini => &["alt", "pageSize", "pageToken"],
    };
    let name = |pair: &str| pair.split_once('=').map_or(pair, |(name, _)| name).to_owned();
    let holds = |pair: &str| route.credential().is_some_and(|credential| credential.stands_in(pair));
    let kept: Vec<&str> =
        query.split('&').filter(|pair| known.contains(&name(pair).as_str()) && !holds(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Does something that takes a while, where others are let onto another thread meanwhile if there can be one.
fn crowd_out<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn shown(text: &str) -> String {
    ralph_core::text::plain(ralph_core::text::first_line(text, 80))
}

/// Finds the route a path names.
pub(crate) fn find<'a, 'p>(pipeline: &'a Pipeline, path: &'p str) -> Option<(Option<&'a Route>, &'p str, &'p str)> {
    let (name, rest) = route::split(path)?;
    Some((pipeline.routes.iter().find(|route| route.name() == name), name, rest))
}
