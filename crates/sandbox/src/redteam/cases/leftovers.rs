//! What stays behind, and what one sandbox sees of another.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::case::{Case, Steps, Trouble, control, judged, name};
use super::super::owner;
use super::super::range::Range;
use super::super::report::Verdict;
use super::processes::{command_lines, still};
use crate::embedded::{Embedded, Options};
use crate::{Backend as _, Error, Spec};

const fn own(id: &'static str, name: &'static str, steps: Steps) -> Case {
    Case::own(id, name, &[], steps)
}

pub(super) const CASES: &[Case] = &[
    own("PE-01.nothing", "mounts, processes and folders after the end", |r, _| Box::pin(nothing_left(r))),
    own("PE-02.killed", "a supervisor that is killed", |r, _| Box::pin(killed(r))),
    own("PE-04.apart", "files of another sandbox", |r, _| Box::pin(apart(r))),
    own("PE-06.habits", "a shell's settings for the next sandbox", |r, _| Box::pin(habits(r))),
    own("PE-07.forks", "changes in a fork, seen elsewhere", |r, _| Box::pin(forks(r))),
    own("PE-08.overlay", "attributes that would steer layers", |r, _| Box::pin(overlay(r))),
    own("PE-09.name", "a name that is in use", |r, _| Box::pin(same_name(r))),
    own("PE-11.lent", "changing what all sandboxes share", |r, _| Box::pin(lent(r))),
    own("PE-13.deep", "a tree too deep to be removed", |r, _| Box::pin(deep(r))),
    own("PE-14.memory", "files in memory after the end", |r, _| Box::pin(memory(r))),
];

