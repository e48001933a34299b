//! Cases about reading and writing files, and about what must be refused.

use std::fs;
use std::path::Path;

use super::fixture::{
    ConformanceFixture, ConformanceResult, LONG, READ_CAP, expect_eq, expect_error, expect_true, is_refused,
};
use crate::{DirectoryEntry, DirectoryEntryKind, Error, ExecRequest, capture};

pub(super) async fn round_trip(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.shared();
    let all: Vec<u8> = (0..=255).collect();
    for (path, bytes) in [("trip/a", &b""[..]), ("trip/new/deep/b", b"text\n"), ("trip/ü 🦀\n'", &all)] {
        sandbox.write(Path::new(path), bytes, None).await?;
        expect_eq(path, sandbox.read(Path::new(path), READ_CAP).await?, bytes)?;
    }
    expect_eq("a command's view", fixture.sh("cat trip/new/deep/b").await?, "text\n")?;
    let large = vec![7; 3 << 20];
    sandbox.write(Path::new("trip/large"), &large, None).await?;
    expect_true("a large file is read back", sandbox.read(Path::new("trip/large"), READ_CAP).await? == large)
}

pub(super) async fn modes(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.shared();
    let mode = "stat -c %a modes/file 2> /dev/null || stat -f %Lp modes/file";
    for (set, expected) in [(None, "644\n"), (Some(0o755), "755\n"), (None, "755\n"), (Some(0o600), "600\n")] {
        sandbox.write(Path::new("modes/file"), b"#!/bin/sh\necho ran\n", set).await?;
        expect_eq(&format!("after {set:?}"), fixture.sh(mode).await?, expected)?;
    }
    sandbox.write(Path::new("modes/file"), b"#!/bin/sh\necho ran\n", Some(0o755)).await?;
    expect_eq("running it", fixture.sh("./modes/file").await?, "ran\n")
}

pub(super) async fn replaced_whole(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let file = Path::new("whole/file");
    fixture.shared().write(file, b"old", None).await?;
    // A reader of the old version keeps it: a second name shows whether its bytes were changed.
    fixture.sh("ln whole/file whole/held").await?;
    fixture.shared().write(file, b"new version", None).await?;
    expect_eq("both", fixture.sh("cat whole/held whole/file").await?, "oldnew version")?;
    expect_eq("nothing else", fixture.sh("ls -A whole").await?, "file\nheld\n")
}

pub(super) async fn append(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, file) = (fixture.shared(), Path::new("append/new/file"));
    sandbox.append(file, b"one\n").await?;
    sandbox.append(file, b"two\n").await?;
    sandbox.append(file, b"").await?;
    fixture.sh("echo three >> append/new/file").await?;
    expect_eq("the file", sandbox.read(file, READ_CAP).await?, b"one\ntwo\nthree\n")
}

/// Paths where a file is expected and an agent may have put something else.
const TRAP_PATHS: [&str; 6] =
    ["traps/link", "traps/outside", "traps/dangling", "traps/pipe", "traps/folder", "traps/out/victim"];
const VICTIM: &[u8] = b"untouched";

/// Creates traps in the workspace; those that lead out of it lead to a victim in the exchange directory.
async fn set_traps(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let out = fixture.shared().exchange();
    fixture.shared().write(&out.join("victim"), VICTIM, None).await?;
    let line = format!(
        "rm -rf traps && mkdir -p traps/folder && cd traps && echo inside > file && ln -s file link && \
         ln -s '{out}' out && ln -s '{out}/victim' outside && ln -s nowhere dangling && ln -s . self && mkfifo pipe",
        out = out.display()
    );
    fixture.sh(&line).await.map(drop)
}

/// Fails if the victim changed or there is a new file next to it.
async fn expect_victim_untouched(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let out = fixture.shared().exchange();
    expect_eq("the victim", fixture.shared().read(&out.join("victim"), READ_CAP).await?, VICTIM)?;
    expect_true("nothing new beside it", fixture.shared().list(&out).await?.iter().all(|entry| entry.name != "new"))
}

pub(super) async fn read_refusals(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    set_traps(fixture).await?;
    for path in TRAP_PATHS.into_iter().chain(["traps/self/file", "traps/out", "."]) {
        expect_error(path, &fixture.shared().read(Path::new(path), READ_CAP).await, is_refused)?;
    }
    for path in ["traps/out", "traps/self", "traps/self/folder"] {
        expect_error(&format!("list {path}"), &fixture.shared().list(Path::new(path)).await, is_refused)?;
    }
    Ok(())
}

