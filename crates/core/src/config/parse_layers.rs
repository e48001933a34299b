//! Parses TOML, `.agent-loop/config.json` and environment variables into layers.

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::config_keys::{BudgetValues, ConfigValues, KEYS, KEYS_WITHOUT_EFFECT, ModelValues, SandboxValues, dollars};
use super::error::Error;
use super::layer::ConfigLayer;
use super::origin::ConfigOrigin;
use super::value_types::{BackendKind, ByteSize, CpuCount};
use crate::env_vars::{self, Env, EnvSource};
use crate::source_span::Span;
use crate::text;

/// Parses a `config.toml` or `ralph.toml`. The origin has the path for error messages.
pub fn parse_toml(text: &str, origin: ConfigOrigin) -> Result<ConfigLayer, Error> {
    let file = origin.location();
    let table = DeTable::parse(text).map_err(|error| syntax(&error, text, file))?;
    find_unknown(table.get_ref(), "", text, file)?;
    let values: ConfigValues = toml::from_str(text).map_err(|error| syntax(&error, text, file))?;
    Ok(ConfigLayer { origin, values })
}

fn syntax(error: &toml::de::Error, text: &str, file: &str) -> Error {
    let start = error.span().map_or(0, |span| span.start);
    let (line, column) = Span::new(start, start).line_column(text);
    Error::Syntax { file: file.to_owned(), line, column, message: one_line(error.message()) }
}

/// Flattens a parser message, which may quote the file and span lines.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    text::strip_control(text::head(&words.join(" "), 400))
}

/// Reports unknown keys before deserialising: serde's own message has no "did you mean".
fn find_unknown(table: &DeTable<'_>, prefix: &str, text: &str, file: &str) -> Result<(), Error> {
    for (key, value) in table {
        let path = format!("{prefix}{}", key.get_ref());
        if KEYS.contains(&path.as_str()) {
            continue;
        }
        let section = format!("{path}.");
        if KEYS.iter().any(|known| known.starts_with(&section)) {
            if let DeValue::Table(inner) = value.get_ref() {
                find_unknown(inner, &section, text, file)?;
            }
            continue;
        }
        let (line, column) = Span::new(key.span().start, key.span().end).line_column(text);
        if let Some((key, why)) = KEYS_WITHOUT_EFFECT.iter().find(|(name, _)| *name == path) {
            return Err(Error::NoEffect { file: file.to_owned(), line, column, key, why });
        }
        return Err(Error::UnknownKey {
            file: file.to_owned(),
            line,
            column,
            key: text::strip_control(text::first_line(&path, 80)),
            meant: suggest_key(key.get_ref(), prefix),
        });
    }
    Ok(())
}

