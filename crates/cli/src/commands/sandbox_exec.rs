//! `ralph sandbox exec`: one command in a sandbox, with its output and its exit code passed on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::config::Toolchains;
use ralph_core::event::Event;
use ralph_core::exit::Exit;
use ralph_core::money::Micros;
use ralph_core::policy::{Mode, Policy, argument};
use ralph_engine::Error;
use ralph_engine::egress::{Doors, Lent, Loan};
#[cfg(target_os = "linux")]
use ralph_engine::egress::{Heard, Pass};
use ralph_engine::host::{DEFAULT_BACKEND, short_key};
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_sandbox::{Exec, Limit, Sandbox, Sink, Spec, Status, Stream};

use super::run::{opened, warn_of};
use crate::args::SandboxExec;
use crate::error::{Failure, Outcome};
use crate::setup::{Flags, Setup, told};
use crate::ui::{Ui, YELLOW, paint};

pub(crate) async fn exec(setup: &Setup, args: SandboxExec, ui: &mut Ui) -> Outcome {
    let backend = match &args.name {
        Some(name) => setup.host.backend_of(name, args.on.backend.as_deref()).await?,
        None => setup.host.backend(args.on.backend.as_deref().unwrap_or(DEFAULT_BACKEND))?,
    };
    warn_of(&backend.capabilities(), ui);
    let exec = wanted(&args)?;
    // Whoever ends ralph ends the command, and what was made for it goes with it.
    let mut stops = Stops::new().map_err(|error| Failure::of(Exit::Failed, &error))?;
    let lent = match &args.name {
        Some(_) => None,
        None => Some(borrow(setup, &args, backend.capabilities().network_policy, ui).await?),
    };
    for name in setup.host.short_keys() {
        ui.say(&format!("{} {}", paint(YELLOW, "!"), short_key(&name)));
    }
    let (sandbox, own) = match (&args.name, &lent) {
        (Some(name), _) => (backend.open(name).await.map_err(Error::from)?, false),
        (None, Some(lent)) => (lent.make(&*backend, &args).await?, true),
        (None, None) => unreachable!("a sandbox that is not named is made with what it is lent"),
    };
    let ended = tokio::select! {
        ended = run(&*sandbox, &args, &exec) => Some(ended),
        () = stops.heard() => None,
    };
    if own && let Err(error) = sandbox.destroy().await {
        ui.say(&format!("the sandbox could not be removed: {error}; next: ralph sandbox rm {}", sandbox.id()));
    }
    if let Some(lent) = &lent {
        lent.tell(&args, ui);
    }
    let Some(ended) = ended else { return Ok(Exit::Interrupted) };
    let exit = ended?;
    let told = match (exit.status, exit.limit) {
        (Status::TimedOut, _) => Some(format!("the command was ended after {} s", args.timeout)),
        (_, Some(Limit::Memory)) => Some("the sandbox ran out of the memory it may use".to_owned()),
        (_, Some(Limit::Disk)) => Some("the sandbox ran out of the disk space it may use".to_owned()),
        (_, Some(Limit::Processes)) => Some("the sandbox ran into its limit of processes".to_owned()),
        _ => None,
    };
    if let Some(told) = told {
        ui.say(&told);
    }
    Ok(match exit.code() {
        0 => Exit::Success,
        code => Exit::Command(u8::try_from(code).unwrap_or(1)),
    })
}

async fn run(sandbox: &dyn Sandbox, args: &SandboxExec, exec: &Exec) -> Result<ralph_sandbox::Exit, Failure> {
    if let Some(from) = &args.copy {
        copy(sandbox, from, Path::new("")).await?;
    }
    Ok(sandbox.exec(exec, &mut Through).await.map_err(Error::from)?)
}

fn wanted(args: &SandboxExec) -> Result<Exec, Failure> {
    let mut exec = Exec::new(args.command.clone(), Duration::from_secs(args.timeout));
    if args.stdin {
        io::stdin().read_to_end(&mut exec.stdin).map_err(|error| Failure::of(Exit::Failed, &error))?;
    }
    exec.terminal = args.terminal.then_some((24, 80));
    Ok(exec)
}

/// What a new sandbox is made with.
struct Borrowed {
    name: String,
    lent: Lent,
    ledger: Ledger,
    #[cfg(target_os = "linux")]
    pass: Pass,
}

async fn borrow(setup: &Setup, args: &SandboxExec, doors: bool, ui: &mut Ui) -> Result<Borrowed, Failure> {
    if !doors && (!args.profile.is_empty() || !args.lend.is_empty()) {
        let failure = Failure::usage("this backend has no way out at which anything could be lent");
        return Err(failure.hint("leave `--backend` away"));
    }
    let id = ralph_core::hash::short(format!("{:?}{}", std::time::SystemTime::now(), std::process::id()).as_bytes());
    let name = format!("exec-{id}");
    let repo = setup.top().await;
    let top = repo.clone().unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles = if args.profile.is_empty() { Vec::new() } else { setup.pinned(&top, &args.profile)? };
    let mut loans = Vec::new();
    for text in &args.lend {
        let loan: Loan = text.parse().map_err(|error: ralph_engine::egress::BadLoan| {
            let hint = error.hint().unwrap_or_default();
            Failure::usage(error.to_string()).hint(hint)
        })?;
        loans.push(loan);
    }
    let cap = Micros::from_usd(args.max_cost);
    let ledger = Ledger::new(Caps { cost: Some(cap), tokens: None }, Micros::ZERO, 0);
    let mut policy = policy(args)?;
    for host in policy.unreached(loans.iter().map(|loan| loan.host.as_str())) {
        ui.say(&opened(host));
        policy.allow_also(host).map_err(|error| told(Exit::Usage, &error, error.hint()))?;
    }
    // What is denied to every run is denied here as well.
    policy.deny = setup.resolve(repo.as_deref(), &Flags::default(), None)?.sandbox.network.denied.value;
    let profiles: Vec<_> = profiles.iter().collect();
    let lent =
        ralph_engine::egress::lend(&setup.host, &name, policy, &profiles, &loans, ledger.clone(), Doors::AsNeeded)?;
    #[cfg(target_os = "linux")]
    let pass = if loans.is_empty() && args.profile.is_empty() {
        setup.host.egress().agree(&name, lent.terms.clone())
    } else {
        // What is worth something is used: that is written down, as a run's is.
        let paper = setup.host.home.paper(&name);
        fs::create_dir_all(paper.path()).map_err(|error| Failure::of(Exit::Failed, &error))?;
        setup.host.egress().agree_on_paper(&name, lent.terms.clone(), paper)
    };
    Ok(Borrowed {
        name,
        lent,
        ledger,
        #[cfg(target_os = "linux")]
        pass,
    })
}

