//! Merges the layers into one config, or reports which option exceeds what the user allows and how to allow it.

use super::config_keys::ConfigValues;
use super::error::{ConfigWidening, Error};
use super::layer::ConfigLayer;
use super::layer_precedence::{CappedOption, ConfigStack};
use super::network;
use super::origin::{ConfigOrigin, ResolvedValue};
use super::resolved::{
    AgentConfig, BudgetConfig, CheckConfig, Config, EgressConfig, GitConfig, LintConfig, ModelConfig, ResourceConfig,
    RunConfig, SandboxConfig,
};
use super::value_types::{BackendKind, ByteSize, ToolchainSelection};
use crate::gutter::DEFAULT_LADDER;
use crate::money::MicroUsd;

const DEFAULT_MAX_COST: MicroUsd = MicroUsd(10_000_000);

/// Merges layers given in any order. Among layers of one kind the later takes precedence.
///
/// The built-in backend depends on the host, so the caller names it.
pub fn resolve(layers: &[ConfigLayer], built_in_backend: BackendKind) -> Result<Config, Error> {
    for layer in layers {
        check_strings(layer)?;
    }
    let stack = ConfigStack::new(layers);
    Ok(Config {
        sandbox: SandboxConfig {
            backend: backend(&stack, built_in_backend)?,
            image: stack.pick_option(|values| values.sandbox.image.clone()),
            toolchains: toolchains(&stack)?,
            network: network::resolve(&stack)?,
            resources: resources(&stack)?,
        },
        budget: budget(&stack)?,
        model: ModelConfig {
            default: stack.pick("default-cheap".to_owned(), |values| values.model.default.clone()),
            fallback: stack.pick_option(|values| values.model.fallback.clone()),
            doctor: stack.pick_option(|values| values.model.doctor.clone()),
        },
        git: GitConfig {
            name: stack.pick("ralph".to_owned(), |values| values.git.name.clone()),
            email: stack.pick("ralph@localhost".to_owned(), |values| values.git.email.clone()),
        },
        lint: LintConfig {
            min_checkboxes: or_built_in(
                stack.capped(&CappedOption {
                    wider: |ask, limit| ask < limit,
                    bound: "at least",
                    ..capped_number("lint.min_checkboxes", |values| values.lint.min_checkboxes, None)
                })?,
                2,
            ),
        },
        check: CheckConfig {
            timeout_s: or_built_in(
                stack.capped(&capped_number("check.timeout_s", |values| values.check.timeout_s, None))?,
                900,
            ),
        },
        agent: agent(&stack)?,
        run: RunConfig { ladder: stack.pick(DEFAULT_LADDER.to_vec(), |values| values.run.ladder.clone()) },
        egress: EgressConfig {
            alarm_after: stack.capped_or(
                &capped_number("egress.alarm_after", |values| values.egress.alarm_after, None),
                // Installing packages sends a few megabytes, and hardly any project has more source text than this.
                ByteSize::mib(64),
            )?,
        },
    })
}

fn capped_number<T: PartialOrd + ToString>(
    key: &'static str,
    get: fn(&ConfigValues) -> Option<T>,
    flag: Option<&'static str>,
) -> CappedOption<T> {
    CappedOption { key, get, wider: |ask, limit| ask > limit, show: ToString::to_string, bound: "at most", flag }
}

fn or_built_in<T>(resolved: Option<ResolvedValue<T>>, built_in: T) -> ResolvedValue<T> {
    resolved.unwrap_or_else(|| ResolvedValue::built_in(built_in))
}

fn optional<T>(resolved: Option<ResolvedValue<T>>) -> ResolvedValue<Option<T>> {
    match resolved {
        Some(ResolvedValue { value, origin }) => ResolvedValue { value: Some(value), origin },
        None => ResolvedValue::built_in(None),
    }
}

