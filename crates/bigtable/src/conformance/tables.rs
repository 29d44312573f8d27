//! Tests tables: names, schemas, and that tables do not affect each other.

use super::fixture::*;
use crate::{
    Family, FamilySchema, Layout, OnFull, PageLimit, RowRange, Store, TableSchema, TimeRange,
};

pub(super) async fn apart_from_each_other(store: &dyn Store) {
    let names = ["tab", "tab.a", "tab-b", "Tab", "ta"];
    let mut tables = Vec::new();
    for name in names {
        // The tables have the same groups, so they share keyspaces in stores that have
        // keyspaces.
        tables.push(ok("opening", store.open_table(name, &schema("tables_apart")).await));
    }
    for f in &EACH {
        for (table, name) in tables.iter().zip(names) {
            mutate(&**table, b"r", [set(f, b"q", 5, name)]).await;
            mutate(&**table, name.as_bytes(), [set(f, b"own", 5, name)]).await;
        }
    }
    for f in &EACH {
        for (table, name) in tables.iter().zip(names) {
            let select = family(f, TimeRange::ALL, u32::MAX);
            let rows = scan(&**table, &RowRange::all(), &select).await;
            let mut want = [name.to_owned(), "r".to_owned()];
            want.sort();
            assert_eq!(keys(&rows), want, "{f}: rows of table {name}");
            let cells = rows.iter().flat_map(|row| &row.cells);
            let own = cells.into_iter().all(|cell| cell.value == name);
            assert!(own, "{f}: table {name} shows another table's cells");
        }
        mutate(&*tables[0], b"r", [delete(f, b"q", TimeRange::ALL)]).await;
        for (table, name) in tables.iter().zip(names).skip(1) {
            let got = read(&**table, b"r", &family(f, TimeRange::ALL, 9)).await;
            assert_eq!(shown(&got), [format!("q@5={name}")], "{f}: deleting in {} only", names[0]);
        }
    }
    let all = ok("listing", store.table_names().await);
    assert!(all.is_sorted(), "names of tables are sorted: {all:?}");
    for name in names {
        assert!(all.iter().any(|known| known == name), "table {name} is not among {all:?}");
    }
}

pub(super) async fn opened_twice(store: &dyn Store) {
    let first = table(store, "tables_twice").await;
    let second = table(store, "tables_twice").await;
    assert_eq!((first.name(), second.name()), ("tables_twice", "tables_twice"));
    for f in &EACH {
        mutate(&*first, b"r", [set(f, b"q", 1, "v")]).await;
        let got = read(&*second, b"r", &family(f, TimeRange::ALL, 1)).await;
        assert_eq!(shown(&got), ["q@1=v"], "{f}: a table opened twice is one table");
    }
}

pub(super) async fn other_schemas(store: &dyn Store) {
    let right = schema("tables_other");
    ok("opening", store.open_table("tables_other", &right).await);
    let changed = |change: &dyn Fn(&mut TableSchema)| {
        let mut schema = right.clone();
        change(&mut schema);
        schema
    };
    let more = FamilySchema { family: Family::from_static("more") };
    for (what, wrong) in [
        ("a family less", changed(&|s| drop(s.groups[0].families.pop()))),
        ("a family more", changed(&|s| s.groups[0].families.push(more.clone()))),
        ("a group less", changed(&|s| drop(s.groups.pop()))),
        ("another layout", changed(&|s| s.groups[0].layout = Layout::NewestFirst)),
        (
            "another bound",
            changed(&|s| {
                s.groups[2].layout = Layout::InMemory(OnFull::Refuse { cells_max: 7 });
            }),
        ),
    ] {
        invalid(what, store.open_table("tables_other", &wrong).await);
    }
    let again = changed(&|s| s.groups[0].layout = Layout::NewestFirst);
    let got = store.open_table("tables_other_too", &again).await;
    invalid("a group that another table describes differently", got);
    ok("opening again", store.open_table("tables_other", &right).await);
}

pub(super) async fn names(store: &dyn Store) {
    let schema = schema("tables_names");
    for bad in ["", "a b", "a/b", "ä", "a\0", &"a".repeat(51)] {
        invalid("a malformed table name", store.open_table(bad, &schema).await);
    }
    for good in ["a", "A.b-c_9", &"a".repeat(50)] {
        ok("opening", store.open_table(good, &schema).await);
    }
    let mut twice = schema.clone();
    twice.groups[1].name = twice.groups[0].name.clone();
    invalid("a group twice", store.open_table("tables_bad", &twice).await);
    let mut twice = schema.clone();
    twice.groups[1].families = twice.groups[0].families.clone();
    invalid("a family twice", store.open_table("tables_bad", &twice).await);
    let all = ok("listing", store.table_names().await);
    assert!(!all.contains(&"tables_bad".to_owned()), "a table that was refused is listed");
}

pub(super) async fn tablets(store: &dyn Store) {
    let table = &*table(store, "tables_tablets").await;
    for row in 0..50 {
        mutate(table, format!("{row}").as_bytes(), [set(&PLAIN, b"q", 1, "v")]).await;
    }
    let tablets = ok("listing tablets", table.tablets().await);
    let select = family(&PLAIN, TimeRange::ALL, 1);
    let mut rows = Vec::new();
    for tablet in &tablets {
        let pages = pages(table, tablet, &select, PageLimit::default()).await;
        rows.extend(pages.into_iter().flat_map(|page| page.rows));
    }
    let whole = scan(table, &RowRange::all(), &select).await;
    assert_eq!(keys(&rows), keys(&whole), "the tablets {tablets:?} cover every row once, in order");
}
