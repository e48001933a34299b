//! The embedded backend beside other ways to run a command in a cage, in one run and in turn, so that whatever else the
//! machine does hits all alike. Each figure has its target beside it; ends with code 1 when one is missed.
//!
//! A peer that is not here is told as such, with the reason, and never left out in silence. Nothing is installed here:
//! `cargo xtask bench sandbox --install` does that.

#[cfg(target_os = "linux")]
mod chart;
#[cfg(target_os = "linux")]
mod concurrent;
#[cfg(target_os = "linux")]
mod docker;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod markdown;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod series;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
