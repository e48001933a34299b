//! Reads the process environment and the `.env` file; nothing else does.

use ralph_core::env_vars::{self, Env};

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
    if let Ok(text) = std::fs::read_to_string(".env") {
        match env_vars::parse_dotenv(&text) {
            Ok(lines) => {
                env = env.with_dotenv(lines);
            }
            Err(error) => found.remarks.push(format!("`.env` was not read: {error}")),
        }
    }
    found.env = env;
    found
}
