//! The way out over real sockets: a recorded world outside, hostile clients inside.

mod fixture;
mod listeners;
mod name_server;
mod plain_http;
mod refusals;
mod transparent;
mod tunnels;
