//! Commands with a terminal of their own.

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
async fn a_command_gets_a_terminal() {
    let bench = test_cage().await;
    let line = "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo tty > /dev/tty; echo err >&2; \
        echo $TERM; ps -o tpgid= -p $$ | tr -d ' ' | grep -qx $$ && echo in front; exit 7";
    let output = bench.run(&terminal(line)).await;
    assert_eq!(text(&output), "all\r\n24 80\r\ntty\r\nerr\r\nxterm-256color\r\nin front\r\n");
    assert_eq!(output.exit.status, ExecStatus::Code(7));
    let output = bench.run(&terminal("kill -KILL $$")).await;
    assert_eq!(output.exit.status, ExecStatus::Signal(9));
}

#[tokio::test]
async fn control_keys_work() {
    let bench = test_cage().await;
    // Ctrl-C reaches what runs in front, however early it is pressed.
    let began = Instant::now();
    for _ in 0..20 {
        let output =
            bench.run(&ExecRequest { argv: vec!["sleep".into(), "20".into()], ..terminal("") }.stdin("\x03")).await;
        assert_eq!((text(&output).as_str(), output.exit.status), ("^C", ExecStatus::Signal(2)));
    }
    // Ctrl-D ends the input; what was typed is shown, as on every terminal.
    let output = bench.run(&terminal("cat | tr a-z A-Z").stdin("typed\n\x04")).await;
    assert_eq!(text(&output).replace("^D\x08\x08", ""), "typed\r\nTYPED\r\n");
    let output = bench.run(&terminal("stty -echo; echo ready; read word; echo got $word").stdin("secret\n")).await;
    assert!(text(&output).ends_with("got secret\r\n"), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn shells_talk_and_keep_jobs() {
    let bench = test_cage().await;
    for shell in ["sh", "bash"] {
        if !std::path::Path::new("/bin").join(shell).exists() {
            skip_or_fail(&format!("{shell} was not tried at a terminal: there is none on this host"));
            continue;
        }
        let typed = "sleep 1 &\njobs\nwait\necho result $((40+2))\nexit 3\n";
        let exec = ExecRequest { terminal: Some((24, 80)), ..ExecRequest::new([shell, "-i"], LONG) }.stdin(typed);
        let began = Instant::now();
        let output = bench.run(&exec).await;
        assert!(text(&output).contains("result 42"), "{shell}: {output:?}");
        assert_eq!(output.exit.status, ExecStatus::Code(3), "{shell}: {}", text(&output));
        assert!(!text(&output).contains("no job control"), "{shell}: {}", text(&output));
        assert!(began.elapsed() < Duration::from_secs(10), "{shell}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn much_passes_and_nothing_waits_for_ever() {
    let bench = test_cage().await;
    let output = bench.run(&terminal("seq 100000")).await;
    assert_eq!(text(&output).lines().count(), 100_000, "{:?}", output.exit);
    assert!(text(&output).ends_with("100000\r\n"));
    // Nobody reads what is typed.
    let exec = ExecRequest { timeout: Duration::from_secs(2), ..terminal("sleep 60").stdin("x".repeat(1 << 20)) };
    let began = Instant::now();
    let output = bench.run(&exec).await;
    assert_eq!(output.exit.status, ExecStatus::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // A line longer than a terminal holds is cut by the terminal, and everything goes on.
    let long = "y".repeat(10_000) + "\n\x04";
    let exec = ExecRequest { timeout: Duration::from_secs(5), ..terminal("stty -echo; wc -c; echo end").stdin(long) };
    let began = Instant::now();
    let output = bench.run(&exec).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?} {output:?}", began.elapsed());
    // Something in the background holds the terminal open.
    let began = Instant::now();
    let output = bench.run(&terminal("sleep 60 & echo early")).await;
    assert_eq!((text(&output).as_str(), output.exit.status), ("early\r\n", ExecStatus::Code(0)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn limits_are_reported() {
    let bench = TestCage::new(SandboxLimits { disk: Some(16 << 20), ..SandboxLimits::default() }, true).await;
    let output = bench.run(&terminal("truncate -s 1T long; exit $?")).await;
    assert_eq!(output.exit.limit, Some(ResourceLimit::Disk));
    bench.assert_usable().await;
}
