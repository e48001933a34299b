//! Wraps a sandbox so that every command gets the variables of its grant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ralph_sandbox::files::FolderWatch;
use ralph_sandbox::{DirectoryEntry, Error, ExecExit, ExecRequest, FileStamp, OutputSink, Sandbox};

/// Adds variables to every command. They are held in memory only, never on disk.
#[derive(Debug)]
pub(super) struct EnvSandbox {
    pub(super) inner: Arc<dyn Sandbox>,
    pub(super) env: Vec<(String, String)>,
    /// Keeps the lease alive for a sandbox whose caller does not hold it.
    pub(super) _lease: Option<super::EgressLease>,
}

/// Keeps a lease for as long as the returned sandbox is held.
pub(crate) fn hold_lease(inner: Arc<dyn Sandbox>, lease: super::EgressLease) -> Arc<dyn Sandbox> {
    Arc::new(EnvSandbox { inner, env: Vec::new(), _lease: Some(lease) })
}

#[async_trait]
impl Sandbox for EnvSandbox {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn workspace(&self) -> &Path {
        self.inner.workspace()
    }

    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error> {
        let mut exec = exec.clone();
        // Variables that the caller sets take precedence, because they come last.
        exec.env = self.env.iter().cloned().chain(exec.env).collect();
        self.inner.exec(&exec, sink).await
    }

    async fn read(&self, path: &Path, cap: u64) -> Result<Vec<u8>, Error> {
        self.inner.read(path, cap).await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error> {
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

    async fn release(&self) -> Result<(), Error> {
        self.inner.release().await
    }

    async fn destroy(&self) -> Result<(), Error> {
        self.inner.destroy().await
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

    fn egress_url(&self) -> Option<String> {
        self.inner.egress_url()
    }

    async fn snapshot(&self) -> Result<String, Error> {
        self.inner.snapshot().await
    }
}
