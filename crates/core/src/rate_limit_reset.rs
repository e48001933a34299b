//! Parses when a rate limit ends, from response headers or from the text of providers and agents.
//!
//! Times are relative to a moment that the caller provides: preferably the response's own, so that a wrong local clock
//! does no harm.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::text;

/// No real limit is longer than a month.
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(31 * 24);

/// Returns when the provider will answer again, by the headers of a response received at `at`.
pub fn from_headers(headers: &[(String, String)], at: Timestamp) -> Option<Timestamp> {
    let get = |name: &str| {
        headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let ms = get("retry-after-ms").and_then(parse_number).and_then(|ms| after(at, ms / 1000.0));
    ms.or_else(|| parse_moment(get("retry-after")?, at)).or_else(|| exhausted_window_reset(headers, at))
}

/// Reads the windows that are used up; a window with something left did not cause the refusal.
fn exhausted_window_reset(headers: &[(String, String)], at: Timestamp) -> Option<Timestamp> {
    let left = |reset: &str| {
        let remaining = reset.replace("reset", "remaining");
        headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(&remaining))
            .and_then(|(_, value)| parse_number(value))
    };
    let resets = headers.iter().filter(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name.contains("ratelimit") && name.contains("reset") && !name.contains("overage")
    });
    let over = |name: &str| {
        // A subscription marks the window that refuses.
        let status = name.replace("reset", "status");
        let status =
            headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(&status)).map(|(_, value)| value.as_str());
        match status {
            Some(status) => status == "rejected",
            None => left(name).is_none_or(|left| left <= 0.0),
        }
    };
    resets.filter(|(name, _)| over(name)).filter_map(|(_, value)| parse_moment(value, at)).max()
}

/// Parses seconds, a duration like `6m0s`, a Unix time in seconds or milliseconds, or a date.
fn parse_moment(value: &str, at: Timestamp) -> Option<Timestamp> {
    let value = value.trim();
    match parse_number(value) {
        #[expect(clippy::cast_possible_truncation, reason = "float casts saturate, and the timestamp checks its range")]
        Some(unix) if unix >= 1e12 => {
            clamp_moment(Timestamp::from_millisecond(unix as i64).unwrap_or(Timestamp::MAX), at)
        }
        #[expect(clippy::cast_possible_truncation, reason = "float casts saturate, and the timestamp checks its range")]
        Some(unix) if unix >= 1e9 => clamp_moment(Timestamp::from_second(unix as i64).ok()?, at),
        Some(wait) => after(at, wait),
        None => parse_duration(value).and_then(|wait| after(at, wait)).or_else(|| {
            let date = value.parse::<Timestamp>().ok();
            clamp_moment(date.or_else(|| Some(jiff::fmt::rfc2822::parse(value).ok()?.timestamp()))?, at)
        }),
    }
}

