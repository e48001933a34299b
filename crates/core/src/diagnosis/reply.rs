//! Defines the doctor's answer as types: the schema it is shown is generated from them, so the two cannot disagree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text;

/// The most guardrails of one diagnosis: a model does not follow a page of rules.
pub const MAX_GUARDRAILS: usize = 3;

/// The longest answer that is parsed, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// Sizes in characters, as JSON Schema counts them.
const MAX_LIST: usize = 8;
const MAX_LINE: usize = 500;
const MAX_DIFF: usize = 65_536;
const MAX_NAME: usize = 100;

/// What a doctor says of a run that goes in circles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diagnosis {
    /// What keeps happening, one sentence each.
    #[schemars(length(min = 1, max = MAX_LIST), inner(length(min = 1, max = MAX_LINE)))]
    pub patterns: Vec<String>,
    /// Why it happens, the most probable cause first.
    #[schemars(length(min = 1, max = MAX_LIST), inner(length(min = 1, max = MAX_LINE)))]
    pub causes: Vec<String>,
    /// Signs for the sessions that follow.
    #[schemars(length(min = 1, max = MAX_GUARDRAILS))]
    pub guardrails: Vec<Guardrail>,
    /// A unified diff of the task file that makes the task clearer, or null. It may never remove or weaken a proof.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = MAX_DIFF)))]
    pub task_diff: Option<String>,
    /// Another of the run's profiles that should try, or null.
    #[serde(default)]
    pub profile: Option<ProfileSuggestion>,
}

/// One sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guardrail {
    /// The situation in which it goes wrong.
    #[schemars(length(min = 1, max = MAX_LINE))]
    pub trigger: String,
    /// What to do there.
    #[schemars(length(min = 1, max = MAX_LINE))]
    pub instruction: String,
    /// What was seen in this run that shows the need for it.
    #[schemars(length(min = 1, max = MAX_LINE))]
    pub evidence: String,
}

/// A profile that may do better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Suggestion")]
pub struct ProfileSuggestion {
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub name: String,
    #[schemars(length(min = 1, max = MAX_LINE))]
    pub why: String,
}

/// Why a text is not a diagnosis, as a message for the doctor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidDiagnosis {
    pub message: String,
}

fn invalid(message: impl Into<String>) -> InvalidDiagnosis {
    InvalidDiagnosis { message: message.into() }
}

/// Returns the JSON Schema of [`Diagnosis`], as shown to the doctor.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Diagnosis).to_value()
}

/// Parses the text of a doctor. Prose and fences around the one object are ignored; nothing is guessed.
pub fn parse(text: &str) -> Result<Diagnosis, InvalidDiagnosis> {
    if text.len() > MAX_TEXT {
        return Err(invalid(format!("the answer has {} bytes, more than the {MAX_TEXT} allowed", text.len())));
    }
    let object = match (text.find('{'), text.rfind('}')) {
        (Some(start), Some(end)) if start < end => text.get(start..=end).unwrap_or_default(),
        (Some(_), _) => return Err(invalid("the JSON object is never closed; the answer may have been cut off")),
        _ => return Err(invalid("the answer holds no JSON object: answer with exactly one")),
    };
    let diagnosis: Diagnosis = serde_json::from_str(object)
        .map_err(|error| invalid(text::strip_control(text::head(&error.to_string(), 600))))?;
    check(&diagnosis)?;
    Ok(diagnosis)
}

/// Checks the size limits of the schema, which serde does not enforce.
fn check(diagnosis: &Diagnosis) -> Result<(), InvalidDiagnosis> {
    for (name, list) in [("patterns", &diagnosis.patterns), ("causes", &diagnosis.causes)] {
        check_count(name, list.len(), MAX_LIST)?;
        list.iter().try_for_each(|line| check_size(name, line, MAX_LINE))?;
    }
    check_count("guardrails", diagnosis.guardrails.len(), MAX_GUARDRAILS)?;
    for guardrail in &diagnosis.guardrails {
        check_size("guardrails.trigger", &guardrail.trigger, MAX_LINE)?;
        check_size("guardrails.instruction", &guardrail.instruction, MAX_LINE)?;
        check_size("guardrails.evidence", &guardrail.evidence, MAX_LINE)?;
    }
    if let Some(diff) = &diagnosis.task_diff {
        check_size("task_diff", diff, MAX_DIFF)?;
    }
    if let Some(profile) = &diagnosis.profile {
        check_size("profile.name", &profile.name, MAX_NAME)?;
        check_size("profile.why", &profile.why, MAX_LINE)?;
    }
    Ok(())
}

