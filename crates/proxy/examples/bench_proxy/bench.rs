//! Runs the whole benchmark: decides what is measured and against which targets.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use ralph_testkit::bench::{
    BenchArguments, BenchOption, BenchProgram, BenchReport, BenchResult, FigureTarget, bench_runtime, report_failure,
};

use crate::options::{ONLY, OPTIONS, ROUNDS, SECONDS};
use crate::other_proxies::{LITELLM, MITMPROXY, NGINX};
use crate::page::{COLUMNS, PAGE};
use crate::setup::{DIRECT, ProxyBenchSetup};
use crate::{call_rate, event_delay, latency, memory, ralph_proxy_process, throughput};

const BENCH: BenchProgram = BenchProgram { name: "bench_proxy", options: OPTIONS, page: Some(PAGE) };

/// The delay that the proxy may add to a call, in ms: by a base URL, and in an inspected tunnel.
const REVERSE_ADDS: f64 = 0.5;
const INTERCEPT_ADDS: f64 = 1.5;
/// The delay that the proxy may add to an event, in ms.
const EVENT_ADDS: f64 = 1.0;
/// The required calls per second, as a multiple of another proxy's.
const OF_MITMPROXY: FigureTarget = FigureTarget::AtLeast(10.0);
const OF_LITELLM: FigureTarget = FigureTarget::AtLeast(10.0);
const OF_NGINX: FigureTarget = FigureTarget::AtLeast(0.5);
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
    BENCH.run(words.into_iter(), run)
}

fn run(arguments: &BenchArguments) -> BenchResult<BenchReport> {
    if arguments.has(&ONLY) && arguments.has(&BenchOption::WRITE) {
        return Err("`--only` cannot be used with `--write`: a partial page would look like a complete one".into());
    }
    print_progress("all proxies are started");
    let setup = ProxyBenchSetup::new(arguments)?;
    Ok(bench_runtime()?.block_on(measure(arguments, &setup)))
}

async fn measure(arguments: &BenchArguments, setup: &ProxyBenchSetup) -> BenchReport {
    let (rounds, seconds) = (arguments.number(&ROUNDS), arguments.number(&SECONDS));
    // Without directory names, which mean something on this machine only.
    let command = format!("cargo xtask bench proxy --rounds {rounds} --seconds {seconds}");
    let mut report = BenchReport::new(command, COLUMNS);
    report.peers.clone_from(&setup.peers);
    let wanted = |group: &str| {
        let wanted = arguments.text(&ONLY).is_none_or(|only| group.contains(only));
        if wanted {
            print_progress(group);
        }
        wanted
    };
    let (rounds, length) = (rounds as usize, Duration::from_secs(seconds.into()));
    for (group, ways) in [
        (latency::REVERSE, &setup.reverse),
        (latency::SPLICE, &setup.splice),
        (latency::INTERCEPT, &setup.intercept),
        (latency::PLAIN, &setup.plain),
    ] {
        if wanted(group) {
            latency::measure(&mut report, group, ways, rounds).await;
        }
    }
    for (group, ways) in [(event_delay::REVERSE, &setup.reverse), (event_delay::INTERCEPT, &setup.intercept)] {
        if wanted(group) {
            event_delay::measure(&mut report, group, ways, setup.upstream.epoch).await;
        }
    }
    for (group, ways) in [(call_rate::REVERSE, &setup.reverse), (call_rate::PLAIN, &setup.plain)] {
        if wanted(group) {
            call_rate::measure(&mut report, group, ways, length).await;
        }
    }
    if wanted(throughput::GROUP) {
        throughput::measure(&mut report, &setup.throughput).await;
    }
    if wanted(memory::GROUP) {
        memory::measure(&mut report, setup).await;
    }
    report.add_delay(latency::REVERSE, ralph_proxy_process::NAME, DIRECT, REVERSE_ADDS);
    report.add_delay(latency::INTERCEPT, ralph_proxy_process::NAME, DIRECT, INTERCEPT_ADDS);
    report.add_delay(event_delay::REVERSE, ralph_proxy_process::NAME, DIRECT, EVENT_ADDS);
    report.add_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, MITMPROXY, OF_MITMPROXY);
    report.add_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, LITELLM, OF_LITELLM);
    report.add_ratio(call_rate::REVERSE, ralph_proxy_process::NAME, NGINX, OF_NGINX);
    report
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
