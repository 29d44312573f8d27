//! Tests reads of one row: which cells a selection includes, and their order.

use super::fixture::*;
use crate::{
    Bytes, Error, Family, Glance, Glanced, Qualifiers, RowKey, Selection, Store, Table, TimeRange,
};

/// Writes column "q" of row "r" at times 2, 4, 6 and 8, and a neighbour on each side of the
/// column and the row.
async fn four_versions(table: &dyn Table, family: &Family) {
    // The order of times is mixed, because a layout must not depend on it.
    for at in [4, 8, 2, 6] {
        mutate(table, b"r", [set(family, b"q", at, &format!("v{at}"))]).await;
    }
    mutate(table, b"r", [set(family, b"p", 5, "left"), set(family, b"q\0", 5, "right")]).await;
    mutate(table, b"q", [set(family, b"q", 5, "above")]).await;
    mutate(table, b"r\0", [set(family, b"q", 5, "below")]).await;
}

pub(super) async fn one_version(store: &dyn Store) {
    let table = &*table(store, "read_one").await;
    for f in &EACH {
        four_versions(table, f).await;
        for at in 0..=9 {
            let got = shown(&read(table, b"r", &column(f, b"q", TimeRange::at(ts(at)), 1)).await);
            let want = [format!("q@{at}=v{at}")];
            let want = if [2, 4, 6, 8].contains(&at) { &want[..] } else { &[] };
            assert_eq!(got, want, "{f}: version exactly at {at}");
        }
        for (row, want) in [("q", "above"), ("r\0", "below")] {
            let got = read(table, row.as_bytes(), &column(f, b"q", TimeRange::ALL, 1)).await;
            assert_eq!(shown(&got), [format!("q@5={want}")], "{f}: row {row:?}");
        }
    }
}

pub(super) async fn time_ranges(store: &dyn Store) {
    let table = &*table(store, "read_times").await;
    for f in &EACH {
        four_versions(table, f).await;
        for from in 0..=9 {
            for to in 0..=9 {
                let got = read(table, b"r", &column(f, b"q", from_to(from, to), u32::MAX)).await;
                let hit = [8, 6, 4, 2].into_iter().filter(|at| from <= *at && *at <= to);
                let want: Vec<_> = hit.map(|at| format!("q@{at}=v{at}")).collect();
                assert_eq!(shown(&got), want, "{f}: versions from {from} to {to}");
            }
        }
        for (time, newest) in [
            (TimeRange::up_to(ts(7)), Some(6)),
            (TimeRange::below(ts(2)), None),
            (TimeRange::since(ts(8)), Some(8)),
            (TimeRange::above(ts(8)), None),
            (TimeRange::EMPTY, None),
            (TimeRange::ALL, Some(8)),
        ] {
            let got = read(table, b"r", &column(f, b"q", time, 1)).await;
            let want: Vec<_> = newest.iter().map(|at| format!("q@{at}=v{at}")).collect();
            assert_eq!(shown(&got), want, "{f}: newest version in {time:?}");
        }
    }
}

pub(super) async fn glances(store: &dyn Store) {
    let table = &*table(store, "read_glance").await;
    for family in &EACH {
        four_versions(table, family).await;
    }
    // Guarded from time 5 on, in each family that can be a guard.
    for guard in [&MEMORY, &PLAIN] {
        mutate(table, b"r", [set(guard, b"guarded", 5, "x")]).await;
        for family in EACH.iter().filter(|family| *family != guard) {
            mutate(
                table,
                b"r",
                [set(family, b"guarded", 3, "old"), set(family, b"guarded", 4, "v4")],
            )
            .await;
            for (row, qualifier) in
                [("r", &b"guarded"[..]), ("r", b"absent"), ("absent", b"q"), ("r\0", b"absent")]
            {
                for s in 0..=6 {
                    let row = &RowKey::from(row);
                    let at = Glance { row, qualifier, family, guard, s: ts(s) };
                    let read = ok("a read", table.read_row(row, &at.selection()).await);
                    let glanced = ok("a glance", table.glance(at));
                    let may_be = [Glanced::Nothing, at.of(read)];
                    assert!(
                        may_be.contains(&glanced),
                        "{family} under {guard} at {s}: {glanced:?}"
                    );
                }
            }
        }
    }
    let (row, nowhere) = (&RowKey::from("r"), &Family::from_static("nowhere"));
    let at = Glance { row, qualifier: b"q", family: nowhere, guard: &MEMORY, s: ts(1) };
    assert!(matches!(table.glance(at), Ok(Glanced::Nothing) | Err(Error::InvalidRequest(_))));
}

