//! Tests the resource limits of a sandbox, with the kernel's control groups where available, and without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};
use ralph_sandbox::{
    Backend, Error, ExecOutput, ExecRequest, ExecStatus, OutputCapture, OutputSink, OutputStream, ResourceLimit,
    Sandbox, SandboxLimits, SandboxSpec, capture,
};

use crate::embedded::options;
use crate::skip::skip_or_fail;

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_mins(1);

/// A sandbox with limits, in a folder of its own.
pub(crate) struct TestCage {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) groups: bool,
    _dir: tempfile::TempDir,
}

impl TestCage {
    pub(crate) async fn new(resources: SandboxLimits, groups: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let backend = EmbeddedBackend::new(EmbeddedOptions { no_cgroups: !groups, ..options(dir.path()) });
        let spec = SandboxSpec { name: "limits".to_owned(), resources, ..SandboxSpec::default() };
        let sandbox = backend.create(&spec).await.unwrap();
        let groups = backend.kernel_limits() == (true, true);
        Self { sandbox, groups, _dir: dir }
    }

    pub(crate) async fn run(&self, exec: &ExecRequest) -> ExecOutput {
        capture(&*self.sandbox, exec, 1 << 20).await.unwrap()
    }

    pub(crate) async fn sh(&self, line: &str) -> ExecOutput {
        self.run(&ExecRequest::shell(line, LONG)).await
    }

    /// Checks that the sandbox can be used as if nothing had happened.
    pub(crate) async fn assert_usable(&self) {
        let output = self.sh("echo usable | cat; test ! -e /nonexistent").await;
        assert_eq!(
            (output.stdout_text().as_str(), output.exit.status),
            ("usable\n", ExecStatus::Code(0)),
            "{output:?}"
        );
    }

    fn has_program(program: &str) -> bool {
        let found = std::path::Path::new("/usr/bin").join(program).exists();
        if !found {
            skip_or_fail(&format!("a limit was not tried: there is no {program} on this host"));
        }
        found
    }
}

/// Measures the latency of the host: of its own tasks, and of programs it starts.
struct HostLatencyMonitor {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl HostLatencyMonitor {
    fn start() -> Self {
        let (stop, worst) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let record = |worst: &AtomicU64, began: Instant| {
            worst.fetch_max(u64::try_from(began.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
        };
        let (over, most) = (stop.clone(), worst.clone());
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert!(std::process::Command::new("true").status().unwrap().success());
                record(&most, began);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let most = worst.clone();
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(Duration::from_millis(20)).await;
                record(&most, began);
            }
        });
        Self { stop, worst, thread: Some(thread), task }
    }

    fn check(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.abort();
        self.thread.take().unwrap().join().unwrap();
        let worst = self.worst.load(Ordering::Relaxed);
        assert!(worst < 2000, "the host did not answer for {worst} ms");
    }
}

/// Runs a test with the kernel's control groups and without.
async fn with_and_without_cgroups(resources: SandboxLimits, work: impl AsyncFn(&TestCage)) {
    for groups in [true, false] {
        let cage = TestCage::new(resources, groups).await;
        if groups && !cage.groups {
            // There are no groups here, and the test without them runs anyway.
            continue;
        }
        let monitor = HostLatencyMonitor::start();
        work(&cage).await;
        monitor.check();
        cage.sandbox.destroy().await.unwrap();
    }
}

fn pids(pids: u64) -> SandboxLimits {
    SandboxLimits { pids: Some(pids), ..SandboxLimits::default() }
}

fn memory(mib: u64) -> SandboxLimits {
    SandboxLimits { memory: Some(mib * MIB), ..SandboxLimits::default() }
}

