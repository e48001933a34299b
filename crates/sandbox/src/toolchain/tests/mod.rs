//! Tests with whole hosts, created in a temporary directory.

mod cases;
mod fake_host;
pub(super) mod random_homes;
mod this_host;
