//! For tests: holds the engine's thread at chosen points while it writes a buffer out. The
//! engine's log shows how far the thread is, and which thread deletes a file or syncs a journal.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(120);

/// A point where the engine's thread stops.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    reached: AtomicBool,
    released: AtomicBool,
}

/// The points at which the writing of one keyspace's buffers is held.
#[derive(Debug)]
pub(crate) struct Held {
    keyspace: &'static str,
    /// The engine has synced the journal and has not numbered the run yet.
    pub(crate) synced: Stop,
    /// The engine has written the run and has not added it to the list of files yet.
    pub(crate) written: Stop,
    /// The engine has sealed the buffer by itself.
    pub(crate) rotated: AtomicBool,
}

impl Stop {
    const fn new() -> Self {
        Stop { reached: AtomicBool::new(false), released: AtomicBool::new(false) }
    }

    fn stop(&self) {
        self.reached.store(true, Ordering::SeqCst);
        wait_until("it may go on", || self.released.load(Ordering::SeqCst));
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

impl Held {
    pub(crate) const fn new(keyspace: &'static str) -> Self {
        let rotated = AtomicBool::new(false);
        Held { keyspace, synced: Stop::new(), written: Stop::new(), rotated }
    }
}

/// One for the test of `seal.rs`, and two for those of `calm.rs`.
pub(crate) static SEALED: Held = Held::new("held");
pub(crate) static CALM: Held = Held::new("calm");
pub(crate) static UNOPENED: Held = Held::new("unopened");

thread_local! {
    /// The keyspace whose buffer this thread writes out.
    static WRITES_OUT: Cell<Option<&'static Held>> = const { Cell::new(None) };
}

/// The names of threads that did something, each with the engine's message, which has the path.
#[derive(Debug)]
struct Doers(Mutex<Vec<(String, String)>>);

/// The threads that deleted files of runs.
static DELETED: Doers = Doers(Mutex::new(Vec::new()));
/// The threads that synced the content of journals.
static SYNCED: Doers = Doers(Mutex::new(Vec::new()));

impl Doers {
    fn note(&self, message: String) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push((thread, message));
    }

    fn of(&self, dir: &Path) -> Vec<String> {
        log_engine();
        let dir = dir.display().to_string();
        let done = self.0.lock().unwrap();
        let done = done.iter().filter(|(_, message)| message.contains(&dir));
        done.map(|(thread, _)| thread.clone()).collect()
    }
}

/// The names of the threads that have deleted files of runs in this directory since the first
/// call.
pub(crate) fn deleters(dir: &Path) -> Vec<String> {
    DELETED.of(dir)
}

/// The names of the threads that have synced the content of journals in this directory since the
/// first call.
pub(crate) fn syncers(dir: &Path) -> Vec<String> {
    SYNCED.of(dir)
}

struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if !["fjall", "lsm_tree"].iter().any(|engine| record.target().starts_with(engine)) {
            return;
        }
        let message = record.args().to_string();
        if message.starts_with("Cleanup deleted table") {
            return DELETED.note(message);
        }
        if message.starts_with("Persisting journal") && message.ends_with("mode=SyncData") {
            return SYNCED.note(message);
        }
        for held in [&SEALED, &CALM, &UNOPENED] {
            if message.starts_with(&format!("Flushing keyspace \"{}\"", held.keyspace)) {
                WRITES_OUT.set(Some(held));
                held.synced.stop();
            } else if message.contains(&format!("WorkerMessage:Rotate(\"{}\"", held.keyspace)) {
                held.rotated.store(true, Ordering::SeqCst);
            }
        }
        if message.starts_with("Flushed memtable(s)")
            && let Some(held) = WRITES_OUT.take()
        {
            held.written.stop();
        }
    }

    fn flush(&self) {}
}

/// Holds the thread at these points until the result is dropped.
pub(crate) fn hold(held: &'static Held) -> impl Drop {
    log_engine();
    Over(held)
}

fn log_engine() {
    static LOG: Once = Once::new();
    LOG.call_once(|| {
        log::set_boxed_logger(Box::new(Log)).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

struct Over(&'static Held);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.synced.release();
        self.0.written.release();
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONGEST, "waited too long until {what}");
        std::thread::yield_now();
    }
}