fn agent(stack: &ConfigStack<'_>) -> Result<AgentConfig, Error> {
    let seconds = |key, get, built_in| {
        Ok::<_, Error>(or_built_in(stack.capped(&capped_number::<u32>(key, get, None))?, built_in))
    };
    // Only the user decides which program gets a phantom, never a checkout.
    let mut own: Vec<&ConfigLayer> = stack.lowest_first().filter(|layer| layer.origin.is_trusted()).collect();
    own.reverse();
    let command = own.iter().find_map(|layer| Some((layer.values.agent.command.clone()?, layer.origin.clone())));
    Ok(AgentConfig {
        command: or_built_in(command.map(|(value, origin)| ResolvedValue { value, origin }), Vec::new()),
        session_s: seconds("agent.session_s", |values| values.agent.session_s, 3600)?,
        idle_s: seconds("agent.idle_s", |values| values.agent.idle_s, 900)?,
        grace_s: seconds("agent.grace_s", |values| values.agent.grace_s, 20)?,
    })
}

fn budget(stack: &ConfigStack<'_>) -> Result<BudgetConfig, Error> {
    let cost = CappedOption {
        show: |cost: &MicroUsd| cost.as_usd().to_string(),
        key: "budget.max_cost_usd",
        get: |values| values.budget.max_cost_usd,
        wider: |ask, limit| ask > limit,
        bound: "at most",
        flag: Some("--max-cost"),
    };
    let count = |key, get, flag, built_in| stack.capped_or(&capped_number::<u32>(key, get, Some(flag)), built_in);
    Ok(BudgetConfig {
        max_cost: stack.capped_or(&cost, DEFAULT_MAX_COST)?,
        max_iterations: count("budget.max_iterations", |values| values.budget.max_iterations, "--max-iterations", 30)?,
        max_wall_time_minutes: count(
            "budget.max_wall_time_minutes",
            |values| values.budget.max_wall_time_minutes,
            "--max-wall-time-minutes",
            120,
        )?,
        max_tokens: optional(stack.capped(&capped_number(
            "budget.max_tokens",
            |values| values.budget.max_tokens,
            Some("--max-tokens"),
        ))?),
        max_consecutive_gutter: or_built_in(
            stack.capped(&capped_number(
                "budget.max_consecutive_gutter",
                |values| values.budget.max_consecutive_gutter,
                None,
            ))?,
            3,
        ),
    })
}

fn resources(stack: &ConfigStack<'_>) -> Result<ResourceConfig, Error> {
    Ok(ResourceConfig {
        memory: optional(stack.capped(&capped_number(
            "sandbox.resources.memory",
            |values| values.sandbox.resources.memory,
            None,
        ))?),
        cpus: optional(stack.capped(&capped_number(
            "sandbox.resources.cpus",
            |values| values.sandbox.resources.cpus,
            None,
        ))?),
        disk: optional(stack.capped(&capped_number(
            "sandbox.resources.disk",
            |values| values.sandbox.resources.disk,
            None,
        ))?),
        pids: or_built_in(
            stack.capped(&capped_number("sandbox.resources.pids", |values| values.sandbox.resources.pids, None))?,
            4096,
        ),
        timeout_minutes: or_built_in(
            stack.capped(&capped_number(
                "sandbox.resources.timeout_minutes",
                |values| values.sandbox.resources.timeout_minutes,
                None,
            ))?,
            60,
        ),
    })
}

/// Resolves the backend. A checkout may choose among backends at least as strong as the user's. Only the user may
/// choose to run without isolation, also when no layer of the user names a backend.
fn backend(stack: &ConfigStack<'_>, built_in: BackendKind) -> Result<ResolvedValue<BackendKind>, Error> {
    let get = |values: &ConfigValues| values.sandbox.backend;
    let mut user = None;
    for layer in stack.lowest_first() {
        let Some(asked) = get(&layer.values) else { continue };
        if layer.origin.is_trusted() {
            user = Some(ResolvedValue { value: asked, origin: layer.origin.clone() });
            continue;
        }
        let limit = user.clone().unwrap_or_else(|| ResolvedValue::built_in(built_in));
        let weaker = match limit.origin {
            ConfigOrigin::BuiltIn => asked == BackendKind::Local && limit.value != BackendKind::Local,
            _ => limit.value.isolation().is_stronger_than(asked.isolation()),
        };
        if weaker && !stack.is_settled_above(&layer.origin, get) {
            return Err(ConfigWidening {
                key: "sandbox.backend",
                asked: asked.to_string(),
                by: layer.origin.clone(),
                limit: format!("nothing weaker than {}", limit.value),
                limit_by: limit.origin,
                flag: Some(format!("--backend {asked}")),
            }
            .into());
        }
    }
    Ok(stack.pick(built_in, get))
}

