//! Cases about one command: its arguments and input, its output and how it ends.

use std::path::Path;

use super::fixture::{
    ConformanceFixture, ConformanceResult, LONG, expect_eq, expect_error, expect_true, is_refused, require_program,
};
use crate::{Error, ExecRequest, ExecStatus, OutputCapture, OutputSink, OutputStream, capture};

const LARGE: u64 = 50_000_000;

pub(super) async fn codes(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    for code in [0, 1, 2, 126, 127, 255] {
        let exec = ExecRequest::shell(&format!("exit {code}"), LONG);
        let exit = fixture.shared().exec(&exec, &mut OutputCapture::new(0)).await?;
        expect_eq("the status", exit.status, ExecStatus::Code(code))?;
    }
    Ok(())
}

pub(super) async fn signals(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    for (name, number) in [("KILL", 9), ("TERM", 15), ("HUP", 1)] {
        let exec = ExecRequest::shell(&format!("kill -s {name} $$"), LONG);
        let exit = fixture.shared().exec(&exec, &mut OutputCapture::new(0)).await?;
        expect_eq("the status", exit.status, ExecStatus::Signal(number))?;
    }
    Ok(())
}

pub(super) async fn arguments(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let odd = ["", " ", "a b", "'", "\"", "\\", "$HOME", "`id`", "$(id)", "a\nb", "*", "-n", "--", ";", "é🦀", "\t"];
    let exec = ExecRequest::new(["printf", "%s|"].into_iter().chain(odd), LONG);
    let output = capture(fixture.shared(), &exec, 4096).await?;
    let expected: String = odd.iter().flat_map(|word| [*word, "|"]).collect();
    expect_eq("what printf was given", output.stdout_text(), expected)
}

pub(super) async fn environment(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let line = "printf '%s\\n' \"$FROM_SPEC\" \"$BOTH\" \"$ODD\"; test -d \"$HOME\" && test -n \"$PATH\" && echo home";
    let exec = ExecRequest::shell(line, LONG).env("BOTH", "exec").env("ODD", "a=b 'c'\n$d ü");
    let output = capture(fixture.shared(), &exec, 4096).await?;
    expect_eq("the variables", output.stdout_text(), "spec value\nexec\na=b 'c'\n$d ü\nhome\n")?;
    for name in ["", "A=B"] {
        let got = capture(fixture.shared(), &ExecRequest::shell("env", LONG).env(name, "x"), 4096).await;
        expect_error(&format!("the name {name:?}"), &got, |error| matches!(error, Error::Spawn { .. }))?;
    }
    Ok(())
}

pub(super) async fn directory(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let workspace = fixture.shared().workspace();
    fixture.shared().mkdirs(Path::new("cwd/a b")).await?;
    for (cwd, expected) in [(".", workspace.to_owned()), ("cwd/a b", workspace.join("cwd/a b"))] {
        let output = capture(fixture.shared(), &ExecRequest::new(["pwd"], LONG).cwd(cwd), 4096).await?;
        expect_eq("where it runs", output.stdout_text(), format!("{}\n", expected.display()))?;
    }
    Ok(())
}

pub(super) async fn directory_escape(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    fixture.sh("mkdir escape; ln -s / escape/root; ln -s . escape/self").await?;
    // Only `pwd` runs there, so an escape is visible but does no harm.
    for cwd in ["..", "escape/../..", "/", "/tmp", "escape/root", "escape/root/tmp", "escape/self", ""] {
        let got = capture(fixture.shared(), &ExecRequest::new(["pwd"], LONG).cwd(cwd), 4096).await;
        expect_error(&format!("{cwd:?}"), &got, is_refused)?;
    }
    let got = capture(fixture.shared(), &ExecRequest::new(["pwd"], LONG).cwd("escape/missing"), 4096).await;
    expect_error("a missing one", &got, |error| matches!(error, Error::File { .. }))
}

pub(super) async fn input(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|n| u8::try_from(n * 31 % 251).unwrap_or(0)).collect();
    let output = capture(fixture.shared(), &ExecRequest::new(["cat"], LONG).stdin(bytes.clone()), 4 << 20).await?;
    expect_eq("the status", output.exit.status, ExecStatus::Code(0))?;
    expect_true("the output equals the input", output.stdout == bytes)
}

pub(super) async fn input_unread(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let exec = ExecRequest::new(["true"], LONG).stdin(vec![b'x'; 1 << 20]);
    let output = capture(fixture.shared(), &exec, 4096).await?;
    expect_eq("the status", output.exit.status, ExecStatus::Code(0))
}

pub(super) async fn input_none(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let output = capture(fixture.shared(), &ExecRequest::new(["cat"], LONG), 4096).await?;
    expect_eq("the end", (output.exit.status, output.stdout), (ExecStatus::Code(0), Vec::new()))
}

#[derive(Default)]
struct CountingSink {
    bytes: u64,
    largest: usize,
    unexpected: u64,
}

