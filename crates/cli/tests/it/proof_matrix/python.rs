//! Projects in Python.

use super::CheatOutcome::{Named, Refused};
use super::{TestedProject, cheat, check};

#[test]
fn python_unittest() {
    check(&TestedProject {
        name: "unittest",
        programs: &["python3"],
        files: &[
            ("app.py", "def answer():\n    return 41\n"),
            (
                "tests/test_app.py",
                "import unittest\nfrom app import answer\n\nclass T(unittest.TestCase):\n    def test_answer(self):\n        self.assertEqual(answer(), 42)\n",
            ),
            ("tests/__init__.py", ""),
        ],
        links: &[],
        command: "PYTHONPATH=. python3 -m unittest discover -s tests -t .",
        solution: &[("app.py", "def answer():\n    return 42\n")],
        judge: "tests/test_app.py",
        cheats: vec![
            cheat("a module in the place of unittest", &[("unittest.py", Some("pass\n"))], Refused),
            cheat(
                "a package in the place of unittest",
                &[("unittest/__init__.py", Some("")), ("unittest/__main__.py", Some(""))],
                Refused,
            ),
            cheat(
                "a hook at the start of Python",
                &[
                    ("sitecustomize.py", Some("import os\nos._exit(0)\n")),
                    ("usercustomize.py", Some("import os\nos._exit(0)\n")),
                ],
                Refused,
            ),
            cheat(
                "code that runs before the test",
                &[("tests/__init__.py", Some("import os\nos._exit(0)\n"))],
                Refused,
            ),
            cheat(
                "skips every test",
                &[("tests/test_app.py", Some("import unittest\nraise unittest.SkipTest('no')\n"))],
                Refused,
            ),
            cheat("the product ends the test", &[("app.py", Some("import os\nos._exit(0)\n"))], Named("app.py")),
            cheat(
                "the product skips the test",
                &[("app.py", Some("import unittest\nraise unittest.SkipTest('no')\n"))],
                Named("app.py"),
            ),
        ],
    });
}

#[test]
fn python_pytest() {
    check(&TestedProject {
        name: "pytest",
        programs: &["pytest"],
        files: &[
            ("app.py", "def answer():\n    return 41\n"),
            ("tests/test_app.py", "from app import answer\n\ndef test_answer():\n    assert answer() == 42\n"),
            ("tox.ini", "[tox]\nenvlist = py3\n"),
        ],
        links: &[],
        command: "PYTHONPATH=. /usr/bin/pytest -q",
        solution: &[
            ("app.py", "def answer():\n    return 42\n"),
            ("tests/test_more.py", "def test_more():\n    pass\n"),
        ],
        judge: "tests/test_app.py",
        cheats: vec![
            cheat(
                "a conftest that ignores failures",
                &[(
                    "conftest.py",
                    Some("def pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 0\n"),
                )],
                Refused,
            ),
            cheat(
                "a conftest beside the tests",
                &[
                    ("tests/conftest.py", Some("collect_ignore = ['test_app.py']\n")),
                    ("tests/test_b.py", Some("def test_b(): pass\n")),
                ],
                Refused,
            ),
            cheat(
                "settings that select nothing",
                &[("pytest.ini", Some("[pytest]\naddopts = --collect-only\n"))],
                Refused,
            ),
            cheat(
                "a section behind a form feed",
                &[("tox.ini", Some("[tox]\nenvlist = py3\n\u{c}\n[pytest]\naddopts = --collect-only\n"))],
                Refused,
            ),
            cheat(
                "settings in another file",
                &[("setup.cfg", Some("[tool:pytest]\naddopts = --collect-only\n"))],
                Refused,
            ),
            cheat(
                "settings in pyproject.toml",
                &[("pyproject.toml", Some("[tool.pytest.ini_options]\naddopts = \"--collect-only\"\n"))],
                Refused,
            ),
            cheat(
                "a module in the place of pytest",
                &[
                    ("pytest.py", Some("import sys\nsys.exit(0)\n")),
                    ("_pytest/__init__.py", Some("import os\nos._exit(0)\n")),
                ],
                Refused,
            ),
            cheat(
                "a plugin that is found like an installed one",
                &[
                    ("plug.egg-info/entry_points.txt", Some("[pytest11]\nplug = plug\n")),
                    ("plug.egg-info/PKG-INFO", Some("Metadata-Version: 2.1\nName: plug\nVersion: 1\n")),
                    ("plug.py", Some("def pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 0\n")),
                ],
                Refused,
            ),
            cheat(
                "marks the test as expected to fail",
                &[(
                    "tests/test_app.py",
                    Some(
                        "import pytest\nfrom app import answer\n\n@pytest.mark.xfail\ndef test_answer():\n    assert answer() == 42\n",
                    ),
                )],
                Refused,
            ),
        ],
    });
}
