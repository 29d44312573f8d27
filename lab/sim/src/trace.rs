//! Records the events of a run: as one hash and, if the caller asked for it, as lines of text.

use std::time::Duration;

use crate::random::{mix, mix_bytes};

/// The trace of one run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(keep_lines: bool) -> Self {
        Trace { hash: 0, lines: keep_lines.then(Vec::new) }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    /// Records an event: its kind, two numbers that distinguish it, and words for the reader.
    pub(crate) fn note(
        &mut self,
        now: Duration,
        kind: &'static str,
        numbers: (u64, u64),
        words: impl FnOnce() -> String,
    ) {
        let nanos = now.as_nanos() as u64;
        let named = mix_bytes(self.hash, kind.as_bytes());
        self.hash = mix(mix(mix(named, nanos), numbers.0), numbers.1);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6}  {kind:<10} {}", now.as_secs_f64(), words()));
        }
    }
}
