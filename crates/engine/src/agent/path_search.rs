//! Finds an agent on the user's `PATH` and the smallest part of the host that it needs to run.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ralph_core::agent::Agent;
use ralph_sandbox::HostLayer;

use super::error::Error;
use super::find::{AgentOrigin, AgentProgram};
use super::package::{self, NpmManifest};
use super::{SANDBOX_AGENTS_DIR, store};

/// Folders of the host that every sandbox sees anyway.
const SYSTEM_DIRS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// Looks for an agent's program on a `PATH`.
pub(super) fn find(path: &str, agent: &dyn Agent) -> Result<Option<AgentProgram>, Error> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let runnable = |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    let Some(named) = folders.map(|folder| folder.join(agent.program())).find(runnable) else { return Ok(None) };
    // A dangling link is no file above; one that cannot be followed now has just been removed.
    let Ok(real) = fs::canonicalize(&named) else { return Ok(None) };
    resolve(&real, agent).map(Some)
}

/// Decides which layer shows the program at a path without links.
fn resolve(real: &Path, agent: &dyn Agent) -> Result<AgentProgram, Error> {
    let at = |layer: HostLayer, below: &Path, version: Option<String>| AgentProgram {
        program: if below.as_os_str().is_empty() { layer.inside.clone() } else { layer.inside.join(below) },
        on_host: if below.as_os_str().is_empty() { layer.host.clone() } else { layer.host.join(below) },
        layer: Some(layer),
        env: Vec::new(),
        version,
        from: AgentOrigin::Path,
    };
    let inside = Path::new(SANDBOX_AGENTS_DIR).join(agent.name());
    if let Some(npm) = NpmPackage::of(real) {
        // The native program, if the package has one that needs nothing else.
        let native = agent.native_program().and_then(|pattern| {
            let below = pattern.replace("{arch}", package::arch());
            let (name, rest) = package::split_package_path(&below)?;
            [npm.package.join("node_modules"), npm.modules.clone()]
                .iter()
                .find_map(|modules| Some((modules.join(&name), package::expand_glob(&modules.join(&name), &rest)?)))
        });
        // A link could lead anywhere; only a folder inside the package is accepted.
        let within = |folder: &Path| fs::canonicalize(folder).is_ok_and(|real| real.starts_with(&npm.modules));
        if let Some((folder, program)) = native.filter(|(folder, _)| within(folder)) {
            let below = program.strip_prefix(&folder).unwrap_or(Path::new("")).to_owned();
            return Ok(at(HostLayer { host: folder, inside }, &below, npm.version));
        }
        if is_system_path(real) {
            return Ok(system_program(real, npm.version));
        }
        let below = real.strip_prefix(&npm.package).unwrap_or(Path::new("")).to_owned();
        return Ok(at(HostLayer { host: npm.package, inside }, &below, npm.version));
    }
    if is_system_path(real) {
        return Ok(system_program(real, None));
    }
    // Its scripts name their interpreter by absolute path, so the environment keeps its place.
    let environment = real.ancestors().skip(1).take(4).find(|folder| folder.join("pyvenv.cfg").is_file());
    // An environment inside a project would expose the project.
    let project = |folder: &&Path| [".git", ".env", "pyproject.toml"].iter().any(|name| folder.join(name).exists());
    if let Some(environment) = environment.filter(|folder| !project(folder)) {
        let below = real.strip_prefix(environment).unwrap_or(Path::new("")).to_owned();
        let layer = HostLayer { host: environment.to_owned(), inside: environment.to_owned() };
        return Ok(at(layer, &below, None));
    }
    let unfit = |why| Error::NotMountable { agent: agent.name().to_owned(), path: real.to_owned(), why };
    let mut magic = [0; 4];
    let read = File::open(real).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_ok() && magic == *b"\x7fELF" {
        let layer = HostLayer { host: real.to_owned(), inside: inside.join(agent.program()) };
        return Ok(at(layer, Path::new(""), None));
    }
    match real.parent() {
        // A script in its own folder. Other files there must not be exposed.
        Some(folder) if is_program_folder(folder) && is_only_file(real, folder) => {
            let below = real.strip_prefix(folder).unwrap_or(Path::new("")).to_owned();
            Ok(at(HostLayer { host: folder.to_owned(), inside }, &below, None))
        }
        _ => Err(unfit("it is a script, and what else it needs is not known")),
    }
}

fn system_program(real: &Path, version: Option<String>) -> AgentProgram {
    AgentProgram {
        program: real.to_owned(),
        on_host: real.to_owned(),
        layer: None,
        env: Vec::new(),
        version,
        from: AgentOrigin::Path,
    }
}

fn is_system_path(real: &Path) -> bool {
    SYSTEM_DIRS.iter().any(|system| real.starts_with(system))
}

/// Reports whether a program is the only file in its folder.
fn is_only_file(program: &Path, folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().all(|entry| entry.path() == program))
}

