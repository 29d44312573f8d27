//! Tests conditional mutations: which cells a predicate sees, and which changes are applied.

use super::fixture::*;
use crate::{ConditionalMutation, Error, Family, Probe, Store, TimeRange};

pub(super) async fn any_probe(store: &dyn Store) {
    let table = &*table(store, "cond_any").await;
    for f in &EACH {
        mutate(table, b"r", [set(f, b"here", 5, "v")]).await;
        let here = || probe(f, b"here", TimeRange::ALL);
        let gone = || probe(f, b"gone", TimeRange::ALL);
        for (what, predicate, want) in [
            ("nothing", vec![], false),
            ("one that finds", vec![here()], true),
            ("one that does not", vec![gone()], false),
            ("the first finds", vec![here(), gone()], true),
            ("the last finds", vec![gone(), gone(), here()], true),
            ("none finds", vec![gone(), gone()], false),
        ] {
            assert_eq!(finds(table, b"r", predicate).await, want, "{f}: predicate of {what}");
        }
        assert!(
            !finds(table, b"other", vec![here()]).await,
            "{f}: a probe found another row's cell"
        );
    }
    // Probes of one predicate may name different families.
    mutate(table, b"mixed", [set(&NEWEST, b"q", 5, "v")]).await;
    for f in &EACH {
        let predicate = vec![probe(f, b"q", TimeRange::ALL), probe(&MEMORY, b"x", TimeRange::ALL)];
        let got = finds(table, b"mixed", predicate).await;
        assert_eq!(got, *f == NEWEST, "probe of {f}, where only {NEWEST} has a cell");
    }
}

pub(super) async fn nothing_probed(store: &dyn Store) {
    let table = &*table(store, "cond_none").await;
    for f in &EACH {
        let then = vec![set(f, b"q", 1, "then")];
        let otherwise = vec![set(f, b"q", 1, "otherwise")];
        let held = decide(table, b"r", vec![], then, otherwise).await;
        assert!(!held, "{f}: an empty predicate held");
        let got = read(table, b"r", &family(f, TimeRange::ALL, 9)).await;
        assert_eq!(shown(&got), ["q@1=otherwise"], "{f}: an empty predicate applies `otherwise`");
    }
}

pub(super) async fn probed_times(store: &dyn Store) {
    let table = &*table(store, "cond_times").await;
    for f in &EACH {
        for at in [2, 8, 5] {
            mutate(table, b"r", [set(f, b"q", at, "v")]).await;
            mutate(table, b"r", [set(f, b"q\0", 3, "v"), set(f, b"", 6, "v")]).await;
        }
        for from in 0..=9 {
            for to in 0..=9 {
                let want = [2, 5, 8].iter().any(|at| from <= *at && *at <= to);
                let got = finds(table, b"r", vec![probe(f, b"q", from_to(from, to))]).await;
                assert_eq!(got, want, "{f}: versions 2, 5, 8, probed from {from} to {to}");
            }
            let time = TimeRange::since(ts(from));
            let got = finds(table, b"r", vec![probe(f, b"q", time)]).await;
            assert_eq!(got, from <= 8, "{f}: any version at or above {from}");
        }
    }
}

