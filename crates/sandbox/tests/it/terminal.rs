//! Tests commands with a terminal.

use std::time::{Duration, Instant};

use ralph_sandbox::{ExecOutput, ExecRequest, ExecStatus, ResourceLimit, SandboxLimits};

use crate::limits::TestCage;
use crate::skip::skip_or_fail;

const LONG: Duration = Duration::from_secs(30);

fn terminal(line: &str) -> ExecRequest {
    ExecRequest { terminal: Some((24, 80)), ..ExecRequest::shell(line, LONG) }
}

async fn test_cage() -> TestCage {
    TestCage::new(SandboxLimits::default(), true).await
}

fn text(output: &ExecOutput) -> String {
    assert_eq!(output.stderr_text(), "", "a terminal has one stream");
    output.stdout_text()
}

#[tokio::test]
async fn commands_run_in_a_terminal() {
    let cage = test_cage().await;
    let line = "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo tty > /dev/tty; echo err >&2; \
        echo $TERM; ps -o tpgid= -p $$ | tr -d ' ' | grep -qx $$ && echo in front; exit 7";
    let output = cage.run(&terminal(line)).await;
    assert_eq!(text(&output), "all\r\n24 80\r\ntty\r\nerr\r\nxterm-256color\r\nin front\r\n");
    assert_eq!(output.exit.status, ExecStatus::Code(7));
    let output = cage.run(&terminal("kill -KILL $$")).await;
    assert_eq!(output.exit.status, ExecStatus::Signal(9));
}

#[tokio::test]
async fn control_keys_work() {
    let cage = test_cage().await;
    // Ctrl-C reaches the foreground program, however early it is pressed.
    let began = Instant::now();
    for _ in 0..20 {
        let output =
            cage.run(&ExecRequest { argv: vec!["sleep".into(), "20".into()], ..terminal("") }.stdin("\x03")).await;
        assert_eq!((text(&output).as_str(), output.exit.status), ("^C", ExecStatus::Signal(2)));
    }
    // Ctrl-D ends the input; what was typed is shown, as on every terminal.
    let output = cage.run(&terminal("cat | tr a-z A-Z").stdin("typed\n\x04")).await;
    assert_eq!(text(&output).replace("^D\x08\x08", ""), "typed\r\nTYPED\r\n");
    let output = cage.run(&terminal("stty -echo; echo ready; read word; echo got $word").stdin("secret\n")).await;
    assert!(text(&output).ends_with("got secret\r\n"), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn interactive_shells_have_job_control() {
    let cage = test_cage().await;
    for shell in ["sh", "bash"] {
        if !std::path::Path::new("/bin").join(shell).exists() {
            skip_or_fail(&format!("{shell} was not tried at a terminal: there is none on this host"));
            continue;
        }
        let typed = "sleep 1 &\njobs\nwait\necho result $((40+2))\nexit 3\n";
        let exec = ExecRequest { terminal: Some((24, 80)), ..ExecRequest::new([shell, "-i"], LONG) }.stdin(typed);
        let began = Instant::now();
        let output = cage.run(&exec).await;
        assert!(text(&output).contains("result 42"), "{shell}: {output:?}");
        assert_eq!(output.exit.status, ExecStatus::Code(3), "{shell}: {}", text(&output));
        assert!(!text(&output).contains("no job control"), "{shell}: {}", text(&output));
        assert!(began.elapsed() < Duration::from_secs(10), "{shell}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn large_output_and_unread_input_do_not_block() {
    let cage = test_cage().await;
    let output = cage.run(&terminal("seq 100000")).await;
    assert_eq!(text(&output).lines().count(), 100_000, "{:?}", output.exit);
    assert!(text(&output).ends_with("100000\r\n"));
    // The program does not read its input.
    let exec = ExecRequest { timeout: Duration::from_secs(2), ..terminal("sleep 60").stdin("x".repeat(1 << 20)) };
    let began = Instant::now();
    let output = cage.run(&exec).await;
    assert_eq!(output.exit.status, ExecStatus::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // The terminal truncates a line that is too long, and the command continues.
    let long = "y".repeat(10_000) + "\n\x04";
    let exec = ExecRequest { timeout: Duration::from_secs(5), ..terminal("stty -echo; wc -c; echo end").stdin(long) };
    let began = Instant::now();
    let output = cage.run(&exec).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?} {output:?}", began.elapsed());
    // A background process holds the terminal open.
    let began = Instant::now();
    let output = cage.run(&terminal("sleep 60 & echo early")).await;
    assert_eq!((text(&output).as_str(), output.exit.status), ("early\r\n", ExecStatus::Code(0)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn limits_are_reported() {
    let cage = TestCage::new(SandboxLimits { disk: Some(16 << 20), ..SandboxLimits::default() }, true).await;
    let output = cage.run(&terminal("truncate -s 1T long; exit $?")).await;
    assert_eq!(output.exit.limit, Some(ResourceLimit::Disk));
    cage.assert_usable().await;
}
