//! The languages whose manifest alone shows how tests are run.

use super::detect::{LanguageTests, with_tests};
use super::project_files::ProjectFolder;

pub(super) fn rust(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    if !place.has("Cargo.toml") {
        return None;
    }
    let manifest = place.text("Cargo.toml").and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
    match (manifest.contains_key("workspace"), manifest.contains_key("package")) {
        // Without `--workspace` only the root package is tested.
        (true, true) => with_tests("Rust", "cargo test --workspace", "Cargo.toml is a package and a workspace"),
        (true, false) => with_tests("Rust", "cargo test", "Cargo.toml is a workspace"),
        _ => with_tests("Rust", "cargo test", "Cargo.toml"),
    }
}

pub(super) fn go(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    const MOST: usize = 20;
    if let Some(text) = place.text("go.work") {
        // At the root of a workspace `./...` matches no package, so each module is named.
        let modules = go_uses(text);
        if !modules.is_empty() && modules.len() <= MOST {
            let paths: Vec<String> = modules.iter().map(|module| format!("{module}/...")).collect();
            return with_tests("Go", format!("go test {}", paths.join(" ")), "go.work names the modules");
        }
        return with_tests("Go", "go list -m -f '{{.Dir}}/...' | xargs go test", "go.work");
    }
    if place.has("go.mod") { with_tests("Go", "go test ./...", "go.mod") } else { None }
}

/// The folders a `go.work` uses, as `./name`.
fn go_uses(text: &str) -> Vec<String> {
    let mut uses = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let named = match line.strip_prefix("use") {
            Some(rest) if rest.trim() == "(" => {
                inside = true;
                continue;
            }
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim(),
            _ if line == ")" => {
                inside = false;
                continue;
            }
            _ if inside => line,
            _ => continue,
        };
        let folder = named.trim_start_matches("./").trim_end_matches('/');
        let plain = folder.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'));
        if !plain || folder.contains("..") || named.is_empty() {
            return Vec::new();
        }
        uses.push(if folder.is_empty() || folder == "." { ".".to_owned() } else { format!("./{folder}") });
    }
    uses
}

pub(super) fn maven(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    match (place.has("pom.xml"), place.has("mvnw")) {
        (false, _) => None,
        (true, true) => with_tests("Java", "./mvnw -B test", "pom.xml, mvnw"),
        (true, false) => with_tests("Java", "mvn -B test", "pom.xml"),
    }
}

pub(super) fn gradle(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    let names = ["settings.gradle.kts", "settings.gradle", "build.gradle.kts", "build.gradle"];
    let seen = place.first_present(&names)?;
    if place.has("gradlew") {
        with_tests("Java", "./gradlew test", format!("{seen}, gradlew"))
    } else {
        with_tests("Java", "gradle test", seen)
    }
}

pub(super) fn dotnet(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    let solutions: Vec<&str> = [".sln", ".slnx"].iter().flat_map(|end| place.files_ending(end)).collect();
    if let Some(solution) = solutions.first() {
        return with_tests("dotnet", "dotnet test", format!("the solution {solution}"));
    }
    let projects = [".csproj", ".fsproj", ".vbproj"].iter().flat_map(|end| place.files_ending(end)).collect::<Vec<_>>();
    with_tests("dotnet", "dotnet test", format!("the project {}", projects.first()?))
}

pub(super) fn ruby(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    if !place.has("Gemfile") {
        return None;
    }
    if place.has(".rspec") || place.paths_below("spec/").any(|path| path.ends_with("_spec.rb")) {
        return with_tests("Ruby", "bundle exec rspec", "Gemfile, spec/");
    }
    if place.has("bin/rails") {
        return with_tests("Ruby", "bin/rails test", "Gemfile, bin/rails");
    }
    with_tests("Ruby", "bundle exec rake test", "Gemfile")
}

pub(super) fn php(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    let composer = place.text("composer.json");
    let scripted = composer
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        .is_some_and(|manifest| manifest.pointer("/scripts/test").is_some());
    if scripted {
        return with_tests("PHP", "composer test", "composer.json has the script `test`");
    }
    if place.has("artisan") {
        return with_tests("PHP", "php artisan test", "artisan");
    }
    if place.has("tests/Pest.php") {
        return with_tests("PHP", "vendor/bin/pest", "tests/Pest.php");
    }
    if let Some(seen) = place.first_present(&["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"]) {
        return with_tests("PHP", "vendor/bin/phpunit", seen);
    }
    composer?;
    let why = "composer.json has no script `test` and there is no phpunit.xml".to_owned();
    Some(LanguageTests::Untested { name: "PHP", why })
}

pub(super) fn elixir(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    if place.has("mix.exs") { with_tests("Elixir", "mix test", "mix.exs") } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use super::super::project_files::project;

    #[track_caller]
    fn check(files: &[(&str, &str)], want: &str) {
        let found = detect(&project(files));
        assert_eq!(found.test_command.as_deref(), Some(want), "{found:#?}");
    }

    #[test]
    fn commands() {
        check(&[("Cargo.toml", "[workspace]\nmembers = []\n[package]\nname = \"x\"\n")], "cargo test --workspace");
        check(&[("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n")], "cargo test");
        check(&[("Cargo.toml", "not toml [")], "cargo test");
        check(&[("go.mod", "module x\n")], "go test ./...");
        check(&[("go.work", "go 1.22\n\nuse (\n\t./api // x\n\t./cmd/x/\n)\n")], "go test ./api/... ./cmd/x/...");
        check(&[("go.work", "use .\nuse ./b\n")], "go test ./... ./b/...");
        check(&[("go.work", "use '$(x)'\n")], "go list -m -f '{{.Dir}}/...' | xargs go test");
        check(&[("pom.xml", ""), ("mvnw", "")], "./mvnw -B test");
        check(&[("pom.xml", "")], "mvn -B test");
        check(&[("build.gradle.kts", ""), ("gradlew", "")], "./gradlew test");
        check(&[("settings.gradle", "")], "gradle test");
        check(&[("App.sln", ""), ("App/App.csproj", "")], "dotnet test");
        check(&[("x.fsproj", "")], "dotnet test");
        check(&[("Gemfile", ""), ("spec/a_spec.rb", "")], "bundle exec rspec");
        check(&[("Gemfile", ""), ("bin/rails", "")], "bin/rails test");
        check(&[("Gemfile", "")], "bundle exec rake test");
        check(&[("composer.json", r#"{"scripts": {"test": ["@phpunit"]}}"#), ("artisan", "")], "composer test");
        check(&[("composer.json", "{}"), ("phpunit.xml.dist", "")], "vendor/bin/phpunit");
        check(&[("composer.json", "{}"), ("tests/Pest.php", "")], "vendor/bin/pest");
        check(&[("mix.exs", "")], "mix test");
    }
}
