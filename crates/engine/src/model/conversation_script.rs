//! Parses, writes and selects the replies of a recorded conversation.
//!
//! The selection depends only on the call's key and its prompt. A script has no moving position, so a run that crashed
//! and was resumed gets the same replies as one that never stopped.

use ralph_core::price::TokenUsage;
use ralph_core::text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallKey, ModelFinishReason, ModelReply, ModelRequest};

/// The format this version writes and reads.
pub const SCRIPT_FORMAT: u64 = 1;

/// One reply of a script: one line of its file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    /// The model's text; or see `json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The model's text as a value: easier to write by hand than JSON within a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<ModelFinishReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<ReplyCondition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ScriptedFault>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// Answers every later iteration too; only on the last reply without `when`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeat: bool,
    /// A comment for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Which calls a reply is for. Omitted fields match any call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyCondition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// The number of the diagnosis that makes the call, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_contains: Option<String>,
}

/// An error to play before, or instead of, an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFault {
    pub status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// The provider's error body; decides the class of the error together with the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// How many attempts fail before the answer comes: 1 if there is an answer, all if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ScriptedReply {
    /// Records a reply, pinned to its call.
    pub fn of(key: CallKey, reply: &ModelReply) -> Self {
        Self {
            text: Some(reply.text.clone()),
            usage: Some(reply.usage),
            model: Some(reply.model.clone()),
            finish: Some(reply.finish.clone()).filter(|finish| *finish != ModelFinishReason::Stop),
            when: Some(ReplyCondition::exactly(key)),
            ..Self::default()
        }
    }

    /// Returns the line to append to a script, with its line break.
    pub fn line(&self) -> String {
        format!("{}\n", json!(self))
    }

    /// Returns the first line of a new script, with its line break.
    pub fn header() -> String {
        format!("{}\n", json!({ "format": SCRIPT_FORMAT }))
    }

    /// Returns the model's text, if there is any.
    pub fn answer(&self) -> Option<String> {
        self.text.clone().or_else(|| self.json.as_ref().map(Value::to_string))
    }

    /// Returns the fault that this attempt meets.
    pub fn fault(&self, attempt: u32) -> Option<&ScriptedFault> {
        let has_answer = self.text.is_some() || self.json.is_some();
        self.fault.as_ref().filter(|fault| !has_answer || attempt < fault.times.unwrap_or(1))
    }

    fn problem(&self) -> Option<ScriptProblem> {
        let answers = usize::from(self.text.is_some()) + usize::from(self.json.is_some());
        match &self.fault {
            _ if answers == 2 => Some(ScriptProblem::TwoAnswers),
            None if answers == 0 => Some(ScriptProblem::NoAnswer),
            Some(fault) if !(400..600).contains(&fault.status) => {
                Some(ScriptProblem::FaultStatus { status: fault.status })
            }
            Some(fault) if fault.times.is_some() && answers == 0 => Some(ScriptProblem::FaultEnds),
            _ if self.repeat && self.when.is_some() => Some(ScriptProblem::Repeat),
            _ => None,
        }
    }
}

impl ReplyCondition {
    /// Returns the condition that only this call matches.
    fn exactly(key: CallKey) -> Self {
        let CallKey { iteration, call, diagnosis, attempt: _ } = key;
        Self { iteration: Some(iteration), call: Some(call), diagnosis, ..Self::default() }
    }

    fn matches(&self, key: CallKey, profile: &str, request: &ModelRequest) -> bool {
        self.iteration.is_none_or(|iteration| iteration == key.iteration)
            && self.call.is_none_or(|call| call == key.call)
            && self.diagnosis.is_none_or(|diagnosis| key.diagnosis == Some(diagnosis))
            && self.profile.as_deref().is_none_or(|wanted| wanted == profile)
            && self.prompt_contains.as_deref().is_none_or(|part| request.texts().any(|text| text.contains(part)))
    }

    fn conditions(&self) -> usize {
        usize::from(self.iteration.is_some())
            + usize::from(self.call.is_some())
            + usize::from(self.diagnosis.is_some())
            + usize::from(self.profile.is_some())
            + usize::from(self.prompt_contains.is_some())
    }
}