/// Reports whether a folder belongs to one program: it is deep enough, and not a shared folder for programs.
fn is_program_folder(folder: &Path) -> bool {
    let shared = ["bin", "sbin", ".bin", "shims", "home", store::FILES_DIR];
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    folder.components().count() > 4 && !shared.contains(&name.as_str())
}

/// An npm package.
#[derive(Debug)]
struct NpmPackage {
    /// The `node_modules` folder that contains it.
    modules: PathBuf,
    package: PathBuf,
    version: Option<String>,
}

impl NpmPackage {
    fn of(real: &Path) -> Option<Self> {
        let modules = real.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "node_modules"))?;
        let below = real.strip_prefix(modules).ok()?.to_str()?;
        let (name, _) = package::split_package_path(below)?;
        let package = modules.join(name);
        let text = fs::read_to_string(package.join("package.json")).unwrap_or_default();
        let version = NpmManifest::parse(&text).map(|manifest| manifest.version);
        Some(Self { modules: modules.to_owned(), package, version })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use ralph_core::agent::by_name;

    use super::*;

    /// Creates an executable file and its parent folders.
    fn make(path: &Path, text: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn link(from: &Path, to: &Path) {
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    }

    /// Checks what is found of an agent, as `program | layer | version`, with the home folder's name masked.
    #[track_caller]
    fn check(home: &Path, agent: &str, want: &str) {
        let path = std::env::join_paths([home.join("none"), home.join("bin")]).unwrap();
        let found = super::find(path.to_str().unwrap(), by_name(agent).unwrap());
        let got = match found {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(found)) => {
                let layer =
                    found.layer.as_ref().map_or_else(|| "-".to_owned(), |layer| layer.host.display().to_string());
                assert!(found.on_host.is_file(), "{found:?}");
                format!("{} | {layer} | {}", found.program.display(), found.version.as_deref().unwrap_or("-"))
            }
            Err(error) => format!("{error}; {}", error.hint().unwrap_or_default()),
        };
        assert_eq!(got.replace(home.to_str().unwrap(), "HOME"), want);
    }

    #[test]
    fn layers_of_programs_on_path() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        let bin = home.join("bin");
        check(&home, "claude", "nothing");

        // npm, with the native program hoisted beside the package, and nested in it.
        let modules = home.join("lib/node_modules");
        let codex = modules.join("@openai/codex");
        make(&codex.join("bin/codex.js"), b"#!/usr/bin/env node\n");
        fs::write(codex.join("package.json"), r#"{"name":"@openai/codex","version":"0.166.0"}"#).unwrap();
        link(&bin.join("codex"), &codex.join("bin/codex.js"));
        check(&home, "codex", "/opt/ralph/agents/codex/bin/codex.js | HOME/lib/node_modules/@openai/codex | 0.166.0");
        let native = format!("@openai/codex-linux-{}", package::arch());
        make(&modules.join(&native).join("vendor/triple/bin/codex"), b"\x7fELF");
        let want =
            format!("/opt/ralph/agents/codex/vendor/triple/bin/codex | HOME/lib/node_modules/{native} | 0.166.0");
        check(&home, "codex", &want);
        let nested = codex.join("node_modules").join(&native);
        make(&nested.join("vendor/triple/bin/codex"), b"\x7fELF");
        let want = format!(
            "/opt/ralph/agents/codex/vendor/triple/bin/codex | HOME/lib/node_modules/@openai/codex/node_modules/{native} | 0.166.0"
        );
        check(&home, "codex", &want);

        // A single binary: only itself.
        let versions = home.join("share/claude/versions");
        make(&versions.join("2.1.0"), b"\x7fELF...");
        link(&bin.join("claude"), &versions.join("2.1.0"));
        check(&home, "claude", "/opt/ralph/agents/claude/claude | HOME/share/claude/versions/2.1.0 | -");

        // A script in its own folder.
        let cursor = home.join("share/cursor-agent/versions/1/cursor-agent");
        make(&cursor, b"#!/bin/sh\n");
        link(&bin.join("cursor-agent"), &cursor);
        check(&home, "cursor", "/opt/ralph/agents/cursor/cursor-agent | HOME/share/cursor-agent/versions/1 | -");

        // A virtual environment stays where it is.
        make(&home.join("venvs/aider/bin/aider"), b"#!HOME/venvs/aider/bin/python\n");
        fs::write(home.join("venvs/aider/pyvenv.cfg"), "").unwrap();
        link(&bin.join("aider"), &home.join("venvs/aider/bin/aider"));
        check(&home, "aider", "HOME/venvs/aider/bin/aider | HOME/venvs/aider | -");

        // A script among others could need anything.
        make(&bin.join("qwen"), b"#!/bin/sh\n");
        let want = "`HOME/bin/qwen` cannot be shown in a sandbox: it is a script, and what else it needs is not known; ralph agent install qwen";
        check(&home, "qwen", want);

        // A file that is not executable is no program.
        make(&bin.join("gemini"), b"");
        fs::set_permissions(bin.join("gemini"), fs::Permissions::from_mode(0o644)).unwrap();
        check(&home, "gemini", "nothing");
    }
}
