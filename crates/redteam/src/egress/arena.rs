//! Sets up what attacks on the egress proxy need: cages whose listeners the real proxy serves, with grants made by
//! the real engine, and a fake network outside that records everything.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph_core::env_vars::Env;
use ralph_core::event::PinnedProfile;
use ralph_core::money::MicroUsd;
use ralph_core::policy::Policy;
use ralph_core::price::Price;
use ralph_engine::egress::{EgressLease, EgressManager, EgressRequest, SecretGrant};
use ralph_engine::host_environment::HostContext;
use ralph_engine::sandbox_lifecycle::{self, SandboxRequest};
use ralph_engine::secret::SecretStore;
use ralph_engine::store::{RalphHome, RunFolder};
use ralph_proxy::credential::ProxyCredential;
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_proxy::limits::ProxyLimits;
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};
use ralph_sandbox::{Backend, EgressServer, ExecRequest, Sandbox, SandboxLabel, SandboxSpec, capture};

use super::attack_client;
use super::fake_network::{FakeNetwork, NetworkTrace, lock};
use super::policies::PolicyPreset;
use crate::report::AttackVerdict;

/// The timeout of clients whose case is not about time.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
const OUTPUT_CAP: usize = 1 << 20;
/// The granted secrets, with the hosts they are for.
const GRANTED_SECRETS: [(&str, &str, &str); 6] = [
    ("api", "API_TOKEN", "api.test"),
    ("git", "GITHUB_PAT", "git.test"),
    ("expired", "EXPIRED_TOKEN", "expired.test"),
    ("stranger", "STRANGER_TOKEN", "stranger.test"),
    ("misnamed", "MISNAMED_TOKEN", "misnamed.test"),
    ("rebind", "REBIND_TOKEN", "rebind-api.test"),
];
/// The key of the model, granted through a route.
const MODEL_KEY_NAME: &str = "ANTHROPIC_API_KEY";
/// The run that audited cages belong to.
pub(super) const RUN_NAME: &str = "redteam";

/// The program that runs the attacked cages.
#[derive(Debug, Clone, Default)]
pub struct EgressSuiteOptions {
    /// The program that is both the launcher and the attacking client; this one by default.
    pub program: Option<PathBuf>,
    /// The directories of the host's programs, as in `PATH`.
    pub search_path: OsString,
}

pub(super) struct EgressArena {
    folder: tempfile::TempDir,
    pub(super) network: Arc<FakeNetwork>,
    pub(super) home: RalphHome,
    host: HostContext,
    backend: Arc<dyn Backend>,
    /// The real secrets, by the short names that payloads use.
    secrets: BTreeMap<&'static str, String>,
    cages: tokio::sync::Mutex<BTreeMap<PolicyPreset, Arc<ArenaCage>>>,
    /// Controls that have passed, so that each runs only once.
    passed_controls: Mutex<HashMap<String, bool>>,
    next_number: AtomicU32,
}

/// A sandbox, its granted credentials, and its egress lease.
pub(super) struct ArenaCage {
    pub(super) sandbox: Arc<dyn Sandbox>,
    credentials: Vec<Arc<ProxyCredential>>,
    /// Taken by the code that ends the lease.
    pub(super) lease: Mutex<Option<EgressLease>>,
}

impl ArenaCage {
    /// Returns the phantom of a secret, by its short name.
    pub(super) fn phantom(&self, short: &str) -> String {
        let name =
            GRANTED_SECRETS.iter().find(|(known, ..)| *known == short).map_or(MODEL_KEY_NAME, |(_, name, _)| name);
        self.credentials
            .iter()
            .find(|credential| credential.name() == name)
            .map_or_else(String::new, |one| one.phantom().to_owned())
    }

    /// Calls a function with the lease, while there is one.
    pub(super) fn with_egress<T>(&self, act: impl FnOnce(&EgressLease) -> T) -> Option<T> {
        lock(&self.lease).as_ref().map(act)
    }
}

