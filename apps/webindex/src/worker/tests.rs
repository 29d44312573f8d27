//! Tests of workers that replace a writer that hangs. The time of their turns is given, and a
//! feeder hangs when it gets no more turns.

use std::fs;
use std::time::{Duration, Instant};

use percolator::observe::Backlog;
use tempfile::TempDir;

use super::*;
use crate::address::Base;
use crate::search::{SearchIndex, generations};
use crate::tables::{DOCUMENTS, EXPORT_PAGE};
use crate::{LoadOptions, Progress, WebIndex, writer};

const BASE: &str = "https://fish.example/";

/// A store with an index, whose observers run except for those that feed the search index.
struct Fixture {
    db: Percolator,
    search: TempDir,
    /// A reader that is open from the beginning.
    index: WebIndex,
    keepers: Worker,
    start: Instant,
}

impl Fixture {
    async fn new() -> Self {
        let (db, search) = (Percolator::in_memory().await.unwrap(), tempfile::tempdir().unwrap());
        let another = async || db.another_client().await.unwrap();
        let keepers = Worker::start(another().await, None, WorkerOptions::default()).await.unwrap();
        let index = WebIndex::connect(another().await, Some(search.path())).await.unwrap();
        Fixture { db, search, index, keepers, start: Instant::now() }
    }

    async fn feeder(&self) -> Feeder {
        let db = self.db.another_client().await.unwrap();
        let tables = Tables::open(&db).await.unwrap();
        // The exporters look often, so that a test that nothing is exported need not wait for long.
        let idle_max = Duration::from_millis(200);
        let scan_period = Duration::from_millis(100);
        let options = WorkerOptions { idle_max, scan_period, ..WorkerOptions::default() };
        let latency = Arc::new(Latency::new());
        Feeder::new(&db, &tables, &latency, &options, self.search.path()).await.unwrap()
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    /// Gives a feeder its turns at these seconds.
    async fn turns(&self, feeder: &mut Feeder, seconds: impl IntoIterator<Item = u64>) {
        for second in seconds {
            feeder.turn(self.at(second)).await;
        }
    }

    /// Loads pages, each with a text.
    async fn load(&self, pages: &[(&str, &str)]) {
        let site = tempfile::tempdir().unwrap();
        for (name, text) in pages {
            let page = format!("<title>{name}</title><p>{text}");
            fs::write(site.path().join(format!("{name}.html")), page).unwrap();
        }
        let base = Base::parse(BASE).unwrap();
        let (options, progress) = (LoadOptions::default(), Progress::default());
        self.index.load(site.path(), &base, &options, &progress).await.unwrap();
    }

    async fn settle(&self) {
        let report = self.index.wait(None).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty(), "{report:?}");
    }

    async fn found(&self, query: &str) -> usize {
        self.index.search(query, 10).await.unwrap().len()
    }

    /// Asserts that all readers find two fishes in the files of the first writer. One reader is
    /// open from the beginning, one opens the index now, and one has no store.
    async fn assert_old_is_searched(&self) {
        assert!(!generations::Generation::is_complete(self.search.path(), 1));
        assert_eq!(self.found("fish").await, 2);
        let another = self.db.another_client().await.unwrap();
        let opened = WebIndex::connect(another, Some(self.search.path())).await.unwrap();
        assert_eq!(opened.search("fish", 10).await.unwrap().len(), 2);
        let newest = SearchIndex::newest(self.search.path());
        assert_eq!(newest, self.search.path());
        assert_eq!(
            SearchIndex::open_existing(&newest).unwrap().search("fish", 10).unwrap().len(),
            2
        );
    }

    /// Asserts that all readers find two fishes in the files of the second writer.
    async fn assert_new_is_searched(&self) {
        assert_eq!(self.found("fish").await, 2);
        let newest = SearchIndex::newest(self.search.path());
        assert_eq!(newest, self.search.path().join("generation-1"));
        assert_eq!(
            SearchIndex::open_existing(&newest).unwrap().search("fish", 10).unwrap().len(),
            2
        );
    }

    async fn verify(&self) {
        let report = self.index.verify().await.unwrap();
        assert!(report.is_ok(), "{:?}", report.named);
    }
}

/// Whether a feeder feeds, and its generation.
fn state(feeder: &Feeder) -> (bool, u64) {
    (feeder.is_feeding(), feeder.generation())
}

