//! Which files a run may not change, by the commands that prove it.

use super::*;

const PACKAGE: &str =
    r#"{"name": "x", "scripts": {"test": "npm run unit && node tools/gate.js", "unit": "jest", "build": "tsc"}}"#;

fn base(files: &[(&str, &str)]) -> StartCommitFiles {
    let text = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
    StartCommitFiles {
        files: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        read: files.iter().map(text).collect(),
    }
}

const FILES: [(&str, &str); 14] = [
    ("tests/check.sh", "#!/bin/sh\nsh tests/deep_check.sh && ./app\n"),
    ("tests/deep_check.sh", "python3 app.py\n"),
    ("scripts/verify-foo.js", "require('./x')\n"),
    ("run.sh", "python3 app.py | grep ok\n"),
    ("app", "#!/bin/sh\n"),
    ("app.py", "print(1)\n"),
    ("ci.py", "import app\n"),
    ("README.md", "# X\n"),
    ("test_app.py", "import app\n"),
    ("Makefile", "include rules.mk\ntest:\n\t@$(PY) -m pytest -q\n"),
    ("rules.mk", "x:\n"),
    ("package.json", PACKAGE),
    ("tools/gate.js", "1\n"),
    ("sub/conftest.py", "1\n"),
];

#[track_caller]
fn check(gate: &str, proof: &str, want: &[&str]) {
    let base = base(&FILES);
    let free = ["!test_app.py".to_owned()];
    let gates: Vec<String> = [gate].into_iter().filter(|gate| !gate.is_empty()).map(str::to_owned).collect();
    let found = find_proof_files(&gates, [&proof.to_owned()], &base, &free);
    let parts = found.parts.iter().map(PinnedSection::description);
    let got: Vec<String> = found.files.iter().cloned().chain(parts).collect();
    assert_eq!(got, want, "{gate} / {proof}");
    assert_eq!(found.unread, Vec::<String>::new());
}

#[test]
fn tests_that_the_run_has_to_write() {
    let base = StartCommitFiles {
        files: ["tests/a.sh", "pkg/tests/test_a.py", "src/app.py"].map(str::to_owned).into(),
        ..StartCommitFiles::default()
    };
    for (command, want) in [
        ("sh tests/a.sh", &[][..]),
        ("sh tests/accept.sh", &["tests/accept.sh"]),
        ("sh -eu ./run.sh && sh tests/a.sh", &["run.sh"]),
        ("python3 app.py", &[]),
        ("python3 -m pytest pkg/tests", &[]),
        ("pytest -q pkg/tests/test_b.py::test_one pkg/tests/test_a.py::test_two", &["pkg/tests/test_b.py"]),
        ("cd pkg && pytest tests/test_a.py", &[]),
        ("cd pkg && pytest tests/test_b.py", &["pkg/tests/test_b.py"]),
        ("node --test test/new.test.js", &["test/new.test.js"]),
        ("test -s NOTES.md", &[]),
        ("grep -q tests README.md", &[]),
        ("cargo test", &[]),
        ("./check.sh", &["check.sh"]),
    ] {
        assert_eq!(files_to_be_written(command, &base), want, "{command}");
    }
}

#[test]
fn scripts_of_a_box() {
    let both = &["tests/check.sh", "tests/deep_check.sh"];
    check("", "sh tests/check.sh", both);
    check("", "sh -eu tests/check.sh --fast && echo ok", both);
    check("", "./tests/check.sh", both);
    check("", "bash -lc 'cd tests && sh check.sh'", both);
    check("", "X=1 node 'scripts/verify-foo.js' | cat", &["scripts/verify-foo.js"]);
    check("", "timeout 5 uv run python3 -m tests.deep_check", &[]);
    for product in ["python3 app.py", "./app", "sh run.sh", "python3 ci.py", "grep -q foo README.md"] {
        check("", product, &[]);
    }
    check("", "python3 test_app.py", &[]);
    check("", "python3 tests/absent_test.py", &[]);
    check("", "", &[]);
    check("", "sh", &[]);
}

