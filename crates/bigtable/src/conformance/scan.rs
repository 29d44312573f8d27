//! Tests scans: bounds, pages, and families.

use std::ops::Bound;

use super::fixture::*;
use crate::{PageLimit, RowKey, RowRange, Selection, Store, Table, TimeRange};

const ROWS: [&str; 7] = ["a", "a\0", "aa", "ab", "b", "b\0", "c"];

async fn seven_rows(table: &dyn Table) {
    for row in ROWS {
        let mutations = EACH.iter().map(|f| set(f, b"q", 1, row));
        mutate(table, row.as_bytes(), mutations).await;
    }
}

pub(super) async fn bounds(store: &dyn Store) {
    let table = &*table(store, "scan_bounds").await;
    seven_rows(table).await;
    let points = ["a", "a\0", "a\0\0", "aa", "ab", "b", "bb", "c", "d", "A"];
    let bounds =
        |row: &str| [Bound::Included(RowKey::from(row)), Bound::Excluded(RowKey::from(row))];
    let mut each: Vec<_> = points.iter().flat_map(|row| bounds(row)).collect();
    each.push(Bound::Unbounded);
    each.push(Bound::Included(RowKey::from("")));
    each.push(Bound::Excluded(RowKey::from("")));
    each.push(Bound::Included(RowKey::from(vec![b'a'; 100_000])));
    for f in &EACH {
        for start in &each {
            for end in &each {
                let range = RowRange { start: start.clone(), end: end.clone() };
                let got = scan(table, &range, &family(f, TimeRange::ALL, 1)).await;
                let want = ROWS.iter().filter(|row| range.contains(&RowKey::from(**row)));
                let want: Vec<_> = want.map(|row| RowKey::from(*row).to_string()).collect();
                assert_eq!(keys(&got), want, "{f}: rows in {range:?}");
            }
        }
        for (range, want) in [
            (RowRange::all(), 7),
            (RowRange::prefix("a"), 4),
            (RowRange::prefix(""), 7),
            (RowRange::row("b"), 1),
            (RowRange::between("a\0", "b"), 3),
            (RowRange::all().after(RowKey::from("ab")), 3),
        ] {
            let got = scan(table, &range, &family(f, TimeRange::ALL, 1)).await;
            assert_eq!(got.len(), want, "{f}: {range:?} gave {:?}", keys(&got));
        }
    }
}

pub(super) async fn pages(store: &dyn Store) {
    let table = &*table(store, "scan_pages").await;
    seven_rows(table).await;
    let one_by_one = EACH.each_ref().map(|f| family(f, TimeRange::ALL, 1));
    for select in one_by_one.into_iter().chain([everything()]) {
        let whole = scan(table, &RowRange::all(), &select).await;
        assert_eq!(whole.len(), ROWS.len(), "a whole scan gave {:?}", keys(&whole));
        for rows_max in 1..=ROWS.len() + 1 {
            let limit = PageLimit { rows_max, ..PageLimit::default() };
            let pages = super::fixture::pages(table, &RowRange::all(), &select, limit).await;
            let rows: Vec<_> = pages.iter().flat_map(|page| page.rows.clone()).collect();
            assert_eq!(rows, whole, "pages of {rows_max} rows together");
        }
        let none = PageLimit { rows_max: 0, bytes_max: 0 };
        let pages = super::fixture::pages(table, &RowRange::prefix("a"), &select, none).await;
        let rows: Vec<_> = pages.iter().flat_map(|page| page.rows.clone()).collect();
        assert_eq!(rows, whole[..4], "a page holds at least one row");
    }
}

pub(super) async fn bytes_of_a_page(store: &dyn Store) {
    let table = &*table(store, "scan_bytes").await;
    for f in &EACH {
        for row in 0..10 {
            mutate(table, format!("{f}{row}").as_bytes(), [set(f, b"q", 1, &"v".repeat(1000))])
                .await;
        }
        for (bytes_max, most) in [(0, 1), (1, 1), (500, 1), (1500, 2), (2500, 3), (1 << 20, 10)] {
            let limit = PageLimit { bytes_max, ..PageLimit::default() };
            let select = family(f, TimeRange::ALL, 1);
            let pages = super::fixture::pages(table, &RowRange::all(), &select, limit).await;
            let rows = pages.iter().map(|page| page.rows.len());
            assert_eq!(rows.clone().sum::<usize>(), 10, "{f}: pages of {bytes_max} bytes");
            let largest = rows.max().unwrap_or(0);
            assert!(largest <= most, "{f}: {largest} rows of 1 KB in a page of {bytes_max} bytes");
        }
    }
}

