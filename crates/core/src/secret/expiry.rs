//! Parses and formats the expiry of a credential.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::text;

/// The number of days before its expiry from which a credential is mentioned.
pub const EXPIRY_WARNING_DAYS: i64 = 14;

const MAX_DAYS: i64 = 3650;

/// The reasons why a text is not an expiry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadExpiry {
    #[error("`{text}` is neither a date nor a number of days")]
    Form { text: String },
    #[error("`{text}` is in the past")]
    Past { text: String },
    #[error("`{text}` is more than ten years away")]
    Far { text: String },
}

impl BadExpiry {
    pub fn hint(&self) -> Option<String> {
        Some("write a date like 2027-01-31, or days like 90".to_owned())
    }
}

/// Parses `2027-01-31` (the end of that day, UTC), a time like `2027-01-31T10:00:00Z`, or `90`, `90d` from now.
pub fn parse_expiry(asked: &str, now: Timestamp) -> Result<Timestamp, BadExpiry> {
    let shown = || text::strip_control(text::first_line(asked, 40));
    let form = || BadExpiry::Form { text: shown() };
    let word = asked.trim();
    let end = if let Ok(days) = word.strip_suffix('d').unwrap_or(word).parse::<i64>() {
        if days > MAX_DAYS {
            return Err(BadExpiry::Far { text: shown() });
        }
        now.checked_add(SignedDuration::from_hours(days.max(-1) * 24)).map_err(|_| form())?
    } else if let Ok(at) = word.parse::<Timestamp>() {
        at
    } else {
        let date: Date = word.parse().map_err(|_| form())?;
        let day = date.tomorrow().map_err(|_| form())?.to_zoned(TimeZone::UTC).map_err(|_| form())?;
        day.timestamp()
    };
    if end <= now {
        return Err(BadExpiry::Past { text: shown() });
    }
    if end.duration_since(now) > SignedDuration::from_hours((MAX_DAYS + 1) * 24) {
        return Err(BadExpiry::Far { text: shown() });
    }
    Ok(end)
}

/// Returns the number of whole days left; negative when it has expired.
pub fn days_left(end: Timestamp, now: Timestamp) -> i64 {
    let seconds = end.duration_since(now).as_secs();
    if seconds < 0 { seconds.div_euclid(24 * 3600) } else { seconds / (24 * 3600) }
}

/// Returns a sentence that says when it expires.
pub fn expiry_text(end: Option<Timestamp>, now: Timestamp) -> String {
    let Some(end) = end else { return "no end known".to_owned() };
    match days_left(end, now) {
        -1 => "expired today".to_owned(),
        past if past < 0 => format!("expired {} days ago", -past - 1).replace(" 1 days", " 1 day"),
        0 => "expires today".to_owned(),
        1 => "expires in 1 day".to_owned(),
        days => format!("expires in {days} days"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = match parse_expiry(text, now()) {
            Ok(end) => format!("{end}: {}", expiry_text(Some(end), now())),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn expiries() {
        check("90", "2027-02-13T12:00:00Z: expires in 90 days");
        check("1d", "2026-11-16T12:00:00Z: expires in 1 day");
        check("2026-11-15", "2026-11-16T00:00:00Z: expires today");
        check("2027-01-31", "2027-02-01T00:00:00Z: expires in 77 days");
        check("2027-01-31T10:00:00Z", "2027-01-31T10:00:00Z: expires in 76 days");
        check("0", "`0` is in the past");
        check("-5", "`-5` is in the past");
        check("2026-11-14", "`2026-11-14` is in the past");
        check("99999", "`99999` is more than ten years away");
        check("2099-01-01", "`2099-01-01` is more than ten years away");
        check("soon", "`soon` is neither a date nor a number of days");
        check("2026-02-30", "`2026-02-30` is neither a date nor a number of days");
        check("", "`` is neither a date nor a number of days");
    }

    #[test]
    fn expired_credentials() {
        for (end, want) in [
            ("2026-11-15T11:59:59Z", "expired today"),
            ("2026-11-14T11:59:59Z", "expired 1 day ago"),
            ("2026-11-05T11:59:59Z", "expired 10 days ago"),
            ("2026-11-15T12:00:01Z", "expires today"),
        ] {
            assert_eq!(expiry_text(Some(end.parse().unwrap()), now()), want);
        }
        assert_eq!(expiry_text(None, now()), "no end known");
    }

    proptest! {
        #[test]
        fn never_panics_and_lies_ahead(text in "\\PC{0,20}|-?[0-9]{1,22}d?|[0-9]{4}-[0-9]{2}-[0-9]{2}") {
            if let Ok(end) = parse_expiry(&text, now()) {
                prop_assert!(end > now());
                prop_assert!(days_left(end, now()) <= MAX_DAYS + 1);
            }
        }
    }
}
