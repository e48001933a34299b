//! Forwards inspected HTTP/1: each request is checked, filtered, given its credential and sent.
//!
//! A [`StrictHttpStream`] stands before the parser, so that every request of a connection is parsed as strictly as
//! the first. Hop-by-hop headers are removed in both directions. Redirects are left to the client: each is a new
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
use crate::connection_context::ConnectionContext;
use crate::credential;
use crate::credential::header_filter;
use crate::credential::leak_scan::LeakScanner;
use crate::egress_events::{AlarmKind, DecisionReason, EgressEntry, EgressExchange, RequestSummary};
use crate::model_gateway::response_body::{ExchangeReport, MeteredBody, ResponseConnection};
use crate::model_gateway::{self, GatewayResponse};
use crate::parse::strict_http1::StrictHttpStream;
use crate::policy::TargetRefusal;
use crate::refusal_reply::ProxyReply;
use crate::wrapped_streams::{ClientStream, write_and_close};

/// How requests on a connection name their target.
#[derive(Debug, Clone)]
pub(crate) enum TargetForm {
    /// In the request itself: as an absolute URL, or as one of the sandbox's routes.
    Absolute,
    /// It was named before, and the request must not name another.
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
    let strict_stream = StrictHttpStream::new(client, bytes, context.limits);
    let log = strict_stream.log();
    let served = AtomicU64::new(0);
    let idle = Mutex::new(None);
    let service = service_fn(|request| {
        served.fetch_add(1, Ordering::Relaxed);
        let (form, idle) = (&form, &idle);
        async move { Ok::<_, Infallible>(answer(context, entry, form, idle, request).await) }
    });
    let connection = server::conn::http1::Builder::new()
        .max_buf_size(BUFFER_SIZE.max(context.limits.head_bytes))
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(strict_stream), service);
    let end = connection.without_shutdown().await;
    let (heads, target) = log.heads();
    if heads > served.load(Ordering::Relaxed) && end.is_err() {
        // Our own parser let it through, but hyper refused it and answered: the target is not an address.
        context.report_refused_text(entry, &target, 0, &DecisionReason::Malformed("the target is not an address"));
    }
    let fault = log.take_fault();
    if let Some(why) = fault.and_then(crate::parse::request_head::HeadError::reason) {
        match &form {
            TargetForm::Absolute => context.report_refused_text(entry, "", 0, &why),
            TargetForm::Bound { target, .. } => context.report_refusal(entry, target, &why),
        }
    }
    // An error here means that the client hung up or a body was cut short; the decision was reported already.
    if let Ok(parts) = end {
        let reply_bytes = fault.and_then(ProxyReply::head_error).map(|reply| reply.bytes()).unwrap_or_default();
        write_and_close(parts.io.into_inner().into_inner(), &reply_bytes).await;
    }
}

async fn answer(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    form: &TargetForm,
    idle: &Mutex<Option<HostConnection>>,
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
    // On the heap: its future is much larger than that of a request to a route, which would be moved around with it.
    match Box::pin(forward(context, entry, form, idle, request)).await {
        Ok(response) => response.map(Either::Right),
        Err(reply) => own(&reply),
    }
}

