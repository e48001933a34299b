//! The way out over real sockets: a recorded world outside, hostile clients inside.

mod doors;
mod names;
mod plain;
mod refusals;
mod stage;
mod transparent;
mod tunnels;