fn check_count(field: &str, found: usize, max: usize) -> Result<(), InvalidDiagnosis> {
    if (1..=max).contains(&found) {
        return Ok(());
    }
    Err(invalid(format!("`{field}` has {found} entries, and 1 to {max} are wanted")))
}

fn check_size(field: &str, value: &str, max: usize) -> Result<(), InvalidDiagnosis> {
    match value.chars().count() {
        _ if value.trim().is_empty() => Err(invalid(format!("`{field}` is empty"))),
        chars if chars > max => Err(invalid(format!("`{field}` has {chars} characters, more than {max}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    pub(in super::super) fn example() -> Value {
        json!({
            "patterns": ["the usage check is run again and again"],
            "causes": ["nobody counts the arguments"],
            "guardrails": [{"trigger": "a check is red", "instruction": "change the code first", "evidence": "3 runs"}],
            "task_diff": null,
            "profile": {"name": "strong", "why": "it reads before it runs"},
        })
    }

    #[track_caller]
    fn check_error(change: impl FnOnce(&mut Value), want: &str) {
        let mut value = example();
        change(&mut value);
        let message = parse(&value.to_string()).unwrap_err().message;
        assert!(message.contains(want), "{message}");
    }

    #[test]
    fn valid_answers_are_parsed() {
        let plain = example().to_string();
        let read = parse(&plain).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), example());
        assert_eq!(parse(&format!("Here it is:\n```json\n{plain}\n```\nGood luck.")), Ok(read));
        let short = json!({"patterns": ["a"], "causes": ["b"],
            "guardrails": [{"trigger": "t", "instruction": "i", "evidence": "e"}]});
        assert_eq!(parse(&short.to_string()).unwrap().task_diff, None);
    }

    #[test]
    fn invalid_answers_are_refused() {
        for (text, want) in [
            ("", "no JSON object"),
            ("{", "never closed"),
            ("} {", "never closed"),
            ("{}", "missing field `patterns`"),
            ("{\"summary\": 1, \"actions\": []}", "unknown field `summary`"),
        ] {
            let message = parse(text).unwrap_err().message;
            assert!(message.contains(want), "{text}: {message}");
        }
        assert!(parse(&"{".repeat(MAX_TEXT + 1)).unwrap_err().message.contains("more than the"));
        check_error(|value| value["patterns"] = json!([]), "`patterns` has 0 entries, and 1 to 8 are wanted");
        check_error(|value| value["guardrails"] = json!([]), "`guardrails` has 0 entries, and 1 to 3 are wanted");
        check_error(
            |value| {
                let one = value["guardrails"][0].clone();
                value["guardrails"] = json!([one, one, one, one]);
            },
            "`guardrails` has 4 entries",
        );
        check_error(|value| value["causes"] = json!(["x".repeat(501)]), "`causes` has 501 characters");
        check_error(|value| value["guardrails"][0]["trigger"] = json!(" "), "`guardrails.trigger` is empty");
        check_error(|value| value["task_diff"] = json!(""), "`task_diff` is empty");
        check_error(|value| value["mood"] = json!(1), "unknown field `mood`");
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = schema().to_string();
        for field in ["patterns", "causes", "guardrails", "task_diff", "profile", "trigger", "evidence"] {
            assert!(schema.contains(&format!("\"{field}\"")), "{field}");
        }
        assert!(schema.contains("\"maxItems\":3"), "{schema}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,300}", cut in 0usize..400) {
            let _ = parse(&text);
            let plain = example().to_string();
            let _ = parse(text::head(&plain, cut));
            let _ = parse(&format!("{}{text}", text::head(&plain, cut)));
        }
    }
}
