//! `ralph profile test`: makes one tiny call to each model and reports the result.

use std::time::{Duration, Instant};

use ralph_core::event::PinnedProfile;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::profile::resolve_endpoint;
use ralph_core::text;
use ralph_engine::model::{CallKey, Error as CallError, ModelErrorClass, ModelFinishReason, ModelRequest};
use ralph_engine::setup::{RunOverrides, pin_named_profiles, resolve_config};
use serde_json::{Value, json};

use super::profile::{FORMAT, table_cell};
use crate::args::profile::ProfileTestArgs;
use crate::error::CliResult;
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::{RED, Ui, YELLOW, paint};

/// The prompt. A model that thinks first may use all of its few tokens for that, which counts as an answer too.
const TEST_PROMPT: &str = "Answer with the word OK.";
/// The smallest output limit that every provider accepts.
const TEST_OUTPUT_TOKENS: u32 = 16;
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn test(setup: &CliSetup, args: &ProfileTestArgs, ui: &mut Ui) -> CliResult {
    let top = setup.repo_top().await.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let names = if args.names.is_empty() { default_profiles(setup, &top)? } else { args.names.clone() };
    let pinned = pin_named_profiles(&setup.host.home, &top, &names)?;
    let mut rows = Vec::new();
    for profile in &pinned {
        if !ui.json() {
            ui.set_status(&format!("asking {}", table_cell(&profile.model)));
        }
        rows.push((profile, test_profile(setup, profile).await));
        ui.clear_status();
    }
    print_results(&rows, ui);
    let failures = || rows.iter().filter_map(|(_, outcome)| outcome.as_ref().err());
    Ok(match failures().find(|failed| failed.is_auth()).or_else(|| failures().next()) {
        None => RalphExitCode::Success,
        Some(failed) if failed.is_auth() => RalphExitCode::Auth,
        Some(_) => RalphExitCode::Failed,
    })
}

/// Returns the profiles that a run here would use, each once.
fn default_profiles(setup: &CliSetup, top: &std::path::Path) -> Result<Vec<String>, crate::error::CliError> {
    let model = resolve_config(&setup.host, Some(top), &RunOverrides::default(), None)?.model;
    let mut names = vec![model.default.value];
    for more in [model.fallback.value, model.doctor.value].into_iter().flatten() {
        if !names.contains(&more) {
            names.push(more);
        }
    }
    Ok(names)
}

/// A call that was answered.
struct ProfileTestReply {
    model: String,
    latency: Duration,
    usage: TokenUsage,
    reported: bool,
    cost: Option<MicroUsd>,
    finish: ModelFinishReason,
    text: String,
}

/// A call that failed.
struct ProfileTestFailure {
    class: &'static str,
    error: String,
    hint: Option<String>,
    latency: Duration,
}

impl ProfileTestFailure {
    fn is_auth(&self) -> bool {
        self.class == ModelErrorClass::Auth.name()
    }
}

async fn test_profile(setup: &CliSetup, profile: &PinnedProfile) -> Result<ProfileTestReply, ProfileTestFailure> {
    let redactor = setup.host.redactor();
    let clean = |text: String| text::strip_control(&redactor.redact(&text));
    let begun = Instant::now();
    let model = setup.host.model(profile).await.map_err(|error| {
        let auth = error.exit() == RalphExitCode::Auth;
        ProfileTestFailure {
            class: if auth { ModelErrorClass::Auth.name() } else { "profile" },
            error: clean(error.to_string()),
            hint: error.hint(),
            latency: begun.elapsed(),
        }
    })?;
    let request = ModelRequest {
        max_output_tokens: TEST_OUTPUT_TOKENS.min(profile.max_output_tokens),
        timeout: CALL_TIMEOUT.min(Duration::from_secs(profile.timeout_s)),
        extra: profile.extra.clone().into_iter().collect(),
        ..ModelRequest::from_user_text(TEST_PROMPT)
    };
    let asked = Instant::now();
    let reply = model.call(&request, CallKey::new(1, 0)).await.map_err(|error| ProfileTestFailure {
        class: error.class().name(),
        hint: failure_hint(setup, profile, &error),
        error: clean(error_chain(&error)),
        latency: asked.elapsed(),
    })?;
    Ok(ProfileTestReply {
        latency: asked.elapsed(),
        cost: profile.price.as_ref().map(|price| price.cost(&reply.usage)),
        model: clean(reply.model),
        usage: reply.usage,
        reported: reply.usage_reported,
        finish: reply.finish,
        text: clean(reply.text),
    })
}

