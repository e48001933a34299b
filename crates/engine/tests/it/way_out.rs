//! What a run does when whoever serves its way out dies under a command.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use ralph_core::env::Env;
use ralph_core::event::{Event, Line};
use ralph_core::run::Status;
use ralph_engine::host::Host;
use ralph_engine::run::{Keep, Stops, begin};
use ralph_engine::store::{Announce, Folder, Moment};
use ralph_sandbox::embedded::{Door as _, Doors};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::support::{Case, HandOver, Scenario};

/// A command that is cut off the first time and fails for it, and does its work the second time.
const CUT_OFF: Scenario = Scenario {
    task: r#"---
task_id: cut-001
test_command: "true"
---

# Go on

- [ ] M1.1 There is an out
  - verify: `grep -q done out.txt`
"#,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Out.", "actions": [{"type": "run", "command": "test -z \"$HTTPS_PROXY\" && echo begun >> out.txt; if test -e ../cut; then echo done >> out.txt; else while ! test -e ../cut; do sleep 0.02; done; exit 1; fi"}, {"type": "commit", "message": "out"}, {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.1"]}}, "repeat": true}
"#,
};

struct Quiet;

impl Announce for Quiet {
    fn announce(&self, _: Moment, _: &Line) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_way_out_was_cut_is_run_again() {
    let case = Case::new(CUT_OFF, HandOver::Here);
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
    let host = Host::open(case.home(), env).await.unwrap();
    let mut runner = begin(&host, case.wish(), Box::new(Quiet), Stops::default(), Keep::Always).await.unwrap().runner;
    let folder = case.folder().unwrap();
    let watching = tokio::spawn(cut(host.clone(), folder));
    let ended = timeout(Duration::from_mins(1), runner.drive()).await.expect("the run ends").unwrap().clone();
    let workspace = watching.await.unwrap();
    let lines = case.lines();
    assert_eq!(ended.status, Status::Succeeded, "{lines:?}");
    let count = |wanted: fn(&Event) -> bool| lines.iter().filter(|line| wanted(&line.event)).count();
    // One call was paid for, one action was done, and the tree holds what one run of the command leaves.
    assert_eq!(count(|event| matches!(event, Event::ModelCalled { .. })), 1);
    assert_eq!(count(|event| matches!(event, Event::ActionFinished { index: 0, .. })), 1);
    let told = |event: &Event| matches!(event, Event::Log { text, .. } if text.contains("the command is run again"));
    assert_eq!(lines.iter().filter(|line| told(&line.event)).count(), 1);
    assert_eq!(std::fs::read_to_string(workspace.join("out.txt")).unwrap(), "begun\ndone\n");
}

/// Stands at the doors of the run's sandbox, and dies when the command has begun.
async fn cut(host: Host, folder: Folder) -> PathBuf {
    let sandbox = loop {
        match folder.state().ok().and_then(|state| state.workplace) {
            Some(place) => break place.sandbox,
            None => sleep(Duration::from_millis(5)).await,
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let doors = Doors { explicit: Some(listener), ..Doors::default() };
    let _keeper = host.egress().stand(&sandbox, &BTreeMap::new(), doors).unwrap();
    assert!(answers(address).await, "the door is open");
    let workspace = host.home.sandboxes_dir().join(&sandbox).join("workspace");
    while !workspace.join("out.txt").exists() {
        sleep(Duration::from_millis(5)).await;
    }
    host.egress().fail(&sandbox);
    while host.egress().restarts(&sandbox) == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(answers(address).await, "the door is open again");
    // Now the command may fail; the second time it finds this and goes well.
    std::fs::write(workspace.parent().unwrap().join("cut"), "").unwrap();
    workspace
}

async fn answers(door: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(door).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"mode\":\"deny\"")
}
