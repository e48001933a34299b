//! The program as people and scripts meet it: started as a process, in a home of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(target_os = "linux")]
mod agent_catalogue;
#[cfg(target_os = "linux")]
mod agent_runs;
#[cfg(target_os = "linux")]
mod agents;
mod audit;
mod budget;
#[cfg(target_os = "linux")]
mod cage;
#[cfg(target_os = "linux")]
mod cell;
mod docs;
#[cfg(target_os = "linux")]
mod fallen;
mod home;
mod import;
mod init;
#[cfg(target_os = "linux")]
mod litellm;
mod look;
mod lying;
mod planted;
mod policy;
mod profiles;
mod red_first;
#[cfg(target_os = "linux")]
mod redteam;
#[cfg(target_os = "linux")]
mod registries;
mod resume;
mod secrets;
mod stage;
mod steer;
mod stuck;
mod surface;
#[cfg(target_os = "linux")]
mod watch;
