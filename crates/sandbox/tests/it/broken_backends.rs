//! Tests the conformance suite itself with backends that are broken in one way each: a suite that cannot fail proves
//! nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ralph_sandbox::conformance::{self, ConformanceOutcome};
use ralph_sandbox::files::FolderWatch;
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{
    Backend, BackendCapabilities, BackendCheck, DirectoryEntry, Error, ExecExit, ExecRequest, ExecStatus, FileStamp,
    OutputSink, OutputStream, PruneResult, PruneRule, Sandbox, SandboxSpec, SandboxSummary,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackendFault {
    ReadFollowsLinks,
    WriteInPlace,
    TimeoutDoesNotKill,
    OutputAtTheEnd,
    StreamsMixed,
    DestroyForgets,
    DryRunRemoves,
}

#[derive(Debug)]
struct BrokenBackend {
    inner: LocalBackend,
    fault: BackendFault,
}

#[derive(Debug)]
struct BrokenSandbox {
    inner: Arc<dyn Sandbox>,
    fault: BackendFault,
}

impl BrokenBackend {
    fn wrap(&self, inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        Arc::new(BrokenSandbox { inner, fault: self.fault })
    }
}

#[async_trait]
impl Backend for BrokenBackend {
    fn capabilities(&self) -> BackendCapabilities {
        self.inner.capabilities()
    }

    async fn checks(&self) -> Vec<BackendCheck> {
        self.inner.checks().await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        Ok(self.wrap(self.inner.create(spec).await?))
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        Ok(self.wrap(self.inner.open(id).await?))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, Error> {
        self.inner.list().await
    }

    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error> {
        self.inner.prune(rule, dry_run && self.fault != BackendFault::DryRunRemoves).await
    }
}

/// Collects all output and forwards it when the command has ended.
#[derive(Default)]
struct LateOutputSink(Vec<(OutputStream, Vec<u8>)>);

impl OutputSink for LateOutputSink {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.0.push((stream, bytes.to_vec()));
    }
}

struct MixedStreamSink<'a>(&'a mut dyn OutputSink);

impl OutputSink for MixedStreamSink<'_> {
    fn chunk(&mut self, _: OutputStream, bytes: &[u8]) {
        self.0.chunk(OutputStream::Stdout, bytes);
    }
}

#[async_trait]
impl Sandbox for BrokenSandbox {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn workspace(&self) -> &Path {
        self.inner.workspace()
    }

    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error> {
        match self.fault {
            BackendFault::TimeoutDoesNotKill if exec.timeout < Duration::from_secs(5) => {
                // Reported as a timeout, while the command continues in the background.
                let line = format!("({}) > /dev/null 2>&1 &", exec.argv.last().unwrap());
                self.inner
                    .exec(&ExecRequest { argv: ExecRequest::shell(&line, exec.timeout).argv, ..exec.clone() }, sink)
                    .await?;
                tokio::time::sleep(exec.timeout).await;
                Ok(ExecExit { status: ExecStatus::TimedOut, duration: exec.timeout, limit: None })
            }
            BackendFault::OutputAtTheEnd => {
                let mut late = LateOutputSink::default();
                let exit = self.inner.exec(exec, &mut late).await;
                late.0.iter().for_each(|(stream, bytes)| sink.chunk(*stream, bytes));
                exit
            }
            BackendFault::StreamsMixed => self.inner.exec(exec, &mut MixedStreamSink(sink)).await,
            _ => self.inner.exec(exec, sink).await,
        }
    }

