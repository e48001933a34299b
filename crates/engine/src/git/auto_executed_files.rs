//! Recognises files that a tool runs or obeys by itself when the user opens, builds or pushes the repository.
//!
//! They are normal in a repository and rare in a task: a change is reported to the reviewer, never hidden. Build files
//! that run only on request (a `Makefile`, `build.rs`) are not here.

/// Returns why a path counts as an auto-run file.
pub(crate) fn autorun_reason(path: &str) -> Option<&'static str> {
    // File systems of many reviewers are case-insensitive.
    let path = path.to_ascii_lowercase();
    let parts: Vec<&str> = path.split('/').collect();
    let name = parts.last().copied().unwrap_or_default();
    let inside = |folder: &str| {
        let folder: Vec<&str> = folder.split('/').collect();
        parts.len() > folder.len() && parts.windows(folder.len()).any(|window| window == folder.as_slice())
    };
    let at_top = |file: &str| path == file;
    let rule = FOLDERS.iter().find(|(folder, _)| inside(folder)).or_else(|| {
        FILES.iter().find(|(file, _)| name == *file).or_else(|| ROOT_PATHS.iter().find(|(file, _)| at_top(file)))
    });
    rule.map(|(_, why)| *why)
}

const EDITOR: &str = "editor setting that can run programs";
const AGENT: &str = "settings or instructions of a coding agent";
const HOOK: &str = "git hook";
const SHELL: &str = "run by the shell on entering the folder";
const CI: &str = "run by CI on push, with the project's secrets";
const PACKAGE: &str = "can make the package manager run programs";

const FOLDERS: [(&str, &str); 18] = [
    (".devcontainer", EDITOR),
    (".idea", EDITOR),
    (".fleet", EDITOR),
    (".zed", EDITOR),
    (".claude", AGENT),
    (".codex", AGENT),
    (".cursor", AGENT),
    (".gemini", AGENT),
    (".opencode", AGENT),
    (".husky", HOOK),
    (".githooks", HOOK),
    (".git-hooks", HOOK),
    (".github/workflows", CI),
    (".github/actions", CI),
    (".circleci", CI),
    (".buildkite", CI),
    (".gitlab/ci", CI),
    (".yarn/plugins", PACKAGE),
];

const FILES: [(&str, &str); 31] = [
    ("tasks.json", EDITOR),
    ("launch.json", EDITOR),
    (".devcontainer.json", EDITOR),
    (".exrc", EDITOR),
    (".nvim.lua", EDITOR),
    (".nvimrc", EDITOR),
    (".vimrc", EDITOR),
    (".dir-locals.el", EDITOR),
    (".mcp.json", AGENT),
    ("claude.md", AGENT),
    ("agents.md", AGENT),
    ("gemini.md", AGENT),
    (".cursorrules", AGENT),
    ("opencode.json", AGENT),
    ("lefthook.yml", HOOK),
    (".lefthook.yml", HOOK),
    (".pre-commit-config.yaml", HOOK),
    (".envrc", SHELL),
    (".mise.toml", SHELL),
    ("mise.toml", SHELL),
    (".autoenv", SHELL),
    (".gitlab-ci.yml", CI),
    ("jenkinsfile", CI),
    (".travis.yml", CI),
    ("azure-pipelines.yml", CI),
    (".npmrc", PACKAGE),
    (".yarnrc.yml", PACKAGE),
    (".pnpmfile.cjs", PACKAGE),
    ("sitecustomize.py", PACKAGE),
    ("pyvenv.cfg", PACKAGE),
    ("gradle-wrapper.jar", PACKAGE),
];

const ROOT_PATHS: [(&str, &str); 4] = [
    (".vscode/settings.json", EDITOR),
    (".cargo/config.toml", PACKAGE),
    (".cargo/config", PACKAGE),
    (".mvn/extensions.xml", PACKAGE),
];

/// Reports whether git would run a file of this name in a hooks folder.
pub(crate) fn is_hook_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    HOOKS.contains(&name)
}

const HOOKS: [&str; 20] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "post-receive",
    "update",
    "post-update",
    "reference-transaction",
    "post-rewrite",
    "post-index-change",
    "fsmonitor-watchman",
];

/// The scripts of a `package.json` that its package manager runs on install.
const INSTALL_SCRIPTS: [&str; 7] =
    ["preinstall", "install", "postinstall", "prepare", "preprepare", "postprepare", "prepublish"];

/// The hashes of a package's install scripts: enough to tell whether another version of it has the same ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstallScripts([Option<String>; INSTALL_SCRIPTS.len()]);

impl InstallScripts {
    /// Reads a `package.json`; what is no such file has no scripts.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let parsed: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        let scripts = parsed.get("scripts");
        Self(INSTALL_SCRIPTS.map(|name| Some(ralph_core::hash::sha256(scripts?.get(name)?.to_string().as_bytes()))))
    }

    /// Returns the scripts that this version has and `old` has not, or has with another text.
    pub(crate) fn changed_since(&self, old: &Self) -> impl Iterator<Item = &'static str> {
        let pairs = self.0.iter().zip(&old.0).map(|(new, old)| new.is_some() && new != old);
        INSTALL_SCRIPTS.into_iter().zip(pairs.collect::<Vec<_>>()).filter_map(|(name, changed)| changed.then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_run_files() {
        for (path, want) in [
            (".vscode/tasks.json", Some(EDITOR)),
            ("sub/.VSCode/Tasks.json", Some(EDITOR)),
            (".envrc", Some(SHELL)),
            ("a/b/.envrc", Some(SHELL)),
            (".devcontainer/devcontainer.json", Some(EDITOR)),
            (".claude/settings.local.json", Some(AGENT)),
            (".mcp.json", Some(AGENT)),
            (".husky/pre-commit", Some(HOOK)),
            (".githooks/x", Some(HOOK)),
            (".GitHub/workflows/ci.yml", Some(CI)),
            (".cargo/config.toml", Some(PACKAGE)),
            ("Makefile", None),
            ("src/main.rs", None),
            (".github/CODEOWNERS", None),
            ("envrc", None),
            ("", None),
        ] {
            assert_eq!(autorun_reason(path), want, "{path}");
        }
    }

    #[test]
    fn install_scripts() {
        for (old, new, want) in [
            (r#"{"scripts":{"test":"x"}}"#, r#"{"scripts":{"test":"y"}}"#, vec![]),
            ("", r#"{"scripts":{"postinstall":"x"}}"#, vec!["postinstall"]),
            (r#"{"scripts":{"prepare":"x"}}"#, r#"{"scripts":{"prepare":"y"}}"#, vec!["prepare"]),
            (r#"{"scripts":{"prepare":"x"}}"#, r#"{"scripts":{"prepare":"x"},"a":1}"#, vec![]),
            (r#"{"scripts":{"prepare":"x"}}"#, "{}", vec![]),
            ("[", "not json", vec![]),
        ] {
            let (old, now) = (InstallScripts::of(old.as_bytes()), InstallScripts::of(new.as_bytes()));
            assert_eq!(now.changed_since(&old).collect::<Vec<_>>(), want, "{new}");
        }
    }
}
