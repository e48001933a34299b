//! Maps system calls and errors to the names used in the tables of attacks.

/// Returns the name of an error number.
pub(super) fn errno_name(errno: i32) -> String {
    let known = ERRNOS.iter().find(|(number, _)| *number == errno).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| format!("E{errno}"))
}

const ERRNOS: [(i32, &str); 36] = [
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EROFS, "EROFS"),
    (libc::E2BIG, "E2BIG"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::ELOOP, "ELOOP"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENOKEY, "ENOKEY"),
];

macro_rules! numbers {
    ($($name:literal => $number:expr,)*) => {
        /// Returns the number of a system call on this machine.
        pub(super) fn number(name: &str) -> Option<i64> {
            match name { $($name => Some($number),)* _ => old_number(name) }
        }
    };
}

numbers! {
    "acct" => libc::SYS_acct,
    "add_key" => libc::SYS_add_key,
    "adjtimex" => libc::SYS_adjtimex,
    "bpf" => libc::SYS_bpf,
    "chroot" => libc::SYS_chroot,
    "clock_adjtime" => libc::SYS_clock_adjtime,
    "clock_settime" => libc::SYS_clock_settime,
    "clone" => libc::SYS_clone,
    "clone3" => libc::SYS_clone3,
    "delete_module" => libc::SYS_delete_module,
    "fanotify_init" => libc::SYS_fanotify_init,
    "fanotify_mark" => libc::SYS_fanotify_mark,
    "fchownat" => libc::SYS_fchownat,
    "fchmodat" => libc::SYS_fchmodat,
    "file_setattr" => 469,
    "finit_module" => libc::SYS_finit_module,
    "fsconfig" => libc::SYS_fsconfig,
    "fsmount" => libc::SYS_fsmount,
    "fsopen" => libc::SYS_fsopen,
    "fspick" => libc::SYS_fspick,
    "init_module" => libc::SYS_init_module,
    "io_uring_enter" => libc::SYS_io_uring_enter,
    "io_uring_register" => libc::SYS_io_uring_register,
    "io_uring_setup" => libc::SYS_io_uring_setup,
    "ioctl" => libc::SYS_ioctl,
    "ioprio_set" => libc::SYS_ioprio_set,
    "kcmp" => libc::SYS_kcmp,
    "kexec_file_load" => if cfg!(target_arch = "x86_64") { 320 } else { 294 },
    "kexec_load" => libc::SYS_kexec_load,
    "keyctl" => libc::SYS_keyctl,
    "kill" => libc::SYS_kill,
    "linkat" => libc::SYS_linkat,
    "lookup_dcookie" => libc::SYS_lookup_dcookie,
    "lsm_set_self_attr" => 460,
    "mbind" => libc::SYS_mbind,
    "memfd_secret" => libc::SYS_memfd_secret,
    "migrate_pages" => libc::SYS_migrate_pages,
    "mknodat" => libc::SYS_mknodat,
    "mount" => libc::SYS_mount,
    "mount_setattr" => libc::SYS_mount_setattr,
    "move_mount" => libc::SYS_move_mount,
    "move_pages" => libc::SYS_move_pages,
    "mq_open" => libc::SYS_mq_open,
    "mq_unlink" => libc::SYS_mq_unlink,
    "msgctl" => libc::SYS_msgctl,
    "msgget" => libc::SYS_msgget,
    "name_to_handle_at" => libc::SYS_name_to_handle_at,
    "nfsservctl" => libc::SYS_nfsservctl,
    "open_by_handle_at" => libc::SYS_open_by_handle_at,
    "open_tree" => libc::SYS_open_tree,
    "openat" => libc::SYS_openat,
    "perf_event_open" => libc::SYS_perf_event_open,
    "personality" => libc::SYS_personality,
    "pidfd_getfd" => libc::SYS_pidfd_getfd,
    "pivot_root" => libc::SYS_pivot_root,
    "process_madvise" => 440,
    "process_mrelease" => libc::SYS_process_mrelease,
    "ptrace" => libc::SYS_ptrace,
    "quotactl" => libc::SYS_quotactl,
    "quotactl_fd" => 443,
    "reboot" => libc::SYS_reboot,
    "renameat2" => libc::SYS_renameat2,
    "request_key" => libc::SYS_request_key,
    "set_mempolicy" => libc::SYS_set_mempolicy,
    "set_mempolicy_home_node" => 450,
    "setdomainname" => libc::SYS_setdomainname,
    "sethostname" => libc::SYS_sethostname,
    "setns" => libc::SYS_setns,
    "settimeofday" => libc::SYS_settimeofday,
    "setuid" => libc::SYS_setuid,
    "setxattr" => libc::SYS_setxattr,
    "shmctl" => libc::SYS_shmctl,
    "shmget" => libc::SYS_shmget,
    "socket" => libc::SYS_socket,
    "socketpair" => libc::SYS_socketpair,
    "swapoff" => libc::SYS_swapoff,
    "swapon" => libc::SYS_swapon,
    "syslog" => libc::SYS_syslog,
    "umount2" => libc::SYS_umount2,
    "unshare" => libc::SYS_unshare,
    "userfaultfd" => libc::SYS_userfaultfd,
}

#[cfg(target_arch = "x86_64")]
fn old_number(name: &str) -> Option<i64> {
    match name {
        "ioperm" => Some(libc::SYS_ioperm),
        "iopl" => Some(libc::SYS_iopl),
        "modify_ldt" => Some(libc::SYS_modify_ldt),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn old_number(_: &str) -> Option<i64> {
    None
}