impl Borrowed {
    async fn make(
        &self,
        backend: &dyn ralph_sandbox::Backend,
        args: &SandboxExec,
    ) -> Result<Arc<dyn Sandbox>, Failure> {
        let mut labels = BTreeMap::new();
        let network = ralph_engine::egress::network_on(&self.lent.terms, &mut labels);
        let toolchains = match args.toolchain.as_slice() {
            [] => Toolchains::Auto,
            [word] if word == "auto" => Toolchains::Auto,
            [word] if word == "none" => Toolchains::None,
            names => Toolchains::Only(names.to_vec()),
        };
        let (name, image) = (self.name.clone(), args.image.clone());
        let spec = Spec { name, labels, image, network, toolchains, ..Spec::default() };
        let sandbox = backend.create(&spec).await.map_err(Error::from)?;
        match self.lent.put_in(&backend.capabilities(), Arc::clone(&sandbox)).await {
            Ok(dressed) => Ok(dressed),
            Err(error) => {
                // It was made for this alone; what stays is told by `ralph sandbox ls`.
                sandbox.destroy().await.ok();
                Err(error.into())
            }
        }
    }

    /// Says what the calls of lent models cost.
    fn tell(&self, args: &SandboxExec, ui: &mut Ui) {
        #[cfg(target_os = "linux")]
        tell_heard(&self.pass, ui);
        if !args.profile.is_empty() {
            let (spent, open) = (self.ledger.settled(), self.ledger.reserved());
            let (cost, tokens) = (spent.cost + open.cost, spent.tokens.saturating_add(open.tokens));
            ui.say(&format!("calls cost {cost} of {}, {tokens} tokens", Micros::from_usd(args.max_cost)));
        }
    }
}

/// Says what was refused and what raised an alarm, and where it is written down.
#[cfg(target_os = "linux")]
fn tell_heard(pass: &Pass, ui: &mut Ui) {
    let Heard { refusals, more, others } = pass.heard();
    for event in refusals {
        if let Event::PolicyDenied { host, port, request, rule, remedy, .. } = event {
            let what = request.map(|request| format!("{request} of ")).unwrap_or_default();
            let next = remedy.map(|rule| format!("; next: --allow-host {}", argument(&rule)));
            ui.say(&format!("{what}{host}:{port} was refused: {rule}{}", next.unwrap_or_default()));
        }
    }
    if more > 0 {
        ui.say(&format!("and {more} more refusals"));
    }
    // Last, where they are seen.
    for event in others {
        if let Event::Log { text, .. } = event {
            ui.say(&text);
        }
    }
    match pass.written() {
        Ok(Some(path)) => {
            let name = path.parent().and_then(Path::file_name).unwrap_or_default().display();
            ui.say(&format!("what left is written down in {}; next: ralph policy log {name}", path.display()));
        }
        Ok(None) => (),
        Err(error) => ui.say(&format!("what left could not all be written down: {error}")),
    }
}

fn policy(args: &SandboxExec) -> Result<Policy, Failure> {
    let mode = match (args.network, args.allow_host.is_empty()) {
        (Some(mode), _) => mode,
        (None, true) => Mode::Deny,
        (None, false) => Mode::Allowlist,
    };
    let hosts: Vec<&str> = args.allow_host.iter().map(String::as_str).collect();
    parsed(mode, &hosts)
}

fn parsed(mode: Mode, hosts: &[&str]) -> Result<Policy, Failure> {
    Policy::parse(mode, hosts, &[]).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// Copies files and directories in; links and everything else stay outside.
async fn copy(sandbox: &dyn Sandbox, from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::usage(format!("could not read `{}`: {error}", from.display()));
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((dir, inside)) = open.pop() {
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (kind, there) = (entry.file_type().map_err(failed)?, inside.join(entry.file_name()));
            if kind.is_dir() {
                sandbox.mkdirs(&there).await.map_err(Error::from)?;
                open.push((entry.path(), there));
            } else if kind.is_file() {
                sandbox.copy_in(&entry.path(), &there).await.map_err(Error::from)?;
            }
        }
    }
    Ok(())
}

/// The signals that end a program from outside.
struct Stops([tokio::signal::unix::Signal; 3]);

impl Stops {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]))
    }

    async fn heard(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}

/// Passes output on as it comes.
struct Through;

impl Sink for Through {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        // A reader that is gone does not keep the command from ending.
        let _ = match stream {
            Stream::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Stderr => io::stderr().write_all(bytes),
        };
    }
}
