//! `ralph secret set`: reads a value without echo, tries it and stores it.

use std::io::{self, IsTerminal as _, Read as _};

use jiff::{SignedDuration, Timestamp};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::secret::{
    CredentialCommand, LONGEST, Secret, SecretKind, SecretName, expiry_text, parse_expiry, read_new,
};
use ralph_engine::secret::{NewSecret, ValidationVerdict, validate};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;

use super::secret::{open_store, parse_name};
use crate::args::secret::{SecretSetArgs, SecretSetOptions};
use crate::error::{CliError, CliResult};
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::{Ui, YELLOW, paint};

/// The lifetime of a subscription token, as stated by the program that issues it.
const OAUTH_DAYS: i64 = 365;

pub(crate) async fn set(setup: &CliSetup, args: SecretSetArgs, ui: &mut Ui) -> CliResult {
    let SecretSetArgs { name: named, how } = args;
    // A second argument is most likely the value, so the message does not repeat it.
    if !how.more.is_empty() {
        let named = SecretName::parse(&named).map_or_else(|_| "NAME".to_owned(), |name| name.to_string());
        return Err(CliError::usage("a secret is not taken from the command line, where every program can see it")
            .hint(format!(
                "ralph secret set {named} asks for it without echo; since the value was typed here, create a new one"
            )));
    }
    let name = parse_name(&named)?;
    let now = Timestamp::now();
    let asked = how.expires.as_deref().map(|text| parse_expiry(text, now)).transpose();
    let asked = asked.map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
    let secret = read_value(&name, ui)?;
    let kind = how.kind.map_or_else(|| SecretKind::guess(&name, secret.expose()), SecretKind::from);
    let tried = if how.no_validate { None } else { Some(validate_secret(setup, &name, kind, &secret, &how).await?) };
    let told_by_them = tried.as_ref().and_then(|tried| tried.expires);
    let assumed = (kind == SecretKind::Oauth).then(|| now + SignedDuration::from_hours(OAUTH_DAYS * 24));
    let expires = asked.or(told_by_them).or(assumed);
    let new = NewSecret { kind, expires, place: how.source.map(Into::into) };
    let stored = open_store(setup).set(&name, &secret, new)?;
    for remark in &stored.remarks {
        ui.print_message(&format!("{} {remark}", paint(YELLOW, "!")));
    }
    let verdict = tried.map(|tried| tried.verdict);
    if ui.json() {
        let taken_by = match &verdict {
            Some(ValidationVerdict::Accepted { host }) => Some(host),
            _ => None,
        };
        ui.print_json(&json!({"format": 1, "name": name.as_str(), "kind": kind, "source": stored.source,
            "expires": expires, "tried": matches!(verdict, Some(ValidationVerdict::Accepted { .. })),
            "form_checked": matches!(verdict, Some(ValidationVerdict::WellFormed)), "taken_by": taken_by}));
        return Ok(RalphExitCode::Success);
    }
    let trial = match verdict {
        None => "untried".to_owned(),
        Some(ValidationVerdict::Accepted { host }) => format!("accepted by {host}"),
        Some(ValidationVerdict::NotRequired { host }) => {
            format!("not tried: {host} has no free call that needs the key")
        }
        Some(ValidationVerdict::WellFormed) => "well-formed".to_owned(),
    };
    let end = match (asked.or(told_by_them), assumed) {
        (None, Some(end)) => format!("{}, if it was made today", expiry_text(Some(end), now)),
        (end, _) => expiry_text(end, now),
    };
    ui.print_message(&format!("`{name}` is stored: {kind}, {}, {trial}, {end}", stored.source.as_str()));
    Ok(RalphExitCode::Success)
}

async fn validate_secret(
    setup: &CliSetup,
    name: &SecretName,
    kind: SecretKind,
    secret: &Secret,
    how: &SecretSetOptions,
) -> Result<ralph_engine::secret::SecretValidation, CliError> {
    let env = &setup.environment.env;
    // A value that a command provides is tried by running the command once, as a run would.
    if CredentialCommand::is_command(secret.expose()) {
        let value = ralph_engine::secret::secret_from_command(name, secret, env)?;
        return Ok(validate(name, kind, &value, how.base_url.as_deref(), env).await?);
    }
    Ok(validate(name, kind, secret, how.base_url.as_deref(), env).await?)
}

/// Reads the value: without echo from a terminal, else all of standard input.
fn read_value(name: &SecretName, ui: &mut Ui) -> Result<Secret, CliError> {
    let refuse = |why: &dyn std::error::Error, hint| error_with_hint(RalphExitCode::Usage, why, hint);
    let given = if io::stdin().is_terminal() {
        let ask = || ui.print_message(&format!("type or paste the value of {name}, then Enter; it is not shown"));
        read_hidden(ask).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => CliError::from_error(RalphExitCode::Interrupted, &error),
            _ => refuse(&error, Some(format!("ralph secret set {name} < FILE"))),
        })?
    } else {
        let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(4096));
        let most = LONGEST as u64 + 2;
        io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(|error| {
            CliError::from_error(RalphExitCode::Failed, &error)
                .hint(format!("printf %s VALUE | ralph secret set {name}"))
        })?;
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| refuse(&error, Some(format!("ralph secret set {name}, and type it"))))?;
        zeroize::Zeroizing::new(text.to_owned())
    };
    read_new(&given).map_err(|error| {
        let hint = error.hint();
        let mut failure = CliError::usage(format!("the value of `{name}` cannot be used: {error}"));
        failure.hint = hint;
        failure
    })
}

/// Restores the terminal's settings, however the reading ends.
struct EchoGuard(Termios);

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // The terminal may be gone, so there is nowhere to report a failure.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Prompts once echo is off and reads a line, or all lines of a PEM key. Ctrl-C and Ctrl-D end it without a value.
fn read_hidden(ask: impl FnOnce()) -> io::Result<zeroize::Zeroizing<String>> {
    let before = tcgetattr(io::stdin())?;
    let mut silent = before.clone();
    // Signals are off too: a process killed here would leave the terminal without echo.
    silent.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
    let quiet = EchoGuard(before);
    tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
    ask();
    let mut typed = zeroize::Zeroizing::new(Vec::with_capacity(LONGEST));
    for byte in io::stdin().lock().bytes() {
        match byte? {
            3 => return Err(io::Error::new(io::ErrorKind::Interrupted, "it was interrupted; nothing was stored")),
            4 if typed.is_empty() => break,
            b'\r' | b'\n' if !typed.starts_with(b"-----BEGIN ") || is_pem_complete(&typed) => break,
            b'\r' | b'\n' => typed.push(b'\n'),
            8 | 127 => {
                typed.pop();
            }
            21 => typed.clear(),
            _ if typed.len() >= LONGEST => break,
            byte => typed.push(byte),
        }
    }
    drop(quiet);
    let text = std::str::from_utf8(&typed).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(zeroize::Zeroizing::new(text.to_owned()))
}

/// Returns whether the last line of a PEM key has been typed.
fn is_pem_complete(typed: &[u8]) -> bool {
    let last = typed.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    last.starts_with(b"-----END ")
}