pub(super) async fn write_refusals(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    set_traps(fixture).await?;
    let sandbox = fixture.shared();
    for path in TRAP_PATHS.into_iter().chain(["traps/self/file", "traps/self/new", "traps/out/new"]) {
        expect_error(&format!("write {path}"), &sandbox.write(Path::new(path), b"x", None).await, is_refused)?;
        expect_error(&format!("append {path}"), &sandbox.append(Path::new(path), b"x").await, is_refused)?;
    }
    expect_eq("what the link names", sandbox.read(Path::new("traps/file"), READ_CAP).await?, b"inside\n")?;
    let names = "dangling\nfile\nfolder\nlink\nout\noutside\npipe\nself\n";
    expect_eq("nothing else was created", fixture.sh("ls -A traps").await?, names)?;
    expect_victim_untouched(fixture).await
}

pub(super) async fn paths(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, host) = (fixture.shared(), fixture.host_folder()?);
    sandbox.write(Path::new("paths/file"), b"", None).await?;
    fs::write(host.join("victim"), VICTIM)?;
    let (absolute, folder) = (host.join("victim"), host.join(""));
    let plain = ["", "..", "../new", "paths/../paths/file", "/", "paths/..", "a\0b"].map(Path::new);
    for path in plain.into_iter().chain([absolute.as_path(), folder.as_path()]) {
        let what = path.display().to_string();
        expect_error(&what, &sandbox.read(path, READ_CAP).await, is_refused)?;
        expect_error(&what, &sandbox.write(path, b"", None).await, is_refused)?;
        expect_error(&what, &sandbox.append(path, b"").await, is_refused)?;
        expect_error(&what, &sandbox.list(path).await, is_refused)?;
        expect_error(&what, &sandbox.mkdirs(path).await, is_refused)?;
        expect_error(&what, &sandbox.copy_out(path, &host.join("out"), READ_CAP).await, is_refused)?;
    }
    expect_eq("the host's victim", fs::read(host.join("victim"))?, VICTIM)
}

pub(super) async fn caps(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, file) = (fixture.shared(), Path::new("caps/file"));
    sandbox.write(file, b"12345", None).await?;
    expect_eq("exactly the cap", sandbox.read(file, 5).await?, b"12345")?;
    let too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
    expect_error("one more", &sandbox.read(file, 4).await, too_large)?;
    expect_error("any more", &sandbox.read(file, 0).await, too_large)?;
    fixture.sh("dd if=/dev/zero of=caps/sparse bs=1 count=1 seek=10737418240 2> /dev/null").await?;
    expect_error("a sparse tebibyte", &sandbox.read(Path::new("caps/sparse"), READ_CAP).await, too_large)
}

pub(super) async fn missing(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, host) = (fixture.shared(), fixture.host_folder()?);
    let not_found =
        |error: &Error| matches!(error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    for path in ["no-such-file", "no-such/deep/file"] {
        let path = Path::new(path);
        expect_error("read", &sandbox.read(path, READ_CAP).await, not_found)?;
        expect_error("list", &sandbox.list(path).await, not_found)?;
        expect_error("copy out", &sandbox.copy_out(path, &host.join("out"), READ_CAP).await, not_found)?;
    }
    expect_true("no file on the host", !host.join("out").exists())
}

pub(super) async fn list(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    fixture
        .sh("mkdir -p list/dir/inner && cd list && printf abc > file && : > .dot && ln -s file link && mkfifo pipe")
        .await?;
    let entry = |name: &str, kind, size| DirectoryEntry { name: name.to_owned(), kind, size };
    let expected = vec![
        entry(".dot", DirectoryEntryKind::File, 0),
        entry("dir", DirectoryEntryKind::Directory, 0),
        entry("file", DirectoryEntryKind::File, 3),
        entry("link", DirectoryEntryKind::Link, 4),
        entry("pipe", DirectoryEntryKind::Other, 0),
    ];
    expect_eq("the entries", fixture.shared().list(Path::new("list")).await?, expected)?;
    expect_eq("an empty one", fixture.shared().list(Path::new("list/dir/inner")).await?, Vec::new())?;
    let file = fixture.shared().list(Path::new("list/file")).await;
    expect_error("a file", &file, |error| matches!(error, Error::File { .. }))
}

