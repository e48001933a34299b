//! Compares the embedded backend with other ways to run a command in a sandbox, in one run and in turn, so that other
//! load on the machine affects all alike. Each figure is shown with its target; exits with code 1 if one is missed.
//!
//! A peer that is not installed is reported with the reason, and never left out silently. Nothing is installed here:
//! `cargo xtask bench sandbox --install` does that.

#[cfg(target_os = "linux")]
mod concurrent;
#[cfg(target_os = "linux")]
mod docker;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod page;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod run;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
