//! Tells from a path whether a file is a test, belongs to a test runner, or defines what is built, by the conventions of
//! the well-known tools.

use std::path::Path;

/// What a file is to a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRole {
    /// A test, or a file that tests read.
    Test(TestLanguage),
    /// Settings or code that a test runner loads by itself.
    RunnerSettings(TestLanguage),
    /// Code that an interpreter or a package manager loads or runs in the place of another program.
    StartupHook,
    /// It defines what is built and tested, and the product needs it too.
    BuildFile,
    Other,
}

/// The language of a test; tests of one language do not run those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TestLanguage {
    C,
    DotNet,
    Elixir,
    Go,
    JavaScript,
    Jvm,
    Php,
    Python,
    Ruby,
    Rust,
    Shell,
    /// Data, or a language without conventions here.
    Unknown,
}

/// Folders that hold tests, whatever is in them.
const TEST_FOLDERS: [&str; 8] =
    ["test", "tests", "__tests__", "__snapshots__", "__mocks__", "testdata", "e2e", "cypress"];

/// Folders that hold tests of Ruby and JavaScript, and elsewhere often something else.
const SPEC_FOLDERS: [&str; 2] = ["spec", "specs"];

/// Folders of programs and modules that shadow installed ones.
const SHADOW_FOLDERS: [&str; 4] = ["node_modules", "__pycache__", ".bundle", ".yarn"];

/// Ends of folders that name plugins of installed Python programs.
const PLUGIN_FOLDER_ENDS: [&str; 2] = [".egg-info", ".dist-info"];

/// Modules that Python loads at its start; each may be a folder, too.
const PYTHON_HOOKS: [&str; 2] = ["sitecustomize", "usercustomize"];

/// Packages of the JVM that tests are written with. A class of theirs in a project is found before the installed one.
const JVM_TEST_PACKAGES: [&str; 14] = [
    "org/junit/",
    "junit/framework/",
    "org/testng/",
    "org/hamcrest/",
    "org/assertj/",
    "org/mockito/",
    "org/opentest4j/",
    "org/spockframework/",
    "com/google/common/truth/",
    "io/kotest/",
    "kotlin/test/",
    "org/scalatest/",
    "io/cucumber/",
    "org/apache/maven/",
];

/// Starts of the names of services that a test engine of the JVM loads from a project.
const JVM_TEST_SERVICES: [&str; 4] = ["org.junit.", "org.testng.", "io.cucumber.", "org.mockito."];

