//! Tests that a layer without overrides passes every method through.

use std::sync::Mutex;

use super::*;
use crate::{AtCommit, Mutation, TimeRange, sync::locked};

/// The names of the methods that were called.
type Asked = Arc<Mutex<Vec<&'static str>>>;

/// A store and a table whose answers all differ from the defaults.
#[derive(Debug, Clone, Default)]
struct Noting(Asked);

impl Noting {
    fn note<T>(&self, method: &'static str, answer: T) -> T {
        locked(&self.0).push(method);
        answer
    }
}

const LIFE: Duration = Duration::from_secs(7);
const NO: RowsOutcome = RowsOutcome::NoTimestamp;

#[async_trait]
impl Store for Noting {
    async fn open_table(&self, _: &str, _: &TableSchema) -> Result<Arc<dyn Table>> {
        self.note("open_table", Ok(Arc::new(self.clone())))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.note("table_names", Ok(vec!["t".to_owned()]))
    }

    fn floor(&self) -> Timestamp {
        self.note("floor", Timestamp::MAX)
    }

    async fn raise_floor(&self, _: Timestamp) -> Result<()> {
        self.note("raise_floor", Ok(()))
    }

    async fn sync(&self) -> Result<()> {
        self.note("sync", Ok(()))
    }

    async fn reclaim(&self) -> Result<()> {
        self.note("reclaim", Ok(()))
    }

    fn commits_rows(&self) -> bool {
        self.note("commits_rows", true)
    }

    fn shares_syncs(&self) -> bool {
        self.note("shares_syncs", true)
    }

    async fn commit_rows(&self, _: CommitRows) -> Result<RowsOutcome> {
        self.note("commit_rows", Ok(NO))
    }

    fn try_commit_rows(
        &self,
        _: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        self.note("try_commit_rows", Ok(Ok(NO)))
    }

    fn locality_groups(&self) -> bool {
        self.note("locality_groups", false)
    }

    fn request_life_max(&self) -> Option<Duration> {
        self.note("request_life_max", Some(LIFE))
    }

    fn id(&self) -> Option<StoreId> {
        self.note("id", Some(StoreId::new(7)))
    }

    fn limits(&self) -> Limits {
        self.note("limits", Limits { mutations_max: Some(7), ..Limits::default() })
    }

    fn pressure(&self) -> f64 {
        self.note("pressure", 0.7)
    }
}

#[async_trait]
impl Table for Noting {
    fn name(&self) -> &str {
        self.note("name", "t")
    }

    async fn read_row(&self, row: &RowKey, _: &Selection) -> Result<Row> {
        self.note("read_row", Ok(Row { key: row.clone(), cells: Vec::new() }))
    }

    fn glance(&self, _: Glance<'_>) -> Result<Glanced> {
        self.note("glance", Ok(Glanced::Absent))
    }

    async fn read_rows(&self, _: &[RowKey], _: &Selection) -> Result<Vec<Row>> {
        self.note("read_rows", Ok(Vec::new()))
    }

    async fn scan(&self, _: &RowRange, _: &Selection, _: PageLimit) -> Result<Page> {
        self.note("scan", Ok(Page { rows: Vec::new(), resume: None }))
    }

    async fn mutate_row(&self, _: RowMutation) -> Result<()> {
        self.note("mutate_row", Ok(()))
    }

    async fn check_and_mutate_row(&self, _: ConditionalMutation) -> Result<bool> {
        self.note("check_and_mutate_row", Ok(true))
    }

    async fn check_and_mutate_rows(&self, _: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        self.note("check_and_mutate_rows", Vec::new())
    }

    fn drop_superseded(&self, _: &Family, _: Timestamp, _: fn(&[u8]) -> bool) -> bool {
        self.note("drop_superseded", true)
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        self.note("tablets", Ok(Vec::new()))
    }
}

/// A layer that changes nothing.
#[derive(Debug)]
struct PlainStore(Noting);

impl StoreLayer for PlainStore {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(PlainTable(table))
    }
}

#[derive(Debug)]
struct PlainTable(Arc<dyn Table>);

impl TableLayer for PlainTable {
    fn inner(&self) -> &dyn Table {
        &*self.0
    }
}

#[derive(Debug)]
struct Never;

impl AtCommit for Never {
    fn timestamp(&self) -> Option<Timestamp> {
        None
    }

    fn mutations(&self, _: usize, _: Timestamp) -> Vec<Mutation> {
        Vec::new()
    }
}

/// The methods of both traits, in the order of the source.
fn methods() -> Vec<&'static str> {
    let source = include_str!("../store.rs");
    let lines = source.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")?.split(['(', '<']).next()
    });
    lines.collect()
}

async fn ask_everything(store: &dyn Store) {
    let request =
        || CommitRows { rows: Vec::new(), above: Timestamp::MAX, bytes: 0, at: Arc::new(Never) };
    let table = store.open_table("t", &TableSchema { groups: Vec::new() }).await.unwrap();
    assert_eq!(store.table_names().await.unwrap(), ["t"]);
    assert_eq!(store.floor(), Timestamp::MAX);
    store.raise_floor(Timestamp::MAX).await.unwrap();
    store.sync().await.unwrap();
    store.reclaim().await.unwrap();
    assert!(store.commits_rows());
    assert_eq!(store.commit_rows(request()).await.unwrap(), NO);
    assert_eq!(store.try_commit_rows(request()).unwrap().unwrap(), NO);
    assert!(store.shares_syncs());
    assert!(!store.locality_groups());
    assert_eq!(store.request_life_max(), Some(LIFE));
    assert_eq!(store.id(), Some(StoreId::new(7)));
    assert_eq!(store.limits().mutations_max, Some(7));
    assert_eq!(store.pressure(), 0.7);
    let (row, all) = (RowKey::from("r"), Selection::default());
    let family = Family::from_static("f");
    let at = Timestamp::new(1).unwrap();
    let glance = Glance { row: &row, qualifier: b"q", family: &family, guard: &family, s: at };
    assert_eq!(table.name(), "t");
    assert_eq!(table.read_row(&row, &all).await.unwrap().key, row);
    assert_eq!(table.glance(glance).unwrap(), Glanced::Absent);
    assert_eq!(table.read_rows(std::slice::from_ref(&row), &all).await.unwrap(), []);
    table.scan(&RowRange::all(), &all, PageLimit::default()).await.unwrap();
    assert!(table.drop_superseded(&family, at, |_| false));
    let delete = Mutation::delete(family, "q", TimeRange::ALL);
    table.mutate_row(RowMutation::new(&row).mutation(delete)).await.unwrap();
    assert!(table.check_and_mutate_row(ConditionalMutation::new(&row)).await.unwrap());
    assert!(table.check_and_mutate_rows(vec![ConditionalMutation::new(&row)]).await.is_empty());
    assert_eq!(table.tablets().await.unwrap(), []);
}

#[test]
fn a_layer_that_changes_nothing_passes_every_method_through() {
    let beneath = Noting::default();
    futures::executor::block_on(ask_everything(&PlainStore(beneath.clone())));
    let mut asked = locked(&beneath.0).clone();
    let mut all = methods();
    assert_eq!(all.len(), 25, "{all:?}");
    asked.sort_unstable();
    all.sort_unstable();
    assert_eq!(asked, all);
}
