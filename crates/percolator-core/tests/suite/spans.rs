//! Tests spans: a transaction, and an observer's run, as a trace shows them.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};

use percolator_core::{Attempt, Registration};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::notifications::one_thread;
use crate::world::{A, BAL, World, get, observer, run, set};

/// Keeps the spans of Percolator and the events in them.
#[derive(Debug, Clone, Default)]
struct Trace(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    spans: BTreeMap<u64, Span>,
    entered: Vec<u64>,
    events: Vec<(Option<u64>, String)>,
}

#[derive(Debug)]
struct Span {
    name: &'static str,
    parent: Option<u64>,
    fields: Fields,
}

/// Fields by name.
#[derive(Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["percolator::transaction", "percolator::observer"].contains(&metadata.target())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut state = self.0.lock().unwrap();
        let id = state.spans.len() as u64 + 1;
        let contextual = span.is_contextual().then(|| state.entered.last().copied()).flatten();
        let parent = span.parent().map(Id::into_u64).or(contextual);
        let mut fields = Fields::default();
        span.record(&mut fields);
        state.spans.insert(id, Span { name: span.metadata().name(), parent, fields });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut state = self.0.lock().unwrap();
        values.record(&mut state.spans.get_mut(&span.into_u64()).unwrap().fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let contextual = event.is_contextual().then(|| state.entered.last().copied()).flatten();
        let span = event.parent().map(Id::into_u64).or(contextual);
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.0["event"].trim_matches('"').to_owned();
        state.events.push((span, name));
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut state = self.0.lock().unwrap();
        let at = state.entered.iter().rposition(|entered| *entered == span.into_u64());
        state.entered.remove(at.unwrap());
    }
}

impl State {
    /// The spans below a given span, indented, with fields and events.
    fn tree(&self, parent: Option<u64>, depth: usize, text: &mut String) {
        for (id, span) in self.spans.iter().filter(|(_, span)| span.parent == parent) {
            write!(text, "{:1$}{2}", "", 2 * depth, span.name).unwrap();
            for (name, value) in &span.fields.0 {
                write!(text, " {name}={value}").unwrap();
            }
            let events = self.events.iter().filter(|(of, _)| *of == Some(*id));
            events.for_each(|(_, event)| write!(text, " [{event}]").unwrap());
            text.push('\n');
            self.tree(Some(*id), depth + 1, text);
        }
    }
}

/// A second subscriber, which no test uses. With a single subscriber, `tracing` asks only the
/// thread that comes to a span first whether the span is wanted. If that thread belongs to
/// another test, the answer is no, and it is kept for all threads.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Trace::default()));

/// The spans that a test makes.
fn trace(test: impl AsyncFnOnce(World)) -> String {
    LazyLock::force(&OTHER);
    let trace = Trace::default();
    tracing::subscriber::with_default(trace.clone(), || run(test));
    let (state, mut text) = (trace.0.lock().unwrap(), String::new());
    assert!(state.entered.is_empty(), "{state:?}");
    state.tree(None, 0, &mut text);
    text
}

#[test]
fn each_attempt_is_a_span_with_its_commit_and_its_end() {
    let text = trace(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let first = AtomicBool::new(true);
        let transfer = async |mut tx: Attempt| {
            if first.swap(false, SeqCst) {
                set(&client, &table, &[("a", "1")]).await;
            }
            tx.set(&table, "a", &BAL, "2")
        };
        client.named("transfer").transact(transfer).await.unwrap();
    });
    let expected = "\
percolator.transaction attempt=1 name=\"transfer\" start_ts=1 [retry]
  percolator.transaction attempt=1 commit_ts=3 start_ts=2
    percolator.commit
  percolator.commit [commit_failed]
percolator.transaction attempt=2 commit_ts=5 name=\"transfer\" start_ts=4
  percolator.commit
";
    assert_eq!(text, expected);
}

#[test]
fn an_observer_s_run_is_a_span_around_its_transaction() {
    let text = trace(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let copy = observer(|tx, change| {
            Box::pin(async move { tx.set(&change.table, &change.row, &A, "copied") })
        });
        let copy = Registration::strong("copy", "t", &BAL, copy);
        let workers = client.observe(vec![copy], one_thread()).await.unwrap();
        set(&client, &table, &[("r", "1")]).await;
        client.wait_idle(None).await.unwrap();
        workers.stop().await;
        assert!(get(&client, &table, "r").await.is_some());
    });
    let run = text.split_inclusive('\n').skip_while(|line| !line.starts_with("percolator.run"));
    let run: Vec<&str> = run.take(3).collect();
    assert_eq!(
        run[0],
        "percolator.run observer=\"copy\" row=r table=\"t\" [observer_started] [observer_committed]\n"
    );
    assert!(run[1].starts_with("  percolator.transaction attempt=1 commit_ts="), "{text}");
    assert!(run[1].contains(" name=\"copy\" start_ts="), "{text}");
    assert_eq!(run[2], "    percolator.commit\n");
}
