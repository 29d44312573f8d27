//! Tests unconditional mutations: the cells that they leave, and the requests that are
//! refused.

use super::fixture::*;
use crate::{Bytes, Error, Family, Mutation, QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX, RowKey};
use crate::{RowMutation, RowRange, Store, Table, TimeRange};

async fn left(table: &dyn Table, row: &str, f: &Family) -> Vec<String> {
    shown(&read(table, row.as_bytes(), &family(f, TimeRange::ALL, u32::MAX)).await)
}

pub(super) async fn order_within_a_request(store: &dyn Store) {
    let table = &*table(store, "write_order").await;
    let all = TimeRange::ALL;
    let none: [&str; 0] = [];
    for f in &EACH {
        let put = |at, value| set(f, b"q", at, value);
        let del = |time| delete(f, b"q", time);
        let one = TimeRange::at(ts(5));
        let cases: Vec<(&str, Vec<Mutation>, Vec<&str>)> = vec![
            ("set, delete", vec![put(5, "a"), del(all)], none.to_vec()),
            ("set, delete exactly", vec![put(5, "a"), del(one)], none.to_vec()),
            ("delete, set", vec![del(all), put(5, "b")], vec!["q@5=b"]),
            ("delete exactly, set", vec![del(one), put(5, "c")], vec!["q@5=c"]),
            ("set, set", vec![put(5, "d"), put(5, "e")], vec!["q@5=e"]),
            ("set, delete, set", vec![put(5, "f"), del(all), put(5, "g")], vec!["q@5=g"]),
            ("newer, older", vec![put(7, "h"), put(3, "i")], vec!["q@7=h", "q@3=i"]),
            (
                "three, delete two",
                vec![put(1, "j"), put(3, "k"), put(2, "l"), del(from_to(2, 9))],
                vec!["q@1=j"],
            ),
            (
                "two, delete one, set it",
                vec![put(1, "m"), put(2, "n"), del(from_to(2, 2)), put(2, "o")],
                vec!["q@2=o", "q@1=m"],
            ),
            ("delete, delete", vec![del(all), del(all)], none.to_vec()),
            ("nothing", vec![], none.to_vec()),
        ];
        // Run each case on an empty column, then on a column with other versions.
        for (what, mutations, want) in cases {
            let row = format!("{f} {what}");
            mutate(table, row.as_bytes(), mutations.clone()).await;
            assert_eq!(left(table, &row, f).await, want, "{f}: {what}, on an empty column");
            mutate(table, row.as_bytes(), [del(all), put(5, "x"), put(4, "y")]).await;
            let whole = [vec![del(all)], mutations].concat();
            mutate(table, row.as_bytes(), whole).await;
            assert_eq!(left(table, &row, f).await, want, "{f}: {what}, after deleting all");
        }
    }
}

pub(super) async fn replacing(store: &dyn Store) {
    let table = &*table(store, "write_replace").await;
    for f in &EACH {
        for value in ["a", "", "long enough to live elsewhere than a short value would", "b"] {
            for at in [5, 0, 9, 7] {
                mutate(table, b"r", [set(f, b"q", at, value)]).await;
            }
            let want = [9, 7, 5, 0].map(|at| format!("q@{at}={value}"));
            assert_eq!(left(table, "r", f).await, want, "{f}: every version replaced");
        }
        mutate(table, b"r", [set(f, b"q", crate::Timestamp::MAX.as_u64(), "last")]).await;
        let newest = read(table, b"r", &column(f, b"q", TimeRange::ALL, 1)).await;
        assert_eq!(shown(&newest), ["q@9007199254740991=last"], "{f}: the highest timestamp");
    }
}

pub(super) async fn older_after_newer(store: &dyn Store) {
    let table = &*table(store, "write_older").await;
    for f in &EACH {
        let mut want: Vec<u64> = Vec::new();
        for at in [50, 10, 30, 70, 20, 60, 0] {
            mutate(table, b"r", [set(f, b"q", at, "v")]).await;
            want.push(at);
            want.sort_unstable_by(|a, b| b.cmp(a));
            let all: Vec<_> = want.iter().map(|at| format!("q@{at}=v")).collect();
            assert_eq!(left(table, "r", f).await, all, "{f}: after setting {at}");
            for s in [5, 25, 55, 99] {
                let got = read(table, b"r", &column(f, b"q", TimeRange::up_to(ts(s)), 1)).await;
                let newest = want.iter().find(|at| **at <= s);
                let newest: Vec<_> = newest.iter().map(|at| format!("q@{at}=v")).collect();
                assert_eq!(shown(&got), newest, "{f}: newest at or below {s}");
            }
        }
    }
}