pub(super) async fn versions_max(store: &dyn Store) {
    let table = &*table(store, "read_max").await;
    for f in &EACH {
        four_versions(table, f).await;
        for (to, all) in [(9, vec![8, 6, 4, 2]), (7, vec![6, 4, 2])] {
            for max in 0..=5 {
                let got = read(table, b"r", &column(f, b"q", from_to(0, to), max)).await;
                let want = all.iter().take(max as usize).map(|at| format!("q@{at}=v{at}"));
                let want: Vec<_> = want.collect();
                assert_eq!(shown(&got), want, "{f}: at most {max} versions up to {to}");
            }
        }
    }
}

pub(super) async fn whole_family(store: &dyn Store) {
    let table = &*table(store, "read_family").await;
    for f in &EACH {
        four_versions(table, f).await;
        let all = ["p@5=left", "q@8=v8", "q@6=v6", "q@4=v4", "q@2=v2", "q\\x00@5=right"];
        let got = read(table, b"r", &family(f, TimeRange::ALL, u32::MAX)).await;
        assert_eq!(shown(&got), all, "{f}: all cells of the family");
        let got = read(table, b"r", &family(f, TimeRange::ALL, 1)).await;
        assert_eq!(shown(&got), [all[0], all[1], all[5]], "{f}: newest version of each column");
        let got = read(table, b"r", &family(f, from_to(3, 6), 1)).await;
        assert_eq!(shown(&got), [all[0], all[2], all[5]], "{f}: newest from 3 to 6");
        let got = read(table, b"r", &family(f, TimeRange::at(ts(4)), 1)).await;
        assert_eq!(shown(&got), [all[3]], "{f}: exactly at 4");
        let got = read(table, b"r", &family(f, TimeRange::ALL, 0)).await;
        assert_eq!(shown(&got), [""; 0], "{f}: no versions asked for");
    }
}

pub(super) async fn order_of_cells(store: &dyn Store) {
    let table = &*table(store, "read_order").await;
    let mut mutations = Vec::new();
    for f in [&SPILL, &PLAIN_TOO, &NEWEST, &MEMORY, &PLAIN] {
        for q in [&b"b"[..], b"", b"a\xff", b"a"] {
            mutations.extend([set(f, q, 1, "old"), set(f, q, 2, "new")]);
        }
    }
    mutate(table, b"r", mutations).await;
    let got = shown_fully(&read(table, b"r", &everything()).await);
    let mut want = Vec::new();
    for f in ["memory", "newest", "plain", "plain-too", "spill"] {
        for q in ["", "a", "a\\xff", "b"] {
            want.extend([format!("{f}:{q}@2=new"), format!("{f}:{q}@1=old")]);
        }
    }
    assert_eq!(got, want, "cells sort by family, qualifier, newest first");
    let backwards = EACH.iter().rev().fold(Selection::default(), |select, f| {
        select.column(f.clone(), "b", TimeRange::at(ts(1)), 1).column(
            f.clone(),
            "a",
            TimeRange::ALL,
            1,
        )
    });
    let got = shown_fully(&read(table, b"r", &backwards).await);
    let mut want = Vec::new();
    for f in ["memory", "newest", "plain", "spill"] {
        want.extend([format!("{f}:a@2=new"), format!("{f}:b@1=old")]);
    }
    assert_eq!(got, want, "the order of a selection does not change that of the cells");
}

