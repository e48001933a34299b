//! HTTP/1 that is looked into: each request is judged, cleaned, lent what it needs and carried.
//!
//! A [`Gate`] stands before the parser, so that every request of a connection is read as strictly as the first. Headers
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
use tokio::sync::Mutex;

use crate::gate::Gate;
use crate::judge::Ask;
use crate::line::{BUFFER, Line, Sending};
use crate::notice::{Entry, Exchanged, Requested, Why, Wrong};
use crate::passing::{Ending, Keep, Passing};
use crate::pipeline::{Pipeline, Refused, alarm};
use crate::reply::Reply;
use crate::reverse::{self, Answer};
use crate::scan::Scan;
use crate::stream::{Client, say_and_close};
use crate::target::{HTTP, HTTPS, Target};
use crate::{credential, wash};

/// How requests on a connection name their target.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// In the request itself: as an absolute address, or as one of the sandbox's routes.
    Absolute,
    /// It was named before, and the request may not name another.
    Bound { target: Target, tls: bool },
}

impl Form {
    fn tls(&self) -> bool {
        matches!(self, Self::Bound { tls: true, .. })
    }
}

/// Serves the requests of one connection; `bytes` is what was read of it so far.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, entry: Entry, client: impl Client, bytes: &[u8], form: Form) {
    let gate = Gate::new(client, bytes, pipeline.limits);
    let log = gate.log();
    let served = AtomicU64::new(0);
    let line = Mutex::new(None);
    let service = service_fn(|request| {
        served.fetch_add(1, Ordering::Relaxed);
        let (form, line) = (&form, &line);
        async move { Ok::<_, Infallible>(answer(pipeline, entry, form, line, request).await) }
    });
    let connection = server::conn::http1::Builder::new()
        .max_buf_size(BUFFER.max(pipeline.limits.head_bytes))
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(gate), service);
    let end = connection.without_shutdown().await;
    let (heads, target) = log.heads();
    if heads > served.load(Ordering::Relaxed) && end.is_err() {
        // Our own reading let it through, hyper's did not and answered it: the target is no address.
        pipeline.refused_text(entry, &target, 0, &Why::Malformed("the target is no address"));
    }
    let fault = log.fault();
    if let Some(why) = fault.and_then(crate::head::Fault::why) {
        match &form {
            Form::Absolute => pipeline.refused_text(entry, "", 0, &why),
            Form::Bound { target, .. } => pipeline.refused(entry, target, &why),
        }
    }
    // An error here is a client that hung up or a body cut short; the decision was told already.
    if let Ok(parts) = end {
        let words = fault.and_then(Reply::fault).map(|reply| reply.bytes()).unwrap_or_default();
        say_and_close(parts.io.into_inner().into_inner(), &words).await;
    }
}

async fn answer(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    form: &Form,
    line: &Mutex<Option<Line>>,
    request: Request<Incoming>,
) -> Answer {
    let own = |reply: &Reply| reply.response().map(Either::Left);
    if let Form::Absolute = form
        && request.uri().authority().is_none()
        && request.method() != Method::CONNECT
    {
        let path = request.uri().path().to_owned();
        if path == "/health" && request.method() == Method::GET {
            return reverse::health(pipeline);
        }
        if request.headers().get_all(HOST).iter().count() == 1
            && let Some((route, name, rest)) = reverse::find(pipeline, &path)
        {
            return match route {
                Some(route) => reverse::serve(pipeline, route, rest, request).await,
                None => {
                    let text = format!("there is no route `{}`", ralph_core::text::plain(name));
                    pipeline.refused_text(Entry::Route, name, 0, &Why::Malformed("there is no such route"));
                    own(&Reply::new(StatusCode::NOT_FOUND, text))
                }
            };
        }
    }
    // On the heap: it needs much more room than a request to a route, which is moved about with this.
    match Box::pin(forward(pipeline, entry, form, line, request)).await {
        Ok(response) => response.map(Either::Right),
        Err(reply) => own(&reply),
    }
}