/// Finds when a limit ends in the output of an agent: `…limit reached|1760000000`, `try again in 3 hours 20 minutes`,
/// `reset after 2h14m3s`, `resets at 2026-01-02T03:04:05Z`, `resets 3pm`, `try again at 3:05 PM`. A time of day
/// without a zone, or with only a zone name, is taken as UTC and is never in the past.
pub fn from_text(text: &str, now: Timestamp) -> Option<Timestamp> {
    // Longer text is not a message about a limit.
    let text = text::head(text, 16 << 10).to_ascii_lowercase();
    if let Some((_, rest)) = text.split_once("limit reached|") {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if digits.len() >= 10 {
            return parse_moment(digits, now);
        }
    }
    for lead in ["try again in ", "retry in ", "retry after ", "reset after ", "resets in ", "reset in "] {
        if let Some(wait) =
            text.match_indices(lead).find_map(|(at, _)| parse_spelled_duration(text.get(at + lead.len()..)?))
        {
            return after(now, wait);
        }
    }
    for lead in ["resets at ", "reset at ", "try again at ", "resets "] {
        let found = text.match_indices(lead).find_map(|(at, _)| {
            let rest = text.get(at + lead.len()..)?;
            parse_date(rest).and_then(|date| clamp_moment(date, now)).or_else(|| parse_clock_time(rest, now))
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Parses a date and time. One without a zone is taken as China's: z.ai is the one that writes these, and coming back
/// too early only costs one more request.
fn parse_date(text: &str) -> Option<Timestamp> {
    let text = text.to_ascii_uppercase();
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ';', ')', '|']));
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let whole = if first.contains('T') { first.to_owned() } else { format!("{first}T{second}") };
    whole.parse().ok().or_else(|| format!("{whole}+08:00").parse().ok())
}

/// Parses a wait like `6m0s`, `1h2m3.5s` and `20ms`, up to the length of the longest limit.
pub fn parse_wait(text: &str) -> Option<Duration> {
    let wait = Duration::try_from_secs_f64(parse_duration(text.trim())?).ok();
    let longest = MAX_WAIT.unsigned_abs();
    Some(wait.map_or(longest, |wait| wait.min(longest)))
}

/// Parses `3 hours 20 minutes`, `2h14m3s`, `5 days`, `20s`; returns seconds.
fn parse_spelled_duration(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace().map(|word| word.trim_matches([',', '.', ';', ')', '(']));
    let mut total = None;
    let mut next = words.next();
    while let Some(word) = next {
        if let Some(amount) = parse_number(word) {
            let Some(scale) = words.next().and_then(unit_seconds) else { break };
            total = Some(total.unwrap_or(0.0) + amount * scale);
        } else if let Some(wait) = parse_duration(word) {
            total = Some(total.unwrap_or(0.0) + wait);
        } else if word != "and" || total.is_none() {
            break;
        }
        next = words.next();
    }
    total
}

/// Parses durations like `6m0s`, `1h2m3.5s` and `20ms`; returns seconds.
fn parse_duration(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, tail) = rest.split_at_checked(digits)?;
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (name, after) = tail.split_at_checked(end)?;
        total += parse_number(amount)? * unit_seconds(name)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

fn unit_seconds(word: &str) -> Option<f64> {
    Some(match word {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" | "millisecond" | "milliseconds" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

/// Parses a time of day, `3pm` or `3:05 pm`, as its next occurrence.
fn parse_clock_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ':')?;
    let (clock, rest) = text.split_at_checked(end)?;
    let noon = match rest.trim_start().get(..2)? {
        "am" => 0,
        "pm" => 12,
        _ => return None,
    };
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "0"));
    let hour = hour.parse::<i64>().ok().filter(|hour| (1..=12).contains(hour))?;
    let minute = minute.parse::<i64>().ok().filter(|minute| (0..60).contains(minute))?;
    let midnight = now.as_second() - now.as_second().rem_euclid(86_400);
    let then = midnight + (hour % 12 + noon) * 3600 + minute * 60;
    let then = if then < now.as_second() { then + 86_400 } else { then };
    Timestamp::from_second(then).ok()
}

fn after(at: Timestamp, seconds: f64) -> Option<Timestamp> {
    let wait = SignedDuration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT).min(MAX_WAIT);
    at.checked_add(wait).ok()
}

/// Treats a moment in the past as "now".
fn clamp_moment(then: Timestamp, at: Timestamp) -> Option<Timestamp> {
    let wait = then.duration_since(at).max(SignedDuration::ZERO).min(MAX_WAIT);
    at.checked_add(wait).ok()
}