#[tokio::test]
async fn a_writer_that_hangs_is_replaced_after_thirty_seconds() {
    let fixture = Fixture::new().await;
    let mut hung = fixture.feeder().await;
    fixture.turns(&mut hung, [0]).await;
    fixture.load(&[("cod", "a long fish"), ("eel", "a thin fish"), ("ray", "a flat fish")]).await;
    fixture.settle().await;
    // The process stands still, and keeps its lock.
    hung.stop_exporters_alone().await;
    fixture.load(&[("cod", "a short fish")]).await;
    assert!(fixture.index.remove(&format!("{BASE}eel.html")).await.unwrap());

    let mut waiting = fixture.feeder().await;
    fixture.turns(&mut waiting, 10..40).await;
    assert_eq!(state(&waiting), (false, 0));
    fixture.turns(&mut waiting, [40]).await;
    assert_eq!(state(&waiting), (true, 1));
    fixture.settle().await;
    let counts = ["short", "long", "thin", "flat"];
    for (query, count) in counts.into_iter().zip([1, 0, 0, 1]) {
        assert_eq!(fixture.found(query).await, count, "{query}");
    }
    fixture.verify().await;
    let writer = fixture.index.stats().await.unwrap().writer.unwrap();
    assert_eq!((writer.generation, writer.process), (1, std::process::id()));
    // A search without the store finds the new directory.
    let newest = SearchIndex::newest(fixture.search.path());
    assert_eq!(SearchIndex::open_existing(&newest).unwrap().pages().unwrap(), 2);
    waiting.end().await;
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn a_writer_that_wakes_writes_nothing_and_its_directory_goes() {
    let fixture = Fixture::new().await;
    let (mut hung, mut waiting) = (fixture.feeder().await, fixture.feeder().await);
    fixture.turns(&mut hung, [0]).await;
    fixture.load(&[("cod", "a long fish")]).await;
    fixture.settle().await;
    fixture.turns(&mut waiting, 0..=30).await;
    fixture.settle().await;
    // The exporters of the old writer run, and refuse every batch.
    fixture.load(&[("ray", "a flat fish")]).await;
    fixture.settle().await;
    assert_eq!(fixture.found("flat").await, 1);
    let old = SearchIndex::open_existing(fixture.search.path()).unwrap();
    assert_eq!(old.search("flat", 10).unwrap(), []);
    // The directory stays while the old writer has it.
    fixture.turns(&mut waiting, [41]).await;
    assert_eq!(old.pages().unwrap(), 1);

    fixture.turns(&mut hung, [50]).await;
    assert_eq!(state(&hung), (false, 1));
    fixture.turns(&mut waiting, [51]).await;
    assert!(SearchIndex::open_existing(fixture.search.path()).is_err());
    fixture.turns(&mut hung, [52]).await;
    assert_eq!((state(&hung), state(&waiting)), ((false, 1), (true, 1)));
    fixture.verify().await;

    // After a restart the newest generation is fed.
    waiting.end().await;
    hung.end().await;
    let mut next = fixture.feeder().await;
    fixture.turns(&mut next, [60]).await;
    assert_eq!(state(&next), (true, 1));
    fixture.load(&[("eel", "a thin fish")]).await;
    fixture.settle().await;
    assert_eq!((fixture.found("thin").await, fixture.found("fish").await), (1, 3));
    next.end().await;
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn a_writer_that_was_replaced_acknowledges_no_change() {
    let fixture = Fixture::new().await;
    let (mut old, mut new) = (fixture.feeder().await, fixture.feeder().await);
    fixture.turns(&mut old, [0]).await;
    fixture.load(&[("cod", "a long fish")]).await;
    fixture.settle().await;
    fixture.turns(&mut new, 0..=30).await;
    fixture.settle().await;
    // The old writer's exporters have the change for themselves.
    new.stop_exporters_alone().await;
    fixture.load(&[("ray", "a flat fish")]).await;
    let report = fixture.index.wait(Some(Duration::from_secs(4))).await.unwrap();
    assert!(!report.idle, "the old writer has acknowledged a change that the new one misses");
    let old_files = SearchIndex::open_existing(fixture.search.path()).unwrap();
    assert_eq!(old_files.search("flat", 10).unwrap(), []);

    fixture.turns(&mut new, [31]).await;
    fixture.settle().await;
    assert_eq!(fixture.found("flat").await, 1);
    fixture.verify().await;
    new.end().await;
    old.end().await;
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn readers_stay_with_the_old_files_until_all_pages_are_in_the_new_ones() {
    let fixture = Fixture::new().await;
    let (mut old, mut new) = (fixture.feeder().await, fixture.feeder().await);
    fixture.turns(&mut old, [0]).await;
    fixture.load(&[("cod", "a long fish"), ("ray", "a flat fish")]).await;
    fixture.settle().await;
    // The new writer hangs, too, as soon as it is the writer: its files are empty.
    fixture.turns(&mut new, 0..=30).await;
    assert_eq!(state(&new), (true, 1));
    new.stop_exporters_alone().await;
    fixture.assert_old_is_searched().await;

    // It wakes and queues all pages, and cannot export them yet.
    fixture.db.pause_observer("export").await.unwrap();
    fixture.turns(&mut new, [31]).await;
    let queued = async || {
        let backlog = fixture.db.backlog().await.unwrap();
        let is_page = |of: &&Backlog| of.table == DOCUMENTS && of.column == EXPORT_PAGE;
        backlog.iter().find(is_page).map_or(0, |of| of.cells)
    };
    while queued().await < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    fixture.assert_old_is_searched().await;

    fixture.db.resume_observer("export").await.unwrap();
    fixture.settle().await;
    fixture.assert_new_is_searched().await;
    fixture.verify().await;
    new.end().await;
    old.end().await;
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn of_two_waiting_workers_one_takes_over() {
    let fixture = Fixture::new().await;
    let mut hung = fixture.feeder().await;
    fixture.turns(&mut hung, [0]).await;
    let (mut first, mut second) = (fixture.feeder().await, fixture.feeder().await);
    for second_of in 0..=30 {
        let now = fixture.at(second_of);
        tokio::join!(first.turn(now), second.turn(now));
    }
    assert!(first.is_feeding() != second.is_feeding());
    let later = fixture.at(36);
    tokio::join!(first.turn(later), second.turn(later));
    assert!(first.is_feeding() != second.is_feeding());
    assert_eq!(first.generation(), second.generation());
    // A take-over that read an earlier record publishes nothing.
    let tables = Tables::open(&fixture.db).await.unwrap();
    let record = writer::current(&fixture.db, &tables).await.unwrap().unwrap();
    let earlier = writer::Record { beat: record.beat - 1, ..record.clone() };
    assert!(!writer::take_over(&fixture.db, &tables, &earlier, 9).await.unwrap());
    assert_eq!(writer::current(&fixture.db, &tables).await.unwrap(), Some(record));
    for feeder in [first, second, hung] {
        feeder.end().await;
    }
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn a_slow_writer_is_not_replaced_nor_does_a_worker_trust_a_pause_of_its_own() {
    let fixture = Fixture::new().await;
    let (mut slow, mut waiting) = (fixture.feeder().await, fixture.feeder().await);
    for second in 0..120 {
        if second % 25 == 0 {
            slow.turn(fixture.at(second)).await;
        }
        waiting.turn(fixture.at(second)).await;
    }
    assert_eq!((state(&slow), state(&waiting)), ((true, 0), (false, 0)));
    // The machine stood still for a minute: the writer has had no chance to report.
    fixture.turns(&mut waiting, [180, 185, 190]).await;
    assert_eq!(state(&waiting), (false, 0));
    slow.end().await;
    // A writer that ended is followed at once.
    fixture.turns(&mut waiting, [191]).await;
    assert_eq!(state(&waiting), (true, 0));
    waiting.end().await;
    fixture.keepers.stop().await;
}

#[tokio::test]
async fn a_directory_that_another_process_has_is_passed_over() {
    let fixture = Fixture::new().await;
    let mut hung = fixture.feeder().await;
    fixture.turns(&mut hung, [0]).await;
    // A worker hung while it took over: it has the next directory, and has not published it.
    let locked = SearchIndex::open(&fixture.search.path().join("generation-1")).unwrap();
    assert!(locked.claim().unwrap());
    let mut waiting = fixture.feeder().await;
    fixture.turns(&mut waiting, 0..=30).await;
    assert_eq!(state(&waiting), (true, 2));
    fixture.settle().await;
    drop(locked);
    fixture.turns(&mut waiting, [45]).await;
    assert!(!fixture.search.path().join("generation-1").exists());
    waiting.end().await;
    hung.end().await;
    fixture.keepers.stop().await;
}
