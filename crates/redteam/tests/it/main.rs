//! The attack suites against real cages, as this user and as an ordinary one.
#![cfg(target_os = "linux")]

mod cage;
mod egress;
mod unprivileged;
