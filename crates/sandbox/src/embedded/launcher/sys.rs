//! The system calls that rustix has no safe words for. Each function is small, checked, and says why it is sound.
//!
//! They are made for the launcher, a program with one thread that was started for nothing else: what `fork` and `clone`
//! do to locks and threads is no question here.
#![expect(unsafe_code, reason = "this room is where the launcher meets the kernel")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;

/// Namespaces a cage is made of.
pub(super) const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

pub(super) const NETWORK_NAMESPACE: u64 = libc::CLONE_NEWNET as u64;

/// Splits the process in two; the new one, which gets `None`, is the first of the given new namespaces.
pub(super) fn clone(namespaces: u64) -> io::Result<Option<Pid>> {
    let args = libc::clone_args {
        flags: namespaces,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: the arguments are a valid `clone_args` that lives through the call; without CLONE_VM the child gets its
    // own copy of memory and, having one thread, goes on as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    fork_result(pid)
}

/// Splits the process in two; the new one gets `None`.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread, so the child finds every lock as its parent left it.
    fork_result(i64::from(unsafe { libc::fork() }))
}

/// Starts a process that runs `child` and ends with what it returns, most often by becoming another program before that.
///
/// It has this process's memory, not a copy: this process sleeps until it has become that program or has ended. Both
/// know the same heap, then, one after the other.
pub(super) fn spawn<F: FnMut() -> i32>(mut child: F) -> io::Result<Pid> {
    const STACK: usize = 256 << 10;
    extern "C" fn run<F: FnMut() -> i32>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the caller passes a pointer to its `F`, which it does not touch until this process is done with it.
        let child = unsafe { &mut *child.cast::<F>() };
        child()
    }
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is large enough, aligned, and lives until the child has left this memory, as CLONE_VFORK makes
    // sure; so does the closure. The process has one thread and no signal handlers, so nobody else runs in between.
    let pid = unsafe { libc::clone(run::<F>, top.cast(), flags, (&raw mut child).cast()) };
    fork_result(i64::from(pid))?.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn fork_result(pid: i64) -> io::Result<Option<Pid>> {
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(pid).ok().and_then(Pid::from_raw))
}

/// Becomes another program; returns only when that failed.
pub(super) fn execve(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists end with a null pointer and point to strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends the process without running anything more of it.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no conditions.
    unsafe { libc::_exit(code) }
}

/// Takes one of the descriptors the process was started with.
pub(super) fn take_inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asking for the flags of any number is harmless.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as just seen, and the launcher takes each of its three descriptors exactly once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from this number on. For a process that has just begun and owns nothing there.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: what is closed is nobody's: the caller holds nothing that high.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Lets every descriptor from this number on end with the program that holds it now.
pub(super) fn set_cloexec_from(first: u32) -> io::Result<()> {
    // SAFETY: plain numbers, and nothing is closed yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Lets descriptors go on into the next program: what a cage without that wall does.
pub(super) fn clear_cloexec(descriptors: std::ops::Range<RawFd>) {
    for fd in descriptors {
        // SAFETY: plain numbers; one that is not open answers with an error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
}

/// Puts a descriptor in the place of a standard one.
pub(super) fn install_fd(fd: BorrowedFd<'_>, at: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; the standard places belong to nobody in a process that is about to become another program.
    check(i64::from(unsafe { libc::dup2(fd.as_raw_fd(), at) }))?;
    // A descriptor that is in its place already keeps its flag otherwise.
    // SAFETY: as above.
    check(i64::from(unsafe { libc::fcntl(at, libc::F_SETFD, 0) }))
}

/// Changes what a mount and, if asked, those below it allow.
pub(super) fn set_mount_attributes(mount: BorrowedFd<'_>, set: u64, below: bool) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: an empty string and a valid `mount_attr` of the told size, both alive through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Leaves all supplementary groups.
pub(super) fn drop_groups() -> io::Result<()> {
    // SAFETY: a list of no elements is never read.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()) })
}

/// Becomes another group and user for good.
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Takes every capability out of the set that bounds all others, and returns how many there were.
pub(super) fn drop_bounding_set() -> io::Result<u32> {
    for capability in 0..64 {
        // SAFETY: plain numbers; one that the kernel does not know answers with an error.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) } < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EINVAL) { Ok(capability) } else { Err(error) };
        }
    }
    Ok(64)
}

/// Enters a new user namespace.
pub(super) fn unshare_user() -> io::Result<()> {
    // SAFETY: plain flags; the process has one thread.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWUSER) }))
}

/// Lets the kernel reap children, or gives a signal back its usual meaning.
pub(super) fn ignore_children() {
    // SAFETY: no handler is installed, only a disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Gives every signal its usual meaning and lets all of them through.
pub(super) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: no handler is installed, only a disposition; numbers that cannot be set answer with an error.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = empty_signal_set();
    // SAFETY: a valid set; the old one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw mut none, ptr::null_mut()) };
}

/// Returns a descriptor that can be read when a child has ended.
pub(super) fn child_signal_fd() -> io::Result<OwnedFd> {
    let mut set = empty_signal_set();
    // SAFETY: a valid set, a valid number, and the old mask is not asked for.
    let fd = unsafe {
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn empty_signal_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the whole set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Returns the version of Landlock this kernel speaks, 0 for none.
pub(in super::super) fn landlock_version() -> u8 {
    // SAFETY: with this flag the call takes no structure and only answers with a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, 1) };
    u8::try_from(version).unwrap_or(0)
}

/// Ends every process this one may signal, except itself.
pub(super) fn kill_all() {
    // SAFETY: plain numbers. As process 1 of its own namespace, "all" is what runs in the cage.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

fn check(answer: i64) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