pub(super) async fn probed_families(store: &dyn Store) {
    let table = &*table(store, "cond_families").await;
    let any = |f: &Family, time| vec![Probe::family(f.clone(), time)];
    for f in &EACH {
        // Add neighbours in the order of keys; none of their cells counts.
        for other in EACH.iter().filter(|other| *other != f) {
            mutate(table, b"r", [set(other, b"q", 5, "v")]).await;
        }
        for row in [&b"q"[..], b"r\0", b"s"] {
            mutate(table, row, [set(f, b"q", 5, "v")]).await;
        }
        assert!(!finds(table, b"r", any(f, TimeRange::ALL)).await, "{f}: an empty row");
        let cells = [set(f, b"", 2, "ab"), set(f, b"q", 4, "cd"), set(f, b"q", 6, "ef")];
        mutate(table, b"r", cells).await;
        mutate(table, b"r", [set(f, b"\xff\xff", 8, "gh")]).await;
        for at in 0..=9 {
            let got = finds(table, b"r", any(f, TimeRange::at(ts(at)))).await;
            assert_eq!(got, [2, 4, 6, 8].contains(&at), "{f}: any column at {at}");
        }
        for (prefix, time, want) in [
            ("c", TimeRange::ALL, true),
            ("c", TimeRange::at(ts(6)), false),
            ("cd", from_to(3, 5), true),
            ("x", TimeRange::ALL, false),
            ("gh", TimeRange::since(ts(8)), true),
        ] {
            let probe = Probe::family(f.clone(), time).with_value_prefix(prefix);
            let got = finds(table, b"r", vec![probe]).await;
            assert_eq!(got, want, "{f}: a value that begins with {prefix:?} in {time:?}");
        }
        let gone = [b"".as_slice(), b"q", b"\xff\xff"].map(|q| delete(f, q, TimeRange::ALL));
        mutate(table, b"r", gone).await;
        assert!(!finds(table, b"r", any(f, TimeRange::ALL)).await, "{f}: all is deleted");
        for row in [&b"q"[..], b"r\0", b"s"] {
            mutate(table, row, [delete(f, b"q", TimeRange::ALL)]).await;
        }
        for other in EACH.iter().filter(|other| *other != f) {
            mutate(table, b"r", [delete(other, b"q", TimeRange::ALL)]).await;
        }
    }
}

pub(super) async fn value_prefixes(store: &dyn Store) {
    let table = &*table(store, "cond_values").await;
    for f in &EACH {
        // Percolator's own use: a write record at c begins with s.
        for (c, s) in [(10, 7_u64), (20, 12), (30, 25)] {
            let value = [&s.to_be_bytes()[..], b"short value"].concat();
            let value = crate::Bytes::from(value);
            let put = crate::Mutation::set(f.clone(), "q", ts(c), value);
            mutate(table, b"r", [put]).await;
        }
        let points_to = |s: u64, time: TimeRange| {
            probe(f, b"q", time).with_value_prefix(s.to_be_bytes().to_vec())
        };
        let all = TimeRange::ALL;
        for s in [7, 12, 25] {
            assert!(
                finds(table, b"r", vec![points_to(s, all)]).await,
                "{f}: a write pointing at {s}"
            );
        }
        assert!(!finds(table, b"r", vec![points_to(8, all)]).await, "{f}: no write points at 8");
        for (s, time, want) in [
            (7, from_to(11, 40), false),
            (12, from_to(11, 40), true),
            (25, TimeRange::at(ts(30)), true),
            (25, TimeRange::at(ts(20)), false),
        ] {
            let got = finds(table, b"r", vec![points_to(s, time)]).await;
            assert_eq!(got, want, "{f}: a write in {time:?} pointing at {s}");
        }
        mutate(table, b"r", [set(f, b"p", 1, "abc")]).await;
        for (prefix, want) in
            [("", true), ("a", true), ("abc", true), ("abcd", false), ("b", false)]
        {
            let probe = probe(f, b"p", all).with_value_prefix(prefix);
            let got = finds(table, b"r", vec![probe]).await;
            assert_eq!(got, want, "{f}: value abc, probed for {prefix:?}");
        }
    }
}

pub(super) async fn both_branches(store: &dyn Store) {
    let table = &*table(store, "cond_both").await;
    for f in &EACH {
        // Prewrite: in one request, a lock unless there is one, and the data.
        let lock = |at, owner: &str| {
            decide(
                table,
                b"r",
                vec![probe(f, b"lock", TimeRange::ALL)],
                vec![],
                vec![set(f, b"lock", at, owner), set(&PLAIN, b"data", at, owner)],
            )
        };
        assert!(!lock(5, "first").await, "{f}: the first writer finds no lock");
        assert!(lock(6, "second").await, "{f}: the second writer finds the lock");
        let locks = column(f, b"lock", TimeRange::ALL, 9);
        let got = read(table, b"r", &locks).await;
        assert_eq!(shown(&got), ["lock@5=first"], "{f}: only the first lock");
        let got = read(table, b"r", &column(&PLAIN, b"data", TimeRange::ALL, 9)).await;
        assert_eq!(shown(&got), ["data@5=first"], "{f}: only the first writer's data");
        // Commit: if the lock exists, write a write record and remove the lock.
        let commit = || {
            decide(
                table,
                b"r",
                vec![probe(f, b"lock", TimeRange::at(ts(5)))],
                vec![set(&NEWEST, b"write", 9, "5"), delete(f, b"lock", TimeRange::at(ts(5)))],
                vec![set(&NEWEST, b"late", 9, "5")],
            )
        };
        assert!(commit().await, "{f}: the lock is there");
        assert!(!commit().await, "{f}: the lock is gone");
        let got = read(table, b"r", &locks).await;
        assert!(got.cells.is_empty(), "{f}: the lock is still read: {:?}", shown(&got));
        let got = read(table, b"r", &family(&NEWEST, from_to(9, 9), 9)).await;
        assert!(got.newest(&NEWEST, b"write").is_some(), "{f}: the write record");
        assert!(got.newest(&NEWEST, b"late").is_some(), "{f}: the other branch, afterwards");
        mutate(
            table,
            b"r",
            [
                delete(&NEWEST, b"write", TimeRange::ALL),
                delete(&NEWEST, b"late", TimeRange::ALL),
                delete(&PLAIN, b"data", TimeRange::ALL),
            ],
        )
        .await;
    }
}

