//! Sets up what the attacks need: a folder with files to attack, sandboxes with and without isolation mechanisms, and
//! commands on the host, which only touch that folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions, IsolationMechanism};
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{
    Backend, Error, ExecOutput, ExecRequest, Sandbox, SandboxLabel, SandboxLimits, SandboxSpec, capture,
};

use super::attacked_backend::RedteamTarget;
use super::case::SandboxAttackError;
use super::probe;

/// The timeout of payloads whose case is not about time.
pub(super) const LONG: Duration = Duration::from_secs(20);
const OUTPUT_CAP: usize = 1 << 18;

pub(super) struct SandboxArena<'a> {
    target: &'a RedteamTarget<'a>,
    pub(super) token: String,
    pub(super) folder: PathBuf,
    /// A secret that must never be visible inside; any process that reaches its file can read it.
    pub(super) canary: String,
    /// The Landlock version of this kernel.
    pub(super) landlock: u8,
    env: Vec<(String, String)>,
    host: Arc<dyn Sandbox>,
    backends: Mutex<BTreeMap<Vec<IsolationMechanism>, Arc<EmbeddedBackend>>>,
    shared_sandboxes: tokio::sync::Mutex<BTreeMap<Vec<IsolationMechanism>, Arc<dyn Sandbox>>>,
    made: AtomicU32,
    pub(super) listeners: HostListeners,
    victim: Mutex<Child>,
}

/// Listeners on the host that nothing inside may ever reach.
#[derive(Debug)]
pub(super) struct HostListeners {
    v4: TcpListener,
    v6: Option<TcpListener>,
    udp: UdpSocket,
    stream: UnixListener,
    datagram: UnixDatagram,
    abstract_stream: UnixListener,
    abstract_datagram: UnixDatagram,
}

impl HostListeners {
    fn new(folder: &Path, token: &str) -> io::Result<Self> {
        let hidden = |name: &str| SocketAddr::from_abstract_name(format!("ralph-redteam-{token}{name}"));
        let all = Self {
            v4: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            // A host without IPv6 has nothing to attack there.
            v6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            udp: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            stream: UnixListener::bind(folder.join("stream"))?,
            datagram: UnixDatagram::bind(folder.join("datagram"))?,
            abstract_stream: UnixListener::bind_addr(&hidden("")?)?,
            abstract_datagram: UnixDatagram::bind_addr(&hidden("-d")?)?,
        };
        for socket in ["stream", "datagram"] {
            fs::set_permissions(folder.join(socket), fs::Permissions::from_mode(0o777))?;
        }
        all.v4.set_nonblocking(true)?;
        all.v6.as_ref().map_or(Ok(()), |v6| v6.set_nonblocking(true))?;
        all.udp.set_nonblocking(true)?;
        all.stream.set_nonblocking(true)?;
        all.datagram.set_nonblocking(true)?;
        all.abstract_stream.set_nonblocking(true)?;
        all.abstract_datagram.set_nonblocking(true)?;
        Ok(all)
    }

    /// Returns how many connections and packets arrived since the last call.
    pub(super) fn hits(&self) -> usize {
        let mut room = [0; 512];
        let mut hits = 0;
        let mut count = |came: &mut dyn FnMut() -> bool| {
            while came() {
                hits += 1;
            }
        };
        count(&mut || self.v4.accept().is_ok());
        count(&mut || self.v6.as_ref().is_some_and(|v6| v6.accept().is_ok()));
        count(&mut || self.stream.accept().is_ok());
        count(&mut || self.abstract_stream.accept().is_ok());
        count(&mut || self.udp.recv(&mut room).is_ok());
        count(&mut || self.datagram.recv(&mut room).is_ok());
        count(&mut || self.abstract_datagram.recv(&mut room).is_ok());
        hits
    }
}

