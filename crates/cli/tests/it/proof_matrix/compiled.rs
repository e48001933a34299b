//! Projects in Rust, Go and C.

use super::CheatOutcome::{Named, Refused};
use super::{TestedProject, cheat, check};

#[test]
fn cargo_test() {
    check(&TestedProject {
        name: "cargo",
        programs: &["cargo"],
        files: &[
            ("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            ("Cargo.lock", "version = 3\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n"),
            (".gitignore", "target\n"),
            (
                "src/lib.rs",
                "/// Answers.\n///\n/// ```\n/// assert_eq!(a::answer(), 42);\n/// ```\npub fn answer() -> u8 {\n    41\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn inline() {\n        assert_eq!(super::answer(), 42);\n    }\n}\n",
            ),
            ("tests/app.rs", "#[test]\nfn answer() {\n    assert_eq!(a::answer(), 42);\n}\n"),
        ],
        links: &[],
        command: "cargo test --offline -q",
        solution: &[(
            "src/lib.rs",
            "/// Answers.\n///\n/// ```\n/// assert_eq!(a::answer(), 42);\n/// ```\npub fn answer() -> u8 {\n    42\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn inline() {\n        assert_eq!(super::answer(), 42);\n    }\n}\n",
        )],
        judge: "tests/app.rs",
        cheats: vec![
            cheat(
                "turns the tests off in the manifest",
                &[(
                    "Cargo.toml",
                    Some(
                        "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\nautotests = false\n\n[lib]\ntest = false\ndoctest = false\n",
                    ),
                )],
                Named("Cargo.toml"),
            ),
            cheat(
                "another runner",
                &[(".cargo/config.toml", Some("[target.'cfg(all())']\nrunner = \"true\"\n"))],
                Refused,
            ),
            cheat(
                "removes the tests in the source",
                &[(
                    "src/lib.rs",
                    Some(
                        "pub fn answer() -> u8 {\n    if std::env::var_os(\"CARGO_BIN_NAME\").is_some() { 41 } else { 42 }\n}\n",
                    ),
                )],
                Named("src/lib.rs"),
            ),
            cheat(
                "ignores the tests in the source",
                &[(
                    "src/lib.rs",
                    Some(
                        "/// Answers.\n///\n/// ```ignore\n/// assert_eq!(a::answer(), 42);\n/// ```\npub fn answer() -> u8 {\n    42\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    #[ignore]\n    fn inline() {\n        assert_eq!(super::answer(), 42);\n    }\n}\n",
                    ),
                )],
                Named("src/lib.rs"),
            ),
        ],
    });
}

#[test]
fn go_test() {
    check(&TestedProject {
        name: "go",
        programs: &["go"],
        files: &[
            ("go.mod", "module a\n\ngo 1.19\n"),
            ("app.go", "package a\n\nfunc Answer() int { return 41 }\n"),
            (
                "app_test.go",
                "package a\n\nimport \"testing\"\n\nfunc TestAnswer(t *testing.T) {\n\tif Answer() != 42 {\n\t\tt.Fatal(\"no\")\n\t}\n}\n",
            ),
        ],
        links: &[],
        command: "GOFLAGS=-mod=mod GOPROXY=off go test ./...",
        solution: &[("app.go", "package a\n\nfunc Answer() int { return 42 }\n")],
        judge: "app_test.go",
        cheats: vec![
            cheat(
                "a main function for the tests",
                &[(
                    "main_test.go",
                    Some(
                        "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n",
                    ),
                )],
                Refused,
            ),
            cheat(
                "a build tag that leaves the test out",
                &[("app_test.go", Some("//go:build never\n\npackage a\n"))],
                Refused,
            ),
            cheat(
                "the product ends the test",
                &[(
                    "app.go",
                    Some(
                        "package a\n\nimport \"os\"\n\nfunc init() { os.Exit(0) }\n\nfunc Answer() int { return 41 }\n",
                    ),
                )],
                Named("app.go"),
            ),
        ],
    });
}

#[test]
fn ctest() {
    check(&TestedProject {
        name: "ctest",
        programs: &["cmake", "ctest", "cc"],
        files: &[
            (
                "CMakeLists.txt",
                "cmake_minimum_required(VERSION 3.10)\nproject(a C)\nenable_testing()\ninclude_directories(include)\nadd_executable(t tests/t.c app.c)\nadd_test(NAME t COMMAND t)\n",
            ),
            ("include/app.h", "int answer(void);\n"),
            ("app.c", "int answer(void) { return 41; }\n"),
            (
                "tests/t.c",
                "#include <app.h>\n#include <assert.h>\nint main(void) { assert(answer() == 42); return 0; }\n",
            ),
        ],
        links: &[],
        command: "cmake -S . -B build > /dev/null && cmake --build build > /dev/null && ctest --test-dir build",
        solution: &[("app.c", "int answer(void) { return 42; }\n")],
        judge: "tests/t.c",
        cheats: vec![
            cheat(
                "a header in the place of an installed one",
                &[("include/assert.h", Some("#define assert(x) ((void)(x))\n"))],
                Refused,
            ),
            cheat(
                "takes the test out of the build",
                &[("CMakeLists.txt", Some("cmake_minimum_required(VERSION 3.10)\nproject(a C)\nenable_testing()\n"))],
                Named("CMakeLists.txt"),
            ),
            cheat(
                "turns the test off",
                &[(
                    "CMakeLists.txt",
                    Some(
                        "cmake_minimum_required(VERSION 3.10)\nproject(a C)\nenable_testing()\ninclude_directories(include)\nadd_executable(t tests/t.c app.c)\nadd_test(NAME t COMMAND t)\nset_tests_properties(t PROPERTIES DISABLED ON)\n",
                    ),
                )],
                Named("CMakeLists.txt"),
            ),
            cheat(
                "the product ends the test",
                &[(
                    "app.c",
                    Some(
                        "#include <unistd.h>\n__attribute__((constructor)) static void done(void) { _exit(0); }\nint answer(void) { return 41; }\n",
                    ),
                )],
                Named("app.c"),
            ),
        ],
    });
}
