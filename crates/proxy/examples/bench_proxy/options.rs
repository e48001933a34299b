//! Parses the command line of the benchmark.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "usage: bench_proxy [--json] [--strict] [--rounds N] [--seconds N] [--peers DIR] [--path PATH] [--only TEXT | --write DIR]\n\n  \
    --rounds N      requests by which a delay is measured, for each setup (1000)\n  \
    --seconds N     how long each measurement of requests per second takes (2)\n  \
    --peers DIR     where `cargo xtask bench proxy --install` has put the other proxies\n  \
    --path PATH     where the other proxies are searched after that (the standard directories)\n  \
    --only TEXT     measure only what has this in its name; the other figures are reported as not measured\n  \
    --write DIR     write `proxy.md` and `proxy.svg` there\n  \
    --strict        a figure that could not be measured is a failure\n  \
    --json          print one JSON object\n";

/// The standard directories of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyBenchOptions {
    pub(crate) json: bool,
    pub(crate) strict: bool,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) peers: Option<PathBuf>,
    pub(crate) path: String,
    pub(crate) only: Option<String>,
    pub(crate) write: Option<PathBuf>,
}

/// Parses the arguments; `None` if they are invalid.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<ProxyBenchOptions> {
    let mut options = ProxyBenchOptions {
        json: false,
        strict: false,
        rounds: 1000,
        seconds: 2,
        peers: None,
        path: PATH.to_owned(),
        only: None,
        write: None,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--strict" => options.strict = true,
            "--rounds" => options.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
            "--seconds" => options.seconds = args.next()?.parse().ok().filter(|seconds| (1..=60).contains(seconds))?,
            "--peers" => options.peers = Some(args.next()?.into()),
            "--path" => options.path = args.next()?,
            "--only" => options.only = Some(args.next()?),
            "--write" => options.write = Some(args.next()?.into()),
            _ => return None,
        }
    }
    // A partial page would look like a complete one.
    (options.only.is_none() || options.write.is_none()).then_some(options)
}
