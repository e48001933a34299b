//! Cases about the one door for files, and what must not come through it.

use std::fs;
use std::path::Path;

use super::bench::{Bench, CAP, LONG, Verdict, claim, refused, refuses, want};
use crate::{Entry, EntryKind, Error, Exec, capture};

pub(super) async fn round_trip(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.shared();
    let all: Vec<u8> = (0..=255).collect();
    for (path, bytes) in [("trip/a", &b""[..]), ("trip/new/deep/b", b"text\n"), ("trip/ü 🦀\n'", &all)] {
        sandbox.write(Path::new(path), bytes, None).await?;
        want(path, sandbox.read(Path::new(path), CAP).await?, bytes)?;
    }
    want("a command's view", bench.sh("cat trip/new/deep/b").await?, "text\n")?;
    let large = vec![7; 3 << 20];
    sandbox.write(Path::new("trip/large"), &large, None).await?;
    claim("a large file comes back", sandbox.read(Path::new("trip/large"), CAP).await? == large)
}

pub(super) async fn modes(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.shared();
    let mode = "stat -c %a modes/file 2> /dev/null || stat -f %Lp modes/file";
    for (set, expected) in [(None, "644\n"), (Some(0o755), "755\n"), (None, "755\n"), (Some(0o600), "600\n")] {
        sandbox.write(Path::new("modes/file"), b"#!/bin/sh\necho ran\n", set).await?;
        want(&format!("after {set:?}"), bench.sh(mode).await?, expected)?;
    }
    sandbox.write(Path::new("modes/file"), b"#!/bin/sh\necho ran\n", Some(0o755)).await?;
    want("running it", bench.sh("./modes/file").await?, "ran\n")
}

pub(super) async fn replaced_whole(bench: &Bench<'_>) -> Verdict {
    let file = Path::new("whole/file");
    bench.shared().write(file, b"old", None).await?;
    // Whoever has the old version keeps it: a second name shows whether its bytes were touched.
    bench.sh("ln whole/file whole/held").await?;
    bench.shared().write(file, b"new version", None).await?;
    want("both", bench.sh("cat whole/held whole/file").await?, "oldnew version")?;
    want("nothing else", bench.sh("ls -A whole").await?, "file\nheld\n")
}

pub(super) async fn append(bench: &Bench<'_>) -> Verdict {
    let (sandbox, file) = (bench.shared(), Path::new("append/new/file"));
    sandbox.append(file, b"one\n").await?;
    sandbox.append(file, b"two\n").await?;
    sandbox.append(file, b"").await?;
    bench.sh("echo three >> append/new/file").await?;
    want("the file", sandbox.read(file, CAP).await?, b"one\ntwo\nthree\n")
}

/// Places where a file is expected and something else is: what an agent may have put there.
const LEAVES: [&str; 6] =
    ["traps/link", "traps/outside", "traps/dangling", "traps/pipe", "traps/folder", "traps/out/victim"];
const VICTIM: &[u8] = b"untouched";

/// Lays traps in the workspace; those that lead out of it lead to a victim in the exchange directory.
async fn set_traps(bench: &Bench<'_>) -> Verdict {
    let out = bench.shared().exchange();
    bench.shared().write(&out.join("victim"), VICTIM, None).await?;
    let line = format!(
        "rm -rf traps && mkdir -p traps/folder && cd traps && echo inside > file && ln -s file link && \
         ln -s '{out}' out && ln -s '{out}/victim' outside && ln -s nowhere dangling && ln -s . self && mkfifo pipe",
        out = out.display()
    );
    bench.sh(&line).await.map(drop)
}

/// Fails if the victim changed or got company.
async fn victim_is_well(bench: &Bench<'_>) -> Verdict {
    let out = bench.shared().exchange();
    want("the victim", bench.shared().read(&out.join("victim"), CAP).await?, VICTIM)?;
    claim("nothing new beside it", bench.shared().list(&out).await?.iter().all(|entry| entry.name != "new"))
}

pub(super) async fn read_refusals(bench: &Bench<'_>) -> Verdict {
    set_traps(bench).await?;
    for path in LEAVES.into_iter().chain(["traps/self/file", "traps/out", "."]) {
        refuses(path, &bench.shared().read(Path::new(path), CAP).await, refused)?;
    }
    for path in ["traps/out", "traps/self", "traps/self/folder"] {
        refuses(&format!("list {path}"), &bench.shared().list(Path::new(path)).await, refused)?;
    }
    Ok(())
}

