//! Projects that are tested by shell scripts and makefiles.

use super::CheatOutcome::{Named, Refused};
use super::{TestedProject, cheat, check};

#[test]
fn shell() {
    check(&TestedProject {
        name: "shell",
        programs: &["bash"],
        files: &[
            ("checks/run.sh", "out=$(sh product.sh)\n. checks/lib.sh\nexpect \"$out\" 42\n"),
            ("checks/lib.sh", "expect() { [ \"$1\" = \"$2\" ] || exit 1; }\n"),
            ("product.sh", "echo 41\n"),
        ],
        links: &[],
        command: "bash checks/run.sh",
        solution: &[("product.sh", "echo 42\n")],
        judge: "checks/run.sh",
        cheats: vec![
            cheat("changes what the test sources", &[("checks/lib.sh", Some("expect() { :; }\n"))], Refused),
            cheat(
                "an attribute changes the test at checkout",
                &[(".gitattributes", Some("checks/* working-tree-encoding=UTF-7-IMAP\n"))],
                Refused,
            ),
            cheat(
                "the product moves the tests away and back",
                &[(
                    "product.sh",
                    Some(
                        "mv checks away; cp -r away checks\nprintf 'rm -rf checks; mv away checks; expect() { :; }\\n' > checks/lib.sh\necho 41\n",
                    ),
                )],
                Refused,
            ),
            cheat(
                "the product overwrites the test",
                &[("product.sh", Some("printf 'exit 0\\n' > checks/run.sh; echo 41\n"))],
                Refused,
            ),
        ],
    });
}

#[test]
fn linked_scripts() {
    check(&TestedProject {
        name: "linked scripts",
        programs: &["sh"],
        files: &[
            ("real/run.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
            ("real [1]/two.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
            ("product.sh", "echo 41\n"),
        ],
        links: &[("tests/run.sh", "../real/run.sh"), ("tests/[1]", "../real [1]")],
        command: "nice -n 5 timeout -k 9 60 env -u X sh tests/run.sh && sh 'tests/[1]/two.sh'",
        solution: &[("product.sh", "echo 42\n")],
        judge: "real/run.sh",
        cheats: vec![
            cheat("changes the file behind a link", &[("real/run.sh", Some("exit 0\n"))], Refused),
            cheat(
                "changes the files behind a link to a folder",
                &[("real/run.sh", Some("exit 0\n")), ("real [1]/two.sh", Some("exit 0\n"))],
                Refused,
            ),
        ],
    });
}

#[test]
fn make() {
    check(&TestedProject {
        name: "make",
        programs: &["make"],
        files: &[
            // The check makes a file of its own, which is no cheat.
            (
                "Makefile",
                "-include local.mk\nRUN = sh run.sh\nverify: build | copy.sh\n\t$(RUN)\nbuild:\n\t@true\ncopy.sh: product.sh\n\tcp product.sh copy.sh\n",
            ),
            ("run.sh", "[ \"$(sh product.sh)\" = 42 ]\n"),
            ("product.sh", "echo 41\n"),
        ],
        links: &[],
        command: "make verify",
        solution: &[("product.sh", "echo 42\n")],
        judge: "Makefile",
        cheats: vec![
            cheat("a file named like the target", &[("build", Some("")), ("verify", Some(""))], Refused),
            cheat("an optional include", &[("local.mk", Some("override RUN = true\n"))], Refused),
            cheat("a makefile that is found first", &[("GNUmakefile", Some("verify:\n\ttrue\n"))], Refused),
            cheat("changes the script of the target", &[("run.sh", Some("exit 0\n"))], Named("run.sh")),
        ],
    });
}
