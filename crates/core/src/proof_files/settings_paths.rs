//! Finds the files that the settings of a test runner name: code that runs before the tests, or in the place of a part of
//! the runner.

use std::collections::BTreeSet;

use super::file_role::{FileRole, file_role};

/// Keys whose values are files that a runner loads.
const SETUP_KEYS: [&str; 13] = [
    "globalSetup",
    "globalTeardown",
    "reporters",
    "runner",
    "setupFiles",
    "setupFilesAfterEnv",
    "snapshotSerializers",
    "testEnvironment",
    "testResultsProcessor",
    "testRunner",
    "testSequencer",
    "environment",
    "snapshotEnvironment",
];

/// Keys that mean such files only in the runner's own settings.
const OWN_KEYS: [&str; 7] = ["file", "helpers", "preload", "preset", "require", "resolver", "transform"];

/// Sections of `package.json` that are settings of a test runner.
const PACKAGE_SECTIONS: [&str; 6] = ["jest", "mocha", "ava", "nyc", "c8", "vitest"];

/// What the name of a module may leave out.
const MODULE_ENDS: [&str; 9] = ["", ".js", ".ts", ".mjs", ".cjs", ".mts", ".cts", "/index.js", "/index.ts"];

/// How much of a value is searched.
const MAX_VALUE: usize = 4 << 10;

/// Returns whether a file has settings of a test runner, its own or among others.
pub fn is_settings_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(file_role(path), FileRole::RunnerSettings(_)) || name == "package.json" || is_vite(name)
}

/// Returns the files of a commit that the settings in one of its files name.
pub fn files_named_by_settings(path: &str, text: &str, base: &BTreeSet<String>) -> BTreeSet<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name == "conftest.py" {
        return python_plugins(folder, text, base);
    }
    let (text, has_own_keys) = match name {
        "package.json" => (package_sections(text), true),
        _ => (text.to_owned(), !is_vite(name)),
    };
    let keys = SETUP_KEYS.iter().chain(OWN_KEYS.iter().filter(|_| has_own_keys));
    let values = keys.flat_map(|key| values_of(&text, key));
    values.flat_map(words).filter_map(|word| find_module(folder, word, base)).filter(|found| found != path).collect()
}

/// Returns the modules that a `conftest.py` loads as plugins: beside it, from the root, or from `src`.
fn python_plugins(folder: &str, text: &str, base: &BTreeSet<String>) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let names = values_of(text, "pytest_plugins").flat_map(|value| value.split(|c| !is_word(c)));
    let candidates = names.filter(|name| !name.is_empty()).flat_map(|name| {
        let file = name.replace('.', "/");
        [folder, "", "src"].into_iter().flat_map(move |root| {
            let stem = if root.is_empty() { file.clone() } else { format!("{root}/{file}") };
            [format!("{stem}.py"), format!("{stem}/__init__.py")]
        })
    });
    candidates.filter(|path| base.contains(path)).collect()
}

fn is_vite(name: &str) -> bool {
    name.starts_with("vite.config.")
}

fn package_sections(text: &str) -> String {
    let package: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let sections = PACKAGE_SECTIONS.iter().filter_map(|key| package.get(key));
    sections.map(|section| format!("{section:#}")).collect::<Vec<_>>().join("\n")
}

/// Returns the text of every value of a key: up to its closing bracket, to the next comma or the end of the line, or, in
/// YAML, the list below it.
fn values_of<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    text.match_indices(key).filter_map(move |(at, _)| {
        if text[..at].chars().next_back().is_some_and(is_part) {
            return None;
        }
        let rest = text[at + key.len()..].trim_start_matches(['"', '\'', ' ']);
        let value = rest.strip_prefix([':', '='])?.trim_start_matches([' ', '\t']);
        let value = crate::text::head(value, MAX_VALUE);
        Some(match value.chars().next()? {
            '[' | '{' | '(' => &value[..closing_bracket(value)],
            '\n' | '\r' => list_below(value),
            _ => value.split(['\n', ',', '}']).next().unwrap_or_default(),
        })
    })
}

/// Returns where the bracket that opens a text is closed, or its length.
fn closing_bracket(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the lines of a YAML list at the start of a text, or of the value that stands on the next line.
fn list_below(text: &str) -> &str {
    let mut end = 0;
    for (n, line) in text.split_inclusive('\n').enumerate() {
        if n > 1 && !line.trim_start().starts_with(['-', '"', '\'']) {
            break;
        }
        end += line.len();
    }
    &text[..end]
}

/// Returns what may be a path in the text of a value.
fn words(value: &str) -> impl Iterator<Item = &str> {
    let parts = value
        .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | '[' | ']' | '{' | '}' | '(' | ')'));
    parts.filter(|word| word.contains(['/', '.']))
}

/// Returns the file that a word means, seen from the folder of the settings.
fn find_module(folder: &str, word: &str, base: &BTreeSet<String>) -> Option<String> {
    let word = word.trim_start_matches("<rootDir>").trim_start_matches("{configDir}");
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in word.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    MODULE_ENDS.iter().map(|end| format!("{path}{end}")).find(|path| base.contains(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, want: &[&str]) {
        let base =
            "package.json jest.config.js src/app.js src/index.js setup.js support/env.ts support/report/index.js \
                    web/hooks.mjs web/vite.config.ts plugins/db.py app.py conftest.py"
                .split_whitespace()
                .map(str::to_owned)
                .collect();
        let found: Vec<String> = files_named_by_settings(path, text, &base).into_iter().collect();
        assert_eq!(found, want, "{text}");
    }

    #[test]
    fn files_that_settings_name() {
        let jest = "module.exports = { setupFilesAfterEnv: ['<rootDir>/setup.js'], testEnvironment: './support/env' }";
        check("jest.config.js", jest, &["setup.js", "support/env.ts"]);
        check(
            "jest.config.js",
            "reporters: ['default', ['./support/report', { file: 'x' }]],",
            &["support/report/index.js"],
        );
        check("jest.config.js", "moduleNameMapper: { '^app$': '<rootDir>/src/app.js' }", &[]);
        check(
            "package.json",
            r#"{"jest": {"setupFiles": ["./setup.js"]}, "exports": {"require": "./src/index.js"}}"#,
            &["setup.js"],
        );
        check("package.json", "not JSON", &[]);
        check(
            ".mocharc.yml",
            "spec: test\nrequire:\n  - ./setup.js\n  - support/env.ts\nfoo: src/app.js\n",
            &["setup.js", "support/env.ts"],
        );
        check(".mocharc.yml", "require: ./setup.js\nextension: src/app.js\n", &["setup.js"]);
        check(
            "web/vite.config.ts",
            "test: { setupFiles: './hooks.mjs' }, transform: '../src/app.js'",
            &["web/hooks.mjs"],
        );
        check("conftest.py", "pytest_plugins = ['plugins.db']\nimport app\nrunner = app.py\n", &["plugins/db.py"]);
        check("web/conftest.py", "pytest_plugins = 'app'\n", &["app.py"]);
        check("jest.config.js", "setupFiles: [path.join(__dirname, 'setup.js'", &["setup.js"]);
        check("jest.config.js", "setupFiles: ['../../outside.js', './jest.config.js']", &[]);
        check("jest.config.js", "setupFiles:", &[]);
    }

    #[test]
    fn which_files_have_settings() {
        for (path, want) in [
            ("jest.config.ts", true),
            ("a/package.json", true),
            ("vite.config.ts", true),
            ("conftest.py", true),
            ("src/app.js", false),
            ("test/app.test.js", false),
        ] {
            assert_eq!(is_settings_file(path), want, "{path}");
        }
    }
}
