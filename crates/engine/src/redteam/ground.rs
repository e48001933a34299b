//! The ground on which attacks on the way out happen: cages whose doors are served by the real proxy, with what the
//! engine really lends, and a world outside that writes everything down.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph_core::env::Env;
use ralph_core::event::PinnedProfile;
use ralph_core::money::Micros;
use ralph_core::policy::Policy;
use ralph_core::price::Price;
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_proxy::limits::Limits;
use ralph_sandbox::embedded::{Embedded, Options};
use ralph_sandbox::redteam::Verdict;
use ralph_sandbox::{Backend as _, Exec, Label, Sandbox, Spec, capture};

use super::caller;
use super::rules::Rules;
use super::world::{Happened, World, lock};
use crate::egress::{Doors, Egress, Lent, Loan, Pass, lend, network_on};
use crate::host::Host;
use crate::secret::Store;
use crate::store::{Folder, Home};

/// Time for a caller that is not about time.
const LONG: Duration = Duration::from_secs(20);
const CAP: usize = 1 << 20;
/// The secrets that are lent, and to whom.
const LENT: [(&str, &str, &str); 6] = [
    ("api", "API_TOKEN", "api.test"),
    ("git", "GITHUB_PAT", "git.test"),
    ("expired", "EXPIRED_TOKEN", "expired.test"),
    ("stranger", "STRANGER_TOKEN", "stranger.test"),
    ("misnamed", "MISNAMED_TOKEN", "misnamed.test"),
    ("rebind", "REBIND_TOKEN", "rebind-api.test"),
];
/// The key of the model, lent by a route.
const KEY: &str = "ANTHROPIC_API_KEY";
/// The run that audited cages belong to.
pub(super) const RUN: &str = "redteam";

pub(super) struct Ground {
    folder: tempfile::TempDir,
    pub(super) world: Arc<World>,
    pub(super) home: Home,
    host: Host,
    egress: Arc<Egress>,
    embedded: Embedded,
    /// The real secrets, by the short names that payloads know them by.
    secrets: BTreeMap<&'static str, String>,
    cages: tokio::sync::Mutex<BTreeMap<Rules, Arc<Cage>>>,
    /// Controls that were shown to work, so that each is shown once.
    shown: Mutex<HashMap<String, bool>>,
    made: AtomicU32,
}

/// A sandbox, what it was lent, and the agreement about its doors.
pub(super) struct Cage {
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) lent: Lent,
    /// Taken by whoever ends the agreement.
    pub(super) pass: Mutex<Option<Pass>>,
}

impl Cage {
    /// Returns the stand-in for a secret, by its short name.
    pub(super) fn phantom(&self, short: &str) -> String {
        let name = LENT.iter().find(|(known, ..)| *known == short).map_or(KEY, |(_, name, _)| name);
        let lent = self.lent.terms.lent();
        lent.iter()
            .find(|credential| credential.name() == name)
            .map_or_else(String::new, |one| one.phantom().to_owned())
    }

    /// Does something with the agreement, while there is one.
    pub(super) fn agreed<T>(&self, act: impl FnOnce(&Pass) -> T) -> Option<T> {
        lock(&self.pass).as_ref().map(act)
    }
}

/// Turns what went wrong with the suite itself into a verdict.
pub(super) fn broken(error: impl std::fmt::Display) -> Verdict {
    Verdict::Invalid(format!("the suite could not go on: {error}"))
}

