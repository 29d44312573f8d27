//! Records trace events: on stderr for people, and in a file for later study.
//!
//! Each event of the file is a line of JSON. One unbuffered write appends the line, so that it is
//! in the file even if the process is killed right after.

use std::fmt::Debug;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::clock;
use crate::exit::Failure;
use crate::log::ServiceLog;
use crate::private;

/// The targets whose events are recorded.
const TARGETS: [&str; 2] = ["percolator", "webindex"];

/// The targets that a server logs: those of its store and of its listener, too.
const SERVED: [&str; 4] = ["percolator", "webindex", "bigtable", "cluster_net"];

/// Begins to record events: on stderr or in the server's log down to `level`, and in `file`, if
/// there is one.
///
/// # Errors
/// If a file cannot be opened.
pub(crate) fn init(
    level: LevelFilter,
    color: bool,
    file: Option<&Path>,
    log: Option<&ServiceLog>,
) -> anyhow::Result<()> {
    let lines = file.map(open).transpose()?.map(|file| {
        // A trace that cannot be written must not stop what is traced.
        let append = move |line: &[u8]| drop((&file).write_all(line));
        EventLines { append: Box::new(append) }
    });
    let Some(log) = log else {
        subscriber(level, color, lines, std::io::stderr).try_init()?;
        return Ok(());
    };
    let writer = log.open()?;
    let shown = Targets::new().with_targets(SERVED.map(|target| (target, level)));
    let traced = tracing_subscriber::registry().with(lines.map(traced));
    if log.is_json() {
        // A server goes on if nobody takes its log.
        let append = move |line: &[u8]| drop(writer.clone().write_all(line));
        let lines = EventLines { append: Box::new(append) };
        traced.with(lines.with_filter(shown)).try_init()?;
    } else {
        let color = color && !writer.is_file();
        let make = move || writer.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(make).with_ansi(color).compact();
        traced.with(lines.with_filter(shown)).try_init()?;
    }
    Ok(())
}

/// Records the events of [`TARGETS`] as lines of JSON.
fn traced<S: Subscriber + for<'a> LookupSpan<'a>>(lines: EventLines) -> impl Layer<S> {
    let all = TARGETS.map(|target| (target, LevelFilter::DEBUG));
    lines.with_filter(Targets::new().with_targets(all))
}

/// Records the events of a command that this process runs for another one, and sends them there.
#[cfg(unix)]
pub(crate) fn relayed(
    level: LevelFilter,
    asked: &std::sync::Arc<crate::owner::asked::Asked>,
) -> tracing::Dispatch {
    let to = asked.clone();
    let lines = asked.asker().events.then(|| {
        // A trace that cannot be written must not stop what is traced.
        EventLines { append: Box::new(move |line| drop(to.event(line))) }
    });
    let to = asked.clone();
    let stderr = move || Stderr(to.clone());
    subscriber(level, asked.asker().color, lines, stderr).into()
}

/// The standard error of a command that this process runs for another one.
#[cfg(unix)]
struct Stderr(std::sync::Arc<crate::owner::asked::Asked>);

#[cfg(unix)]
impl Write for Stderr {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.stderr(data).map(|()| data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn subscriber(
    level: LevelFilter,
    color: bool,
    lines: Option<EventLines>,
    stderr: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync + for<'a> LookupSpan<'a> {
    let lines = lines.map(traced);
    let shown = TARGETS.map(|target| (target, level));
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(color)
        .compact()
        .with_filter(Targets::new().with_targets(shown));
    tracing_subscriber::registry().with(lines).with(to_stderr)
}

/// Opens the file that lines are appended to.
pub(crate) fn open(path: &Path) -> anyhow::Result<File> {
    private::writing().append(true).open(path).map_err(|error| {
        Failure::usage(
            format!("{}: cannot append events: {error}", path.display()),
            "give --events a file in a directory that exists and can be written",
        )
    })
}

/// A function that writes or sends one line.
type Append = dyn Fn(&[u8]) + Send + Sync;

/// Converts each event to one line of JSON.
struct EventLines {
    append: Box<Append>,
}

impl<S: Subscriber> Layer<S> for EventLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        line.0.insert("time".to_owned(), clock::rfc3339(clock::now_ms()).into());
        line.0.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.0.insert("target".to_owned(), event.metadata().target().into());
        event.record(&mut line);
        let mut bytes = Value::Object(line.0).to_string().into_bytes();
        bytes.push(b'\n');
        (self.append)(&bytes);
    }
}

/// The fields of an event.
#[derive(Default)]
struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_lines_with_their_fields() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = open(file.path()).unwrap();
        let append = Box::new(move |line: &[u8]| (&opened).write_all(line).unwrap());
        let layer = EventLines { append };
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "percolator::resolve", event = "rolled_back", start_ts = 7u64);
            tracing::debug!(target: "percolator::resolve", event = "rolled_forward", row = %"Bob");
        });
        let lines = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["event"], &lines[0]["start_ts"]), (&json!("rolled_back"), &json!(7)));
        assert_eq!((&lines[1]["row"], &lines[1]["level"]), (&json!("Bob"), &json!("DEBUG")));
    }
}
