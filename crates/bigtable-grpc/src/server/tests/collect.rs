//! Tests garbage collection by rules: what a round removes, when it runs, and the tables that it
//! leaves alone.

use std::collections::BTreeSet;

use bigtable::{RowRange, Table as _, Timestamp};
use bigtable_fjall::RowEdit;
use percolator::{Column, Percolator};

use super::admin::{families, settings, versions};
use super::*;
use crate::GrpcStore;
use crate::proto::admin::GcRule;
use crate::proto::admin::gc_rule::Rule as GcKind;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::server::collect::{self, COLLECT_EVERY};
use crate::server::purge;

/// Longest time for a round that is due to be over.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Applies all rules as of this time in milliseconds.
    async fn collect(&self, now: u64) {
        let tables = self.tables.as_ref().expect("the server is in this process");
        collect::round(tables, Timestamp::new(now).unwrap()).await;
    }

    async fn set_rule(&mut self, family: &str, rule: ColumnFamily) -> Result<Table, Status> {
        self.modify(vec![(family, Mod::Update(rule))]).await
    }

    /// Sets a rule of one version for a family of any table.
    async fn set_rule_of(&mut self, table: &str, family: &str) -> Result<(), Status> {
        let name = format!("{INSTANCE}/tables/{table}");
        self.modify_table(&name, vec![(family, Mod::Update(versions(1)))]).await.map(drop)
    }

    async fn families_of(&mut self, table: &str) -> Vec<String> {
        let table = self.table_named(&format!("{INSTANCE}/tables/{table}")).await.unwrap();
        families(&table).into_iter().map(ToOwned::to_owned).collect()
    }

    async fn store(&self) -> GrpcStore {
        let address = format!("bigtable://{}/p/i", self.address).parse().unwrap();
        GrpcStore::open(&address, Default::default()).await.unwrap()
    }
}

fn age(seconds: i64) -> ColumnFamily {
    let age = prost_types::Duration { seconds, nanos: 0 };
    let gc_rule = Some(GcRule { rule: Some(GcKind::MaxAge(age)) });
    ColumnFamily { gc_rule, ..ColumnFamily::default() }
}

#[tokio::test]
async fn the_server_applies_rules_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "b"]).await;
    world.set_rule("a", versions(1)).await.unwrap();
    for micros in [1000, 2000] {
        world.mutate("r", vec![set("a:q", micros, "v"), set("b:q", micros, "v")]).await.unwrap();
    }
    assert_eq!(world.all().await.len(), 4, "collection is lazy");
    tokio::time::pause();
    tokio::time::advance(COLLECT_EVERY).await;
    tokio::time::resume();
    let left = ["r/a:q@2000=v", "r/b:q@2000=v", "r/b:q@1000=v"];
    let collected = async {
        while world.all().await != left {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, collected).await.expect("the round applies the rule");
    world.stop().await;
}

#[tokio::test]
async fn a_round_removes_what_the_rules_of_each_family_say() {
    // More rows than fit a page.
    const ROWS: usize = 1100;
    let dir = tempfile::tempdir().unwrap();
    // Families that lie in other locality groups of the engine than the rest.
    let mut world = World::with_table(dir.path(), &["a", "kept", "lock", "write"]).await;
    world.set_rule("a", versions(2)).await.unwrap();
    world.set_rule("lock", age(10)).await.unwrap();
    world.set_rule("write", versions(1)).await.unwrap();
    let columns = ["a:p", "a:q", "kept:q", "lock:q", "write:q"];
    let seconds = [70, 80, 90, 100];
    for row in 0..ROWS {
        let cells = columns.iter().flat_map(|c| seconds.map(|s| set(c, s * 1_000_000, "v")));
        world.mutate(&format!("r{row:04}"), cells.collect()).await.unwrap();
    }
    world.collect(100_000).await;
    let of_row = |row: usize| {
        let kept: [(&str, &[i64]); 5] = [
            ("a:p", &[100, 90]),
            ("a:q", &[100, 90]),
            ("kept:q", &[100, 90, 80, 70]),
            ("lock:q", &[100, 90]),
            ("write:q", &[100]),
        ];
        let line = move |c: &str, s: &i64| format!("r{row:04}/{c}@{}=v", s * 1_000_000);
        kept.into_iter().flat_map(move |(c, s)| s.iter().map(move |s| line(c, s)))
    };
    let expected: Vec<_> = (0..ROWS).flat_map(of_row).collect();
    assert_eq!(world.all().await, expected);

    // Two hours later everything of `lock` is old; the other rules have nothing to do.
    world.collect(7_300_000).await;
    let expected: Vec<_> = expected.into_iter().filter(|cell| !cell.contains("lock")).collect();
    assert_eq!(world.all().await, expected);
    world.stop().await;
}

