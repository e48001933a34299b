//! Measures a first and a further command, with ralph and with the peers, in turn.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_sandbox::{Backend as _, ExecRequest, Sandbox, SandboxSpec, capture};
use ralph_testkit::bench::{BenchPeer, BenchReport, BenchResult, SampleSeries};

use crate::docker::DockerEngine;
use crate::peers::{
    self, BARE, BWRAP, CODEX, DOCKER_EXEC, DOCKER_RUN, SRT, SandboxPeerPaths, elapsed_ms, time_command,
};
use crate::run::{EMBEDDED, EMBEDDED_RALPH, MeasuredBackends};

pub(crate) const FIRST: &str = "create → first exec of `/bin/true`";
pub(crate) const SHELL: &str = "create → first exec of `sh -c :`";
pub(crate) const FURTHER: &str = "warm exec of `/bin/true`";
pub(crate) const TEARDOWN: &str = "teardown";
pub(crate) const OBSERVED: [(&str, &[&str]); 2] = [
    ("`git log` of an empty repository", &["sh", "-c", "git init -q . 2>/dev/null; git log 2>/dev/null || true"]),
    (
        "Python imports of 60 modules",
        &["/usr/bin/python3", "-c", "import unittest, json, http.client, email.message, asyncio"],
    ),
];
pub(crate) const PLAIN: &str = "plain";
pub(crate) const RECORDED: &str = "observed";

const TRUE: &[&str] = &["/bin/true"];
const COLON: &[&str] = &["sh", "-c", ":"];
const LONG: Duration = Duration::from_mins(1);
/// Slow subjects are measured only once in this many rounds.
const RARE_INTERVAL: usize = 5;

/// The pause before each sample.
const PAUSE: Duration = Duration::from_millis(50);

