//! Traps in the place of files that the host reads and writes: links, pipes, sockets, holes.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::case::{Case, Steps, Trouble, control, judged};
use super::super::range::Range;
use super::super::report::Verdict;
use crate::{Error, Exec, Sandbox, capture};

const CAP: u64 = 1 << 20;
/// The host must not wait for anything inside.
const AT_ONCE: Duration = Duration::from_secs(3);

/// What the host does with the trap.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Read,
    CopyOut,
    Write,
    Append,
    CopyIn,
    List,
    MakeFolders,
    RunIn,
}

const TO_FILE: &str = r#"rm -rf trap; ln -s "$FOLDER/outside/canary" trap"#;
const TO_FOLDER: &str = r#"rm -rf trap; ln -s "$FOLDER/outside" trap"#;
const PIPE: &str = "rm -rf trap; mkfifo trap";
const HOLE: &str = "rm -rf trap; truncate -s 4G trap";

const fn own(id: &'static str, name: &'static str, steps: Steps) -> Case {
    Case::own(id, name, &[], steps)
}

pub(super) const CASES: &[Case] = &[
    own("FS-05.read", "the host reads a link", |r, _| Box::pin(trapped(r, TO_FILE, "trap", Deed::Read))),
    own("FS-05.copy", "the host copies a link out", |r, _| Box::pin(trapped(r, TO_FILE, "trap", Deed::CopyOut))),
    own("FS-05.write", "the host writes to a link", |r, _| Box::pin(trapped(r, TO_FILE, "trap", Deed::Write))),
    own("FS-05.append", "the host appends to a link", |r, _| Box::pin(trapped(r, TO_FILE, "trap", Deed::Append))),
    own("FS-05.copy-in", "the host copies onto a link", |r, _| Box::pin(trapped(r, TO_FILE, "trap", Deed::CopyIn))),
    own("FS-05.read-below", "the host reads below a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap/canary", Deed::Read))
    }),
    own("FS-05.write-below", "the host writes below a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap/canary", Deed::Write))
    }),
    own("FS-05.new-below", "the host makes a file below a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap/new", Deed::Write))
    }),
    own("FS-05.append-below", "the host appends below a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap/canary", Deed::Append))
    }),
    own("FS-05.folders", "the host makes folders below a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap/a/b", Deed::MakeFolders))
    }),
    own("FS-05.list", "the host lists a link", |r, _| Box::pin(trapped(r, TO_FOLDER, "trap", Deed::List))),
    own("FS-05.run-in", "the host runs something in a link", |r, _| {
        Box::pin(trapped(r, TO_FOLDER, "trap", Deed::RunIn))
    }),
    own("FS-22.read", "the host reads a pipe", |r, _| Box::pin(trapped(r, PIPE, "trap", Deed::Read))),
    own("FS-22.copy", "the host copies a pipe out", |r, _| Box::pin(trapped(r, PIPE, "trap", Deed::CopyOut))),
    own("FS-22.append", "the host appends to a pipe", |r, _| Box::pin(trapped(r, PIPE, "trap", Deed::Append))),
    own("FS-22.write", "the host writes to a pipe", |r, _| Box::pin(trapped(r, PIPE, "trap", Deed::Write))),
    own("FS-23.read", "the host reads a huge hole", |r, _| Box::pin(trapped(r, HOLE, "trap", Deed::Read))),
    own("FS-23.copy", "the host copies a huge hole out", |r, _| Box::pin(trapped(r, HOLE, "trap", Deed::CopyOut))),
    own("FS-24.descriptor", "a working directory behind a descriptor", |r, _| Box::pin(descriptor(r))),
    own("FS-24.dots", "paths that climb out", |r, _| Box::pin(dots(r))),
    own("FS-53.race", "a folder that becomes a link while the host writes", |r, _| Box::pin(race(r))),
    own("FS-54.names", "names made to confuse whoever prints them", |r, _| Box::pin(names(r))),
];

