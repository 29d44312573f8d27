//! Computes the time until which a request may be applied.
//!
//! A client without an answer at its deadline assumes that the request will not be applied
//! much later. Garbage collection relies on that where the store has no
//! [floor](bigtable::Store::floor) to refuse late requests. A request may wait in the engine's
//! queue while the process or the disk stands still. So the engine checks the deadline again
//! when the request's turn comes.

use std::time::Duration;

use bigtable_fjall::RowEdit;
use cluster_net::{Came, Moment};
use tonic::Request;

/// The header with the time that a client allows for a request.
const TIMEOUT: &str = "grpc-timeout";

/// The time until which a request may be applied; unlimited if its client names none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline(Option<Moment>);

impl Deadline {
    /// The deadline of a request, counted from the arrival of its headers.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let came = request.extensions().get::<Came>().map_or_else(Moment::now, |came| came.0);
        let header = request.metadata().get(TIMEOUT).and_then(|value| value.to_str().ok());
        Deadline(header.and_then(timeout).map(|timeout| came.later(timeout)))
    }

    /// Gives an edit this deadline.
    pub(crate) fn of_edit(self, edit: RowEdit) -> RowEdit {
        match self.0 {
            Some(until) => edit.unless(move || until.is_over()),
            None => edit,
        }
    }
}

/// Parses a duration of gRPC: up to eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(3600 * count)),
        'M' => Some(Duration::from_secs(60 * count)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_grpc_writes_them() {
        for (text, millis) in [("20S", 20_000), ("1H", 3_600_000), ("2M", 120_000), ("7m", 7)] {
            assert_eq!(timeout(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(timeout("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(timeout("5n"), Some(Duration::from_nanos(5)));
        for text in ["", "S", "5", "5s", "-5S", "+5S", "123456789S", "5 S", "5µ"] {
            assert_eq!(timeout(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_time_of_a_request_counts_from_when_it_came() {
        let mut request = Request::new(());
        assert!(Deadline::of(&request).0.is_none());
        request.set_timeout(Duration::from_secs(60));
        assert!(Deadline::of(&request).0.is_some_and(|until| !until.is_over()));
        let came = Moment::now();
        request.extensions_mut().insert(Came(came));
        assert_eq!(Deadline::of(&request).0, Some(came.later(Duration::from_secs(60))));
        request.set_timeout(Duration::ZERO);
        assert!(Deadline::of(&request).0.is_some_and(Moment::is_over));
    }
}