pub(super) async fn chosen_families(store: &dyn Store) {
    let table = &*table(store, "scan_families").await;
    for (index, f) in EACH.iter().chain([&PLAIN_TOO]).enumerate() {
        mutate(table, format!("only{index}").as_bytes(), [set(f, b"q", 1, "v")]).await;
        mutate(table, b"shared", [set(f, b"q", 1, "v"), set(f, b"p", 1, "v")]).await;
    }
    for (index, f) in EACH.iter().chain([&PLAIN_TOO]).enumerate() {
        let got = scan(table, &RowRange::all(), &family(f, TimeRange::ALL, 1)).await;
        assert_eq!(keys(&got), [format!("only{index}"), "shared".to_owned()], "{f} alone");
        let want = ["p", "q"].map(|q| format!("{f}:{q}@1=v"));
        assert_eq!(shown_fully(&got[1]), want, "{f} alone, the shared row");
        let got = scan(table, &RowRange::all(), &column(f, b"p", TimeRange::ALL, 1)).await;
        assert_eq!(keys(&got), ["shared"], "{f}: rows with the column");
    }
    let got = scan(table, &RowRange::all(), &everything()).await;
    let want = ["only0", "only1", "only2", "only3", "only4", "shared"];
    assert_eq!(keys(&got), want, "all families");
    assert_eq!(got[5].cells.len(), 10, "all cells of the shared row: {:?}", shown_fully(&got[5]));
}

pub(super) async fn rows_without_cells(store: &dyn Store) {
    let table = &*table(store, "scan_gaps").await;
    for f in &EACH {
        for row in 0..20 {
            // Every third row has a selected cell. The other rows have it in another column,
            // at another time, or deleted.
            let row_key = format!("{row:02}");
            match row % 3 {
                0 => mutate(table, row_key.as_bytes(), [set(f, b"q", 5, "v")]).await,
                1 => {
                    mutate(table, row_key.as_bytes(), [set(f, b"q", 9, "v"), set(f, b"p", 5, "v")])
                        .await
                }
                _ => {
                    mutate(table, row_key.as_bytes(), [set(f, b"q", 5, "v")]).await;
                    mutate(table, row_key.as_bytes(), [delete(f, b"q", TimeRange::ALL)]).await;
                }
            }
        }
        let select = column(f, b"q", TimeRange::up_to(ts(5)), 1);
        for rows_max in [1, 2, 3, 100] {
            let limit = PageLimit { rows_max, ..PageLimit::default() };
            let pages = super::fixture::pages(table, &RowRange::all(), &select, limit).await;
            let rows: Vec<_> = pages.into_iter().flat_map(|page| page.rows).collect();
            let want = ["00", "03", "06", "09", "12", "15", "18"];
            assert_eq!(keys(&rows), want, "{f}: rows with a selected cell, {rows_max} at a time");
        }
        for row in 0..20 {
            mutate(
                table,
                format!("{row:02}").as_bytes(),
                [delete(f, b"q", TimeRange::ALL), delete(f, b"p", TimeRange::ALL)],
            )
            .await;
        }
        let got = scan(table, &RowRange::all(), &family(f, TimeRange::ALL, 1)).await;
        assert!(got.is_empty(), "{f}: all cells deleted, yet rows {:?}", keys(&got));
    }
}

