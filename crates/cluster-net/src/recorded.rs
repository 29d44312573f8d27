//! Records the events of a test.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// The lines of the log of this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<Vec<u8>>>);

impl Recorded {
    /// Records until the guard is dropped.
    pub(crate) fn begin() -> (Recorded, DefaultGuard) {
        let log = Recorded::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().map(str::to_owned).collect()
    }

    /// How many lines have an event.
    pub(crate) fn count(&self, event: &str) -> usize {
        let event = format!("event=\"{event}\"");
        self.lines().iter().filter(|line| line.contains(&event)).count()
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
