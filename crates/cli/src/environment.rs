//! Reads the process environment and the `.env` file; nothing else does.

use std::path::Path;

use ralph_core::env_vars::{self, Env};
use ralph_engine::read_optional_text_file;

/// The environment that the process was started with.
#[derive(Debug, Clone)]
pub(crate) struct ProcessEnvironment {
    pub(crate) env: Env,
    /// Lines of the `.env` file that could not be used.
    pub(crate) remarks: Vec<String>,
}

/// Reads the environment; the process's own variables win over `.env`.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn read() -> ProcessEnvironment {
    let process =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut env = Env::new(process);
    let mut found = ProcessEnvironment { env: Env::default(), remarks: Vec::new() };
    let read = match read_optional_text_file(Path::new(".env")) {
        // A folder of this name is no such file.
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => Ok(None),
        Err(error) => Err(error.to_string()),
        Ok(text) => text.map(|text| env_vars::parse_dotenv(&text)).transpose().map_err(|error| error.to_string()),
    };
    match read {
        Ok(lines) => env = env.with_dotenv(lines.unwrap_or_default()),
        Err(error) => found.remarks.push(format!("`.env` was not read: {error}")),
    }
    found.env = env;
    found
}
