//! JavaScript and TypeScript: which script of `package.json` runs the tests, and which package manager runs scripts.

use serde_json::{Map, Value};

use super::detect::{LanguageTests, with_tests};
use super::project_files::ProjectFolder;
use crate::text;

const NAME: &str = "Node";

pub(super) fn node(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    if !place.has("package.json") {
        return None;
    }
    let untested = |why: &str| Some(LanguageTests::Untested { name: NAME, why: why.to_owned() });
    let Some(Value::Object(manifest)) = place.text("package.json").and_then(|text| serde_json::from_str(text).ok())
    else {
        return untested("package.json is not a JSON object");
    };
    let (manager, evidence) = package_manager(place, &manifest);
    match test_script(&manifest) {
        TestScript::Named { name, line } => {
            let line = text::first_line(line, 80);
            let because = format!("package.json has the script `{name}` ({line}), {evidence}");
            let command = match name {
                "test" if manager == "bun" => "bun run test".to_owned(),
                "test" => format!("{manager} test"),
                name => format!("{manager} run {name}"),
            };
            // A watcher that waits for keys on a terminal exits by itself when `CI` is set.
            let command = if line.contains("react-scripts test") { format!("CI=true {command}") } else { command };
            with_tests(NAME, command, because)
        }
        TestScript::Watches => {
            untested("the script `test` watches and never exits; add one that runs once, such as `test:ci`")
        }
        TestScript::Missing => match workspace_test_command(place, &manifest, manager) {
            Some((command, seen)) => with_tests(NAME, command, format!("{seen}, {evidence}")),
            None => untested("package.json has no script `test`"),
        },
    }
}

enum TestScript<'a> {
    Named { name: &'static str, line: &'a str },
    Watches,
    Missing,
}

/// Finds the script that runs the tests once.
fn test_script(manifest: &Map<String, Value>) -> TestScript<'_> {
    let scripts = manifest.get("scripts").and_then(Value::as_object);
    let line = |name: &str| scripts.and_then(|scripts| scripts.get(name)).and_then(Value::as_str);
    // The placeholder that `npm init` writes into every new package is not a test.
    let real = |line: &&str| !line.trim().is_empty() && !line.contains("no test specified");
    let ends = |line: &&str| {
        line.split_whitespace().all(|word| !matches!(word, "--watch" | "--watchAll" | "--watch=true" | "watch"))
    };
    let once = ["test", "test:ci", "test:run", "test:unit", "ci"];
    for name in once {
        if let Some(line) = line(name).filter(real).filter(ends) {
            return TestScript::Named { name, line };
        }
    }
    if line("test").as_ref().is_some_and(real) { TestScript::Watches } else { TestScript::Missing }
}

/// Returns which package manager runs scripts here, and the evidence for it.
fn package_manager(place: &ProjectFolder<'_>, manifest: &Map<String, Value>) -> (&'static str, String) {
    let wished = manifest.get("packageManager").and_then(Value::as_str).unwrap_or_default();
    for name in ["pnpm", "yarn", "bun", "npm"] {
        if wished.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('@')) {
            return (name, format!("packageManager is {name}"));
        }
    }
    let locks = [
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
        ("package-lock.json", "npm"),
        ("npm-shrinkwrap.json", "npm"),
        ("pnpm-workspace.yaml", "pnpm"),
    ];
    match locks.into_iter().find(|(lock, _)| place.has(lock)) {
        Some((lock, name)) => (name, lock.to_owned()),
        None => ("npm", "no lock file of another package manager".to_owned()),
    }
}

