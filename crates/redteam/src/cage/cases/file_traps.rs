//! Attacks on the host's file operations: links, pipes, sockets and sparse files in place of files.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use ralph_sandbox::{Error, ExecRequest, Sandbox, capture};

use super::super::arena::SandboxArena;
use super::super::case::{SandboxAttack, SandboxAttackError, SandboxAttackSteps, attack_verdict, require_control};
use crate::report::AttackVerdict;

const CAP: u64 = 1 << 20;
/// The host must not wait for anything inside.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// What the host does with the trap.
#[derive(Debug, Clone, Copy)]
enum HostOperation {
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
const SPARSE_FILE: &str = "rm -rf trap; truncate -s 4G trap";

const fn custom(id: &'static str, name: &'static str, steps: SandboxAttackSteps) -> SandboxAttack {
    SandboxAttack::custom(id, name, &[], steps)
}

pub(super) const CASES: &[SandboxAttack] = &[
    custom("FS-05.read", "the host reads a link", |r, _| Box::pin(check_trap(r, TO_FILE, "trap", HostOperation::Read))),
    custom("FS-05.copy", "the host copies a link out", |r, _| {
        Box::pin(check_trap(r, TO_FILE, "trap", HostOperation::CopyOut))
    }),
    custom("FS-05.write", "the host writes to a link", |r, _| {
        Box::pin(check_trap(r, TO_FILE, "trap", HostOperation::Write))
    }),
    custom("FS-05.append", "the host appends to a link", |r, _| {
        Box::pin(check_trap(r, TO_FILE, "trap", HostOperation::Append))
    }),
    custom("FS-05.copy-in", "the host copies onto a link", |r, _| {
        Box::pin(check_trap(r, TO_FILE, "trap", HostOperation::CopyIn))
    }),
    custom("FS-05.read-below", "the host reads below a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap/canary", HostOperation::Read))
    }),
    custom("FS-05.write-below", "the host writes below a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap/canary", HostOperation::Write))
    }),
    custom("FS-05.new-below", "the host creates a file below a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap/new", HostOperation::Write))
    }),
    custom("FS-05.append-below", "the host appends below a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap/canary", HostOperation::Append))
    }),
    custom("FS-05.folders", "the host creates folders below a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap/a/b", HostOperation::MakeFolders))
    }),
    custom("FS-05.list", "the host lists a link", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap", HostOperation::List))
    }),
    custom("FS-05.run-in", "the host runs a command in a linked folder", |r, _| {
        Box::pin(check_trap(r, TO_FOLDER, "trap", HostOperation::RunIn))
    }),
    custom("FS-22.read", "the host reads a pipe", |r, _| Box::pin(check_trap(r, PIPE, "trap", HostOperation::Read))),
    custom("FS-22.copy", "the host copies a pipe out", |r, _| {
        Box::pin(check_trap(r, PIPE, "trap", HostOperation::CopyOut))
    }),
    custom("FS-22.append", "the host appends to a pipe", |r, _| {
        Box::pin(check_trap(r, PIPE, "trap", HostOperation::Append))
    }),
    custom("FS-22.write", "the host writes to a pipe", |r, _| {
        Box::pin(check_trap(r, PIPE, "trap", HostOperation::Write))
    }),
    custom("FS-23.read", "the host reads a huge sparse file", |r, _| {
        Box::pin(check_trap(r, SPARSE_FILE, "trap", HostOperation::Read))
    }),
    custom("FS-23.copy", "the host copies a huge sparse file out", |r, _| {
        Box::pin(check_trap(r, SPARSE_FILE, "trap", HostOperation::CopyOut))
    }),
    custom("FS-24.descriptor", "a working directory behind a descriptor", |r, _| Box::pin(cwd_behind_descriptor(r))),
    custom("FS-24.dots", "path traversal with `..`", |r, _| Box::pin(path_traversal(r))),
    custom("FS-53.race", "a folder that becomes a link while the host writes", |r, _| Box::pin(link_swap_race(r))),
    custom("FS-54.names", "file names that break line-based output", |r, _| Box::pin(confusing_names(r))),
];

