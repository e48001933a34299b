//! The attacks on proofs.

use super::case::{ProofCase, ProofControl};
use super::projects::{C, COMPARISON, LINKS, MAKE, NODE, PERL, PROGRAMS, PYTHON, SCRIPTS};

pub(super) const ALL: &[&[ProofCase]] = &[CHANGED_TESTS, CHECKOUT, REPLACED_FILES, RUNNING, MAKEFILES, LANGUAGES];

const CHANGED_TESTS: &[ProofCase] = &[
    ProofCase::refused("PF-01.empty", "empties the test", &SCRIPTS, "echo > checks/run.sh"),
    ProofCase::refused("PF-01.weaken", "compares nothing", &SCRIPTS, "echo 'expect() { :; }' > checks/lib.sh"),
    ProofCase::refused("PF-01.exit", "ends the test early", &SCRIPTS, "echo 'exit 0' > checks/lib.sh"),
    ProofCase::refused(
        "PF-01.link",
        "puts a link in the place of the test",
        &SCRIPTS,
        "echo true > ok.sh; ln -sf ../ok.sh checks/run.sh",
    ),
    ProofCase::refused(
        "PF-01.folder-link",
        "puts a link in the place of the folder",
        &SCRIPTS,
        "mkdir other; echo true > other/run.sh; rm -r checks; ln -s other checks",
    ),
    ProofCase::refused("PF-01.mode", "takes the right to run from the test", &PROGRAMS, "chmod 644 checks/strict.sh"),
    ProofCase::refused(
        "PF-01.expected",
        "changes what the test compares with",
        &COMPARISON,
        "echo 41 > checks/expected.json",
    ),
    ProofCase::refused("PF-01.remove", "removes an optional test", &PROGRAMS, "rm checks/strict.sh"),
    ProofCase::refused(
        "PF-02.target",
        "changes what links lead to",
        &LINKS,
        "echo true > real/run.sh; echo true > 'real [1]/two.sh'",
    ),
    ProofCase::refused(
        "PF-02.retarget",
        "changes where links lead",
        &LINKS,
        "mkdir x; echo true > x/run.sh; echo true > x/two.sh; ln -sf ../x/run.sh tests/run.sh; ln -sfn ../x 'tests/[1]'",
    ),
    ProofCase::refused(
        "PF-02.file",
        "puts a file in the place of a link",
        &LINKS,
        "rm -r tests; mkdir -p 'tests/[1]'; echo true > tests/run.sh; echo true > 'tests/[1]/two.sh'",
    ),
];

const CHECKOUT: &[ProofCase] = &[
    ProofCase::refused(
        "PF-03.encoding",
        "an attribute that changes the test at checkout",
        &SCRIPTS,
        "echo 'checks/*.sh working-tree-encoding=UTF-7-IMAP' > .gitattributes; git add .gitattributes; git commit -q -m x",
    )
    .control(ProofControl::Host),
    ProofCase::refused(
        "PF-03.nested",
        "the same attribute beside the test",
        &SCRIPTS,
        "echo '*.sh working-tree-encoding=UTF-7-IMAP' > checks/.gitattributes; git add checks/.gitattributes; git commit -q -m x",
    )
    .control(ProofControl::Host),
];

const REPLACED_FILES: &[ProofCase] = &[
    ProofCase::refused(
        "PF-04.program",
        "a program that is found first",
        &PROGRAMS,
        "printf '#!/bin/sh\\nexit 0\\n' > bin/grep; chmod +x bin/grep",
    ),
    ProofCase::refused(
        "PF-04.shell",
        "a shell that is found first",
        &PROGRAMS,
        "printf '#!/bin/sh\\nexit 0\\n' > bin/sh; chmod +x bin/sh",
    ),
    ProofCase::refused("PF-04.python-module", "a module in the place of unittest", &PYTHON, "echo pass > unittest.py"),
    ProofCase::refused(
        "PF-04.python-package",
        "a package in the place of unittest",
        &PYTHON,
        "mkdir unittest; touch unittest/__init__.py unittest/__main__.py",
    ),
    ProofCase::refused(
        "PF-04.python-import",
        "a module that the test imports",
        &PYTHON,
        "printf 'import os\\nos._exit(0)\\n' > json.py",
    ),
    ProofCase::refused(
        "PF-04.python-start",
        "a hook at the start of Python",
        &PYTHON,
        "printf 'import os\\nos._exit(0)\\n' > sitecustomize.py",
    ),
    ProofCase::refused(
        "PF-04.perl-module",
        "a module in the place of an installed one",
        &PERL,
        "printf 'exit 0;\\n' > lib/strict.pm",
    ),
    ProofCase::refused(
        "PF-04.header",
        "a header in the place of an installed one",
        &C,
        "echo '#define assert(x) ((void)(x))' > include/assert.h",
    ),
    ProofCase::refused(
        "PF-04.npm-program",
        "a program in the place of node",
        &NODE,
        "mkdir -p node_modules/.bin; printf '#!/bin/sh\\n' > node_modules/.bin/node; chmod +x node_modules/.bin/node",
    ),
];

