//! Writes durations in words, for the console and for the commands of `percolator`.

use std::time::Duration;

/// A duration in words: `350 ms`, `41.2 s`, `4 min`, `3.5 h`, `12 days`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(percolator_console::duration_text(Duration::from_millis(41_230)), "41.2 s");
/// ```
pub fn duration_text(duration: Duration) -> String {
    match duration.as_secs_f64() {
        s if s < 1.0 => format!("{} ms", duration.as_millis()),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_say_them() {
        let written = [0.0, 0.25, 1.83, 42.0, 240.0, 7_200.0, 200_000.0];
        let written = written.map(|s| duration_text(Duration::from_secs_f64(s)));
        assert_eq!(written, ["0 ms", "250 ms", "1.8 s", "42.0 s", "4 min", "2.0 h", "2 days"]);
    }
}
