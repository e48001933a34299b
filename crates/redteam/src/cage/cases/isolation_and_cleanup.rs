//! Checks what remains after a sandbox, and what one sandbox sees of another.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};
use ralph_sandbox::{Backend as _, Error, SandboxSpec};

use super::super::arena::SandboxArena;
use super::super::case::{SandboxAttack, SandboxAttackError, SandboxAttackSteps, attack_verdict, require_control};
use super::super::disposable_supervisor;
use super::processes::{command_lines, is_still_running};
use crate::case::mechanism_name;
use crate::report::AttackVerdict;

const fn custom(id: &'static str, name: &'static str, steps: SandboxAttackSteps) -> SandboxAttack {
    SandboxAttack::custom(id, name, &[], steps)
}

pub(super) const CASES: &[SandboxAttack] = &[
    custom("PE-01.nothing", "mounts, processes and folders after the end", |r, _| Box::pin(nothing_left(r))),
    custom("PE-02.killed", "a supervisor that is killed", |r, _| Box::pin(killed_supervisor(r))),
    custom("PE-04.apart", "files of another sandbox", |r, _| Box::pin(other_sandbox_files(r))),
    custom("PE-06.habits", "shell settings left for the next sandbox", |r, _| Box::pin(shell_settings(r))),
    custom("PE-07.forks", "changes in a fork, visible elsewhere", |r, _| Box::pin(forks(r))),
    custom("PE-08.overlay", "extended attributes that redirect overlay layers", |r, _| Box::pin(overlay(r))),
    custom("PE-09.name", "a name that is in use", |r, _| Box::pin(same_name(r))),
    custom("PE-11.lent", "changing files that all sandboxes share", |r, _| Box::pin(change_bound_file(r))),
    custom("PE-13.deep", "a tree too deep to be removed", |r, _| Box::pin(deep_tree(r))),
    custom("PE-14.memory", "files in memory after the end", |r, _| Box::pin(memory_files(r))),
];

async fn nothing_left(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").map(|table| table.lines().count());
    let before = mounts()?;
    let backend = arena.embedded_backend(&[])?;
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let sign = format!("47.0{}", std::process::id());
    arena.run_text(&*sandbox, &format!("(setsid sleep {sign} >/dev/null 2>&1 &); touch x /tmp/x ~/x")).await?;
    // A background process may take a moment to start.
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
    let after = is_still_running(&sign).await;
    let still_listed = backend.list().await?.iter().any(|one| one.id == id);
    require_control("nothing existed before the end", seen && listed)?;
    attack_verdict(after || still_listed || mounts()? != before, "something is left")
}

/// Kills a supervisor while a command runs; the command must be gone a second later, and the sandbox removable.
async fn killed_supervisor(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let dir = arena.folder.join("killed");
    let sign = format!("48.0{}", std::process::id());
    let mechanisms: Vec<String> =
        arena.options()?.disabled_mechanisms.iter().map(|mechanism| mechanism_name(*mechanism)).collect();
    let mut owner = Command::new(arena.probe())
        .args(["own".as_ref(), dir.as_os_str(), mechanisms.join(",").as_ref()])
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
    let after = is_still_running(&sign).await;
    let backend = EmbeddedBackend::new(EmbeddedOptions { dir, ..arena.options()?.clone() });
    let listed = backend.list().await?.len();
    backend.open(disposable_supervisor::SANDBOX_NAME).await?.destroy().await?;
    let left = backend.list().await?.len();
    require_control("the command never ran", seen == 2 && listed == 1)?;
    attack_verdict(after || left > 0, format!("processes are still running: {after}; {left} folders are left"))
}

async fn other_sandbox_files(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let (one, other) = (arena.fresh_sandbox(&[]).await?, arena.fresh_sandbox(&[]).await?);
    let places =
        "/workspace/mark /home/agent/mark /tmp/mark /var/tmp/mark /dev/shm/mark /run/user/1000/mark /exchange/mark";
    arena.run_text(&*one, &format!("for f in {places}; do echo mine > $f; done")).await?;
    let look = format!("cat {places} 2>/dev/null | grep -c mine");
    let (own, printed) = (arena.run_text(&*one, &look).await?, arena.run_text(&*other, &look).await?);
    one.destroy().await?;
    other.destroy().await?;
    require_control(&format!("its own sandbox does not see it: {own}"), own.trim() == "7")?;
    attack_verdict(printed.trim() != "0", format!("{} files are visible", printed.trim()))
}

async fn shell_settings(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let one = arena.fresh_sandbox(&[]).await?;
    let line = "printf 'echo GOT\\n' > ~/.profile; cp ~/.profile ~/.bashrc; mkdir -p ~/.config/git; printf '[alias]\\nx = y\\n' > ~/.config/git/config";
    arena.run_text(&*one, line).await?;
    let look = "sh -lc true; ls -A ~";
    let own = arena.run_text(&*one, look).await?;
    one.destroy().await?;
    let other = arena.fresh_sandbox(&[]).await?;
    let printed = arena.run_text(&*other, look).await?;
    other.destroy().await?;
    require_control(&format!("its own sandbox is not changed: {own}"), own.contains("GOT"))?;
    attack_verdict(!printed.trim().is_empty(), printed)
}