/// Returns the command or the change that fixes a failure.
fn failure_hint(setup: &CliSetup, profile: &PinnedProfile, error: &CallError) -> Option<String> {
    let again = format!("ralph profile test {}", profile.name);
    match error.class() {
        ModelErrorClass::Auth => Some(format!("ralph secret set {}", key_name(setup, profile))),
        ModelErrorClass::RateLimited { .. }
        | ModelErrorClass::Overloaded { .. }
        | ModelErrorClass::ServerError
        | ModelErrorClass::Refused => Some(format!("this may be temporary; later: {again}")),
        ModelErrorClass::Timeout | ModelErrorClass::Connect | ModelErrorClass::BadAnswer => {
            error.hint().or(Some(again))
        }
        _ => error.hint(),
    }
}

/// Returns the name under which a profile's key is looked up first.
fn key_name(setup: &CliSetup, profile: &PinnedProfile) -> String {
    let asked = ralph_core::profile::Profile {
        litellm_model: profile.model.clone(),
        max_output_tokens: profile.max_output_tokens,
        temperature: None,
        tags: Vec::new(),
        base_url: profile.base_url.clone(),
        api_key_env: profile.api_key_env.clone(),
        price: None,
        timeout_s: 1,
        extra: std::collections::BTreeMap::new(),
    };
    let place = resolve_endpoint(&asked, &setup.environment.env).ok();
    place.and_then(|place| place.key_envs.first().cloned()).unwrap_or_else(|| "NAME".to_owned())
}

/// Formats an error and its causes as one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}

fn print_results(rows: &[(&PinnedProfile, Result<ProfileTestReply, ProfileTestFailure>)], ui: &mut Ui) {
    if ui.json() {
        let tests: Vec<Value> = rows.iter().map(|(profile, outcome)| result_json(profile, outcome)).collect();
        ui.print_json(&json!({"format": FORMAT, "tests": tests}));
        return;
    }
    let heads = ["NAME", "MODEL", "ANSWERED BY", "LATENCY", "IN", "OUT", "COST"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (profile, outcome) in rows {
        let start = vec![table_cell(&profile.name), table_cell(&profile.model)];
        let rest = match outcome {
            Ok(answered) => {
                let about = if answered.reported { "" } else { "~" };
                let count = |tokens: u64| format!("{about}{tokens}");
                let cost = answered.cost.map_or("?".to_owned(), |cost| format!("{about}${:.6}", cost.as_usd()));
                vec![
                    table_cell(&answered.model),
                    seconds(answered.latency),
                    count(answered.usage.prompt()),
                    count(answered.usage.output),
                    cost,
                ]
            }
            Err(failed) => vec![failed.class.to_owned(), seconds(failed.latency), "-".into(), "-".into(), "-".into()],
        };
        cells.push(start.into_iter().chain(rest).collect());
    }
    for line in align_columns(&cells) {
        ui.print_data(&line);
    }
    for (profile, outcome) in rows {
        let name = table_cell(&profile.name);
        match outcome {
            Ok(answered) if answered.cost.is_none() => ui.print_message(&format!(
                "{} {name}: its price is unknown, so a run with it needs a token cap; next: ralph profile prices --import FILE",
                paint(YELLOW, "!")
            )),
            Ok(_) => (),
            Err(failed) => {
                let next = failed.hint.as_ref().map(|hint| format!("; next: {hint}")).unwrap_or_default();
                ui.print_message(&format!("{} {name}: {}{next}", paint(RED, "x"), failed.error));
            }
        }
    }
}

fn seconds(latency: Duration) -> String {
    format!("{:.1} s", latency.as_secs_f64())
}

fn result_json(profile: &PinnedProfile, outcome: &Result<ProfileTestReply, ProfileTestFailure>) -> Value {
    let millis = |latency: Duration| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
    match outcome {
        Ok(answered) => json!({"name": profile.name, "model": profile.model, "ok": true,
            "answered_by": answered.model, "latency_ms": millis(answered.latency), "usage": answered.usage,
            "usage_reported": answered.reported, "cost_usd": answered.cost.map(MicroUsd::as_usd),
            "finish": answered.finish, "text": answered.text}),
        Err(failed) => json!({"name": profile.name, "model": profile.model, "ok": false,
            "class": failed.class, "latency_ms": millis(failed.latency), "error": failed.error, "hint": failed.hint}),
    }
}
