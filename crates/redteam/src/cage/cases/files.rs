//! Attacks on files from inside a sandbox.

use ralph_sandbox::embedded::IsolationMechanism::{
    Capabilities, Dumpable, InnerUser, Landlock, Masks, ReadOnly, Root, Seccomp,
};

use super::super::arena::SandboxArena;
use super::super::case::PayloadControl::{Host, IfSupported, Without};
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use crate::report::AttackVerdict;

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::line(
        "FS-01.home",
        "the host's home",
        r#"cat "$CANARY" 2>/dev/null | grep -q canary && echo GOT"#,
        Host,
    ),
    SandboxAttack::line("FS-01.tmp", "the host's temporary folder", r#"[ -e "$FOLDER/outside" ] && echo GOT"#, Host),
    SandboxAttack::custom("FS-02.listing", "the root contains only the expected names", &[Root], |arena, case| {
        Box::pin(root_listing(arena, case))
    }),
    SandboxAttack::line(
        "FS-02.mnt",
        "directories where hosts mount things",
        "for d in /mnt /media /srv /boot /root /opt /sys/kernel; do [ -e $d ] && echo GOT $d; done; true",
        Host,
    ),
    SandboxAttack::line(
        "FS-03.secrets",
        "the host's secrets in /etc",
        "for f in shadow gshadow sudoers ssh security pam.d; do [ -e /etc/$f ] && echo GOT $f; done; true",
        Host,
    ),
    SandboxAttack::line("FS-03.users", "the host's users", "grep -q '^daemon:' /etc/passwd && echo GOT", Host),
    SandboxAttack::line(
        "FS-03.machine",
        "the host's machine ID",
        "grep -q '[1-9a-f]' /etc/machine-id && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "FS-04.link",
        "a symbolic link out of the workspace",
        r#"ln -sf "$CANARY" x; cat x 2>/dev/null | grep -q canary && echo GOT; rm -f x"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-04.folder",
        "a symbolic link to a folder outside",
        r#"ln -sfn "$FOLDER/home" h; cat h/.ssh/id_canary 2>/dev/null | grep -q canary && echo GOT; rm -f h"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-07.hard-link",
        "a hard link to a file of the host",
        r#"ln "$TOOL/shared" kept 2>/dev/null && echo GOT; rm -f kept"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-08.dots",
        "path traversal above the root",
        r#"cat "../../../../../../../../..$CANARY" 2>/dev/null | grep -q canary && echo GOT"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-09.root",
        "the root is in memory, not a file system of the host",
        "[ \"$(awk '$5 == \"/\" { split($0, p, \" - \"); split(p[2], f, \" \"); print f[1] }' /proc/self/mountinfo)\" = tmpfs ] || echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "FS-09.old",
        "the old root is unmounted",
        "[ $(awk '$5 == \"/\"' /proc/self/mountinfo | wc -l) = 1 ] || echo GOT; for d in /oldroot /.old /put_old /old /host-etc; do [ -e $d ] && echo GOT $d; done; true",
        Without(&[Root]),
    ),
    SandboxAttack::call(
        "FS-10.root",
        "the root of process 1",
        "call openat -100 s:/proc/1/root/etc 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-10.cwd",
        "the directory of process 1",
        "call openat -100 s:/proc/1/cwd/etc 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-10.exe",
        "the program of process 1",
        "call openat -100 s:/proc/1/exe 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-10.fd",
        "the descriptors of process 1",
        "call openat -100 s:/proc/1/fd 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-10.map_files",
        "the mapped files of process 1",
        "call openat -100 s:/proc/1/map_files 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-10.ns",
        "the namespaces of process 1",
        "call openat -100 s:/proc/1/ns/mnt 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "FS-11.chroot",
        "`chroot`, without the seccomp filter",
        "call chroot s:/tmp",
        "EPERM",
        Without(&[Capabilities]),
    )
    .without_walls(&[Seccomp]),
    SandboxAttack::line(
        "FS-13.bind",
        "writing to a bound host file",
        r#"echo taken >> "$TOOL/shared" && grep -q taken "$TOOL/shared" && echo GOT"#,
        Without(&[ReadOnly]),
    ),
    SandboxAttack::line(
        "FS-13.beside",
        "creating a file next to a bound host file",
        r#"touch "$TOOL/new" 2>/dev/null && rm "$TOOL/new" && echo GOT"#,
        Without(&[ReadOnly]),
    ),
    SandboxAttack::line(
        "FS-13.remove",
        "removing a bound host file",
        r#"mv "$SPARE/file" "$SPARE/other" 2>/dev/null && mv "$SPARE/other" "$SPARE/file" && echo GOT"#,
        Without(&[ReadOnly]),
    ),
    SandboxAttack::line(
        "FS-13.usr",
        "writing to the system's programs",
        "awk '$5 == \"/usr\" { print $6 }' /proc/self/mountinfo | grep -q '^rw' && echo GOT",
        IfSupported(&[ReadOnly], "this user cannot write to the host's programs either"),
    ),
    SandboxAttack::line(
        "FS-13.root",
        "writing to the root",
        "awk '$5 == \"/\" { print $6 }' /proc/self/mountinfo | grep -q '^rw' && echo GOT",
        Without(&[ReadOnly]),
    ),
    SandboxAttack::line(
        "FS-13.mode",
        "changing the permissions of a bound host file",
        r#"chmod 700 "$SPARE/file" 2>/dev/null && chmod 666 "$SPARE/file" && echo GOT"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-13.time",
        "changing the times of a bound host file",
        r#"touch "$SPARE/file" 2>/dev/null && echo GOT"#,
        Without(&[ReadOnly]),
    ),
    SandboxAttack::line(
        "FS-25.mask",
        "a credential file in a toolchain",
        r#"grep -q canary "$SECRET" && echo GOT"#,
        Without(&[Masks]),
    ),
    SandboxAttack::call(
        "FS-14.remount",
        "making a mount writable, with every capability",
        "call mount 0 s:/usr 0 0x1020 0",
        "EPERM",
        Without(&[InnerUser]),
    )
    .without_walls(&[Seccomp, Capabilities, Landlock]),
    SandboxAttack::call(
        "FS-14.unmount",
        "removing a mask, with every capability",
        "call umount2 s:/proc/sys 2",
        "EPERM",
        Without(&[InnerUser]),
    )
    .without_walls(&[Seccomp, Capabilities, Landlock]),
    SandboxAttack::call(
        "FS-15.bind",
        "a bind mount over another mount, with every capability",
        "call mount s:/tmp s:/dev/shm 0 0x1000 0",
        "EPERM",
        Without(&[InnerUser]),
    )
    .without_walls(&[Seccomp, Capabilities, Landlock]),
    SandboxAttack::call(
        "FS-15.fresh",
        "a new filesystem, with every capability",
        "call mount s:x s:/run s:tmpfs 0 0",
        "EPERM",
        Without(&[InnerUser]),
    )
    .without_walls(&[Seccomp, Capabilities, Landlock]),
    SandboxAttack::call(
        "FS-15.landlock-mount",
        "a new filesystem, stopped only by Landlock",
        "call mount s:x s:/run s:tmpfs 0 0",
        "EPERM",
        Without(&[Landlock]),
    )
    .landlock(1)
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::call(
        "FS-15.landlock-unmount",
        "removing a mask, stopped only by Landlock",
        "call umount2 s:/proc/sys 2",
        "EPERM",
        Without(&[Landlock]),
    )
    .landlock(1)
    .without_walls(&[Seccomp, Capabilities, InnerUser]),
    SandboxAttack::line(
        "FS-16.rename",
        "renaming a mount point",
        r#"mv "$SPARE" "$SPARE.away" 2>/dev/null && mv "$SPARE.away" "$SPARE" && echo GOT"#,
        Host,
    ),
    SandboxAttack::line(
        "FS-16.workspace",
        "renaming the workspace's own mount",
        r#"p=$(pwd -P); mv "$p" "$p.away" 2>/dev/null && mv "$p.away" "$p" && echo GOT"#,
        Host,
    ),
    SandboxAttack::call(
        "FS-18.whiteout",
        "creating an overlay whiteout device",
        "call mknodat -100 s:hide 0x2000 0",
        "EACCES",
        Without(&[Landlock]),
    )
    .landlock(1),
    SandboxAttack::line(
        "FS-18.device",
        "a device of the host",
        "mknod null c 1 3 2>/dev/null && echo GOT; rm -f null",
        Host,
    ),
    SandboxAttack::line(
        "FS-18.dev",
        "unneeded devices",
        "for d in mem port kmsg kvm fuse net/tun loop-control vda sda dri console vhost-net; do [ -e /dev/$d ] && echo GOT $d; done; true",
        Host,
    ),
    SandboxAttack::line(
        "FS-19.mounts",
        "a mount that honours set-user-id",
        "awk '$6 !~ /nosuid/' /proc/self/mountinfo | grep -q . && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "FS-26.plan",
        "the launch plan in the command line of process 1",
        "tr '\\0' '\\n' < /proc/1/cmdline | grep -qv '^ralph-init$' && echo GOT",
        Host,
    ),
    SandboxAttack::call(
        "FS-51.mqueue",
        "mounting the message queues of other processes",
        "call fsopen s:mqueue 0",
        "EPERM",
        Without(&[InnerUser]),
    )
    .without_walls(&[Seccomp, Capabilities]),
    SandboxAttack::call(
        "FS-52.chown",
        "changing the owner of a file",
        "call fchownat -100 s:. 0 0 0",
        "EINVAL",
        IfSupported(&[InnerUser], "the inner user is the same"),
    ),
];

/// Compares the names in the root with the expected ones.
async fn root_listing(arena: &SandboxArena<'_>, case: &SandboxAttack) -> Result<AttackVerdict, SandboxAttackError> {
    let named = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "tmp", "run", "var"];
    let own = ["workspace", "home", "exchange"];
    let bound = arena.options()?.binds.iter().chain([&arena.folder]);
    let bound: Vec<_> = bound.filter_map(|path| path.iter().nth(1)?.to_str()).collect();
    let strange = |listing: &str| -> Vec<String> {
        let known = |name: &str| named.contains(&name) || own.contains(&name) || bound.contains(&name);
        listing.lines().filter(|name| !known(name)).map(str::to_owned).collect()
    };
    let found = strange(&arena.run_inside(case.payload.without_walls, "ls -A /").await?);
    let open = strange(&arena.run_inside(&[Root], "ls -A /").await?);
    require_control("without the private root there are no other names either", !open.is_empty())?;
    attack_verdict(!found.is_empty(), found.join(" "))
}