/// Sets a trap inside, lets the host step on it, and looks at what it would have led to.
async fn trapped(range: &Range<'_>, line: &str, at: &str, deed: Deed) -> Result<Verdict, Trouble> {
    let sandbox = range.shared(&[]).await?;
    range.say(&*sandbox, line).await?;
    let began = Instant::now();
    let done = tokio::time::timeout(AT_ONCE, act(range, &*sandbox, Path::new(at), deed)).await;
    let took = began.elapsed();
    let touched = touched(range)?;
    range.say(&*sandbox, "rm -rf trap").await?;
    range.outside(line).await?;
    let sprung = leads(range, at, line);
    range.outside("rm -rf trap").await?;
    control("the trap leads nowhere on the host either", sprung)?;
    match done {
        Err(_) => judged(true, format!("the host waited for {took:?}")),
        Ok(Ok(true)) => judged(true, "the host followed"),
        Ok(_) => judged(touched, "what lies outside was changed"),
    }
}

/// Returns whether what happened is what must not: `Ok(true)`.
async fn act(range: &Range<'_>, sandbox: &dyn Sandbox, at: &Path, deed: Deed) -> Result<bool, Error> {
    let out = range.folder.join("host-copy");
    let followed = match deed {
        Deed::Read => sandbox.read(at, CAP).await.map(|_| true),
        Deed::CopyOut => sandbox.copy_out(at, &out, CAP).await.map(|_| true),
        // Replacing the trap by a plain file is as good as a refusal: what counts is what lies outside.
        Deed::Write => sandbox.write(at, b"from the host", None).await.map(|()| false),
        Deed::Append => sandbox.append(at, b"from the host").await.map(|()| false),
        Deed::CopyIn => sandbox.copy_in(&range.folder.join("spare/file"), at).await.map(|()| false),
        Deed::List => sandbox.list(at).await.map(|entries| entries.iter().any(|entry| entry.name == "canary")),
        Deed::MakeFolders => sandbox.mkdirs(at).await.map(|()| false),
        Deed::RunIn => {
            let exec = Exec::shell("cat canary", AT_ONCE).cwd(at);
            capture(sandbox, &exec, 4096).await.map(|output| output.stdout_text().contains("untouched"))
        }
    };
    // Only there if the copy was made, which is told already.
    let _ = fs::remove_file(out);
    followed
}

/// Returns whether anything outside was changed, and puts it right again.
fn touched(range: &Range<'_>) -> Result<bool, Trouble> {
    let outside = range.folder.join("outside");
    let names: Vec<_> = fs::read_dir(&outside)?.flatten().map(|entry| entry.file_name()).collect();
    let same = names == ["canary"] && fs::read(outside.join("canary"))? == b"untouched\n";
    if !same {
        crate::files::remove_tree(&outside)?;
        fs::create_dir(&outside)?;
        fs::write(outside.join("canary"), "untouched\n")?;
    }
    Ok(!same)
}

/// Returns whether ordinary code on the host would step on the trap.
fn leads(range: &Range<'_>, at: &str, line: &str) -> bool {
    let trap = range.ground().join("trap");
    let outside = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    match line {
        PIPE => fs::metadata(trap).is_ok_and(|found| found.file_type().is_fifo()),
        HOLE => fs::metadata(trap).is_ok_and(|found| found.len() > CAP),
        TO_FILE => outside(&trap).is_some() && outside(&trap) == outside(&range.folder.join("outside/canary")),
        _ => {
            at.starts_with("trap")
                && outside(&trap).is_some()
                && outside(&trap) == outside(&range.folder.join("outside"))
        }
    }
}