fn toolchains(stack: &ConfigStack<'_>) -> Result<ResolvedValue<ToolchainSelection>, Error> {
    let resolved = stack.capped(&CappedOption {
        key: "sandbox.toolchains",
        get: |values| values.sandbox.toolchains.clone(),
        wider: ToolchainSelection::is_wider_than,
        show: ToString::to_string,
        bound: "at most",
        flag: None,
    })?;
    Ok(or_built_in(resolved, ToolchainSelection::Auto))
}

/// Checks the strings that end up in an argument list or a commit, so that they cannot act as an option or a header.
fn check_strings(layer: &ConfigLayer) -> Result<(), Error> {
    let values = &layer.values;
    let plain = |word: &str| !word.is_empty() && !word.chars().any(char::is_control);
    let identity = |word: &str| plain(word) && !word.contains(['<', '>']);
    let reference = |word: &str| plain(word) && !word.starts_with('-') && !word.contains(char::is_whitespace);
    for (key, word) in [
        ("sandbox.image", &values.sandbox.image),
        ("model.default", &values.model.default),
        ("model.fallback", &values.model.fallback),
        ("model.doctor", &values.model.doctor),
        ("git.name", &values.git.name),
        ("git.email", &values.git.email),
    ] {
        let Some(word) = word else { continue };
        let fine = if key.starts_with("git.") { identity(word) } else { reference(word) };
        if !fine {
            return Err(Error::Value {
                origin: layer.origin.clone(),
                key: key.to_owned(),
                problem: "is empty or has characters that are not allowed".to_owned(),
                hint: None,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{ConfigValues, TaskOptions, parse_toml, rows};
    use crate::gutter::LadderRung;

    fn user(text: &str) -> ConfigLayer {
        parse_toml(text, ConfigOrigin::User("u".into())).expect("a user's file")
    }

    fn project(text: &str) -> ConfigLayer {
        parse_toml(text, ConfigOrigin::Project("p".into())).expect("a project's file")
    }

    fn flags(text: &str) -> ConfigLayer {
        ConfigLayer::flags(user(text).values)
    }

    fn env(text: &str) -> ConfigLayer {
        ConfigLayer { origin: ConfigOrigin::Env("E".into()), ..user(text) }
    }

    fn task(ask: TaskOptions) -> ConfigLayer {
        ask.layer("t.md").expect("a sound ask")
    }

    #[track_caller]
    fn check(layers: &[ConfigLayer], key: &str, want: &str) {
        let got = match resolve(layers, BackendKind::Embedded) {
            Ok(config) => {
                let row = rows(&config).into_iter().find(|row| row.key == key).expect("a key");
                format!("{} ({})", row.value, row.origin)
            }
            Err(error) => format!("{error} | {}", error.hint().unwrap_or_default()),
        };
        assert_eq!(got, want);
    }

    #[test]
    fn built_in_values() {
        let config = resolve(&[], BackendKind::Embedded).expect("defaults");
        let shown: Vec<String> = rows(&config).iter().map(|row| format!("{} {}", row.key, row.value)).collect();
        assert_eq!(
            shown,
            [
                "sandbox.backend embedded",
                "sandbox.image -",
                "sandbox.toolchains auto",
                "sandbox.network.policy deny",
                "sandbox.network.allowed -",
                "sandbox.network.denied -",
                "sandbox.resources.memory -",
                "sandbox.resources.cpus -",
                "sandbox.resources.disk -",
                "sandbox.resources.pids 4096",
                "sandbox.resources.timeout_minutes 60",
                "budget.max_cost_usd 10",
                "budget.max_iterations 30",
                "budget.max_wall_time_minutes 120",
                "budget.max_tokens -",
                "budget.max_consecutive_gutter 3",
                "model.default default-cheap",
                "model.fallback -",
                "model.doctor -",
                "git.name ralph",
                "git.email ralph@localhost",
                "lint.min_checkboxes 2",
                "check.timeout_s 900",
                "agent.command -",
                "agent.session_s 3600",
                "agent.idle_s 900",
                "agent.grace_s 20",
                "run.ladder rotate, fallback, diagnose, pause",
                "egress.alarm_after 64m",
            ]
        );
    }

    #[test]
    fn the_highest_layer_takes_precedence() {
        let name = |name: &str| format!("[git]\nname = '{name}'");
        let layers = [flags(&name("f")), env(&name("e")), project(&name("p")), user(&name("u"))];
        check(&layers, "git.name", "f (flag)");
        check(&layers[1..], "git.name", "e (environment E)");
        check(&layers[2..], "git.name", "p (project p)");
        check(&layers[3..], "git.name", "u (user u)");
        let ladder = |rung: &str| format!("[run]\nladder = ['{rung}', 'give-up']");
        let ask = task(TaskOptions { ladder: Some(vec![LadderRung::Pause]), ..TaskOptions::default() });
        let layers = [ask, project(&ladder("rotate")), user(&ladder("fallback"))];
        check(&layers, "run.ladder", "pause (task t.md)");
        check(&layers[1..], "run.ladder", "rotate, give-up (project p)");
        check(&layers[2..], "run.ladder", "fallback, give-up (user u)");
        let ask = task(TaskOptions { profile_default: Some("t".into()), ..TaskOptions::default() });
        check(&[ask, project("[model]\ndefault = 'p'")], "model.default", "t (task t.md)");
    }

    #[test]
    fn checkouts_may_only_lower_budgets() {
        let cost = |usd: f64| task(TaskOptions { max_cost_usd: Some(usd), ..TaskOptions::default() });
        let cap = || user("[budget]\nmax_cost_usd = 5");
        // The built-in default does not cap a task.
        check(&[cost(25.0)], "budget.max_cost_usd", "25 (task t.md)");
        check(&[cap(), cost(2.5)], "budget.max_cost_usd", "2.5 (task t.md)");
        check(&[project("[budget]\nmax_cost_usd = 2")], "budget.max_cost_usd", "2 (project p)");
        check(
            &[project("[budget]\nmax_cost_usd = 20")],
            "budget.max_cost_usd",
            "project p asks for `budget.max_cost_usd = 20`, but built-in allows at most 10 | to allow it for this run, add `--max-cost 20`",
        );
        check(
            &[cap(), cost(25.5)],
            "budget.max_cost_usd",
            "task t.md asks for `budget.max_cost_usd = 25.5`, but user u allows at most 5 | to allow it for this run, add `--max-cost 25.5`",
        );
        check(&[cap(), cost(25.0), flags("[budget]\nmax_cost_usd = 30")], "budget.max_cost_usd", "30 (flag)");
        check(&[cap(), cost(25.0), env("[budget]\nmax_cost_usd = 6")], "budget.max_cost_usd", "6 (environment E)");
        check(
            &[cost(3.0), project("[budget]\nmax_cost_usd = 2")],
            "budget.max_cost_usd",
            "task t.md asks for `budget.max_cost_usd = 3`, but project p allows at most 2 | to allow it for this run, add `--max-cost 3`",
        );
        let iterations = || task(TaskOptions { max_iterations: Some(50), ..TaskOptions::default() });
        check(&[iterations()], "budget.max_iterations", "50 (task t.md)");
        check(
            &[iterations(), user("[budget]\nmax_iterations = 40")],
            "budget.max_iterations",
            "task t.md asks for `budget.max_iterations = 50`, but user u allows at most 40 | to allow it for this run, add `--max-iterations 50`",
        );
        check(
            &[project("[budget]\nmax_tokens = 9"), user("[budget]\nmax_tokens = 8")],
            "budget.max_tokens",
            "project p asks for `budget.max_tokens = 9`, but user u allows at most 8 | to allow it for this run, add `--max-tokens 9`",
        );
    }

    #[test]
    fn checkouts_may_not_weaken_the_backend() {
        let ask = |backend| task(TaskOptions { backend: Some(backend), ..TaskOptions::default() });
        let own = |backend: &str| user(&format!("[sandbox]\nbackend = '{backend}'"));
        check(&[ask(BackendKind::Docker)], "sandbox.backend", "docker (task t.md)");
        check(&[own("docker"), ask(BackendKind::Embedded)], "sandbox.backend", "embedded (task t.md)");
        check(&[own("docker"), ask(BackendKind::Daytona)], "sandbox.backend", "daytona (task t.md)");
        check(&[own("local"), ask(BackendKind::Local)], "sandbox.backend", "local (task t.md)");
        check(&[ask(BackendKind::Local), flags("[sandbox]\nbackend = 'local'")], "sandbox.backend", "local (flag)");
        check(
            &[ask(BackendKind::Local)],
            "sandbox.backend",
            "task t.md asks for `sandbox.backend = local`, but built-in allows nothing weaker than embedded | to allow it for this run, add `--backend local`",
        );
        check(
            &[own("microvm"), project("[sandbox]\nbackend = 'docker'")],
            "sandbox.backend",
            "project p asks for `sandbox.backend = docker`, but user u allows nothing weaker than microvm | to allow it for this run, add `--backend docker`",
        );
    }

    #[test]
    fn checkouts_may_only_narrow_the_other_options() {
        check(
            &[
                user("[sandbox.resources]\nmemory = '4g'"),
                task(TaskOptions { memory_gib: Some(8.0), ..TaskOptions::default() }),
            ],
            "sandbox.resources.memory",
            "task t.md asks for `sandbox.resources.memory = 8g`, but user u allows at most 4g | to allow it, set `sandbox.resources.memory` in your own config; `ralph config path` shows where it is",
        );
        check(
            &[user("[lint]\nmin_checkboxes = 5"), project("[lint]\nmin_checkboxes = 1")],
            "lint.min_checkboxes",
            "project p asks for `lint.min_checkboxes = 1`, but user u allows at least 5 | to allow it, set `lint.min_checkboxes` in your own config; `ralph config path` shows where it is",
        );
        check(
            &[user("[sandbox]\ntoolchains = 'none'"), project("[sandbox]\ntoolchains = ['go']")],
            "sandbox.toolchains",
            "project p asks for `sandbox.toolchains = go`, but user u allows at most none | to allow it, set `sandbox.toolchains` in your own config; `ralph config path` shows where it is",
        );
        check(&[user("[sandbox]\ntoolchains = ['go', 'cargo']")], "sandbox.toolchains", "go, cargo (user u)");
    }

    #[test]
    fn strings_with_illegal_characters_are_refused() {
        let problem = "is empty or has characters that are not allowed | ";
        check(
            &[project("[sandbox]\nimage = '--privileged'")],
            "sandbox.image",
            &format!("project p: `sandbox.image` {problem}"),
        );
        check(&[project("[git]\nname = \"a\\nb\"")], "git.name", &format!("project p: `git.name` {problem}"));
        check(&[project("[git]\nemail = 'a> <b'")], "git.email", &format!("project p: `git.email` {problem}"));
        let sound = TaskOptions { memory_gib: Some(f64::NAN), ..TaskOptions::default() };
        assert_eq!(
            sound.layer("t.md").expect_err("no amount").to_string(),
            "task t.md: `sandbox_resources.memory_gib` is not an amount of gibibytes"
        );
    }

    fn budget_layer(cost: Option<u64>, iterations: Option<u32>) -> ConfigValues {
        let mut values = ConfigValues::default();
        values.budget.max_cost_usd = cost.map(MicroUsd);
        values.budget.max_iterations = iterations;
        values
    }

    proptest! {
        #[test]
        fn a_checkout_never_exceeds_the_users_caps(
            cap in (0..100u64, 0..100u32),
            project in (proptest::option::of(0..100u64), proptest::option::of(0..100u32)),
            task in (proptest::option::of(0..100u64), proptest::option::of(0..100u32)),
        ) {
            let layers = [
                ConfigLayer { origin: ConfigOrigin::User("u".into()), values: budget_layer(Some(cap.0), Some(cap.1)) },
                ConfigLayer { origin: ConfigOrigin::Project("p".into()), values: budget_layer(project.0, project.1) },
                ConfigLayer { origin: ConfigOrigin::Task("t".into()), values: budget_layer(task.0, task.1) },
            ];
            if let Ok(config) = resolve(&layers, BackendKind::Embedded) {
                prop_assert!(config.budget.max_cost.value <= MicroUsd(cap.0));
                prop_assert!(config.budget.max_iterations.value <= cap.1);
            }
        }
    }
}
