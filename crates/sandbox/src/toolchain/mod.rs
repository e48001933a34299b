//! Finds the developer toolchains that the host's `PATH` uses and that are outside the system directories, so that a
//! cage's root can show them read-only.
//!
//! The result is plain data ([`ToolchainSetup`]): what to bind, what to mask, the `PATH` and variables inside, and
//! the sandbox's own caches. Nothing is mounted, created, written or run here: what a toolchain would report about
//! itself is read from its files.
//!
//! As little as possible is shown: one version of node and not all of `~/.nvm`, `~/.cargo/bin` and not `~/.cargo`.
//! Shims of version managers (pyenv, rbenv, asdf, mise, volta) are replaced by the versions they would choose outside
//! any project. Most toolchains have their own absolute path built in, so they keep it inside: **the name of the
//! user's home folder is visible in the sandbox**, and nothing else of it. Rust's toolchains can be moved and are
//! therefore in the sandbox's own home.
//!
//! Credential files in a bind are always masked, down to [`MASK_DEPTH`] levels; configuration that may hold tokens
//! (`~/.npmrc`, `pip.conf`, cargo's `config.toml`) is never shown at all. From the latter only addresses of
//! registries and mirrors are passed on, and only those without user, password, query or anything that looks like a
//! token.
//!
//! Not here: mounting (and checking that a source is still the directory that was checked), and files that are
//! written into a bound directory after it was scanned.

mod cache;
mod error;
mod find;
mod fs_probe;
mod host;
mod known_tools;
mod multi_language_manager;
mod other_path_dirs;
mod path_policy;
mod program_links;
mod registries;
mod rust;
mod secret_files;
mod setup;
mod setup_builder;
#[cfg(test)]
mod tests;
mod tool_names;
mod version_manager;

pub use error::ToolchainError;
pub use find::find;
pub use host::{SANDBOX_HOME, ToolchainHost};
pub use ralph_core::config::ToolchainSelection;
pub use secret_files::MASK_DEPTH;
pub use setup::{BindMask, MaskKind, ToolchainBind, ToolchainCache, ToolchainFile, ToolchainSetup};