pub(super) async fn any_bytes(store: &dyn Store) {
    let table = &*table(store, "read_bytes").await;
    let texts: [&[u8]; 11] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\x01",
        b"\0\xff",
        b"\x01",
        b"a",
        b"a\0",
        b"a\0b",
        b"\xff",
        b"\xff\xff",
    ];
    for f in &EACH {
        for row in &texts[1..] {
            for q in texts {
                // The value names its cell, so that a mix-up is visible.
                let value = format!("{row:?}{q:?}");
                mutate(table, row, [set(f, q, 7, &value), set(f, q, 0, "oldest")]).await;
            }
        }
        for row in &texts[1..] {
            for q in texts {
                let got = read(table, row, &column(f, q, TimeRange::ALL, u32::MAX)).await;
                let values: Vec<_> = got.cells.iter().map(|c| c.value.clone()).collect();
                let want = [Bytes::from(format!("{row:?}{q:?}")), Bytes::from("oldest")];
                assert_eq!(values, want, "{f}: row {row:?}, qualifier {q:?}");
            }
            let got = read(table, row, &family(f, TimeRange::since(ts(1)), 1)).await;
            let got: Vec<_> = got.cells.iter().map(|c| &c.qualifier[..]).collect();
            assert_eq!(got, texts, "{f}: qualifiers of row {row:?}");
        }
    }
}

pub(super) async fn several_selections(store: &dyn Store) {
    let table = &*table(store, "read_several").await;
    for f in &EACH {
        four_versions(table, f).await;
        let one = Selection::default()
            .column(f.clone(), "q", from_to(7, 9), 9)
            .column(f.clone(), "q", from_to(3, 5), 9)
            .column(f.clone(), "p", TimeRange::ALL, 1);
        let got = shown(&read(table, b"r", &one).await);
        assert_eq!(got, ["p@5=left", "q@8=v8", "q@4=v4"], "{f}: disjoint times of one column");
        let two = Selection::default().family(f.clone(), from_to(6, 9), 1).family(
            f.clone(),
            from_to(0, 5),
            1,
        );
        let got = shown(&read(table, b"r", &two).await);
        let want = ["p@5=left", "q@8=v8", "q@4=v4", "q\\x00@5=right"];
        assert_eq!(got, want, "{f}: the newest of each of two eras");
    }
    // A Percolator `Get`: locks, the newest write record and data, in one request.
    let mut get = Selection::default();
    for f in &EACH {
        get = get.column(f.clone(), "q", TimeRange::up_to(ts(5)), 1);
    }
    let got = shown_fully(&read(table, b"r", &get).await);
    let want = ["memory", "newest", "plain", "spill"].map(|f| format!("{f}:q@4=v4"));
    assert_eq!(got, want, "one column of each family");
}

pub(super) async fn several_rows(store: &dyn Store) {
    let table = &*table(store, "read_rows").await;
    for (at, row) in [(1, "a"), (2, "b"), (3, "d")] {
        mutate(table, row.as_bytes(), EACH.iter().map(|f| set(f, b"q", at, row))).await;
    }
    let keys = |keys: &[&str]| keys.iter().map(|key| RowKey::from(*key)).collect::<Vec<_>>();
    for f in &EACH {
        let select = column(f, b"q", TimeRange::ALL, 1);
        for asked in [&[][..], &["d"], &["d", "a", "c", "b", "a"]] {
            let got = table.read_rows(&keys(asked), &select).await.expect("rows are read");
            let mut each = Vec::new();
            for row in asked {
                each.push(read(table, row.as_bytes(), &select).await);
            }
            assert_eq!(got, each, "{f}: {asked:?} together are not what they are one by one");
        }
        let nothing = table.read_rows(&keys(&["b"]), &Selection::default()).await;
        let nothing = nothing.expect("an empty selection is one");
        assert!(nothing[0].cells.is_empty(), "an empty selection selects cells: {nothing:?}");
        invalid("reading the empty row key", table.read_rows(&keys(&["a", ""]), &select).await);
    }
    let unknown = Family::from_static("unknown");
    let got = table.read_rows(&keys(&["a"]), &family(&unknown, TimeRange::ALL, 1)).await;
    invalid("reading an unknown family", got);
}