pub(super) async fn deleting_time_ranges(store: &dyn Store) {
    let table = &*table(store, "write_delete").await;
    for f in &EACH {
        for from in 0..=6 {
            for to in 0..=6 {
                let times = 1..=5_u64;
                mutate(table, b"r", times.clone().map(|at| set(f, b"q", at, "v"))).await;
                mutate(table, b"r", [set(f, b"p", 3, "stays"), set(f, b"q2", 3, "stays")]).await;
                mutate(table, b"r", [delete(f, b"q", from_to(from, to))]).await;
                let kept = times.rev().filter(|at| !(from..=to).contains(at));
                let kept = kept.map(|at| format!("q@{at}=v"));
                let want = ["p@3=stays".to_owned()].into_iter().chain(kept);
                let want: Vec<_> = want.chain(["q2@3=stays".to_owned()]).collect();
                let got = left(table, "r", f).await;
                assert_eq!(got, want, "{f}: versions 1 to 5 without {from} to {to}");
                mutate(table, b"r", [delete(f, b"q", TimeRange::ALL)]).await;
            }
        }
        mutate(table, b"none", [delete(f, b"none", TimeRange::ALL)]).await;
        mutate(table, b"none", [delete(f, b"none", TimeRange::at(ts(3)))]).await;
    }
}

pub(super) async fn deleting_the_newest(store: &dyn Store) {
    let table = &*table(store, "write_newest").await;
    for f in &EACH {
        for round in 0..3 {
            // Delete from the newest version down: each time the next older version must
            // become the newest.
            for at in 1..=5 {
                mutate(table, b"r", [set(f, b"q", at, &format!("{round}"))]).await;
            }
            for at in (1..=5).rev() {
                let newest = read(table, b"r", &column(f, b"q", TimeRange::ALL, 1)).await;
                assert_eq!(shown(&newest), [format!("q@{at}={round}")], "{f}: the newest version");
                assert!(finds(table, b"r", vec![probe(f, b"q", TimeRange::since(ts(at)))]).await);
                mutate(table, b"r", [delete(f, b"q", TimeRange::at(ts(at)))]).await;
                let gone = finds(table, b"r", vec![probe(f, b"q", TimeRange::since(ts(at)))]).await;
                assert!(!gone, "{f}: version {at} is found after it was deleted");
            }
            let got = left(table, "r", f).await;
            assert!(got.is_empty(), "{f}: all versions deleted, left are {got:?}");
        }
    }
}

pub(super) async fn deleting_the_oldest(store: &dyn Store) {
    let table = &*table(store, "write_oldest").await;
    for f in &EACH {
        // Delete everything below the newest version, like garbage collection, several times.
        // Deleted versions must not come back, and must not take other versions with them.
        for round in 1..=4 {
            let newest = 10 * round;
            for at in newest - 5..=newest {
                mutate(table, b"r", [set(f, b"q", at, "v")]).await;
            }
            mutate(table, b"r", [delete(f, b"q", from_to(0, newest - 3))]).await;
            let want = [newest, newest - 1, newest - 2].map(|at| format!("q@{at}=v"));
            assert_eq!(left(table, "r", f).await, want, "{f}: the older half deleted");
            mutate(table, b"r", [delete(f, b"q", TimeRange::below(ts(newest)))]).await;
            assert_eq!(left(table, "r", f).await, want[..1], "{f}: all but the newest deleted");
            assert!(!finds(table, b"r", vec![probe(f, b"q", from_to(0, newest - 1))]).await);
            let older = read(table, b"r", &column(f, b"q", from_to(0, newest - 1), 9)).await;
            assert!(older.cells.is_empty(), "{f}: older than the newest, found {older:?}");
            // An older version that is set afterwards must exist.
            mutate(table, b"r", [set(f, b"q", 1, "late")]).await;
            let want = [format!("q@{newest}=v"), "q@1=late".to_owned()];
            assert_eq!(left(table, "r", f).await, want, "{f}: an older version set afterwards");
        }
    }
}

pub(super) async fn reclaiming(store: &dyn Store) {
    let table = &*table(store, "write_reclaim").await;
    let versions = 12_000;
    for f in &EACH {
        for step in (1..=versions).collect::<Vec<u64>>().chunks(1000) {
            mutate(table, b"r", step.iter().map(|at| set(f, b"q", *at, "v"))).await;
        }
        mutate(table, b"s", [set(f, b"q", 1, "stays")]).await;
        mutate(table, b"r", [delete(f, b"q", TimeRange::below(ts(versions)))]).await;
        for _ in 0..2 {
            ok("giving space back", store.reclaim().await);
            assert_eq!(left(table, "r", f).await, [format!("q@{versions}=v")], "{f}");
            assert_eq!(left(table, "s", f).await, ["q@1=stays"], "{f}");
        }
    }
}