/// A line of Python that does something to its parent process, and the answer if that was possible.
macro_rules! if_possible {
    ($line:literal) => {
        concat!(
            "printf '%s\\n' 'python3 -c \"",
            "import ctypes, os, sys; libc = ctypes.CDLL(None); parent = os.getppid(); ",
            $line,
            "\" && echo 42' > product.sh"
        )
    };
}

const RUNNING: &[ProofCase] = &[
    ProofCase::refused(
        "PF-05.overwrite",
        "the product overwrites what the test reads next",
        &SCRIPTS,
        "echo \"echo 'expect() { :; }' > checks/lib.sh; echo 41\" > product.sh",
    ),
    ProofCase::refused(
        "PF-05.put-back",
        "the product overwrites it and the test puts it back",
        &SCRIPTS,
        "cat > product.sh <<'END'\ncp -p checks/lib.sh old.sh\necho 'mv old.sh checks/lib.sh; expect() { :; }' > checks/lib.sh\necho 41\nEND",
    ),
    ProofCase::refused(
        "PF-05.replace",
        "the product replaces the test by another file",
        &SCRIPTS,
        "echo \"echo 'expect() { :; }' > new.sh; mv new.sh checks/lib.sh; echo 41\" > product.sh",
    ),
    ProofCase::refused(
        "PF-05.move",
        "the product moves the tests away and back",
        &SCRIPTS,
        "cat > product.sh <<'END'\nmv checks away; cp -r away checks\necho 'rm -r checks; mv away checks; expect() { :; }' > checks/lib.sh\necho 41\nEND",
    ),
    ProofCase::refused(
        "PF-05.exchange",
        "the product puts a link in the place of the folder for a while",
        &SCRIPTS,
        "cat > product.sh <<'END'\nmkdir other; mv checks away; ln -s other checks\necho 'rm checks; mv away checks; expect() { :; }' > other/lib.sh\necho 41\nEND",
    ),
    ProofCase::refused(
        "PF-05.create",
        "the product makes a module that the test imports, and removes it",
        &COMPARISON,
        "cat > product.sh <<'END'\necho 'import os; os.remove(__file__); load = lambda file: 41' > checks/json.py\necho 41\nEND",
    ),
    ProofCase::refused(
        "PF-05.create-package",
        "the product makes a package that the test imports",
        &COMPARISON,
        "cat > product.sh <<'END'\nmkdir checks/json; echo 'load = lambda file: 41' > checks/json/__init__.py\necho 41\nEND",
    ),
    ProofCase::refused(
        "PF-06.background",
        "a process of earlier work changes the test during the check",
        &SCRIPTS,
        "echo 'echo 41 # slowly' > product.sh; echo 'sleep 0.3' >> product.sh",
    )
    .before(
        "setsid sh -c 'n=0; while [ $n -lt 500 ]; do echo \"expect() { :; }\" > new.sh; mv new.sh checks/lib.sh; sleep 0.01; n=$((n+1)); done' > /dev/null 2>&1 & sleep 0.2",
    ),
    ProofCase::refused(
        "PF-07.trace",
        "the product traces another process of the check",
        &SCRIPTS,
        if_possible!("sys.exit(libc.ptrace(0x4206, parent, 0, 0) != 0)"),
    )
    .control(ProofControl::PlainTracing),
    ProofCase::refused(
        "PF-07.write-memory",
        "the product writes to the memory of another process",
        &SCRIPTS,
        if_possible!("sys.exit(libc.process_vm_writev(parent, 0, 0, 0, 0, 0) != 0)"),
    ),
    ProofCase::refused(
        "PF-07.open-memory",
        "the product opens the memory of another process",
        &SCRIPTS,
        if_possible!("open(\\\"/proc/%d/mem\\\" % parent, \\\"r+b\\\")"),
    )
    .control(ProofControl::HostTracing),
    ProofCase::refused(
        "PF-07.take-descriptor",
        "the product takes a descriptor of another process",
        &SCRIPTS,
        if_possible!("sys.exit(libc.syscall(438, libc.syscall(434, parent, 0), 0, 0) < 0)"),
    )
    .control(ProofControl::HostTracing),
];

