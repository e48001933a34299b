//! When a provider says it will answer again: the headers and phrases that state it, read without a clock.
//!
//! Dates are measured against the answer's own `Date` header, so a wrong clock on our side does no harm.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;

use super::said::Said;

/// No honest limit is longer than a month.
const LONGEST: Duration = Duration::from_hours(31 * 24);

/// Returns how long the provider asks us to stay away, the most explicit statement first.
pub(super) fn stated(headers: &HeaderMap, said: &Said) -> Option<Duration> {
    let now = header(headers, "date").and_then(http_date);
    retry_after(headers, now)
        .or_else(|| said.retry_delay.as_deref().and_then(duration))
        .or_else(|| windows(headers, now))
        .or_else(|| phrase(&said.message))
        .or_else(|| until(stated_time(&said.message)?, now))
        .map(|wait| wait.min(LONGEST))
}

fn retry_after(headers: &HeaderMap, now: Option<Timestamp>) -> Option<Duration> {
    if let Some(ms) = header(headers, "retry-after-ms").and_then(number) {
        return seconds(ms / 1000.0);
    }
    let value = header(headers, "retry-after")?;
    number(value).and_then(seconds).or_else(|| until(http_date(value)?, now))
}

/// Reads the windows that are used up; one that has something left is not what stopped us.
fn windows(headers: &HeaderMap, now: Option<Timestamp>) -> Option<Duration> {
    const WINDOWS: [(&str, &str); 7] = [
        ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
        ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
        ("x-ratelimit-reset", "x-ratelimit-remaining"),
        ("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"),
        ("anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
        ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
        ("anthropic-ratelimit-output-tokens-reset", "anthropic-ratelimit-output-tokens-remaining"),
    ];
    WINDOWS
        .into_iter()
        .filter(|(_, left)| header(headers, left).and_then(number).is_none_or(|left| left <= 0.0))
        .filter_map(|(reset, _)| moment(header(headers, reset)?, now))
        .max()
}

/// Reads a duration, seconds, a Unix time in seconds or milliseconds, or a date.
fn moment(value: &str, now: Option<Timestamp>) -> Option<Duration> {
    match number(value) {
        #[expect(clippy::cast_possible_truncation, reason = "float casts saturate, and the timestamp checks its range")]
        Some(unix) if unix >= 1e12 => until(Timestamp::from_millisecond(unix as i64).ok()?, now),
        #[expect(clippy::cast_possible_truncation, reason = "float casts saturate, and the timestamp checks its range")]
        Some(unix) if unix >= 1e9 => until(Timestamp::from_second(unix as i64).ok()?, now),
        Some(wait) => seconds(wait),
        None => duration(value).or_else(|| until(value.parse().ok().or_else(|| http_date(value))?, now)),
    }
}

/// Finds "try again in 6m0s" and "try again in 20 seconds" in a message.
fn phrase(message: &str) -> Option<Duration> {
    let lower = message.to_ascii_lowercase();
    let rest = ["try again in ", "retry in ", "retry after "].iter().find_map(|lead| {
        let at = lower.find(lead)? + lead.len();
        lower.get(at..)
    })?;
    let mut words = rest.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', ',', ';', ')']);
    if let Some(amount) = number(first) {
        let unit = words.next().unwrap_or_default();
        let scale = match unit.trim_end_matches(['.', ',', ';', ')']) {
            "ms" | "milliseconds" => 0.001,
            "s" | "second" | "seconds" => 1.0,
            "minute" | "minutes" => 60.0,
            "hour" | "hours" => 3600.0,
            _ => return None,
        };
        return seconds(amount * scale);
    }
    duration(first)
}

/// Finds "will reset at 2026-08-14T00:00:00Z" in a message. A time without a zone is taken for China's: z.ai is the one
/// that writes such, and coming back too early only means to ask once more.
fn stated_time(message: &str) -> Option<Timestamp> {
    let lower = message.to_ascii_lowercase();
    let at = ["reset at ", "resets at "].iter().find_map(|lead| Some(lower.find(lead)? + lead.len()))?;
    let rest = message.get(at..)?.trim_start();
    let mut words = rest.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ';', ')']));
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let whole = if first.contains(['T', 't']) { first.to_owned() } else { format!("{first}T{second}") };
    whole.parse().ok().or_else(|| format!("{whole}+08:00").parse().ok())
}

/// Reads durations like `6m0s`, `1h2m3.5s` and `20ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, tail) = rest.split_at_checked(digits)?;
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at_checked(unit_end)?;
        let scale = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += amount.parse::<f64>().ok()? * scale;
        rest = after;
    }
    seconds(total)
}