/// Parses a plain number. `f64` would also accept "inf", "nan" and exponents, which no provider means.
fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = !text.is_empty() && text.len() < 32 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: &str = "2026-01-02T10:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    #[track_caller]
    fn headers(all: &[(&str, &str)], want: Option<&str>) {
        let all: Vec<(String, String)> = all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(from_headers(&all, now()).map(|then| then.to_string()).as_deref(), want, "{all:?}");
    }

    #[test]
    fn resets_in_headers() {
        headers(&[("retry-after", "30")], Some("2026-01-02T10:00:30Z"));
        headers(&[("Retry-After-Ms", "1500"), ("retry-after", "30")], Some("2026-01-02T10:00:01.5Z"));
        headers(&[("retry-after", "Fri, 02 Jan 2026 11:00:00 GMT")], Some("2026-01-02T11:00:00Z"));
        headers(&[("retry-after", "Fri, 02 Jan 2026 09:00:00 GMT")], Some(NOW));
        headers(
            &[("x-ratelimit-reset-requests", "6m0s"), ("x-ratelimit-remaining-requests", "0")],
            Some("2026-01-02T10:06:00Z"),
        );
        headers(&[("x-ratelimit-reset-requests", "6m0s"), ("x-ratelimit-remaining-requests", "7")], None);
        headers(
            &[
                ("anthropic-ratelimit-tokens-reset", "2026-01-02T10:00:41Z"),
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-01-02T12:00:00Z"),
                ("anthropic-ratelimit-requests-remaining", "9"),
            ],
            Some("2026-01-02T10:00:41Z"),
        );
        headers(
            &[
                ("anthropic-ratelimit-unified-5h-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-reset", "1767351600"),
                ("anthropic-ratelimit-unified-7d-status", "rejected"),
                ("anthropic-ratelimit-unified-7d-reset", "1767355200"),
            ],
            Some("2026-01-02T12:00:00Z"),
        );
        headers(&[("x-ratelimit-reset", "99999999999")], Some("2026-02-02T10:00:00Z"));
        headers(&[("server", "x")], None);
        headers(&[("retry-after", "0")], Some(NOW));
        headers(&[("retry-after", "99999999999999999999999")], Some("2026-02-02T10:00:00Z"));
        headers(&[("retry-after", "-3")], None);
        headers(&[("retry-after", "soon")], None);
        headers(&[("retry-after", "inf")], None);
        headers(&[("x-ratelimit-reset", "1767348010000")], Some("2026-01-02T10:00:10Z"));
        headers(
            &[("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")],
            Some("2026-01-02T10:06:00Z"),
        );
    }

    #[test]
    fn resets_in_text() {
        for (text, want) in [
            ("Claude AI usage limit reached|1767355200", Some("2026-01-02T12:00:00Z")),
            ("You've hit your limit · resets 3pm (UTC)", Some("2026-01-02T15:00:00Z")),
            ("5-hour limit reached ∙ resets 9am", Some("2026-01-03T09:00:00Z")),
            ("usage limit reached, resets at 2026-01-02T13:00:00Z.", Some("2026-01-02T13:00:00Z")),
            ("You've hit your usage limit. Try again in 3 hours 20 minutes.", Some("2026-01-02T13:20:00Z")),
            ("try again in 1 day 2 hours and 3 minutes", Some("2026-01-03T12:03:00Z")),
            ("hit your usage limit… or try again at 3:05 PM.", Some("2026-01-02T15:05:00Z")),
            ("Your quota will reset after 2h14m3s.", Some("2026-01-02T12:14:03Z")),
            ("Please retry in 20.5s.", Some("2026-01-02T10:00:20.5Z")),
            ("12am means: resets 12am", Some("2026-01-03T00:00:00Z")),
            ("Rate limit reached for gpt-4o. Please try again in 6m0s. Visit …", Some("2026-01-02T10:06:00Z")),
            ("please retry after 13 seconds.", Some("2026-01-02T10:00:13Z")),
            ("Resets at 2026-01-02T15:00:00+02:00.", Some("2026-01-02T13:00:00Z")),
            ("will reset at 2026-01-02 20:41:44.", Some("2026-01-02T12:41:44Z")),
            ("\u{131}reset at 2026-01-02T13:00:00Z", Some("2026-01-02T13:00:00Z")),
            ("reset at 2026-13-99 99:99:99", None),
            ("will reset at midnight", None),
            ("reset at ", None),
            ("try again in 3 moons", None),
            ("try again in a while", None),
            ("resets soon", None),
            ("resets 13pm", None),
            ("", None),
        ] {
            assert_eq!(from_text(text, now()).map(|then| then.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn waits() {
        for (text, want_ms) in [
            ("6m0s", Some(360_000)),
            ("1s", Some(1_000)),
            ("20ms", Some(20)),
            ("1h2m3.5s", Some(3_723_500)),
            ("2m59.56s", Some(179_560)),
            ("1d", Some(86_400_000)),
            ("999999999999999999d", Some(31 * 86_400_000)),
            ("", None),
            ("s", None),
            ("5", None),
            ("5parsecs", None),
            ("1s!", None),
            ("1.2.3s", None),
            ("5\u{fc}", None),
        ] {
            assert_eq!(parse_wait(text), want_ms.map(Duration::from_millis), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            text in "(.{0,20}(try again in|resets at|resets|limit reached[|])[ 0-9a-z:.TZ-]{0,24}){0,3}",
            value in "[ -~]{0,30}",
        ) {
            for then in [
                from_text(&text, now()),
                from_headers(&[("retry-after".into(), value.clone())], now()),
                from_headers(&[("x-ratelimit-reset".into(), value.clone())], now()),
            ].into_iter().flatten() {
                prop_assert!(then >= now() && then.duration_since(now()) <= MAX_WAIT);
            }
        }
    }
}
