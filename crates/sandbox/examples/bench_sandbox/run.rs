//! Runs the whole benchmark: decides what is measured, against which targets, and where the result goes.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ralph_sandbox::Backend as _;
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions as Setup};
use ralph_testkit::bench::{describe_machine, report_failure};

use crate::latency::{self, FIRST, FURTHER};
use crate::options::{self, SandboxBenchOptions, USAGE};
use crate::peers::{BARE, BWRAP, DOCKER_EXEC, SRT, SandboxPeerPaths};
use crate::report::SandboxBenchReport;
use crate::{chart, concurrent, fork, markdown};

/// The result of every part of the benchmark; errors are only printed to a terminal.
pub(crate) type SandboxBenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The embedded backend, with a program that is only the launcher, and with the complete `ralph` as launcher.
pub(crate) const EMBEDDED: &str = "embedded";
pub(crate) const EMBEDDED_RALPH: &str = "embedded (ralph)";

/// A first command, in runs of `bwrap` and of `srt`.
const MAX_RATIO_TO_BWRAP: f64 = 1.2;
const MAX_RATIO_TO_SRT: f64 = 1.0 / 15.0;
/// A further command, in starts of the bare program and in runs of `docker exec`.
const MAX_RATIO_TO_BARE: f64 = 3.0;
const MAX_RATIO_TO_DOCKER: f64 = 1.0 / 15.0;

/// The backends that are measured.
pub(crate) struct MeasuredBackends {
    pub(crate) cage: Arc<EmbeddedBackend>,
    pub(crate) real: Result<Arc<EmbeddedBackend>, String>,
}

pub(crate) fn main() -> ExitCode {
    let Some(options) = options::parse(std::env::args().skip(1)) else {
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    let measured = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Into::into)
        // As a task, like everything in the real program.
        .and_then(|runtime| runtime.block_on(async { tokio::spawn(measure(options.clone())).await? }))
        .and_then(|table| write(&options, &table).map(|()| table));
    match measured {
        Ok(table) => {
            let text = if options.json { table.json() } else { table.text() };
            // If the output cannot be written, the exit code still shows the result.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if table.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => report_failure(&*error),
    }
}

async fn measure(options: SandboxBenchOptions) -> SandboxBenchResult<SandboxBenchReport> {
    let folder = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let work = folder.path().join("work");
    fs::create_dir(&work)?;
    let (mut table, ours) = set_up(&options, folder.path()).await?;
    let places = SandboxPeerPaths::new(options.peers.as_deref(), &options.path);
    latency::measure(&mut table, &ours, &places, &work, options.rounds).await?;
    let names = [Some(EMBEDDED), ours.real.is_ok().then_some(EMBEDDED_RALPH)];
    for name in names.into_iter().flatten() {
        table.add_ratio(FIRST, name, BWRAP, MAX_RATIO_TO_BWRAP);
        table.add_ratio(FIRST, name, SRT, MAX_RATIO_TO_SRT);
        table.add_ratio(FURTHER, name, BARE, MAX_RATIO_TO_BARE);
        table.add_ratio(FURTHER, name, DOCKER_EXEC, MAX_RATIO_TO_DOCKER);
    }
    if options.speed {
        return Ok(table);
    }
    fork::measure(&mut table, &ours.cage, options.rounds.div_ceil(2), options.quick).await?;
    concurrent::measure(&mut table, EMBEDDED, ours.cage.clone()).await?;
    if let Ok(real) = &ours.real {
        concurrent::measure(&mut table, EMBEDDED_RALPH, real.clone()).await?;
    }
    Ok(table)
}

/// Sets up both backends; the real program may be missing, or not work as a launcher.
async fn set_up(
    options: &SandboxBenchOptions,
    folder: &Path,
) -> SandboxBenchResult<(SandboxBenchReport, MeasuredBackends)> {
    let beside = build_dir()?;
    let cage = embedded(folder.join("cage"), beside.join("ralph-cage"));
    let program = options.program.clone().unwrap_or_else(|| beside.join("ralph"));
    let real = if program.is_file() {
        let real = embedded(folder.join("real"), program.clone());
        match check_launcher(&real).await {
            Ok(()) => Ok(real),
            Err(error) => Err(format!("it does not work as a launcher: {error}")),
        }
    } else {
        Err("it was not built".to_owned())
    };
    // Without the names of folders, which are specific to this machine.
    let mut command = format!("cargo xtask bench sandbox --rounds {}", options.rounds);
    if options.quick {
        command.push_str(" --quick");
    }
    let table = SandboxBenchReport {
        format: 1,
        command,
        machine: describe_machine(),
        peers: Vec::new(),
        series: Vec::new(),
        figures: Vec::new(),
    };
    Ok((table, MeasuredBackends { cage, real }))
}

fn embedded(dir: PathBuf, program: PathBuf) -> Arc<EmbeddedBackend> {
    Arc::new(EmbeddedBackend::new(Setup { dir, program: Some(program), ..Setup::default() }))
}

async fn check_launcher(backend: &EmbeddedBackend) -> SandboxBenchResult<()> {
    let sandbox = backend.create(&latency::spec("try")).await?;
    let done = latency::run(&*sandbox, &["/bin/true"]).await;
    sandbox.destroy().await?;
    done
}

/// Returns the folder of the programs that were built together with this one.
fn build_dir() -> SandboxBenchResult<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).ok_or("this program is not in a build folder")?.to_owned())
}

fn write(options: &SandboxBenchOptions, table: &SandboxBenchReport) -> SandboxBenchResult<()> {
    let Some(dir) = &options.write else { return Ok(()) };
    fs::create_dir_all(dir)?;
    fs::write(dir.join("sandbox.md"), markdown::render(table))?;
    fs::write(dir.join("sandbox.svg"), chart::svg(table))?;
    Ok(())
}