fn until(then: Timestamp, now: Option<Timestamp>) -> Option<Duration> {
    // A moment that has passed means "now".
    Some(Duration::try_from(then.duration_since(now?)).unwrap_or(Duration::ZERO))
}

fn http_date(text: &str) -> Option<Timestamp> {
    Some(jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp())
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // `f64` would also take "inf", "nan" and exponents, which no provider means.
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

fn seconds(wait: f64) -> Option<Duration> {
    (wait >= 0.0).then(|| Duration::try_from_secs_f64(wait).unwrap_or(LONGEST).min(LONGEST))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn headers() {
        #[track_caller]
        fn check(headers: &[(&'static str, &str)], want_ms: Option<u64>) {
            assert_eq!(stated(&map(headers), &Said::default()), want_ms.map(Duration::from_millis), "{headers:?}");
        }
        const NOW: (&str, &str) = ("date", "Sun, 15 Nov 2026 10:00:00 GMT");
        check(&[], None);
        check(&[("retry-after", "12")], Some(12_000));
        check(&[("retry-after", "0")], Some(0));
        check(&[("retry-after", "1.5")], Some(1_500));
        check(&[("retry-after", "-3")], None);
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "inf")], None);
        check(&[("retry-after", "99999999999999999999999")], Some(31 * 86_400_000));
        check(&[("retry-after", "9"), ("retry-after-ms", "250")], Some(250));
        check(&[NOW, ("retry-after", "Sun, 15 Nov 2026 10:02:00 GMT")], Some(120_000));
        check(&[NOW, ("retry-after", "Sun, 15 Nov 2026 09:00:00 GMT")], Some(0));
        check(&[("retry-after", "Sun, 15 Nov 2026 10:02:00 GMT")], None);
        check(&[("x-ratelimit-reset-requests", "6m0s")], Some(360_000));
        check(&[("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360_000));
        check(
            &[
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
                ("x-ratelimit-remaining-tokens", "9000"),
            ],
            Some(1_000),
        );
        check(&[("x-ratelimit-reset-tokens", "6m0s"), ("x-ratelimit-remaining-tokens", "1")], None);
        check(&[NOW, ("anthropic-ratelimit-tokens-reset", "2026-11-15T10:00:30Z")], Some(30_000));
        check(&[NOW, ("x-ratelimit-reset", "1794736810000")], Some(10_000));
        check(&[NOW, ("x-ratelimit-reset", "1794736810")], Some(10_000));
    }

    #[test]
    fn durations() {
        for (text, want_ms) in [
            ("6m0s", Some(360_000)),
            ("1s", Some(1_000)),
            ("20ms", Some(20)),
            ("1h2m3.5s", Some(3_723_500)),
            ("2m59.56s", Some(179_560)),
            ("1d", Some(86_400_000)),
            ("", None),
            ("s", None),
            ("5", None),
            ("5parsecs", None),
            ("1s!", None),
            ("1.2.3s", None),
            ("5ü", None),
        ] {
            assert_eq!(duration(text), want_ms.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn phrases() {
        for (text, want_ms) in [
            ("Rate limit reached for gpt-4o. Please try again in 6m0s. Visit …", Some(360_000)),
            ("Please try again in 20ms.", Some(20)),
            ("please retry after 13 seconds.", Some(13_000)),
            ("Try again in 2 minutes", Some(120_000)),
            ("try again in a while", None),
            ("try again in ", None),
            ("try again in 3 moons", None),
        ] {
            assert_eq!(phrase(text), want_ms.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, want) in [
            ("Your limit will reset at 2026-08-14T00:00:00Z", Some("2026-08-14T00:00:00Z")),
            ("Resets at 2026-08-07T05:00:00+02:00.", Some("2026-08-07T03:00:00Z")),
            ("will reset at 2026-08-25 07:41:44.", Some("2026-08-24T23:41:44Z")),
            ("will reset at midnight", None),
            ("reset at ", None),
            ("reset at 2026-13-99 99:99:99", None),
            ("ıreset at 2026-08-14T00:00:00Z", Some("2026-08-14T00:00:00Z")),
            ("", None),
        ] {
            assert_eq!(stated_time(text), want.map(|want| want.parse().unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_calmly(name in 0..6_usize, value in "[ -~]{0,40}", message in ".{0,60}") {
            let name = ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens",
                "anthropic-ratelimit-tokens-reset", "date"][name];
            let said = Said { message: format!("try again in {message} reset at {message}"), ..Said::default() };
            let wait = stated(&map(&[(name, &value), ("date", "Sun, 15 Nov 2026 10:00:00 GMT")]), &said);
            prop_assert!(wait.is_none_or(|wait| wait <= LONGEST));
        }
    }
}
