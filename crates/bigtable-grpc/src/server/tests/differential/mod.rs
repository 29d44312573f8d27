//! Random requests to the server and to Google's emulator, whose answers must be the same.
//!
//! What is left out, or not compared, because the emulator is not the service:
//!
//! * `crashes`: change streams, backups, views, UndeleteTable and other requests that the server
//!   lacks; a negative `rows_limit` or cell limit. Why: the emulator ends with all its data.
//! * `codes`: the code of a refused mutation or change of families. Why: it answers UNKNOWN and
//!   INTERNAL where the service says what is wrong.
//! * `partly`: a mutation, rule or change that is refused stands first in its request. Why: it has
//!   applied what stood before; the service and this server apply nothing.
//! * `families`: the order of families, and limits and offsets of cells over several of them. Why:
//!   it walks families in the order of a map, or of their creation; the service promises none.
//! * `equals`: the order of cells of one column and one time, and limits over such. Why: an
//!   interleave makes them; its sort is not stable.
//! * `labels`: two labels in one chain, labels of other forms; a strip behind a label. Why: it
//!   takes them; the strip takes the label away.
//! * `bounds`: an empty key as an open start or a closed end of a range. Why: it takes the open
//!   start for `"\0"` and ends behind `""`; to the service an empty key is no bound.
//! * `lazy`: a wrong filter where there is no row. Why: it looks into filters row by row.
//! * `offset`: an offset within the predicate of a condition. Why: it takes a row without cells for
//!   a match.
//! * `limits`: names, filters and requests beyond the service's limits. Why: it has none; the tests
//!   of limits stand elsewhere.
//! * `empty`: an entry or a conditional mutation without mutations. Why: it takes them.
//! * `unseen`: deletions with wrong times, of unknown families as a whole. Why: it looks at times
//!   only where there are cells.
//! * `now`: the server's times; more than one of them for a column within a request. Why: two
//!   clocks.
//! * `samples`: which rows SampleRowKeys names. Why: it picks them at random.
//! * `garbage`: garbage collection rules where there is data. Why: it collects a minute later; this
//!   server keeps everything.
//! * `metadata`: granularity and cluster states of tables. Why: it has none.
//! * `sink`: sinks. Why: it lets cells pass them.
//! * `old`: of the emulator of Debian's packages (2020) also: rows without mutations, reversed
//!   reads, offsets, times of filters between milliseconds, patterns of bytes that are no text,
//!   families dropped from a table with data. Why: it ignores or refuses them, or keeps the cells.

mod ask;
mod draw;
mod filters;
mod shrink;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use self::ask::{Answer, Request, ask};
use self::draw::{Draw, Emulator};
use super::*;
use crate::emulator;
use crate::proto::data::row_filter::Chain;

/// Requests of one run on tables of its own; short, so that what differs is found again quickly.
const RUN_REQUESTS: usize = 400;
const RUNS: u64 = 30;
/// Names another seed than this.
const SEED: &str = "DIFFERENTIAL_SEED";
const SEED_DEFAULT: u64 = 1;

/// The two servers.
struct Pair {
    ours: World,
    theirs: World,
    emulator: Emulator,
    instances: usize,
    /// Reads that brought cells, conditions that held.
    telling: usize,
}

/// The request whose answers differ, and these.
#[derive(Debug)]
struct Difference {
    at: usize,
    ours: Answer,
    theirs: Answer,
}

impl Pair {
    /// An instance without tables.
    fn instance(&mut self) -> String {
        self.instances += 1;
        format!("projects/p/instances/{}-{}", emulator::instance("d"), self.instances)
    }

