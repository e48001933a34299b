//! Provides realistic fakes and a hermetic home, for tests only.
//!
//! Fakes are servers and repositories, not mocks of this project's types.

pub mod bench;
pub mod home;
pub mod hostile_git;
pub mod model_server;
pub mod repo;
pub mod unprivileged;
