//! Writes `/metrics`: the recorder and the last look through the store, as OpenMetrics text for
//! Prometheus.
//!
//! Labels hold names of tables, families, observers and transactions, never a key or a value.

use std::collections::BTreeMap;
use std::fmt::Error;

use percolator::observe::Backlog;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::process::Process;
use crate::recorder::{ByName, Counts, Histogram, read};
use crate::state::App;
use crate::survey::Look;

/// The bounds of all histograms, in seconds.
const BOUNDS_S: [f64; 13] =
    [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Name and help of the gauge that says how full a store's memory is. A process that serves a store
/// over the network adds it with [`Console::gauge`](crate::Console::gauge).
///
/// ```
/// assert_eq!(percolator_console::STORE_PRESSURE.0, "store_pressure_ratio");
/// ```
pub const STORE_PRESSURE: (&str, &str) =
    ("store_pressure_ratio", "Share of the room for cells in memory that is taken");

/// Returns the text of `/metrics`.
pub(crate) fn text(app: &App, look: Option<&Look>) -> String {
    let mut registry = Registry::with_prefix("percolator");
    registry.register_collector(Box::new(All { app: app.clone(), look: Numbers::of(app, look) }));
    let mut process = Registry::default();
    process.register_collector(Box::new(Process));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode_registry(&mut text, &registry);
    let _ = encode_registry(&mut text, &process);
    let _ = encode_eof(&mut text);
    text
}

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The results of the last look, as numbers.
#[derive(Debug, Default)]
struct Numbers {
    known: bool,
    backlog: Vec<Waiting>,
    set_aside: BTreeMap<String, usize>,
    locks: usize,
    oldest_lock_s: Option<f64>,
    safe_point_behind: u64,
    safe_point_lag_s: Option<f64>,
    readers: usize,
    oldest_reader_s: Option<f64>,
    latest: u64,
}

/// The notifications of a column.
#[derive(Debug)]
struct Waiting {
    table: String,
    column: String,
    cells: usize,
    oldest_s: Option<f64>,
}

impl Numbers {
    fn of(app: &App, look: Option<&Look>) -> Self {
        let Some(Ok(found)) = look.map(|look| &look.found) else { return Numbers::default() };
        let clock = &app.recorder.clock;
        let age = |ts| clock.age(ts).map(|age| age.seconds);
        let mut set_aside = BTreeMap::new();
        for cell in &found.set_aside {
            *set_aside.entry(cell.observer.clone()).or_default() += 1;
        }
        let waiting = |backlog: &Backlog| Waiting {
            table: backlog.table.clone(),
            column: String::from_utf8_lossy(backlog.column.as_bytes()).into_owned(),
            cells: backlog.cells,
            oldest_s: age(backlog.oldest),
        };
        let (latest, safe_point) = (found.gc.latest.as_u64(), found.gc.safe_point);
        Numbers {
            known: true,
            backlog: found.backlog.iter().map(waiting).collect(),
            set_aside,
            locks: found.locks.len(),
            oldest_lock_s: found.locks.first().and_then(|lock| age(lock.start_ts)),
            safe_point_behind: latest.saturating_sub(safe_point.as_u64()),
            safe_point_lag_s: age(safe_point),
            readers: found.gc.readers.len(),
            oldest_reader_s: found.gc.readers.first().and_then(|reader| age(reader.oldest)),
            latest,
        }
    }
}

#[derive(Debug)]
struct All {
    app: App,
    look: Numbers,
}

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let out = &mut encoder;
        self.about(out)?;
        self.transactions(out)?;
        self.observers(out)?;
        self.locks(out)?;
        self.upkeep(out)?;
        self.requests(out)?;
        self.store(out)?;
        if self.look.known {
            self.looked(out)?;
        }
        Ok(())
    }
}

