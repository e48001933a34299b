//! Other programs that the sandbox bench measures: fetched and unpacked into `target/peers`, so that the system stays as
//! it is and `cargo clean` takes them away again.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::house::House;
use crate::{program, report};

/// What is unpacked from the system's own packages: the programs, what they start, and the libraries they lack.
const PACKAGES: &[&str] = &[
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

/// Where they are put.
pub(crate) fn folder(house: &House) -> PathBuf {
    house.root.join("target").join("peers")
}

/// Gets all of them. One that cannot be had is told, and the bench tells it again: the others are still worth measuring.
pub(crate) fn install(house: &House) -> anyhow::Result<()> {
    let folder = folder(house);
    let (packages, root, modules) = (folder.join("packages"), folder.join("root"), folder.join("npm"));
    for place in [&packages, &root, &modules] {
        fs::create_dir_all(place).with_context(|| format!("could not make `{}`", place.display()))?;
    }
    report::say("fetching packages with apt-get and unpacking them into target/peers/root; nothing is installed");
    for package in PACKAGES {
        let fetched = program::run(program::quiet("apt-get", &packages).args(["download", package]));
        told(package, fetched);
    }
    for entry in fs::read_dir(&packages).with_context(|| format!("could not list `{}`", packages.display()))? {
        let file = entry.with_context(|| format!("could not list `{}`", packages.display()))?.path();
        let unpacked = program::run(program::quiet("dpkg-deb", &packages).arg("-x").arg(&file).arg(&root));
        told(&file.to_string_lossy(), unpacked);
    }
    report::say("installing modules with npm into target/peers/npm");
    for module in MODULES {
        let mut npm = program::quiet("npm", &modules);
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&modules).arg(module);
        told(module, program::run(&mut npm));
    }
    Ok(())
}

fn told(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        report::complain(&format!("`{what}` could not be had: {error:#}"));
    }
}