/// Turns an error of the suite itself into a verdict.
pub(super) fn suite_error(error: impl std::fmt::Display) -> AttackVerdict {
    AttackVerdict::Invalid(format!("the suite failed: {error}"))
}

impl EgressArena {
    pub(super) async fn new(target: &EgressSuiteOptions) -> Result<Self, AttackVerdict> {
        let folder = tempfile::Builder::new().prefix("ralph-redteam-").tempdir().map_err(suite_error)?;
        let network = FakeNetwork::new().await.map_err(suite_error)?;
        let tool = folder.path().join("tool");
        fs::create_dir(&tool).map_err(suite_error)?;
        for open in [folder.path(), &tool] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).map_err(suite_error)?;
        }
        let program = match &target.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(suite_error)?,
        };
        fs::copy(program, tool.join(attack_client::PROGRAM_NAME)).map_err(suite_error)?;
        fs::set_permissions(tool.join(attack_client::PROGRAM_NAME), fs::Permissions::from_mode(0o755))
            .map_err(suite_error)?;
        let home = RalphHome::new(folder.path().join("state"), folder.path().join("config"));
        fs::create_dir_all(home.run_folder(RUN_NAME).path()).map_err(suite_error)?;
        let mut secrets = BTreeMap::from([("model", format!("sk-ant-api03-{}", canary()?))]);
        for (short, ..) in GRANTED_SECRETS {
            let prefix = if short == "git" { "ghp_" } else { "canary-" };
            secrets.insert(short, format!("{prefix}{}", canary()?));
        }
        let named = |short: &str| {
            GRANTED_SECRETS.iter().find(|(known, ..)| *known == short).map_or(MODEL_KEY_NAME, |(_, name, _)| name)
        };
        let values = secrets.iter().map(|(short, secret)| (named(short).to_owned(), secret.clone()));
        let paths = [("PATH".to_owned(), target.search_path.to_string_lossy().into_owned())];
        let env = Env::new(values.chain(paths));
        let host = HostContext::open(home.clone(), env.clone()).await.map_err(suite_error)?;
        // A short timeout, so that cases about slow requests end soon.
        let limits = ProxyLimits { head_time: Duration::from_secs(2), ..ProxyLimits::default() };
        let outside = Arc::clone(&network) as Arc<dyn ralph_proxy::upstream_network::EgressResolver>;
        let egress = EgressManager::with_resolver(home.clone(), SecretStore::open(&home, &env), outside, limits);
        let backend: Arc<dyn Backend> = Arc::new(EmbeddedBackend::new(EmbeddedOptions {
            dir: home.state_dir().join("embedded"),
            binds: vec![tool],
            program: target.program.clone(),
            egress_server: Some(Arc::clone(&egress) as Arc<dyn EgressServer>),
            ..EmbeddedOptions::default()
        }));
        let host = host.with_egress(egress);
        let (cages, shown, made) = (tokio::sync::Mutex::default(), Mutex::default(), AtomicU32::new(0));
        Ok(Self { folder, network, home, host, backend, secrets, cages, passed_controls: shown, next_number: made })
    }

    /// Returns the real secret with a short name.
    pub(super) fn secret(&self, short: &str) -> &str {
        self.secrets.get(short).map_or("", String::as_str)
    }

    /// Returns all real secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.values().map(String::as_str)
    }

    /// Returns the folder of the run that audited cages belong to.
    pub(super) fn run_folder(&self) -> RunFolder {
        self.home.run_folder(RUN_NAME)
    }

    /// Returns the folder with everything the suite keeps on the host.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn caller(&self) -> PathBuf {
        self.folder.path().join("tool").join(attack_client::PROGRAM_NAME)
    }

    /// Returns the cage that most cases with this policy share.
    pub(super) async fn shared_cage(&self, rules: PolicyPreset) -> Result<Arc<ArenaCage>, AttackVerdict> {
        let mut cages = self.cages.lock().await;
        if let Some(cage) = cages.get(&rules) {
            return Ok(Arc::clone(cage));
        }
        let cage = Arc::new(self.new_cage(rules, ample_ledger()).await?);
        cages.insert(rules, Arc::clone(&cage));
        Ok(cage)
    }

    /// Creates a cage for one case, with this ledger.
    pub(super) async fn new_cage(&self, rules: PolicyPreset, ledger: Ledger) -> Result<ArenaCage, AttackVerdict> {
        self.create_cage(rules.policy().map_err(suite_error)?, ledger, SandboxLabel::REPO, None).await
    }

    /// Creates a cage that may send out this much before an alarm is raised.
    pub(super) async fn new_cage_with_alarm(
        &self,
        rules: PolicyPreset,
        alarm_after: Option<u64>,
    ) -> Result<ArenaCage, AttackVerdict> {
        self.create_cage(rules.policy().map_err(suite_error)?, ample_ledger(), SandboxLabel::REPO, alarm_after).await
    }

    /// Creates a cage that belongs to the run, so that everything it does is in the run's audit log.
    pub(super) async fn new_audited_cage(&self, rules: PolicyPreset) -> Result<ArenaCage, AttackVerdict> {
        self.create_cage(rules.policy().map_err(suite_error)?, ample_ledger(), SandboxLabel::RUN, None).await
    }

    async fn create_cage(
        &self,
        policy: Policy,
        ledger: Ledger,
        label: &str,
        alarm_after: Option<u64>,
    ) -> Result<ArenaCage, AttackVerdict> {
        let name = format!("redteam-{}-{}", std::process::id(), self.next_number.fetch_add(1, Ordering::Relaxed));
        let secrets =
            GRANTED_SECRETS.map(|(_, secret, host)| SecretGrant { secret: secret.to_owned(), host: host.to_owned() });
        let egress = EgressRequest {
            profiles: vec![profile()],
            secrets: secrets.into(),
            ledger,
            alarm_after,
            ..EgressRequest::from(policy)
        };
        let labels = BTreeMap::from([(label.to_owned(), RUN_NAME.to_owned())]);
        let spec = SandboxSpec { name, labels, ..SandboxSpec::default() };
        let request = SandboxRequest { backend: &*self.backend, spec, egress: Some(egress) };
        let made = sandbox_lifecycle::create(&self.host, request).await.map_err(suite_error)?;
        let credentials = made.lease.as_ref().map(EgressLease::credentials).unwrap_or_default();
        Ok(ArenaCage { sandbox: made.sandbox, credentials, lease: Mutex::new(made.lease) })
    }

    /// Replaces the placeholders in a payload: `{api}` by the phantom of that secret, `{plain}` by the address of a
    /// recorder.
    pub(super) fn expand_placeholders(&self, cage: Option<&ArenaCage>, word: &str) -> String {
        let mut word = word.replace("{plain}", &self.network.plain().to_string());
        word = word.replace("{port}", &self.network.plain().port().to_string());
        word = word.replace("{udp}", &self.network.datagrams().to_string());
        if let Some(cage) = cage
            && word.contains('{')
        {
            for short in self.secrets.keys() {
                word = word.replace(&format!("{{{short}}}"), &cage.phantom(short));
            }
        }
        word
    }

    /// Runs the client with these steps inside a cage, and returns its output.
    pub(super) async fn run_client<S: AsRef<str>>(
        &self,
        cage: &ArenaCage,
        words: &[S],
    ) -> Result<String, AttackVerdict> {
        let words = words.iter().map(|word| self.expand_placeholders(Some(cage), word.as_ref()));
        let exec = ExecRequest::new(std::iter::once(self.caller().display().to_string()).chain(words), CLIENT_TIMEOUT);
        let output = capture(&*cage.sandbox, &exec, OUTPUT_CAP).await.map_err(suite_error)?;
        let reply = format!("{}{}", output.stdout_text(), output.stderr_text());
        Ok(reply.trim_end().trim_end_matches(attack_client::SCRIPT_SEPARATOR).to_owned())
    }

    /// Runs the client in a cage, and also returns what happened in the fake network meanwhile.
    pub(super) async fn run_attack<S: AsRef<str>>(
        &self,
        cage: &ArenaCage,
        words: &[S],
    ) -> Result<(String, NetworkTrace), AttackVerdict> {
        self.network.take_trace();
        let reply = self.run_client(cage, words).await?;
        // Traffic that has started may take a moment to arrive.
        tokio::time::sleep(Duration::from_millis(15)).await;
        Ok((reply, self.network.take_trace()))
    }

    /// Runs the client's first steps, then calls a function, then lets the client continue with the other steps.
    pub(super) async fn run_interrupted(
        &self,
        cage: &ArenaCage,
        first: &[String],
        then: &[String],
        meanwhile: impl AsyncFnOnce() -> (),
    ) -> Result<(String, NetworkTrace), AttackVerdict> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (ready, go) = (format!("ready-{number}"), format!("go-{number}"));
        let mark = [format!("mark:{ready}"), format!("wait:{go}")];
        let words: Vec<&String> = first.iter().chain(&mark).chain(then).collect();
        let during = async {
            let until = tokio::time::Instant::now() + Duration::from_secs(8);
            while cage.sandbox.read(ready.as_ref(), 1).await.is_err() && tokio::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            meanwhile().await;
            // Time for connections to be closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            cage.sandbox.write(go.as_ref(), b"", None).await.map_err(suite_error)
        };
        let (reply, marked) = tokio::join!(self.run_attack(cage, &words), during);
        marked?;
        reply
    }

    /// Runs the client with these steps on the host.
    pub(super) async fn run_on_host<S: AsRef<str>>(
        &self,
        words: &[S],
    ) -> Result<(String, NetworkTrace), AttackVerdict> {
        self.network.take_trace();
        let mut command = tokio::process::Command::new(self.caller());
        command
            .args(words.iter().map(|word| self.expand_placeholders(None, word.as_ref())))
            .kill_on_drop(true)
            .env_clear();
        let output =
            tokio::time::timeout(CLIENT_TIMEOUT, command.output()).await.map_err(suite_error)?.map_err(suite_error)?;
        tokio::time::sleep(Duration::from_millis(15)).await;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), self.network.take_trace()))
    }

    /// Returns whether a control has already passed.
    pub(super) fn has_passed_control(&self, key: &str) -> bool {
        lock(&self.passed_controls).get(key).copied().unwrap_or(false)
    }

    pub(super) fn mark_control_passed(&self, key: String) {
        lock(&self.passed_controls).insert(key, true);
    }

    /// Removes everything the suite has created.
    pub(super) async fn close(self) {
        let cages = std::mem::take(&mut *self.cages.lock().await);
        for cage in cages.into_values() {
            // The folder is removed in any case, and what still runs dies with this process.
            let _ = cage.sandbox.destroy().await;
        }
    }
}

/// Returns a ledger with more than any case needs.
pub(super) fn ample_ledger() -> Ledger {
    Ledger::new(LedgerCaps { cost: Some(MicroUsd(1_000_000_000)), tokens: None }, MicroUsd::ZERO, 0)
}

/// Returns a text that occurs nowhere else.
fn canary() -> Result<String, AttackVerdict> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(suite_error)?;
    Ok(format!("CANARY{}", ralph_core::hash::sha256(&random).get(..40).unwrap_or_default()))
}

/// Returns the granted model: a dollar for a million tokens, so that a token costs a micro-dollar.
fn profile() -> PinnedProfile {
    PinnedProfile {
        name: "main".to_owned(),
        model: "anthropic/canary-model".to_owned(),
        base_url: Some("https://model.test".to_owned()),
        api_key_env: Some(MODEL_KEY_NAME.to_owned()),
        max_output_tokens: 4096,
        temperature: None,
        timeout_s: 60,
        price: Some(Price::per_mtok_usd(1.0, 1.0, None)),
        most_output: None,
        extra: BTreeMap::new(),
    }
}
