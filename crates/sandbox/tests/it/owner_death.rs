//! Tests what happens to commands when the process that started them is killed.
//!
//! The owner is this test program, started again with a variable that turns one of its tests into an owner.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{Backend, ExecRequest, OutputCapture};
use rustix::process::{Pid, Signal, kill_process};

use crate::local::{LONG, spec};
use crate::{eventually, is_alive};

const FOLDER_VARIABLE: &str = "RALPH_TEST_OWNER_FOLDER";
const NAME: &str = "owned";

/// Does nothing in a normal test run; started by the tests below, it runs a command until it is killed.
#[tokio::test]
async fn be_an_owner() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else { return };
    let sandbox = LocalBackend::new(PathBuf::from(folder)).create(&spec(NAME)).await.unwrap();
    let line = "setsid sh -c 'echo $$ > daemon.new; mv daemon.new daemon; exec sleep 600' & \
        sh -c 'echo $$ > child.new; mv child.new child; exec sleep 600' & \
        echo $$ > leader.new; mv leader.new leader; exec sleep 600";
    let exit = sandbox.exec(&ExecRequest::shell(line, LONG * 10), &mut OutputCapture::new(0)).await.unwrap();
    panic!("the command ended while its owner lived: {exit:?}");
}

struct TestOwner(Child);

impl TestOwner {
    fn start(folder: &Path) -> Self {
        let owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "owner_death::be_an_owner", "--nocapture"])
            .env(FOLDER_VARIABLE, folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(owner.unwrap())
    }

    /// Returns the processes that an owner has started in its folder, once all of them run.
    fn processes(folder: &Path) -> Vec<i32> {
        let read = |name: &str| {
            let file = folder.join(NAME).join("workspace").join(name);
            eventually(name, || file.exists());
            fs::read_to_string(file).unwrap().trim().parse().unwrap()
        };
        let pids: Vec<i32> = ["leader", "child", "daemon"].map(read).into();
        assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
        pids
    }

    fn watchdog(&self) -> Pid {
        let owner = self.0.id().to_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok());
        let found = pids.filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_ascii_whitespace().nth(1));
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            parent == Some(&owner) && words.split(|byte| *byte == 0).any(|word| word == b"ralph-watchdog")
        });
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "{found:?}");
        Pid::from_raw(found[0]).unwrap()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for TestOwner {
    fn drop(&mut self) {
        // Both fail if the test has killed it, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_die_with_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = TestOwner::start(folder.path());
    let pids = TestOwner::processes(folder.path());
    owner.kill();
    for pid in pids {
        eventually("a command dies with its owner", || !is_alive(pid));
    }
}

#[tokio::test]
async fn open_ends_the_processes_of_a_dead_owner_and_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = TestOwner::start(folder.path());
    let pids = TestOwner::processes(folder.path());
    let watchdog = owner.watchdog();
    let local = LocalBackend::new(folder.path().to_owned());
    local.open(NAME).await.unwrap();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "a living owner's commands were ended");
    kill_process(watchdog, Signal::KILL).unwrap();
    eventually("the watchdog dies", || !is_alive(watchdog.as_raw_nonzero().get()));
    owner.kill();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "they ended before `open`: {pids:?}");
    local.open(NAME).await.unwrap();
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{pids:?}");
}