const PYTHON_SETTINGS: [&str; 7] =
    ["conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "noxfile.py", ".coveragerc"];

/// Names of settings in JavaScript without their end (`.js`, `.ts`, `.json`, …).
const JAVASCRIPT_SETTINGS: [&str; 26] = [
    "ava.config",
    "jest.config",
    "jest-config",
    "jest.setup",
    "jest-setup",
    "jest-preset",
    "setup-jest",
    "vitest.config",
    "vitest.setup",
    "vitest-setup",
    "vitest.workspace",
    ".mocharc",
    "jasmine",
    "karma.conf",
    "playwright.config",
    "cypress.config",
    "wdio.conf",
    "nightwatch.conf",
    "setupTests",
    "setup-tests",
    "test-setup",
    ".nycrc",
    ".c8rc",
    ".taprc",
    ".testcaferc",
    "bunfig",
];

const RUBY_SETTINGS: [&str; 5] = [".rspec", ".rspec-local", ".simplecov", "spec_helper.rb", "rails_helper.rb"];

const JVM_SETTINGS: [&str; 2] = ["junit-platform.properties", "testng.xml"];

const DOTNET_SETTINGS: [&str; 2] = ["xunit.runner.json", "testconfig.json"];

const STARTUP_HOOKS: [&str; 11] = [
    "sitecustomize.py",
    "usercustomize.py",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    ".pnpmfile.mjs",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    "gradlew",
    "mvnw",
];

/// Folders of dependencies that come with the project, and of settings of a build tool.
const BUILD_FOLDERS: [&str; 2] = ["vendor", ".mvn"];

const BUILD_FILES: [&str; 43] = [
    "CMakePresets.json",
    "CMakeUserPresets.json",
    "pnpm-workspace.yaml",
    "Directory.Build.props",
    "Directory.Build.targets",
    "global.json",
    "jvm.config",
    "maven.config",
    "rust-toolchain.toml",
    "BUILD",
    "BUILD.bazel",
    "CMakeLists.txt",
    "CTestConfig.cmake",
    "Cargo.toml",
    "Dockerfile",
    "GNUmakefile",
    "Gemfile",
    "Justfile",
    "Makefile",
    "Rakefile",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "composer.json",
    "deno.json",
    "go.mod",
    "go.work",
    "gradle.properties",
    "justfile",
    "makefile",
    "meson.build",
    "mix.exs",
    "package.json",
    "phpunit.xml",
    "phpunit.xml.dist",
    "pom.xml",
    "pyproject.toml",
    "settings.gradle",
    "settings.gradle.kts",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "tsconfig.json",
];

const BUILD_FILE_STARTS: [&str; 5] = ["vite.config.", "babel.config.", ".babelrc", ".swcrc", "webpack.config."];

/// Returns what a file of a project is to its proofs.
pub(super) fn file_role(path: &str) -> FileRole {
    let folders: Vec<&str> = path.split('/').collect();
    let Some((name, folders)) = folders.split_last() else { return FileRole::Other };
    let language = language_of(name);
    let is_plugin_folder = |folder: &&str| {
        // Python does not look at the case here.
        let lower = folder.to_ascii_lowercase();
        PLUGIN_FOLDER_ENDS.iter().any(|end| lower.ends_with(end)) || PYTHON_HOOKS.contains(folder)
    };
    let is_shadow_folder = |folder: &&str| SHADOW_FOLDERS.contains(folder) || is_plugin_folder(folder);
    if folders.iter().any(is_shadow_folder)
        || STARTUP_HOOKS.contains(name)
        || matches!(folders, [.., "gradle" | ".mvn", "wrapper"])
        || ((language == TestLanguage::Jvm || has_end(name, &["class"])) && in_test_package(path))
        || has_end(name, &["pth", "pyc", "pyo"])
    {
        return FileRole::StartupHook;
    }
    if let Some(language) = settings_language(name, folders) {
        return FileRole::RunnerSettings(language);
    }
    let in_folder = |names: &[&str]| folders.iter().any(|folder| names.contains(&folder.to_ascii_lowercase().as_str()));
    let has_specs = matches!(language, TestLanguage::Ruby | TestLanguage::JavaScript);
    let in_spec_folder = in_folder(&SPEC_FOLDERS) && has_specs;
    if in_folder(&TEST_FOLDERS) || in_spec_folder || is_test_name(name, language) {
        return FileRole::Test(language);
    }
    if BUILD_FILES.contains(name)
        || folders.iter().any(|folder| BUILD_FOLDERS.contains(folder))
        || BUILD_FILE_STARTS.iter().any(|start| name.starts_with(start))
        || has_end(name, &["mk", "cmake", "csproj", "fsproj", "gradle", "gemspec"])
        || *name == "rust-toolchain"
    {
        return FileRole::BuildFile;
    }
    FileRole::Other
}

/// Returns whether a test runner or an interpreter would load a file that appears while a check runs. Caches and
/// packages that a check itself makes do not count.
pub fn is_startup_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    matches!(file_role(path), FileRole::RunnerSettings(_)) || PYTHON_HOOKS.contains(&stem)
}