fn disk(mib: u64) -> SandboxLimits {
    SandboxLimits { disk: Some(mib * MIB), ..SandboxLimits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_held_and_ends_with_its_time() {
    with_and_without_cgroups(pids(64), async |cage| {
        let began = Instant::now();
        let line = "mkfifo p; for i in $(seq 40); do sleep 20 & done; b() { b & b & sleep 1; }; b & read x < p";
        let output = cage.run(&ExecRequest::shell(line, Duration::from_secs(3))).await;
        // Without groups the kernel reports no refusal, and a table that is full only briefly may go unseen.
        let unseen = !cage.groups && output.exit.limit.is_none();
        assert!(unseen || output.exit.limit == Some(ResourceLimit::Processes), "{:?}", output.exit);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // Dash gives up if it cannot fork; the test does not wait for the processes that are left.
        cage.sandbox.stop().await.unwrap();
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_limit_is_reported_even_when_the_command_ends_at_once() {
    with_and_without_cgroups(pids(64), async |cage| {
        let output = cage.sh("for i in $(seq 200); do sleep 300 & done").await;
        assert_eq!((output.exit.success(), output.exit.limit), (false, Some(ResourceLimit::Processes)), "{output:?}");
        // The processes it left fill the limit: the next command reports it in one of two ways.
        let full = capture(&*cage.sandbox, &ExecRequest::shell("true | true", LONG), 4096).await;
        match full {
            Ok(output) => assert_eq!(output.exit.limit, Some(ResourceLimit::Processes), "{output:?}"),
            Err(Error::Spawn { source, .. }) => assert!(source.to_string().contains("stop it"), "{source}"),
            Err(error) => panic!("{error}"),
        }
        cage.sandbox.stop().await.unwrap();
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_exceeds_the_memory_limit_is_killed() {
    with_and_without_cgroups(memory(256), async |cage| {
        let output = cage.run(&ExecRequest::new(["tail", "/dev/zero"], LONG)).await;
        assert_eq!((output.exit.status, output.exit.limit), (ExecStatus::Signal(9), Some(ResourceLimit::Memory)));
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_take_all_memory_together_are_ended() {
    with_and_without_cgroups(memory(256), async |cage| {
        let line = "for i in $(seq 30); do (head -c 20M /dev/zero; sleep 15) | tail -c 20M > /dev/null & done; wait";
        let output = cage.run(&ExecRequest::shell(line, LONG)).await;
        assert_eq!(output.exit.limit, Some(ResourceLimit::Memory), "{:?}", output.exit);
        cage.sandbox.stop().await.unwrap();
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_directories_in_memory_leave_enough_memory() {
    with_and_without_cgroups(memory(256), async |cage| {
        let line =
            "for at in /tmp /var/tmp /dev/shm /run/user/1000; do head -c 300M /dev/zero > $at/fill; done; echo $?";
        let output = cage.sh(line).await;
        assert!(output.stderr_text().contains("No space left"), "{output:?}");
        assert_eq!(output.exit.limit, None, "{output:?}");
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unnamed_and_shared_memory_counts() {
    let lines = [
        "import os\nf=os.memfd_create('x')\nwhile True: os.write(f, b'x'*(1<<20))",
        "import mmap\nm=mmap.mmap(-1, 2<<30)\nwhile True: m.write(b'x'*(1<<20))",
        "import os,time\n\
         for n in range(8):\n f=os.memfd_create(str(n))\n for i in range(64): os.write(f, b'x'*(1<<20))\n\
         time.sleep(20)",
    ];
    with_and_without_cgroups(memory(256), async |cage| {
        if !TestCage::has_program("python3") {
            return;
        }
        for line in lines {
            let began = Instant::now();
            let output = cage.run(&ExecRequest::new(["python3", "-c", line], LONG)).await;
            let got = (output.exit.status, output.exit.limit);
            assert_eq!(got, (ExecStatus::Signal(9), Some(ResourceLimit::Memory)), "{line}: {}", output.stderr_text());
            assert!(began.elapsed() < Duration::from_secs(15), "{line}: {:?}", began.elapsed());
            cage.assert_usable().await;
        }
    })
    .await;
}

/// A limit that is reached while several commands run is reported to all of them, as the contract says; only the
/// command that exceeded it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_reported_to_all_running_commands() {
    with_and_without_cgroups(memory(256), async |cage| {
        let hog = ExecRequest::new(["tail", "/dev/zero"], LONG);
        let (innocent, hog) = tokio::join!(cage.sh("sleep 3; echo done"), cage.run(&hog));
        assert_eq!((hog.exit.status, hog.exit.limit), (ExecStatus::Signal(9), Some(ResourceLimit::Memory)));
        assert_eq!(innocent.exit.limit, Some(ResourceLimit::Memory), "{innocent:?}");
        // Without groups it is unknown whose memory it is, and all commands are killed.
        let want = if cage.groups { ExecStatus::Code(0) } else { ExecStatus::Signal(9) };
        assert_eq!(innocent.exit.status, want);
        let before = cage.sh("(sleep 1; exec tail /dev/zero) > /dev/null 2>&1 & echo left").await;
        assert_eq!((before.stdout_text().as_str(), before.exit.limit), ("left\n", None));
        let after = cage.sh("sleep 5; echo done").await;
        assert_eq!((after.exit.status, after.exit.limit), (want, Some(ResourceLimit::Memory)));
        let later = cage.sh("echo later").await;
        assert_eq!((later.exit.status, later.exit.limit), (ExecStatus::Code(0), None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_usage_is_limited() {
    let lines = [
        ("one file", "head -c 200M /dev/zero > big"),
        ("many files", "for i in $(seq 40); do head -c 5M /dev/zero > f$i; done; sleep 20"),
        ("small files", "seq 1000000 | xargs -n 500 touch; sleep 20"),
        ("the home", "for i in $(seq 40); do head -c 5M /dev/zero > ~/f$i; done; sleep 20"),
        ("no names", "for i in 3 4 5 6; do eval \"exec $i>gone; rm gone; head -c 50M /dev/zero >&$i\"; done; sleep 20"),
        ("locked", "for i in 1 2 3 4; do mkdir l$i; head -c 40M /dev/zero > l$i/f; chmod 000 l$i; done; sleep 20"),
        (
            "deep",
            "d=$(printf %0200d 0); for i in $(seq 70); do mkdir $d; cd -P $d; done; \
             for i in $(seq 40); do head -c 5M /dev/zero > f$i; done; sleep 20",
        ),
    ];
    for (what, line) in lines {
        with_and_without_cgroups(disk(64), async |cage| {
            let began = Instant::now();
            let output = cage.run(&ExecRequest::shell(line, LONG)).await;
            assert_eq!(output.exit.limit, Some(ResourceLimit::Disk), "{what}: {output:?}");
            assert!(began.elapsed() < Duration::from_secs(15), "{what}: {:?}", began.elapsed());
            // The sandbox is over its limit; its files can still be removed.
            let output = cage.sh("chmod -R u+rwx . ; rm -rf * ~/*; ls -A").await;
            assert_eq!((output.stdout_text().as_str(), output.exit.limit), ("", None), "{what}: {output:?}");
            cage.assert_usable().await;
        })
        .await;
    }
}

/// More space becomes free on the disk than the sandbox takes, and the directory it writes to is locked.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_free_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let others = dir.path().join("others");
    let file = std::fs::File::create(&others).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1024 * MIB).unwrap();
    drop(file);
    let cage = TestCage::new(disk(64), true).await;
    cage.assert_usable().await;
    std::fs::remove_file(&others).unwrap();
    // Each file is below the limit for one file.
    let line = "mkdir locked; exec 3>locked/a 4>locked/b; chmod 0 locked; head -c 40M /dev/zero >&3; \
                sleep 3; head -c 40M /dev/zero >&4; sleep 30";
    let began = Instant::now();
    let output = cage.sh(line).await;
    assert_eq!(output.exit.limit, Some(ResourceLimit::Disk), "{output:?}");
    // Killed because of both files, and not because of the first alone.
    assert!((3..30).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_and_sparse_files_take_no_disk() {
    with_and_without_cgroups(disk(64), async |cage| {
        let line = "head -c 30M /dev/zero > a; for i in $(seq 20); do ln a a$i; done; \
            for i in $(seq 20); do truncate -s 60M hole$i; done; sleep 3; echo done";
        let output = cage.sh(line).await;
        assert_eq!((output.stdout_text().as_str(), output.exit.limit), ("done\n", None), "{output:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_files_are_reported() {
    with_and_without_cgroups(disk(64), async |cage| {
        let output = cage.run(&ExecRequest::new(["truncate", "-s", "1T", "long"], LONG)).await;
        assert_eq!((output.exit.status, output.exit.limit), (ExecStatus::Signal(25), Some(ResourceLimit::Disk)));
        let output = cage.sh("truncate -s 1T long; exit $?").await;
        assert_eq!((output.exit.status, output.exit.limit), (ExecStatus::Code(153), Some(ResourceLimit::Disk)));
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_use_is_limited() {
    let resources = SandboxLimits { cpus: Some(1000), ..SandboxLimits::default() };
    with_and_without_cgroups(resources, async |cage| {
        let line = "p=; for i in $(seq 64); do yes > /dev/null & p=\"$p $!\"; done; sleep 3; kill $p; wait; times";
        let output = cage.run(&ExecRequest::shell(line, LONG)).await;
        let text = output.stdout_text();
        let used: f64 = text.lines().last().unwrap().split(' ').map(parse_times).sum();
        let spent = output.exit.duration.as_secs_f64();
        assert!(used > 0.2 && used < spent * 1.3, "{used} of {spent}: {text}");
    })
    .await;
}

/// Parses one value of `times`: `0m1.520000s`.
fn parse_times(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_and_sockets_are_limited() {
    let lines = [
        "import os,errno\nn=0\ntry:\n while n<200000: os.open('/dev/null',0); n+=1\nexcept OSError as e: print(e.errno==errno.EMFILE)",
        "import socket,errno\nk=[]\ntry:\n while len(k)<200000: k.append(socket.socket())\nexcept OSError as e: print(e.errno==errno.EMFILE)",
    ];
    with_and_without_cgroups(memory(1024), async |cage| {
        if !TestCage::has_program("python3") {
            return;
        }
        for line in lines {
            let output = cage.run(&ExecRequest::new(["python3", "-c", line], LONG)).await;
            assert_eq!(output.stdout_text(), "True\n", "{output:?}");
        }
        cage.assert_usable().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zombies_are_reaped() {
    with_and_without_cgroups(pids(1000), async |cage| {
        let line = "i=0; while [ $i -lt 2000 ]; do (true &); i=$((i+1)); done; \
            for i in $(seq 100); do set -- $(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null); \
            [ $# = 0 ] && break; sleep 0.1; done; echo $#; ls -d /proc/[0-9]* | wc -l";
        let output = cage.sh(line).await;
        let text = output.stdout_text();
        let mut lines = text.lines();
        assert_eq!((lines.next(), output.exit.limit), (Some("0"), None), "{output:?}");
        let processes: u32 = lines.next().unwrap().trim().parse().unwrap();
        assert!(processes <= 6, "{text}");
        // The same after the command supervisors have ended: process 1 reaps the processes they left.
        for _ in 0..20 {
            cage.sh("(sleep 0.2 &); (sleep 0.2 &)").await;
        }
        let output = cage.sh("sleep 1; ls -d /proc/[0-9]* | wc -l").await;
        assert!(output.stdout_text().trim().parse::<u32>().unwrap() <= 6, "{output:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_signals_times_out() {
    with_and_without_cgroups(SandboxLimits::default(), async |cage| {
        let line = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & \
            while :; do sleep 1; done";
        let began = Instant::now();
        let output = cage.run(&ExecRequest::shell(line, Duration::from_secs(1))).await;
        assert_eq!(output.exit.status, ExecStatus::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        let left = cage.sh("ls -d /proc/[0-9]* | wc -l").await;
        assert!(left.stdout_text().trim().parse::<u32>().unwrap() <= 6, "{left:?}");
    })
    .await;
}

/// A command supervisor is a process that the agent can stop: that must not let a command outlive its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_keeps_nothing_alive() {
    with_and_without_cgroups(SandboxLimits::default(), async |cage| {
        let line = "kill -STOP $PPID; echo $$ > pid; exec sleep 120";
        let began = Instant::now();
        let output = cage.run(&ExecRequest::shell(line, Duration::from_secs(1))).await;
        assert_eq!(output.exit.status, ExecStatus::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // The same when the caller drops the command.
        let exec = ExecRequest::shell("kill -STOP $PPID; touch here; exec sleep 120", LONG);
        let mut sink = OutputCapture::new(0);
        let dropped = tokio::time::timeout(Duration::from_secs(2), cage.sandbox.exec(&exec, &mut sink)).await;
        assert!(dropped.is_err());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let left = cage.sh("ls -d /proc/[0-9]* | wc -l").await;
            if left.stdout_text().trim().parse::<u32>().is_ok_and(|count| count <= 6) {
                break;
            }
            assert!(Instant::now() < until, "{left:?}");
        }
    })
    .await;
}

const FLOOD_VARIABLE: &str = "RALPH_TEST_FLOOD";

#[derive(Default)]
struct FloodByteCounter(u64);

impl OutputSink for FloodByteCounter {
    fn chunk(&mut self, _: OutputStream, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

/// Does nothing in a normal test run; started by the test below, it reads two gibibytes of output and checks its
/// memory.
#[tokio::test]
async fn be_flooded() {
    if std::env::var_os(FLOOD_VARIABLE).is_none() {
        return;
    }
    let cage = TestCage::new(SandboxLimits::default(), true).await;
    let mut count = FloodByteCounter::default();
    let exit = cage.sandbox.exec(&ExecRequest::shell("head -c 2G /dev/zero", LONG), &mut count).await.unwrap();
    assert_eq!((exit.status, count.0), (ExecStatus::Code(0), 2 << 30));
    cage.sandbox.destroy().await.unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 100 << 10, "it took {peak} KiB");
}

#[test]
fn large_output_takes_no_memory() {
    let flooded = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::be_flooded", "--nocapture"])
        .env(FLOOD_VARIABLE, "1")
        .output()
        .unwrap();
    assert!(flooded.status.success(), "{}", String::from_utf8_lossy(&flooded.stderr));
}

/// Instances of inotify are counted per user of the host, across all its programs.
#[tokio::test]
async fn a_cage_leaves_inotify_instances_to_its_user() {
    if !TestCage::has_program("python3") {
        return;
    }
    let cage = TestCage::new(SandboxLimits::default(), true).await;
    let script =
        "import ctypes\nlibc = ctypes.CDLL(None)\nn = 0\nwhile n < 1000 and libc.inotify_init() >= 0: n += 1\nprint(n)";
    let output = cage.run(&ExecRequest::new(["/usr/bin/python3", "-c", script], LONG)).await;
    let taken: u64 = output.stdout_text().trim().parse().unwrap();
    assert!((1..=64).contains(&taken), "{output:?}");
    cage.assert_usable().await;
}
