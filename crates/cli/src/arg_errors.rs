//! Converts clap's errors into the form in which every other error is printed.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
use ralph_core::text::did_you_mean;

use crate::args::Cli;
use crate::error::CliError;

/// Converts an error of clap into one line and one next step.
pub(crate) fn cli_error(error: &clap::Error, args: &[OsString]) -> CliError {
    let mut whole = Cli::command();
    whole.build();
    let (command, spelled) = find_command(&whole, args);
    let help = format!("{spelled} --help");
    let argument = context_text(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = context_text(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = context_text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            unknown_subcommand(&name, command, &spelled)
        }
        ErrorKind::UnknownArgument => {
            let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
            let flags: Vec<String> = flags.filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
            let what = if argument.starts_with('-') { "flag" } else { "argument" };
            let failure = CliError::usage(format!("`{spelled}` takes no {what} `{argument}`"));
            match did_you_mean(&argument, flags.iter().map(String::as_str)) {
                Some(meant) if argument.starts_with('-') => failure.hint(format!("did you mean `{meant}`?")),
                _ => failure.hint(help),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            CliError::usage(format!("`{argument}` needs a value")).hint(help)
        }
        ErrorKind::InvalidValue => {
            let valid = context_texts(error, ContextKind::ValidValue);
            let failure = CliError::usage(format!("`{value}` is not a value of `{argument}`"));
            match did_you_mean(&value, valid.iter().map(String::as_str)) {
                Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                None => failure.hint(format!("it is one of {}", valid.join(", "))),
            }
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
            CliError::usage(format!("`{value}` is not a value of `{argument}`{why}")).hint(help)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = context_texts(error, ContextKind::InvalidArg).join(" ");
            CliError::usage(format!("`{spelled}` needs {missing}")).hint(help)
        }
        _ => {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
            CliError::usage(first.to_owned()).hint(help)
        }
    }
}

/// Returns the error for a command that does not exist, with the closest existing name as a hint.
pub(crate) fn unknown_command(name: &str, whole: &Command) -> CliError {
    unknown_subcommand(name, whole, "ralph")
}

fn unknown_subcommand(name: &str, parent: &Command, spelled: &str) -> CliError {
    let known = parent.get_subcommands().filter(|known| !known.is_hide_set()).map(Command::get_name);
    let failure = CliError::usage(format!("there is no command `{spelled} {name}`"));
    match did_you_mean(name, known) {
        Some(meant) => failure.hint(format!("did you mean `{spelled} {meant}`?")),
        None => failure.hint(format!("{spelled} --help")),
    }
}

/// Returns the deepest subcommand that the arguments name, and how it was spelled.
fn find_command<'a>(whole: &'a Command, args: &[OsString]) -> (&'a Command, String) {
    let (mut command, mut spelled) = (whole, "ralph".to_owned());
    for arg in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if arg == "--" {
            break;
        }
        if let Some(found) = command.find_subcommand(arg) {
            command = found;
            spelled = format!("{spelled} {}", found.get_name());
        } else if !arg.starts_with('-') && command.get_positionals().next().is_some() {
            break;
        }
    }
    (command, spelled)
}

fn context_text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(all) => Some(all.join(" ")),
        _ => None,
    }
}

fn context_texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(all)) => all.clone(),
        Some(ContextValue::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}