impl OutputSink for CountingSink {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.largest = self.largest.max(bytes.len());
        let good = stream == OutputStream::Stdout && bytes.iter().all(|byte| *byte == 0);
        self.unexpected += u64::from(!good);
    }
}

pub(super) async fn output_large(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let mut count = CountingSink::default();
    let exec = ExecRequest::shell(&format!("head -c {LARGE} /dev/zero"), LONG);
    let exit = fixture.shared().exec(&exec, &mut count).await?;
    expect_eq("the status", exit.status, ExecStatus::Code(0))?;
    expect_eq("bytes, unexpected chunks", (count.bytes, count.unexpected), (LARGE, 0))?;
    expect_true("no chunk is larger than a mebibyte", count.largest <= 1 << 20)
}

struct NotifyingSink(Option<tokio::sync::oneshot::Sender<()>>, Vec<u8>);

impl OutputSink for NotifyingSink {
    fn chunk(&mut self, _: OutputStream, bytes: &[u8]) {
        self.1.extend_from_slice(bytes);
        if let Some(notify) = self.0.take() {
            // The receiver is gone only if the case has already failed.
            let _ = notify.send(());
        }
    }
}

pub(super) async fn output_streams(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (notify, notified) = tokio::sync::oneshot::channel();
    let mut sink = NotifyingSink(Some(notify), Vec::new());
    // The command ends only after its first line has been answered.
    let exec = ExecRequest::shell("echo first; while [ ! -e streams-go ]; do sleep 0.05; done; echo second", LONG / 3);
    let answer = async {
        if notified.await.is_ok() {
            fixture.shared().write(Path::new("streams-go"), b"", None).await?;
        }
        Ok::<_, Error>(())
    };
    let (exit, answered) = tokio::join!(fixture.shared().exec(&exec, &mut sink), answer);
    answered?;
    expect_eq("the status", exit?.status, ExecStatus::Code(0))?;
    expect_eq("the output", String::from_utf8_lossy(&sink.1).into_owned(), "first\nsecond\n")
}

pub(super) async fn stderr_separate(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let output = capture(fixture.shared(), &ExecRequest::shell("echo out; echo err >&2; exit 3", LONG), 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    expect_eq("the streams", got, (ExecStatus::Code(3), "out\n".to_owned(), "err\n".to_owned()))
}

pub(super) async fn output_bytes(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let output = capture(fixture.shared(), &ExecRequest::shell(r"printf '\000\377\r\n\033[1m'", LONG), 4096).await?;
    expect_eq("the bytes", output.stdout, b"\0\xff\r\n\x1b[1m".to_vec())
}

pub(super) async fn missing_program(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    fixture.sh("mkdir -p programs/folder; echo text > programs/plain; chmod 644 programs/plain").await?;
    for program in ["ralph-no-such-program", "./programs/none", "./programs/plain", "./programs/folder", ""] {
        let got = capture(fixture.shared(), &ExecRequest::new([program], LONG), 4096).await;
        expect_error(&format!("{program:?}"), &got, |error| matches!(error, Error::Spawn { .. }))?;
    }
    let got = capture(fixture.shared(), &ExecRequest::new(Vec::<String>::new(), LONG), 4096).await;
    expect_error("nothing at all", &got, |error| matches!(error, Error::Spawn { .. }))
}

pub(super) async fn parallel(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    // Each command waits for all the others, so they end only if they run at the same time.
    let one = |n: u32| async move {
        let line = format!(
            "mkdir -p parallel; touch parallel/{n}; while [ $(ls parallel | wc -l) -lt 8 ]; do sleep 0.05; done; \
             echo out {n}; echo err {n} >&2"
        );
        let output = capture(fixture.shared(), &ExecRequest::shell(&line, LONG / 2), 4096).await?;
        let expected = (ExecStatus::Code(0), format!("out {n}\n"), format!("err {n}\n"));
        expect_eq("its own output", (output.exit.status, output.stdout_text(), output.stderr_text()), expected)
    };
    // Joined in pairs of pairs: eight is enough, and a list of boxed futures would only be longer.
    let pair = |n: u32| async move { tokio::try_join!(one(n), one(n + 1)) };
    let four = |n: u32| async move { tokio::try_join!(pair(n), pair(n + 2)) };
    tokio::try_join!(four(0), four(4)).map(drop)
}

pub(super) async fn git(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    require_program(fixture.shared(), "git").await?;
    let steps = "mkdir git && cd git && git init -q -b main && echo one > file && git add file && \
        git -c user.name=a -c user.email=a@example.com commit -q -m first && git log --format=%s && git status --short";
    expect_eq("the log", fixture.sh(steps).await?, "first\n")?;
    let bundle = "cd git && git bundle create -q ../git.bundle HEAD main && cd .. && git -c init.defaultBranch=main clone -q git.bundle cloned && \
        cat cloned/file";
    expect_eq("a clone of a bundle", fixture.sh(bundle).await?, "one\n")
}