pub(super) async fn write_refusals(bench: &Bench<'_>) -> Verdict {
    set_traps(bench).await?;
    let sandbox = bench.shared();
    for path in LEAVES.into_iter().chain(["traps/self/file", "traps/self/new", "traps/out/new"]) {
        refuses(&format!("write {path}"), &sandbox.write(Path::new(path), b"x", None).await, refused)?;
        refuses(&format!("append {path}"), &sandbox.append(Path::new(path), b"x").await, refused)?;
    }
    want("what the link names", sandbox.read(Path::new("traps/file"), CAP).await?, b"inside\n")?;
    let names = "dangling\nfile\nfolder\nlink\nout\noutside\npipe\nself\n";
    want("nothing else was made", bench.sh("ls -A traps").await?, names)?;
    victim_is_well(bench).await
}

pub(super) async fn paths(bench: &Bench<'_>) -> Verdict {
    let (sandbox, host) = (bench.shared(), bench.host_folder()?);
    sandbox.write(Path::new("paths/file"), b"", None).await?;
    fs::write(host.join("victim"), VICTIM)?;
    let (absolute, folder) = (host.join("victim"), host.join(""));
    let plain = ["", "..", "../new", "paths/../paths/file", "/", "paths/..", "a\0b"].map(Path::new);
    for path in plain.into_iter().chain([absolute.as_path(), folder.as_path()]) {
        let what = path.display().to_string();
        refuses(&what, &sandbox.read(path, CAP).await, refused)?;
        refuses(&what, &sandbox.write(path, b"", None).await, refused)?;
        refuses(&what, &sandbox.append(path, b"").await, refused)?;
        refuses(&what, &sandbox.list(path).await, refused)?;
        refuses(&what, &sandbox.mkdirs(path).await, refused)?;
        refuses(&what, &sandbox.copy_out(path, &host.join("out"), CAP).await, refused)?;
    }
    want("the host's victim", fs::read(host.join("victim"))?, VICTIM)
}

pub(super) async fn caps(bench: &Bench<'_>) -> Verdict {
    let (sandbox, file) = (bench.shared(), Path::new("caps/file"));
    sandbox.write(file, b"12345", None).await?;
    want("exactly the cap", sandbox.read(file, 5).await?, b"12345")?;
    let too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
    refuses("one more", &sandbox.read(file, 4).await, too_large)?;
    refuses("any more", &sandbox.read(file, 0).await, too_large)?;
    bench.sh("dd if=/dev/zero of=caps/sparse bs=1 count=1 seek=10737418240 2> /dev/null").await?;
    refuses("a sparse tebibyte", &sandbox.read(Path::new("caps/sparse"), CAP).await, too_large)
}

