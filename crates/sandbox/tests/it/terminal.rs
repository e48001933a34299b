//! Commands with a terminal of their own.

use std::time::{Duration, Instant};

use ralph_sandbox::{Exec, Limit, Output, Resources, Status};

use crate::limits::Bench;
use crate::must::must;

const LONG: Duration = Duration::from_secs(30);

fn terminal(line: &str) -> Exec {
    Exec { terminal: Some((24, 80)), ..Exec::shell(line, LONG) }
}

async fn bench() -> Bench {
    Bench::new(Resources::default(), true).await
}

fn text(output: &Output) -> String {
    assert_eq!(output.stderr_text(), "", "a terminal has one stream");
    output.stdout_text()
}

#[tokio::test]
async fn it_is_one() {
    let bench = bench().await;
    let line = "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo tty > /dev/tty; echo err >&2; \
        echo $TERM; ps -o tpgid= -p $$ | tr -d ' ' | grep -qx $$ && echo in front; exit 7";
    let output = bench.run(&terminal(line)).await;
    assert_eq!(text(&output), "all\r\n24 80\r\ntty\r\nerr\r\nxterm-256color\r\nin front\r\n");
    assert_eq!(output.exit.status, Status::Code(7));
    let output = bench.run(&terminal("kill -KILL $$")).await;
    assert_eq!(output.exit.status, Status::Signal(9));
}

#[tokio::test]
async fn keys_do_what_keys_do() {
    let bench = bench().await;
    // Ctrl-C reaches what runs in front, however early it is pressed.
    let began = Instant::now();
    for _ in 0..20 {
        let output = bench.run(&Exec { argv: vec!["sleep".into(), "20".into()], ..terminal("") }.stdin("\x03")).await;
        assert_eq!((text(&output).as_str(), output.exit.status), ("^C", Status::Signal(2)));
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
    let bench = bench().await;
    for shell in ["sh", "bash"] {
        if !std::path::Path::new("/bin").join(shell).exists() {
            must(&format!("{shell} was not tried at a terminal: there is none on this host"));
            continue;
        }
        let typed = "sleep 1 &\njobs\nwait\necho result $((40+2))\nexit 3\n";
        let exec = Exec { terminal: Some((24, 80)), ..Exec::new([shell, "-i"], LONG) }.stdin(typed);
        let began = Instant::now();
        let output = bench.run(&exec).await;
        assert!(text(&output).contains("result 42"), "{shell}: {output:?}");
        assert_eq!(output.exit.status, Status::Code(3), "{shell}: {}", text(&output));
        assert!(!text(&output).contains("no job control"), "{shell}: {}", text(&output));
        assert!(began.elapsed() < Duration::from_secs(10), "{shell}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn much_passes_and_nothing_waits_for_ever() {
    let bench = bench().await;
    let output = bench.run(&terminal("seq 100000")).await;
    assert_eq!(text(&output).lines().count(), 100_000, "{:?}", output.exit);
    assert!(text(&output).ends_with("100000\r\n"));
    // Nobody reads what is typed.
    let exec = Exec { timeout: Duration::from_secs(2), ..terminal("sleep 60").stdin("x".repeat(1 << 20)) };
    let began = Instant::now();
    let output = bench.run(&exec).await;
    assert_eq!(output.exit.status, Status::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // A line longer than a terminal holds is cut by the terminal, and everything goes on.
    let long = "y".repeat(10_000) + "\n\x04";
    let exec = Exec { timeout: Duration::from_secs(5), ..terminal("stty -echo; wc -c; echo end").stdin(long) };
    let began = Instant::now();
    let output = bench.run(&exec).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?} {output:?}", began.elapsed());
    // Something in the background holds the terminal open.
    let began = Instant::now();
    let output = bench.run(&terminal("sleep 60 & echo early")).await;
    assert_eq!((text(&output).as_str(), output.exit.status), ("early\r\n", Status::Code(0)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn limits_are_told_there_too() {
    let bench = Bench::new(Resources { disk: Some(16 << 20), ..Resources::default() }, true).await;
    let output = bench.run(&terminal("truncate -s 1T long; exit $?")).await;
    assert_eq!(output.exit.limit, Some(Limit::Disk));
    bench.is_usable().await;
}