impl<'a> SandboxArena<'a> {
    pub(super) async fn new(target: &'a RedteamTarget<'a>) -> Result<Self, SandboxAttackError> {
        if let RedteamTarget::Other(backend) = target
            && !backend.capabilities().isolation.is_isolated()
        {
            // These are real attacks: without isolation they would hit the host.
            return Err(SandboxAttackError::Skip("this backend does not isolate, so no attack is tried".to_owned()));
        }
        let token = random_token()?;
        let folder = fs::canonicalize(std::env::temp_dir())?.join(format!("ralph-redteam-{token}"));
        let canary = format!("canary-{}", random_token()?);
        let program = match target {
            RedteamTarget::Cage(EmbeddedOptions { program: Some(program), .. }) => program.clone(),
            _ => std::env::current_exe()?,
        };
        create_targets(&folder, &canary, &program)?;
        let recorders = HostListeners::new(&folder, &token)?;
        let victim = spawn_victim()?;
        let host = LocalBackend::new(folder.join("host")).create(&spec("control")).await?;
        let mut env = vec![
            ("PROBE".to_owned(), folder.join("tool").join(probe::PROBE_NAME).display().to_string()),
            ("FOLDER".to_owned(), folder.display().to_string()),
            ("CANARY".to_owned(), folder.join("home/.ssh/id_canary").display().to_string()),
            ("SECRET".to_owned(), folder.join("tool/credentials").display().to_string()),
            ("TOOL".to_owned(), folder.join("tool").display().to_string()),
            ("SPARE".to_owned(), folder.join("spare").display().to_string()),
            ("VICTIM".to_owned(), victim.id().to_string()),
            ("V4".to_owned(), recorders.v4.local_addr()?.to_string()),
            ("UDP".to_owned(), recorders.udp.local_addr()?.to_string()),
            ("HIDDEN".to_owned(), format!("@ralph-redteam-{token}")),
            ("KEY".to_owned(), format!("0x{}", token.get(..7).unwrap_or("5a5a5a5"))),
        ];
        if let Some(v6) = &recorders.v6 {
            env.push(("V6".to_owned(), v6.local_addr()?.to_string()));
        }
        let mut arena = Self {
            target,
            landlock: 0,
            token,
            folder,
            canary,
            env,
            host,
            backends: Mutex::default(),
            shared_sandboxes: tokio::sync::Mutex::default(),
            made: AtomicU32::new(0),
            listeners: recorders,
            victim: Mutex::new(victim),
        };
        let version = arena.run_on_host("\"$PROBE\" number 444 0 0 1").await?;
        arena.landlock = version.trim().strip_prefix("ok ").and_then(|number| number.parse().ok()).unwrap_or(0);
        Ok(arena)
    }

    /// Returns the embedded backend without these mechanisms and without those that the target lacks.
    pub(super) fn embedded_backend(
        &self,
        without: &[IsolationMechanism],
    ) -> Result<Arc<EmbeddedBackend>, SandboxAttackError> {
        let RedteamTarget::Cage(options) = self.target else {
            return Err(SandboxAttackError::Skip("the mechanisms of this backend cannot be disabled".to_owned()));
        };
        let mut without: Vec<IsolationMechanism> =
            without.iter().chain(&options.disabled_mechanisms).copied().collect();
        without.sort_unstable();
        without.dedup();
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        let number = backends.len();
        let backend = backends.entry(without.clone()).or_insert_with(|| {
            let mut options = EmbeddedOptions {
                dir: self.folder.join(format!("cages-{number}")),
                disabled_mechanisms: without,
                ..options.clone()
            };
            options.binds.extend(["tool", "spare"].map(|name| self.folder.join(name)));
            options.masks.push(self.folder.join("tool/credentials"));
            Arc::new(EmbeddedBackend::new(options))
        });
        Ok(backend.clone())
    }

    /// Returns the target's options, if it is the embedded backend.
    pub(super) fn options(&self) -> Result<&EmbeddedOptions, SandboxAttackError> {
        match self.target {
            RedteamTarget::Cage(options) => Ok(options),
            RedteamTarget::Other(_) => Err(SandboxAttackError::Skip("only for cages".to_owned())),
        }
    }

