//! Tests that the files a command uses are recorded, and that recording changes nothing for the command.

use std::path::Path;
use std::time::Duration;

use ralph_core::proof_files::ObservedFiles;
use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_sandbox::{Backend as _, ExecRequest, ExecStatus, OutputSink, OutputStream, SandboxSpec};

use crate::embedded::options;

const LONG: Duration = Duration::from_mins(1);

#[derive(Default)]
struct ObservingSink {
    output: Vec<u8>,
    observed: Option<ObservedFiles>,
}

impl OutputSink for ObservingSink {
    fn chunk(&mut self, _: OutputStream, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    fn observed(&mut self, files: ObservedFiles) {
        self.observed = Some(files);
    }
}

/// Runs a line in a sandbox with a few files; returns its end, its output and what was recorded.
pub(crate) async fn observe(line: &str, timeout: Duration) -> (ExecStatus, String, Option<ObservedFiles>) {
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let sandbox = backend.create(&SandboxSpec { name: "observed".to_owned(), ..SandboxSpec::default() }).await.unwrap();
    for (path, text) in [("a.txt", "a\n"), ("lib/b.sh", "echo b\n"), ("lib/c.txt", "c\n")] {
        sandbox.write(Path::new(path), text.as_bytes(), Some(0o644)).await.unwrap();
    }
    let mut sink = ObservingSink::default();
    let exit = sandbox.exec(&ExecRequest::shell(line, timeout).separated().observed(), &mut sink).await.unwrap();
    sandbox.destroy().await.unwrap();
    (exit.status, String::from_utf8(sink.output).unwrap(), sink.observed)
}

/// What a line reads, lists and does not find, and how it ends.
pub(crate) async fn check_records() {
    for (line, status, read, listed, missing) in [
        ("cat a.txt", 0, "a.txt", "", ""),
        ("cd lib && sh b.sh && cat ../a.txt ./c.txt", 0, "a.txt lib/b.sh lib/c.txt", "", ""),
        ("ls lib", 0, "", "lib", ""),
        ("cat none.txt; test -e lib/none; exit 3", 3, "", "", "lib/none none.txt"),
        ("echo x > new.txt; cat new.txt", 0, "new.txt", "", ""),
        ("ln -s lib/b.sh link; sh link", 0, "lib/b.sh link", "", ""),
        ("cat a.txt & wait; sh -c 'cat lib/c.txt' | cat", 0, "a.txt lib/c.txt", "", ""),
        ("kill -9 $$", -9, "", "", ""),
        ("true", 0, "", "", ""),
    ] {
        let (ended, output, observed) = observe(line, LONG).await;
        let want = if status < 0 { ExecStatus::Signal(-status) } else { ExecStatus::Code(status) };
        assert_eq!(ended, want, "{line}: {output}");
        let found = observed.unwrap_or_else(|| panic!("{line}: nothing was recorded"));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let list = |paths: std::collections::BTreeSet<String>| paths.into_iter().collect::<Vec<_>>();
        let missing_paths: Vec<String> = found.missing.into_keys().collect();
        assert_eq!((list(found.read), list(found.listed)), (words(read), words(listed)), "{line}");
        assert_eq!(missing_paths, words(missing), "{line}");
    }
}

#[tokio::test]
async fn files_are_recorded() {
    check_records().await;
}

/// A command that is killed, or that leaves a process behind, ends as it would without an observer.
#[tokio::test]
async fn the_end_of_a_command_is_its_own() {
    let (status, _, _) = observe("while :; do cat a.txt > /dev/null; done", Duration::from_millis(300)).await;
    assert_eq!(status, ExecStatus::TimedOut);
    let (status, output, observed) = observe("(sleep 60 > /dev/null 2>&1 &); cat a.txt", LONG).await;
    assert_eq!((status, output.as_str()), (ExecStatus::Code(0), "a\n"));
    assert!(observed.is_some_and(|found| found.read.contains("a.txt")));
}

/// Many processes at once all wait for the same observer.
#[tokio::test]
async fn many_processes_are_observed() {
    let line = "i=0; while [ $i -lt 40 ]; do (cat a.txt lib/c.txt missing-$i > /dev/null 2>&1) & i=$((i+1)); done; wait; echo done";
    let (status, output, observed) = observe(line, LONG).await;
    assert_eq!((status, output.as_str()), (ExecStatus::Code(0), "done\n"));
    let found = observed.expect("a record");
    assert_eq!(found.missing.len(), 40, "{found:?}");
}
