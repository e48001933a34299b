//! Plain HTTP/1: one request per connection, judged, cleaned and carried.
//!
//! What follows a request's body is never read as another request, so there is nothing to smuggle one into. Headers
//! that are about one connection stay on it, in both directions. Redirects are the client's to follow: each is a new
//! request here.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::task::AbortOnDropHandle;

use crate::head::{self, Head};
use crate::judge::Ask;
use crate::notice::{Entry, Why};
use crate::pipeline::{Pipeline, Way};
use crate::reply::Reply;
use crate::stream::{Client, Rewound, say_and_close};
use crate::target::{HTTP, HTTPS, Target};

/// Headers that are about one connection, and those a proxy keeps to itself.
const OF_THE_CONNECTION: [HeaderName; 11] = [
    CONNECTION,
    HeaderName::from_static("expect"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The most that waits on one side of an exchange for the other.
const BUFFER: usize = 64 * 1024;

/// How requests on a connection name their target.
#[derive(Debug, Clone)]
enum Form {
    /// In the request itself.
    Absolute,
    /// It was named before, and the request may not name another.
    Bound(Target),
}

/// Serves a request that names its target itself; `bytes` is its head and what followed it so far.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, client: impl Client, head: &Head, bytes: Vec<u8>) {
    exchange(pipeline, Entry::Http, client, head, bytes, Form::Absolute).await;
}

/// Serves a request on a connection whose target is known.
pub(crate) async fn serve_bound(pipeline: &Arc<Pipeline>, entry: Entry, target: &Target, mut client: impl Client) {
    let mut bytes = Vec::new();
    match head::read(&mut client, &mut bytes, &pipeline.limits).await {
        // A tunnel in a tunnel could go anywhere.
        Ok((head, _)) if head.method == "CONNECT" => {
            let why = Why::Malformed("a tunnel inside a tunnel");
            pipeline.refused(entry, target, &why);
            say_and_close(client, &Reply::refused(target, &why, None).bytes()).await;
        }
        Ok((head, _)) => exchange(pipeline, entry, client, &head, bytes, Form::Bound(target.clone())).await,
        Err(fault) => {
            if let Some(why) = fault.why() {
                pipeline.refused(entry, target, &why);
            }
            if let Some(reply) = Reply::fault(fault) {
                say_and_close(client, &reply.bytes()).await;
            }
        }
    }
}

async fn exchange(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    client: impl Client,
    head: &Head,
    bytes: Vec<u8>,
    form: Form,
) {
    let read = AtomicBool::new(false);
    let service = service_fn(|request| {
        read.store(true, Ordering::Relaxed);
        let (pipeline, form) = (Arc::clone(pipeline), form.clone());
        async move {
            Ok::<_, Infallible>(match forward(&pipeline, entry, &form, request).await {
                Ok(response) => response.map(Either::Right),
                Err(reply) => reply.response().map(Either::Left),
            })
        }
    });
    let connection = server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER.max(pipeline.limits.head_bytes))
        .timer(TokioTimer::new())
        .header_read_timeout(pipeline.limits.head_time)
        .serve_connection(TokioIo::new(Rewound::new(bytes, client)), service);
    let end = connection.without_shutdown().await;
    if !read.load(Ordering::Relaxed) {
        // Our own reading let it through, hyper's did not and answered it: the target is no address.
        pipeline.refused_text(entry, &head.target, 0, &Why::Malformed("the target is no address"));
    }
    // An error here is a client that hung up or a body cut short; the decision was told already.
    if let Ok(parts) = end {
        say_and_close(parts.io.into_inner(), b"").await;
    }
}

type Answered = Response<Carried>;

