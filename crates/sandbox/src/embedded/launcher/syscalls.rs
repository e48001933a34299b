//! Wraps the system calls for which rustix has no safe function. Each wrapper is small, checked, and says why it is
//! sound.
//!
//! They are only for the launcher, a single-threaded program that was started for nothing else, so the effects of
//! `fork` and `clone` on locks and threads do not matter here.
#![expect(unsafe_code, reason = "the launcher's system calls without a safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;
use seccompiler::sock_filter;

/// The namespaces of a cage.
pub(super) const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

pub(super) const NETWORK_NAMESPACE: u64 = libc::CLONE_NEWNET as u64;

/// Forks the process; the child, which gets `None`, is the first process of the given new namespaces.
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
    // own copy of memory and, having one thread, continues as after `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    fork_result(pid)
}

/// Forks the process; the child gets `None`.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread, so the child finds every lock as its parent left it.
    fork_result(i64::from(unsafe { libc::fork() }))
}

/// Starts a process that runs `child` and exits with the code it returns, unless it becomes another program before
/// that.
///
/// The child shares this process's memory instead of copying it: this process sleeps until the child has become another
/// program or has ended, so the two use the same heap one after the other.
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

/// Becomes another program; returns only if that failed.
pub(super) fn execve(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists end with a null pointer and point to strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Exits without running any cleanup.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no conditions.
    unsafe { libc::_exit(code) }
}

/// Takes ownership of one of the descriptors that the process was started with.
pub(super) fn take_inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: setting the flags of any descriptor number is harmless.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as just seen, and the launcher takes each of its three descriptors exactly once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from this number on. For a process that has just started and owns nothing there.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the closed descriptors have no owner: the caller holds nothing that high.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Marks every descriptor from this number on to be closed on exec.
pub(super) fn set_cloexec_from(first: u32) -> io::Result<()> {
    // SAFETY: plain numbers, and nothing is closed yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Lets descriptors stay open on exec, for a cage with that mechanism disabled.
pub(super) fn clear_cloexec(descriptors: std::ops::Range<RawFd>) {
    for fd in descriptors {
        // SAFETY: plain numbers; one that is not open returns an error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
}

/// Installs a descriptor as a standard one.
pub(super) fn install_fd(fd: BorrowedFd<'_>, at: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; nothing owns the standard descriptors in a process that is about to become another
    // program.
    check(i64::from(unsafe { libc::dup2(fd.as_raw_fd(), at) }))?;
    // Otherwise a descriptor that has the right number already would keep its flag.
    // SAFETY: as above.
    check(i64::from(unsafe { libc::fcntl(at, libc::F_SETFD, 0) }))
}

/// Sets attributes of a mount and, with `below`, of the mounts below it.
pub(super) fn set_mount_attributes(mount: BorrowedFd<'_>, set: u64, below: bool) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: an empty string and a valid `mount_attr` of the given size, both alive through the call.
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

/// Becomes another group and user permanently.
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Removes every capability from the bounding set, and returns how many the kernel knows.
pub(super) fn drop_bounding_set() -> io::Result<u32> {
    for capability in 0..64 {
        // SAFETY: plain numbers; one that the kernel does not know returns an error.
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

/// Lets the kernel reap children.
pub(super) fn ignore_children() {
    // SAFETY: no handler is installed, only a disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Resets every signal to its default action and unblocks all of them.
pub(super) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: no handler is installed, only a disposition; numbers that cannot be set return an error.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = empty_signal_set();
    // SAFETY: a valid set; the old one is not requested.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw mut none, ptr::null_mut()) };
}

/// Returns a descriptor that becomes readable when a child has ended.
pub(super) fn child_signal_fd() -> io::Result<OwnedFd> {
    let mut set = empty_signal_set();
    // SAFETY: a valid set, a valid number, and the old mask is not requested.
    let fd = unsafe {
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nothing else owns it.
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

/// Returns the version of Landlock that this kernel supports, 0 for none.
pub(in super::super) fn landlock_version() -> u8 {
    // SAFETY: with this flag the call takes no structure and only returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, 1) };
    u8::try_from(version).unwrap_or(0)
}

/// A call at which the kernel has stopped a process.
#[derive(Debug)]
pub(super) struct StoppedCall {
    pub(super) id: u64,
    pub(super) pid: i32,
    pub(super) number: i64,
    pub(super) args: [u64; 6],
}

/// Installs a filter in this process and all its later children, and returns the descriptor that tells of the calls it
/// stops at.
pub(super) fn install_listener(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // Without the second flag a signal for a stopped process makes it start the call over, for some programs endlessly;
    // older kernels do not know the flag.
    let wanted = [libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER];
    let mut fd = -1;
    for flags in wanted {
        // SAFETY: the program points to as many instructions as it says, which live through the call and have the
        // kernel's layout.
        fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if fd >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
            break;
        }
    }
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Receives the next call that a filter stopped at.
pub(super) fn receive_stopped_call(listener: &OwnedFd) -> io::Result<StoppedCall> {
    // SAFETY: plain numbers, for which zero is a value; the kernel requires it.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let request = ioctl_number(0, size_of::<libc::seccomp_notif>(), 3);
    // SAFETY: the structure has the size that the request names and lives through the call.
    check(i64::from(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut call) }))?;
    let pid = i32::try_from(call.pid).map_err(io::Error::other)?;
    Ok(StoppedCall { id: call.id, pid, number: i64::from(call.data.nr), args: call.data.args })
}

/// Lets a stopped process carry out its call.
pub(super) fn continue_call(listener: &OwnedFd, id: u64) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: CONTINUE };
    let request = ioctl_number(1, size_of::<libc::seccomp_notif_resp>(), 3);
    // SAFETY: as above.
    check(i64::from(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut answer) }))
}

/// Returns the number of a request to a seccomp listener.
fn ioctl_number(request: u64, size: usize, direction: u64) -> libc::c_ulong {
    (direction << 30) | ((size as u64) << 16) | (u64::from(b'!') << 8) | request
}

/// Reads text up to its end from the memory of another process; `None` if it cannot be read.
pub(super) fn read_text(pid: i32, address: u64) -> Option<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < libc::PATH_MAX.unsigned_abs() as usize {
        // To the end of the page: the next one may not exist.
        let mut part = [0_u8; PAGE];
        let length = PAGE - usize::try_from(at).ok()? % PAGE;
        let local = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: length };
        let remote = libc::iovec { iov_base: ptr::without_provenance_mut(usize::try_from(at).ok()?), iov_len: length };
        // SAFETY: the local buffer is at least that long and lives through the call; the other address is only used in
        // the other process.
        let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        let part = part.get(..usize::try_from(read).ok()?)?;
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(part.get(..end)?);
                return Some(text);
            }
            None if part.is_empty() => return None,
            None => text.extend_from_slice(part),
        }
        at = at.checked_add(u64::try_from(read).ok()?)?;
    }
    None
}

/// Kills every process that this one may signal, except itself.
pub(super) fn kill_all() {
    // SAFETY: plain numbers. The caller is in the cage's process namespace, so this reaches only the cage.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

fn check(answer: i64) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
