//! Runs the attack suites against real cages, as this user and as an unprivileged one.
#![cfg(target_os = "linux")]

mod cage;
mod egress;
mod proofs;
mod unprivileged;
