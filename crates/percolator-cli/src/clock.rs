//! Formats and reads wall-clock times and durations as people write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percolator::admin::Age;
pub(crate) use percolator_console::duration_text as age;
use serde_json::{Value, json};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time as in RFC 3339, in UTC.
pub(crate) fn rfc3339(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Converts a number of days since 1970 to year, month and day of the Gregorian calendar. In the
/// computation a year begins in March, so that a leap day is the last day of its year. The
/// calendar repeats every 400 years, which have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// Formats the age of a timestamp in words: `4 min`, `at least 4 min`, `4 min to 2.5 h`, `not
/// known`.
pub(crate) fn age_of(Age { at_least, at_most }: Age) -> String {
    match at_most {
        // The two bounds differ by no more than rounding does: one of them is enough.
        Some(most) if most <= at_least.mul_f64(1.25) + Duration::from_secs(1) => age(at_least),
        Some(most) => format!("{} to {}", age(at_least), age(most)),
        None if at_least.is_zero() => "not known".to_owned(),
        None => format!("at least {}", age(at_least)),
    }
}

/// Returns the age of a timestamp in JSON, in seconds.
pub(crate) fn age_json(Age { at_least, at_most }: Age) -> Value {
    json!({
        "at_least_s": at_least.as_secs_f64(),
        "at_most_s": at_most.map(|most| most.as_secs_f64()),
    })
}

/// Reads a duration: a number with `ms`, `s`, `m` or `h`. A number without a unit is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown unit {other:?}: write ms, s, m or h, as in 10s")),
    };
    let number: f64 = digits.parse().map_err(|_| "write a number and a unit, as in 10s")?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_735_689_599_001), "2024-12-31T23:59:59.001Z");
        assert_eq!(rfc3339(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn durations_are_read_and_shown() {
        assert_eq!(duration("10s").unwrap(), Duration::from_secs(10));
        assert_eq!(duration("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("3").unwrap(), Duration::from_secs(3));
        for wrong in ["", "s", "10d", "-1s", "1e30h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(age(Duration::from_millis(41_230)), "41.2 s");
        assert_eq!(age(Duration::from_millis(350)), "350 ms");
        let ages = [240, 9_000, 260_000].map(|s| age(Duration::from_secs(s)));
        assert_eq!(ages, ["4 min", "2.5 h", "3 days"]);
        let seconds = Duration::from_secs;
        let of = |least, most: Option<u64>| {
            age_of(Age { at_least: seconds(least), at_most: most.map(seconds) })
        };
        assert_eq!([of(240, Some(250)), of(240, None)], ["4 min", "at least 4 min"]);
        assert_eq!([of(240, Some(9_000)), of(0, None)], ["4 min to 2.5 h", "not known"]);
    }
}