    async fn read(&self, path: &Path, cap: u64) -> Result<Vec<u8>, Error> {
        let there = self.workspace().join(path);
        if self.fault == BackendFault::ReadFollowsLinks && there.is_symlink() && there.is_file() {
            return Ok(std::fs::read(there).unwrap());
        }
        self.inner.read(path, cap).await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error> {
        let there = self.workspace().join(path);
        // Only a plain file of the workspace: this fault must not write anywhere else on the machine that runs the
        // test.
        let real = std::fs::canonicalize(&there).unwrap_or_default();
        let plain = real == there && real.starts_with(self.workspace()) && real.is_file();
        if self.fault == BackendFault::WriteInPlace && plain && mode.is_none() {
            std::fs::write(there, bytes).unwrap();
            return Ok(());
        }
        self.inner.write(path, bytes, mode).await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        self.inner.append(path, bytes).await
    }

    async fn stamps(&self, paths: &[PathBuf]) -> Result<Vec<Option<FileStamp>>, Error> {
        self.inner.stamps(paths).await
    }

    async fn watch_folders(&self, folders: BTreeSet<PathBuf>) -> Result<Option<FolderWatch>, Error> {
        self.inner.watch_folders(folders).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, Error> {
        self.inner.list(path).await
    }

    async fn mkdirs(&self, path: &Path) -> Result<(), Error> {
        self.inner.mkdirs(path).await
    }

    async fn start(&self) -> Result<(), Error> {
        self.inner.start().await
    }

    async fn stop(&self) -> Result<(), Error> {
        self.inner.stop().await
    }

    async fn destroy(&self) -> Result<(), Error> {
        if self.fault == BackendFault::DestroyForgets { self.inner.stop().await } else { self.inner.destroy().await }
    }

    async fn copy_in(&self, host: &Path, path: &Path) -> Result<(), Error> {
        self.inner.copy_in(host, path).await
    }

    async fn copy_out(&self, path: &Path, host: &Path, cap: u64) -> Result<u64, Error> {
        self.inner.copy_out(path, host, cap).await
    }

    fn exchange(&self) -> PathBuf {
        self.inner.exchange()
    }
}

/// Runs the suite against a backend with one fault and compares which cases find it.
async fn check(fault: BackendFault, want: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let broken = BrokenBackend { inner: LocalBackend::new(folder.path().to_owned()), fault };
    let results = conformance::suite(&broken).await;
    // A broken backend may leave locked directories, which the temporary folder cannot remove by itself.
    ralph_sandbox::files::remove_tree(folder.path()).unwrap();
    let missed: Vec<_> = results.iter().filter(|case| case.outcome != ConformanceOutcome::Passed).collect();
    let failed = missed.iter().filter(|case| matches!(case.outcome, ConformanceOutcome::Failed(_)));
    assert_eq!(failed.map(|case| case.name).collect::<Vec<_>>(), want, "{fault:?}: {missed:#?}");
    assert_eq!(missed.len(), want.len(), "{fault:?}: {missed:#?}");
}

/// Runs all faults at once, because each of them mostly waits.
#[tokio::test]
async fn every_fault_is_found() {
    tokio::join!(
        check(
            BackendFault::ReadFollowsLinks,
            &["files: reading refuses all but plain files", "files: the exchange directory"],
        ),
        check(BackendFault::WriteInPlace, &["files: a file is replaced, not rewritten"]),
        check(
            BackendFault::TimeoutDoesNotKill,
            &[
                "timeout: is reported in time, with the output so far",
                "timeout: ends grandchildren",
                "timeout: ends processes that ignore signals",
                "timeout: ends daemons",
            ],
        ),
        check(BackendFault::OutputAtTheEnd, &["exec: output arrives while the command runs"]),
        check(
            BackendFault::StreamsMixed,
            &[
                "exec: stderr is separate",
                "exec: many at once",
                "timeout: is reported in time, with the output so far",
                "background: does not delay the end of the command",
            ],
        ),
        check(
            BackendFault::DestroyForgets,
            &[
                "destroy: nothing is left and the name is free",
                "destroy: removes locked and deep trees",
                "end: nothing of the suite is left",
            ],
        ),
        check(BackendFault::DryRunRemoves, &["prune: a dry run removes nothing", "prune: kept runs stay, others go"]),
    );
}