async fn forward(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    form: &Form,
    mut request: Request<Incoming>,
) -> Result<Answered, Reply> {
    let target = wanted(form, &request).map_err(|why| {
        let written = request.uri().authority().map_or("", |authority| authority.as_str());
        match form {
            Form::Absolute => pipeline.refused_text(entry, written, 0, &why),
            Form::Bound(target) => pipeline.refused(entry, target, &why),
        }
        Reply::unreadable(&why)
    })?;
    if ["TRACE", "TRACK"].contains(&request.method().as_str()) || request.method() == Method::CONNECT {
        pipeline.refused(entry, &target, &Why::Malformed("this method is not carried"));
        return Err(Reply::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not carried"));
    }
    if request.headers().contains_key(UPGRADE) {
        pipeline.refused(entry, &target, &Why::Malformed("upgrades are not carried"));
        return Err(Reply::new(StatusCode::NOT_IMPLEMENTED, "upgrades are not carried"));
    }
    if target.port() == HTTPS {
        pipeline.refused(entry, &target, &Why::NotTls);
        return Err(Reply::refused(&target, &Why::NotTls, None));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let ask = Ask::Request { method: request.method().as_str().to_owned(), path: path.clone() };
    let way = pipeline
        .open(entry, &target, ask)
        .await
        .map_err(|refused| Reply::refused(&target, &refused.why, refused.address))?;

    let wrong = || Reply::new(StatusCode::BAD_REQUEST, "the request cannot be written anew");
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| wrong())?;
    *request.version_mut() = hyper::Version::HTTP_11;
    clean(request.headers_mut());
    request.headers_mut().insert(HOST, HeaderValue::from_str(&target.host_header()).map_err(|_| wrong())?);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let mut response = send(pipeline, entry, &target, way, request).await?;
    if response.headers().contains_key(TRANSFER_ENCODING) {
        // The chunks are ours to count now; a length beside them was never true.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    clean(response.headers_mut());
    // One request per connection, and the client should know.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// Finds the one target that everything in the request agrees on.
fn wanted(form: &Form, request: &Request<Incoming>) -> Result<Target, Why> {
    let uri = request.uri();
    let target = match form {
        Form::Absolute if uri.scheme_str() == Some("http") => {
            Target::authority(uri.authority().map_or("", |authority| authority.as_str()), Some(HTTP))?
        }
        Form::Absolute => return Err(Why::Malformed("the target is not an `http://` address")),
        Form::Bound(target) if uri.authority().is_none() && uri.path().starts_with('/') => target.clone(),
        Form::Bound(_) => return Err(Why::Malformed("the target is not a path")),
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
        (Some(host), None) if Target::authority(host, Some(HTTP)).ok().as_ref() == Some(&target) => Ok(target),
        _ => Err(Why::Host),
    }
}

/// Removes what belongs to the connection the message came by, and not to the message.
fn clean(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // A message may not use this to lose what it is judged by.
    let kept = ["host", "content-length"];
    for name in named.iter().filter(|name| !kept.contains(&name.as_str())).chain(&OF_THE_CONNECTION) {
        headers.remove(name);
    }
}

async fn send(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    target: &Target,
    way: Way,
    request: Request<Incoming>,
) -> Result<Answered, Reply> {
    let Way { stream, mut permit } = way;
    let broken = || Reply::refused(target, &Why::Unreachable, None);
    let (mut sender, connection) = client::conn::http1::Builder::new()
        .max_buf_size(BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| broken())?;
    let (owner, told) = (Arc::clone(pipeline), target.clone());
    let running = AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! {
            // Both ends of the exchange see a failure themselves.
            _ = connection => (),
            () = permit.revoked() => owner.refused(entry, &told, &Why::Revoked),
        }
    }));
    let response = sender.send_request(request).await.map_err(|_| broken())?;
    // Nobody asked to switch.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(broken());
    }
    Ok(response.map(|body| Carried { body, _running: running }))
}

/// A body on its way back. The connection it comes by ends with it.
#[derive(Debug)]
struct Carried {
    body: Incoming,
    _running: AbortOnDropHandle<()>,
}

impl Body for Carried {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_headers_stay() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-One, close"),
            ("connection", "x-two, Host, content-length"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("host", "x.io"),
            ("content-length", "5"),
            ("proxy-authorization", "Basic eDp5"),
            ("proxy-connection", "keep-alive"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        clean(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "x-three"]);
    }
}
