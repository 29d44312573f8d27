//! Sends random requests to the server and to Google's emulator, and compares the answers.
//!
//! The emulator is not the service. So the test leaves out, or does not compare:
//!
//! * `crashes`: change streams, backups, views, UndeleteTable and other requests that the
//!   server lacks; a negative `rows_limit` or cell limit. Why: the emulator crashes and loses
//!   its data.
//! * `codes`: the code of a refused mutation or change of families. Why: the emulator answers
//!   UNKNOWN and INTERNAL where the service names the fault.
//! * `partly`: refused mutations, rules and changes after the first of their request. Why: the
//!   emulator has applied those before; the service and this server apply nothing.
//! * `families`: the order of families, and limits and offsets of cells across several. Why:
//!   the emulator orders families by a map or by their creation; the service promises no order.
//! * `equals`: the order of cells with equal column and time, and limits across such cells.
//!   Why: an interleave produces them, and the emulator's sort is not stable.
//! * `labels`: two labels in one chain, labels of other forms; a strip after a label. Why: the
//!   emulator accepts them, and its strip removes the label.
//! * `bounds`: an empty key as an open start or a closed end of a range. Why: the emulator
//!   takes the open start for `"\0"` and ends after `""`; to the service an empty key is no
//!   bound.
//! * `lazy`: a wrong filter where there is no row. Why: the emulator checks filters row by row.
//! * `offset`: an offset within the predicate of a condition. Why: to the emulator, a row
//!   without cells is a match.
//! * `limits`: names, filters and requests beyond the service's limits. Why: the emulator has
//!   none. Other tests cover the limits.
//! * `empty`: an entry or a conditional mutation without mutations. Why: the emulator accepts
//!   them.
//! * `unseen`: deletions with wrong times, or of a whole unknown family. Why: the emulator
//!   checks times only where there are cells.
//! * `now`: the server's times; more than one of them for a column within a request. Why: the
//!   two servers have two clocks.
//! * `samples`: the rows that SampleRowKeys names. Why: the emulator picks them at random.
//! * `garbage`: garbage collection rules where there is data, and rules with invalid bounds. Why:
//!   each server collects at times of its own, and the emulator takes any bound.
//! * `metadata`: granularity and cluster states of tables. Why: the emulator has none.
//! * `sink`: sinks. Why: the emulator also passes their cells on.
//! * `old`: more for the emulator of Debian's packages (2020). These are rows without mutations,
//!   reversed reads, offsets, times of filters between milliseconds, and patterns of bytes that
//!   are no text. Families dropped from a table with data are left out too. Why: that version
//!   ignores or refuses them, or keeps the cells.

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

/// Requests of one run, which has its own tables. A run is short, so that a difference is
/// quickly found again.
const RUN_REQUESTS: usize = 400;
const RUNS: u64 = 30;
/// Environment variable that sets another seed.
const SEED: &str = "DIFFERENTIAL_SEED";
const SEED_DEFAULT: u64 = 1;

/// The two servers.
struct Pair {
    ours: World,
    theirs: World,
    emulator: Emulator,
    instances: usize,
    /// Number of reads that found cells, and of conditions that held.
    telling: usize,
}

/// The position of the request whose answers differ, and both answers.
#[derive(Debug)]
struct Difference {
    at: usize,
    ours: Answer,
    theirs: Answer,
}

impl Pair {
    /// A new instance without tables.
    fn instance(&mut self) -> String {
        self.instances += 1;
        format!("projects/p/instances/{}-{}", emulator::instance("d"), self.instances)
    }

    /// Sends the requests to both servers, until the first difference.
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
                // Waits, so that later requests get later times.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        self.delete(&instance).await;
        difference
    }

    /// Deletes the tables, because this server bounds their number.
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

/// True if the emulator is the old version, which accepts a chain of one filter.
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

/// The text of a request, without fields that are constant here.
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
    // The macros' output is captured, so this writes to standard error directly.
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
    // If most answers were empty, equality would prove little.
    assert!(pair.telling > count / 10, "{} answers with something in them only", pair.telling);
    let old = if pair.emulator.old { " of 2020" } else { "" };
    say(&format!(
        "{SEED}={seed}: {count} requests compared with Google's emulator{old}, {} answers had cells or a condition that held: \
         {kinds:?}",
        pair.telling
    ));
}
