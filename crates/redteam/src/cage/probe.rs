//! The payload of attacks that a shell cannot make: single system calls and sockets. Nothing it does persists.
//!
//! It is this same program under another name, so that the suite needs no interpreter inside a sandbox. It has no
//! privileges: any process that can start it could make the same calls.
#![expect(unsafe_code, reason = "attacks on the kernel's interface need raw system calls")]

use std::ffi::CString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::disposable_supervisor;
use super::syscall_names::{errno_name, number};

/// The name the probe is started under.
pub(super) const PROBE_NAME: &str = "ralph-probe";

/// Runs the probe if this process was started as one. Must be called early in `main`, before any thread starts.
pub fn entry() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let own = words.next()?;
    if Path::new(&own).file_name()? != PROBE_NAME {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The process that started the probe may be gone; then the result is not needed.
    let _ = writeln!(io::stdout(), "{}", dispatch(&words));
    Some(ExitCode::SUCCESS)
}

fn dispatch(words: &[&str]) -> String {
    match words {
        ["call", name, rest @ ..] => match number(name) {
            Some(number) => format_answer(raw_syscall(number, rest)),
            None => format!("unknown system call `{name}`"),
        },
        ["number", number, rest @ ..] => format_answer(raw_syscall(parse(number).unwrap_or(-1), rest)),
        ["old-call", number] => old_call(parse(number).unwrap_or(-1)),
        ["connect", kind, to] => format_result(connect(kind, to)),
        ["ask-name", server] => format_result(send_dns_query(server)),
        ["listen", kind, at, seconds] => format_result(listen(kind, at, parse(seconds).unwrap_or(1))),
        ["look-into", pid] => format_answer(read_process_memory(parse(pid).unwrap_or(0))),
        ["loopback-down"] => format_answer(loopback_down()),
        ["forks", most] => fork_many(parse_count(most)),
        ["orphans", many] => make_orphans(parse(many).unwrap_or(0)),
        ["eat", bytes] => allocate_memory(parse_count(bytes), Duration::ZERO),
        // Held, so that many processes hold it at the same time on a busy machine too.
        ["eat", bytes, seconds] => {
            allocate_memory(parse_count(bytes), Duration::from_secs(parse_count(seconds) as u64))
        }
        ["eat-shared", bytes] => allocate_shared_memory(parse_count(bytes)),
        ["processors"] => processors(),
        ["pipes", most] => open_pipes(parse_count(most)),
        ["swap", one, other, millis] => swap_names(one, other, parse(millis).unwrap_or(0)),
        ["deep-files", levels, pieces] => format_result(deep_files(parse_count(levels), parse_count(pieces))),
        ["descriptors"] => descriptors(),
        ["own", dir, without, line] => disposable_supervisor::run_supervisor(dir, without, line),
        _ => "unknown probe command".to_owned(),
    }
}

fn parse(word: &str) -> Option<i64> {
    let (sign, word) = word.strip_prefix('-').map_or((1, word), |rest| (-1, rest));
    let (base, digits) = match word.get(..2) {
        Some("0x") => (16, word.get(2..)?),
        Some("0o") => (8, word.get(2..)?),
        _ => (10, word),
    };
    u64::from_str_radix(digits, base).ok().map(|number| number.cast_signed().wrapping_mul(sign))
}

fn parse_count(word: &str) -> usize {
    parse(word).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Makes one system call. An argument is a number, `s:` and a text, `buf` for a writable buffer, or `bad` for an
/// invalid address.
fn raw_syscall(number: i64, words: &[&str]) -> io::Result<i64> {
    let texts: Vec<Option<CString>> =
        words.iter().map(|word| word.strip_prefix("s:").and_then(|text| CString::new(text).ok())).collect();
    let mut room = vec![0_u8; 1 << 16];
    let mut arguments = [0_i64; 6];
    for ((argument, word), text) in arguments.iter_mut().zip(words).zip(&texts) {
        *argument = match (text, *word) {
            (Some(text), _) => address(text.as_ptr().cast()),
            (None, "buf") => address(room.as_mut_ptr()),
            (None, "bad") => 8,
            (None, word) => parse(word).ok_or(io::ErrorKind::InvalidInput)?,
        };
    }
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: this process has one thread and exists for this call. Every address in it points to a text or a buffer
    // that outlives the call, or is invalid, which the kernel handles; no call here changes memory outside that
    // buffer.
    let got = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    if number == libc::SYS_clone && got == 0 {
        // SAFETY: the new process has nothing to do and nothing to clean up.
        unsafe { libc::_exit(0) }
    }
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got) }
}

fn address(pointer: *const u8) -> i64 {
    i64::try_from(pointer.addr()).unwrap_or(8)
}