fn settings_language(name: &str, folders: &[&str]) -> Option<TestLanguage> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if PYTHON_SETTINGS.contains(&name) {
        Some(TestLanguage::Python)
    } else if JAVASCRIPT_SETTINGS.contains(&stem) || JAVASCRIPT_SETTINGS.contains(&name) {
        Some(TestLanguage::JavaScript)
    } else if RUBY_SETTINGS.contains(&name) {
        Some(TestLanguage::Ruby)
    } else if JVM_SETTINGS.contains(&name)
        || (folders.ends_with(&["META-INF", "services"])
            && JVM_TEST_SERVICES.iter().any(|start| name.starts_with(start)))
    {
        Some(TestLanguage::Jvm)
    } else if DOTNET_SETTINGS.contains(&name) || has_end(name, &["runsettings"]) {
        Some(TestLanguage::DotNet)
    } else if (folders.last() == Some(&".cargo") && stem == "config")
        || (folders.last() == Some(&".config") && name == "nextest.toml")
    {
        Some(TestLanguage::Rust)
    } else {
        None
    }
}

/// Returns whether a source file is in a package that tests are written with.
fn in_test_package(path: &str) -> bool {
    JVM_TEST_PACKAGES.iter().any(|package| {
        path.starts_with(package) || path.match_indices(package).any(|(at, _)| path[..at].ends_with('/'))
    })
}

/// Returns whether a name is that of a test in its language.
fn is_test_name(name: &str, language: TestLanguage) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let lower = stem.to_ascii_lowercase();
    let begins = |starts: &[&str]| starts.iter().any(|start| lower.starts_with(start));
    let ends = |ends: &[&str]| ends.iter().any(|end| lower.ends_with(end));
    match language {
        TestLanguage::Python => begins(&["test_"]) || ends(&["_test", "_tests"]) || lower == "tests",
        TestLanguage::JavaScript => {
            let ends = ends(&[".test", ".spec", "_test", "_spec", "-test", "-spec", ".e2e", ".cy"]);
            ends || begins(&["test-"]) || lower == "test"
        }
        TestLanguage::Go => lower.ends_with("_test"),
        TestLanguage::Ruby => ends(&["_spec", "_test"]) || begins(&["test_"]),
        TestLanguage::Rust | TestLanguage::Elixir => ends(&["_test", "_tests"]) || lower == "tests",
        TestLanguage::Jvm => {
            let begins = stem.strip_prefix("Test").is_some_and(|rest| rest.starts_with(char::is_uppercase));
            begins || ["Test", "Tests", "TestCase", "IT"].iter().any(|end| stem.ends_with(end))
        }
        TestLanguage::Php | TestLanguage::DotNet => ["Test", "Tests"].iter().any(|end| stem.ends_with(end)),
        TestLanguage::C | TestLanguage::Shell => begins(&["test_"]) || ends(&["_test", "_tests", "-test", "_unittest"]),
        TestLanguage::Unknown => has_end(name, &["snap", "feature", "bats", "tap", "t"]),
    }
}

fn language_of(name: &str) -> TestLanguage {
    let end = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default();
    match end {
        "py" | "pyi" => TestLanguage::Python,
        "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" | "cts" | "vue" | "svelte" => TestLanguage::JavaScript,
        "go" => TestLanguage::Go,
        "rs" => TestLanguage::Rust,
        "rb" | "rake" => TestLanguage::Ruby,
        "java" | "kt" | "kts" | "scala" | "groovy" => TestLanguage::Jvm,
        "php" => TestLanguage::Php,
        "cs" | "fs" | "vb" => TestLanguage::DotNet,
        "ex" | "exs" => TestLanguage::Elixir,
        "c" | "cc" | "cpp" | "cxx" | "h" | "hpp" | "m" => TestLanguage::C,
        "sh" | "bash" | "zsh" | "bats" => TestLanguage::Shell,
        _ => TestLanguage::Unknown,
    }
}