/// A recorded conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationScript {
    /// The i-th is for the first call of iteration i.
    ordinal: Vec<ScriptedReply>,
    conditional: Vec<ScriptedReply>,
}

/// A script that cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct InvalidScript {
    /// Counted from 1.
    pub line: usize,
    pub problem: ScriptProblem,
}

/// What is wrong with a line of a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptProblem {
    #[error("the script has no format number")]
    NoFormat,
    #[error("the script has format {format}, newer than this ralph knows")]
    Newer { format: u64 },
    #[error("not a reply: {why}")]
    NotAReply { why: String },
    #[error("a reply needs `text`, `json` or `fault`")]
    NoAnswer,
    #[error("a reply has either `text` or `json`, not both")]
    TwoAnswers,
    #[error("a fault needs a status from 400 to 599, not {status}")]
    FaultStatus { status: u16 },
    #[error("a fault with `times` needs a `text` or `json` that follows it")]
    FaultEnds,
    #[error("`repeat` belongs on the last reply without `when`")]
    Repeat,
}

impl ScriptProblem {
    /// Returns what to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoFormat => r#"begin the file with the line `{"format": 1}`"#.into(),
            Self::Newer { .. } => "update ralph, or record the script again".into(),
            Self::NotAReply { .. } => r#"write one JSON object per line, like `{"text": "…"}`"#.into(),
            Self::NoAnswer => r#"add a `"text"`"#.into(),
            Self::TwoAnswers => "remove one of them".into(),
            Self::FaultStatus { .. } => "use the status a provider would send, like 429".into(),
            Self::FaultEnds => "add the answer, or remove `times` to fail every attempt".into(),
            Self::Repeat => "move it there, or remove it".into(),
        }
    }
}

impl ConversationScript {
    /// Reads a script: a line with the format number, then one reply per line. Empty lines are skipped.
    pub fn parse(text: &str) -> Result<Self, InvalidScript> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let (first, head) = lines.next().unwrap_or((1, ""));
        let head: Option<Value> = serde_json::from_str(head).ok();
        match head.as_ref().and_then(|head| head.get("format")).and_then(Value::as_u64) {
            Some(SCRIPT_FORMAT) => (),
            Some(format) if format > SCRIPT_FORMAT => {
                return Err(InvalidScript { line: first, problem: ScriptProblem::Newer { format } });
            }
            _ => return Err(InvalidScript { line: first, problem: ScriptProblem::NoFormat }),
        }

        let mut script = Self::default();
        let mut repeat_at = None;
        for (line, source) in lines {
            let reply: ScriptedReply = serde_json::from_str(source).map_err(|error| InvalidScript {
                line,
                problem: ScriptProblem::NotAReply { why: json_error_text(&error) },
            })?;
            if let Some(problem) = reply.problem() {
                return Err(InvalidScript { line, problem });
            }
            if reply.when.is_some() {
                script.conditional.push(reply);
                continue;
            }
            if let Some(line) = repeat_at {
                return Err(InvalidScript { line, problem: ScriptProblem::Repeat });
            }
            repeat_at = reply.repeat.then_some(line);
            script.ordinal.push(reply);
        }
        Ok(script)
    }

    /// Returns the reply for a call: the matching one with the most conditions, the earlier of equals; or, for the
    /// first call of an iteration, the one in turn.
    pub fn reply(&self, key: CallKey, profile: &str, request: &ModelRequest) -> Option<&ScriptedReply> {
        let fitting = self
            .conditional
            .iter()
            .filter_map(|reply| reply.when.as_ref().map(|when| (when, reply)))
            .filter(|(when, _)| when.matches(key, profile, request))
            // Of equals `max_by_key` takes the last, hence the reversal.
            .rev()
            .max_by_key(|(when, _)| when.conditions())
            .map(|(_, reply)| reply);
        fitting.or_else(|| {
            let turn = usize::try_from(key.iteration.checked_sub(1)?).ok()?;
            let in_turn = self.ordinal.get(turn).or_else(|| self.ordinal.last().filter(|last| last.repeat));
            in_turn.filter(|_| key.call == 0)
        })
    }
}