/// Makes a system call through the 32-bit entry.
#[cfg(target_arch = "x86_64")]
fn old_call(number: i64) -> String {
    let made = in_child(|| {
        let mut answer = number;
        // SAFETY: the call that the suite names (`getpid`) takes no address; the registers it may change
        // are declared.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") answer, out("rcx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        i32::from(answer <= 0)
    });
    match made {
        Ok(0) => "ok".to_owned(),
        Ok(signal) if signal > 128 => format!("signal {}", signal - 128),
        Ok(_) => "ENOSYS".to_owned(),
        Err(error) => format_answer(Err(error)),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn old_call(_: i64) -> String {
    "ENOSYS".to_owned()
}

/// Runs a function in a child and returns its exit code, or 128 plus the signal that ended it.
fn in_child(work: impl FnOnce() -> i32) -> io::Result<i32> {
    let child = fork()?;
    if child == 0 {
        let code = work();
        // SAFETY: the child has nothing to clean up.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: the number is that of our child, and the status points to a local variable.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) })
}

fn fork() -> io::Result<i32> {
    // SAFETY: the process has one thread.
    let child = unsafe { libc::fork() };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child) }
}

fn unix_address(name: &str) -> io::Result<UnixAddr> {
    match name.strip_prefix('@') {
        Some(name) => UnixAddr::from_abstract_name(name),
        None => UnixAddr::from_pathname(name),
    }
}

fn connect(kind: &str, to: &str) -> io::Result<String> {
    let internet = || to.parse::<SocketAddr>().map_err(io::Error::other);
    match kind {
        "tcp" => {
            let mut stream = TcpStream::connect_timeout(&internet()?, Duration::from_secs(3))?;
            stream.write_all(b"hello")?;
        }
        "udp" => {
            let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(internet()?)?;
            socket.send(b"hello")?;
            // If nothing listens, the kernel reports that a moment later.
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            match socket.recv(&mut [0; 16]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => (),
            }
        }
        "stream" => UnixStream::connect_addr(&unix_address(to)?)?.write_all(b"hello")?,
        "datagram" => drop(UnixDatagram::unbound()?.send_to_addr(b"hello", &unix_address(to)?)?),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(format!("GOT {kind} {to}"))
}

/// Sends a DNS query, as resolvers do.
fn send_dns_query(server: &str) -> io::Result<String> {
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["mfzwk43u", "canary", "test"] {
        question.push(u8::try_from(label.len()).unwrap_or(0));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind(if server.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.send_to(&question, server)?;
    Ok("GOT asked".to_owned())
}

/// Listens for a while and returns whether a client connected.
fn listen(kind: &str, at: &str, seconds: i64) -> io::Result<String> {
    let until = Instant::now() + Duration::from_secs(seconds.unsigned_abs());
    let ready = |place: String| writeln!(io::stdout(), "listening {place}").and_then(|()| io::stdout().flush());
    let mut came: Box<dyn FnMut() -> bool> = match kind {
        "tcp" => {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            ready(listener.local_addr()?.port().to_string())?;
            Box::new(move || listener.accept().is_ok())
        }
        _ => {
            let listener = UnixListener::bind_addr(&unix_address(at)?)?;
            listener.set_nonblocking(true)?;
            ready(at.to_owned())?;
            Box::new(move || listener.accept().is_ok())
        }
    };
    let mut guests = 0;
    while Instant::now() < until {
        guests += u32::from(came());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(format!("guests {guests}"))
}

/// Reads another process's memory, at an address that need not exist there: the permission check comes first.
fn read_process_memory(pid: i64) -> io::Result<i64> {
    let mut byte = 0_u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(0x1000), iov_len: 1 };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: one local byte receives the one requested; the other address belongs to the other process.
    let got = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as i64) }
}

/// Asks the kernel to take the loopback device down.
fn loopback_down() -> io::Result<i64> {
    // netlink header (length, type, flags, number, port), then ifinfomsg (family, type, index, flags, change).
    let mut message = 32_u32.to_ne_bytes().to_vec();
    message.extend(16_u16.to_ne_bytes());
    message.extend(5_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend([1_u32, 0, 1].iter().flat_map(|number| number.to_ne_bytes()));
    // SAFETY: only integer arguments.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut room = [0_u8; 4096];
    // SAFETY: both buffers are passed with their own lengths and outlive the calls.
    let got = unsafe {
        libc::send(socket, message.as_ptr().cast(), message.len(), 0);
        libc::recv(socket, room.as_mut_ptr().cast(), room.len(), 0)
    };
    match room.get(16..20).filter(|_| got >= 20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(0),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::last_os_error()),
    }
}

/// Creates waiting processes, returns how many were possible, and ends them.
fn fork_many(most: usize) -> String {
    let mut children = Vec::new();
    while children.len() < most {
        match fork() {
            Ok(0) => loop {
                // SAFETY: waits for a signal, which ends the process; it also dies with its parent.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            Ok(child) => children.push(child),
            Err(_) => break,
        }
    }
    for child in &children {
        // SAFETY: each number is that of a child that has not been waited for.
        unsafe {
            libc::kill(*child, libc::SIGKILL);
            libc::waitpid(*child, std::ptr::null_mut(), 0);
        }
    }
    format!("made {}", children.len())
}

/// Leaves processes behind whose parents have exited.
fn make_orphans(many: i64) -> String {
    let made = (0..many).filter(|_| in_child(|| i32::from(fork().is_err())).is_ok()).count();
    format!("made {made}")
}

/// Allocates memory and uses it.
fn allocate_memory(bytes: usize, held: Duration) -> String {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let piece = 16 << 20;
    while kept.len() * piece < bytes {
        kept.push(vec![7; piece]);
    }
    // Read, so that the compiler cannot remove the allocation.
    let sum: usize = kept.iter().map(|piece| usize::from(piece.last().copied().unwrap_or(0))).sum();
    std::thread::sleep(held);
    format!("GOT {} MiB {sum}", (kept.len() * piece) >> 20)
}

/// Allocates shared memory and uses it.
fn allocate_shared_memory(bytes: usize) -> String {
    let piece = 16 << 20;
    let mut taken = 0;
    while taken < bytes {
        // SAFETY: a new mapping that nothing else uses, filled within its length, and released with the process.
        unsafe {
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let place = libc::mmap(std::ptr::null_mut(), piece, rights, flags, -1, 0);
            if place == libc::MAP_FAILED {
                return format_answer(Err(io::Error::last_os_error()));
            }
            std::ptr::write_bytes(place.cast::<u8>(), 7, piece);
        }
        taken += piece;
    }
    // Held long enough for the memory watch to notice.
    std::thread::sleep(Duration::from_millis(700));
    format!("GOT {} MiB", taken >> 20)
}

/// Asks to run on every processor, and returns how many there are then.
fn processors() -> String {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let asked = sched_setaffinity(None, &all);
    let allowed = sched_getaffinity(None).map_or(0, |set| set.count());
    format!("allowed {allowed} {asked:?}")
}

fn open_pipes(most: usize) -> String {
    let mut kept = Vec::new();
    while kept.len() * 2 < most {
        match io::pipe() {
            Ok(pair) => kept.push(pair),
            Err(_) => break,
        }
    }
    format!("made {}", kept.len() * 2)
}

/// Exchanges two names as fast as possible.
fn swap_names(one: &str, other: &str, millis: i64) -> String {
    let (Ok(from), Ok(to)) = (CString::new(one), CString::new(other)) else { return "no names".to_owned() };
    let until = Instant::now() + Duration::from_millis(millis.unsigned_abs());
    let mut swaps = 0_u64;
    while Instant::now() < until {
        // SAFETY: two strings that outlive the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        swaps += u64::from(done == 0);
    }
    format!("swapped {swaps}")
}

/// Writes megabytes into a folder that is too deep for any path.
fn deep_files(levels: usize, pieces: usize) -> io::Result<String> {
    let name = "d".repeat(200);
    for _ in 0..levels {
        std::fs::create_dir(&name)?;
        std::env::set_current_dir(&name)?;
    }
    for piece in 0..pieces {
        std::fs::write(piece.to_string(), vec![7; 20 << 20])?;
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok("GOT".to_owned())
}

/// Lists every descriptor besides the standard three, with its contents if it is a regular file.
fn descriptors() -> String {
    let mut found = String::new();
    for fd in 3..256 {
        // SAFETY: reading the flags of any number is harmless.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            continue;
        }
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let mut text = String::new();
        // Reading a terminal or a pipe would block.
        if std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|found| found.is_file()) {
            let file = std::fs::File::open(format!("/proc/self/fd/{fd}"));
            // A directory or a device cannot be read; that is fine.
            let _ = file.and_then(|file| file.take(64).read_to_string(&mut text));
        }
        // Writing to a string cannot fail.
        let _ = std::fmt::Write::write_fmt(&mut found, format_args!("GOT {fd} {} {text}\n", link.display()));
    }
    if found.is_empty() { "only three".to_owned() } else { found }
}

fn format_result(result: io::Result<String>) -> String {
    result.unwrap_or_else(|error| format_answer(Err(error)))
}

fn format_answer(result: io::Result<i64>) -> String {
    match result {
        Ok(number) => format!("ok {number}"),
        Err(error) => match error.raw_os_error() {
            Some(errno) => errno_name(errno),
            None => format!("{error}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let check = |word: &str, want: Option<i64>| assert_eq!(parse(word), want, "{word}");
        check("17", Some(17));
        check("-100", Some(-100));
        check("0x100005412", Some(0x1_0000_5412));
        check("0o101", Some(65));
        check("0xffffffffffffffff", Some(-1));
        check("x", None);
        check("", None);
    }

    #[test]
    fn commands_return_their_results() {
        let check = |words: &[&str], want: &str| assert_eq!(dispatch(words), want);
        check(&["call", "openat", "-100", "s:/nowhere/at/all", "0"], "ENOENT");
        check(&["call", "openat", "-100", "bad", "0"], "EFAULT");
        check(&["call", "setns", "-1", "0"], "EBADF");
        check(&["call", "openat", "x"], "invalid input parameter");
        check(&["call", "nothing"], "unknown system call `nothing`");
        check(&["connect", "stream", "/nowhere/at/all"], "ENOENT");
        check(&[], "unknown probe command");
    }
}