pub(super) async fn missing(bench: &Bench<'_>) -> Verdict {
    let (sandbox, host) = (bench.shared(), bench.host_folder()?);
    let not_found =
        |error: &Error| matches!(error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    for path in ["no-such-file", "no-such/deep/file"] {
        let path = Path::new(path);
        refuses("read", &sandbox.read(path, CAP).await, not_found)?;
        refuses("list", &sandbox.list(path).await, not_found)?;
        refuses("copy out", &sandbox.copy_out(path, &host.join("out"), CAP).await, not_found)?;
    }
    claim("no file on the host", !host.join("out").exists())
}

pub(super) async fn list(bench: &Bench<'_>) -> Verdict {
    bench
        .sh("mkdir -p list/dir/inner && cd list && printf abc > file && : > .dot && ln -s file link && mkfifo pipe")
        .await?;
    let entry = |name: &str, kind, size| Entry { name: name.to_owned(), kind, size };
    let expected = vec![
        entry(".dot", EntryKind::File, 0),
        entry("dir", EntryKind::Directory, 0),
        entry("file", EntryKind::File, 3),
        entry("link", EntryKind::Link, 4),
        entry("pipe", EntryKind::Other, 0),
    ];
    want("the entries", bench.shared().list(Path::new("list")).await?, expected)?;
    want("an empty one", bench.shared().list(Path::new("list/dir/inner")).await?, Vec::new())?;
    let file = bench.shared().list(Path::new("list/file")).await;
    refuses("a file", &file, |error| matches!(error, Error::File { .. }))
}

pub(super) async fn mkdirs(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.shared();
    for _ in 0..2 {
        sandbox.mkdirs(Path::new("mkdirs/a/b/c")).await?;
    }
    sandbox.mkdirs(Path::new(".")).await?;
    bench.sh("test -d mkdirs/a/b/c && echo > mkdirs/file && ln -s a mkdirs/link").await?;
    refuses("over a link", &sandbox.mkdirs(Path::new("mkdirs/link/new")).await, refused)?;
    want("nothing was made there", bench.sh("ls -A mkdirs/a").await?, "b\n")?;
    let file = sandbox.mkdirs(Path::new("mkdirs/file/new")).await;
    refuses("over a file", &file, |error| matches!(error, Error::File { .. }))
}

pub(super) async fn copies(bench: &Bench<'_>) -> Verdict {
    use std::os::unix::fs::PermissionsExt;
    let (sandbox, host) = (bench.shared(), bench.host_folder()?);
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 253).unwrap_or(0)).collect();
    fs::write(host.join("in"), &bytes)?;
    fs::set_permissions(host.join("in"), fs::Permissions::from_mode(0o750))?;
    let inside = Path::new("copies/new/file");
    sandbox.copy_in(&host.join("in"), inside).await?;
    sandbox.copy_in(&host.join("in"), inside).await?;
    let executable = capture(sandbox, &Exec::shell("test -x copies/new/file", LONG), 0).await?;
    claim("it can still be run", executable.exit.success())?;
    want("bytes out", sandbox.copy_out(inside, &host.join("out"), 5_000_000).await?, 5_000_000)?;
    claim("they are the same", fs::read(host.join("out"))? == bytes)?;
    set_traps(bench).await?;
    let absolute = host.join("new");
    let leaves = LEAVES.into_iter().chain(["traps/out/new", "../new"]).map(Path::new);
    for path in leaves.chain([absolute.as_path()]) {
        refuses(&path.display().to_string(), &sandbox.copy_in(&host.join("in"), path).await, refused)?;
    }
    claim("nothing new on the host", !absolute.exists())?;
    victim_is_well(bench).await?;
    let missing = sandbox.copy_in(&host.join("none"), Path::new("copies/none")).await;
    refuses("a missing host file", &missing, |error| matches!(error, Error::HostFile { .. }))
}

pub(super) async fn copy_out_refusals(bench: &Bench<'_>) -> Verdict {
    set_traps(bench).await?;
    let (sandbox, host) = (bench.shared(), bench.host_folder()?);
    for path in LEAVES {
        refuses(path, &sandbox.copy_out(Path::new(path), &host.join("out"), CAP).await, refused)?;
    }
    let file = Path::new("traps/file");
    let too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
    refuses("over the cap", &sandbox.copy_out(file, &host.join("out"), 6).await, too_large)?;
    bench.sh("dd if=/dev/zero of=traps/sparse bs=1 count=1 seek=10737418240 2> /dev/null").await?;
    refuses("sparse", &sandbox.copy_out(Path::new("traps/sparse"), &host.join("out"), CAP).await, too_large)?;
    claim("nothing was left on the host", !host.join("out").exists())?;
    fs::write(host.join("taken"), "host's")?;
    std::os::unix::fs::symlink(host.join("elsewhere"), host.join("dangling"))?;
    for name in ["taken", "dangling", "no/folder"] {
        let got = sandbox.copy_out(file, &host.join(name), CAP).await;
        refuses(name, &got, |error| matches!(error, Error::HostFile { .. }))?;
    }
    claim("no link was followed", !host.join("elsewhere").exists())?;
    want("the host's file", fs::read_to_string(host.join("taken"))?, "host's")
}

pub(super) async fn exchange(bench: &Bench<'_>) -> Verdict {
    let (sandbox, host) = (bench.shared(), bench.host_folder()?);
    let exchange = sandbox.exchange();
    claim("it is not in the workspace", !exchange.starts_with(sandbox.workspace()))?;
    let (inward, outward) = (exchange.join("inward"), exchange.join("outward"));
    fs::write(host.join("in"), "passes")?;
    sandbox.copy_in(&host.join("in"), &inward).await?;
    let line = format!(
        "cp '{}' '{}'; ln -s outward '{}'",
        inward.display(),
        outward.display(),
        exchange.join("link").display()
    );
    bench.sh(&line).await?;
    want("bytes out", sandbox.copy_out(&outward, &host.join("out"), CAP).await?, 6)?;
    want("the file", sandbox.read(&outward, CAP).await?, b"passes")?;
    refuses("a link in it", &sandbox.read(&exchange.join("link"), CAP).await, refused)?;
    refuses("the way up", &sandbox.read(&exchange.join("../meta.json"), CAP).await, refused)
}
