//! Finds the developer toolchains that the host's `PATH` uses and that live outside the system directories, so that a
//! root built from nothing can show them read-only.
//!
//! The result is plain data ([`ToolchainSetup`]): what to bind, what to cover, which `PATH` and variables hold inside, which
//! caches are the sandbox's own. Nothing is mounted, made or written here, and nothing is run: what a toolchain would
//! say about itself is read from its files.
//!
//! What is shown is as little as works: a version of node and not all of `~/.nvm`, `~/.cargo/bin` and not `~/.cargo`.
//! Shims of version managers (pyenv, rbenv, asdf, mise, volta) are replaced by the versions they would choose outside
//! any project. Most toolchains have their own absolute path baked in, so they keep it inside: **the name of the
//! user's home folder can be seen in the sandbox**, and nothing else of it. Rust's toolchains can be moved and
//! therefore lie in the sandbox's own home.
//!
//! Credential files are never in a bind uncovered as far as [`MASK_DEPTH`] levels go; configuration that may hold
//! tokens (`~/.npmrc`, `pip.conf`, cargo's `config.toml`) never comes along at all. Of the latter only addresses of
//! registries and mirrors are passed on, and only those without user, password, query or anything that looks like a
//! token.
//!
//! Not here: the mounting (and the check that a source is still the directory that was judged), and files that
//! somebody writes into a bound directory after it was looked at.

mod cache;
mod error;
mod find;
mod fs_probe;
mod host;
mod known_tools;
mod names;
mod path_policy;
mod plan;
mod polyglot_manager;
mod program_links;
mod registries;
mod rust;
mod secret_files;
mod setup;
#[cfg(test)]
mod tests;
mod unclaimed_dirs;
mod version_manager;

pub use error::ToolchainError;
pub use find::find;
pub use host::{SANDBOX_HOME, ToolchainHost};
pub use ralph_core::config::ToolchainSelection;
pub use secret_files::MASK_DEPTH;
pub use setup::{BindMask, MaskKind, ToolchainBind, ToolchainCache, ToolchainFile, ToolchainSetup};
