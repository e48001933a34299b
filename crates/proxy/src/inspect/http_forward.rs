//! HTTP/1 that is looked into: each request is judged, cleaned, lent what it needs and carried.
//!
//! A [`StrictHttpStream`] stands before the parser, so that every request of a connection is read as strictly as the first. Headers
//! that are about one connection stay on it, in both directions. Redirects are the client's to follow: each is a new
//! request here.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, HeaderValue, IF_RANGE, RANGE, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use ralph_core::egress::{AccessRequest, EgressTarget, HTTP_PORT, HTTPS_PORT};
use tokio::sync::Mutex;

use super::host_connection::{BUFFER_SIZE, HostConnection, OutboundBody};
use crate::context::ConnectionContext;
use crate::credential;
use crate::credential::header_filter;
use crate::credential::leak_scan::LeakScanner;
use crate::model_gateway::response_body::{ExchangeReport, MeteredBody, ResponseConnection};
use crate::model_gateway::{self, GatewayResponse};
use crate::observer::{AlarmKind, DecisionReason, EgressEntry, EgressExchange, RequestSummary};
use crate::parse::strict_http1::StrictHttpStream;
use crate::policy::TargetRefusal;
use crate::reply::ProxyReply;
use crate::stream::{ClientStream, write_and_close};

/// How requests on a connection name their target.
#[derive(Debug, Clone)]
pub(crate) enum TargetForm {
    /// In the request itself: as an absolute address, or as one of the sandbox's routes.
    Absolute,
    /// It was named before, and the request may not name another.
    Bound { target: EgressTarget, tls: bool },
}

impl TargetForm {
    fn tls(&self) -> bool {
        matches!(self, Self::Bound { tls: true, .. })
    }
}

/// Serves the requests of one connection; `bytes` is what was read of it so far.
pub(crate) async fn serve(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    client: impl ClientStream,
    bytes: &[u8],
    form: TargetForm,
) {
    let gate = StrictHttpStream::new(client, bytes, context.limits);
    let log = gate.log();
    let served = AtomicU64::new(0);
    let line = Mutex::new(None);
    let service = service_fn(|request| {
        served.fetch_add(1, Ordering::Relaxed);
        let (form, line) = (&form, &line);
        async move { Ok::<_, Infallible>(answer(context, entry, form, line, request).await) }
    });
    let connection = server::conn::http1::Builder::new()
        .max_buf_size(BUFFER_SIZE.max(context.limits.head_bytes))
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(gate), service);
    let end = connection.without_shutdown().await;
    let (heads, target) = log.heads();
    if heads > served.load(Ordering::Relaxed) && end.is_err() {
        // Our own reading let it through, hyper's did not and answered it: the target is no address.
        context.report_refused_text(entry, &target, 0, &DecisionReason::Malformed("the target is no address"));
    }
    let fault = log.take_fault();
    if let Some(why) = fault.and_then(crate::parse::request_head::HeadError::reason) {
        match &form {
            TargetForm::Absolute => context.report_refused_text(entry, "", 0, &why),
            TargetForm::Bound { target, .. } => context.report_refusal(entry, target, &why),
        }
    }
    // An error here is a client that hung up or a body cut short; the decision was told already.
    if let Ok(parts) = end {
        let words = fault.and_then(ProxyReply::head_error).map(|reply| reply.bytes()).unwrap_or_default();
        write_and_close(parts.io.into_inner().into_inner(), &words).await;
    }
}

async fn answer(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    form: &TargetForm,
    line: &Mutex<Option<HostConnection>>,
    request: Request<Incoming>,
) -> GatewayResponse {
    let own = |reply: &ProxyReply| reply.response().map(Either::Left);
    if let TargetForm::Absolute = form
        && request.uri().authority().is_none()
        && request.method() != Method::CONNECT
    {
        let path = request.uri().path().to_owned();
        if path == "/health" && request.method() == Method::GET {
            return model_gateway::health(context);
        }
        if request.headers().get_all(HOST).iter().count() == 1
            && let Some((route, name, rest)) = model_gateway::find_route(context, &path)
        {
            return match route {
                Some(route) => model_gateway::serve(context, route, rest, request).await,
                None => {
                    let text = format!("there is no route `{}`", ralph_core::text::strip_control(name));
                    context.report_refused_text(
                        EgressEntry::Route,
                        name,
                        0,
                        &DecisionReason::Malformed("there is no such route"),
                    );
                    own(&ProxyReply::new(StatusCode::NOT_FOUND, text))
                }
            };
        }
    }
    // On the heap: it needs much more room than a request to a route, which is moved about with this.
    match Box::pin(forward(context, entry, form, line, request)).await {
        Ok(response) => response.map(Either::Right),
        Err(reply) => own(&reply),
    }
}