    async fn create(
        &self,
        without: &[IsolationMechanism],
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxAttackError> {
        match self.target {
            RedteamTarget::Other(backend) if without.is_empty() => {
                let sandbox = backend.create(spec).await?;
                sandbox.copy_in(&self.probe(), &sandbox.exchange().join(probe::PROBE_NAME)).await?;
                Ok(sandbox)
            }
            _ => Ok(self.embedded_backend(without)?.create(spec).await?),
        }
    }

    fn spec(&self) -> SandboxSpec {
        spec(&format!("redteam-{}-{}", self.token, self.made.fetch_add(1, Ordering::Relaxed)))
    }

    /// Creates a sandbox for one case.
    pub(super) async fn fresh_sandbox(
        &self,
        without: &[IsolationMechanism],
    ) -> Result<Arc<dyn Sandbox>, SandboxAttackError> {
        self.create(without, &self.spec()).await
    }

    /// Creates a sandbox with small limits.
    pub(super) async fn small_sandbox(
        &self,
        without: &[IsolationMechanism],
    ) -> Result<Arc<dyn Sandbox>, SandboxAttackError> {
        let resources = SandboxLimits { memory: Some(256 << 20), cpus: None, disk: Some(64 << 20), pids: Some(64) };
        self.create(without, &SandboxSpec { resources, ..self.spec() }).await
    }

    /// Creates a sandbox with one processor.
    pub(super) async fn one_cpu_sandbox(&self) -> Result<Arc<dyn Sandbox>, SandboxAttackError> {
        let resources = SandboxLimits { cpus: Some(1000), ..SandboxLimits::default() };
        self.create(&[], &SandboxSpec { resources, ..self.spec() }).await
    }

    /// Returns the sandbox that most cases share.
    pub(super) async fn shared_sandbox(
        &self,
        without: &[IsolationMechanism],
    ) -> Result<Arc<dyn Sandbox>, SandboxAttackError> {
        let mut key = without.to_vec();
        key.sort_unstable();
        key.dedup();
        let mut boxes = self.shared_sandboxes.lock().await;
        if let Some(sandbox) = boxes.get(&key) {
            return Ok(sandbox.clone());
        }
        let sandbox = self.fresh_sandbox(without).await?;
        boxes.insert(key, sandbox.clone());
        Ok(sandbox)
    }

    /// Returns a command with all the variables that payloads use.
    pub(super) fn payload(&self, sandbox: &dyn Sandbox, line: &str, timeout: Duration) -> ExecRequest {
        let mut exec = ExecRequest::shell(line, timeout);
        exec.env.clone_from(&self.env);
        if let RedteamTarget::Other(_) = self.target {
            let probe = sandbox.exchange().join(probe::PROBE_NAME).display().to_string();
            exec.env.push(("PROBE".to_owned(), probe));
        }
        exec
    }

    pub(super) async fn run(&self, sandbox: &dyn Sandbox, line: &str, timeout: Duration) -> Result<ExecOutput, Error> {
        capture(sandbox, &self.payload(sandbox, line, timeout), OUTPUT_CAP).await
    }

    /// Runs a shell line and returns its output.
    pub(super) async fn run_text(&self, sandbox: &dyn Sandbox, line: &str) -> Result<String, Error> {
        let output = self.run(sandbox, line, LONG).await?;
        Ok(format!("{}{}", output.stdout_text(), output.stderr_text()))
    }

    /// Runs a payload in the sandbox without these mechanisms.
    pub(super) async fn run_inside(
        &self,
        without: &[IsolationMechanism],
        line: &str,
    ) -> Result<String, SandboxAttackError> {
        let sandbox = self.shared_sandbox(without).await?;
        Ok(self.run_text(&*sandbox, line).await?)
    }

    /// Runs a payload on the host.
    pub(super) async fn run_on_host(&self, line: &str) -> Result<String, SandboxAttackError> {
        let output =
            capture(&*self.host, &ExecRequest { env: self.env.clone(), ..ExecRequest::shell(line, LONG) }, OUTPUT_CAP)
                .await?;
        Ok(format!("{}{}", output.stdout_text(), output.stderr_text()))
    }

    /// Returns whether the victim process on the host is still running.
    pub(super) fn is_victim_alive(&self) -> bool {
        let mut victim = self.victim.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(victim.try_wait(), Ok(None))
    }

    /// Returns the folder in which payloads on the host run.
    pub(super) fn host_dir(&self) -> &Path {
        self.host.workspace()
    }

    pub(super) fn probe(&self) -> PathBuf {
        self.folder.join("tool").join(probe::PROBE_NAME)
    }

    /// Removes everything the suite has created.
    pub(super) async fn close(self) {
        let boxes = std::mem::take(&mut *self.shared_sandboxes.lock().await);
        for sandbox in boxes.into_values() {
            // The folder is removed below in any case; the cases about leftovers report what cannot be ended.
            let _ = sandbox.destroy().await;
        }
        let _ = self.host.destroy().await;
    }
}

impl Drop for SandboxArena<'_> {
    fn drop(&mut self) {
        let victim = self.victim.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Already gone if an attack worked, which its case has reported.
        let _ = victim.kill();
        let _ = victim.wait();
        // A leftover temporary folder is no reason to fail finished cases.
        let _ = ralph_sandbox::files::remove_tree(&self.folder);
    }
}

fn spec(name: &str) -> SandboxSpec {
    let labels = BTreeMap::from([(SandboxLabel::RUN.to_owned(), "redteam".to_owned())]);
    SandboxSpec { name: name.to_owned(), labels, ..SandboxSpec::default() }
}

/// Starts a process that exists only to be attacked.
pub(super) fn spawn_victim() -> io::Result<Child> {
    // Identified by its odd number; ends by itself if it is not killed.
    Command::new("sleep").arg("600.0426").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Creates what is worth attacking, accessible to everybody, so that ordinary permissions are not mistaken for
/// isolation.
fn create_targets(folder: &Path, canary: &str, program: &Path) -> io::Result<()> {
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    for part in ["", "home", "home/.ssh", "tool", "spare", "outside"] {
        let path = folder.join(part);
        fs::create_dir(&path)?;
        open(&path, if matches!(part, "tool" | "spare" | "outside") { 0o777 } else { 0o755 })?;
    }
    for (name, text) in [
        ("home/.ssh/id_canary", canary),
        ("tool/credentials", canary),
        ("tool/shared", "shared\n"),
        ("spare/file", "spare\n"),
        ("outside/canary", "untouched\n"),
    ] {
        let path = folder.join(name);
        fs::write(&path, text)?;
        open(&path, 0o666)?;
    }
    let probe = folder.join("tool").join(probe::PROBE_NAME);
    fs::copy(program, &probe)?;
    open(&probe, 0o755)
}

/// Returns 16 random hexadecimal characters, for names that nothing else on the host has.
pub(super) fn random_token() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(ralph_core::hash::hex(&bytes))
}
