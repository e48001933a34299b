//! The embedded backend against the contract, and what is its alone.

use std::path::Path;
use std::time::Duration;

use ralph_sandbox::conformance::{Outcome, suite};
use ralph_sandbox::embedded::{Embedded, Options};
use ralph_sandbox::{Backend, Exec, Spec, capture};

pub(crate) fn options(dir: &Path) -> Options {
    Options { dir: dir.to_owned(), program: Some(crate::ordinary::program()), ..Options::default() }
}

pub(crate) fn spec(name: &str) -> Spec {
    Spec { name: name.to_owned(), ..Spec::default() }
}

pub(crate) async fn sh(backend: &Embedded, name: &str, line: &str) -> String {
    let sandbox = backend.create(&spec(name)).await.expect("a sandbox");
    let output = capture(&*sandbox, &Exec::shell(line, Duration::from_secs(20)), 1 << 20).await.expect("a command");
    sandbox.destroy().await.expect("the end");
    format!("{}{}", output.stdout_text(), output.stderr_text())
}

#[tokio::test]
async fn who_and_where() {
    let dir = tempfile::tempdir().expect("a folder");
    let backend = Embedded::new(options(dir.path()));
    let told = sh(
        &backend,
        "who",
        "id; pwd; hostname; ls -A /; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp:'; cat /proc/1/cmdline",
    )
    .await;
    assert!(told.starts_with("uid=1000(agent) gid=1000(agent)"), "{told}");
}

#[tokio::test]
async fn conforms() {
    let dir = tempfile::tempdir().expect("a folder");
    let backend = Embedded::new(options(dir.path()));
    let results = suite(&backend).await;
    let failed: Vec<String> =
        results.iter().filter(|one| one.outcome != Outcome::Passed).map(ToString::to_string).collect();
    assert!(failed.is_empty() && results.len() > 40, "{failed:#?}");
}