    /// Sends the requests to both servers, to the first difference.
    async fn compare(&mut self, requests: &[Request]) -> Option<Difference> {
        let instance = self.instance();
        let mut difference = None;
        for (at, request) in requests.iter().enumerate() {
            let ours = ask(&mut self.ours, &instance, request).await;
            let theirs = ask(&mut self.theirs, &instance, request).await;
            self.telling += usize::from(ours.tells());
            if !same(request, &ours, &theirs) {
                difference = Some(Difference { at, ours, theirs });
                break;
            }
            if request.asks_for_now() {
                // Later requests get later times.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        self.delete(&instance).await;
        difference
    }

    /// This server has a bound of tables.
    async fn delete(&mut self, instance: &str) {
        for table in ["t", "u"] {
            let delete =
                Request::Delete(crate::proto::admin::DeleteTableRequest { name: table.to_owned() });
            for world in [&mut self.ours, &mut self.theirs] {
                let _ = ask(world, instance, &delete).await;
            }
        }
    }
}

fn same(request: &Request, ours: &Answer, theirs: &Answer) -> bool {
    match (ours, theirs) {
        // Exclusion `lazy`.
        (Answer::Refused(Code::InvalidArgument, _), Answer::Done(rows)) if rows.is_empty() => {
            matches!(request, Request::Wrong(_))
        }
        (Answer::Done(ours), Answer::Done(theirs)) => ours == theirs,
        (Answer::Refused(ours, _), Answer::Refused(theirs, _)) => {
            !request.has_codes() || ours == theirs
        }
        _ => false,
    }
}

/// Whether the emulator is the old one: it takes a chain of one filter.
async fn is_old(world: &mut World) -> bool {
    let instance = format!("projects/p/instances/{}", emulator::instance("probe"));
    for request in Draw::first() {
        ask(world, &instance, &request).await;
    }
    let request = MutateRowRequest {
        table_name: "t".to_owned(),
        row_key: "r".into(),
        mutations: vec![set("f:q", 0, "v")],
        ..MutateRowRequest::default()
    };
    ask(world, &instance, &Request::Mutate(request)).await;
    let pass = filter(WireFilter::PassAllFilter(true));
    let chain = filter(WireFilter::Chain(Chain { filters: vec![pass] }));
    let request = ReadRowsRequest {
        table_name: "t".to_owned(),
        filter: Some(chain),
        ..ReadRowsRequest::default()
    };
    matches!(ask(world, &instance, &Request::Read(request)).await, Answer::Done(_))
}

/// A request without the fields that never say anything here.
fn readable(request: &Request) -> String {
    let mut text = format!("{request:?}");
    for nothing in [
        "authorized_view_name: \"\", ",
        "materialized_view_name: \"\", ",
        "app_profile_id: \"\", ",
        ", request_stats_view: Unspecified",
        ", idempotency: None",
        ", value_type: None",
        ", update_mask: None",
        ", ignore_warnings: false",
    ] {
        text = text.replace(nothing, "");
    }
    text
}

fn say(text: &str) {
    // The macros' output is kept from whoever watches.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_answered_as_by_googles_emulator() {
    let Some(address) = emulator::address() else { return };
    let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let (ours, mut theirs) = (World::open(dir.path()).await, World::connect(address).await);
    let emulator = Emulator { old: is_old(&mut theirs).await };
    let mut pair = Pair { ours, theirs, emulator, instances: 0, telling: 0 };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for run in 0..RUNS {
        let mut draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(run), pair.emulator);
        let requests = draw.requests(RUN_REQUESTS);
        if let Some(found) = pair.compare(&requests).await {
            let (at, cut) = (found.at, requests[..=found.at].to_vec());
            let (left, found) = pair.shrink(cut).await;
            let lines: Vec<_> = left.iter().map(readable).collect();
            panic!(
                "{SEED}={seed}: the answers to request {at} of run {run} differ, and so they do after \
                 these alone:\n{}\nthis server: {:?}\nthe emulator: {:?}",
                lines.join("\n"),
                found.ours,
                found.theirs
            );
        }
        requests.iter().for_each(|request| *kinds.entry(request.kind()).or_default() += 1);
    }
    let count: usize = kinds.values().sum();
    assert!(count >= 10_000, "{count} requests only");
    // Answers that are empty whatever is asked would be the same, too.
    assert!(pair.telling > count / 10, "{} answers with something in them only", pair.telling);
    let old = if pair.emulator.old { " of 2020" } else { "" };
    say(&format!(
        "{SEED}={seed}: {count} requests compared with Google's emulator{old}, {} answers had cells or a condition that held: \
         {kinds:?}",
        pair.telling
    ));
}