/// Sets a trap inside, lets the host use it, and checks the file or folder it leads to.
async fn check_trap(
    arena: &SandboxArena<'_>,
    line: &str,
    at: &str,
    operation: HostOperation,
) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.shared_sandbox(&[]).await?;
    arena.run_text(&*sandbox, line).await?;
    let began = Instant::now();
    let done = tokio::time::timeout(MAX_WAIT, perform(arena, &*sandbox, Path::new(at), operation)).await;
    let took = began.elapsed();
    let touched = outside_changed(arena)?;
    arena.run_text(&*sandbox, "rm -rf trap").await?;
    arena.run_on_host(line).await?;
    let sprung = trap_works_on_host(arena, at, line);
    arena.run_on_host("rm -rf trap").await?;
    require_control("the trap does not work on the host either", sprung)?;
    match done {
        Err(_) => attack_verdict(true, format!("the host waited for {took:?}")),
        Ok(Ok(true)) => attack_verdict(true, "the host followed it"),
        Ok(_) => attack_verdict(touched, "something outside was changed"),
    }
}

/// Performs the operation; `Ok(true)` if it did what must not happen.
async fn perform(
    arena: &SandboxArena<'_>,
    sandbox: &dyn Sandbox,
    at: &Path,
    operation: HostOperation,
) -> Result<bool, Error> {
    let out = arena.folder.join("host-copy");
    let followed = match operation {
        HostOperation::Read => sandbox.read(at, CAP).await.map(|_| true),
        HostOperation::CopyOut => sandbox.copy_out(at, &out, CAP).await.map(|_| true),
        // Replacing the trap with a plain file is as good as a refusal: only the files outside count.
        HostOperation::Write => sandbox.write(at, b"from the host", None).await.map(|()| false),
        HostOperation::Append => sandbox.append(at, b"from the host").await.map(|()| false),
        HostOperation::CopyIn => sandbox.copy_in(&arena.folder.join("spare/file"), at).await.map(|()| false),
        HostOperation::List => sandbox.list(at).await.map(|entries| entries.iter().any(|entry| entry.name == "canary")),
        HostOperation::MakeFolders => sandbox.mkdirs(at).await.map(|()| false),
        HostOperation::RunIn => {
            let exec = ExecRequest::shell("cat canary", MAX_WAIT).cwd(at);
            capture(sandbox, &exec, 4096).await.map(|output| output.stdout_text().contains("untouched"))
        }
    };
    // Exists only if the copy was made, which is already reported.
    let _ = fs::remove_file(out);
    followed
}

/// Returns whether anything outside was changed, and restores it.
fn outside_changed(arena: &SandboxArena<'_>) -> Result<bool, SandboxAttackError> {
    let outside = arena.folder.join("outside");
    let names: Vec<_> = fs::read_dir(&outside)?.flatten().map(|entry| entry.file_name()).collect();
    let same = names == ["canary"] && fs::read(outside.join("canary"))? == b"untouched\n";
    if !same {
        ralph_sandbox::files::remove_tree(&outside)?;
        fs::create_dir(&outside)?;
        fs::write(outside.join("canary"), "untouched\n")?;
    }
    Ok(!same)
}

/// Returns whether ordinary code on the host would fall for the trap.
fn trap_works_on_host(arena: &SandboxArena<'_>, at: &str, line: &str) -> bool {
    let trap = arena.host_dir().join("trap");
    let outside = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    match line {
        PIPE => fs::metadata(trap).is_ok_and(|found| found.file_type().is_fifo()),
        SPARSE_FILE => fs::metadata(trap).is_ok_and(|found| found.len() > CAP),
        TO_FILE => outside(&trap).is_some() && outside(&trap) == outside(&arena.folder.join("outside/canary")),
        _ => {
            at.starts_with("trap")
                && outside(&trap).is_some()
                && outside(&trap) == outside(&arena.folder.join("outside"))
        }
    }
}

