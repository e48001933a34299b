//! Ralph's way out beside other proxies, in one run and in turn, on the same upstream and with the same client, so that
//! whatever else the machine does hits all alike. Each figure has its target beside it; ends with code 1 when one is
//! missed.
//!
//! Every proxy is a process of its own, ours too (`bench_proxy serve`). A peer that is not here is told as such, with the
//! reason, and never left out in silence. Nothing is installed here: `cargo xtask bench proxy --install` does that.

mod bench;
mod call_rate;
mod chart;
mod client;
mod event_delay;
mod latency;
mod markdown;
mod memory;
mod options;
mod other_proxies;
mod proxy_process;
mod ralph_proxy_process;
mod report;
mod samples;
mod setup;
mod throughput;
mod upstream;

fn main() -> std::process::ExitCode {
    bench::main()
}
