//! Reads from an error answer when the provider will answer again.

use std::time::Duration;

use jiff::Timestamp;
use ralph_core::rate_limit_reset;
use reqwest::header::{DATE, HeaderMap};

use super::error_body::ProviderErrorBody;

/// Returns how long the provider asks clients to wait, the most explicit statement first.
pub(super) fn stated_delay(headers: &HeaderMap, error: &ProviderErrorBody) -> Option<Duration> {
    let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(str::to_owned);
    let sent =
        headers.get(DATE).and_then(text).and_then(|date| Some(jiff::fmt::rfc2822::parse(&date).ok()?.timestamp()));
    // The answer's own clock, if it has one.
    let at = sent.unwrap_or_else(Timestamp::now);
    let pairs: Vec<(String, String)> =
        headers.iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect();
    let until = |then: Timestamp| Duration::try_from(then.duration_since(at)).unwrap_or_default();
    rate_limit_reset::from_headers(&pairs, at)
        .map(until)
        .or_else(|| error.retry_delay.as_deref().and_then(rate_limit_reset::parse_wait))
        .or_else(|| rate_limit_reset::from_text(&error.message, at).map(until))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    const NOW: (&str, &str) = ("date", "Sun, 15 Nov 2026 10:00:00 GMT");

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], delay: Option<&str>, message: &str, want_ms: Option<u64>) {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let map: HeaderMap = headers.iter().map(pair).collect();
        let error = ProviderErrorBody {
            message: message.to_owned(),
            retry_delay: delay.map(str::to_owned),
            ..ProviderErrorBody::default()
        };
        assert_eq!(stated_delay(&map, &error), want_ms.map(Duration::from_millis), "{headers:?} {delay:?} {message}");
    }

    #[test]
    fn the_most_explicit_statement_wins() {
        let message = "Please try again in 6m0s.";
        check(&[], None, "", None);
        check(&[], None, message, Some(360_000));
        check(&[], Some("7s"), message, Some(7_000));
        check(&[("retry-after", "12")], Some("7s"), message, Some(12_000));
        check(&[("retry-after", "9"), ("retry-after-ms", "250")], Some("7s"), message, Some(250));
        check(
            &[("x-ratelimit-reset-tokens", "2s"), ("x-ratelimit-remaining-tokens", "1")],
            None,
            message,
            Some(360_000),
        );
    }

    #[test]
    fn dates_are_relative_to_the_answers_own_date() {
        check(&[NOW, ("retry-after", "Sun, 15 Nov 2026 10:02:00 GMT")], None, "", Some(120_000));
        check(&[NOW, ("retry-after", "Sun, 15 Nov 2026 09:00:00 GMT")], None, "", Some(0));
        check(&[("retry-after", "Sun, 15 Nov 2020 10:02:00 GMT")], None, "", Some(0));
        check(&[NOW, ("anthropic-ratelimit-tokens-reset", "2026-11-15T10:00:30Z")], None, "", Some(30_000));
        check(&[NOW], None, "Your limit will reset at 2026-11-15T10:00:05Z", Some(5_000));
        check(&[NOW], None, "Your limit will reset at 2026-11-15 18:00:05", Some(5_000));
    }
}