async fn forward(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    form: &TargetForm,
    idle: &Mutex<Option<HostConnection>>,
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
        let why = DecisionReason::Malformed("this method is not supported");
        context.report_refused_request(entry, &target, Some(request_summary(&request)), &why);
        return Err(ProxyReply::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not supported"));
    }
    if request.headers().contains_key(UPGRADE) {
        let why = DecisionReason::Malformed("upgrades are not supported");
        context.report_refused_request(entry, &target, Some(request_summary(&request)), &why);
        let text = "upgrades (web sockets, h2c) are not supported where requests are inspected one by one; send the request \
                    without one, or use TLS to a host that is allowed as a whole";
        return Err(ProxyReply::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let access = AccessRequest::Request { method: request.method().as_str().to_owned(), path: path.clone() };
    let refused = |why: &DecisionReason, address| {
        ProxyReply::refusal(&target, access.request_summary().as_ref(), why, address, context.run())
    };
    let refuse = |why: DecisionReason| {
        context.report_refused_request(entry, &target, access.request_summary(), &why);
        refused(&why, None)
    };
    if target.port() == HTTPS_PORT && !tls {
        return Err(refuse(DecisionReason::NotTls));
    }
    let granted = context.credentials.for_target(&target).filter(|_| tls);
    if let Some(name) = context.credentials.find_misdirected_phantom(request.headers(), &path, granted) {
        context.raise_alarm(AlarmKind::PhantomMisdirected, name, &target);
        return Err(refuse(DecisionReason::PhantomMisdirected));
    }
    // A phantom is replaced only after the policy has allowed the request.
    let kept = idle.lock().await.take().and_then(|idle| idle.reuse_for(&target, tls, &access));
    let open = async || {
        let opened = HostConnection::open(context, entry, &target, tls, access.clone()).await;
        opened.map_err(|TargetRefusal { why, address }| refused(&why, address))
    };
    let mut fresh = kept.is_none();
    let mut host_connection = match kept {
        Some(host_connection) => context
            .check_policy(entry, &target, &access)
            .map(|()| host_connection)
            .map_err(|why| refused(&why, None))?,
        None => open().await?,
    };

    let wrong = || ProxyReply::new(StatusCode::BAD_REQUEST, "the request cannot be rewritten");
    let mut exchange = EgressExchange {
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
    if let Some(granted) = granted {
        if granted.phantom_in_headers(&parts.headers) {
            if granted.is_revoked() {
                context.raise_alarm(AlarmKind::PhantomRevoked, granted.name().to_owned(), &target);
                return Err(refuse(DecisionReason::PhantomMisdirected));
            }
            granted.inject(&mut parts.headers);
            // Ranges could be requested until each piece is too short to be recognized as part of a secret.
            for name in [RANGE, IF_RANGE] {
                parts.headers.remove(name);
            }
            exchange.credential = Some(granted.name().to_owned());
        } else {
            // It is not known whose account they belong to.
            credential::strip_credentials(&mut parts.headers);
        }
        // Where it is not replaced, its own host need not see it either.
        let misplaced = granted.remove_phantom(&mut parts.headers) || granted.phantom_in_text(&path);
        if misplaced && exchange.credential.is_none() && granted.is_first_misuse() {
            context.raise_alarm(AlarmKind::PhantomMisplaced, granted.name().to_owned(), &target);
        }
        // An answer in another encoding could not be inspected.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    // From here on the request is reported, whether or not the client waits for the answer.
    let mut report = ExchangeReport::new(Arc::clone(&context.observer), Some(exchange), None);
    context.count_outflow(path.len() + parts.headers.values().map(HeaderValue::len).sum::<usize>(), &target);
    let sending = OutboundBody::new(body, Arc::clone(context), target.clone());
    let sent = sending.sent_bytes();
    let mut request = Request::from_parts(parts, sending);
    let response = loop {
        match host_connection.send(request).await {
            // No upgrade was requested.
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => break response,
            // The host had closed the connection that was kept open to it.
            Err(Some(unsent)) if !fresh => {
                (fresh, request) = (true, unsent);
                host_connection =
                    open().await.inspect_err(|_| report.record_answer(StatusCode::BAD_GATEWAY.as_u16(), 0))?;
            }
            _ => {
                report.record_answer(StatusCode::BAD_GATEWAY.as_u16(), sent.load(Ordering::Relaxed));
                return Err(refused(&DecisionReason::Unreachable, None));
            }
        }
    };
    report.record_answer(response.status().as_u16(), sent.load(Ordering::Relaxed));
    let running = host_connection.connection_task();
    *idle.lock().await = Some(host_connection);
    check_response(context, granted.is_some(), &target, report, response, running)
}

fn request_summary(request: &Request<Incoming>) -> RequestSummary {
    RequestSummary::new(request.method().as_str(), request.uri().path())
}

/// Passes an answer on, unless it contains a credential that must not come back.
fn check_response(
    context: &Arc<ConnectionContext>,
    granted: bool,
    target: &EgressTarget,
    mut report: ExchangeReport,
    response: Response<Incoming>,
    running: Arc<tokio_util::task::AbortOnDropHandle<()>>,
) -> Result<Response<MeteredBody>, ProxyReply> {
    let (mut parts, body) = response.into_parts();
    let encoded = parts.headers.get_all(CONTENT_ENCODING).iter().any(|coding| coding != "identity");
    let leak = header_filter::find_leak(&parts.headers, &context.credentials.secrets);
    if (granted && encoded) || leak.is_some() {
        if let Some(name) = leak {
            context.raise_alarm(AlarmKind::SecretReturned, name.to_owned(), target);
        }
        report.set_status(StatusCode::BAD_GATEWAY.as_u16());
        return Err(ProxyReply::new(StatusCode::BAD_GATEWAY, "the answer was blocked: it may contain a credential"));
    }
    if granted {
        header_filter::filter_credentialed_response(&mut parts.headers, parts.version);
    } else {
        header_filter::filter_response(&mut parts.headers, parts.version);
    }
    parts.version = hyper::Version::HTTP_11;
    // For example the reason phrase, which was not scanned.
    parts.extensions.clear();
    let scan = LeakScanner::new(context.credentials.secrets.clone());
    Ok(Response::from_parts(parts, MeteredBody::new(body, ResponseConnection::HostConnection(running), scan, report)))
}

/// Returns the one target that everything in the request agrees on.
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