/// Suggests a key of the same section first, then a key of that name in another section.
fn suggest_key(key: &str, prefix: &str) -> Option<String> {
    let snake = key.replace('-', "_");
    let neighbours = KEYS.iter().filter_map(|known| known.strip_prefix(prefix)?.split('.').next());
    if let Some(near) = text::did_you_mean(&snake, neighbours) {
        return Some(format!("{prefix}{near}"));
    }
    let last = |known: &&&str| known.rsplit('.').next() == Some(snake.as_str());
    KEYS.iter().find(last).map(|known| (*known).to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLoop {
    #[serde(rename = "type")]
    kind: Option<AgentLoopType>,
    base_image: Option<String>,
    cpu: Option<CpuCount>,
    memory_gb: Option<f64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum AgentLoopType {
    Docker,
    Tart,
}

/// Parses `.agent-loop/config.json` as a layer of the project.
pub fn parse_agent_loop(text: &str, path: &str) -> Result<ConfigLayer, Error> {
    let origin = ConfigOrigin::Project(path.to_owned());
    let syntax = |error: &serde_json::Error| Error::Syntax {
        file: path.to_owned(),
        line: error.line().max(1),
        column: error.column().max(1),
        message: one_line(&without_position(error)),
    };
    let read: AgentLoop = serde_json::from_str(text).map_err(|error| {
        let known = ["type", "base_image", "cpu", "memory_gb"];
        let object: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(text);
        let unknown = object.ok().and_then(|map| map.keys().find(|key| !known.contains(&key.as_str())).cloned());
        match unknown {
            Some(key) => Error::UnknownKey {
                file: path.to_owned(),
                line: error.line().max(1),
                column: error.column().max(1),
                meant: text::did_you_mean(&key, known).map(str::to_owned),
                key: text::strip_control(text::first_line(&key, 80)),
            },
            None => syntax(&error),
        }
    })?;
    let bad = |key: &str, problem: &str, hint: Option<&str>| Error::Value {
        origin: origin.clone(),
        key: key.to_owned(),
        problem: problem.to_owned(),
        hint: hint.map(str::to_owned),
    };
    let backend = read.kind.map(|kind| match kind {
        AgentLoopType::Docker => BackendKind::Docker,
        AgentLoopType::Tart => BackendKind::Tart,
    });
    if backend == Some(BackendKind::Tart) && read.base_image.is_none() {
        let hint = "for example \"base_image\": \"ghcr.io/cirruslabs/macos-tahoe-base:latest\"";
        return Err(bad("base_image", "is missing, and tart has no image of its own", Some(hint)));
    }
    let memory = match read.memory_gb {
        Some(gb) => Some(ByteSize::gib(gb).ok_or_else(|| bad("memory_gb", "is not an amount of memory", None))?),
        None => None,
    };
    let mut values = ConfigValues {
        sandbox: SandboxValues { backend, image: read.base_image, ..SandboxValues::default() },
        ..ConfigValues::default()
    };
    values.sandbox.resources.memory = memory;
    values.sandbox.resources.cpus = read.cpu;
    Ok(ConfigLayer { origin, values })
}

/// Removes the position at the end of a serde_json message, because ralph prints it itself.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

/// Parses the variables that are options, one layer each so that every value has its variable as origin.
///
/// Variables from a `.env` file belong to the project layer, because the file is part of the checkout.
pub fn env_layers(env: &Env) -> Result<Vec<ConfigLayer>, Error> {
    let mut layers = Vec::new();
    // The older name first: among equals the later layer takes precedence.
    for name in [
        env_vars::RALPH_DEFAULT_PROVIDER,
        env_vars::RALPH_BACKEND,
        env_vars::RALPH_DEFAULT_MODEL_PROFILE,
        env_vars::RALPH_FALLBACK_MODEL_PROFILE,
        env_vars::RALPH_DOCTOR_MODEL_PROFILE,
        env_vars::RALPH_MAX_COST,
        env_vars::RALPH_MAX_ITERATIONS,
    ] {
        let Some((value, source)) = env.lookup(name) else { continue };
        let origin = match source {
            EnvSource::Process => ConfigOrigin::Env(name.to_owned()),
            EnvSource::DotEnv => ConfigOrigin::Project(".env".to_owned()),
        };
        let values = read_variable(name, value).map_err(|(problem, hint)| Error::Value {
            origin: origin.clone(),
            key: name.to_owned(),
            problem,
            hint,
        })?;
        layers.push(ConfigLayer { origin, values });
    }
    Ok(layers)
}

fn read_variable(name: &str, value: &str) -> Result<ConfigValues, (String, Option<String>)> {
    let mut values = ConfigValues::default();
    match name {
        env_vars::RALPH_DEFAULT_PROVIDER | env_vars::RALPH_BACKEND => {
            let backend = value
                .parse()
                .map_err(|error: super::UnknownBackend| (format!("is not a backend: {error}"), error.hint()))?;
            values.sandbox.backend = Some(backend);
        }
        env_vars::RALPH_MAX_COST => {
            let cost = value.parse().ok().and_then(dollars);
            let hint = || ("is not an amount of dollars".to_owned(), Some(format!("{name}=2.50")));
            values.budget = BudgetValues { max_cost_usd: Some(cost.ok_or_else(hint)?), ..BudgetValues::default() };
        }
        env_vars::RALPH_MAX_ITERATIONS => {
            let hint = |_| ("is not a number of iterations".to_owned(), Some(format!("{name}=30")));
            values.budget.max_iterations = Some(value.parse().map_err(hint)?);
        }
        _ => {
            let profile = Some(value.to_owned());
            values.model = match name {
                env_vars::RALPH_FALLBACK_MODEL_PROFILE => ModelValues { fallback: profile, ..ModelValues::default() },
                env_vars::RALPH_DOCTOR_MODEL_PROFILE => ModelValues { doctor: profile, ..ModelValues::default() },
                _ => ModelValues { default: profile, ..ModelValues::default() },
            };
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{NetworkValues, ResourceValues, rows, schema};
    use crate::policy::PolicyMode;

    fn user() -> ConfigOrigin {
        ConfigOrigin::User("config.toml".into())
    }

    #[test]
    fn the_documented_example_is_parsed() {
        let text = r#"
            [sandbox]
            backend = "embedded"
            image = "x:1"
            [sandbox.network]
            policy = "allowlist"
            allowed = ["github.com", "go"]
            [sandbox.resources]
            memory = "8g"
            cpus = "4"
            disk = "20g"
            pids = 4096
            timeout_minutes = 60
            [budget]
            max_cost_usd = 2.5
        "#;
        let rule = |text: &str| text.parse().expect("a rule");
        let want = ConfigValues {
            sandbox: SandboxValues {
                backend: Some(BackendKind::Embedded),
                image: Some("x:1".into()),
                toolchains: None,
                network: NetworkValues {
                    policy: Some(PolicyMode::Allowlist),
                    allowed: Some([vec![rule("github.com")], crate::policy::expand("go").expect("a preset")].concat()),
                    denied: None,
                },
                resources: ResourceValues {
                    memory: Some("8g".parse().expect("a size")),
                    cpus: Some("4".parse().expect("processors")),
                    disk: Some("20g".parse().expect("a size")),
                    pids: Some(4096),
                    timeout_minutes: Some(60),
                },
            },
            budget: BudgetValues { max_cost_usd: dollars(2.5), ..BudgetValues::default() },
            ..ConfigValues::default()
        };
        assert_eq!(parse_toml(text, user()), Ok(ConfigLayer { origin: user(), values: want }));
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        for text in ["a = ".to_owned() + &"[".repeat(100_000), "a.".repeat(100_000) + "b = 1", "{a=".repeat(50_000)] {
            assert!(parse_toml(&text, user()).is_err());
        }
        assert!(parse_agent_loop(&"[".repeat(100_000), "c.json").is_err());
    }

    #[test]
    fn a_checked_out_env_file_may_only_narrow() {
        let env = Env::default().with_dotenv([("RALPH_DEFAULT_PROVIDER".to_owned(), "local".to_owned())]);
        let error =
            crate::config::resolve(&env_layers(&env).expect("a backend"), BackendKind::Embedded).expect_err("wider");
        assert_eq!(
            error.to_string(),
            "project .env asks for `sandbox.backend = local`, but built-in allows nothing weaker than embedded"
        );
    }

    #[track_caller]
    fn refused(text: &str, want: &str) {
        let error = parse_toml(text, user()).expect_err("refused");
        assert_eq!(format!("{error} | {}", error.hint().unwrap_or_default()), want);
    }

    #[test]
    fn errors_name_the_position() {
        refused(
            "[sandbox]\n  bakend = 'docker'\n",
            "config.toml:2:3: unknown key `sandbox.bakend` | did you mean `sandbox.backend`?",
        );
        refused(
            "[sandbox.network]\nalow-ed = []\n",
            "config.toml:2:1: unknown key `sandbox.network.alow-ed` | did you mean `sandbox.network.allowed`?",
        );
        refused("[budgets]\nx = 1", "config.toml:1:2: unknown key `budgets` | did you mean `budget`?");
        refused("backend = 'local'", "config.toml:1:1: unknown key `backend` | did you mean `sandbox.backend`?");
        refused(
            "[budget]\nmax-cost-usd = 1",
            "config.toml:2:1: unknown key `budget.max-cost-usd` | did you mean `budget.max_cost_usd`?",
        );
        refused("zzz = 1", "config.toml:1:1: unknown key `zzz` | `ralph config schema` lists every key");
        refused(
            "[sandbox]\nbackend = 'dokcer'",
            "config.toml:2:11: unknown variant `dokcer`, expected one of `embedded`, `docker`, `microvm`, `tart`, `daytona`, `local` | `ralph config schema` lists every key and what it takes",
        );
        refused(
            "[sandbox.network]\nallowed = ['*']",
            "config.toml:2:11: rule `*` would match every host (name the hosts, or request the policy `open` explicitly) | `ralph config schema` lists every key and what it takes",
        );
        refused(
            "[budget]\nmax_cost_usd = -1",
            "config.toml:2:16: dollars are a number, zero or more | `ralph config schema` lists every key and what it takes",
        );
        refused(
            "[budget]\nmax_cost_usd = nan",
            "config.toml:2:16: dollars are a number, zero or more | `ralph config schema` lists every key and what it takes",
        );
        refused(
            "[sandbox.resources]\nmemory = '8'",
            "config.toml:2:10: a size is a number with a unit, like \"512m\" or \"8g\" | `ralph config schema` lists every key and what it takes",
        );
        refused(
            "sandbox = 3",
            "config.toml:1:11: invalid type: integer `3`, expected struct SandboxValues | `ralph config schema` lists every key and what it takes",
        );
    }

    #[test]
    fn toml_syntax_errors_name_the_line() {
        let error = parse_toml("a = 1\nb = [", user()).expect_err("refused");
        assert!(matches!(error, Error::Syntax { line: 2, .. }), "{error}");
    }

    /// Backend, image, processors, memory.
    type AgentLoopFields<'a> = (Option<BackendKind>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

    #[track_caller]
    fn agent_loop(text: &str, want: Result<AgentLoopFields<'_>, &str>) {
        let got = parse_agent_loop(text, "c.json").map(|layer| {
            let sandbox = layer.values.sandbox;
            let resources = sandbox.resources;
            let memory = resources.memory.map(|size| size.to_string());
            (sandbox.backend, sandbox.image, resources.cpus.map(|cpus| cpus.to_string()), memory)
        });
        let got = got.map_err(|error| format!("{error} | {}", error.hint().unwrap_or_default()));
        let owned = |word: Option<&str>| word.map(str::to_owned);
        assert_eq!(got, want.map(|(a, b, c, d)| (a, owned(b), owned(c), owned(d))).map_err(str::to_owned));
    }

    #[test]
    fn agent_loop_files() {
        agent_loop("{}", Ok((None, None, None, None)));
        agent_loop(r#"{"type":"docker"}"#, Ok((Some(BackendKind::Docker), None, None, None)));
        agent_loop(
            r#"{"type":"tart","base_image":"i","cpu":4,"memory_gb":8}"#,
            Ok((Some(BackendKind::Tart), Some("i"), Some("4"), Some("8g"))),
        );
        agent_loop(
            r#"{"type":"tart"}"#,
            Err(
                "project c.json: `base_image` is missing, and tart has no image of its own | for example \"base_image\": \"ghcr.io/cirruslabs/macos-tahoe-base:latest\"",
            ),
        );
        agent_loop("{\n\"tipe\":\"tart\"}", Err("c.json:2:6: unknown key `tipe` | did you mean `type`?"));
        agent_loop(
            r#"{"type":"local"}"#,
            Err("c.json:1:15: unknown variant `local`, expected `docker` or `tart` | correct it in c.json"),
        );
        agent_loop("{", Err("c.json:1:1: EOF while parsing an object | correct it in c.json"));
        agent_loop(r#"{"memory_gb":-1}"#, Err("project c.json: `memory_gb` is not an amount of memory | "));
    }

    #[test]
    fn variables_become_layers() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let env = Env::new([
            pair("RALPH_BACKEND", "docker"),
            pair("RALPH_DEFAULT_PROVIDER", "tart"),
            pair("RALPH_MAX_COST", "2.5"),
            pair("RALPH_MAX_ITERATIONS", "7"),
            pair("RALPH_DOCTOR_MODEL_PROFILE", "d"),
        ])
        .with_dotenv([pair("RALPH_FALLBACK_MODEL_PROFILE", "f")]);
        let config =
            crate::config::resolve(&env_layers(&env).expect("good values"), BackendKind::Embedded).expect("a config");
        let changed: Vec<String> = rows(&config)
            .into_iter()
            .filter(|row| row.origin != ConfigOrigin::BuiltIn)
            .map(|row| format!("{} = {} ({})", row.key, row.value, row.origin))
            .collect();
        assert_eq!(
            changed,
            [
                "sandbox.backend = docker (environment RALPH_BACKEND)",
                "budget.max_cost_usd = 2.5 (environment RALPH_MAX_COST)",
                "budget.max_iterations = 7 (environment RALPH_MAX_ITERATIONS)",
                "model.fallback = f (project .env)",
                "model.doctor = d (environment RALPH_DOCTOR_MODEL_PROFILE)",
            ]
        );
        for (name, value, want) in [
            (
                "RALPH_BACKEND",
                "dokcer",
                "the environment variable `RALPH_BACKEND` is not a backend: there is no sandbox backend `dokcer` | did you mean `docker`?",
            ),
            (
                "RALPH_MAX_COST",
                "much",
                "the environment variable `RALPH_MAX_COST` is not an amount of dollars | RALPH_MAX_COST=2.50",
            ),
            (
                "RALPH_MAX_ITERATIONS",
                "-1",
                "the environment variable `RALPH_MAX_ITERATIONS` is not a number of iterations | RALPH_MAX_ITERATIONS=30",
            ),
        ] {
            let error = env_layers(&Env::new([pair(name, value)])).expect_err("refused");
            assert_eq!(format!("{error} | {}", error.hint().unwrap_or_default()), want);
        }
    }

    /// The list of keys, the rows and the schema are three views of one file.
    #[test]
    fn keys_rows_and_schema_agree() {
        let config = crate::config::resolve(&[], BackendKind::Embedded).expect("defaults");
        let shown: Vec<&str> = rows(&config).iter().map(|row| row.key).collect();
        assert_eq!(shown, KEYS);
        let schema = schema();
        let mut found = Vec::new();
        leaves(&schema, &schema, "", &mut found);
        let mut keys = KEYS.map(str::to_owned).to_vec();
        found.sort();
        keys.sort();
        assert_eq!(found, keys);
    }

    fn leaves(root: &serde_json::Value, node: &serde_json::Value, prefix: &str, found: &mut Vec<String>) {
        let target = node.get("$ref").and_then(|path| root.pointer(path.as_str()?.trim_start_matches('#')));
        match target.unwrap_or(node).get("properties").and_then(serde_json::Value::as_object) {
            Some(properties) => {
                for (name, child) in properties {
                    let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    leaves(root, child, &path, found);
                }
            }
            None => found.push(prefix.to_owned()),
        }
    }

    proptest! {
        #[test]
        fn never_panics(
            text in "\\PC{0,80}|((\\[?(sandbox|budget|network|resources|git)[.\\]]?)|(backend|allowed|memory|cpus|max_cost_usd|name)|[=\n'\"\\[\\]{},. ]|docker|8g|-?[0-9]{1,4}){0,30}",
            json in "\\PC{0,40}|\\{(\"(type|cpu|memory_gb|x)\":(1e9|-3|\"tart\"|null),?){0,3}\\}",
        ) {
            let layers: Vec<ConfigLayer> = [
                parse_toml(&text, user()).ok(),
                parse_toml(&text, ConfigOrigin::Project("p".into())).ok(),
                parse_agent_loop(&json, "c.json").ok(),
            ]
            .into_iter()
            .flatten()
            .collect();
            let _ = crate::config::resolve(&layers, BackendKind::Embedded).map(|config| rows(&config));
        }
    }
}