pub(super) async fn mkdirs(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.shared();
    for _ in 0..2 {
        sandbox.mkdirs(Path::new("mkdirs/a/b/c")).await?;
    }
    sandbox.mkdirs(Path::new(".")).await?;
    fixture.sh("test -d mkdirs/a/b/c && echo > mkdirs/file && ln -s a mkdirs/link").await?;
    expect_error("over a link", &sandbox.mkdirs(Path::new("mkdirs/link/new")).await, is_refused)?;
    expect_eq("nothing was created there", fixture.sh("ls -A mkdirs/a").await?, "b\n")?;
    let file = sandbox.mkdirs(Path::new("mkdirs/file/new")).await;
    expect_error("over a file", &file, |error| matches!(error, Error::File { .. }))
}

pub(super) async fn copies(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    use std::os::unix::fs::PermissionsExt;
    let (sandbox, host) = (fixture.shared(), fixture.host_folder()?);
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 253).unwrap_or(0)).collect();
    fs::write(host.join("in"), &bytes)?;
    fs::set_permissions(host.join("in"), fs::Permissions::from_mode(0o750))?;
    let inside = Path::new("copies/new/file");
    sandbox.copy_in(&host.join("in"), inside).await?;
    sandbox.copy_in(&host.join("in"), inside).await?;
    let executable = capture(sandbox, &ExecRequest::shell("test -x copies/new/file", LONG), 0).await?;
    expect_true("it can still be run", executable.exit.success())?;
    expect_eq("bytes out", sandbox.copy_out(inside, &host.join("out"), 5_000_000).await?, 5_000_000)?;
    expect_true("they are the same", fs::read(host.join("out"))? == bytes)?;
    set_traps(fixture).await?;
    let absolute = host.join("new");
    let leaves = TRAP_PATHS.into_iter().chain(["traps/out/new", "../new"]).map(Path::new);
    for path in leaves.chain([absolute.as_path()]) {
        expect_error(&path.display().to_string(), &sandbox.copy_in(&host.join("in"), path).await, is_refused)?;
    }
    expect_true("nothing new on the host", !absolute.exists())?;
    expect_victim_untouched(fixture).await?;
    let missing = sandbox.copy_in(&host.join("none"), Path::new("copies/none")).await;
    expect_error("a missing host file", &missing, |error| matches!(error, Error::HostFile { .. }))
}

pub(super) async fn copy_out_refusals(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    set_traps(fixture).await?;
    let (sandbox, host) = (fixture.shared(), fixture.host_folder()?);
    for path in TRAP_PATHS {
        expect_error(path, &sandbox.copy_out(Path::new(path), &host.join("out"), READ_CAP).await, is_refused)?;
    }
    let file = Path::new("traps/file");
    let too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
    expect_error("over the cap", &sandbox.copy_out(file, &host.join("out"), 6).await, too_large)?;
    fixture.sh("dd if=/dev/zero of=traps/sparse bs=1 count=1 seek=10737418240 2> /dev/null").await?;
    expect_error("sparse", &sandbox.copy_out(Path::new("traps/sparse"), &host.join("out"), READ_CAP).await, too_large)?;
    expect_true("nothing was left on the host", !host.join("out").exists())?;
    fs::write(host.join("taken"), "host's")?;
    std::os::unix::fs::symlink(host.join("elsewhere"), host.join("dangling"))?;
    for name in ["taken", "dangling", "no/folder"] {
        let got = sandbox.copy_out(file, &host.join(name), READ_CAP).await;
        expect_error(name, &got, |error| matches!(error, Error::HostFile { .. }))?;
    }
    expect_true("no link was followed", !host.join("elsewhere").exists())?;
    expect_eq("the host's file", fs::read_to_string(host.join("taken"))?, "host's")
}

pub(super) async fn exchange(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, host) = (fixture.shared(), fixture.host_folder()?);
    let exchange = sandbox.exchange();
    expect_true("it is not in the workspace", !exchange.starts_with(sandbox.workspace()))?;
    let (inward, outward) = (exchange.join("inward"), exchange.join("outward"));
    fs::write(host.join("in"), "passes")?;
    sandbox.copy_in(&host.join("in"), &inward).await?;
    let line = format!(
        "cp '{}' '{}'; ln -s outward '{}'",
        inward.display(),
        outward.display(),
        exchange.join("link").display()
    );
    fixture.sh(&line).await?;
    expect_eq("bytes out", sandbox.copy_out(&outward, &host.join("out"), READ_CAP).await?, 6)?;
    expect_eq("the file", sandbox.read(&outward, READ_CAP).await?, b"passes")?;
    expect_error("a link in it", &sandbox.read(&exchange.join("link"), READ_CAP).await, is_refused)?;
    expect_error("the way up", &sandbox.read(&exchange.join("../meta.json"), READ_CAP).await, is_refused)
}