/// Returns serde's message without its own line number, which is always 1 here.
fn json_error_text(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    format!("{} (column {})", text::first_line(message, 200), error.column())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::LostCallPolicy;
    use super::*;

    fn asking(user: &str) -> ModelRequest {
        ModelRequest {
            system: String::new(),
            user: user.into(),
            history: Vec::new(),
            max_output_tokens: 1,
            temperature: None,
            json: true,
            on_lost: LostCallPolicy::Retry,
            timeout: Duration::from_secs(1),
            extra: serde_json::Map::new(),
        }
    }

    #[track_caller]
    fn check(script: &str, iteration: u32, call: u32, prompt: &str, want: Option<&str>) {
        let script = ConversationScript::parse(&format!("{{\"format\":1,\"title\":\"demo\"}}\n{script}")).unwrap();
        let reply = script.reply(CallKey::new(iteration, call), "cheap", &asking(prompt));
        assert_eq!(reply.and_then(ScriptedReply::answer).as_deref(), want);
    }

    #[test]
    fn turns() {
        let script = "{\"text\":\"a\"}\r\n\n{\"json\":{\"b\":[1]}}\n";
        check(script, 1, 0, "", Some("a"));
        check(script, 2, 0, "", Some(r#"{"b":[1]}"#));
        check(script, 3, 0, "", None);
        check(script, 1, 1, "", None);
        check(script, 0, 0, "", None);
        let script = "{\"text\":\"a\"}\n{\"text\":\"z\",\"repeat\":true}\n{\"text\":\"w\",\"when\":{\"call\":1}}";
        check(script, 2, 0, "", Some("z"));
        check(script, u32::MAX, 0, "", Some("z"));
        check(script, 7, 1, "", Some("w"));
        check(script, 7, 2, "", None);
        check("", 1, 0, "", None);
    }

    #[test]
    fn conditions() {
        let script = concat!(
            "{\"text\":\"a\"}\n",
            "{\"text\":\"any\",\"when\":{\"iteration\":2}}\n",
            "{\"text\":\"re\",\"when\":{\"iteration\":2,\"call\":1}}\n",
            "{\"text\":\"re-late\",\"when\":{\"iteration\":2,\"call\":1}}\n",
            "{\"text\":\"why\",\"when\":{\"prompt_contains\":\"diagnose\"}}\n",
            "{\"text\":\"other\",\"when\":{\"profile\":\"strong\"}}\n",
            "{\"text\":\"b\"}\n",
        );
        check(script, 1, 0, "", Some("a"));
        check(script, 2, 0, "", Some("any"));
        check(script, 2, 1, "", Some("re"));
        check(script, 2, 5, "", Some("any"));
        check(script, 1, 3, "please diagnose", Some("why"));
        check(script, 3, 0, "", None);
        let asked = |script: &str, key| {
            let script = ConversationScript::parse(&format!("{}{script}", ScriptedReply::header())).unwrap();
            script.reply(key, "cheap", &asking("")).and_then(ScriptedReply::answer)
        };
        let doctor = "{\"text\":\"plan\",\"when\":{\"iteration\":2,\"call\":0,\"diagnosis\":1}}";
        let both = format!("{script}{doctor}\n");
        assert_eq!(asked(&both, CallKey::of_diagnosis(1, 2, 0)).as_deref(), Some("plan"));
        assert_eq!(asked(&both, CallKey::new(2, 0)).as_deref(), Some("any"));
        assert_eq!(asked(&both, CallKey::of_diagnosis(2, 1, 0)).as_deref(), Some("a"));
        let strong = ConversationScript::parse(&format!("{}{script}", ScriptedReply::header())).unwrap();
        let reply = strong.reply(CallKey::new(1, 0), "strong", &asking(""));
        assert_eq!(reply.and_then(ScriptedReply::answer).as_deref(), Some("other"));
    }

    #[test]
    fn faults() {
        let read = |line: &str| serde_json::from_str::<ScriptedReply>(line).unwrap();
        let once = read(r#"{"text":"a","fault":{"status":429,"retry_after_s":1}}"#);
        let thrice = read(r#"{"text":"a","fault":{"status":500,"times":3}}"#);
        let always = read(r#"{"fault":{"status":401}}"#);
        for (reply, attempt, want) in
            [(&once, 0, true), (&once, 1, false), (&thrice, 2, true), (&thrice, 3, false), (&always, 99, true)]
        {
            assert_eq!(reply.fault(attempt).is_some(), want, "{reply:?} {attempt}");
        }
    }

    #[test]
    fn refusals() {
        #[track_caller]
        fn refuse(text: &str, line: usize, want: &ScriptProblem) {
            assert_eq!(ConversationScript::parse(text), Err(InvalidScript { line, problem: want.clone() }), "{text}");
        }
        refuse("", 1, &ScriptProblem::NoFormat);
        refuse("{\"text\":\"a\"}", 1, &ScriptProblem::NoFormat);
        refuse("\n\nhello", 3, &ScriptProblem::NoFormat);
        refuse("{\"format\":0}", 1, &ScriptProblem::NoFormat);
        refuse("{\"format\":\"1\"}", 1, &ScriptProblem::NoFormat);
        refuse("{\"format\":2}", 1, &ScriptProblem::Newer { format: 2 });
        refuse("{\"format\":1}\n\n{}", 3, &ScriptProblem::NoAnswer);
        refuse("{\"format\":1}\n{\"text\":\"a\",\"json\":1}", 2, &ScriptProblem::TwoAnswers);
        refuse("{\"format\":1}\n{\"fault\":{\"status\":200}}", 2, &ScriptProblem::FaultStatus { status: 200 });
        refuse("{\"format\":1}\n{\"fault\":{\"status\":429,\"times\":2}}", 2, &ScriptProblem::FaultEnds);
        refuse("{\"format\":1}\n{\"text\":\"a\",\"repeat\":true}\n{\"text\":\"b\"}", 2, &ScriptProblem::Repeat);
        refuse("{\"format\":1}\n{\"text\":\"a\",\"repeat\":true,\"when\":{}}", 2, &ScriptProblem::Repeat);
        let error = ConversationScript::parse("{\"format\":1}\n{\"text\":\"a\",\"whne\":{}}").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().starts_with("line 2: not a reply: unknown field `whne`, expected one of"), "{error}");
        let error = ConversationScript::parse("{\"format\":1}\n{\"text\":").unwrap_err();
        assert_eq!(error.to_string(), "line 2: not a reply: EOF while parsing a value (column 8)");
    }

    #[test]
    fn recorded_lines_are_read_back() {
        let reply = ModelReply {
            text: "line\n\"two\" ü".into(),
            usage: TokenUsage { input: 3, output: 4, ..TokenUsage::default() },
            usage_reported: true,
            model: "glm-4.7".into(),
            finish: ModelFinishReason::Length,
            raw_bytes: 9,
        };
        let line = ScriptedReply::of(CallKey::new(4, 1), &reply);
        let script = ConversationScript::parse(&format!("{}{}", ScriptedReply::header(), line.line())).unwrap();
        assert_eq!(script.reply(CallKey::new(4, 1), "p", &asking("")), Some(&line));
        assert_eq!(script.reply(CallKey::new(4, 0), "p", &asking("")), None);
        assert_eq!(line.line().lines().count(), 1);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "\\PC{0,200}", iteration: u32, call in 0..3_u32) {
            for script in [text.clone(), format!("{{\"format\":1}}\n{text}")] {
                if let Ok(script) = ConversationScript::parse(&script) {
                    script.reply(CallKey::new(iteration, call), "p", &asking(&text));
                }
            }
        }

        /// The reply to a call does not depend on earlier calls.
        #[test]
        fn replies_do_not_depend_on_order(count in 1..6_u32, order in proptest::collection::vec(1..9_u32, 1..20)) {
            let mut lines = ScriptedReply::header();
            for i in 1..=count {
                lines += &ScriptedReply { text: Some(i.to_string()), ..ScriptedReply::default() }.line();
            }
            let script = ConversationScript::parse(&lines).unwrap();
            for iteration in order {
                let got = script.reply(CallKey::new(iteration, 0), "p", &asking("")).and_then(ScriptedReply::answer);
                prop_assert_eq!(got, (iteration <= count).then(|| iteration.to_string()));
            }
        }
    }
}
