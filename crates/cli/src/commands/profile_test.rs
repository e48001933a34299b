//! `ralph profile test`: one tiny call to each model, and what came of it.

use std::time::{Duration, Instant};

use ralph_core::event::PinnedProfile;
use ralph_core::exit::Exit;
use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_core::profile::endpoint;
use ralph_core::text;
use ralph_engine::model::{CallKey, Class, Error as CallError, Finish, Request};
use serde_json::{Value, json};

use super::profile::{FORMAT, cell};
use crate::args::profile::Test;
use crate::error::Outcome;
use crate::render::columns;
use crate::setup::{Flags, Setup};
use crate::ui::{RED, Ui, YELLOW, paint};

/// What is asked. A model that thinks first may use up its few tokens with it, which is an answer too.
const QUESTION: &str = "Answer with the word OK.";
/// The fewest that every provider takes.
const OUTPUT: u32 = 16;
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) async fn test(setup: &Setup, args: &Test, ui: &mut Ui) -> Outcome {
    let top = setup.top().await.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let names = if args.names.is_empty() { in_use(setup, &top)? } else { args.names.clone() };
    let pinned = setup.pinned(&top, &names)?;
    let mut rows = Vec::new();
    for profile in &pinned {
        if !ui.json() {
            ui.pin(&format!("asking {}", cell(&profile.model)));
        }
        rows.push((profile, try_out(setup, profile).await));
        ui.unpin();
    }
    tell(&rows, ui);
    let failures = || rows.iter().filter_map(|(_, outcome)| outcome.as_ref().err());
    Ok(match failures().find(|failed| failed.is_auth()).or_else(|| failures().next()) {
        None => Exit::Success,
        Some(failed) if failed.is_auth() => Exit::Auth,
        Some(_) => Exit::Failed,
    })
}

/// The profiles that a run here would have, each once.
fn in_use(setup: &Setup, top: &std::path::Path) -> Result<Vec<String>, crate::error::Failure> {
    let model = setup.resolve(Some(top), &Flags::default(), None)?.model;
    let mut names = vec![model.default.value];
    for more in [model.fallback.value, model.doctor.value].into_iter().flatten() {
        if !names.contains(&more) {
            names.push(more);
        }
    }
    Ok(names)
}

/// A call that was answered.
struct Answered {
    model: String,
    latency: Duration,
    usage: Usage,
    reported: bool,
    cost: Option<Micros>,
    finish: Finish,
    text: String,
}

/// A call that was not.
struct Failed {
    class: &'static str,
    error: String,
    hint: Option<String>,
    latency: Duration,
}

impl Failed {
    fn is_auth(&self) -> bool {
        self.class == Class::Auth.name()
    }
}

async fn try_out(setup: &Setup, profile: &PinnedProfile) -> Result<Answered, Failed> {
    let redactor = setup.host.redactor();
    let clean = |text: String| text::plain(&redactor.redact(&text));
    let begun = Instant::now();
    let model = setup.host.model(profile).await.map_err(|error| {
        let auth = error.exit() == Exit::Auth;
        Failed {
            class: if auth { Class::Auth.name() } else { "profile" },
            error: clean(error.to_string()),
            hint: error.hint(),
            latency: begun.elapsed(),
        }
    })?;
    let request = Request {
        max_output_tokens: OUTPUT.min(profile.max_output_tokens),
        timeout: PATIENCE.min(Duration::from_secs(profile.timeout_s)),
        extra: profile.extra.clone().into_iter().collect(),
        ..Request::of_user(QUESTION)
    };
    let asked = Instant::now();
    let reply = model.call(&request, CallKey::new(1, 0)).await.map_err(|error| Failed {
        class: error.class().name(),
        hint: hint(setup, profile, &error),
        error: clean(chain(&error)),
        latency: asked.elapsed(),
    })?;
    Ok(Answered {
        latency: asked.elapsed(),
        cost: profile.price.as_ref().map(|price| price.cost(&reply.usage)),
        model: clean(reply.model),
        usage: reply.usage,
        reported: reply.usage_reported,
        finish: reply.finish,
        text: clean(reply.text),
    })
}

/// Returns the command or the change that mends it.
fn hint(setup: &Setup, profile: &PinnedProfile, error: &CallError) -> Option<String> {
    let again = format!("ralph profile test {}", profile.name);
    match error.class() {
        Class::Auth => Some(format!("ralph secret set {}", key_name(setup, profile))),
        Class::RateLimited { .. } | Class::Overloaded { .. } | Class::ServerError | Class::Refused => {
            Some(format!("that can pass; later: {again}"))
        }
        Class::Timeout | Class::Connect | Class::BadAnswer => error.hint().or(Some(again)),
        _ => error.hint(),
    }
}

/// Returns the name under which a profile's key is looked for first.
fn key_name(setup: &Setup, profile: &PinnedProfile) -> String {
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
    let place = endpoint(&asked, &setup.environment.env).ok();
    place.and_then(|place| place.key_envs.first().cloned()).unwrap_or_else(|| "NAME".to_owned())
}

/// Says an error and what is behind it in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}

fn tell(rows: &[(&PinnedProfile, Result<Answered, Failed>)], ui: &mut Ui) {
    if ui.json() {
        let tests: Vec<Value> = rows.iter().map(|(profile, outcome)| as_json(profile, outcome)).collect();
        ui.object(&json!({"format": FORMAT, "tests": tests}));
        return;
    }
    let heads = ["NAME", "MODEL", "ANSWERED BY", "LATENCY", "IN", "OUT", "COST"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (profile, outcome) in rows {
        let start = vec![cell(&profile.name), cell(&profile.model)];
        let rest = match outcome {
            Ok(answered) => {
                let about = if answered.reported { "" } else { "~" };
                let count = |tokens: u64| format!("{about}{tokens}");
                let cost = answered.cost.map_or("?".to_owned(), |cost| format!("{about}${:.6}", cost.as_usd()));
                vec![
                    cell(&answered.model),
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
    for line in columns(&cells) {
        ui.data(&line);
    }
    for (profile, outcome) in rows {
        let name = cell(&profile.name);
        match outcome {
            Ok(answered) if answered.cost.is_none() => ui.say(&format!(
                "{} {name}: nobody knows its price, so a run with it needs a token cap; next: ralph profile prices --import FILE",
                paint(YELLOW, "!")
            )),
            Ok(_) => (),
            Err(failed) => {
                let next = failed.hint.as_ref().map(|hint| format!("; next: {hint}")).unwrap_or_default();
                ui.say(&format!("{} {name}: {}{next}", paint(RED, "x"), failed.error));
            }
        }
    }
}

fn seconds(latency: Duration) -> String {
    format!("{:.1} s", latency.as_secs_f64())
}

fn as_json(profile: &PinnedProfile, outcome: &Result<Answered, Failed>) -> Value {
    let millis = |latency: Duration| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
    match outcome {
        Ok(answered) => json!({"name": profile.name, "model": profile.model, "ok": true,
            "answered_by": answered.model, "latency_ms": millis(answered.latency), "usage": answered.usage,
            "usage_reported": answered.reported, "cost_usd": answered.cost.map(Micros::as_usd),
            "finish": answered.finish, "text": answered.text}),
        Err(failed) => json!({"name": profile.name, "model": profile.model, "ok": false,
            "class": failed.class, "latency_ms": millis(failed.latency), "error": failed.error, "hint": failed.hint}),
    }
}
