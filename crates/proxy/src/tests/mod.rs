//! Tests of the egress proxy over real sockets: a fake network outside, hostile clients inside.

mod fixture;
mod listeners;
mod name_server;
mod plain_http;
mod refusals;
mod transparent;
mod tunnels;