pub(super) async fn many_families_at_once(store: &dyn Store) {
    let table = &*table(store, "write_many").await;
    let count = 300;
    let mutations = (0..count)
        .flat_map(|n: u32| EACH.iter().map(move |f| set(f, &n.to_be_bytes(), u64::from(n), "v")));
    mutate(table, b"r", mutations).await;
    let got = read(table, b"r", &everything()).await;
    assert_eq!(got.cells.len(), 4 * count as usize, "cells of one large request");
    let mutations = (0..count)
        .flat_map(|n: u32| EACH.iter().map(move |f| delete(f, &n.to_be_bytes(), TimeRange::ALL)));
    mutate(table, b"r", mutations).await;
    let got = shown_fully(&read(table, b"r", &everything()).await);
    assert!(got.is_empty(), "all cells deleted by one large request, left are {got:?}");
}

pub(super) async fn limits(store: &dyn Store) {
    let table = &*table(store, "write_limits").await;
    for f in &EACH {
        for fill in [0x00, b'k', 0xFF] {
            let row = |n: usize| vec![fill; n];
            mutate(table, &row(ROW_KEY_BYTES_MAX), [set(f, &row(QUALIFIER_BYTES_MAX), 1, "v")])
                .await;
            let select = column(f, &row(QUALIFIER_BYTES_MAX), TimeRange::ALL, 1);
            let got = read(table, &row(ROW_KEY_BYTES_MAX), &select).await;
            assert_eq!(got.cells.len(), 1, "{f}: the cell with the longest key of bytes {fill}");
            let got = scan(table, &RowRange::row(row(ROW_KEY_BYTES_MAX)), &select).await;
            assert_eq!(got.len(), 1, "{f}: the row with the longest key of bytes {fill}");

            let long = RowMutation::new(row(ROW_KEY_BYTES_MAX + 1)).mutation(set(f, b"q", 1, "v"));
            invalid("a row key that is too long", table.mutate_row(long).await);
            for long in [
                set(f, &row(QUALIFIER_BYTES_MAX + 1), 1, "v"),
                delete(f, &row(QUALIFIER_BYTES_MAX + 1), TimeRange::ALL),
            ] {
                let long = RowMutation::new("r").mutation(long);
                invalid("a qualifier that is too long", table.mutate_row(long).await);
            }
        }
        let empty = RowMutation::new("").mutation(set(f, b"q", 1, "v"));
        invalid("an empty row key", table.mutate_row(empty).await);
        mutate(table, b"r", [set(f, b"", 1, "")]).await;
        assert_eq!(left(table, "r", f).await, ["@1="], "{f}: empty qualifier, empty value");
    }
}

pub(super) async fn unknown_family(store: &dyn Store) {
    let table = &*table(store, "write_unknown").await;
    let unknown = Family::from_static("unknown");
    for bad in [set(&unknown, b"q", 1, "v"), delete(&unknown, b"q", TimeRange::ALL)] {
        let request = RowMutation::new("r").mutation(bad.clone());
        invalid("a mutation of an unknown family", table.mutate_row(request).await);
        let request =
            crate::ConditionalMutation { then: vec![bad], ..crate::ConditionalMutation::new("r") };
        let got = table.check_and_mutate_row(request).await;
        invalid("a mutation of an unknown family that would not apply", got);
    }
    let request = crate::ConditionalMutation {
        predicate: vec![probe(&unknown, b"q", TimeRange::ALL)],
        ..crate::ConditionalMutation::new("r")
    };
    invalid("a probe of an unknown family", table.check_and_mutate_row(request).await);
}

pub(super) async fn refused_as_a_whole(store: &dyn Store) {
    let table = &*table(store, "write_whole").await;
    let long = Bytes::from(vec![b'q'; QUALIFIER_BYTES_MAX + 1]);
    for f in &EACH {
        mutate(table, b"r", [set(f, b"q", 1, "before")]).await;
        let request = RowMutation::new(RowKey::from("r"))
            .mutation(set(f, b"q", 1, "after"))
            .mutation(set(f, b"p", 1, "after"))
            .mutation(Mutation::set(f.clone(), long.clone(), ts(1), "after"));
        let got = table.mutate_row(request).await;
        assert!(matches!(got, Err(Error::InvalidRequest(_))), "{f}: got {got:?}");
        let got = left(table, "r", f).await;
        assert_eq!(got, ["q@1=before"], "{f}: a part of a refused request was applied");
    }
}
