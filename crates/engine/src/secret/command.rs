//! Runs the program of a `cmd://` line, and caches its answer for as long as it is valid.
//!
//! The cache is in this process's memory only, and an answer is wiped when it expires.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ralph_core::env_vars::Env;
use ralph_core::secret::{CredentialCommand, Secret, read};

use super::error::Error;
use super::helper_program;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Answers by program and arguments, each with its expiry.
type CommandAnswers = BTreeMap<(PathBuf, Vec<String>), (Instant, Secret)>;

/// Shared by all stores of the process: a run opens several.
static ANSWER_CACHE: LazyLock<Mutex<CommandAnswers>> = LazyLock::new(Mutex::default);

/// Returns the secret that the program of a `cmd://` line prints.
pub fn read_from_command(name: &str, line: &Secret, env: &Env) -> Result<Secret, Error> {
    let command = CredentialCommand::parse(line.expose())
        .map_err(|source| Error::BadCommand { name: name.to_owned(), source })?;
    let failed = |why: String| Error::Command { name: name.to_owned(), why };
    let (first, rest) = command.argv.split_first().ok_or_else(|| failed("it names no program".to_owned()))?;
    let path = helper_program::find(first, env).ok_or_else(|| failed(format!("`{first}` is not on PATH")))?;
    let key = (path, rest.to_vec());
    if let Some(known) = cached(&key) {
        return Ok(known);
    }
    let answer = helper_program::run(&key.0, rest, env, b"", TIMEOUT).map_err(failed)?;
    if answer.code != Some(0) {
        let ended = answer.code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with {code}"));
        return Err(failed(format!("`{first}` {ended}: {}", answer.stderr_line)));
    }
    let text = std::str::from_utf8(&answer.stdout).map_err(|_| failed("its answer is not UTF-8".to_owned()))?;
    if CredentialCommand::is_command(text) {
        return Err(failed("its answer is a `cmd://` line again".to_owned()));
    }
    let secret = read(text).map_err(|error| failed(format!("of its answer, {error}")))?;
    let until = Instant::now() + command.ttl;
    ANSWER_CACHE.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (until, secret.clone()));
    Ok(secret)
}

fn cached(key: &(PathBuf, Vec<String>)) -> Option<Secret> {
    let mut answers = ANSWER_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    answers.retain(|_, (until, _)| *until > Instant::now());
    answers.get(key).map(|(_, secret)| secret.clone())
}