impl Ground {
    pub(super) async fn new(path: &OsStr) -> Result<Self, Verdict> {
        let folder = tempfile::Builder::new().prefix("ralph-redteam-").tempdir().map_err(broken)?;
        let world = World::new().await.map_err(broken)?;
        let tool = folder.path().join("tool");
        fs::create_dir(&tool).map_err(broken)?;
        for open in [folder.path(), &tool] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).map_err(broken)?;
        }
        let program = std::env::current_exe().map_err(broken)?;
        fs::copy(program, tool.join(caller::NAME)).map_err(broken)?;
        fs::set_permissions(tool.join(caller::NAME), fs::Permissions::from_mode(0o755)).map_err(broken)?;
        let home = Home::new(folder.path().join("state"), folder.path().join("config"));
        fs::create_dir_all(home.folder(RUN).path()).map_err(broken)?;
        let mut secrets = BTreeMap::from([("model", format!("sk-ant-api03-{}", canary()?))]);
        for (short, ..) in LENT {
            let prefix = if short == "git" { "ghp_" } else { "canary-" };
            secrets.insert(short, format!("{prefix}{}", canary()?));
        }
        let named = |short: &str| LENT.iter().find(|(known, ..)| *known == short).map_or(KEY, |(_, name, _)| name);
        let values = secrets.iter().map(|(short, secret)| (named(short).to_owned(), secret.clone()));
        let paths = [("PATH".to_owned(), path.to_string_lossy().into_owned())];
        let env = Env::new(values.chain(paths));
        let host = Host::open(home.clone(), env.clone()).await.map_err(broken)?;
        // Nobody waits for what is about waiting.
        let limits = Limits { head_time: Duration::from_secs(2), ..Limits::default() };
        let outside = Arc::clone(&world) as Arc<dyn ralph_proxy::resolve::Resolve>;
        let egress = Egress::with_outside(home.clone(), Store::open(&home, &env), outside, limits);
        let embedded = Embedded::new(Options {
            dir: home.state_dir().join("embedded"),
            binds: vec![tool],
            door: Some(Arc::clone(&egress) as Arc<dyn ralph_sandbox::embedded::Door>),
            ..Options::default()
        });
        let (cages, shown, made) = (tokio::sync::Mutex::default(), Mutex::default(), AtomicU32::new(0));
        Ok(Self { folder, world, home, host, egress, embedded, secrets, cages, shown, made })
    }

    /// Returns the real secret of a short name.
    pub(super) fn secret(&self, short: &str) -> &str {
        self.secrets.get(short).map_or("", String::as_str)
    }

    /// Returns all real secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.values().map(String::as_str)
    }

    /// Returns the folder of the run that audited cages belong to.
    pub(super) fn run(&self) -> Folder {
        self.home.folder(RUN)
    }

    /// Returns everything the suite keeps on the host.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn caller(&self) -> PathBuf {
        self.folder.path().join("tool").join(caller::NAME)
    }

    /// Returns the cage that most cases with these rules share.
    pub(super) async fn cage(&self, rules: Rules) -> Result<Arc<Cage>, Verdict> {
        let mut cages = self.cages.lock().await;
        if let Some(cage) = cages.get(&rules) {
            return Ok(Arc::clone(cage));
        }
        let cage = Arc::new(self.fresh(rules, plenty()).await?);
        cages.insert(rules, Arc::clone(&cage));
        Ok(cage)
    }

    /// Makes a cage of one case's own, which has so much to spend.
    pub(super) async fn fresh(&self, rules: Rules, ledger: Ledger) -> Result<Cage, Verdict> {
        self.make(rules.policy().map_err(broken)?, ledger, Label::REPO, None).await
    }

    /// Makes a cage that may send out so much before somebody is told.
    pub(super) async fn watched(&self, rules: Rules, alarm_after: Option<u64>) -> Result<Cage, Verdict> {
        self.make(rules.policy().map_err(broken)?, plenty(), Label::REPO, alarm_after).await
    }

    /// Makes a cage of the run, so that everything it does is written into the run's book.
    pub(super) async fn audited(&self, rules: Rules) -> Result<Cage, Verdict> {
        self.make(rules.policy().map_err(broken)?, plenty(), Label::RUN, None).await
    }

    async fn make(
        &self,
        policy: Policy,
        ledger: Ledger,
        label: &str,
        alarm_after: Option<u64>,
    ) -> Result<Cage, Verdict> {
        let name = format!("redteam-{}-{}", std::process::id(), self.made.fetch_add(1, Ordering::Relaxed));
        let loans = LENT.map(|(_, secret, host)| Loan { secret: secret.to_owned(), host: host.to_owned() });
        let lent = lend(&self.host, &name, policy, &[&profile()], &loans, ledger, Doors::AsNeeded).map_err(broken)?;
        let lent = lent.with_alarm(alarm_after);
        let pass = self.egress.agree(&name, lent.terms.clone());
        let mut labels = BTreeMap::from([(label.to_owned(), RUN.to_owned())]);
        let network = network_on(&lent.terms, &mut labels);
        let sandbox = self.embedded.create(&Spec { name, labels, network, ..Spec::default() }).await.map_err(broken)?;
        let sandbox = lent.put_in(&self.embedded.capabilities(), sandbox).await.map_err(broken)?;
        Ok(Cage { sandbox, lent, pass: Mutex::new(Some(pass)) })
    }

    /// Replaces what payloads name by what it is: `{api}` by the stand-in for that secret, `{plain}` by a recorder.
    pub(super) fn filled(&self, cage: Option<&Cage>, word: &str) -> String {
        let mut word = word.replace("{plain}", &self.world.plain().to_string());
        word = word.replace("{port}", &self.world.plain().port().to_string());
        word = word.replace("{udp}", &self.world.datagrams().to_string());
        if let Some(cage) = cage
            && word.contains('{')
        {
            for short in self.secrets.keys() {
                word = word.replace(&format!("{{{short}}}"), &cage.phantom(short));
            }
        }
        word
    }

    /// Lets the caller take these steps inside a cage, and returns what it heard.
    pub(super) async fn call<S: AsRef<str>>(&self, cage: &Cage, words: &[S]) -> Result<String, Verdict> {
        let words = words.iter().map(|word| self.filled(Some(cage), word.as_ref()));
        let exec = Exec::new(std::iter::once(self.caller().display().to_string()).chain(words), LONG);
        let output = capture(&*cage.sandbox, &exec, CAP).await.map_err(broken)?;
        let told = format!("{}{}", output.stdout_text(), output.stderr_text());
        Ok(told.trim_end().trim_end_matches(caller::NEXT).to_owned())
    }

    /// The same, and returns what happened in the world meanwhile, too.
    pub(super) async fn attack<S: AsRef<str>>(&self, cage: &Cage, words: &[S]) -> Result<(String, Happened), Verdict> {
        self.world.happened();
        let told = self.call(cage, words).await?;
        // What was begun must not be missed because it takes a moment.
        tokio::time::sleep(Duration::from_millis(15)).await;
        Ok((told, self.world.happened()))
    }

    /// Lets the caller take the first steps, does something meanwhile, and lets it take the others then.
    pub(super) async fn interrupted(
        &self,
        cage: &Cage,
        first: &[String],
        then: &[String],
        meanwhile: impl AsyncFnOnce() -> (),
    ) -> Result<(String, Happened), Verdict> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let (ready, go) = (format!("ready-{number}"), format!("go-{number}"));
        let mark = [format!("mark:{ready}"), format!("wait:{go}")];
        let words: Vec<&String> = first.iter().chain(&mark).chain(then).collect();
        let during = async {
            let until = tokio::time::Instant::now() + Duration::from_secs(8);
            while cage.sandbox.read(ready.as_ref(), 1).await.is_err() && tokio::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            meanwhile().await;
            // Time for whatever has to be cut.
            tokio::time::sleep(Duration::from_millis(50)).await;
            cage.sandbox.write(go.as_ref(), b"", None).await.map_err(broken)
        };
        let (told, marked) = tokio::join!(self.attack(cage, &words), during);
        marked?;
        told
    }

    /// Lets the caller take these steps on the host.
    pub(super) async fn outside<S: AsRef<str>>(&self, words: &[S]) -> Result<(String, Happened), Verdict> {
        self.world.happened();
        let mut command = tokio::process::Command::new(self.caller());
        command.args(words.iter().map(|word| self.filled(None, word.as_ref()))).kill_on_drop(true).env_clear();
        let output = tokio::time::timeout(LONG, command.output()).await.map_err(broken)?.map_err(broken)?;
        tokio::time::sleep(Duration::from_millis(15)).await;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), self.world.happened()))
    }

    /// Returns whether a control was shown to work before.
    pub(super) fn was_shown(&self, key: &str) -> bool {
        lock(&self.shown).get(key).copied().unwrap_or(false)
    }

    pub(super) fn show(&self, key: String) {
        lock(&self.shown).insert(key, true);
    }

    /// Removes everything the suite has made.
    pub(super) async fn close(self) {
        let cages = std::mem::take(&mut *self.cages.lock().await);
        for cage in cages.into_values() {
            // The folder goes in any case, and what is left running dies with this process.
            let _ = cage.sandbox.destroy().await;
        }
    }
}

/// A book with more room than any case needs.
pub(super) fn plenty() -> Ledger {
    Ledger::new(Caps { cost: Some(Micros(1_000_000_000)), tokens: None }, Micros::ZERO, 0)
}

/// Makes a text that stands nowhere else.
fn canary() -> Result<String, Verdict> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(broken)?;
    Ok(format!("CANARY{}", ralph_core::hash::sha256(&random).get(..40).unwrap_or_default()))
}

/// The model that is lent: a dollar for a million tokens, so that a micro-dollar is a token.
fn profile() -> PinnedProfile {
    PinnedProfile {
        name: "main".to_owned(),
        model: "anthropic/canary-model".to_owned(),
        base_url: Some("https://model.test".to_owned()),
        api_key_env: Some(KEY.to_owned()),
        max_output_tokens: 4096,
        temperature: None,
        timeout_s: 60,
        price: Some(Price::per_mtok_usd(1.0, 1.0, None)),
        most_output: None,
        extra: BTreeMap::new(),
    }
}
