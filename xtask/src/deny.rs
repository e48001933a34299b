//! cargo-deny, where there is one: building it takes minutes, so `cargo xtask test` never installs it.
//!
//! The rules that must hold everywhere (licences, sources, no second TLS provider) are also checked by `licence` and
//! `rules`, which need nothing.

use crate::house::House;
use crate::tools::{self, Tool};
use crate::{program, report};

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Checks everything, advisories too, which are fetched from the network.
pub(crate) fn run(house: &House) -> anyhow::Result<()> {
    tools::have(&house.root, &DENY)?;
    check(house, &["check"])
}

/// Checks what needs no network, if cargo-deny is installed.
pub(crate) fn run_offline_if_there(house: &House) -> anyhow::Result<()> {
    if tools::find(&house.root, &DENY).is_none() {
        report::say("`cargo-deny` is not installed: `cargo xtask deny` asks for advisories");
        return Ok(());
    }
    check(house, &["check", "bans", "licenses", "sources"])
}

fn check(house: &House, what: &[&str]) -> anyhow::Result<()> {
    let mut deny = program::cargo(&house.root);
    deny.env("PATH", tools::path(&house.root)?).args(["deny", "--workspace", "--locked"]).args(what);
    program::run(&mut deny)
}
