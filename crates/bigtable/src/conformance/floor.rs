//! Tests the floor: a store refuses a read or a conditional mutation if its timestamp `above`
//! is below the floor.

use super::fixture::*;
use crate::Timestamp;
use crate::{ConditionalMutation, Error, Glance, Glanced, PageLimit, Result, RowKey, RowRange};
use crate::{Store, TimeRange};

#[track_caller]
fn too_old<T: std::fmt::Debug>(what: &str, asked: Timestamp, floor: Timestamp, got: Result<T>) {
    match got {
        Err(Error::TooOld { asked: a, floor: f }) if (a, f) == (asked, floor) => {}
        got => panic!("{what} above {asked}, floor {floor}: expected TooOld, got {got:?}"),
    }
}

pub(super) async fn refuses_what_is_older(store: &dyn Store) {
    let table = &*table(store, "floor_old").await;
    // Another case may have raised the floor of this store.
    let base = store.floor().as_u64();
    let floor = ts(base + 10);
    ok("raising the floor", store.raise_floor(floor).await);
    assert_eq!(store.floor(), floor, "the floor after it was raised");
    let row = RowKey::from("r");
    for f in &EACH {
        mutate(table, b"r", [set(f, b"q", 1, "v")]).await;
        let select = family(f, TimeRange::ALL, 1);
        let change = |above: Timestamp, qualifier: &[u8]| ConditionalMutation {
            otherwise: vec![set(f, qualifier, 1, "v")],
            above: Some(above),
            ..ConditionalMutation::new("r")
        };
        for below in [0, base, base + 9].map(ts) {
            let select = select.clone().above(below);
            too_old("read", below, floor, table.read_row(&row, &select).await);
            let page = table.scan(&RowRange::all(), &select, PageLimit::default()).await;
            too_old("scan", below, floor, page);
            let got = table.check_and_mutate_row(change(below, b"refused")).await;
            too_old("mutation", below, floor, got);
            let got = table.check_and_mutate_rows(vec![change(below, b"refused")]).await;
            assert_eq!(got.len(), 1, "results of one request");
            for got in got {
                too_old("batched mutation", below, floor, got);
            }
        }
        for above in [base + 10, base + 11].map(ts) {
            let select = select.clone().above(above);
            ok("reading above the floor", table.read_row(&row, &select).await);
            let page = table.scan(&RowRange::all(), &select, PageLimit::default()).await;
            ok("scanning above the floor", page);
            ok(
                "mutating above the floor",
                table.check_and_mutate_row(change(above, b"done")).await,
            );
        }
        let got = read(table, b"r", &family(f, TimeRange::ALL, 1)).await;
        assert_eq!(shown(&got), ["done@1=v", "q@1=v"], "{f}: what was refused was not applied");
    }
}

pub(super) async fn refuses_glances(store: &dyn Store) {
    let table = &*table(store, "floor_glance").await;
    let base = store.floor().as_u64() + 1;
    let floor = ts(base + 10);
    let row = RowKey::from("r");
    for family in EACH.iter().filter(|family| **family != MEMORY) {
        let (qualifier, guard) = (family.as_str().as_bytes(), &MEMORY);
        mutate(table, b"r", [set(family, qualifier, base, "v")]).await;
        let glance = |s| table.glance(Glance { row: &row, qualifier, family, guard, s });
        let seen = [Glanced::Nothing, Glanced::Newest(ts(base), "v".into())];
        let got = ok("a glance above the floor", glance(ts(base)));
        assert!(seen.contains(&got), "{family}: {got:?}");
    }
    ok("raising the floor", store.raise_floor(floor).await);
    for family in EACH.iter().filter(|family| **family != MEMORY) {
        let (qualifier, guard) = (family.as_str().as_bytes(), &MEMORY);
        let glance = |s| table.glance(Glance { row: &row, qualifier, family, guard, s });
        for below in [base, base + 9].map(ts) {
            match glance(below) {
                // `Nothing` is allowed, because the caller then reads the row.
                Ok(Glanced::Nothing) => {}
                got => too_old("glance", below, floor, got),
            }
        }
        for above in [base + 10, base + 11].map(ts) {
            let seen = [Glanced::Nothing, Glanced::Newest(ts(base), "v".into())];
            let got = ok("a glance above the floor", glance(above));
            assert!(seen.contains(&got), "{family}: {got:?}");
        }
    }
}

pub(super) async fn never_goes_back(store: &dyn Store) {
    let base = store.floor().as_u64();
    for (raise, want) in [(5, 5), (3, 5), (5, 5), (0, 5), (6, 6), (1, 6)] {
        ok("raising the floor", store.raise_floor(ts(base + raise)).await);
        assert_eq!(store.floor(), ts(base + want), "after a floor of {base} + {raise}");
    }
    ok("raising the floor to zero", store.raise_floor(Timestamp::ZERO).await);
    assert_eq!(store.floor(), ts(base + 6), "after a floor of zero");
}

pub(super) async fn not_asked_for(store: &dyn Store) {
    let table = &*table(store, "floor_free").await;
    let floor = ts(store.floor().as_u64() + 100);
    ok("raising the floor", store.raise_floor(floor).await);
    for f in &EACH {
        // Commits of secondaries, rollbacks and reads of old versions have no `above`, so the
        // floor does not refuse them.
        mutate(table, b"r", [set(f, b"q", 1, "v")]).await;
        let held = decide(table, b"r", vec![probe(f, b"q", TimeRange::ALL)], vec![], vec![]).await;
        assert!(held, "{f}: a conditional mutation without `above`");
        let got = read(table, b"r", &column(f, b"q", TimeRange::up_to(ts(1)), 1)).await;
        assert_eq!(shown(&got), ["q@1=v"], "{f}: a read without `above`");
    }
}