async fn descriptor(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.shared(&[]).await?;
    range.say(&*sandbox, "rm -rf fds; ln -s /proc/self/fd fds; mkdir -p plain").await?;
    let mut got = Vec::new();
    for place in ["fds/3", "fds/7", "../proc/self/fd/3", "/proc/self/fd/8", "fds"] {
        let exec = Exec::shell("pwd; ls -A | head -3", AT_ONCE).cwd(place);
        if let Ok(output) = capture(&*sandbox, &exec, 4096).await {
            got.push(format!("{place}: {}", output.stdout_text()));
        }
    }
    let plain = capture(&*sandbox, &Exec::shell("pwd", AT_ONCE).cwd("plain"), 4096).await?;
    range.say(&*sandbox, "rm -rf fds plain").await?;
    control("no directory can be entered at all", plain.stdout_text().trim_end().ends_with("/plain"))?;
    judged(!got.is_empty(), got.join("; "))
}

async fn dots(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.shared(&[]).await?;
    let canary = range.folder.join("home/.ssh/id_canary");
    let climbing = format!("../../../../../../../../../..{}", canary.display());
    let mut got = Vec::new();
    for path in
        [canary.as_path(), Path::new(&climbing), Path::new("a/../../x"), Path::new("/etc/hostname"), Path::new("..")]
    {
        if sandbox.read(path, CAP).await.is_ok() || sandbox.list(path).await.is_ok() {
            got.push(path.display().to_string());
        }
    }
    // From the folder the control runs in, the same words do lead there.
    control("the words lead nowhere", fs::read(range.ground().join(&climbing)).is_ok())?;
    sandbox.write(Path::new("plain"), b"x", None).await?;
    control("nothing can be read at all", sandbox.read(Path::new("plain"), CAP).await.is_ok())?;
    judged(!got.is_empty(), got.join("; "))
}

/// The host writes, appends, reads and makes folders below a name that is a folder now and a link out a moment later.
async fn race(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    range.say(&*sandbox, r#"mkdir d && ln -s "$FOLDER/outside" l"#).await?;
    let swapping = range.say(&*sandbox, "\"$PROBE\" swap d l 2500");
    let writing = async {
        let (mut written, mut leaked) = (0, 0);
        for n in 0..200 {
            written += usize::from(sandbox.write(Path::new("d/file"), b"from the host", None).await.is_ok());
            // Either is fine: a refusal, or the folder's own.
            let _ = sandbox.append(Path::new("d/canary"), b"from the host").await;
            let _ = sandbox.mkdirs(Path::new(&format!("d/sub{n}"))).await;
            let read = sandbox.read(Path::new("d/canary"), CAP).await;
            leaked += usize::from(read.is_ok_and(|bytes| bytes.starts_with(b"untouched")));
        }
        (written, leaked)
    };
    let (told, (written, leaked)) = tokio::join!(swapping, writing);
    let told = told?;
    let touched = touched(range)?;
    sandbox.destroy().await?;
    let swaps: u64 = told.trim().strip_prefix("swapped ").and_then(|count| count.parse().ok()).unwrap_or(0);
    control(
        &format!("nothing was swapped while nothing was written: {told}, {written} writes"),
        swaps > 100 && written > 0,
    )?;
    judged(touched || leaked > 0, format!("outside changed: {touched}, read from outside: {leaked}"))
}

/// Names with line breaks and escapes come back as they are, and no name stands for two.
async fn names(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let line = r#"mkdir odd; cd odd; touch "$(printf 'a\nb')" "$(printf '\033[2Jx')" -- '-rf' '$(id)'; ls -A | wc -l; ls -1 | wc -l"#;
    let told = range.say(&*sandbox, line).await?;
    let entries = sandbox.list(Path::new("odd")).await?;
    sandbox.destroy().await?;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    // A shell that reads lines is fooled: four files, five lines.
    control(&format!("the names fool nobody: {told}"), told.trim().ends_with('5'))?;
    judged(names != ["\u{1b}[2Jx", "$(id)", "-rf", "a\nb"], format!("{names:?}"))
}