#[test]
fn scripts_of_a_gate() {
    check("sh run.sh", "true", &["run.sh"]);
    check("env X=1 ./run.sh --all", "true", &["run.sh"]);
    check("sh -c './run.sh && echo ok'", "true", &["run.sh"]);
    check("bash -euo pipefail run.sh app.py", "true", &["run.sh"]);
    check("./app --selftest", "true", &["app"]);
    check("python3 ci.py", "true", &["ci.py"]);
    check("node tools/gate.js", "true", &["tools/gate.js"]);
    // Its name marks no check, and other commands only read its output.
    check("python3 app.py", "true", &[]);
    check("../run.sh; /run.sh; $X/run.sh", "true", &[]);
}

const PYTEST: [&str; 8] = [
    ".pytest.ini",
    ".pytest.toml",
    "pytest.ini",
    "pytest.toml",
    "sub/conftest.py",
    "pyproject.toml (tool/pytest)",
    "setup.cfg (tool:pytest)",
    "tox.ini (pytest)",
];

#[test]
fn runner_configuration_is_protected() {
    for command in ["pytest -q", "python3 -m pytest", "uv run pytest tests", "cd sub && python -m pytest"] {
        let base = base(&FILES);
        let found = find_proof_files([&command.to_owned()], [], &base, &[]);
        let all: Vec<String> =
            found.files.iter().cloned().chain(found.parts.iter().map(PinnedSection::description)).collect();
        for want in PYTEST {
            assert!(all.iter().any(|path| path == want), "{command}: {all:?}");
        }
    }
    let found = find_proof_files([&"make test".to_owned()], [], &base(&FILES), &[]);
    for want in ["Makefile", "GNUmakefile", "makefile", "rules.mk", "pytest.ini"] {
        assert!(found.files.iter().any(|path| path == want), "{found:?}");
    }
    let found = find_proof_files([&"npm test -- --ci".to_owned()], [], &base(&FILES), &[]);
    for want in [".npmrc", "jest.config.js", "tools/gate.js"] {
        assert!(found.files.iter().any(|path| path == want), "{found:?}");
    }
    assert_eq!(
        found.parts.iter().map(PinnedSection::description).collect::<Vec<_>>(),
        [
            "package.json (jest, scripts/posttest, scripts/postunit, scripts/pretest, scripts/preunit, scripts/test, scripts/unit)"
        ]
    );
    check("cargo test", "true", &[]);
}

