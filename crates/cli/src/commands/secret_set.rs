//! `ralph secret set`: takes a value unseen, tries it, stores it.

use std::io::{self, IsTerminal as _, Read as _};

use jiff::{SignedDuration, Timestamp};
use ralph_core::exit::Exit;
use ralph_core::secret::{Command, Kind, LONGEST, Name, Secret, expiry, read_new, words};
use ralph_engine::secret::{New, Verdict, trial};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;

use super::secret::{name, store};
use crate::args::secret::{How, Set};
use crate::error::{Failure, Outcome};
use crate::setup::{Setup, told};
use crate::ui::{Ui, YELLOW, paint};

/// How long a subscription token lives from the day it is made, says the program that makes it.
const OAUTH_DAYS: i64 = 365;

pub(crate) async fn set(setup: &Setup, args: Set, ui: &mut Ui) -> Outcome {
    let Set { name: named, how } = args;
    // A second word is most likely the value, and is not repeated here.
    if !how.more.is_empty() {
        let named = Name::parse(&named).map_or_else(|_| "NAME".to_owned(), |name| name.to_string());
        return Err(Failure::usage("a secret is not taken from the command line, where every program can see it")
            .hint(format!(
                "ralph secret set {named} asks for it unseen; as the value was typed here, make a new one"
            )));
    }
    let name = name(&named)?;
    let now = Timestamp::now();
    let asked = how.expires.as_deref().map(|text| expiry(text, now)).transpose();
    let asked = asked.map_err(|error| told(Exit::Usage, &error, error.hint()))?;
    let secret = take(&name, ui)?;
    let kind = how.kind.map_or_else(|| Kind::guess(&name, secret.expose()), Kind::from);
    let tried = if how.no_validate { None } else { Some(tried(setup, &name, kind, &secret, &how).await?) };
    let told_by_them = tried.as_ref().and_then(|tried| tried.expires);
    let assumed = (kind == Kind::Oauth).then(|| now + SignedDuration::from_hours(OAUTH_DAYS * 24));
    let expires = asked.or(told_by_them).or(assumed);
    let new = New { kind, expires, place: how.source.map(Into::into) };
    let stored = store(setup).set(&name, &secret, new)?;
    for remark in &stored.remarks {
        ui.say(&format!("{} {remark}", paint(YELLOW, "!")));
    }
    let verdict = tried.map(|tried| tried.verdict);
    if ui.json() {
        let taken_by = match &verdict {
            Some(Verdict::Taken { host }) => Some(host),
            _ => None,
        };
        ui.object(&json!({"format": 1, "name": name.as_str(), "kind": kind, "source": stored.source,
            "expires": expires, "tried": matches!(verdict, Some(Verdict::Taken { .. })),
            "form_checked": matches!(verdict, Some(Verdict::Read)), "taken_by": taken_by}));
        return Ok(Exit::Success);
    }
    let trial = match verdict {
        None => "untried".to_owned(),
        Some(Verdict::Taken { host }) => format!("taken by {host}"),
        Some(Verdict::Open { host }) => format!("not tried: {host} has no free call that needs the key"),
        Some(Verdict::Read) => "a good key by its form".to_owned(),
    };
    let end = match (asked.or(told_by_them), assumed) {
        (None, Some(end)) => format!("{}, if it was made today", words(Some(end), now)),
        (end, _) => words(end, now),
    };
    ui.say(&format!("`{name}` is stored: {kind}, {}, {trial}, {end}", stored.source.as_str()));
    Ok(Exit::Success)
}

async fn tried(
    setup: &Setup,
    name: &Name,
    kind: Kind,
    secret: &Secret,
    how: &How,
) -> Result<ralph_engine::secret::Tried, Failure> {
    let env = &setup.environment.env;
    // What a command tells is tried by asking it once, as a run would.
    if Command::is(secret.expose()) {
        let value = ralph_engine::secret::asked(name, secret, env)?;
        return Ok(trial(name, kind, &value, how.base_url.as_deref(), env).await?);
    }
    Ok(trial(name, kind, secret, how.base_url.as_deref(), env).await?)
}

/// Takes the value: unseen from a terminal, else all of standard input.
fn take(name: &Name, ui: &mut Ui) -> Result<Secret, Failure> {
    let refuse = |why: &dyn std::error::Error, hint| told(Exit::Usage, why, hint);
    let given = if io::stdin().is_terminal() {
        let ask = || ui.say(&format!("type or paste the value of {name}, then Enter; it is not shown"));
        unseen(ask).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Failure::of(Exit::Interrupted, &error),
            _ => refuse(&error, Some(format!("ralph secret set {name} < FILE"))),
        })?
    } else {
        let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(4096));
        let most = LONGEST as u64 + 2;
        io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(|error| {
            Failure::of(Exit::Failed, &error).hint(format!("printf %s VALUE | ralph secret set {name}"))
        })?;
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| refuse(&error, Some(format!("ralph secret set {name}, and type it"))))?;
        zeroize::Zeroizing::new(text.to_owned())
    };
    read_new(&given).map_err(|error| {
        let hint = error.hint();
        let mut failure = Failure::usage(format!("the value of `{name}` cannot be used: {error}"));
        failure.hint = hint;
        failure
    })
}

/// Puts the terminal back as it was, however the reading ends.
struct Quiet(Termios);

impl Drop for Quiet {
    fn drop(&mut self) {
        // The terminal may be gone; there is nobody to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Asks once nothing is shown any more, and reads a line; a key in PEM goes on to its last line. Ctrl-C and Ctrl-D end it with nothing.
fn unseen(ask: impl FnOnce()) -> io::Result<zeroize::Zeroizing<String>> {
    let before = tcgetattr(io::stdin())?;
    let mut silent = before.clone();
    // Signals are off too: killed here, the process would leave a terminal that shows nothing.
    silent.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
    let quiet = Quiet(before);
    tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
    ask();
    let mut typed = zeroize::Zeroizing::new(Vec::with_capacity(LONGEST));
    for byte in io::stdin().lock().bytes() {
        match byte? {
            3 => return Err(io::Error::new(io::ErrorKind::Interrupted, "it was interrupted; nothing was stored")),
            4 if typed.is_empty() => break,
            b'\r' | b'\n' if !typed.starts_with(b"-----BEGIN ") || ends(&typed) => break,
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

/// Tells whether the last line of a key has been typed.
fn ends(typed: &[u8]) -> bool {
    let last = typed.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    last.starts_with(b"-----END ")
}