pub(super) async fn repeated(store: &dyn Store) {
    let table = &*table(store, "cond_repeat").await;
    for f in &EACH {
        // Each request sees the effect of the previous one.
        for n in 0..50 {
            let held = decide(
                table,
                b"r",
                vec![probe(f, b"flag", TimeRange::ALL)],
                vec![delete(f, b"flag", TimeRange::ALL)],
                vec![set(f, b"flag", n, "up")],
            )
            .await;
            assert_eq!(held, n % 2 == 1, "{f}: request {n} of a flag that goes up and down");
        }
    }
}

pub(super) async fn batches(store: &dyn Store) {
    let table = &*table(store, "cond_batch").await;
    for f in &EACH {
        let lock = |row: &str, at: u64| ConditionalMutation {
            predicate: vec![probe(f, b"lock", TimeRange::ALL)],
            otherwise: vec![set(f, b"lock", at, "v")],
            ..ConditionalMutation::new(format!("{f}{row}"))
        };
        let none = table.check_and_mutate_rows(vec![]).await;
        assert!(none.is_empty(), "{f}: results of no requests: {none:?}");
        mutate(table, format!("{f}b").as_bytes(), [set(f, b"lock", 1, "before")]).await;
        let bad = ConditionalMutation { row: "".into(), ..lock("", 2) };
        let requests = vec![lock("a", 2), lock("b", 2), bad, lock("c", 2), lock("d", 2)];
        let got = table.check_and_mutate_rows(requests).await;
        let got: Vec<_> = got.into_iter().map(|r| r.map_err(|e| e.to_string().len() > 1)).collect();
        let want = [Ok(false), Ok(true), Err(true), Ok(false), Ok(false)];
        assert_eq!(got, want, "{f}: results in the order of the requests, each its own");
        // Several requests for one row: exactly one wins, in any order.
        let requests: Vec<_> = (1..=5).map(|at| lock("e", at)).collect();
        let got = table.check_and_mutate_rows(requests).await;
        let won = got.iter().filter(|result| matches!(result, Ok(false))).count();
        assert_eq!((got.len(), won), (5, 1), "{f}: five locks on one row in one batch: {got:?}");
        let locks = read(table, format!("{f}e").as_bytes(), &family(f, TimeRange::ALL, 9)).await;
        assert_eq!(locks.cells.len(), 1, "{f}: locks left: {:?}", shown(&locks));
        // More requests than one group of any store can hold.
        let requests: Vec<_> = (0..3000).map(|n| lock(&format!("many{}", n % 1500), n)).collect();
        let got = table.check_and_mutate_rows(requests).await;
        let won = got.iter().filter(|result| matches!(result, Ok(false))).count();
        assert_eq!((got.len(), won), (3000, 1500), "{f}: two requests for each of 1500 rows");
    }
    let old = ConditionalMutation {
        predicate: vec![Probe::new(crate::Family::from_static("unknown"), "q", TimeRange::ALL)],
        ..ConditionalMutation::new("r")
    };
    let got = table.check_and_mutate_rows(vec![old]).await;
    assert!(matches!(got[..], [Err(Error::InvalidRequest(_))]), "an unknown family: {got:?}");
}
