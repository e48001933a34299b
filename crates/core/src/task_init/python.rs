//! Python: which command runs the tests, and which program provides the packages they need.

use super::detect::{LanguageTests, with_tests};
use super::project_files::ProjectFolder;

pub(super) fn python(place: &ProjectFolder<'_>) -> Option<LanguageTests> {
    let manifests = [
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "requirements.txt",
        "Pipfile",
        "tox.ini",
        "pytest.ini",
        "noxfile.py",
        "manage.py",
    ];
    let manifest = place.first_present(&manifests)?;
    let (prefix, brought_by) = package_runner(place);
    let because = |seen: &str| match brought_by {
        Some(lock) if lock != seen => format!("{seen}, {lock}"),
        _ => seen.to_owned(),
    };
    let run = |command: &str, seen: &str| with_tests("Python", format!("{prefix}{command}"), because(seen));
    let python = if prefix.is_empty() { "python3" } else { "python" };
    if let Some(seen) = pytest_evidence(place) {
        let command = if prefix.is_empty() { "python3 -m pytest" } else { "pytest" };
        return run(command, &seen);
    }
    // These two install packages themselves.
    if place.has("tox.ini") {
        return with_tests("Python", "tox", "tox.ini");
    }
    if place.has("noxfile.py") {
        return with_tests("Python", "nox", "noxfile.py");
    }
    if place.has("manage.py") {
        return run(&format!("{python} manage.py test"), "manage.py");
    }
    match tests_folder(place) {
        Some(folder) => run(&format!("{python} -m unittest discover -s {folder}"), &format!("{manifest}, {folder}/")),
        None => {
            Some(LanguageTests::Untested { name: "Python", why: format!("{manifest} exists, but there are no tests") })
        }
    }
}

/// Returns the evidence that the tests use pytest.
fn pytest_evidence(place: &ProjectFolder<'_>) -> Option<String> {
    if let Some(seen) = place.first_present(&["pytest.ini", "conftest.py", "tests/conftest.py", "test/conftest.py"]) {
        return Some(seen.to_owned());
    }
    let contains =
        |name: &'static str, mark: &str| place.text(name).is_some_and(|text| text.contains(mark)).then_some(name);
    let named = contains("pyproject.toml", "[tool.pytest")
        .or_else(|| contains("setup.cfg", "[tool:pytest]"))
        .or_else(|| contains("tox.ini", "[pytest]"))
        .map(|name| format!("{name} configures pytest"));
    let needed = || {
        ["pyproject.toml", "requirements-dev.txt", "requirements.txt", "Pipfile", "setup.cfg", "setup.py"]
            .into_iter()
            .find_map(|name| contains(name, "pytest"))
            .map(|name| format!("{name} names pytest"))
    };
    // Every `tox.ini` mentions pytest, so with tox the word alone is no evidence.
    named.or_else(needed)
}

/// Returns which program provides the packages, and the evidence for it.
fn package_runner(place: &ProjectFolder<'_>) -> (&'static str, Option<&'static str>) {
    let locks = [
        ("uv.lock", "uv run "),
        ("poetry.lock", "poetry run "),
        ("pdm.lock", "pdm run "),
        ("Pipfile.lock", "pipenv run "),
    ];
    if let Some((lock, prefix)) = locks.into_iter().find(|(lock, _)| place.has(lock)) {
        return (prefix, Some(lock));
    }
    let contains = |mark: &str| place.text("pyproject.toml").is_some_and(|text| text.contains(mark));
    match () {
        () if contains("[tool.uv") => ("uv run ", Some("pyproject.toml")),
        () if contains("[tool.poetry]") => ("poetry run ", Some("pyproject.toml")),
        () if place.has("Pipfile") => ("pipenv run ", Some("Pipfile")),
        () => ("", None),
    }
}

fn tests_folder(place: &ProjectFolder<'_>) -> Option<&'static str> {
    ["tests", "test"].into_iter().find(|folder| {
        place.paths_below(&format!("{folder}/")).any(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            name.starts_with("test") && name.rsplit_once('.').is_some_and(|(_, end)| end == "py")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use super::super::project_files::project;

    #[track_caller]
    fn check(files: &[(&str, &str)], want: Option<&str>) {
        let found = detect(&project(files));
        assert_eq!(found.test_command.as_deref(), want, "{found:#?}");
    }

    #[test]
    fn commands() {
        check(&[("pyproject.toml", "[tool.pytest.ini_options]\n")], Some("python3 -m pytest"));
        check(&[("pyproject.toml", ""), ("conftest.py", ""), ("uv.lock", "")], Some("uv run pytest"));
        check(&[("pyproject.toml", "[tool.poetry]\n[x]\npytest = \"^8\"\n")], Some("poetry run pytest"));
        check(&[("pyproject.toml", "pytest"), ("pdm.lock", "")], Some("pdm run pytest"));
        check(&[("Pipfile", "pytest = \"*\"\n")], Some("pipenv run pytest"));
        check(&[("requirements.txt", "pytest==8\n")], Some("python3 -m pytest"));
        check(&[("setup.cfg", "[tool:pytest]\n")], Some("python3 -m pytest"));
        check(&[("tox.ini", "[tox]\n[testenv]\ncommands = pytest\n")], Some("tox"));
        check(&[("tox.ini", "[pytest]\naddopts = -q\n")], Some("python3 -m pytest"));
        check(&[("noxfile.py", ""), ("setup.py", "")], Some("nox"));
        check(&[("manage.py", ""), ("requirements.txt", "django\n")], Some("python3 manage.py test"));
        check(&[("manage.py", ""), ("uv.lock", "")], Some("uv run python manage.py test"));
        check(&[("setup.py", ""), ("tests/test_a.py", "")], Some("python3 -m unittest discover -s tests"));
        check(&[("setup.py", ""), ("tests/data.py", "")], None);
        check(&[("script.py", "")], None);
    }
}
