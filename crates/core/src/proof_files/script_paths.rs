//! Parses shell lines as far as needed to see which files they run.
//!
//! Quotes are ignored on purpose: the text of a `sh -c '…'` counts as well, and a word too many does no harm, because
//! only files of the start commit are protected.

use std::collections::BTreeSet;

/// Programs whose first positional argument is a shell script.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", ".", "source"];

/// Programs whose positional arguments are scripts in a language of their own.
const INTERPRETERS: [&str; 13] =
    ["python", "python3", "node", "nodejs", "ruby", "perl", "php", "bun", "deno", "lua", "tsx", "ts-node", "Rscript"];

/// Prefix words that do not change the command after them.
const PREFIX_COMMANDS: [&str; 22] = [
    "env", "exec", "time", "!", "then", "do", "else", "elif", "if", "while", "until", "command", "nice", "nohup",
    "sudo", "npx", "bunx", "uvx", "xvfb-run", "{", "stdbuf", "dotenv",
];

/// Programs that run another one after `run` or `exec`.
const EXEC_WRAPPERS: [&str; 13] =
    ["uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi", "mise", "bundle", "pnpm", "yarn", "npm", "rtx"];

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// The folder that a preceding `cd` may have changed to.
    folder: String,
    pub(super) words: Vec<String>,
}

/// A file that is run as a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptArgument {
    pub(super) word: String,
    /// It is run by a shell, or as a program.
    pub(super) is_shell: bool,
}

/// Splits a text into simple commands.
pub(super) fn split_commands(text: &str) -> Vec<SimpleCommand> {
    let mut folder = String::new();
    let mut found = Vec::new();
    let joined = text.replace("\\\n", " ");
    for part in joined.split(['\n', ';', '|', '&', '(', ')', '`']) {
        let words: Vec<String> = part
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'', '\\']).to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        // A makefile recipe may begin with these.
        let mut words = words;
        if let Some(first) = words.first_mut() {
            *first = first.trim_start_matches(['@', '-', '+']).to_owned();
            if first == "m" {
                // The rest of `$(PYTHON) -m pytest`.
                "-m".clone_into(first);
            }
        }
        let words = strip_prefixes(words);
        if let [cd, to, ..] = words.as_slice()
            && cd == "cd"
        {
            folder = joined_path(&folder, to).unwrap_or_default();
            continue;
        }
        if !words.is_empty() {
            found.push(SimpleCommand { folder: folder.clone(), words });
        }
    }
    found
}

/// Removes the words before the program itself.
fn strip_prefixes(mut words: Vec<String>) -> Vec<String> {
    loop {
        let Some(first) = words.first().cloned() else { return words };
        let base = base_name(&first).to_owned();
        let second = words.get(1).cloned().unwrap_or_default();
        let gone = if is_assignment(&first) || first.is_empty() {
            1
        } else if PREFIX_COMMANDS.contains(&base.as_str()) {
            1 + count_flags(&words, 1)
        } else if base == "timeout" {
            2 + count_flags(&words, 1)
        } else if EXEC_WRAPPERS.contains(&base.as_str()) && (second == "exec" || (second == "run" && !is_npm(&base))) {
            2 + count_flags(&words, 2)
        } else if let Some(at) = inline_script_flag(&base, &words) {
            at + 1
        } else {
            return words;
        };
        words.drain(..gone.min(words.len()));
    }
}

fn count_flags(words: &[String], from: usize) -> usize {
    words.iter().skip(from).take_while(|word| word.starts_with('-')).count()
}

/// Returns the position of the flag after which a shell takes its script as text.
fn inline_script_flag(base: &str, words: &[String]) -> Option<usize> {
    if !SHELLS.contains(&base) {
        return None;
    }
    let flag = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    words.iter().skip(1).take_while(|word| word.starts_with('-')).position(flag).map(|at| at + 1)
}

