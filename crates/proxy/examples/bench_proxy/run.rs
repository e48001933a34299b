//! The bench as a whole: what is measured, against which targets, and where the result goes.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use crate::options::{self, Options, USAGE};
use crate::peers::{LITELLM, MITMPROXY, NGINX};
use crate::stage::Stage;
use crate::table::Table;
use crate::{chart, hose, latency, machine, memory, ours, page, rate, sse};

/// What every part of the bench fails with; it only ever goes to a terminal.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a call may take longer than without us, in ms: by a base URL, and in a tunnel that is looked into.
const REVERSE_ADDS: f64 = 0.5;
const INTERCEPT_ADDS: f64 = 1.5;
/// What an event may arrive later, in ms.
const EVENT_ADDS: f64 = 1.0;
/// Calls per second, in those of others.
const OF_MITMPROXY: f64 = 10.0;
const OF_LITELLM: f64 = 10.0;
const OF_NGINX: f64 = 0.5;
/// Both ends of very many connections lie in this process.
const FILES: u64 = 16_384;

pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    more_files();
    if let [word, world] = words.as_slice()
        && word == ours::WORD
    {
        return ours::be(world).map_or_else(|error| failed(&*error), |()| ExitCode::SUCCESS);
    }
    let Some(options) = options::parse(words.into_iter()) else {
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    say("everybody is started");
    let measured = Stage::set(&options)
        .and_then(|stage| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            Ok(runtime.block_on(measure(&options, &stage)))
        })
        .and_then(|table| write(&options, &table).map(|()| table));
    match measured {
        Ok(table) => {
            let text = if options.json { table.json() } else { table.text() };
            // When nobody reads the figures, the exit code still tells.
            let _ = std::io::stdout().write_all(text.as_bytes());
            let lacks = options.strict && table.unmeasured() > 0;
            if table.passed() && !lacks { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => failed(&*error),
    }
}

async fn measure(options: &Options, stage: &Stage) -> Table {
    let mut table = Table {
        format: 1,
        // Without the names of folders, which are this machine's alone.
        command: format!("cargo xtask bench proxy --rounds {} --seconds {}", options.rounds, options.seconds),
        machine: machine::look(),
        peers: stage.peers.clone(),
        series: Vec::new(),
        figures: Vec::new(),
    };
    let wanted = |group: &str| {
        let wanted = options.only.as_deref().is_none_or(|only| group.contains(only));
        if wanted {
            say(group);
        }
        wanted
    };
    let (rounds, length) = (options.rounds, Duration::from_secs(options.seconds));
    for (group, ways) in [
        (latency::REVERSE, &stage.reverse),
        (latency::SPLICE, &stage.splice),
        (latency::INTERCEPT, &stage.intercept),
        (latency::PLAIN, &stage.plain),
    ] {
        if wanted(group) {
            latency::measure(&mut table, group, ways, rounds).await;
        }
    }
    for (group, ways) in [(sse::REVERSE, &stage.reverse), (sse::INTERCEPT, &stage.intercept)] {
        if wanted(group) {
            sse::measure(&mut table, group, ways, stage.upstream.epoch).await;
        }
    }
    for (group, ways) in [(rate::REVERSE, &stage.reverse), (rate::PLAIN, &stage.plain)] {
        if wanted(group) {
            rate::measure(&mut table, group, ways, length).await;
        }
    }
    if wanted(hose::GROUP) {
        hose::measure(&mut table, &stage.hoses).await;
    }
    if wanted(memory::GROUP) {
        memory::measure(&mut table, stage).await;
    }
    table.adds(latency::REVERSE, ours::NAME, REVERSE_ADDS);
    table.adds(latency::INTERCEPT, ours::NAME, INTERCEPT_ADDS);
    table.adds(sse::REVERSE, ours::NAME, EVENT_ADDS);
    table.times(rate::REVERSE, ours::NAME, MITMPROXY, OF_MITMPROXY);
    table.times(rate::REVERSE, ours::NAME, LITELLM, OF_LITELLM);
    table.times(rate::REVERSE, ours::NAME, NGINX, OF_NGINX);
    table
}

/// Tells the person at the terminal what takes so long.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "measuring: {what}");
}

/// Asks for as many open files as the bench may need; with fewer, the part with very many connections fails and says so.
fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(FILES, |most| most.min(FILES));
    if now.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum });
    }
}

fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(2)
}

fn write(options: &Options, table: &Table) -> Fallible<()> {
    let Some(dir) = &options.write else { return Ok(()) };
    fs::create_dir_all(dir)?;
    fs::write(dir.join("proxy.md"), page::markdown(table))?;
    fs::write(dir.join("proxy.svg"), chart::svg(table))?;
    Ok(())
}
