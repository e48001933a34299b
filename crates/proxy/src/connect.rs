//! `CONNECT`: a tunnel to a name and a port.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;

use crate::head::Head;
use crate::notice::{Entry, Why};
use crate::pipeline::Pipeline;
use crate::reply::Reply;
use crate::stream::{Client, say_and_close};
use crate::target::Target;
use crate::tunnel;

/// Serves one `CONNECT` request; the client's stream begins behind its head.
pub(crate) async fn serve(pipeline: &Arc<Pipeline>, mut client: impl Client, head: &Head) {
    let target = match wanted(head) {
        Ok(target) => target,
        Err(why) => {
            pipeline.refused_text(Entry::Connect, &head.target, 0, &why);
            return say_and_close(client, &Reply::unreadable(&why).bytes()).await;
        }
    };
    match tunnel::ask(pipeline, Entry::Connect, &target).await {
        Ok(ready) => {
            if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
                tunnel::carry(pipeline, Entry::Connect, &target, ready, client).await;
            }
        }
        Err(refused) => {
            let reply = Reply::refused(&target, None, &refused.why, refused.address, pipeline.run());
            say_and_close(client, &reply.bytes()).await;
        }
    }
}

fn wanted(head: &Head) -> Result<Target, Why> {
    let target = Target::authority(&head.target, None)?;
    // Old clients send no `Host`, and some leave the port out of it.
    if let Some(host) = &head.host
        && Target::authority(host, Some(target.port())).ok().as_ref() != Some(&target)
    {
        return Err(Why::Host);
    }
    if head.body {
        return Err(Why::Malformed("a tunnel has no body"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Framing;
    use crate::target::BadTarget;

    #[track_caller]
    fn check(target: &str, host: Option<&str>, body: bool, want: Result<&str, Why>) {
        let (method, target, host) = ("CONNECT".to_owned(), target.to_owned(), host.map(str::to_owned));
        let head = Head { method, target, host, framing: Framing::Length(0), body };
        assert_eq!(wanted(&head).map(|target| target.to_string()), want.map(str::to_owned));
    }

    #[test]
    fn targets() {
        check("X.io:443", None, false, Ok("x.io:443"));
        check("x.io:443", Some("x.io:443"), false, Ok("x.io:443"));
        check("x.io:443", Some("x.io"), false, Ok("x.io:443"));
        check("x.io:443", Some("x.io:80"), false, Err(Why::Host));
        check("x.io:443", Some("y.io"), false, Err(Why::Host));
        check("x.io:443", Some(""), false, Err(Why::Host));
        check("x.io", None, false, Err(Why::Target(BadTarget::Port)));
        check("x.io@y.io:443", None, false, Err(Why::Target(BadTarget::User)));
        check("x.io:443", None, true, Err(Why::Malformed("a tunnel has no body")));
    }
}
