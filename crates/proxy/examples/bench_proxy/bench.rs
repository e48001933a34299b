//! Runs the whole benchmark: what is measured, against which targets, and where the result is written.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use ralph_testkit::bench::{describe_machine, report_failure};

use crate::options::{self, ProxyBenchOptions, USAGE};
use crate::other_proxies::{LITELLM, MITMPROXY, NGINX};
use crate::report::ProxyBenchReport;
use crate::setup::ProxyBenchSetup;
use crate::{call_rate, chart, event_delay, latency, markdown, memory, ralph_proxy_process, throughput};

/// The result of every part of the benchmark; errors are only printed to a terminal.
pub(crate) type ProxyBenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The delay that the proxy may add to a call, in ms: by a base URL, and in an inspected tunnel.
const REVERSE_ADDS: f64 = 0.5;
const INTERCEPT_ADDS: f64 = 1.5;
/// The delay that the proxy may add to an event, in ms.
const EVENT_ADDS: f64 = 1.0;
/// The required calls per second, as a multiple of another proxy's.
const OF_MITMPROXY: f64 = 10.0;
const OF_LITELLM: f64 = 10.0;
const OF_NGINX: f64 = 0.5;
/// Both ends of a great many connections are in this process.
const MAX_OPEN_FILES: u64 = 16_384;

pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    raise_file_limit();
    if let [word, upstream] = words.as_slice()
        && word == ralph_proxy_process::SERVE_COMMAND
    {
        return ralph_proxy_process::serve_until_stdin_closes(upstream)
            .map_or_else(|error| report_failure(&*error), |()| ExitCode::SUCCESS);
    }
    let Some(options) = options::parse(words.into_iter()) else {
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    print_progress("all proxies are started");
    let measured = ProxyBenchSetup::new(&options)
        .and_then(|setup| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            Ok(runtime.block_on(measure(&options, &setup)))
        })
        .and_then(|table| write(&options, &table).map(|()| table));
    match measured {
        Ok(table) => {
            let text = if options.json { table.json() } else { table.text() };
            // If stdout is closed, the exit code still says whether the targets were met.
            let _ = std::io::stdout().write_all(text.as_bytes());
            let lacks = options.strict && table.unmeasured() > 0;
            if table.passed() && !lacks { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => report_failure(&*error),
    }
}

async fn measure(options: &ProxyBenchOptions, setup: &ProxyBenchSetup) -> ProxyBenchReport {
    let mut table = ProxyBenchReport {
        format: 1,
        // Without directory names, which mean something on this machine only.
        command: format!("cargo xtask bench proxy --rounds {} --seconds {}", options.rounds, options.seconds),
        machine: describe_machine(),
        peers: setup.peers.clone(),
        series: Vec::new(),
        figures: Vec::new(),
    };
    let wanted = |group: &str| {
        let wanted = options.only.as_deref().is_none_or(|only| group.contains(only));
        if wanted {
            print_progress(group);
        }
        wanted
    };
    let (rounds, length) = (options.rounds, Duration::from_secs(options.seconds));
    for (group, ways) in [
        (latency::REVERSE, &setup.reverse),
        (latency::SPLICE, &setup.splice),
        (latency::INTERCEPT, &setup.intercept),
        (latency::PLAIN, &setup.plain),
    ] {
        if wanted(group) {
            latency::measure(&mut table, group, ways, rounds).await;
        }
    }
    for (group, ways) in [(event_delay::REVERSE, &setup.reverse), (event_delay::INTERCEPT, &setup.intercept)] {
        if wanted(group) {
            event_delay::measure(&mut table, group, ways, setup.upstream.epoch).await;
        }
    }
    for (group, ways) in [(call_rate::REVERSE, &setup.reverse), (call_rate::PLAIN, &setup.plain)] {
        if wanted(group) {
            call_rate::measure(&mut table, group, ways, length).await;
        }
    }
    if wanted(throughput::GROUP) {
        throughput::measure(&mut table, &setup.throughput).await;
    }
    if wanted(memory::GROUP) {
        memory::measure(&mut table, setup).await;
    }
    table.check_added_delay(latency::REVERSE, ralph_proxy_process::NAME, REVERSE_ADDS);
    table.check_added_delay(latency::INTERCEPT, ralph_proxy_process::NAME, INTERCEPT_ADDS);
    table.check_added_delay(event_delay::REVERSE, ralph_proxy_process::NAME, EVENT_ADDS);
    table.check_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, MITMPROXY, OF_MITMPROXY);
    table.check_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, LITELLM, OF_LITELLM);
    table.check_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, NGINX, OF_NGINX);
    table
}

/// Prints on the terminal what takes so long.
fn print_progress(what: &str) {
    let _ = writeln!(std::io::stderr(), "measuring: {what}");
}

/// Raises the limit of open files to what the benchmark may need; with fewer, the part with a great many connections
/// fails and says so.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(MAX_OPEN_FILES, |most| most.min(MAX_OPEN_FILES));
    if now.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum });
    }
}

fn write(options: &ProxyBenchOptions, table: &ProxyBenchReport) -> ProxyBenchResult<()> {
    let Some(dir) = &options.write else { return Ok(()) };
    fs::create_dir_all(dir)?;
    fs::write(dir.join("proxy.md"), markdown::markdown(table))?;
    fs::write(dir.join("proxy.svg"), chart::svg(table))?;
    Ok(())
}
