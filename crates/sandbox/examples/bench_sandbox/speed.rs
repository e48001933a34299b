//! How long a first and a further command take, for us and for the others, in turn.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_sandbox::embedded::Embedded;
use ralph_sandbox::{Backend as _, Exec, Sandbox, Spec, capture};

use crate::docker::Docker;
use crate::peers::{self, BARE, BWRAP, CODEX, DOCKER_EXEC, DOCKER_RUN, Peer, Places, SRT, ms, time};
use crate::run::{EMBEDDED, Fallible, Ours, REAL};
use crate::series::Series;
use crate::table::Table;

pub(crate) const FIRST: &str = "create → first exec of `/bin/true`";
pub(crate) const SHELL: &str = "create → first exec of `sh -c :`";
pub(crate) const FURTHER: &str = "warm exec of `/bin/true`";
pub(crate) const END: &str = "teardown";

const TRUE: &[&str] = &["/bin/true"];
const COLON: &[&str] = &["sh", "-c", ":"];
const LONG: Duration = Duration::from_mins(1);
/// Those that take seconds are asked only in every such round.
const RARELY: usize = 5;

/// What everybody gets before it is its turn.
const REST: Duration = Duration::from_millis(50);

/// Who takes part in a round.
enum Racer<'a> {
    /// One of ours: a sandbox is made, runs its first command, and is destroyed.
    Ours(&'a Embedded, &'static [&'static str]),
    /// A command in a sandbox that stands.
    Warm(Arc<dyn Sandbox>),
    Other(Box<dyn Fn() -> Command + Send + Sync + 'a>),
}

struct Entry<'a> {
    series: Series,
    /// Where the ends of our sandboxes are written down.
    ends: Option<Series>,
    racer: Racer<'a>,
    rare: bool,
}

/// Races everybody and adds the series to the table.
pub(crate) async fn measure(
    table: &mut Table,
    ours: &Ours,
    places: &Places,
    work: &Path,
    rounds: usize,
) -> Fallible<()> {
    let docker = Docker::start(places);
    let mut absent = Vec::new();
    let mut entries = Vec::new();
    let mut add = |group, name: &str, rare, racer| {
        let ends = matches!(racer, Racer::Ours(..)).then(|| Series::new(END, name));
        entries.push(Entry { series: Series::new(group, name), ends: ends.filter(|_| group == FIRST), racer, rare });
    };
    add(FIRST, EMBEDDED, false, Racer::Ours(&ours.cage, TRUE));
    add(SHELL, EMBEDDED, false, Racer::Ours(&ours.cage, COLON));
    let warm = ours.cage.create(&spec("warm")).await?;
    add(FURTHER, EMBEDDED, false, Racer::Warm(warm.clone()));
    let mut standing = vec![warm];
    match &ours.real {
        Ok(real) => {
            add(FIRST, REAL, false, Racer::Ours(real, TRUE));
            let warm = real.create(&spec("warm-real")).await?;
            add(FURTHER, REAL, false, Racer::Warm(warm.clone()));
            standing.push(warm);
        }
        Err(why) => absent.extend([FIRST, FURTHER].map(|group| Series::missing(group, REAL, why))),
    }
    for (group, argv) in [(FIRST, TRUE), (SHELL, COLON), (FURTHER, TRUE)] {
        add(group, BARE, false, Racer::Other(Box::new(move || peers::bare(work, argv))));
    }
    match places.find("bwrap") {
        Ok(bwrap) => {
            table.peers.push(Peer { name: BWRAP.to_owned(), version: places.version(&bwrap) });
            for (group, argv) in [(FIRST, TRUE), (SHELL, COLON)] {
                let bwrap = bwrap.clone();
                let command = move || peers::bwrap(places, &bwrap, work, argv);
                add(group, BWRAP, false, Racer::Other(Box::new(command)));
            }
        }
        Err(why) => absent.extend([FIRST, SHELL].map(|group| Series::missing(group, BWRAP, &why))),
    }
    match places.find("srt") {
        Ok(srt) => {
            table.peers.push(Peer { name: SRT.to_owned(), version: package(&srt) });
            add(FIRST, SRT, true, Racer::Other(Box::new(move || peers::srt(places, &srt, work, TRUE))));
        }
        Err(why) => absent.push(Series::missing(FIRST, SRT, why)),
    }
    match places.find("codex") {
        Ok(codex) => {
            table.peers.push(Peer { name: CODEX.to_owned(), version: places.version(&codex) });
            add(FIRST, CODEX, true, Racer::Other(Box::new(move || peers::codex(places, &codex, work, TRUE))));
        }
        Err(why) => absent.push(Series::missing(FIRST, CODEX, why)),
    }
    match &docker {
        Ok(docker) => {
            table.peers.push(Peer { name: "docker".to_owned(), version: docker.version.clone() });
            add(FIRST, DOCKER_RUN, true, Racer::Other(Box::new(move || docker.run(TRUE))));
            add(FURTHER, DOCKER_EXEC, true, Racer::Other(Box::new(move || docker.exec(TRUE))));
        }
        Err(why) => {
            absent.push(Series::missing(FIRST, DOCKER_RUN, why));
            absent.push(Series::missing(FURTHER, DOCKER_EXEC, why));
        }
    }
    race(&mut entries, rounds).await?;
    for sandbox in standing {
        sandbox.destroy().await?;
    }
    let ends: Vec<Series> = entries.iter_mut().filter_map(|entry| entry.ends.take()).collect();
    let mut all: Vec<Series> = entries.into_iter().map(|entry| entry.series).chain(absent).chain(ends).collect();
    let order = [FIRST, SHELL, FURTHER, END];
    all.sort_by_key(|series| order.iter().position(|group| *group == series.group));
    table.series.extend(all);
    Ok(())
}

/// Asks everybody in turn; each round begins with another, so that nobody always follows the same one.
async fn race(entries: &mut [Entry<'_>], rounds: usize) -> Fallible<()> {
    // Once for everybody without a clock: files come into memory, and who cannot run here says why.
    for (n, entry) in entries.iter_mut().enumerate() {
        if let Err(error) = sample(entry, &format!("try-{n}")).await {
            match entry.racer {
                Racer::Other(_) => entry.series.missing = Some(error.to_string()),
                _ => return Err(error),
            }
        }
        entry.series.times.clear();
        if let Some(ends) = &mut entry.ends {
            ends.times.clear();
        }
    }
    let count = entries.len();
    for round in 0..rounds {
        for turn in 0..count {
            let Some(entry) = entries.get_mut((round + turn) % count) else { continue };
            if entry.series.missing.is_none() && (!entry.rare || round % RARELY == 0) {
                // What the one before left for later (ours puts a launcher in reserve) is not the next one's burden.
                tokio::time::sleep(REST).await;
                sample(entry, &format!("round-{round}-{turn}")).await?;
            }
        }
    }
    Ok(())
}

async fn sample(entry: &mut Entry<'_>, name: &str) -> Fallible<()> {
    let took = match &entry.racer {
        Racer::Ours(backend, argv) => {
            let began = Instant::now();
            let sandbox = backend.create(&spec(name)).await?;
            run(&*sandbox, argv).await?;
            let took = ms(began);
            let began = Instant::now();
            sandbox.destroy().await?;
            if let Some(ends) = &mut entry.ends {
                ends.times.push(ms(began));
            }
            took
        }
        Racer::Warm(sandbox) => {
            let began = Instant::now();
            run(&**sandbox, TRUE).await?;
            ms(began)
        }
        Racer::Other(command) => time(&mut command())?,
    };
    entry.series.times.push(took);
    Ok(())
}

pub(crate) async fn run(sandbox: &dyn Sandbox, argv: &[&str]) -> Fallible<()> {
    let output = capture(sandbox, &Exec::new(argv.iter().copied(), LONG), 1 << 16).await?;
    if output.exit.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {}: {}", argv.join(" "), output.exit.code(), output.stderr_text()).into())
    }
}

pub(crate) fn spec(name: &str) -> Spec {
    Spec { name: format!("bench-{name}"), ..Spec::default() }
}

/// Returns the version of a package of npm from the file beside its program.
fn package(program: &Path) -> String {
    let real = std::fs::canonicalize(program).unwrap_or_default();
    let manifest = real.ancestors().map(|folder| folder.join("package.json")).find(|file| file.is_file());
    let manifest = manifest.and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap_or_default();
    let word = |key: &str| manifest.get(key).and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
    format!("{} {}", word("name"), word("version"))
}