async fn forks(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let backend = arena.embedded_backend(&[])?;
    let parent = arena.fresh_sandbox(&[]).await?;
    arena.run_text(&*parent, "echo base > base; echo base > ~/base").await?;
    let snapshot = parent.snapshot().await?;
    let spec = |n: u32| SandboxSpec { name: format!("redteam-{}-fork-{n}", arena.token), ..SandboxSpec::default() };
    let (one, other) = (backend.fork(&snapshot, &spec(1)).await?, backend.fork(&snapshot, &spec(2)).await?);
    arena.run_text(&*one, "echo taken > base; rm ~/base; echo new > new").await?;
    let look = "cat base ~/base; ls new 2>/dev/null";
    let (own, sibling) = (arena.run_text(&*one, "cat base new; ls -A ~").await?, arena.run_text(&*other, look).await?);
    let above = arena.run_text(&*parent, look).await?;
    for sandbox in [&one, &other, &parent] {
        sandbox.destroy().await?;
    }
    require_control(&format!("a fork cannot be changed: {own}"), own == "taken\nnew\n")?;
    attack_verdict(
        sibling != "base\nbase\n" || above != "base\nbase\n",
        format!("sibling {sibling:?}, parent {above:?}"),
    )
}

/// Sets attributes that make the kernel look elsewhere for a file, before the folder becomes a layer.
async fn overlay(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let backend = arena.embedded_backend(&[])?;
    let parent = arena.fresh_sandbox(&[]).await?;
    let line = r#"mkdir inner secret; echo plain > inner/file; echo hidden > secret/file; : > meta
        "$PROBE" call setxattr s:inner s:user.overlay.redirect s:/secret 7 0
        "$PROBE" call setxattr s:inner s:user.overlay.redirect s:/../../../../../../../../etc 28 0
        "$PROBE" call setxattr s:meta s:user.overlay.metacopy s: 0 0
        "$PROBE" call setxattr s:meta s:user.overlay.redirect s:/secret/file 12 0
        "$PROBE" call setxattr s:. s:user.overlay.origin s:x 1 0"#;
    let set = arena.run_text(&*parent, line).await?;
    let snapshot = parent.snapshot().await?;
    let spec = SandboxSpec { name: format!("redteam-{}-overlay", arena.token), ..SandboxSpec::default() };
    let fork = backend.fork(&snapshot, &spec).await?;
    let printed = arena.run_text(&*fork, "ls inner; cat inner/file; cat meta; cat secret/file").await?;
    fork.destroy().await?;
    parent.destroy().await?;
    if set.contains("EOPNOTSUPP") {
        return Err(SandboxAttackError::Skip("the host's filesystem does not support such attributes".to_owned()));
    }
    require_control(&format!("the attributes were not set: {set}"), set.matches("ok").count() >= 4)?;
    // An agent may make its own file unreadable that way, but the file must not turn into another one.
    let own = printed.starts_with("file\nplain\n") && printed.matches("hidden").count() == 1;
    attack_verdict(!own, printed)
}

async fn same_name(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let backend = arena.embedded_backend(&[])?;
    let spec = SandboxSpec { name: format!("redteam-{}-same", arena.token), ..SandboxSpec::default() };
    let sandbox = backend.create(&spec).await?;
    let again = backend.create(&spec).await;
    sandbox.destroy().await?;
    let free = backend.create(&spec).await?;
    free.destroy().await?;
    attack_verdict(!matches!(again, Err(Error::Exists { .. })), "a second sandbox of the same name")
}

/// Tries every way to change a file bound from the host, and checks it from the host.
async fn change_bound_file(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let file = arena.folder.join("spare/file");
    let tries = r#"(echo x >> "$SPARE/file"; echo x > "$SPARE/file"; rm -f "$SPARE/file"; mv "$SPARE/file" /tmp/f; truncate -s 0 "$SPARE/file"; ln -sf /etc/hostname "$SPARE/file"; cp /etc/hostname "$SPARE/file"; sed -i s/a/b/ "$SPARE/file"; dd if=/dev/zero of="$SPARE/file" bs=1 count=1) 2>/dev/null; true"#;
    arena.run_inside(&[], tries).await?;
    let same = fs::read(&file).is_ok_and(|bytes| bytes == b"spare\n");
    // The host itself can change it, and restores it.
    arena.run_on_host(tries).await?;
    let changed = !fs::read(&file).is_ok_and(|bytes| bytes == b"spare\n");
    let _ = fs::remove_file(&file);
    fs::write(&file, "spare\n")?;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    require_control("the host cannot change it either", changed)?;
    attack_verdict(!same, "a bound file was changed")
}

async fn deep_tree(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let line = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo $i; chmod 0 .";
    let printed = arena.run_text(&*sandbox, line).await?;
    let (backend, id) = (arena.embedded_backend(&[])?, sandbox.id().to_owned());
    let removed = sandbox.destroy().await;
    let left = backend.list().await?.iter().any(|one| one.id == id);
    require_control(&format!("the tree is not deep: {printed}"), printed.trim() == "1500")?;
    attack_verdict(removed.is_err() || left, format!("{removed:?}"))
}

/// Files in memory must be gone after the cage is rebuilt.
async fn memory_files(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let places = "/tmp/mark /var/tmp/mark /dev/shm/mark /run/user/1000/mark";
    arena.run_text(&*sandbox, &format!("for f in {places} kept; do echo mine > $f; done")).await?;
    let own = arena.run_text(&*sandbox, &format!("cat {places} | grep -c mine")).await?;
    sandbox.stop().await?;
    let printed = arena.run_text(&*sandbox, &format!("cat {places} 2>/dev/null | grep -c mine; cat kept")).await?;
    sandbox.destroy().await?;
    require_control(&format!("they never existed: {own}"), own.trim() == "4" && printed.ends_with("mine\n"))?;
    attack_verdict(!printed.starts_with("0\n"), printed)
}
