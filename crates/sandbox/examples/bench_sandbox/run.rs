//! Runs the whole benchmark: decides what is measured and against which targets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ralph_sandbox::Backend as _;
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions as Setup};
use ralph_testkit::bench::{
    BenchArguments, BenchOption, BenchProgram, BenchReport, BenchResult, FigureTarget, bench_runtime,
};

use crate::latency::{self, FIRST, FURTHER, OBSERVED, PLAIN, RECORDED};
use crate::options::{DIR, OPTIONS, PROGRAM, QUICK, ROUNDS, SPEED};
use crate::page::{COLUMNS, PAGE};
use crate::peers::{BARE, BWRAP, DOCKER_EXEC, SRT, SandboxPeerPaths};
use crate::{concurrent, fork};

const BENCH: BenchProgram = BenchProgram { name: "bench_sandbox", options: OPTIONS, page: Some(PAGE) };

/// The embedded backend, with a program that is only the launcher, and with the complete `ralph` as launcher.
pub(crate) const EMBEDDED: &str = "embedded";
pub(crate) const EMBEDDED_RALPH: &str = "embedded (ralph)";

/// A first command, in runs of `bwrap` and of `srt`.
const RATIO_TO_BWRAP: FigureTarget = FigureTarget::AtMost(1.2);
const RATIO_TO_SRT: FigureTarget = FigureTarget::AtMost(1.0 / 15.0);
/// A further command, in starts of the bare program and in runs of `docker exec`.
const RATIO_TO_BARE: FigureTarget = FigureTarget::AtMost(3.0);
const RATIO_TO_DOCKER: FigureTarget = FigureTarget::AtMost(1.0 / 15.0);

/// A command whose files are recorded, in runs of the same command.
const RATIO_TO_PLAIN: FigureTarget = FigureTarget::AtMost(2.0);

/// The backends that are measured.
pub(crate) struct MeasuredBackends {
    pub(crate) cage: Arc<EmbeddedBackend>,
    pub(crate) real: Result<Arc<EmbeddedBackend>, String>,
}

pub(crate) fn main() -> ExitCode {
    BENCH.run(std::env::args().skip(1), |arguments| {
        // As a task, like everything in the real program.
        bench_runtime()?.block_on(async { tokio::spawn(measure(arguments.clone())).await? })
    })
}

async fn measure(arguments: BenchArguments) -> BenchResult<BenchReport> {
    let folder = match arguments.path(&DIR) {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let work = folder.path().join("work");
    fs::create_dir(&work)?;
    let (rounds, quick) = (arguments.number(&ROUNDS) as usize, arguments.has(&QUICK));
    let ours = set_up(&arguments, folder.path()).await?;
    // Without the names of folders, which are specific to this machine.
    let quick_word = if quick { " --quick" } else { "" };
    let mut report = BenchReport::new(format!("cargo xtask bench sandbox --rounds {rounds}{quick_word}"), COLUMNS);
    let peers = arguments.path(&BenchOption::PEERS);
    let places = SandboxPeerPaths::new(peers.as_deref(), arguments.search_path());
    latency::measure(&mut report, &ours, &places, &work, rounds).await?;
    let names = [Some(EMBEDDED), ours.real.is_ok().then_some(EMBEDDED_RALPH)];
    for name in names.into_iter().flatten() {
        report.add_ratio(FIRST, name, BWRAP, RATIO_TO_BWRAP);
        report.add_ratio(FIRST, name, SRT, RATIO_TO_SRT);
        report.add_ratio(FURTHER, name, BARE, RATIO_TO_BARE);
        report.add_ratio(FURTHER, name, DOCKER_EXEC, RATIO_TO_DOCKER);
    }
    for (group, _) in OBSERVED {
        report.add_ratio(group, RECORDED, PLAIN, RATIO_TO_PLAIN);
    }
    if arguments.has(&SPEED) {
        return Ok(report);
    }
    fork::measure(&mut report, &ours.cage, rounds.div_ceil(2), quick).await?;
    concurrent::measure(&mut report.figures, EMBEDDED, ours.cage.clone()).await?;
    if let Ok(real) = &ours.real {
        concurrent::measure(&mut report.figures, EMBEDDED_RALPH, real.clone()).await?;
    }
    Ok(report)
}

/// Sets up both backends; the real program may be missing, or not work as a launcher.
async fn set_up(arguments: &BenchArguments, folder: &Path) -> BenchResult<MeasuredBackends> {
    let beside = build_dir()?;
    let cage = embedded(folder.join("cage"), beside.join("ralph-cage"));
    let program = arguments.path(&PROGRAM).unwrap_or_else(|| beside.join("ralph"));
    let real = if program.is_file() {
        let real = embedded(folder.join("real"), program);
        match check_launcher(&real).await {
            Ok(()) => Ok(real),
            Err(error) => Err(format!("it does not work as a launcher: {error}")),
        }
    } else {
        Err("it was not built".to_owned())
    };
    Ok(MeasuredBackends { cage, real })
}

fn embedded(dir: PathBuf, program: PathBuf) -> Arc<EmbeddedBackend> {
    Arc::new(EmbeddedBackend::new(Setup { dir, program: Some(program), ..Setup::default() }))
}

async fn check_launcher(backend: &EmbeddedBackend) -> BenchResult<()> {
    let sandbox = backend.create(&latency::spec("try")).await?;
    let done = latency::run(&*sandbox, &["/bin/true"]).await;
    sandbox.destroy().await?;
    done
}

/// Returns the folder of the programs that were built together with this one.
fn build_dir() -> BenchResult<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).ok_or("this program is not in a build folder")?.to_owned())
}
