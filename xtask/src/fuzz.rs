//! Runs the fuzz targets under `fuzz/`, each from its committed seeds.
//!
//! With a nightly toolchain the address sanitizer is on. A stable one can do everything but that.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::tools::{self, CargoTool};
use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

pub(crate) const FUZZ_MANIFEST: &str = "fuzz/Cargo.toml";
pub(crate) const FUZZ: CargoTool = CargoTool { name: "cargo-fuzz", version: "0.13.2" };

/// Fuzzes one target, or all of them.
pub(crate) fn run(workspace: &ProjectWorkspace, each: Duration, target: Option<&str>) -> anyhow::Result<()> {
    Fuzzer::find_or_install(&workspace.root)?.run(workspace, each, target)
}

/// Builds all targets and runs none.
pub(crate) fn build(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    let fuzzer = Fuzzer::find_or_install(&workspace.root)?;
    check_lock_file(&workspace.root)?;
    subprocess::run(&mut fuzzer.cargo_fuzz(&workspace.root, "build")?)
}

/// cargo-fuzz and the toolchain it runs with.
#[derive(Debug)]
pub(crate) struct Fuzzer {
    /// The name of a nightly toolchain.
    nightly: Option<String>,
}

impl Fuzzer {
    /// Finds the fuzzer, and installs it if it is missing.
    pub(crate) fn find_or_install(root: &Path) -> anyhow::Result<Self> {
        tools::ensure(root, &FUZZ)?;
        // Without rustup there is no nightly.
        let toolchains = subprocess::output(subprocess::command("rustup", root).args(["toolchain", "list"]));
        Ok(Self { nightly: toolchains.ok().as_deref().and_then(newest_nightly) })
    }

    pub(crate) fn run(&self, workspace: &ProjectWorkspace, each: Duration, only: Option<&str>) -> anyhow::Result<()> {
        let root = &workspace.root;
        match &self.nightly {
            Some(name) => report::print(&format!("toolchain {name}, with the address sanitizer")),
            None => report::print("no nightly toolchain: without the address sanitizer"),
        }
        check_lock_file(root)?;
        let all = targets(root)?;
        let chosen: Vec<&String> = all.iter().filter(|name| only.is_none_or(|only| only == *name)).collect();
        if chosen.is_empty() {
            bail!("no fuzz target `{}`; there are: {}", only.unwrap_or(""), all.join(", "));
        }
        // All at once: building them one by one leaves most processors idle.
        let mut build = self.cargo_fuzz(root, "build")?;
        subprocess::run(build.args(only))?;
        let lanes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(chosen.len());
        let (next, failed) = (Mutex::new(chosen.into_iter()), AtomicBool::new(false));
        let lane = || -> anyhow::Result<()> {
            while !failed.load(Ordering::Relaxed) {
                let target = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(target) = target else { break };
                self.fuzz(root, target, each).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            let ended: Vec<_> = running.into_iter().map(|lane| lane.join().expect("a lane does not panic")).collect();
            ended.into_iter().collect()
        })
    }

    fn fuzz(&self, root: &Path, target: &str, each: Duration) -> anyhow::Result<()> {
        let seeds = format!("fuzz/seeds/{target}");
        let seeded = fs::read_dir(root.join(&seeds)).is_ok_and(|mut entries| entries.next().is_some());
        if !seeded {
            bail!("fuzz target `{target}` has no seeds: put a few inputs into `{seeds}`");
        }
        // The fuzzer writes new inputs into the first folder, so it must exist; it is not committed.
        let corpus = format!("fuzz/corpus/{target}");
        fs::create_dir_all(root.join(&corpus)).with_context(|| format!("could not make `{corpus}`"))?;
        let mut fuzz = self.cargo_fuzz(root, "run")?;
        fuzz.args([target, &corpus, &seeds, "--"]);
        // A generous timeout: one input may take long under the sanitizer on a busy machine, but not this long.
        fuzz.args(["-timeout=25", "-rss_limit_mb=2048", "-print_final_stats=1", "-print_funcs=0", "-verbosity=0"]);
        fuzz.arg(format!("-max_total_time={}", each.as_secs()));
        let (transcript, ended) = subprocess::run_buffered(&mut fuzz);
        report::print(&transcript);
        ended.with_context(|| format!("fuzz target `{target}`"))
    }

    fn cargo_fuzz(&self, root: &Path, what: &str) -> anyhow::Result<Command> {
        let mut fuzz = self.cargo(root);
        fuzz.env("PATH", tools::path(root)?).args(["fuzz", what, "--target-dir", "fuzz/target"]);
        if self.nightly.is_none() {
            fuzz.args(["--sanitizer", "none"]);
        }
        Ok(fuzz)
    }

    fn cargo(&self, root: &Path) -> Command {
        let Some(nightly) = &self.nightly else { return subprocess::cargo(root) };
        let mut rustup = subprocess::command("rustup", root);
        rustup.args(["run", nightly, "cargo"]).env_remove("CARGO");
        rustup
    }
}

/// Fails if the lock file is out of date: cargo-fuzz has no `--locked` and would rewrite it silently.
fn check_lock_file(root: &Path) -> anyhow::Result<()> {
    let mut tree = subprocess::cargo(root);
    tree.args(["tree", "--quiet", "--depth", "0", "--locked", "--manifest-path", FUZZ_MANIFEST]);
    subprocess::output(&mut tree)
        .map(drop)
        .context("fuzz/Cargo.lock is out of date: cargo update --workspace --manifest-path fuzz/Cargo.toml")
}

/// Returns the names of the fuzz targets, sorted.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("fuzz").join("fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("could not list `{}`", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("could not list `{}`", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the newest nightly in a list of toolchains: the undated one if it is there, else the one with the last date.
fn newest_nightly(toolchains: &str) -> Option<String> {
    let names = toolchains.lines().filter_map(|line| line.split_whitespace().next());
    let dated =
        |name: &str| name.strip_prefix("nightly-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    names
        .filter(|name| *name == "nightly" || name.starts_with("nightly-"))
        .max_by_key(|name| (!dated(name), (*name).to_owned()))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(toolchains: &str, want: Option<&str>) {
        assert_eq!(newest_nightly(toolchains).as_deref(), want, "{toolchains}");
    }

    #[test]
    fn nightlies() {
        check("stable-x (active, default)\nnightly-x\n1.95.0-x\n", Some("nightly-x"));
        check("nightly-2026-01-02-x\nnightly-x\nnightly-2026-03-04-x", Some("nightly-x"));
        check("nightly-2026-03-04-x\nnightly-2026-01-02-x (default)", Some("nightly-2026-03-04-x"));
        check("stable-x\nmy-nightly", None);
        check("no installed toolchains", None);
    }
}
