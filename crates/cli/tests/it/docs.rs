//! Tests that what users read matches the code: the reference pages, the help, and every command that a hint names.
//!
//! `RALPH_BLESS=1 cargo test -p ralph-cli docs::` rewrites the reference pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ralph_core::env_vars;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::task::TASK_KEYS;

use crate::repo_fixture::RepoFixture;

/// Returns every command by its name, with its whole help.
fn commands() -> BTreeMap<String, String> {
    let fixture = RepoFixture::new();
    let mut found = BTreeMap::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let output = fixture.ralph(&args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "ralph {}", path.join(" "));
        let listed = output.stdout.split("\nCommands:\n").nth(1).unwrap_or_default();
        for line in listed.lines().take_while(|line| line.starts_with("  ")) {
            if let Some(name) = line.split_whitespace().next().filter(|_| !line.starts_with("   ")) {
                open.push(path.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        found.insert(["ralph".to_owned()].into_iter().chain(path).collect::<Vec<_>>().join(" "), output.stdout);
    }
    found
}

#[test]
fn every_help_ends_with_two_examples() {
    let commands = commands();
    assert!(commands.len() > 20, "{:?}", commands.keys());
    for (name, help) in &commands {
        let first = help.lines().next().unwrap();
        assert!(!first.ends_with('.') && first.starts_with(char::is_uppercase), "{name}: {first}");
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
        let lines: Vec<&str> = examples.lines().filter(|line| !line.trim().is_empty()).collect();
        assert!(lines.len() >= 2, "{name}: {examples}");
        for line in lines {
            assert!(line.starts_with("  ralph "), "{name}: {line}");
            assert_eq!(wrong_commands(line, &commands), Vec::<String>::new(), "an example of {name}");
        }
        let own = format!("  {name}");
        assert!(name == "ralph" || examples.contains(&own), "{name} shows no example of itself");
    }
}

#[test]
fn shells_and_manuals() {
    let fixture = RepoFixture::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = fixture.ralph(&["completions", shell]);
        assert!(output.code == 0 && output.stdout.contains("sandbox") && output.stderr.is_empty(), "{shell}");
    }
    for name in commands().keys().filter(|name| name.split(' ').count() == 2) {
        let command = name.trim_start_matches("ralph ");
        let output = fixture.ralph(&["man", command]);
        assert!(
            output.code == 0 && output.stdout.contains(".SH NAME") && output.stdout.contains("Examples:"),
            "{name}"
        );
        let help = fixture.ralph(&["help", command]);
        assert_eq!(help.code, 0, "{name}");
    }
    assert!(fixture.ralph(&["man"]).stdout.contains(".SH SUBCOMMANDS"));
}

#[test]
fn the_reference_is_what_the_code_says() {
    let folder = root().join("docs/reference");
    let pages = [
        ("cli.md", cli()),
        ("exit-codes.md", exit_codes()),
        ("environment.md", environment()),
        ("task-file.md", task_file()),
        ("config.schema.json", serde_json::to_string_pretty(&ralph_core::config::schema()).unwrap() + "\n"),
    ];
    for (name, want) in pages {
        let path = folder.join(name);
        if std::env::var_os("RALPH_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, want).unwrap();
            continue;
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == want, "docs/reference/{name} is old: RALPH_BLESS=1 cargo test -p ralph-cli docs::");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const GENERATED_HEADER: &str = "<!-- Made from the code by the tests of crates/cli; do not edit. -->\n";

fn cli() -> String {
    let mut page = format!("# Command line\n\n{GENERATED_HEADER}");
    for (name, help) in commands() {
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()).unwrap();
    }
    page
}

fn exit_codes() -> String {
    let mut page = format!("# Exit codes\n\n{GENERATED_HEADER}\n| code | meaning |\n|---:|---|\n");
    for exit in RalphExitCode::ALL {
        writeln!(page, "| {} | {} |", exit.code(), exit.meaning()).unwrap();
    }
    page
}

fn environment() -> String {
    let mut page = format!(
        "# Environment variables\n\n{GENERATED_HEADER}\n| variable | meaning | read from `.env` |\n|---|---|---|\n"
    );
    for var in env_vars::ALL {
        let dotenv = if env_vars::DOTENV_NAMES.contains(&var.name) { "yes" } else { "" };
        writeln!(page, "| `{}` | {} | {dotenv} |", var.name, var.meaning.replace('|', "\\|")).unwrap();
    }
    page
}

fn task_file() -> String {
    let words = RepoFixture::new().ralph(&["help", "task-file"]).stdout;
    let words = words.split("Keys, defaults").next().unwrap();
    let mut page = format!(
        "# Task file\n\n{GENERATED_HEADER}\n{}\n\n| key | default | meaning |\n|---|---|---|\n",
        words.trim_end()
    );
    for key in TASK_KEYS {
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(page, "| `{}` | {} | {} |", key.name, cell(key.default), cell(key.meaning)).unwrap();
    }
    page
}

/// Words that follow "ralph" in prose rather than in a command.
const PROSE: &[&str] = &[
    "alone", "branch", "changes", "does", "file", "itself", "knows", "made", "may", "on", "reads", "receipt", "runs",
    "sets", "ticks", "was", "work", "wrote",
];

/// A hint that names a command names one that exists, with flags it has.
#[test]
fn every_command_in_the_sources_exists() {
    let commands = commands();
    let mut seen = 0;
    let mut problems = Vec::new();
    for path in sources(&root().join("crates")) {
        let text = std::fs::read_to_string(&path).unwrap();
        // Users do not see the messages of tests.
        let text = text.split("#[cfg(test)]").next().unwrap();
        for literal in literals(text) {
            seen += usize::from(literal.contains("ralph "));
            problems.extend(
                wrong_commands(&literal, &commands).into_iter().map(|why| format!("{}: {why}", path.display())),
            );
        }
    }
    assert!(seen > 50, "only {seen} literals speak of ralph: the search is broken");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_search_finds_wrong_commands() {
    let commands = commands();
    let found = |text: &str| literals(text).iter().flat_map(|literal| wrong_commands(literal, &commands)).count();
    for (text, want) in [
        (r#"hint("ralph doktor")"#, 1),
        (r#"hint("run `ralph config shwo`")"#, 1),
        (r#"hint("ralph resume {run} --add-coast 5")"#, 1),
        (r#"hint("ralph resume {run} --add-cost 5, then ralph ls")"#, 0),
        ("hint(r#\"say \"ralph dokter\"\"#)", 1),
        ("// ralph doktor\n", 0),
        ("let c = '\"'; // ralph doktor\nlet s = \"ralph doktor\";", 1),
        (r#""this ralph knows it""#, 0),
    ] {
        assert_eq!(found(text), want, "{text}");
    }
}

/// Returns what is wrong with the commands that a text names.
fn wrong_commands(text: &str, commands: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, _) in text.match_indices("ralph ") {
        if text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "-_/.".contains(c)) {
            continue;
        }
        let end = |c: char| matches!(c, '`' | '|' | ';' | '\n' | ',' | '&' | '>' | '\'' | '"');
        let call = text[at..].split(end).next().unwrap_or_default();
        let call = call.split(" then ").next().unwrap_or_default();
        let mut words = call.split_whitespace().skip(1).peekable();
        let plain =
            |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-');
        let Some(first) = words.next_if(plain) else { continue };
        let mut name = format!("ralph {first}");
        let hidden = ["prune-sandboxes", "store-token", "get-token"].contains(&first);
        if !commands.contains_key(&name) && !hidden {
            if !PROSE.contains(&first) {
                problems.push(format!("`{call}` names the command `{first}`, which does not exist"));
            }
            continue;
        }
        if commands.get(&name).is_some_and(|help| help.contains("\nCommands:\n")) {
            let Some(second) = words.next_if(plain) else { continue };
            name = format!("{name} {second}");
            if !commands.contains_key(&name) {
                problems.push(format!("`{call}` names `{name}`, which does not exist"));
                continue;
            }
        }
        let known: BTreeSet<&str> = commands.get(&name).map_or_else(BTreeSet::new, |help| {
            help.split([' ', '\n', ',', '[', ']']).filter(|word| word.starts_with('-')).collect()
        });
        for flag in words.filter(|word| word.starts_with("--") && word.len() > 2) {
            let flag = flag.trim_end_matches(['.', ')', ':']);
            if !known.is_empty() && !known.contains(flag) {
                problems.push(format!("`{call}` uses the flag `{flag}`, which `{name}` does not have"));
            }
        }
    }
    problems
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !["tests", "target", "testkit"].contains(&name) {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    found
}

/// Extracts the string literals of Rust source; skips comments, characters and lifetimes.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let before = rest[..at].chars().next_back();
        let tail = &rest[at..];
        if tail.starts_with("//") {
            rest = tail.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(after) = raw(tail).filter(|_| !before.is_some_and(|c| c.is_alphanumeric() || c == '_')) {
            let (text, after) = after;
            found.push(text.to_owned());
            rest = after;
        } else if let Some(body) = tail.strip_prefix('"') {
            let mut text = String::new();
            let mut chars = body.char_indices();
            let mut end = body.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' => match chars.next() {
                        Some((_, 'n')) => text.push('\n'),
                        Some((_, '\n')) | None => (),
                        Some((_, other)) => text.push(other),
                    },
                    c => text.push(c),
                }
            }
            found.push(text);
            rest = &body[end..];
        } else if let Some(body) = tail.strip_prefix('\'') {
            // A character literal has a closing quote; a lifetime does not.
            let skip = if body.starts_with('\\') { 2 } else { body.chars().next().map_or(0, char::len_utf8) };
            let after = body.get(skip..).unwrap_or_default();
            rest = after.strip_prefix('\'').unwrap_or(if body.starts_with('\\') { after } else { body });
        } else {
            rest = &tail[1..];
        }
    }
    found
}

fn raw(tail: &str) -> Option<(&str, &str)> {
    let hashes = tail.strip_prefix('r')?;
    let body = hashes.trim_start_matches('#');
    let fence = format!("\"{}", "#".repeat(hashes.len() - body.len()));
    body.strip_prefix('"')?.split_once(&fence)
}