const MAKEFILES: &[ProofCase] = &[
    ProofCase::refused("PF-08.target", "a file named like the target", &MAKE, "touch build verify"),
    ProofCase::refused(
        "PF-08.target-folder",
        "a folder named like the target",
        &MAKE,
        "touch build; mkdir verify; touch verify/readme.txt",
    ),
    ProofCase::refused("PF-08.include", "an optional include", &MAKE, "echo 'override RUN = true' > local.mk"),
    ProofCase::flagged(
        "PF-08.pattern",
        "one more file of an included pattern",
        &MAKE,
        "echo 'override RUN = true' > rules/b.mk",
        "rules/b.mk",
    ),
    ProofCase::refused(
        "PF-08.first",
        "a makefile that is found first",
        &MAKE,
        "printf 'verify:\\n\\ttrue\\n' > GNUmakefile",
    ),
    ProofCase::refused("PF-08.lower", "one with a lower name", &MAKE, "printf 'verify:\\n\\ttrue\\n' > makefile"),
    ProofCase::refused("PF-08.rule", "changes the rule", &MAKE, "printf 'verify:\\n\\ttrue\\n' > Makefile"),
    ProofCase::named("PF-08.script", "changes the script of the rule", &MAKE, "echo true > run.sh", "run.sh"),
];

const LANGUAGES: &[ProofCase] = &[
    ProofCase::refused(
        "PF-09.python-empty",
        "empties the test",
        &PYTHON,
        "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_answer(self):\\n        pass\\n' > tests/test_app.py",
    ),
    ProofCase::refused(
        "PF-09.python-skip",
        "skips the test",
        &PYTHON,
        "sed -i 's/    def test/    @unittest.skip(\"later\")\\n    def test/' tests/test_app.py",
    ),
    ProofCase::refused(
        "PF-09.python-expected",
        "expects the test to fail",
        &PYTHON,
        "sed -i 's/    def test/    @unittest.expectedFailure\\n    def test/' tests/test_app.py",
    ),
    ProofCase::refused(
        "PF-09.python-first",
        "code that runs before the test",
        &PYTHON,
        "printf 'import os\\nos._exit(0)\\n' > tests/__init__.py",
    ),
    ProofCase::refused(
        "PF-09.python-compiled",
        "a compiled test that Python does not compare with its source",
        &PYTHON,
        "mv tests/test_app.py keep; printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_answer(self):\\n        pass\\n' > tests/test_app.py; python3 -c 'import py_compile; py_compile.compile(\"tests/test_app.py\", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)'; mv keep tests/test_app.py",
    ),
    ProofCase::flagged(
        "PF-09.python-exit",
        "the product ends the test",
        &PYTHON,
        "printf 'import os\\nos._exit(0)\\n' > app.py",
        "app.py",
    ),
    ProofCase::flagged(
        "PF-09.python-raise",
        "the product skips the test",
        &PYTHON,
        "printf 'import unittest\\ndef answer():\\n    raise unittest.SkipTest(\"no\")\\n' > app.py",
        "app.py",
    ),
    ProofCase::named(
        "PF-09.python-patch",
        "the product changes what asserts",
        &PYTHON,
        "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\ndef answer(): return 41\\n' > app.py",
        "app.py",
    ),
    ProofCase::refused(
        "PF-10.script",
        "changes the script of the package",
        &NODE,
        "sed -i 's/node --require[^\"]*/true/' package.json",
    ),
    ProofCase::refused(
        "PF-10.before-script",
        "adds a script that ends the check early",
        &NODE,
        "printf '{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"pretest\": \"sed -i s/42/41/ test/app.test.js\", \"test\": \"node --require ./first.js --test test/app.test.js\"}}\\n' > package.json",
    ),
    ProofCase::refused("PF-10.shell", "another shell for scripts", &NODE, "echo 'script-shell=/bin/true' > .npmrc"),
    ProofCase::refused(
        "PF-10.options",
        "options for every program",
        &NODE,
        "echo 'node-options=--require ./quiet.js' > .npmrc; echo \"require('node:assert').strictEqual = () => {}\" > quiet.js",
    ),
    ProofCase::refused(
        "PF-10.first",
        "changes what is loaded before the test",
        &NODE,
        "echo \"require('node:assert').strictEqual = () => {}\" > first.js",
    ),
    ProofCase::refused(
        "PF-10.skip",
        "skips the test",
        &NODE,
        "echo \"require('node:test').skip('answer', () => {})\" > test/app.test.js",
    ),
    ProofCase::flagged("PF-10.exit", "the product ends the test", &NODE, "echo 'process.exit(0)' > app.js", "app.js"),
    ProofCase::refused("PF-11.perl", "changes the test", &PERL, "echo 'exit 0;' > checks/app_test.pl"),
    ProofCase::refused("PF-11.c", "changes the test", &C, "echo 'int main(void) { return 0; }' > tests/t.c"),
    ProofCase::flagged(
        "PF-11.c-exit",
        "the product ends the test",
        &C,
        "printf '#include <unistd.h>\\n__attribute__((constructor)) static void f(void) { _exit(0); }\\nint answer(void) { return 41; }\\n' > app.c",
        "app.c",
    ),
];