pub(super) fn is_npm(base: &str) -> bool {
    matches!(base, "npm" | "pnpm" | "yarn" | "bun")
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Joins a folder and a path below it; `None` for one that leaves the repository or cannot be known.
fn joined_path(folder: &str, path: &str) -> Option<String> {
    if path.starts_with(['/', '~', '-']) || path.contains(['$', '*', '?']) {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

impl SimpleCommand {
    /// Returns the name of the program, without its folder; a Python module by its own name.
    pub(super) fn program(&self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        let base = base_name(first);
        let module = |words: &[String]| -> Option<usize> { words.iter().position(|word| word == "-m") };
        if base == "-m" {
            return rest.first().map(String::as_str);
        }
        if base.starts_with("python")
            && let Some(at) = module(rest)
        {
            return rest.get(at + 1).map(String::as_str);
        }
        Some(if base == "py.test" { "pytest" } else { base })
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Returns every path of the repository that a word may mean.
    pub(super) fn paths(&self, word: &str) -> impl Iterator<Item = String> + use<> {
        let found: BTreeSet<String> =
            ["", self.folder.as_str()].into_iter().filter_map(|folder| joined_path(folder, word)).collect();
        found.into_iter().filter(|path| !path.is_empty())
    }

    /// Returns the folders it may run in, including those selected by a flag.
    pub(super) fn folders(&self) -> BTreeSet<String> {
        let mut folders = BTreeSet::from([String::new(), self.folder.clone()]);
        for pair in self.words.windows(2) {
            if let [flag, value] = pair
                && matches!(flag.as_str(), "-C" | "--directory" | "--prefix" | "--cwd" | "--rootdir" | "--dir")
            {
                folders.extend(self.paths(value));
            }
        }
        for word in &self.words {
            if let Some((flag, value)) = word.split_once('=')
                && matches!(flag, "--directory" | "--prefix" | "--cwd" | "--rootdir" | "--dir")
            {
                folders.extend(self.paths(value));
            }
        }
        folders
    }

    /// Returns the words that name a configuration file, or code that is loaded before the tests.
    pub(super) fn config_paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let names = |flag: &str| {
            matches!(flag, "-c" | "-f" | "-r" | "--file" | "--makefile" | "--require" | "--import" | "--setupFiles")
                || flag.contains("config")
        };
        for pair in self.words.windows(2) {
            if let [flag, value] = pair
                && flag.starts_with('-')
                && names(flag)
            {
                found.push(value.clone());
            }
        }
        for word in &self.words {
            if let Some((flag, value)) = word.split_once('=')
                && flag.starts_with('-')
                && names(flag)
            {
                found.push(value.to_owned());
            }
        }
        found
    }

    /// Returns the words that are run as scripts.
    pub(super) fn scripts(&self) -> Vec<ScriptArgument> {
        let Some((program, arguments)) = self.words.split_first() else { return Vec::new() };
        let base = base_name(program);
        let plain = || arguments.iter().filter(|word| !word.starts_with('-'));
        if SHELLS.contains(&base) {
            let mut value = false;
            for word in arguments {
                if word.starts_with(['-', '+']) {
                    // `-euo pipefail`
                    value = word.ends_with('o');
                } else if !std::mem::take(&mut value) {
                    return vec![ScriptArgument { word: word.clone(), is_shell: true }];
                }
            }
            return Vec::new();
        }
        let versioned =
            base.strip_prefix("python").is_some_and(|rest| rest.bytes().all(|b| b == b'.' || b.is_ascii_digit()));
        if INTERPRETERS.contains(&base) || versioned {
            let script = |word: &String| ScriptArgument { word: word.clone(), is_shell: false };
            let module = self.program().filter(|name| *name != base).map(|name| name.replace('.', "/"));
            let files = module.into_iter().flat_map(|path| [format!("{path}.py"), format!("{path}/__main__.py")]);
            return plain().map(script).chain(files.map(|word| ScriptArgument { word, is_shell: false })).collect();
        }
        if program.contains('/') {
            return vec![ScriptArgument { word: program.clone(), is_shell: true }];
        }
        Vec::new()
    }
}

/// Returns whether a makefile or justfile has a rule for one of these targets.
pub(super) fn defines_target(text: &str, goals: &[String]) -> bool {
    let rules = text.lines().filter(|line| !line.starts_with([' ', '\t', '#', '.']));
    let mut targets = rules.filter_map(|line| line.split_once(':')).flat_map(|(before, _)| before.split_whitespace());
    // A pattern may match any of them, and so may an included file.
    !included_files(text).is_empty()
        || targets.any(|target| {
            target.contains(['%', '$']) || goals.iter().any(|goal| goal == target.trim_start_matches('@'))
        })
}

/// Returns whether a makefile has a rule for exactly this target.
pub(super) fn is_target(text: &str, target: &str) -> bool {
    let rules = text.lines().filter(|line| !line.starts_with([' ', '\t', '#']));
    rules
        .filter_map(|line| line.split_once(':'))
        .any(|(before, _)| before.split_whitespace().any(|name| name == target))
}

/// Returns whether a makefile says that a target is no file.
pub(super) fn is_phony(text: &str, target: &str) -> bool {
    let lists = text.lines().filter_map(|line| line.strip_prefix(".PHONY")?.trim_start().strip_prefix(':'));
    lists.flat_map(str::split_whitespace).any(|name| name == target)
}

/// Returns the files that a makefile or justfile includes.
pub(super) fn included_files(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start_matches(['-', 's']);
            line.strip_prefix("include ").or_else(|| line.strip_prefix("import "))
        })
        .flat_map(str::split_whitespace)
        .filter_map(|word| joined_path("", word.trim_matches(['"', '\''])))
        .collect()
}
