//! cargo-deny, where there is one: building it takes minutes, so `cargo xtask test` never installs it.
//!
//! The rules that must hold everywhere (licences, sources, no second TLS provider) are also checked by `licence` and
//! `rules`, which need nothing.

use crate::tools::{self, CargoTool};
use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };

/// Checks everything, advisories too, which are fetched from the network.
pub(crate) fn run(house: &ProjectWorkspace) -> anyhow::Result<()> {
    tools::ensure(&house.root, &DENY)?;
    check(house, &["check"])
}

/// Checks what needs no network, if cargo-deny is installed.
pub(crate) fn run_offline_if_installed(house: &ProjectWorkspace) -> anyhow::Result<()> {
    if tools::find(&house.root, &DENY).is_none() {
        report::print("`cargo-deny` is not installed: `cargo xtask deny` asks for advisories");
        return Ok(());
    }
    check(house, &["check", "bans", "licenses", "sources"])
}

fn check(house: &ProjectWorkspace, what: &[&str]) -> anyhow::Result<()> {
    let mut deny = subprocess::cargo(&house.root);
    deny.env("PATH", tools::path(&house.root)?).args(["deny", "--workspace", "--locked"]).args(what);
    subprocess::run(&mut deny)
}