async fn nothing_left(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").map(|table| table.lines().count());
    let before = mounts()?;
    let backend = range.cages(&[])?;
    let sandbox = range.fresh(&[]).await?;
    let sign = format!("47.0{}", std::process::id());
    range.say(&*sandbox, &format!("(setsid sleep {sign} >/dev/null 2>&1 &); touch x /tmp/x ~/x")).await?;
    // What is left in the background may take a moment to be what it is going to be.
    let mut seen = false;
    for _ in 0..250 {
        seen = command_lines().iter().any(|line| line.contains(&sign));
        if seen {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let listed = backend.list().await?.iter().any(|one| one.id == sandbox.id());
    let id = sandbox.id().to_owned();
    sandbox.destroy().await?;
    let after = still(&sign).await;
    let still_listed = backend.list().await?.iter().any(|one| one.id == id);
    control("nothing was there before the end", seen && listed)?;
    judged(after || still_listed || mounts()? != before, "something is left")
}

/// Kills a supervisor while a command runs; the command must be gone a second later, and the sandbox removable.
async fn killed(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let dir = range.folder.join("killed");
    let sign = format!("48.0{}", std::process::id());
    let walls: Vec<String> = range.options()?.without.iter().map(|wall| name(*wall)).collect();
    let mut owner = Command::new(range.probe())
        .args(["own".as_ref(), dir.as_os_str(), walls.join(",").as_ref()])
        .arg(format!("(setsid sleep {sign} &); sleep {sign}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let until = Instant::now() + Duration::from_secs(10);
    let many = || command_lines().iter().filter(|line| line.starts_with("sleep") && line.contains(&sign)).count();
    while many() < 2 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seen = many();
    owner.kill()?;
    owner.wait()?;
    let after = still(&sign).await;
    let backend = Embedded::new(Options { dir, ..range.options()?.clone() });
    let listed = backend.list().await?.len();
    backend.open(owner::NAME).await?.destroy().await?;
    let left = backend.list().await?.len();
    control("the command never ran", seen == 2 && listed == 1)?;
    judged(after || left > 0, format!("processes live on: {after}; {left} folders are left"))
}

async fn apart(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let (one, other) = (range.fresh(&[]).await?, range.fresh(&[]).await?);
    let places =
        "/workspace/mark /home/agent/mark /tmp/mark /var/tmp/mark /dev/shm/mark /run/user/1000/mark /exchange/mark";
    range.say(&*one, &format!("for f in {places}; do echo mine > $f; done")).await?;
    let look = format!("cat {places} 2>/dev/null | grep -c mine");
    let (own, told) = (range.say(&*one, &look).await?, range.say(&*other, &look).await?);
    one.destroy().await?;
    other.destroy().await?;
    control(&format!("its own sandbox does not see it: {own}"), own.trim() == "7")?;
    judged(told.trim() != "0", format!("{} files are seen", told.trim()))
}

async fn habits(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let one = range.fresh(&[]).await?;
    let line = "printf 'echo GOT\\n' > ~/.profile; cp ~/.profile ~/.bashrc; mkdir -p ~/.config/git; printf '[alias]\\nx = y\\n' > ~/.config/git/config";
    range.say(&*one, line).await?;
    let look = "sh -lc true; ls -A ~";
    let own = range.say(&*one, look).await?;
    one.destroy().await?;
    let other = range.fresh(&[]).await?;
    let told = range.say(&*other, look).await?;
    other.destroy().await?;
    control(&format!("its own sandbox is not changed: {own}"), own.contains("GOT"))?;
    judged(!told.trim().is_empty(), told)
}

async fn forks(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let backend = range.cages(&[])?;
    let parent = range.fresh(&[]).await?;
    range.say(&*parent, "echo base > base; echo base > ~/base").await?;
    let snapshot = parent.snapshot().await?;
    let spec = |n: u32| Spec { name: format!("redteam-{}-fork-{n}", range.token), ..Spec::default() };
    let (one, other) = (backend.fork(&snapshot, &spec(1)).await?, backend.fork(&snapshot, &spec(2)).await?);
    range.say(&*one, "echo taken > base; rm ~/base; echo new > new").await?;
    let look = "cat base ~/base; ls new 2>/dev/null";
    let (own, sibling) = (range.say(&*one, "cat base new; ls -A ~").await?, range.say(&*other, look).await?);
    let above = range.say(&*parent, look).await?;
    for sandbox in [&one, &other, &parent] {
        sandbox.destroy().await?;
    }
    control(&format!("a fork cannot be changed: {own}"), own == "taken\nnew\n")?;
    judged(sibling != "base\nbase\n" || above != "base\nbase\n", format!("sibling {sibling:?}, parent {above:?}"))
}

/// Attributes that tell the kernel to look elsewhere for a file, set before the folder becomes a layer.
async fn overlay(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let backend = range.cages(&[])?;
    let parent = range.fresh(&[]).await?;
    let line = r#"mkdir inner secret; echo plain > inner/file; echo hidden > secret/file; : > meta
        "$PROBE" call setxattr s:inner s:user.overlay.redirect s:/secret 7 0
        "$PROBE" call setxattr s:inner s:user.overlay.redirect s:/../../../../../../../../etc 28 0
        "$PROBE" call setxattr s:meta s:user.overlay.metacopy s: 0 0
        "$PROBE" call setxattr s:meta s:user.overlay.redirect s:/secret/file 12 0
        "$PROBE" call setxattr s:. s:user.overlay.origin s:x 1 0"#;
    let set = range.say(&*parent, line).await?;
    let snapshot = parent.snapshot().await?;
    let spec = Spec { name: format!("redteam-{}-overlay", range.token), ..Spec::default() };
    let fork = backend.fork(&snapshot, &spec).await?;
    let told = range.say(&*fork, "ls inner; cat inner/file; cat meta; cat secret/file").await?;
    fork.destroy().await?;
    parent.destroy().await?;
    if set.contains("EOPNOTSUPP") {
        return Err(Trouble::Skip("the host's filesystem has no such attributes".to_owned()));
    }
    control(&format!("the attributes were not set: {set}"), set.matches("ok").count() >= 4)?;
    // What the agent did to its own file may well make it unreadable; it must not become another's.
    let own = told.starts_with("file\nplain\n") && told.matches("hidden").count() == 1;
    judged(!own, told)
}

async fn same_name(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let backend = range.cages(&[])?;
    let spec = Spec { name: format!("redteam-{}-same", range.token), ..Spec::default() };
    let sandbox = backend.create(&spec).await?;
    let again = backend.create(&spec).await;
    sandbox.destroy().await?;
    let free = backend.create(&spec).await?;
    free.destroy().await?;
    judged(!matches!(again, Err(Error::Exists { .. })), "a second one of the same name")
}

/// Tries every way to change a lent file, and looks at it from the host.
async fn lent(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let file = range.folder.join("spare/file");
    let tries = r#"(echo x >> "$SPARE/file"; echo x > "$SPARE/file"; rm -f "$SPARE/file"; mv "$SPARE/file" /tmp/f; truncate -s 0 "$SPARE/file"; ln -sf /etc/hostname "$SPARE/file"; cp /etc/hostname "$SPARE/file"; sed -i s/a/b/ "$SPARE/file"; dd if=/dev/zero of="$SPARE/file" bs=1 count=1) 2>/dev/null; true"#;
    range.inside(&[], tries).await?;
    let same = fs::read(&file).is_ok_and(|bytes| bytes == b"spare\n");
    // The host itself can, and puts it back.
    range.outside(tries).await?;
    let changed = !fs::read(&file).is_ok_and(|bytes| bytes == b"spare\n");
    let _ = fs::remove_file(&file);
    fs::write(&file, "spare\n")?;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    control("the host cannot change it either", changed)?;
    judged(!same, "a lent file was changed")
}

async fn deep(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let line = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo $i; chmod 0 .";
    let told = range.say(&*sandbox, line).await?;
    let (backend, id) = (range.cages(&[])?, sandbox.id().to_owned());
    let removed = sandbox.destroy().await;
    let left = backend.list().await?.iter().any(|one| one.id == id);
    control(&format!("the tree is not deep: {told}"), told.trim() == "1500")?;
    judged(removed.is_err() || left, format!("{removed:?}"))
}

/// Files in memory must not come back when the cage is built anew.
async fn memory(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let places = "/tmp/mark /var/tmp/mark /dev/shm/mark /run/user/1000/mark";
    range.say(&*sandbox, &format!("for f in {places} kept; do echo mine > $f; done")).await?;
    let own = range.say(&*sandbox, &format!("cat {places} | grep -c mine")).await?;
    sandbox.stop().await?;
    let told = range.say(&*sandbox, &format!("cat {places} 2>/dev/null | grep -c mine; cat kept")).await?;
    sandbox.destroy().await?;
    control(&format!("they were never there: {own}"), own.trim() == "4" && told.ends_with("mine\n"))?;
    judged(!told.starts_with("0\n"), told)
}