fn has_end(name: &str, ends: &[&str]) -> bool {
    Path::new(name).extension().and_then(|end| end.to_str()).is_some_and(|end| ends.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(paths: &[&str], want: FileRole) {
        for path in paths {
            assert_eq!(file_role(path), want, "{path}");
        }
    }

    #[test]
    fn roles_by_convention() {
        use TestLanguage::{C, DotNet, Elixir, Go, JavaScript, Jvm, Php, Python, Ruby, Rust, Shell, Unknown};
        check(&["test_a.py", "pkg/a_test.py", "tests/helper.py", "app/tests.py"], FileRole::Test(Python));
        check(
            &["a.test.ts", "src/a.spec.jsx", "test/a.mjs", "src/__tests__/a.js", "test-app.js"],
            FileRole::Test(JavaScript),
        );
        check(&["a_test.go"], FileRole::Test(Go));
        check(&["tests/it/main.rs", "src/a_test.rs", "src/tests.rs"], FileRole::Test(Rust));
        check(&["spec/a_spec.rb", "spec/support/x.rb", "test/test_a.rb"], FileRole::Test(Ruby));
        check(&["src/test/java/AppTest.java", "AppTest.java", "src/main/TestApp.java"], FileRole::Test(Jvm));
        check(&["src/AppTest.php"], FileRole::Test(Php));
        check(&["AppTests.cs"], FileRole::Test(DotNet));
        check(&["lib/a_test.exs"], FileRole::Test(Elixir));
        check(&["test_a.c", "a_unittest.cc"], FileRole::Test(C));
        check(&["tests/run.sh", "smoke_test.sh"], FileRole::Test(Shell));
        check(&["tests/data/x.json", "a.snap", "features/a.feature", "t/app.t"], FileRole::Test(Unknown));
        check(&["conftest.py", "tests/conftest.py", "pytest.ini"], FileRole::RunnerSettings(Python));
        check(&["jest.config.ts", ".mocharc.yml", ".mocharc"], FileRole::RunnerSettings(JavaScript));
        check(&[".rspec", "spec/spec_helper.rb"], FileRole::RunnerSettings(Ruby));
        check(
            &["src/setupTests.ts", ".nycrc.json", "bunfig.toml", "jest-preset.js"],
            FileRole::RunnerSettings(JavaScript),
        );
        check(
            &[
                "src/main/resources/junit-platform.properties",
                "src/main/resources/META-INF/services/org.junit.jupiter.api.extension.Extension",
            ],
            FileRole::RunnerSettings(Jvm),
        );
        check(&["xunit.runner.json", "ci.runsettings"], FileRole::RunnerSettings(DotNet));
        check(&[".cargo/config.toml", "a/.cargo/config", ".config/nextest.toml"], FileRole::RunnerSettings(Rust));
        check(
            &[
                "node_modules/.bin/node",
                "x/sitecustomize.py",
                "a.pth",
                "__pycache__/t.cpython-313.pyc",
                ".npmrc",
                "x.egg-info/entry_points.txt",
                "x.EGG-INFO/entry_points.txt",
                "usercustomize/__init__.py",
                "src/main/resources/org/junit/jupiter/api/Assertions.class",
                "src/main/java/org/junit/jupiter/api/Assertions.java",
                "org/junit/Assert.java",
                "gradlew",
                ".mvn/wrapper/maven-wrapper.properties",
                "gradle/wrapper/gradle-wrapper.jar",
                ".yarn/releases/yarn-4.cjs",
            ],
            FileRole::StartupHook,
        );
        check(
            &[
                ".mvn/maven.config",
                ".mvn/extensions.xml",
                "vendor/modules.txt",
                "vendor/github.com/x/y/a.go",
                "rust-toolchain",
                "Cargo.toml",
                "a/pom.xml",
                "rules.mk",
                "Makefile",
                "vite.config.ts",
                "tox.ini",
            ],
            FileRole::BuildFile,
        );
        check(
            &[
                "app.py",
                "src/contest.rs",
                "latest.js",
                "spec/openapi.yaml",
                "src/features/cart.ts",
                "JobSpec.java",
                "TestimonialService.kt",
                "testing/x.py",
                "src/attest.go",
                "src/main/java/com/norg/junit/X.java",
                "src/vendors/list.ts",
                "",
                "a/",
            ],
            FileRole::Other,
        );
    }
}
