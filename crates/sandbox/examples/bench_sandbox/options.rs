//! Parses the command line of the benchmark.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "usage: bench_sandbox [--json] [--rounds N] [--quick] [--speed] [--peers DIR] [--program PATH] [--write DIR]\n\n  \
    --rounds N      samples of each quick measurement; slow ones get a fifth (100)\n  \
    --quick         leave out the large snapshot\n  \
    --speed         only the first and the further commands, to find out what takes so long\n  \
    --peers DIR     where `cargo xtask bench sandbox --install` has put the peers\n  \
    --path PATH     where to look for the peers after that (the usual system directories)\n  \
    --program PATH  measure this program as launcher too (the `ralph` beside this one, if there is one)\n  \
    --dir DIR       where to keep the sandboxes while they are measured (the system's temporary folder)\n  \
    --write DIR     write `sandbox.md` and `sandbox.svg` there\n  \
    --json          print one JSON object\n";

/// The usual system directories of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxBenchOptions {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    pub(crate) speed: bool,
    pub(crate) rounds: usize,
    pub(crate) peers: Option<PathBuf>,
    pub(crate) path: String,
    pub(crate) program: Option<PathBuf>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) write: Option<PathBuf>,
}

/// Parses the arguments; `None` if they are invalid.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<SandboxBenchOptions> {
    let mut options = SandboxBenchOptions {
        json: false,
        quick: false,
        speed: false,
        rounds: 100,
        peers: None,
        path: PATH.to_owned(),
        program: None,
        dir: None,
        write: None,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--quick" => options.quick = true,
            "--speed" => options.speed = true,
            "--rounds" => options.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
            "--peers" => options.peers = Some(args.next()?.into()),
            "--path" => options.path = args.next()?,
            "--program" => options.program = Some(args.next()?.into()),
            "--dir" => options.dir = Some(args.next()?.into()),
            "--write" => options.write = Some(args.next()?.into()),
            _ => return None,
        }
    }
    Some(options)
}