pub(super) async fn empty_ranges(store: &dyn Store) {
    let table = &*table(store, "scan_empty").await;
    for f in &EACH {
        let select = family(f, TimeRange::ALL, 1);
        let got = scan(table, &RowRange::all(), &select).await;
        assert!(got.is_empty(), "{f}: an empty table has rows {:?}", keys(&got));
    }
    seven_rows(table).await;
    for f in &EACH {
        let select = family(f, TimeRange::ALL, 1);
        for range in [
            RowRange::between("b", "b"),
            RowRange::between("c", "a"),
            RowRange::between("x", "y"),
            RowRange::row("").after(RowKey::from("")),
            RowRange::row("ac"),
            RowRange::row("a").after(RowKey::from("a")),
        ] {
            let page = ok("scanning", table.scan(&range, &select, PageLimit::default()).await);
            assert!(page.rows.is_empty(), "{f}: {range:?} has rows {:?}", keys(&page.rows));
        }
        let got = scan(table, &RowRange::all(), &Selection::default()).await;
        assert!(got.is_empty(), "an empty selection gives rows {:?}", keys(&got));
    }
    let unknown = crate::Family::from_static("unknown");
    let select = family(&unknown, TimeRange::ALL, 1);
    let got = table.scan(&RowRange::all(), &select, PageLimit::default()).await;
    invalid("scanning an unknown family", got);
}

pub(super) async fn any_bytes(store: &dyn Store) {
    let table = &*table(store, "scan_any").await;
    let mut rows: Vec<Vec<u8>> = vec![vec![0], vec![0, 0], vec![0, 1], vec![0, 255], vec![1]];
    rows.extend([vec![97], vec![97, 0], vec![97, 0, 98], vec![97, 255], vec![255], vec![255, 255]]);
    for f in &EACH {
        for row in &rows {
            mutate(table, row, [set(f, row, 1, "v"), set(f, b"", 1, "v")]).await;
        }
        let select = family(f, TimeRange::ALL, 1);
        let got = scan(table, &RowRange::all(), &select).await;
        let got: Vec<_> = got.iter().map(|row| row.key.as_bytes().to_vec()).collect();
        assert_eq!(got, rows, "{f}: row keys in the order of their bytes");
        for row in &rows {
            let range = RowRange::prefix(RowKey::from(&row[..]));
            let got = scan(table, &range, &select).await;
            let want = rows.iter().filter(|other| other.starts_with(row)).count();
            assert_eq!(got.len(), want, "{f}: rows that begin with {row:?}: {:?}", keys(&got));
            let all = got.iter().all(|row| row.cells.len() == 2);
            assert!(all, "{f}: two columns in each row that begins with {row:?}");
        }
    }
}

pub(super) async fn older_versions(store: &dyn Store) {
    let table = &*table(store, "scan_older").await;
    for f in &EACH {
        // Long and short histories alternate, so that a cursor over them both walks and seeks.
        for row in 0..12_u64 {
            for q in 0..3_u64 {
                let versions = if (row + q).is_multiple_of(3) { 70 } else { 1 + (row + q) % 3 };
                let sets = (0..versions).map(|at| set(f, &[q as u8], 10 + at, &format!("{at}")));
                mutate(table, format!("{row:02}").as_bytes(), sets).await;
            }
        }
        for (select, at_most) in [
            (family(f, from_to(0, 10), 1), 1),
            (family(f, from_to(0, 11), 2), 2),
            (family(f, from_to(0, 40), 5), 5),
            (family(f, TimeRange::ALL, u32::MAX), 70),
            (column(f, &[1], from_to(11, 12), 9), 2),
            (
                column(f, &[2], from_to(11, 12), 9).column(f.clone(), &[2][..], from_to(60, 70), 4),
                6,
            ),
        ] {
            let got = scan(table, &RowRange::all(), &select).await;
            for row in &got {
                let same = read(table, row.key.as_bytes(), &select).await;
                assert_eq!(shown(row), shown(&same), "{f}: row {} scanned and read", row.key);
                let most = 3 * at_most;
                assert!(row.cells.len() <= most, "{f}: {} cells of {most}", row.cells.len());
            }
            let mut rows = 0;
            for row in 0..12 {
                let read = read(table, format!("{row:02}").as_bytes(), &select).await;
                rows += usize::from(!read.cells.is_empty());
            }
            assert_eq!(got.len(), rows, "{f}: rows scanned, against rows read one by one");
        }
    }
}