fn counter(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> Result<(), Error> {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Writes a counter without labels.
fn total(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), Error> {
    counter(out, name, help, [(Labels::new(), value)])
}

fn gauge(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, f64)>,
) -> Result<(), Error> {
    let (name, unit) = match name.strip_suffix("_seconds") {
        Some(name) => (name, Some(&Unit::Seconds)),
        None => (name, None),
    };
    let mut family = out.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Writes a gauge without labels, or nothing if the value is not known.
fn single(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<f64>,
) -> Result<(), Error> {
    gauge(out, name, help, value.map(|value| (Labels::new(), value)))
}

/// A histogram of durations, in seconds.
struct Seconds(Counts);

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        let mut below = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS_S.len() + 1);
        for (bound, sum) in BOUNDS_S.iter().zip(self.0.cumulative(&BOUNDS_S)) {
            buckets.push((*bound, sum - below));
            below = sum;
        }
        let count = self.0.count();
        buckets.push((f64::MAX, count - below));
        encoder.encode_histogram::<NoLabelSet>(self.0.sum_s(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn seconds<'h>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, &'h Histogram)>,
) -> Result<(), Error> {
    let unit = Some(&Unit::Seconds);
    let mut family = out.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for (labels, histogram) in values {
        Seconds(histogram.counts()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl All {
    fn about(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
        gauge(out, "build_info", "Version of this program", [(version, 1.0)])?;
        let up = self.app.since.elapsed().as_secs_f64();
        let help = "Time since the console of this process began";
        single(out, "console_uptime_seconds", help, Some(up))
    }

    fn transactions(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (recorder, stats) = (&self.app.recorder, self.app.db.stats());
        let mut outcomes = Vec::new();
        for of in recorder.names.all() {
            let (conflicts, failed) = (read(&of.conflicts), read(&of.failed));
            for (outcome, n) in [
                ("committed", read(&of.committed)),
                ("conflict", conflicts),
                ("failed", failed.saturating_sub(conflicts)),
            ] {
                outcomes.push((labels([("name", &of.name), ("outcome", outcome)]), n));
            }
        }
        counter(out, "transactions", "Transactions by name and outcome", outcomes)?;
        let phases = [
            (labels([("phase", "total")]), &recorder.total),
            (labels([("phase", "prewrite")]), &recorder.prewrite),
            (labels([("phase", "commit")]), &recorder.commit),
        ];
        seconds(out, "transaction", "Duration of transactions that committed", phases)?;
        let counters = &recorder.counters;
        let paths = [
            (labels([("path", "one_step")]), read(&counters.one_step)),
            (labels([("path", "two_phases")]), read(&counters.two_phases)),
        ];
        counter(out, "commits", "Commits by path", paths)?;
        let help = "Requests by which rows were read at a timestamp";
        total(out, "reads", help, stats.reads)?;
        let help = "Reads of cells that needed no request";
        total(out, "reads_saved", help, stats.reads_saved)?;
        let help = "Transactions that the stored trace lacks";
        total(out, "trace_dropped", help, stats.trace_dropped)
    }

    /// Writes what the client does beside its transactions.
    fn upkeep(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (recorder, stats) = (&self.app.recorder, self.app.db.stats());
        let rounds = read(&recorder.counters.gc_rounds);
        total(out, "gc_rounds", "Rounds of garbage collection that read all tables", rounds)?;
        let collected = recorder.collected.sums();
        let collected = collected.into_iter().map(|(kind, n)| (labels([("kind", kind)]), n));
        let help = "Locks resolved, cells and records dropped by garbage collection";
        counter(out, "gc_collected", help, collected)?;
        let renewed = [
            (labels([("lock", "primary")]), stats.heartbeats),
            (labels([("lock", "row")]), stats.row_locks_renewed),
        ];
        counter(out, "locks_renewed", "Locks that were renewed", renewed)?;
        let help = "Times a worker found another worker on the same row and went elsewhere";
        total(out, "scan_jumps", help, stats.jumps)?;
        let help = "Notifications whose change had been handled before";
        total(out, "notifications_stale", help, stats.notifications_stale)?;
        let help = "Events that a watcher failed on, or took too long for";
        total(out, "watcher_failures", help, stats.watcher_failures)
    }

    /// Writes the requests to a store behind a network.
    fn requests(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let requests = &self.app.recorder.requests;
        let outcomes = requests
            .outcomes()
            .into_iter()
            .map(|(method, outcome, n)| (labels([("method", method), ("outcome", outcome)]), n));
        let help = "Requests to a store behind a network, by method and outcome";
        counter(out, "store_requests", help, outcomes)?;
        let durations = requests.durations();
        let durations = durations.map(|(method, of)| (labels([("method", method)]), of));
        let help = "Duration of requests to a store behind a network";
        seconds(out, "store_request", help, durations)
    }

    fn observers(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let observers = self.app.recorder.observers.all();
        let mut runs = Vec::new();
        for of in &observers {
            for (outcome, n) in
                [("committed", &of.committed), ("conflict", &of.conflicts), ("failed", &of.failed)]
            {
                runs.push((labels([("observer", &of.name), ("outcome", outcome)]), read(n)));
            }
        }
        counter(out, "observer_runs", "Runs of observers by outcome", runs)?;
        let named = |of: &ByName| labels([("observer", &of.name)]);
        let durations = observers.iter().map(|of| (named(of), &of.duration));
        seconds(out, "observer_run", "Duration of observers' runs that committed", durations)?;
        let delays = observers.iter().map(|of| (named(of), &of.delay));
        let help = "Time from a change's commit until its observer has committed";
        seconds(out, "observer_delay", help, delays)?;
        let waiting = self.app.db.hints_waiting() as f64;
        let help = "Changes that wait for workers of this process";
        single(out, "hints_waiting", help, Some(waiting))?;
        let mut failing = BTreeMap::<String, usize>::new();
        for cell in self.app.db.failing(usize::MAX) {
            *failing.entry(cell.observer).or_default() += 1;
        }
        let help = "Cells that an observer fails on and tries again";
        gauge(out, "observer_failing", help, by_observer(&failing))
    }

    fn locks(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let recorder = &self.app.recorder;
        let counters = &recorder.counters;
        let help = "Locks of other transactions that were found";
        total(out, "locks_found", help, read(&counters.locks_found))?;
        let waited = read(&counters.lock_wait_us) as f64 / 1e6;
        let help = "Time that was waited for locks";
        let unit = Some(&Unit::Seconds);
        let mut family = out.encode_descriptor("lock_wait", help, unit, MetricType::Counter)?;
        ConstCounter::new(waited).encode(family.encode_family(&Labels::new())?)?;
        let verdicts = [
            (labels([("verdict", "forward")]), read(&counters.rolled_forward)),
            (labels([("verdict", "back")]), read(&counters.rolled_back)),
        ];
        counter(out, "resolved_locks", "Locks that were resolved, by verdict", verdicts)
    }

    /// Writes the numbers of the store in this process, and those that the program adds.
    fn store(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let store = &self.app.db.services().store;
        // A store behind a network knows it itself: `serve table --metrics`.
        if store.commits_rows() {
            single(out, STORE_PRESSURE.0, STORE_PRESSURE.1, Some(store.pressure()))?;
        }
        for gauge in &self.app.settings.gauges {
            single(out, gauge.name, gauge.help, (gauge.value)())?;
        }
        Ok(())
    }

    /// Writes the numbers of the last look through the store.
    fn looked(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let look = &self.look;
        let help = "Cells that an observer gave up on";
        gauge(out, "observer_set_aside", help, by_observer(&look.set_aside))?;
        let column = |of: &Waiting| labels([("table", &of.table), ("column", &of.column)]);
        let cells = look.backlog.iter().map(|of| (column(of), of.cells as f64));
        gauge(out, "backlog_cells", "Notified cells by column", cells)?;
        let ages = look.backlog.iter().filter_map(|of| Some((column(of), of.oldest_s?)));
        let help = "Age of the oldest notification by column";
        gauge(out, "backlog_oldest_age_seconds", help, ages)?;
        let help = "Locks that are held, counted up to 1,000";
        single(out, "locks", help, Some(look.locks as f64))?;
        let help = "Age of the oldest lock";
        single(out, "lock_oldest_age_seconds", help, look.oldest_lock_s)?;
        let behind = look.safe_point_behind as f64;
        let help = "Timestamps between the safe point and the latest one";
        single(out, "gc_safe_point_behind", help, Some(behind))?;
        let help = "Age of the safe point, as far as this process remembers";
        single(out, "gc_safe_point_lag_seconds", help, look.safe_point_lag_s)?;
        let help = "Clients with transactions or snapshots open";
        single(out, "readers", help, Some(look.readers as f64))?;
        let help = "Age of the oldest timestamp that a client has open";
        single(out, "gc_oldest_reader_age_seconds", help, look.oldest_reader_s)?;
        let help = "The latest timestamp: one for each begin and each commit";
        single(out, "latest_timestamp", help, Some(look.latest as f64))
    }
}

fn by_observer(counts: &BTreeMap<String, usize>) -> impl Iterator<Item = (Labels, f64)> {
    counts.iter().map(|(observer, n)| (labels([("observer", observer)]), *n as f64))
}