async fn forward(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    form: &Form,
    line: &Mutex<Option<Line>>,
    request: Request<Incoming>,
) -> Result<Response<Passing>, Reply> {
    let target = wanted(form, &request).map_err(|why| {
        let written = request.uri().authority().map_or("", |authority| authority.as_str());
        match form {
            Form::Absolute => pipeline.refused_text(entry, written, 0, &why),
            Form::Bound { target, .. } => pipeline.refused_request(entry, target, Some(asked(&request)), &why),
        }
        Reply::unreadable(&why)
    })?;
    let tls = form.tls();
    if ["TRACE", "TRACK"].contains(&request.method().as_str()) || request.method() == Method::CONNECT {
        let why = Why::Malformed("this method is not carried");
        pipeline.refused_request(entry, &target, Some(asked(&request)), &why);
        return Err(Reply::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not carried"));
    }
    if request.headers().contains_key(UPGRADE) {
        let why = Why::Malformed("upgrades are not carried");
        pipeline.refused_request(entry, &target, Some(asked(&request)), &why);
        let text = "upgrades (web sockets, h2c) are not carried where requests are looked at one by one; ask without one, or \
                    over TLS to a host that is allowed as a whole";
        return Err(Reply::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let ask = Ask::Request { method: request.method().as_str().to_owned(), path: path.clone() };
    let refused = |why: &Why, address| Reply::refused(&target, ask.request().as_ref(), why, address, pipeline.run());
    let refuse = |why: Why| {
        pipeline.refused_request(entry, &target, ask.request(), &why);
        refused(&why, None)
    };
    if target.port() == HTTPS && !tls {
        return Err(refuse(Why::NotTls));
    }
    let lent = pipeline.credential_for(&target).filter(|_| tls);
    if let Some(name) = pipeline.astray(request.headers(), &path, lent) {
        alarm(&*pipeline.notice, Wrong::PhantomAstray, name, &target);
        return Err(refuse(Why::Astray));
    }
    // A stand-in is worth nothing before the policy has spoken.
    let kept = line.lock().await.take().and_then(|line| line.again(&target, tls, &ask));
    let open = async || {
        let opened = Line::open(pipeline, entry, &target, tls, ask.clone()).await;
        opened.map_err(|Refused { why, address }| refused(&why, address))
    };
    let mut fresh = kept.is_none();
    let mut way = match kept {
        Some(way) => pipeline.judge(entry, &target, &ask).map(|()| way).map_err(|why| refused(&why, None))?,
        None => open().await?,
    };

    let wrong = || Reply::new(StatusCode::BAD_REQUEST, "the request cannot be written anew");
    let mut told = Exchanged {
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
    wash::clean(&mut parts.headers);
    wash::steering(&mut parts.headers);
    parts.headers.insert(HOST, HeaderValue::from_str(&target.host_header(tls)).map_err(|_| wrong())?);
    if let Some(lent) = lent {
        if lent.is_in(&parts.headers) {
            if lent.is_revoked() {
                alarm(&*pipeline.notice, Wrong::PhantomRevoked, lent.name().to_owned(), &target);
                return Err(refuse(Why::Astray));
            }
            lent.lend(&mut parts.headers);
            // Pieces of an answer could be asked for until each is too short to be known for what it is.
            for name in [RANGE, IF_RANGE] {
                parts.headers.remove(name);
            }
            told.credential = Some(lent.name().to_owned());
        } else {
            // Whose account would it be?
            credential::strip(&mut parts.headers);
        }
        // Where it is of no use, its own host need not see it either.
        let misplaced = lent.take_out(&mut parts.headers) || lent.stands_in(&path);
        if misplaced && told.credential.is_none() && lent.is_said_first() {
            alarm(&*pipeline.notice, Wrong::PhantomMisplaced, lent.name().to_owned(), &target);
        }
        // An answer in another encoding could not be looked through.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    // From here on it is told, whether or not the client waits for the answer.
    let mut ending = Ending::new(Arc::clone(&pipeline.notice), Some(told), None);
    pipeline.leaves(path.len() + parts.headers.values().map(HeaderValue::len).sum::<usize>(), &target);
    let sending = Sending::new(body, Arc::clone(pipeline), target.clone());
    let sent = sending.count();
    let mut request = Request::from_parts(parts, sending);
    let response = loop {
        match way.send(request).await {
            // Nobody asked to switch.
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => break response,
            // The host had closed a connection that was kept for it.
            Err(Some(unsent)) if !fresh => {
                (fresh, request) = (true, unsent);
                way = open().await.inspect_err(|_| ending.note(StatusCode::BAD_GATEWAY.as_u16(), 0))?;
            }
            _ => {
                ending.note(StatusCode::BAD_GATEWAY.as_u16(), sent.load(Ordering::Relaxed));
                return Err(refused(&Why::Unreachable, None));
            }
        }
    };
    ending.note(response.status().as_u16(), sent.load(Ordering::Relaxed));
    let running = way.running();
    *line.lock().await = Some(way);
    look_at(pipeline, lent.is_some(), &target, ending, response, running)
}

fn asked(request: &Request<Incoming>) -> Requested {
    Requested::new(request.method().as_str(), request.uri().path())
}

/// Lets an answer pass, unless it brings what must not come back.
fn look_at(
    pipeline: &Arc<Pipeline>,
    lent: bool,
    target: &Target,
    mut ending: Ending,
    response: Response<Incoming>,
    running: Arc<tokio_util::task::AbortOnDropHandle<()>>,
) -> Result<Response<Passing>, Reply> {
    let (mut parts, body) = response.into_parts();
    let encoded = parts.headers.get_all(CONTENT_ENCODING).iter().any(|coding| coding != "identity");
    let leak = wash::leak(&parts.headers, &pipeline.forbidden);
    if (lent && encoded) || leak.is_some() {
        if let Some(name) = leak {
            alarm(&*pipeline.notice, Wrong::SecretReturned, name.to_owned(), target);
        }
        ending.status(StatusCode::BAD_GATEWAY.as_u16());
        return Err(Reply::new(
            StatusCode::BAD_GATEWAY,
            "the answer could not be let through: it may hold a credential",
        ));
    }
    if lent {
        wash::answer(&mut parts.headers, parts.version);
    } else {
        wash::framed(&mut parts.headers, parts.version);
    }
    parts.version = hyper::Version::HTTP_11;
    // Such as the words beside a status, which nobody looked through.
    parts.extensions.clear();
    let scan = Scan::new(pipeline.forbidden.clone());
    Ok(Response::from_parts(parts, Passing::new(body, Keep::Line(running), scan, ending)))
}

/// Finds the one target that everything in the request agrees on.
fn wanted(form: &Form, request: &Request<Incoming>) -> Result<Target, Why> {
    let uri = request.uri();
    let (target, usual) = match form {
        Form::Absolute if uri.scheme_str() == Some("http") => {
            let written = uri.authority().map_or("", |authority| authority.as_str());
            (Target::authority(written, Some(HTTP))?, HTTP)
        }
        Form::Absolute => return Err(Why::Malformed("the target is not an `http://` address")),
        Form::Bound { target, tls } if uri.authority().is_none() && uri.path().starts_with('/') => {
            (target.clone(), if *tls { HTTPS } else { HTTP })
        }
        Form::Bound { .. } => return Err(Why::Malformed("the target is not a path")),
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
        (Some(host), None) if Target::authority(host, Some(usual)).ok().as_ref() == Some(&target) => Ok(target),
        _ => Err(Why::Host),
    }
}
