//! Tests a backend unknown to the engine, with its own egress: `sandbox_lifecycle::create` must be enough for it.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::env_vars::Env;
use ralph_core::event::Event;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_engine::egress::EgressRequest;
use ralph_engine::host_environment::HostContext;
use ralph_engine::sandbox_lifecycle::{self, SandboxRequest};
use ralph_engine::store::RalphHome;
use ralph_sandbox::files::FolderWatch;
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{
    Backend, BackendCapabilities, BackendCheck, DirectoryEntry, EgressServer, EgressSockets, EgressSupport, Error,
    ExecExit, ExecRequest, FileStamp, OutputSink, PruneResult, PruneRule, Sandbox, SandboxSpec, SandboxSummary,
    ServeGuard, capture,
};

/// Local sandboxes, each with a proxy on its own port.
#[derive(Debug)]
struct LoopbackBackend {
    inner: LocalBackend,
    server: Arc<dyn EgressServer>,
}

#[derive(Debug)]
struct LoopbackSandbox {
    inner: Arc<dyn Sandbox>,
    url: String,
    _guard: ServeGuard,
}

#[async_trait]
impl Backend for LoopbackBackend {
    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities { name: "loopback", egress: EgressSupport::Proxy, ..self.inner.capabilities() }
    }

    async fn checks(&self) -> Vec<BackendCheck> {
        self.inner.checks().await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let inner = self.inner.create(spec).await?;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sockets = EgressSockets { explicit: Some(listener), ..EgressSockets::default() };
        let guard = self.server.serve(&spec.name, &spec.labels, sockets).unwrap();
        Ok(Arc::new(LoopbackSandbox { inner, url, _guard: guard }))
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        self.inner.open(id).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, Error> {
        self.inner.list().await
    }

    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error> {
        self.inner.prune(rule, dry_run).await
    }
}

#[async_trait]
impl Sandbox for LoopbackSandbox {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn workspace(&self) -> &Path {
        self.inner.workspace()
    }

    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error> {
        self.inner.exec(exec, sink).await
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
        Some(self.url.clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_from_inside_is_decided_and_audited() {
    let dir = tempfile::tempdir().unwrap();
    let home = RalphHome::new(dir.path().join("state"), dir.path().join("config"));
    let path = std::env::var("PATH").unwrap();
    let host = HostContext::open(home, Env::new([("PATH".to_owned(), path.clone())])).await.unwrap();
    let server = Arc::clone(host.egress()) as Arc<dyn EgressServer>;
    let inner = LocalBackend::with_path(dir.path().join("boxes"), path.into());
    let host = host.with_backend(Arc::new(LoopbackBackend { inner, server }));

    let backend = host.backend("loopback").unwrap();
    let policy = Policy::parse(PolicyMode::Allowlist, &["allowed.test"], &[]).unwrap();
    let audit_folder = Some(host.home.exec_audit_folder("second"));
    let egress = Some(EgressRequest { audit_folder, ..EgressRequest::from(policy) });
    let spec = SandboxSpec { name: "second".to_owned(), ..SandboxSpec::default() };
    let made = sandbox_lifecycle::create(&host, SandboxRequest { backend: &*backend, spec, egress }).await.unwrap();

    let line = r#"bash -c 'at=${https_proxy#http://}; exec 3<>/dev/tcp/${at%:*}/${at#*:}
        printf "CONNECT refused.test:443 HTTP/1.1\r\nHost: refused.test:443\r\n\r\n" >&3; head -n 1 <&3'"#;
    let output = capture(&*made.sandbox, &ExecRequest::shell(line, Duration::from_secs(20)), 4096).await.unwrap();
    assert!(output.stdout_text().contains(" 403 "), "{output:?}");
    let lease = made.lease.unwrap();
    let refusals = lease.take_report().refusals;
    assert!(
        matches!(&refusals[..], [Event::PolicyDenied { host, port: 443, .. }] if host == "refused.test"),
        "{refusals:?}"
    );
    let audited = std::fs::read_to_string(lease.flush_audit().unwrap().unwrap()).unwrap();
    assert!(audited.contains("refused.test"), "{audited}");
    sandbox_lifecycle::discard(&*made.sandbox).await;
    assert_eq!(backend.list().await.unwrap(), []);
}