/// What is measured in a round.
enum SandboxBenchSubject<'a> {
    /// A sandbox of the embedded backend: it is created, runs its first command, and is destroyed.
    Ours(&'a EmbeddedBackend, &'static [&'static str]),
    /// A command in a sandbox that runs already.
    Warm(Arc<dyn Sandbox>, ExecRequest),
    Other(Box<dyn Fn() -> Command + Send + Sync + 'a>),
}

struct SandboxBenchEntry<'a> {
    series: SampleSeries,
    /// The times to destroy the sandboxes.
    ends: Option<SampleSeries>,
    racer: SandboxBenchSubject<'a>,
    rare: bool,
}

/// Measures all subjects and adds the series to the report.
pub(crate) async fn measure(
    report: &mut BenchReport,
    ours: &MeasuredBackends,
    places: &SandboxPeerPaths,
    work: &Path,
    rounds: usize,
) -> BenchResult<()> {
    let docker = DockerEngine::start(places);
    let mut absent = Vec::new();
    let mut entries = Vec::new();
    let mut add = |group, name: &str, rare, racer| {
        let ends = matches!(racer, SandboxBenchSubject::Ours(..)).then(|| SampleSeries::new(TEARDOWN, name, "ms"));
        entries.push(SandboxBenchEntry {
            series: SampleSeries::new(group, name, "ms"),
            ends: ends.filter(|_| group == FIRST),
            racer,
            rare,
        });
    };
    add(FIRST, EMBEDDED, false, SandboxBenchSubject::Ours(&ours.cage, TRUE));
    add(SHELL, EMBEDDED, false, SandboxBenchSubject::Ours(&ours.cage, COLON));
    let warm = ours.cage.create(&spec("warm")).await?;
    add(FURTHER, EMBEDDED, false, SandboxBenchSubject::Warm(warm.clone(), true_request()));
    // A program that looks for many files, as a test runner does, alone and with every path recorded.
    for (group, argv) in OBSERVED {
        let exec = ExecRequest::new(argv.iter().copied(), LONG);
        add(group, PLAIN, false, SandboxBenchSubject::Warm(warm.clone(), exec.clone()));
        add(group, RECORDED, false, SandboxBenchSubject::Warm(warm.clone(), exec.observed()));
    }
    let mut standing = vec![warm];
    match &ours.real {
        Ok(real) => {
            add(FIRST, EMBEDDED_RALPH, false, SandboxBenchSubject::Ours(real, TRUE));
            let warm = real.create(&spec("warm-real")).await?;
            add(FURTHER, EMBEDDED_RALPH, false, SandboxBenchSubject::Warm(warm.clone(), true_request()));
            standing.push(warm);
        }
        Err(why) => {
            absent.extend([FIRST, FURTHER].map(|group| SampleSeries::missing(group, EMBEDDED_RALPH, "ms", why)));
        }
    }
    for (group, argv) in [(FIRST, TRUE), (SHELL, COLON), (FURTHER, TRUE)] {
        add(group, BARE, false, SandboxBenchSubject::Other(Box::new(move || peers::bare(work, argv))));
    }
    match places.find("bwrap") {
        Ok(bwrap) => {
            report.peers.push(BenchPeer { name: BWRAP.to_owned(), version: places.version(&bwrap) });
            for (group, argv) in [(FIRST, TRUE), (SHELL, COLON)] {
                let bwrap = bwrap.clone();
                let command = move || peers::bwrap(places, &bwrap, work, argv);
                add(group, BWRAP, false, SandboxBenchSubject::Other(Box::new(command)));
            }
        }
        Err(why) => absent.extend([FIRST, SHELL].map(|group| SampleSeries::missing(group, BWRAP, "ms", &why))),
    }
    match places.find("srt") {
        Ok(srt) => {
            report.peers.push(BenchPeer { name: SRT.to_owned(), version: npm_version(&srt) });
            add(FIRST, SRT, true, SandboxBenchSubject::Other(Box::new(move || peers::srt(places, &srt, work, TRUE))));
        }
        Err(why) => absent.push(SampleSeries::missing(FIRST, SRT, "ms", why)),
    }
    match places.find("codex") {
        Ok(codex) => {
            report.peers.push(BenchPeer { name: CODEX.to_owned(), version: places.version(&codex) });
            add(
                FIRST,
                CODEX,
                true,
                SandboxBenchSubject::Other(Box::new(move || peers::codex(places, &codex, work, TRUE))),
            );
        }
        Err(why) => absent.push(SampleSeries::missing(FIRST, CODEX, "ms", why)),
    }
    match &docker {
        Ok(docker) => {
            report.peers.push(BenchPeer { name: "docker".to_owned(), version: docker.version.clone() });
            add(FIRST, DOCKER_RUN, true, SandboxBenchSubject::Other(Box::new(move || docker.run(TRUE))));
            add(FURTHER, DOCKER_EXEC, true, SandboxBenchSubject::Other(Box::new(move || docker.exec(TRUE))));
        }
        Err(why) => {
            absent.push(SampleSeries::missing(FIRST, DOCKER_RUN, "ms", why));
            absent.push(SampleSeries::missing(FURTHER, DOCKER_EXEC, "ms", why));
        }
    }
    measure_in_turn(&mut entries, rounds).await?;
    for sandbox in standing {
        sandbox.destroy().await?;
    }
    let ends: Vec<SampleSeries> = entries.iter_mut().filter_map(|entry| entry.ends.take()).collect();
    let mut all: Vec<SampleSeries> = entries.into_iter().map(|entry| entry.series).chain(absent).chain(ends).collect();
    let order = [FIRST, SHELL, FURTHER, OBSERVED[0].0, OBSERVED[1].0, TEARDOWN];
    all.sort_by_key(|series| order.iter().position(|group| *group == series.group));
    report.series.extend(all);
    Ok(())
}

/// Measures all subjects in turn; each round starts with another, so that none always follows the same one.
async fn measure_in_turn(entries: &mut [SandboxBenchEntry<'_>], rounds: usize) -> BenchResult<()> {
    // Once for each without measuring: this loads files into memory, and shows why a peer cannot run here.
    for (n, entry) in entries.iter_mut().enumerate() {
        if let Err(error) = sample(entry, &format!("try-{n}")).await {
            match entry.racer {
                SandboxBenchSubject::Other(_) => entry.series.missing = Some(error.to_string()),
                _ => return Err(error),
            }
        }
        entry.series.values.clear();
        if let Some(ends) = &mut entry.ends {
            ends.values.clear();
        }
    }
    let count = entries.len();
    for round in 0..rounds {
        for turn in 0..count {
            let Some(entry) = entries.get_mut((round + turn) % count) else { continue };
            if entry.series.missing.is_none() && (!entry.rare || round % RARE_INTERVAL == 0) {
                // Work that the previous subject does afterwards (ralph starts a spare launcher) must not slow down the
                // next one.
                tokio::time::sleep(PAUSE).await;
                sample(entry, &format!("round-{round}-{turn}")).await?;
            }
        }
    }
    Ok(())
}

async fn sample(entry: &mut SandboxBenchEntry<'_>, name: &str) -> BenchResult<()> {
    let took = match &entry.racer {
        SandboxBenchSubject::Ours(backend, argv) => {
            let began = Instant::now();
            let sandbox = backend.create(&spec(name)).await?;
            run(&*sandbox, argv).await?;
            let took = elapsed_ms(began);
            let began = Instant::now();
            sandbox.destroy().await?;
            if let Some(ends) = &mut entry.ends {
                ends.values.push(elapsed_ms(began));
            }
            took
        }
        SandboxBenchSubject::Warm(sandbox, exec) => {
            let began = Instant::now();
            run_request(&**sandbox, exec).await?;
            elapsed_ms(began)
        }
        SandboxBenchSubject::Other(command) => time_command(&mut command())?,
    };
    entry.series.values.push(took);
    Ok(())
}

fn true_request() -> ExecRequest {
    ExecRequest::new(TRUE.iter().copied(), LONG)
}

pub(crate) async fn run(sandbox: &dyn Sandbox, argv: &[&str]) -> BenchResult<()> {
    run_request(sandbox, &ExecRequest::new(argv.iter().copied(), LONG)).await
}

async fn run_request(sandbox: &dyn Sandbox, exec: &ExecRequest) -> BenchResult<()> {
    let output = capture(sandbox, exec, 1 << 16).await?;
    if output.exit.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {}: {}", exec.argv.join(" "), output.exit.code(), output.stderr_text()).into())
    }
}

pub(crate) fn spec(name: &str) -> SandboxSpec {
    SandboxSpec { name: format!("bench-{name}"), ..SandboxSpec::default() }
}

/// Returns the version of an npm package from the manifest of its program.
fn npm_version(program: &Path) -> String {
    let real = std::fs::canonicalize(program).unwrap_or_default();
    let manifest = real.ancestors().map(|folder| folder.join("package.json")).find(|file| file.is_file());
    let manifest = manifest.and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap_or_default();
    let word = |key: &str| manifest.get(key).and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
    format!("{} {}", word("name"), word("version"))
}