pub(super) async fn overlaps_are_refused(store: &dyn Store) {
    let table = table(store, "read_overlap").await;
    let row = RowKey::from("r");
    let all = TimeRange::ALL;
    for f in &EACH {
        for overlap in [
            column(f, b"q", all, 1).column(f.clone(), "q", all, 1),
            column(f, b"q", from_to(0, 5), 1).column(f.clone(), "q", from_to(5, 9), 1),
            column(f, b"q", from_to(1, 3), 1).column(f.clone(), "p", all, 1).column(
                f.clone(),
                "q",
                from_to(2, 2),
                1,
            ),
            family(f, all, 1).column(f.clone(), "q", TimeRange::at(ts(3)), 1),
            column(f, b"", TimeRange::at(ts(3)), 1).family(f.clone(), all, 1),
            family(f, from_to(0, 5), 1).family(f.clone(), from_to(5, 5), 1),
        ] {
            invalid("reading an overlap", table.read_row(&row, &overlap).await);
            let scan = table.scan(&crate::RowRange::all(), &overlap, Default::default()).await;
            invalid("scanning an overlap", scan);
        }
        let apart = column(f, b"q", from_to(0, 4), 1)
            .column(f.clone(), "q", from_to(5, 9), 1)
            .column(f.clone(), "q", TimeRange::EMPTY, 1)
            .column(f.clone(), "q\0", all, 1);
        ok("reading what does not overlap", table.read_row(&row, &apart).await);
    }
}

pub(super) async fn nothing_there(store: &dyn Store) {
    let table = &*table(store, "read_nothing").await;
    mutate(table, b"r", [set(&PLAIN, b"q", 5, "v")]).await;
    for f in &EACH {
        let got = read(table, b"none", &family(f, TimeRange::ALL, 1)).await;
        assert!(got.cells.is_empty(), "{f}: a row that is not there has cells: {got:?}");
        let got = read(table, b"r", &column(f, b"none", TimeRange::ALL, 1)).await;
        assert!(got.cells.is_empty(), "{f}: a column that is not there has cells: {got:?}");
    }
    let got = read(table, b"r", &Selection::default()).await;
    assert!(got.cells.is_empty(), "an empty selection selects cells: {got:?}");
    let unknown = Family::from_static("unknown");
    let got = table.read_row(&RowKey::from("r"), &family(&unknown, TimeRange::ALL, 1)).await;
    invalid("reading an unknown family", got);
    let got = table.read_row(&RowKey::from(""), &family(&PLAIN, TimeRange::ALL, 1)).await;
    invalid("reading the empty row key", got);
    assert_eq!(everything().columns[0].qualifiers, Qualifiers::All);
}

pub(super) async fn large_values(store: &dyn Store) {
    let table = &*table(store, "read_large").await;
    let value = |size: usize, salt: u64| {
        let mut random = Random(salt);
        (0..size).map(|_| char::from(b'a' + (random.next() % 26) as u8)).collect::<String>()
    };
    for f in &EACH {
        for (at, size) in [0, 1, 19, 1023, 4096, 5000, 300_000].into_iter().enumerate() {
            let at = at as u64;
            mutate(table, b"r", [set(f, b"q", at, &value(size, at))]).await;
        }
        let got = read(table, b"r", &column(f, b"q", TimeRange::ALL, u32::MAX)).await;
        let got: Vec<_> = got.cells.iter().rev().map(|cell| cell.value.clone()).collect();
        for (at, size) in [0, 1, 19, 1023, 4096, 5000, 300_000].into_iter().enumerate() {
            let same = got.get(at).is_some_and(|got| *got == value(size, at as u64));
            assert!(same, "{f}: a value of {size} bytes came back changed");
        }
    }
}
