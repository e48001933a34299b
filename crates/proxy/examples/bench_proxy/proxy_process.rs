//! Runs a proxy as a process: starts it, waits until it listens, and stops it when the value is dropped.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ralph_testkit::bench::{BenchResult, read_kib};

/// Some take long to start; all stop on a signal.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ProxyProcess {
    child: Child,
}

impl ProxyProcess {
    /// Starts a program whose output goes to a file, and waits until it listens.
    pub(crate) fn start(mut command: Command, address: SocketAddr, log: &Path) -> BenchResult<Self> {
        let file = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut running = Self { child: command.spawn()? };
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(running);
            }
            let ended = running.child.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                let output = fs::read_to_string(log).unwrap_or_default();
                let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
                return Err(format!("it does not start: {last}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Takes over a program that already listens.
    pub(crate) fn adopt(child: Child) -> Self {
        Self { child }
    }

    /// Returns the memory of the process and its descendants, in MiB; shared pages are counted proportionally.
    pub(crate) fn memory(&self) -> Option<f64> {
        let mut sum = 0.0;
        let mut left = vec![self.child.id()];
        while let Some(pid) = left.pop() {
            sum += read_kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")?;
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            left.extend(
                lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()),
            );
        }
        Some(sum / 1024.0)
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // Terminated, not killed, so that it stops its own child processes.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port of this host that is currently free.
pub(crate) fn free_port() -> BenchResult<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
