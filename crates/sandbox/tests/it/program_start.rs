//! Tests which programs are found and started, and with which arguments.

use std::time::Duration;

use ralph_sandbox::{Error, ExecRequest, ExecStatus, SandboxLimits, capture};

use crate::limits::TestCage;

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn long_and_many_arguments_are_passed() {
    let cage = TestCage::new(SandboxLimits::default(), true).await;
    // The kernel accepts arguments of up to 128 KiB, including the NUL at the end.
    let word = "x".repeat((128 << 10) - 1);
    let output = cage.run(&ExecRequest::new(["sh", "-c", "printf %s \"$1\" | wc -c", "sh", &word], LONG)).await;
    assert_eq!(output.stdout_text().trim(), word.len().to_string());
    let refused = capture(&*cage.sandbox, &ExecRequest::new(["true", &format!("{word}x")], LONG), 10).await;
    let Err(Error::Spawn { source, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ArgumentListTooLong);
    let many = ["sh", "-c", "echo $#", "sh"].map(ToOwned::to_owned).into_iter();
    let output = cage.run(&ExecRequest::new(many.chain((0..5000).map(|n| n.to_string())), LONG)).await;
    assert_eq!(output.stdout_text(), "5000\n");
    let mut exec = ExecRequest::shell("env | wc -c", LONG);
    for n in 0..16 {
        exec = exec.env(&format!("V{n}"), &"y".repeat(64 << 10));
    }
    let output = cage.run(&exec).await;
    assert!(output.stdout_text().trim().parse::<u64>().unwrap() > 1 << 20, "{output:?}");
}

#[tokio::test]
async fn programs_that_cannot_start_are_errors_not_exits() {
    let cage = TestCage::new(SandboxLimits::default(), true).await;
    let made = "printf '#!/no/such/shell\\n' > lost; printf 'echo x\\n' > bare; printf '#!/bin/sh\\necho here\\n' > my-tool; \
        chmod +x lost bare my-tool; mkdir -p one two; cp my-tool one/tool; printf x > two/tool; printf '#!/bin/sh\\necho own\\n' > one/ls; \
        chmod +x one/ls; ln -s one link; mkdir one/in";
    assert_eq!(cage.sh(made).await.exit.status, ExecStatus::Code(0));
    for program in ["./lost", "./bare", "lost", "./one", "link/none"] {
        let got = capture(&*cage.sandbox, &ExecRequest::new([program], LONG), 10).await;
        assert!(matches!(got, Err(Error::Spawn { .. })), "{program}: {got:?}");
    }
    let run = async |program: &str, path: &str| {
        cage.run(&ExecRequest::new([program], LONG).env("PATH", path)).await.stdout_text()
    };
    assert_eq!(run("./my-tool", "/nowhere").await, "here\n");
    // The first that can be run, skipping one that cannot; the current directory only where `PATH` names it.
    assert_eq!(run("tool", "/workspace/two:/workspace/one:/usr/bin").await, "here\n");
    assert_eq!(run("ls", "/workspace/one:/usr/bin").await, "own\n");
    assert_eq!(run("my-tool", "/usr/bin:.").await, "here\n");
    let hidden = capture(&*cage.sandbox, &ExecRequest::new(["my-tool"], LONG), 10).await;
    assert!(matches!(hidden, Err(Error::Spawn { .. })), "{hidden:?}");
    // A working directory must be a plain path without links.
    let linked = capture(&*cage.sandbox, &ExecRequest::shell("pwd", LONG).cwd("link/in"), 10).await;
    assert!(matches!(linked, Err(Error::Refused { .. })), "{linked:?}");
    let plain = cage.run(&ExecRequest::shell("pwd", LONG).cwd("one/in")).await;
    assert_eq!(plain.stdout_text(), "/workspace/one/in\n");
}