async fn forward(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    form: &TargetForm,
    line: &Mutex<Option<HostConnection>>,
    request: Request<Incoming>,
) -> Result<Response<MeteredBody>, ProxyReply> {
    let target = request_target(form, &request).map_err(|why| {
        let written = request.uri().authority().map_or("", |authority| authority.as_str());
        match form {
            TargetForm::Absolute => context.report_refused_text(entry, written, 0, &why),
            TargetForm::Bound { target, .. } => {
                context.report_refused_request(entry, target, Some(request_summary(&request)), &why);
            }
        }
        ProxyReply::bad_target(&why)
    })?;
    let tls = form.tls();
    if ["TRACE", "TRACK"].contains(&request.method().as_str()) || request.method() == Method::CONNECT {
        let why = DecisionReason::Malformed("this method is not carried");
        context.report_refused_request(entry, &target, Some(request_summary(&request)), &why);
        return Err(ProxyReply::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not carried"));
    }
    if request.headers().contains_key(UPGRADE) {
        let why = DecisionReason::Malformed("upgrades are not carried");
        context.report_refused_request(entry, &target, Some(request_summary(&request)), &why);
        let text = "upgrades (web sockets, h2c) are not carried where requests are looked at one by one; ask without one, or \
                    over TLS to a host that is allowed as a whole";
        return Err(ProxyReply::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let ask = AccessRequest::Request { method: request.method().as_str().to_owned(), path: path.clone() };
    let refused = |why: &DecisionReason, address| {
        ProxyReply::refusal(&target, ask.request_summary().as_ref(), why, address, context.run())
    };
    let refuse = |why: DecisionReason| {
        context.report_refused_request(entry, &target, ask.request_summary(), &why);
        refused(&why, None)
    };
    if target.port() == HTTPS_PORT && !tls {
        return Err(refuse(DecisionReason::NotTls));
    }
    let lent = context.credentials.for_target(&target).filter(|_| tls);
    if let Some(name) = context.credentials.find_misdirected_phantom(request.headers(), &path, lent) {
        context.raise_alarm(AlarmKind::PhantomMisdirected, name, &target);
        return Err(refuse(DecisionReason::PhantomMisdirected));
    }
    // A stand-in is worth nothing before the policy has spoken.
    let kept = line.lock().await.take().and_then(|line| line.reuse_for(&target, tls, &ask));
    let open = async || {
        let opened = HostConnection::open(context, entry, &target, tls, ask.clone()).await;
        opened.map_err(|TargetRefusal { why, address }| refused(&why, address))
    };
    let mut fresh = kept.is_none();
    let mut way = match kept {
        Some(way) => context.check_policy(entry, &target, &ask).map(|()| way).map_err(|why| refused(&why, None))?,
        None => open().await?,
    };

    let wrong = || ProxyReply::new(StatusCode::BAD_REQUEST, "the request cannot be written anew");
    let mut told = EgressExchange {
        entry,
        host: target.host().to_owned(),
        port: target.port(),
        method: request.method().as_str().to_owned(),
        path: request.uri().path().to_owned(),
        status: None,
        refused: None,
        sent: 0,
        received: 0,
        credential: None,
        call: None,
    };
    let (mut parts, body) = request.into_parts();
    parts.uri = path.parse::<Uri>().map_err(|_| wrong())?;
    parts.version = hyper::Version::HTTP_11;
    header_filter::remove_hop_by_hop(&mut parts.headers);
    header_filter::remove_override_headers(&mut parts.headers);
    parts.headers.insert(HOST, HeaderValue::from_str(&target.host_header(tls)).map_err(|_| wrong())?);
    if let Some(lent) = lent {
        if lent.phantom_in_headers(&parts.headers) {
            if lent.is_revoked() {
                context.raise_alarm(AlarmKind::PhantomRevoked, lent.name().to_owned(), &target);
                return Err(refuse(DecisionReason::PhantomMisdirected));
            }
            lent.inject(&mut parts.headers);
            // Pieces of an answer could be asked for until each is too short to be known for what it is.
            for name in [RANGE, IF_RANGE] {
                parts.headers.remove(name);
            }
            told.credential = Some(lent.name().to_owned());
        } else {
            // Whose account would it be?
            credential::strip_credentials(&mut parts.headers);
        }
        // Where it is of no use, its own host need not see it either.
        let misplaced = lent.remove_phantom(&mut parts.headers) || lent.phantom_in_text(&path);
        if misplaced && told.credential.is_none() && lent.is_first_misuse() {
            context.raise_alarm(AlarmKind::PhantomMisplaced, lent.name().to_owned(), &target);
        }
        // An answer in another encoding could not be looked through.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    // From here on it is told, whether or not the client waits for the answer.
    let mut ending = ExchangeReport::new(Arc::clone(&context.observer), Some(told), None);
    context.count_outflow(path.len() + parts.headers.values().map(HeaderValue::len).sum::<usize>(), &target);
    let sending = OutboundBody::new(body, Arc::clone(context), target.clone());
    let sent = sending.sent_bytes();
    let mut request = Request::from_parts(parts, sending);
    let response = loop {
        match way.send(request).await {
            // Nobody asked to switch.
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => break response,
            // The host had closed a connection that was kept for it.
            Err(Some(unsent)) if !fresh => {
                (fresh, request) = (true, unsent);
                way = open().await.inspect_err(|_| ending.record_answer(StatusCode::BAD_GATEWAY.as_u16(), 0))?;
            }
            _ => {
                ending.record_answer(StatusCode::BAD_GATEWAY.as_u16(), sent.load(Ordering::Relaxed));
                return Err(refused(&DecisionReason::Unreachable, None));
            }
        }
    };
    ending.record_answer(response.status().as_u16(), sent.load(Ordering::Relaxed));
    let running = way.connection_task();
    *line.lock().await = Some(way);
    check_response(context, lent.is_some(), &target, ending, response, running)
}

fn request_summary(request: &Request<Incoming>) -> RequestSummary {
    RequestSummary::new(request.method().as_str(), request.uri().path())
}

/// Lets an answer pass, unless it brings what must not come back.
fn check_response(
    context: &Arc<ConnectionContext>,
    lent: bool,
    target: &EgressTarget,
    mut ending: ExchangeReport,
    response: Response<Incoming>,
    running: Arc<tokio_util::task::AbortOnDropHandle<()>>,
) -> Result<Response<MeteredBody>, ProxyReply> {
    let (mut parts, body) = response.into_parts();
    let encoded = parts.headers.get_all(CONTENT_ENCODING).iter().any(|coding| coding != "identity");
    let leak = header_filter::find_leak(&parts.headers, &context.credentials.secrets);
    if (lent && encoded) || leak.is_some() {
        if let Some(name) = leak {
            context.raise_alarm(AlarmKind::SecretReturned, name.to_owned(), target);
        }
        ending.set_status(StatusCode::BAD_GATEWAY.as_u16());
        return Err(ProxyReply::new(
            StatusCode::BAD_GATEWAY,
            "the answer could not be let through: it may hold a credential",
        ));
    }
    if lent {
        header_filter::filter_credentialed_response(&mut parts.headers, parts.version);
    } else {
        header_filter::filter_response(&mut parts.headers, parts.version);
    }
    parts.version = hyper::Version::HTTP_11;
    // Such as the words beside a status, which nobody looked through.
    parts.extensions.clear();
    let scan = LeakScanner::new(context.credentials.secrets.clone());
    Ok(Response::from_parts(parts, MeteredBody::new(body, ResponseConnection::HostConnection(running), scan, ending)))
}

/// Finds the one target that everything in the request agrees on.
fn request_target(form: &TargetForm, request: &Request<Incoming>) -> Result<EgressTarget, DecisionReason> {
    let uri = request.uri();
    let (target, usual) = match form {
        TargetForm::Absolute if uri.scheme_str() == Some("http") => {
            let written = uri.authority().map_or("", |authority| authority.as_str());
            (EgressTarget::parse_authority(written, Some(HTTP_PORT))?, HTTP_PORT)
        }
        TargetForm::Absolute => return Err(DecisionReason::Malformed("the target is not an `http://` address")),
        TargetForm::Bound { target, tls } if uri.authority().is_none() && uri.path().starts_with('/') => {
            (target.clone(), if *tls { HTTPS_PORT } else { HTTP_PORT })
        }
        TargetForm::Bound { .. } => return Err(DecisionReason::Malformed("the target is not a path")),
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
        (Some(host), None) if EgressTarget::parse_authority(host, Some(usual)).ok().as_ref() == Some(&target) => {
            Ok(target)
        }
        _ => Err(DecisionReason::HostMismatch),
    }
}
