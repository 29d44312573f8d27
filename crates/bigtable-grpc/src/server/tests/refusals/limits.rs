//! Tests each limit, at n and at n + 1. `server/tables.rs` tests that of tables, the crate
//! `cluster-net` that of the bytes of arriving requests, and `filters.rs` those of filters.

use prost::Message;

use super::*;
use crate::proto::admin::gc_rule::{Rule, Union};
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::{GcRule, ModifyColumnFamiliesRequest, create_table_request};
use crate::server::limits;

/// Checks that the server takes n, and refuses n + 1 with a text that names the limit.
#[track_caller]
fn limited<T: std::fmt::Debug>(limit: usize, at: Result<T, Status>, beyond: Result<T, Status>) {
    assert!(at.is_ok(), "{limit}: {at:?}");
    let told = refused(beyond, Code::InvalidArgument);
    assert!(told.contains(&limit.to_string()), "{told}");
}

#[tokio::test]
async fn keys_qualifiers_and_mutations() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["f"]).await;
    let mut key = async |n: usize| world.mutate(&"k".repeat(n), vec![set("f:q", 0, "v")]).await;
    limited(4096, key(limits::ROW_KEY_BYTES_MAX).await, key(limits::ROW_KEY_BYTES_MAX + 1).await);
    let mut qualifier = async |n: usize| {
        let column = format!("f:{}", "q".repeat(n));
        world.mutate("r", vec![set(&column, 0, "v")]).await
    };
    let n = limits::QUALIFIER_BYTES_MAX;
    limited(16_384, qualifier(n).await, qualifier(n + 1).await);
    let mut count = async |n: usize| world.mutate("r", vec![set("f:q", 1000, "v"); n]).await;
    limited(100_000, count(limits::MUTATIONS_MAX).await, count(limits::MUTATIONS_MAX + 1).await);
    world.stop().await;
}

#[tokio::test]
async fn values() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["f"]).await;
    let value = "v".repeat(limits::VALUE_BYTES_MAX);
    let at = world.mutate("r", vec![set("f:q", 1000, &value)]).await;
    let beyond = world.mutate("r", vec![set("f:q", 2000, &format!("{value}v"))]).await;
    limited(limits::VALUE_BYTES_MAX, at, beyond);
    assert_eq!(world.all().await, [format!("r/f:q@1000={} bytes", limits::VALUE_BYTES_MAX)]);
    world.stop().await;
}

#[tokio::test]
async fn keys_of_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["f"]).await;
    let mut read = async |n: usize| {
        let row_keys = (0..n).map(|n| format!("{n:06}").into()).collect();
        let rows = Some(RowSet { row_keys, row_ranges: Vec::new() });
        world.read(ReadRowsRequest { rows, ..ReadRowsRequest::default() }).await
    };
    limited(100_000, read(limits::ROW_SET_MAX).await, read(limits::ROW_SET_MAX + 1).await);
    world.stop().await;
}

/// A rule of this many bytes.
fn rule(bytes: usize) -> GcRule {
    let versions = |n| GcRule { rule: Some(Rule::MaxNumVersions(n)) };
    let union = |rules| GcRule { rule: Some(Rule::Union(Union { rules })) };
    // Parts of four and of five bytes can add up to the size.
    for fives in 0..4 {
        let mut rules = vec![versions(200); fives];
        while union(rules.clone()).encoded_len() < bytes {
            rules.push(versions(1));
        }
        if union(rules.clone()).encoded_len() == bytes {
            return union(rules);
        }
    }
    unreachable!("no rule of {bytes} bytes")
}

#[tokio::test]
async fn families_and_their_rules() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["f"]).await;
    let mut modify = async |families: Vec<(String, ColumnFamily)>| {
        let create = |(id, family)| Modification {
            id,
            r#mod: Some(Mod::Create(family)),
            ..Modification::default()
        };
        let request = ModifyColumnFamiliesRequest {
            name: TABLE.to_owned(),
            modifications: families.into_iter().map(create).collect(),
            ignore_warnings: false,
        };
        world.admin.modify_column_families(request).await.map(|_| ())
    };
    let named = |n: usize| vec![("n".repeat(n), ColumnFamily::default())];
    let n = limits::FAMILY_BYTES_MAX;
    limited(64, modify(named(n)).await, modify(named(n + 1)).await);
    let ruled = |n: usize| {
        let gc_rule = Some(rule(n));
        vec![(format!("r{n}"), ColumnFamily { gc_rule, ..ColumnFamily::default() })]
    };
    let n = limits::GC_RULE_BYTES_MAX;
    limited(500, modify(ruled(n)).await, modify(ruled(n + 1)).await);
    // The table has three families by now.
    let more = |n: usize| (3..n).map(|n| (format!("f{n}"), ColumnFamily::default())).collect();
    let beyond = modify(more(limits::FAMILIES_MAX + 1)).await;
    limited(1000, modify(more(limits::FAMILIES_MAX)).await, beyond);
    world.stop().await;
}

#[tokio::test]
async fn splits() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path()).await;
    let mut create = async |table: &str, n: usize| {
        let split = |n| create_table_request::Split { key: format!("{n:03}").into() };
        let request = CreateTableRequest {
            parent: INSTANCE.to_owned(),
            table_id: table.to_owned(),
            table: Some(Table::default()),
            initial_splits: (0..n).map(split).collect(),
        };
        world.admin.create_table(request).await.map(|_| ())
    };
    let at = create("t", limits::SPLITS_MAX).await;
    limited(100, at, create("u", limits::SPLITS_MAX + 1).await);
    world.stop().await;
}
