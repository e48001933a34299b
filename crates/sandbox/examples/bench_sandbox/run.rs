//! The bench as a whole: who is measured, against which targets, and where the result goes.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ralph_sandbox::Backend as _;
use ralph_sandbox::embedded::{Embedded, Options as Setup};

use crate::options::{self, Options, USAGE};
use crate::peers::{BARE, BWRAP, DOCKER_EXEC, Places, SRT};
use crate::speed::{self, FIRST, FURTHER};
use crate::table::Table;
use crate::{chart, crowd, fork, machine, page};

/// What every part of the bench fails with; it only ever goes to a terminal.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Ours, with a launcher that is nothing else, and with the whole of `ralph` as one.
pub(crate) const EMBEDDED: &str = "embedded";
pub(crate) const REAL: &str = "embedded (ralph)";

/// A first command, in runs of `bwrap` and of `srt`.
const OF_BWRAP: f64 = 1.2;
const OF_SRT: f64 = 1.0 / 15.0;
/// A further command, in starts of the bare program and in runs of `docker exec`.
const OF_BARE: f64 = 3.0;
const OF_DOCKER: f64 = 1.0 / 15.0;

/// The backends that are measured.
pub(crate) struct Ours {
    pub(crate) cage: Arc<Embedded>,
    pub(crate) real: Result<Arc<Embedded>, String>,
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
        // As a task, as everything is in the real program.
        .and_then(|runtime| runtime.block_on(async { tokio::spawn(measure(options.clone())).await? }))
        .and_then(|table| write(&options, &table).map(|()| table));
    match measured {
        Ok(table) => {
            let text = if options.json { table.json() } else { table.text() };
            // When nobody reads the figures, the exit code still tells.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if table.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

async fn measure(options: Options) -> Fallible<Table> {
    let folder = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let work = folder.path().join("work");
    fs::create_dir(&work)?;
    let (mut table, ours) = begin(&options, folder.path()).await?;
    let places = Places::new(options.peers.as_deref(), &options.path);
    speed::measure(&mut table, &ours, &places, &work, options.rounds).await?;
    let names = [Some(EMBEDDED), ours.real.is_ok().then_some(REAL)];
    for name in names.into_iter().flatten() {
        table.times(FIRST, name, BWRAP, OF_BWRAP);
        table.times(FIRST, name, SRT, OF_SRT);
        table.times(FURTHER, name, BARE, OF_BARE);
        table.times(FURTHER, name, DOCKER_EXEC, OF_DOCKER);
    }
    if options.speed {
        return Ok(table);
    }
    fork::measure(&mut table, &ours.cage, options.rounds.div_ceil(2), options.quick).await?;
    crowd::measure(&mut table, EMBEDDED, ours.cage.clone()).await?;
    if let Ok(real) = &ours.real {
        crowd::measure(&mut table, REAL, real.clone()).await?;
    }
    Ok(table)
}

/// Sets both backends up; the real program may not be there, or be no launcher.
async fn begin(options: &Options, folder: &Path) -> Fallible<(Table, Ours)> {
    let beside = release()?;
    let cage = embedded(folder.join("cage"), beside.join("ralph-cage"));
    let program = options.program.clone().unwrap_or_else(|| beside.join("ralph"));
    let real = if program.is_file() {
        let real = embedded(folder.join("real"), program.clone());
        match attempt(&real).await {
            Ok(()) => Ok(real),
            Err(error) => Err(format!("it is no launcher: {error}")),
        }
    } else {
        Err("it was not built".to_owned())
    };
    // Without the names of folders, which are this machine's alone.
    let mut command = format!("cargo xtask bench sandbox --rounds {}", options.rounds);
    if options.quick {
        command.push_str(" --quick");
    }
    let table = Table {
        format: 1,
        command,
        machine: machine::look(),
        peers: Vec::new(),
        series: Vec::new(),
        figures: Vec::new(),
    };
    Ok((table, Ours { cage, real }))
}

fn embedded(dir: PathBuf, program: PathBuf) -> Arc<Embedded> {
    Arc::new(Embedded::new(Setup { dir, program: Some(program), ..Setup::default() }))
}

async fn attempt(backend: &Embedded) -> Fallible<()> {
    let sandbox = backend.create(&speed::spec("try")).await?;
    let done = speed::run(&*sandbox, &["/bin/true"]).await;
    sandbox.destroy().await?;
    done
}

/// Returns the folder of the programs that were built together with this one.
fn release() -> Fallible<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).ok_or("this program lies in no folder of a build")?.to_owned())
}

fn write(options: &Options, table: &Table) -> Fallible<()> {
    let Some(dir) = &options.write else { return Ok(()) };
    fs::create_dir_all(dir)?;
    fs::write(dir.join("sandbox.md"), page::markdown(table))?;
    fs::write(dir.join("sandbox.svg"), chart::svg(table))?;
    Ok(())
}
