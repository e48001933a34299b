//! Type-checks the program for macOS on a Linux machine.
//!
//! Debian's compiler comes with the sources of the standard library, which cargo can build for a target without an
//! installed toolchain; zig is the C compiler for the few crates with C in them. Nothing is linked and nothing runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::report::TestStepOutcome;
use crate::subprocess;
use crate::workspace::{BuildEnvironment, ProjectWorkspace};

const TARGET: &str = "aarch64-apple-darwin";
/// Debian's compiler, and the sources of its standard library.
const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
const ZIG: &str = "ziglang==0.17.0";
/// Where Debian installs programs; those of rustup come before them on `PATH`.
const SYSTEM_PROGRAMS: &str = "/usr/bin";

/// Drops the options of Apple's compiler that zig does not know, and the names of targets that it spells differently.
const COMPILER_SCRIPT: &str = r#"skip=
for word do
    shift
    if [ -n "$skip" ]; then
        skip=
        continue
    fi
    case $word in
    --target=* | -mmacosx-version-min=*) ;;
    -arch | -isysroot) skip=1 ;;
    *) set -- "$@" "$word" ;;
    esac
done
exec python3 -m ziglang cc -target aarch64-macos "$@"
"#;
const ARCHIVER_SCRIPT: &str = "exec python3 -m ziglang ar \"$@\"\n";

/// Checks the program, and installs what that needs.
pub(crate) fn run(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    match check(workspace)? {
        TestStepOutcome::NotRun(why) => bail!("the macOS check was NOT RUN: {why}"),
        _ => Ok(()),
    }
}

/// Checks the program. Without a compiler it is not run on a developer's machine, and fails in CI.
pub(crate) fn check(workspace: &ProjectWorkspace) -> anyhow::Result<TestStepOutcome> {
    if let Err(error) = ensure_compiler(workspace) {
        if workspace.environment == BuildEnvironment::Ci {
            return Err(error);
        }
        return Ok(TestStepOutcome::NotRun(format!("{error:#}")));
    }
    let zig = match ensure_zig(&workspace.root) {
        Ok(zig) => zig,
        Err(error) if workspace.environment == BuildEnvironment::Ci => return Err(error),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("{error:#}"))),
    };
    let target = workspace.root.join("target").join("macos");
    let compiler = write_script(&target, "cc", &zig, COMPILER_SCRIPT)?;
    let archiver = write_script(&target, "ar", &zig, ARCHIVER_SCRIPT)?;
    let mut cargo = system_program(&workspace.root, "cargo")?;
    cargo.args(["check", "-Zbuild-std", "-Zwarnings", "--config", "build.warnings=\"deny\"", "--locked"]);
    cargo.args(["--target", TARGET, "--package", "ralph-cli"]);
    // Allows unstable options of a stable compiler, and names an SDK so that no build script looks for one.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("SDKROOT", "/nonexistent").env("CARGO_TARGET_DIR", &target);
    cargo.env("CC_aarch64_apple_darwin", compiler).env("AR_aarch64_apple_darwin", archiver);
    subprocess::run(&mut cargo)
        .with_context(|| format!("the program does not compile for {TARGET}: cargo xtask macos"))?;
    Ok(TestStepOutcome::Passed)
}

/// Finds Debian's compiler with its library, or installs both in CI.
fn ensure_compiler(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    let root = &workspace.root;
    let Err(missing) = find_compiler(root) else { return Ok(()) };
    if workspace.environment == BuildEnvironment::Local {
        return Err(missing);
    }
    subprocess::run(subprocess::command("apt-get", root).args(["update", "--quiet"]))?;
    let mut install = subprocess::command("apt-get", root);
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--yes", "--quiet", "--no-install-recommends"]);
    subprocess::run(install.args(PACKAGES))?;
    find_compiler(root)
}

fn find_compiler(root: &Path) -> anyhow::Result<()> {
    let install = || format!("apt-get install {}", PACKAGES.join(" "));
    for program in ["cargo", "rustc"] {
        let path = Path::new(SYSTEM_PROGRAMS).join(program);
        if !path.is_file() {
            bail!("`{}` is missing: {}", path.display(), install());
        }
    }
    let sysroot = subprocess::output(system_program(root, "rustc")?.args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    if !library.join("std").join("Cargo.toml").is_file() {
        bail!("the sources of the standard library are not in `{}`: {}", library.display(), install());
    }
    Ok(())
}

/// Returns a command that finds Debian's compiler before rustup's.
fn system_program(root: &Path, name: &str) -> anyhow::Result<Command> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(SYSTEM_PROGRAMS)).chain(std::env::split_paths(&rest));
    let path = std::env::join_paths(folders).context("`PATH` cannot be extended")?;
    let mut command = subprocess::command(Path::new(SYSTEM_PROGRAMS).join(name), root);
    command.env("PATH", path);
    // rustup and cargo set these for the programs that they start; they name the other toolchain.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "RUSTC_WRAPPER", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Returns the folder of zig, and installs it if it is missing.
fn ensure_zig(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join("target").join("tools").join("ziglang");
    if !folder.join("ziglang").is_dir() {
        let mut pip = subprocess::command("python3", root);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ZIG, "--target"]);
        subprocess::run(pip.arg(&folder))
            .with_context(|| format!("try: apt-get install python3-pip; python3 -m pip install {ZIG}"))?;
    }
    Ok(folder)
}

/// Writes a program that calls zig.
fn write_script(folder: &Path, name: &str, zig: &Path, script: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    let text = format!("#!/bin/sh\nexport PYTHONPATH='{}'\n{script}", zig.display());
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("could not write `{}`", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the script with a Python that prints its arguments.
    #[track_caller]
    fn check_arguments(script: &str, words: &[&str], want: &str) {
        let script = script.replace("python3", "echo python3");
        let mut sh = subprocess::command("sh", Path::new("."));
        let printed = subprocess::output(sh.args(["-c", &script, "cc"]).args(words)).expect("the script succeeds");
        assert_eq!(printed.trim_end(), format!("python3 -m ziglang {want}").trim_end(), "{words:?}");
    }

    #[test]
    fn options_that_zig_does_not_know() {
        let cc = "cc -target aarch64-macos";
        let check = |words: &[&str], want: &str| check_arguments(COMPILER_SCRIPT, words, &format!("{cc} {want}"));
        check(&["-c", "a b.c", "-o", "a.o"], "-c a b.c -o a.o");
        check(&["--target=arm64-apple-macosx", "-c"], "-c");
        check(&["-mmacosx-version-min=11.0", "-arch", "arm64", "-O2"], "-O2");
        check(&["-isysroot", "/sdk", "-arch", "arm64"], "");
        check(&["-Iarch", "-c"], "-Iarch -c");
        check_arguments(ARCHIVER_SCRIPT, &["cq", "a.a", "a.o"], "ar cq a.a a.o");
    }
}
