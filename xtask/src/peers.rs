//! Other programs that benches measure: fetched and unpacked into `target/peers`, so that the system stays as
//! it is and `cargo clean` takes them away again.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::house::House;
use crate::{program, report};

/// What is unpacked from the system's own packages: the programs, what they start, and the libraries they lack.
const CAGES: &[&str] = &[
    "bubblewrap",
    "busybox-static",
    "containerd",
    "docker.io",
    "libnsl2",
    "libtirpc3",
    "libwrap0",
    "ripgrep",
    "runc",
    "socat",
    "tini",
];

const MODULES: &[&str] = &["@anthropic-ai/sandbox-runtime", "@openai/codex"];

const PROXIES: &[&str] = &["nginx", "nginx-common"];

/// Python programs, each with the folder that has its libraries to itself.
const PYTHONS: &[(&str, &str)] = &[("mitmproxy", "mitmproxy"), ("litellm", "litellm[proxy]")];

/// Where they are put.
pub(crate) fn folder(house: &House) -> PathBuf {
    house.root.join("target").join("peers")
}

/// Gets the other cages. One that cannot be had is told, and the bench tells it again: the others are still worth
/// measuring.
pub(crate) fn install_cages(house: &House) -> anyhow::Result<()> {
    unpack(house, CAGES)?;
    let modules = place(house, "npm")?;
    report::say("installing modules with npm into target/peers/npm");
    for module in MODULES {
        let mut npm = program::quiet("npm", &modules);
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&modules).arg(module);
        told(module, program::run(&mut npm));
    }
    Ok(())
}

/// Gets the other proxies, in the same spirit.
pub(crate) fn install_proxies(house: &House) -> anyhow::Result<()> {
    unpack(house, PROXIES)?;
    report::say("installing Python programs with pip, each into a folder of its own below target/peers");
    for (name, package) in PYTHONS {
        let folder = place(house, name)?;
        let made = program::run(program::quiet("python3", &folder).args(["-m", "venv", "."]));
        let installed = made.and_then(|()| {
            let mut pip = program::quiet(folder.join("bin").join("pip"), &folder);
            program::run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]))
        });
        told(package, installed);
    }
    Ok(())
}

/// Fetches packages of the system and unpacks them, without installing anything.
fn unpack(house: &House, packages: &[&str]) -> anyhow::Result<()> {
    let (shelf, root) = (place(house, "packages")?, place(house, "root")?);
    report::say("fetching packages with apt-get and unpacking them into target/peers/root; nothing is installed");
    for package in packages {
        told(package, program::run(program::quiet("apt-get", &shelf).args(["download", package])));
    }
    for entry in fs::read_dir(&shelf).with_context(|| format!("could not list `{}`", shelf.display()))? {
        let file = entry.with_context(|| format!("could not list `{}`", shelf.display()))?.path();
        let unpacked = program::run(program::quiet("dpkg-deb", &shelf).arg("-x").arg(&file).arg(&root));
        told(&file.to_string_lossy(), unpacked);
    }
    Ok(())
}

fn place(house: &House, name: &str) -> anyhow::Result<PathBuf> {
    let place = folder(house).join(name);
    fs::create_dir_all(&place).with_context(|| format!("could not make `{}`", place.display()))?;
    Ok(place)
}

fn told(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        report::complain(&format!("`{what}` could not be had: {error:#}"));
    }
}
