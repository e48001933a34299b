//! Starts other programs: prints the command first, gives no input, and names the command when it fails.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::report;

/// Returns a command that runs in `folder` and waits for no input.
///
/// `cargo run` describes `xtask` in the environment. Those variables are removed: a build script that watches one of
/// them would rebuild its crate each time.
pub(crate) fn command(program: impl AsRef<Path>, folder: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let described = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_BIN_NAME"
        });
        if described {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the cargo that runs `xtask`, so that every step uses one toolchain.
pub(crate) fn cargo(folder: &Path) -> Command {
    command(env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from), folder)
}

/// Runs a command with its output shown.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = command_line(command);
    report::print(&format!("$ {line}"));
    let status = command.status().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns what it wrote to stdout; stderr is part of the error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let line = command_line(command);
    let output = command.output().with_context(|| format!("could not start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command with its output buffered, for programs that run in parallel: returns the command, all it wrote, and
/// how it ended.
pub(crate) fn run_buffered(command: &mut Command) -> (String, anyhow::Result<()>) {
    let line = command_line(command);
    match command.output().with_context(|| format!("could not start `{line}`")) {
        Err(error) => (format!("$ {line}"), Err(error)),
        Ok(output) => {
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let transcript = format!("$ {line}\n{out}{err}");
            let ended = output.status.success().then_some(());
            (transcript, ended.with_context(|| format!("`{line}` failed ({})", output.status)))
        }
    }
}

/// Returns the path of a program on `PATH`.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn command_line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = command("sh", Path::new("."));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn failures_name_the_command() {
        let error = output(&mut sh("echo no such luck >&2; exit 3")).expect_err("the script fails");
        let text = error.to_string();
        assert_eq!(text, "`sh -c echo no such luck >&2; exit 3` failed (exit status: 3): no such luck");
    }

    #[test]
    fn buffered_output_is_returned() {
        let (transcript, ended) = run_buffered(&mut sh("echo out; echo err >&2; exit 3"));
        assert!(transcript.ends_with("\nout\nerr\n"), "{transcript}");
        assert!(ended.expect_err("the script fails").to_string().ends_with("failed (exit status: 3)"));
        assert!(run_buffered(&mut sh("true")).1.is_ok());
    }

    #[test]
    fn input_is_empty() {
        assert_eq!(output(&mut sh("cat; echo end")).expect("the script succeeds"), "end\n");
    }

    #[test]
    fn programs_on_the_path() {
        assert!(which("sh").is_some_and(|file| file.is_absolute()));
        assert_eq!(which("no-program-of-this-name"), None);
    }
}
