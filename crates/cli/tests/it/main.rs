//! The program as people and scripts meet it: started as a process, in a home of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod budget;
#[cfg(target_os = "linux")]
mod cage;
mod docs;
mod home;
mod look;
mod lying;
mod planted;
mod policy;
#[cfg(target_os = "linux")]
mod redteam;
mod resume;
mod secrets;
mod stage;
mod steer;
mod surface;
