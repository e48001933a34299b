//! Parses a provider's error body of any shape, and shows it without secrets.

use ralph_core::secret::Secret;
use ralph_core::text;
use serde_json::Value;

/// How much of a server's text an error message repeats.
const EXCERPT_CAP: usize = 300;

/// The parts of an error body that distinguish errors. All are lower-case except `message`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProviderErrorBody {
    /// `code`, `type` and `status` of the error and the reasons in its details, if given.
    pub(super) codes: Vec<String>,
    pub(super) param: String,
    pub(super) message: String,
    /// A delay stated inside the body (Google's `retryDelay`).
    pub(super) retry_delay: Option<String>,
}

impl ProviderErrorBody {
    /// Parses an error body. Anything that is not JSON becomes the message.
    pub(super) fn parse(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Array(items)) => items.first().map(Self::from_json).unwrap_or_default(),
            Ok(value) => Self::from_json(&value),
            Err(_) if is_html(body) => Self { message: html_title(body), ..Self::default() },
            Err(_) => Self { message: body.trim().to_owned(), ..Self::default() },
        }
    }

    fn from_json(value: &Value) -> Self {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let details = || error.get("details").and_then(Value::as_array).into_iter().flatten();
        let own = ["code", "type", "status"].into_iter().filter_map(|key| error.get(key));
        let codes = own.chain(details().filter_map(|detail| detail.get("reason"))).filter_map(code_text).collect();
        let message = [error.get("message"), Some(error), value.get("message"), value.get("detail"), value.get("msg")]
            .into_iter()
            .flatten()
            .find_map(Value::as_str);
        let retry_delay = details().find_map(|detail| detail.get("retryDelay")?.as_str()).map(str::to_owned);
        Self {
            codes,
            param: error.get("param").and_then(code_text).unwrap_or_default(),
            message: message.unwrap_or_default().to_owned(),
            retry_delay,
        }
    }

    pub(super) fn has_code(&self, wanted: &[&str]) -> bool {
        self.codes.iter().any(|mark| wanted.contains(&mark.as_str()))
    }

    /// Searches for a phrase at the beginning of the message; later text may be the prompt, echoed.
    pub(super) fn mentions(&self, phrases: &[&str]) -> bool {
        let message = text::head(&self.message, 2048).to_ascii_lowercase();
        phrases.iter().any(|phrase| message.contains(phrase))
    }
}

fn code_text(value: &Value) -> Option<String> {
    match value {
        Value::String(word) => Some(word.to_ascii_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Reports whether a text is a web page rather than an answer.
pub(super) fn is_html(body: &str) -> bool {
    let start = text::head(body.trim_start_matches('\u{feff}').trim_start(), 16).to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<!--"].iter().any(|tag| start.starts_with(tag))
}

fn html_title(body: &str) -> String {
    // ASCII lowering keeps byte positions, so positions found in one fit the other.
    let lower = body.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + "<title>".len()).and_then(|from| {
        let to = lower.get(from..)?.find("</title>")? + from;
        body.get(from..to)
    });
    match title.map(str::trim) {
        Some(title) if !title.is_empty() => format!("an HTML page, `{title}`"),
        _ => "an HTML page".to_owned(),
    }
}

/// Returns one safe line of a server's text: no control characters, no key, bounded in length.
pub(super) fn safe_excerpt(server_text: &str, key: Option<&Secret>) -> String {
    // Control characters go first: a key interrupted by one would be whole again afterwards.
    let mut line = without_key(&text::strip_control(server_text), key);
    line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Joining lines can do the same to a key that contains a space.
    line = without_key(&line, key);
    let cut = text::head(&line, EXCERPT_CAP);
    if cut.len() < line.len() { format!("{cut}…") } else { line }
}

/// Removes a key from a text.
fn without_key(text: &str, key: Option<&Secret>) -> String {
    match key.map(|key| key.expose().trim()) {
        Some(key) if !key.is_empty() => text.replace(key, "…"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        #[track_caller]
        fn check(body: &str, marks: &[&str], message: &str) {
            let parsed = ProviderErrorBody::parse(body);
            assert_eq!(
                (parsed.codes, parsed.message.as_str()),
                (marks.iter().map(|m| (*m).to_owned()).collect(), message)
            );
        }
        check(r#"{"error":{"message":"No","type":"Server_Error","code":null}}"#, &["server_error"], "No");
        check(r#"{"error":{"code":"1113","message":"Insufficient balance"}}"#, &["1113"], "Insufficient balance");
        check(
            r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
            &["429", "resource_exhausted"],
            "slow",
        );
        check(r#"{"error":"model not found"}"#, &[], "model not found");
        check(r#"{"detail":"Not Found"}"#, &[], "Not Found");
        check("<html><head><TITLE> 502 Bad Gateway</TITLE></head>", &[], "an HTML page, `502 Bad Gateway`");
        check("\u{feff}<!DOCTYPE html><p>ü", &[], "an HTML page");
        check("upstream connect error\n", &[], "upstream connect error");
        check("", &[], "");
        check("[]", &[], "");
        check("17", &[], "");
    }

    #[test]
    fn excerpts_do_not_contain_the_key() {
        let key = Secret::new("sk-live-123\n");
        for (words, want) in [
            ("bad key sk-live-123!", "bad key …!"),
            ("sk-li\u{0}ve-123", "…"),
            ("a\n\tb\u{1b}[31m c", "a b c"),
            ("", ""),
        ] {
            assert_eq!(safe_excerpt(words, Some(&key)), want);
        }
        assert_eq!(safe_excerpt(&"ü".repeat(400), None), format!("{}…", "ü".repeat(150)));
        assert_eq!(safe_excerpt("abc", Some(&Secret::new(" "))), "abc");
        let spaced = Secret::new("two words");
        assert_eq!(safe_excerpt("two \n words", Some(&spaced)), "…");
    }
}
