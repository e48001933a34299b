//! The small projects whose checks are attacked. In each, the answer is 41 and should be 42.

/// A project whose check fails.
#[derive(Debug)]
pub(super) struct AttackedProject {
    pub(super) name: &'static str,
    /// Programs of the host that it needs.
    pub(super) programs: &'static [&'static str],
    pub(super) files: &'static [ProjectFile],
    pub(super) command: &'static str,
    /// A shell line that does the work.
    pub(super) solution: &'static str,
}

/// A path and its content.
pub(super) type ProjectFile = (&'static str, &'static str);

pub(super) const SCRIPTS: AttackedProject = AttackedProject {
    name: "shell scripts",
    programs: &["sh"],
    files: &[
        ("checks/run.sh", "# Compares the answer.\nout=$(sh product.sh)\n. checks/lib.sh\nexpect \"$out\" 42\n"),
        ("checks/lib.sh", "expect() { [ \"$1\" = \"$2\" ] || exit 1; }\n"),
        ("product.sh", "echo 41\n"),
    ],
    command: "sh checks/run.sh",
    solution: "echo 'echo 42' > product.sh",
};

pub(super) const PROGRAMS: AttackedProject = AttackedProject {
    name: "programs",
    programs: &["sh", "grep"],
    files: &[
        ("checks/all.sh", "if [ -x checks/strict.sh ]; then checks/strict.sh; fi\n"),
        ("checks/strict.sh", "#!/bin/sh\nsh product.sh | PATH=./bin:$PATH grep -qx 42\n"),
        ("product.sh", "echo 41\n"),
        ("bin/readme.txt", "programs\n"),
    ],
    command: "PATH=./bin:$PATH sh checks/all.sh",
    solution: "echo 'echo 42' > product.sh",
};

pub(super) const COMPARISON: AttackedProject = AttackedProject {
    name: "a comparison in Python",
    programs: &["sh", "python3"],
    files: &[
        ("checks/verify.sh", "out=$(sh product.sh)\npython3 checks/judge.py \"$out\"\n"),
        (
            "checks/judge.py",
            "import json, sys\nwanted = json.load(open('checks/expected.json'))\nsys.exit(0 if int(sys.argv[1]) == wanted else 1)\n",
        ),
        ("checks/expected.json", "42\n"),
        ("product.sh", "echo 41\n"),
    ],
    command: "sh checks/verify.sh",
    solution: "echo 'echo 42' > product.sh",
};

pub(super) const LINKS: AttackedProject = AttackedProject {
    name: "linked scripts",
    programs: &["sh"],
    files: &[
        ("real/run.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
        ("real [1]/two.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
        ("tests/run.sh", "link:../real/run.sh"),
        ("tests/[1]", "link:../real [1]"),
        ("product.sh", "echo 41\n"),
    ],
    command: "nice -n 5 timeout -k 9 60 env -u X sh tests/run.sh && sh 'tests/[1]/two.sh'",
    solution: "echo 'echo 42' > product.sh",
};

pub(super) const MAKE: AttackedProject = AttackedProject {
    name: "make",
    programs: &["make"],
    files: &[
        (
            "Makefile",
            "-include local.mk\ninclude rules/*.mk\nRUN = sh run.sh\nverify: build\n\t$(RUN)\nbuild:\n\t@true\n",
        ),
        ("rules/a.mk", "A = 1\n"),
        ("run.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
        ("product.sh", "echo 41\n"),
    ],
    command: "make verify",
    solution: "echo 'echo 42' > product.sh",
};

pub(super) const PYTHON: AttackedProject = AttackedProject {
    name: "Python's unittest",
    programs: &["python3"],
    files: &[
        ("app.py", "def answer():\n    return 41\n"),
        ("tests/__init__.py", ""),
        (
            "tests/test_app.py",
            "import json\nimport unittest\nfrom app import answer\n\nclass T(unittest.TestCase):\n    def test_answer(self):\n        self.assertEqual(answer(), 42)\n",
        ),
    ],
    command: "PYTHONPATH=. python3 -m unittest tests.test_app",
    solution: "printf 'def answer():\\n    return 42\\n' > app.py",
};

pub(super) const NODE: AttackedProject = AttackedProject {
    name: "Node's test runner",
    programs: &["node", "npm"],
    files: &[
        ("app.js", "exports.answer = () => 41\n"),
        ("first.js", "process.env.MODE = 'test'\n"),
        (
            "test/app.test.js",
            "const test = require('node:test')\nconst assert = require('node:assert')\nconst { answer } = require('../app.js')\ntest('answer', () => assert.strictEqual(answer(), 42))\n",
        ),
        (
            "package.json",
            "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node --require ./first.js --test test/app.test.js\"}}\n",
        ),
    ],
    command: "npm test",
    solution: "echo 'exports.answer = () => 42' > app.js",
};

pub(super) const PERL: AttackedProject = AttackedProject {
    name: "Perl",
    programs: &["perl"],
    files: &[
        ("lib/Answer.pm", "package Answer;\nsub answer { 41 }\n1;\n"),
        ("checks/app_test.pl", "use strict;\nuse Answer;\nexit(Answer::answer() == 42 ? 0 : 1);\n"),
    ],
    command: "perl -Ilib checks/app_test.pl",
    solution: "sed -i s/41/42/ lib/Answer.pm",
};

pub(super) const C: AttackedProject = AttackedProject {
    name: "C",
    programs: &["cc"],
    files: &[
        ("include/app.h", "int answer(void);\n"),
        ("app.c", "#include <app.h>\nint answer(void) { return 41; }\n"),
        ("tests/t.c", "#include <app.h>\n#include <assert.h>\nint main(void) { assert(answer() == 42); return 0; }\n"),
    ],
    command: "cc -Iinclude -o /tmp/t tests/t.c app.c && /tmp/t",
    solution: "sed -i s/41/42/ app.c",
};
