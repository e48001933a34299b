//! Compares ralph's egress proxy with other proxies, in one run and in turn, on the same upstream and with the same
//! client, so that noise on the machine affects all alike. Each figure has its target beside it; exits with code 1 if
//! one is missed.
//!
//! Every proxy is a process of its own, ours too (`bench_proxy serve`). A proxy that is not installed is reported as
//! such, with the reason, and never silently omitted. Nothing is installed here: `cargo xtask bench proxy --install`
//! does that.

mod bench;
mod call_rate;
mod client;
mod event_delay;
mod latency;
mod memory;
mod options;
mod other_proxies;
mod page;
mod proxy_process;
mod ralph_proxy_process;
mod setup;
mod throughput;
mod upstream;

fn main() -> std::process::ExitCode {
    bench::main()
}
