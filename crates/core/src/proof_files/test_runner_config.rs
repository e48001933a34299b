//! The files, and parts of files, that configure well-known test runners: they decide what is run at all.

use super::script_paths::{SimpleCommand, is_npm};

/// The configuration of one runner, in the folder it runs in.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TestRunnerConfig {
    /// The project uses this runner if the start commit has one of these. `*` stands for any start or end.
    pub(super) markers: &'static [&'static str],
    /// Files that are protected whether they exist or not: a new one could override an existing one.
    pub(super) files: &'static [&'static str],
    /// Files whose text is parsed as command lines too.
    pub(super) script_files: &'static [&'static str],
    /// The name of files that are protected in every folder that has one.
    pub(super) nested_file_name: Option<&'static str>,
    /// Protected keys of files of which the run may change the rest.
    pub(super) parts: Vec<(&'static str, &'static [&'static str])>,
    /// The requested targets, where they have to be defined in the files it reads.
    pub(super) targets: Vec<String>,
    /// Scripts of `package.json` that it runs.
    pub(super) scripts: Vec<String>,
}

const MAKEFILES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];
const JUSTFILES: &[&str] = &["justfile", ".justfile", "Justfile"];
const PACKAGE: &[&str] = &["package.json"];
const JEST: &[&str] = &[
    "jest.config.js",
    "jest.config.ts",
    "jest.config.mjs",
    "jest.config.cjs",
    "jest.config.mts",
    "jest.config.cts",
    "jest.config.json",
];
const VITEST: &[&str] = &[
    "vitest.config.js",
    "vitest.config.ts",
    "vitest.config.mjs",
    "vitest.config.mts",
    "vitest.config.cjs",
    "vitest.config.cts",
    "vitest.workspace.js",
    "vitest.workspace.ts",
    "vitest.workspace.json",
];
const MOCHA: &[&str] = &[
    ".mocharc.js",
    ".mocharc.cjs",
    ".mocharc.mjs",
    ".mocharc.json",
    ".mocharc.jsonc",
    ".mocharc.yaml",
    ".mocharc.yml",
];
const PYTEST_MARKS: &[&str] =
    &["pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "*conftest.py", "*_test.py", "test_*"];
const PYTEST: &[&str] = &["pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"];

impl TestRunnerConfig {
    /// Returns the runners that a command starts.
    pub(super) fn of_command(simple: &SimpleCommand) -> Vec<Self> {
        let Some(program) = simple.program() else { return Vec::new() };
        if is_npm(program) {
            return Self::for_npm_script(program, simple.arguments());
        }
        // It has no settings of its own, but may load code before the tests.
        if matches!(program, "node" | "nodejs" | "tsx") && simple.arguments().iter().any(|word| word == "--test") {
            return vec![Self::default()];
        }
        let goal = |word: &&String| !word.starts_with('-') && !word.contains(['=', '$', '>', '<', '/']);
        let goals: Vec<String> = match program {
            "make" | "gmake" | "just" => simple.arguments().iter().filter(goal).cloned().collect(),
            _ => Vec::new(),
        };
        Self::for_program(program).map(|found| Self { targets: goals, ..found }).into_iter().collect()
    }

    fn for_program(program: &str) -> Option<Self> {
        let whole = |files: &'static [&'static str]| Self { markers: files, files, ..Self::default() };
        let found = match program {
            "make" | "gmake" => Self { script_files: MAKEFILES, ..whole(MAKEFILES) },
            "just" => Self { script_files: JUSTFILES, ..whole(JUSTFILES) },
            "rake" => Self { script_files: &["Rakefile"], ..whole(&["Rakefile", "rakefile", "Rakefile.rb"]) },
            "tox" => Self {
                markers: &["tox.ini", "tox.toml", "setup.cfg", "pyproject.toml"],
                files: &["tox.ini", "tox.toml"],
                script_files: &["tox.ini"],
                parts: vec![("setup.cfg", &["tox:tox"]), ("pyproject.toml", &["tool/tox"])],
                ..Self::default()
            },
            "nox" => whole(&["noxfile.py"]),
            "pytest" => Self {
                markers: PYTEST_MARKS,
                files: PYTEST,
                nested_file_name: Some("conftest.py"),
                parts: vec![
                    ("pyproject.toml", &["tool/pytest"]),
                    ("setup.cfg", &["tool:pytest"]),
                    ("tox.ini", &["pytest"]),
                ],
                ..Self::default()
            },
            "jest" => {
                Self { markers: PACKAGE, files: JEST, parts: vec![("package.json", &["jest"])], ..Self::default() }
            }
            "vitest" => Self { markers: PACKAGE, files: VITEST, ..Self::default() },
            "mocha" => {
                Self { markers: PACKAGE, files: MOCHA, parts: vec![("package.json", &["mocha"])], ..Self::default() }
            }
            // A `runner` or an alias there can replace every test.
            "cargo" => {
                Self { markers: &["Cargo.toml"], files: &[".cargo/config.toml", ".cargo/config"], ..Self::default() }
            }
            "rspec" => whole(&[".rspec"]),
            "phpunit" => whole(&["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"]),
            _ => return None,
        };
        Some(found)
    }

    fn for_npm_script(program: &str, arguments: &[String]) -> Vec<Self> {
        let mut plain = Vec::new();
        let mut skip = false;
        for word in arguments {
            let value = std::mem::take(&mut skip);
            if word == "--" {
                break;
            }
            if word.starts_with('-') {
                skip =
                    matches!(word.as_str(), "-C" | "--prefix" | "--dir" | "--cwd" | "-w" | "--workspace" | "--filter");
            } else if !value {
                plain.push(word.as_str());
            }
        }
        let script = match plain.as_slice() {
            ["run" | "run-script" | "rum" | "urn", name, ..] => *name,
            ["test" | "t" | "tst", ..] if program != "bun" => "test",
            // Without `run` these try a name as a command of their own first, and then as a script.
            [name, ..] if program != "npm" => *name,
            _ => return Vec::new(),
        };
        // These decide which shell or program runs a script.
        let files: &'static [&'static str] = match program {
            "yarn" => &[".yarnrc", ".yarnrc.yml", ".npmrc"],
            "pnpm" => &[".npmrc", "pnpm-workspace.yaml", ".pnpmfile.cjs"],
            "bun" => &["bunfig.toml", ".npmrc"],
            _ => &[".npmrc"],
        };
        let own = Self { markers: PACKAGE, files, scripts: vec![script.to_owned()], ..Self::default() };
        std::iter::once(own).chain(Self::for_program(script)).collect()
    }
}
