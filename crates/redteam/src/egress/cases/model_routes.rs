//! Attacks on model routes: other endpoints of a provider, and more expensive models.

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::EgressControl::Other;
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::fake_network::NetworkTrace;
use super::super::policies::PolicyPreset::Strict;
use super::super::recorder::granted_tokens;
use super::budget::ledger_with_cap;
use crate::report::AttackVerdict;

/// A call that is allowed.
const FINE: &[&str] = &[
    "proxy",
    r#"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 91\r\n\r\n{"model":"canary-model","max_tokens":10,"messages":[{"role":"user","content":"hello you"}]}"#,
    "receive",
];

/// A request to a route that no endpoint serves.
macro_rules! refused {
    ($($id:literal $name:literal $line:literal $says:literal,)*) => {
        &[$(
            EgressCase::blocked($id, $name,
                &["proxy", concat!("send:", $line, r" HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 0\r\n\r\n"), "receive"],
                $says, Other(Strict, FINE)),
        )*]
    };
}

pub(super) const REFUSED: &[EgressCase] = refused![
    "PC-16.files" "removing files of the account" "DELETE /r/anthropic/v1/files/x" "HTTP/1.1 403",
    "PC-16.list" "listing files of the account" "GET /r/anthropic/v1/files" "HTTP/1.1 403",
    "PC-16.organization" "reading the organization" "GET /r/anthropic/v1/organizations/me" "HTTP/1.1 403",
    "PC-16.keys" "creating a key" "POST /r/anthropic/v1/organizations/api_keys" "HTTP/1.1 403",
    "PC-16.batches" "a batch of unmetered calls" "POST /r/anthropic/v1/messages/batches" "HTTP/1.1 403",
    "PC-16.dots" "path traversal with `..`" "POST /r/anthropic/v1/messages/../files" "HTTP/1.1 40",
    "PC-16.escaped" "path traversal with `..`, escaped" "POST /r/anthropic/v1/messages/%2e%2e/files" "HTTP/1.1 40",
    "PC-16.slashes" "a doubled slash" "POST /r/anthropic//v1/files" "HTTP/1.1 40",
    "PC-16.parameter" "a parameter in the path" "POST /r/anthropic/v1/messages;x=1" "HTTP/1.1 403",
    "PC-16.end" "a trailing slash" "POST /r/anthropic/v1/messages/" "HTTP/1.1 403",
    "PC-16.null" "an escaped NUL" "POST /r/anthropic/v1/messages%00" "HTTP/1.1 403",
    "PC-16.name" "a route's name with a slash in it" "GET /r/anthropic%2fv1/models" "HTTP/1.1 404",
    "PC-16.method" "a method that modifies" "PATCH /r/anthropic/v1/messages" "HTTP/1.1 403",
    "PC-16.head" "an unlisted method" "OPTIONS /r/anthropic/v1/messages" "HTTP/1.1 403",
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "PC-16.around",
        "the model's host without its route",
        &[
            "connect:model.test:443",
            "tls:model.test",
            r"send:GET /v1/files HTTP/1.1\r\nHost: model.test\r\nX-Api-Key: {model}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-16.absolute",
        "a route as an absolute URL",
        &[
            "proxy",
            r"send:GET http://127.0.0.1:3128/r/anthropic/v1/models HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nX-Api-Key: {model}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-16.tunnel",
        "a tunnel to the listener itself",
        &["connect:127.0.0.1:3128", "receive"],
        "HTTP/1.1 403",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-21.none",
        "a route without a credential",
        &["proxy", r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\n\r\n", "receive"],
        "HTTP/1.1 401",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-21.own",
        "a route with the client's own key",
        &[
            "proxy",
            r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: sk-ant-api03-mine\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 401",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-31.model",
        "a model that is not allowed",
        &[
            "proxy",
            r#"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 85\r\n\r\n{"model":"dear-model","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}"#,
            "receive",
        ],
        "HTTP/1.1 403",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-31.twice",
        "two models in one call",
        &[
            "proxy",
            r#"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 108\r\n\r\n{"model":"canary-model","model":"dear-model","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}"#,
            "receive",
        ],
        "HTTP/1.1 40",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-31.escaped",
        "a second model under an escaped name",
        &[
            "proxy",
            r#"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 113\r\n\r\n{"model":"canary-model","mod\\u0065l":"dear-model","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}"#,
            "receive",
        ],
        "HTTP/1.1 40",
        Other(Strict, FINE),
    ),
    EgressCase::blocked(
        "PC-31.path",
        "a call that is not valid text",
        &[
            "proxy",
            r"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\nContent-Length: 4\r\n\r\n\xff\xfe\x00{",
            "receive",
        ],
        "HTTP/1.1 400",
        Other(Strict, FINE),
    ),
    EgressCase::custom("PC-31.output", "an answer that costs more than the budget", |arena| Box::pin(clamped(arena))),
];

/// Checks that the forwarded token limit fits the budget, however much the client asks for.
async fn clamped(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let call = |most: &str| {
        let body = format!(
            r#"{{"model":"canary-model","max_tokens":{most},"messages":[{{"role":"user","content":"hello"}}]}}"#
        );
        let head = format!(
            r"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        ["proxy".to_owned(), head, "receive".to_owned()]
    };
    let asked = |happened: &NetworkTrace| happened.messages.first().and_then(|message| granted_tokens(&message.text));
    let small = ledger_with_cap(2_000);
    let cage = arena.new_cage(Strict, small).await?;
    let mut most = Vec::new();
    for requested in ["100000", "1e9", "18446744073709551615", "-1"] {
        let (_, happened) = arena.run_attack(&cage, &call(requested)).await?;
        most.extend(asked(&happened));
    }
    let _ = cage.sandbox.destroy().await;
    let open = arena.new_cage(Strict, ample_ledger()).await?;
    let (reply, happened) = arena.run_attack(&open, &call("100000")).await?;
    let _ = open.sandbox.destroy().await;
    require_control(reply, asked(&happened) == Some(100_000))?;
    case_verdict(most.is_empty() || most.iter().any(|asked| *asked > 2_000), format!("passed on {most:?}"))
}
