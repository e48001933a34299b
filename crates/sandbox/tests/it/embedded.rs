//! Tests the embedded backend with the conformance suite, and what only this backend guarantees.

use std::path::Path;
use std::time::Duration;

use ralph_sandbox::conformance::{ConformanceOutcome, suite};
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};
use ralph_sandbox::{Backend, ExecRequest, HostLayer, SandboxSpec, capture};

pub(crate) fn options(dir: &Path) -> EmbeddedOptions {
    EmbeddedOptions {
        dir: dir.to_owned(),
        program: Some(crate::unprivileged::launcher_program()),
        ..EmbeddedOptions::default()
    }
}

pub(crate) fn spec(name: &str) -> SandboxSpec {
    SandboxSpec { name: name.to_owned(), ..SandboxSpec::default() }
}

pub(crate) async fn sh(backend: &EmbeddedBackend, name: &str, line: &str) -> String {
    let sandbox = backend.create(&spec(name)).await.expect("a sandbox");
    let output =
        capture(&*sandbox, &ExecRequest::shell(line, Duration::from_secs(20)), 1 << 20).await.expect("a command");
    sandbox.destroy().await.expect("the end");
    format!("{}{}", output.stdout_text(), output.stderr_text())
}

#[tokio::test]
async fn commands_run_as_the_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let backend = EmbeddedBackend::new(options(dir.path()));
    let output = sh(
        &backend,
        "who",
        "id; pwd; hostname; ls -A /; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp:'; cat /proc/1/cmdline",
    )
    .await;
    assert!(output.starts_with("uid=1000(agent) gid=1000(agent)"), "{output}");
}

#[tokio::test]
async fn conforms() {
    let dir = tempfile::tempdir().expect("a folder");
    let backend = EmbeddedBackend::new(options(dir.path()));
    let results = suite(&backend).await;
    let failed: Vec<String> =
        results.iter().filter(|one| one.outcome != ConformanceOutcome::Passed).map(ToString::to_string).collect();
    assert!(failed.is_empty() && results.len() > 40, "{failed:#?}");
}

#[tokio::test]
async fn invalid_host_layers_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let backend = EmbeddedBackend::new(options(&dir.path().join("state")));
    std::fs::write(dir.path().join("file"), "").expect("a file");
    for (n, (host, inside, want)) in [
        ("gone", "/opt/a/b", "No such file"),
        ("file", "opt/a", "is not a valid path for it"),
        ("file", "/opt", "is not a valid path for it"),
        ("file", "/opt/../etc/passwd", "is not a valid path for it"),
    ]
    .into_iter()
    .enumerate()
    {
        let layer = HostLayer { host: dir.path().join(host), inside: inside.into() };
        let spec = SandboxSpec { layers: vec![layer], ..spec(&format!("layer-{n}")) };
        let sandbox = backend.create(&spec).await.expect("a folder for it");
        let error =
            capture(&*sandbox, &ExecRequest::new(["true"], Duration::from_secs(20)), 99).await.expect_err("a refusal");
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(error.to_string().contains("show a layer of the host") && source.contains(want), "{error}: {source}");
        sandbox.destroy().await.expect("the end");
    }
}

#[test]
fn host_layers_change_the_fingerprint() {
    let one = SandboxSpec { layers: vec![HostLayer { host: "/a".into(), inside: "/opt/a".into() }], ..spec("x") };
    let other = SandboxSpec { layers: vec![HostLayer { host: "/b".into(), inside: "/opt/a".into() }], ..spec("x") };
    assert_ne!(one.fingerprint(), spec("x").fingerprint());
    assert_ne!(one.fingerprint(), other.fingerprint());
}