/// Returns the command that tests every package of a workspace, if one of them has tests.
fn workspace_test_command(
    place: &ProjectFolder<'_>,
    manifest: &Map<String, Value>,
    manager: &str,
) -> Option<(String, String)> {
    let workspaces = manifest.get("workspaces").is_some_and(|value| !value.is_null());
    let seen = place.first_present(&["turbo.json", "nx.json", "pnpm-workspace.yaml"]);
    let seen = seen.or(workspaces.then_some("`workspaces` in package.json"))?;
    place.paths_below("").filter(|path| path.ends_with("/package.json") && !path.contains("node_modules/")).find(
        |path| {
            let member: Option<Value> = place.text(path).and_then(|text| serde_json::from_str(text).ok());
            member
                .as_ref()
                .and_then(Value::as_object)
                .is_some_and(|member| matches!(test_script(member), TestScript::Named { .. }))
        },
    )?;
    let command = match (seen, manager) {
        ("turbo.json", "pnpm") => "pnpm exec turbo run test",
        ("turbo.json", _) => "npx turbo run test",
        ("nx.json", "pnpm") => "pnpm exec nx run-many -t test",
        ("nx.json", _) => "npx nx run-many -t test",
        (_, "pnpm") => "pnpm -r test",
        (_, "yarn") if place.has(".yarnrc.yml") => "yarn workspaces foreach -A run test",
        (_, "yarn") => "yarn workspaces run test",
        (_, "bun") => "bun run --filter '*' test",
        _ => "npm test --workspaces --if-present",
    };
    Some((command.to_owned(), seen.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use super::super::project_files::project;

    #[track_caller]
    fn check(manifest: &str, files: &[(&str, &str)], want: Option<&str>) {
        let mut all = vec![("package.json", manifest)];
        all.extend(files);
        let found = detect(&project(&all));
        assert_eq!(found.test_command.as_deref(), want, "{found:#?}");
    }

    #[test]
    fn scripts() {
        check(r#"{"scripts": {"test": "vitest"}}"#, &[], Some("npm test"));
        check(r#"{"scripts": {"test": "jest --watch", "test:ci": "jest"}}"#, &[], Some("npm run test:ci"));
        check(r#"{"scripts": {"test": "jest --watch"}}"#, &[], None);
        check(r#"{"scripts": {"test": "react-scripts test"}}"#, &[], Some("CI=true npm test"));
        check(r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#, &[], None);
        check(r#"{"scripts": {"test": 3}}"#, &[], None);
        check(r#"{"scripts": "test"}"#, &[], None);
        check("{\"test\"", &[], None);
        check("[]", &[], None);
    }

    #[test]
    fn programs() {
        let manifest = r#"{"scripts": {"test": "x"}}"#;
        check(manifest, &[("pnpm-lock.yaml", "")], Some("pnpm test"));
        check(manifest, &[("yarn.lock", "")], Some("yarn test"));
        check(manifest, &[("bun.lock", "")], Some("bun run test"));
        check(manifest, &[("package-lock.json", ""), ("pnpm-workspace.yaml", "")], Some("npm test"));
        let wished = r#"{"packageManager": "yarn@4.1.0", "scripts": {"test": "x"}}"#;
        check(wished, &[("package-lock.json", "")], Some("yarn test"));
        check(r#"{"packageManager": "yarnish", "scripts": {"test": "x"}}"#, &[], Some("npm test"));
    }

    #[test]
    fn workspaces() {
        let member = ("packages/a/package.json", r#"{"scripts": {"test": "x"}}"#);
        let top = r#"{"workspaces": ["packages/*"]}"#;
        check(top, &[member], Some("npm test --workspaces --if-present"));
        check(top, &[("packages/a/package.json", "{}")], None);
        check(top, &[member, ("yarn.lock", "")], Some("yarn workspaces run test"));
        check(top, &[member, ("yarn.lock", ""), (".yarnrc.yml", "")], Some("yarn workspaces foreach -A run test"));
        check("{}", &[member, ("pnpm-workspace.yaml", "")], Some("pnpm -r test"));
        check("{}", &[member, ("turbo.json", "{}")], Some("npx turbo run test"));
        check(top, &[member, ("bun.lock", "")], Some("bun run --filter '*' test"));
        // A root script is how the project itself tests everything.
        check(r#"{"workspaces": ["packages/*"], "scripts": {"test": "turbo test"}}"#, &[member], Some("npm test"));
    }
}