#[tokio::test]
async fn rules_that_are_gone_and_families_that_came_anew_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "b"]).await;
    for family in ["a", "b"] {
        world.set_rule(family, versions(1)).await.unwrap();
    }
    world.set_rule("a", ColumnFamily::default()).await.unwrap();
    world.modify(vec![("b", Mod::Drop(true))]).await.unwrap();
    world.modify(vec![("b", Mod::Create(ColumnFamily::default()))]).await.unwrap();
    for micros in [1000, 2000] {
        world.mutate("r", vec![set("a:q", micros, "v"), set("b:q", micros, "v")]).await.unwrap();
    }
    world.collect(1 << 40).await;
    assert_eq!(world.all().await.len(), 4);
    // A server that is started anew still has the rule, and applies it.
    world.set_rule("b", versions(1)).await.unwrap();
    world.stop().await;
    let mut world = World::open(dir.path()).await;
    world.collect(1 << 40).await;
    assert_eq!(world.all().await, ["r/a:q@2000=v", "r/a:q@1000=v", "r/b:q@2000=v"]);
    world.stop().await;
}

/// Between the read of a page and the edit of a row, a client deletes the newest versions and
/// writes an old one again. The written version is now the newest, and must stay.
#[tokio::test]
async fn a_row_that_changes_during_a_round_is_judged_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    world.set_rule("a", versions(1)).await.unwrap();
    for row in ["changed", "same"] {
        for micros in [1000, 2000, 3000] {
            world.set(row, "a:q", micros, "old").await;
        }
    }
    let served = world.tables.as_ref().unwrap().table(TABLE).await.unwrap();
    let now = Timestamp::new(100).unwrap();
    let schema = served.schema().await;
    let rules = collect::Rules::of(&schema, now).unwrap().unwrap();
    let page = served.engine.scan(&RowRange::all(), &rules.select, purge::PAGE).await.unwrap();
    let (edits, columns): (Vec<RowEdit>, usize) = collect::edits(&page.rows, &Arc::new(rules));
    assert_eq!((edits.len(), columns), (2, 2));

    let changes = vec![delete_column("a:q", None), set("a:q", 1000, "new")];
    world.mutate("changed", changes).await.unwrap();
    for result in served.engine.edit_rows(edits).await {
        result.unwrap();
    }
    assert_eq!(world.all().await, ["changed/a:q@1000=new", "same/a:q@3000=old"]);
    drop(served);
    world.stop().await;
}

#[tokio::test]
async fn bad_rules_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let told = refused(world.set_rule("a", versions(0)).await, Code::InvalidArgument);
    assert!(told.contains("max_num_versions is 0"), "{told}");
    let told = refused(world.set_rule("a", age(0)).await, Code::InvalidArgument);
    assert!(told.contains("one millisecond"), "{told}");
    assert_eq!(settings(world.table().await.unwrap(), "a"), ColumnFamily::default());
    world.stop().await;
}

/// H66: every table of a database refuses a rule in every family.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h66_a_rule_in_a_table_of_percolator_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path()).await;
    let db = Percolator::over(Arc::new(world.store().await), Default::default()).await.unwrap();
    let accounts = db.table("accounts").await.unwrap();
    let bal = Column::literal("bal");
    db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await.unwrap();

    let names = world.store().await.table_names().await.unwrap();
    let expected = ["accounts", "percolator.notify.accounts", "percolator.system"];
    let found: BTreeSet<_> = names.iter().map(String::as_str).collect();
    assert!(expected.iter().all(|name| found.contains(name)), "{found:?}");
    for table in &names {
        for family in world.families_of(table).await {
            let told = refused(world.set_rule_of(table, &family).await, Code::FailedPrecondition);
            assert!(told.contains("belongs to a Percolator database"), "{table} {family}: {told}");
        }
    }
    let fresh = ["data", "lock", "write", "rollback"].map(|name| (name.to_owned(), versions(1)));
    let request = CreateTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: "fresh".to_owned(),
        table: Some(Table { column_families: entries(fresh), ..Table::default() }),
        initial_splits: Vec::new(),
    };
    refused(world.admin.create_table(request).await, Code::FailedPrecondition);
    drop((accounts, db));
    world.stop().await;
}

/// H66: the rule came first. Percolator refuses to open the table and changes nothing of it. Once
/// the rule is removed, it opens the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h66_a_table_with_a_rule_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["data", "foreign"]).await;
    let db = Percolator::over(Arc::new(world.store().await), Default::default()).await.unwrap();
    for family in ["data", "foreign"] {
        world.set_rule(family, age(3600)).await.unwrap();
        let told = db.table("t").await.unwrap_err().to_string();
        assert!(told.contains(&format!("`cbt setgcpolicy t {family} never`")), "{told}");
        assert_eq!(world.families_of("t").await, ["data", "foreign"]);
        world.set_rule(family, ColumnFamily::default()).await.unwrap();
    }
    db.table("t").await.unwrap();
    refused(world.set_rule("data", age(3600)).await, Code::FailedPrecondition);
    drop(db);
    world.stop().await;
}

/// H66: a rule that came between two steps of Percolator's opening is not applied.
#[tokio::test]
async fn h66_a_round_leaves_tables_of_percolator_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["data", "lock", "write"]).await;
    world.set_rule("data", age(3600)).await.unwrap();
    world.set("r", "data:q", 5000, "v").await;
    world.modify(vec![("rollback", Mod::Create(ColumnFamily::default()))]).await.unwrap();
    world.collect(1 << 40).await;
    assert_eq!(world.all().await, ["r/data:q@5000=v"]);
    // Without the families of the protocol it is a table like any other.
    world.modify(vec![("rollback", Mod::Drop(true))]).await.unwrap();
    world.collect(1 << 40).await;
    assert!(world.all().await.is_empty());
    world.stop().await;
}
