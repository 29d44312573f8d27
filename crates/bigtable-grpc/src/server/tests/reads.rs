//! Tests ReadRows: the choice of rows, their order, their chunks.

use super::*;
use crate::proto::data::RowRange;
use crate::proto::data::row_range::{EndKey, StartKey};

fn ranges(ranges: Vec<(Option<StartKey>, Option<EndKey>)>) -> ReadRowsRequest {
    let range = |(start_key, end_key)| RowRange { start_key, end_key };
    let row_ranges = ranges.into_iter().map(range).collect();
    let rows = Some(RowSet { row_keys: Vec::new(), row_ranges });
    ReadRowsRequest { rows, ..Default::default() }
}

async fn letters(dir: &Path) -> World {
    let mut world = World::with_table(dir, &["a"]).await;
    for row in ["a", "b", "c", "d", "e"] {
        world.set(row, "a:q", 1000, "v").await;
    }
    world
}

fn rows(cells: &[String]) -> String {
    cells.iter().map(|cell| cell.split('/').next().unwrap_or_default()).collect()
}

#[tokio::test]
async fn keys_and_ranges_choose_rows() {
    use EndKey::{EndKeyClosed, EndKeyOpen};
    use StartKey::{StartKeyClosed, StartKeyOpen};
    let dir = tempfile::tempdir().unwrap();
    let mut world = letters(dir.path()).await;
    let cases: Vec<(Option<StartKey>, Option<EndKey>, &str)> = vec![
        (None, None, "abcde"),
        (Some(StartKeyClosed("b".into())), Some(EndKeyOpen("d".into())), "bc"),
        (Some(StartKeyOpen("b".into())), Some(EndKeyClosed("d".into())), "cd"),
        (Some(StartKeyOpen("b".into())), Some(EndKeyOpen("d".into())), "c"),
        (Some(StartKeyClosed("".into())), Some(EndKeyOpen("c".into())), "ab"),
        (Some(StartKeyOpen("".into())), Some(EndKeyOpen("".into())), "abcde"),
        (Some(StartKeyClosed("d".into())), None, "de"),
        (Some(StartKeyClosed("c".into())), Some(EndKeyOpen("c".into())), ""),
        (Some(StartKeyClosed("c".into())), Some(EndKeyClosed("c".into())), "c"),
        (Some(StartKeyClosed("x".into())), Some(EndKeyOpen("y".into())), ""),
    ];
    for (start, end, expected) in cases {
        for reversed in [false, true] {
            let request = ranges(vec![(start.clone(), end.clone())]);
            let request = ReadRowsRequest { reversed, ..request };
            let mut got = rows(&world.read(request).await.unwrap());
            if reversed {
                got = got.chars().rev().collect();
            }
            assert_eq!(got, expected, "{start:?} to {end:?}, reversed: {reversed}");
        }
    }
    for (start, end) in [("d", "b"), ("bb", "b")] {
        for start in [StartKeyClosed(start.into()), StartKeyOpen(start.into())] {
            for end in [EndKeyClosed(end.into()), EndKeyOpen(end.into())] {
                let request = ranges(vec![(Some(start.clone()), Some(end))]);
                refused(world.read(request).await, Code::InvalidArgument);
            }
        }
    }
    // Keys and ranges together: each row once, in order.
    let mut request = ranges(vec![
        (Some(StartKeyClosed("c".into())), None),
        (Some(StartKeyClosed("b".into())), Some(EndKeyOpen("d".into()))),
    ]);
    request.rows.as_mut().unwrap().row_keys = vec!["e".into(), "a".into(), "x".into(), "a".into()];
    assert_eq!(rows(&world.read(request.clone()).await.unwrap()), "abcde");
    request.reversed = true;
    assert_eq!(rows(&world.read(request).await.unwrap()), "edcba");
    let request = ReadRowsRequest { rows: keys(&[""]), ..Default::default() };
    refused(world.read(request).await, Code::InvalidArgument);
    let long = "x".repeat(4097);
    let request = ReadRowsRequest { rows: keys(&[&long]), ..Default::default() };
    refused(world.read(request).await, Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test]
async fn the_limit_counts_rows_that_have_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = letters(dir.path()).await;
    world.set("b", "a:q", 1000, "other").await;
    let limit = |rows_limit, reversed, value: Option<&'static str>| ReadRowsRequest {
        rows_limit,
        reversed,
        filter: value.map(|value| filter(WireFilter::ValueRegexFilter(value.into()))),
        ..Default::default()
    };
    assert_eq!(rows(&world.read(limit(3, false, None)).await.unwrap()), "abc");
    assert_eq!(rows(&world.read(limit(3, true, None)).await.unwrap()), "edc");
    assert_eq!(rows(&world.read(limit(2, false, Some("v"))).await.unwrap()), "ac");
    assert_eq!(rows(&world.read(limit(1, true, Some("other"))).await.unwrap()), "b");
    assert_eq!(rows(&world.read(limit(0, false, None)).await.unwrap()), "abcde");
    refused(world.read(limit(-1, false, None)).await, Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test]
async fn cells_come_by_family_then_qualifier_then_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["write", "b", "a", "lock"]).await;
    for (column, at) in
        [("b:y", 1), ("lock:q", 1), ("b:x", 1), ("a:z", 1), ("b:x", 3), ("b:x", 2), ("write:q", 1)]
    {
        world.set("r", column, at * 1000, "v").await;
    }
    let expected = [
        "r/a:z@1000=v",
        "r/b:x@3000=v",
        "r/b:x@2000=v",
        "r/b:x@1000=v",
        "r/b:y@1000=v",
        "r/lock:q@1000=v",
        "r/write:q@1000=v",
    ];
    assert_eq!(world.all().await, expected);
    // A read of one row takes another path through the server.
    let request = ReadRowsRequest { rows: keys(&["r"]), ..Default::default() };
    assert_eq!(world.read(request).await.unwrap(), expected);
    world.mutate("r", vec![delete_row()]).await.unwrap();
    assert!(world.all().await.is_empty(), "a row without cells is not returned");
    world.stop().await;
}

#[tokio::test]
async fn large_values_and_many_rows_arrive_in_messages_that_clients_take() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    // Larger than the four megabytes that a client decodes by default.
    let large = "x".repeat(9 << 20);
    world.set("large", "a:q", 1000, &large).await;
    world.set("large", "a:r", 1000, "small").await;
    let cells = world.all().await;
    assert_eq!(cells, [&*format!("large/a:q@1000={} bytes", 9 << 20), "large/a:r@1000=small"]);
    for row in 0..3000 {
        world.set(&format!("{row:05}"), "a:q", 1000, "v").await;
    }
    let got = world.all().await;
    assert_eq!(got.len(), 3002);
    assert!(got[..3000].is_sorted());
    let request = ReadRowsRequest { reversed: true, ..Default::default() };
    let mut backwards = world.read(request).await.unwrap();
    backwards[..2].reverse();
    backwards.reverse();
    assert_eq!(backwards, got);
    world.stop().await;
}
