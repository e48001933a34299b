//! The only way out of a sandbox: allows, injects, meters, writes down.

pub mod ledger;