#[test]
fn files_that_do_not_exist_yet_are_not_protected() {
    let empty = base(&[("README.md", "")]);
    for command in ["npm test", "pytest", "make test", "cargo test", "sh run.sh", "npx jest"] {
        let found = find_proof_files([&command.to_owned()], [], &empty, &[]);
        assert_eq!(ProofFiles { to_be_written: BTreeMap::new(), ..found }, ProofFiles::default(), "{command}");
    }
    let package = |script: &str| base(&[("package.json", &format!(r#"{{"scripts": {{{script}}}}}"#))]);
    for script in [r#""build": "tsc""#, r#""test": "echo \\"Error: no test specified\\" && exit 1""#] {
        let found = find_proof_files([&"npm test".to_owned()], [], &package(script), &[]);
        assert_eq!(found.parts, [], "{script}");
    }
    assert_eq!(find_proof_files([&"npm test".to_owned()], [], &package(r#""test": "jest""#), &[]).parts.len(), 1);
    for (text, want) in [
        ("build:\n\tcc x.c\n", 0),
        ("build test: x\n", 3),
        ("include rules.mk\n", 3),
        ("%:\n", 3),
        ("# test:\n.PHONY: test\n", 0),
    ] {
        let found = find_proof_files([&"make -s test V=1".to_owned()], [], &base(&[("Makefile", text)]), &[]);
        assert_eq!(found.files.len(), want, "{text}: {found:?}");
    }
}

#[test]
fn unread_files_are_requested() {
    let base = StartCommitFiles { files: base(&FILES).files, ..StartCommitFiles::default() };
    let found = find_proof_files([&"npm test".to_owned(), &"sh run.sh".to_owned()], [], &base, &[]);
    assert_eq!(found.unread, ["package.json", "run.sh"]);
}

/// Checks whether a change of a pinned file leaves the pinned keys unchanged.
#[track_caller]
fn check_section(path: &str, key: &str, before: Option<&str>, after: Option<&str>, want: bool) {
    let pinned = PinnedSection::pin(path, &BTreeSet::from([key.to_owned()]), before).unwrap();
    assert_eq!(pinned.is_unchanged(after.map(str::as_bytes)), want, "{path}: {after:?}");
    assert!(pinned.is_unchanged(before.map(str::as_bytes)));
}

#[test]
fn pinned_sections() {
    let package = |script: &str, more: &str| format!(r#"{{{more} "scripts": {{"test": "{script}"}}}}"#);
    let before = package("jest", "");
    for (after, want) in [
        (package("jest", r#""dependencies": {"left-pad": "1"},"#), true),
        (package("true", ""), false),
        ("{".to_owned(), false),
        ("{}".to_owned(), false),
    ] {
        check_section("package.json", "scripts/test", Some(&before), Some(&after), want);
    }
    check_section("package.json", "scripts/test", Some(&before), None, false);
    check_section("package.json", "scripts/pretest", Some(&before), Some(&package("jest", r#""x": 1,"#)), true);
    let before = "[project]\nname = \"x\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
    for (after, want) in [
        ("[project]\nname = \"y\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n", true),
        ("tool.pytest.ini_options.addopts = \"-q\"\n", true),
        ("tool.pytest.ini_options.addopts = \"--co\"\n", false),
        ("[project]\nname = \"y\"\n", false),
    ] {
        check_section("pyproject.toml", "tool/pytest", Some(before), Some(after), want);
    }
    check_section("pyproject.toml", "tool/pytest", None, Some("[project]\nname = \"x\"\n"), true);
    check_section("pyproject.toml", "tool/pytest", None, Some(before), false);
    check_section("setup.cfg", "tool:pytest", Some("[metadata]\nname = x\n"), Some("[metadata]\nname = y\n"), true);
    check_section(
        "setup.cfg",
        "tool:pytest",
        Some("[metadata]\n"),
        Some("[metadata]\n[tool:pytest]\naddopts = --co\n"),
        false,
    );
}

#[test]
fn files_that_a_command_reads() {
    for (command, path, want) in [
        ("pytest tests/test_a.py::test_x", "tests/test_a.py", true),
        ("pytest -q", "tests/conftest.py", true),
        ("python3 -m pytest", "conftest.py", true),
        ("diff out.txt want.txt", "want.txt", true),
        ("cd sub && diff out.txt want.txt", "sub/want.txt", true),
        ("npm test", "src/app.js", false),
        ("npm test", "conftest.py", false),
    ] {
        assert_eq!(command_reads(command, path), want, "{command} {path}");
    }
}

#[test]
fn folders_of_check_scripts() {
    for (path, want) in [
        ("checks/verify.sh", Some("checks")),
        ("ci/acceptance-tests/run.sh", Some("ci/acceptance-tests")),
        ("e2e/run.sh", Some("e2e")),
        ("inspector/check.sh", None),
        ("scripts/check.sh", None),
        ("check.sh", None),
    ] {
        assert_eq!(check_folder(path), want, "{path}");
    }
}

#[test]
fn files_that_take_the_place_of_others() {
    for (new, held, want) in [
        ("plugins/db/__init__.py", "plugins/db.py", true),
        ("checks/util.cpython-313-x86_64-linux-gnu.so", "checks/util.py", true),
        ("support/env.js", "support/env.ts", true),
        ("support/env.json", "support/env.js", true),
        ("support/environment.js", "support/env.js", false),
        ("support/env.js", "support/env.js", false),
        ("plugins/db/app.py", "plugins/db.py", false),
        ("checks/run.sh.bak", "checks/run.sh", false),
    ] {
        assert_eq!(takes_place_of(new, held), want, "{new} {held}");
    }
}
