//! Where branches and pull requests go.

pub mod local;