async fn cwd_behind_descriptor(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.shared_sandbox(&[]).await?;
    arena.run_text(&*sandbox, "rm -rf fds; ln -s /proc/self/fd fds; mkdir -p plain").await?;
    let mut got = Vec::new();
    for place in ["fds/3", "fds/7", "../proc/self/fd/3", "/proc/self/fd/8", "fds"] {
        let exec = ExecRequest::shell("pwd; ls -A | head -3", MAX_WAIT).cwd(place);
        if let Ok(output) = capture(&*sandbox, &exec, 4096).await {
            got.push(format!("{place}: {}", output.stdout_text()));
        }
    }
    let plain = capture(&*sandbox, &ExecRequest::shell("pwd", MAX_WAIT).cwd("plain"), 4096).await?;
    arena.run_text(&*sandbox, "rm -rf fds plain").await?;
    require_control("no directory can be entered at all", plain.stdout_text().trim_end().ends_with("/plain"))?;
    attack_verdict(!got.is_empty(), got.join("; "))
}

async fn path_traversal(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.shared_sandbox(&[]).await?;
    let canary = arena.folder.join("home/.ssh/id_canary");
    let climbing = format!("../../../../../../../../../..{}", canary.display());
    let mut got = Vec::new();
    for path in
        [canary.as_path(), Path::new(&climbing), Path::new("a/../../x"), Path::new("/etc/hostname"), Path::new("..")]
    {
        if sandbox.read(path, CAP).await.is_ok() || sandbox.list(path).await.is_ok() {
            got.push(path.display().to_string());
        }
    }
    // From the folder in which the control runs, the same path does lead there.
    require_control("the path leads nowhere", fs::read(arena.host_dir().join(&climbing)).is_ok())?;
    sandbox.write(Path::new("plain"), b"x", None).await?;
    require_control("nothing can be read at all", sandbox.read(Path::new("plain"), CAP).await.is_ok())?;
    attack_verdict(!got.is_empty(), got.join("; "))
}

/// Lets the host write, append, read and create folders below a name that alternates between a folder and a link out.
async fn link_swap_race(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    arena.run_text(&*sandbox, r#"mkdir d && ln -s "$FOLDER/outside" l"#).await?;
    let swapping = arena.run_text(&*sandbox, "\"$PROBE\" swap d l 2500");
    let writing = async {
        let (mut written, mut leaked) = (0, 0);
        for n in 0..200 {
            written += usize::from(sandbox.write(Path::new("d/file"), b"from the host", None).await.is_ok());
            // Either result is fine: a refusal, or a change of the real folder.
            let _ = sandbox.append(Path::new("d/canary"), b"from the host").await;
            let _ = sandbox.mkdirs(Path::new(&format!("d/sub{n}"))).await;
            let read = sandbox.read(Path::new("d/canary"), CAP).await;
            leaked += usize::from(read.is_ok_and(|bytes| bytes.starts_with(b"untouched")));
        }
        (written, leaked)
    };
    let (printed, (written, leaked)) = tokio::join!(swapping, writing);
    let printed = printed?;
    let touched = outside_changed(arena)?;
    sandbox.destroy().await?;
    let swaps: u64 = printed.trim().strip_prefix("swapped ").and_then(|count| count.parse().ok()).unwrap_or(0);
    require_control(&format!("no swap or no write happened: {printed}, {written} writes"), swaps > 100 && written > 0)?;
    attack_verdict(touched || leaked > 0, format!("outside changed: {touched}, read from outside: {leaked}"))
}

/// Checks that names with line breaks and escapes are returned unchanged, and that no two are confused.
async fn confusing_names(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let line = r#"mkdir odd; cd odd; touch "$(printf 'a\nb')" "$(printf '\033[2Jx')" -- '-rf' '$(id)'; ls -A | wc -l; ls -1 | wc -l"#;
    let printed = arena.run_text(&*sandbox, line).await?;
    let entries = sandbox.list(Path::new("odd")).await?;
    sandbox.destroy().await?;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    // A shell that reads lines is confused: four files, five lines.
    require_control(&format!("the names are not confusing: {printed}"), printed.trim().ends_with('5'))?;
    attack_verdict(names != ["\u{1b}[2Jx", "$(id)", "-rf", "a\nb"], format!("{names:?}"))
}
