//! Tests every filter over a connection.

use super::*;
use crate::proto::data::row_filter::{Chain, Condition, Interleave};
use crate::proto::data::{ColumnRange, ValueRange, column_range, value_range};
use WireFilter as F;

fn chain(filters: Vec<F>) -> F {
    F::Chain(Chain { filters: filters.into_iter().map(filter).collect() })
}

fn interleave(filters: Vec<F>) -> F {
    F::Interleave(Interleave { filters: filters.into_iter().map(filter).collect() })
}

fn condition(predicate: F, then: Option<F>, other: Option<F>) -> F {
    let boxed = |f: F| Box::new(filter(f));
    F::Condition(Box::new(Condition {
        predicate_filter: Some(boxed(predicate)),
        true_filter: then.map(boxed),
        false_filter: other.map(boxed),
    }))
}

fn family(pattern: &str) -> F {
    F::FamilyNameRegexFilter(pattern.to_owned())
}

fn qualifier(pattern: &[u8]) -> F {
    F::ColumnQualifierRegexFilter(pattern.to_vec().into())
}

fn value(pattern: &[u8]) -> F {
    F::ValueRegexFilter(pattern.to_vec().into())
}

fn key(pattern: &str) -> F {
    F::RowKeyRegexFilter(pattern.to_owned().into())
}

fn times(start: i64, end: i64) -> F {
    F::TimestampRangeFilter(TimestampRange {
        start_timestamp_micros: start,
        end_timestamp_micros: end,
    })
}

/// Writes rows `r1` and `r2` with families `a` and `b`, columns `x` and `y`, versions 1000 and
/// 2000. Each cell's value is its name.
async fn grid(dir: &Path) -> World {
    let mut world = World::with_table(dir, &["a", "b"]).await;
    for row in ["r1", "r2"] {
        for column in ["a:x", "a:y", "b:x", "b:y"] {
            for at in [1000, 2000] {
                world.set(row, column, at, &format!("{row}{column}{at}")).await;
            }
        }
    }
    world
}

impl World {
    /// The cells that pass, without their values.
    async fn left(&mut self, wanted: F) -> String {
        let cells = self.filtered(filter(wanted)).await.expect("the filter is sound");
        let names: Vec<_> = cells.iter().map(|c| c.split('=').next().unwrap_or_default()).collect();
        names.join(" ").replace("000", "")
    }
}

#[tokio::test]
async fn cells_are_chosen_by_name_time_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = grid(dir.path()).await;
    let w = &mut world;
    assert_eq!(
        w.left(chain(vec![key("r1"), family("a"), qualifier(b"x")])).await,
        "r1/a:x@2 r1/a:x@1"
    );
    assert_eq!(w.left(key("r")).await, "");
    assert_eq!(
        w.left(chain(vec![key("(r|x)2"), times(2000, 0), family("b")])).await,
        "r2/b:x@2 r2/b:y@2"
    );
    assert_eq!(
        w.left(chain(vec![family(".*"), qualifier(b"|y"), times(0, 1001), key("r1")])).await,
        "r1/a:y@1 r1/b:y@1"
    );
    assert_eq!(w.left(family("A")).await, "");
    assert_eq!(w.left(family("nothing")).await, "");
    assert_eq!(w.left(times(1000, 1000)).await, "");
    assert_eq!(w.left(times(1001, 1999)).await, "");
    assert_eq!(w.left(value(b"r1a:x1000")).await, "r1/a:x@1");
    assert_eq!(w.left(value(b"r.b:y2\\C*")).await, "r1/b:y@2 r2/b:y@2");
    assert_eq!(w.left(value(b"r1")).await, "");
    world.stop().await;
}

#[tokio::test]
async fn ranges_of_columns_and_values_have_open_and_closed_ends() {
    use column_range::{EndQualifier as E, StartQualifier as S};
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "b"]).await;
    for column in ["a:1", "a:2", "a:3", "b:2"] {
        world.set("r", column, 1000, &column[2..]).await;
    }
    let columns = |start: Option<S>, end: Option<E>| {
        F::ColumnRangeFilter(ColumnRange {
            family_name: "a".to_owned(),
            start_qualifier: start,
            end_qualifier: end,
        })
    };
    let (closed, open) = (S::StartQualifierClosed("1".into()), S::StartQualifierOpen("1".into()));
    let to = || Some(E::EndQualifierOpen("3".into()));
    assert_eq!(world.left(columns(Some(closed.clone()), to())).await, "r/a:1@1 r/a:2@1");
    assert_eq!(world.left(columns(Some(open), to())).await, "r/a:2@1");
    let upto = Some(E::EndQualifierClosed("2".into()));
    assert_eq!(world.left(columns(None, upto)).await, "r/a:1@1 r/a:2@1");
    assert_eq!(world.left(columns(None, None)).await, "r/a:1@1 r/a:2@1 r/a:3@1");
    let exact = Some(E::EndQualifierClosed("1".into()));
    assert_eq!(world.left(columns(Some(closed), exact)).await, "r/a:1@1");

    let values =
        |start, end| F::ValueRangeFilter(ValueRange { start_value: start, end_value: end });
    let start = Some(value_range::StartValue::StartValueOpen("1".into()));
    let end = Some(value_range::EndValue::EndValueClosed("2".into()));
    assert_eq!(world.left(values(start, end)).await, "r/a:2@1 r/b:2@1");
    let start = Some(value_range::StartValue::StartValueClosed("2".into()));
    let end = Some(value_range::EndValue::EndValueOpen("3".into()));
    assert_eq!(world.left(values(start, end)).await, "r/a:2@1 r/b:2@1");
    world.stop().await;
}

#[tokio::test]
async fn limits_and_offsets_count_cells() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = grid(dir.path()).await;
    let w = &mut world;
    let r1 = |f: F| chain(vec![key("r1"), f]);
    assert_eq!(w.left(r1(F::CellsPerRowLimitFilter(3))).await, "r1/a:x@2 r1/a:x@1 r1/a:y@2");
    assert_eq!(w.left(r1(F::CellsPerRowOffsetFilter(6))).await, "r1/b:y@2 r1/b:y@1");
    assert_eq!(w.left(F::CellsPerRowOffsetFilter(8)).await, "");
    let newest = "r1/a:x@2 r1/a:y@2 r1/b:x@2 r1/b:y@2";
    assert_eq!(w.left(r1(F::CellsPerColumnLimitFilter(1))).await, newest);
    // A filter before a limit changes the cells that the limit counts.
    let older =
        chain(vec![key("r1"), times(0, 2000), F::CellsPerColumnLimitFilter(1), family("a")]);
    assert_eq!(w.left(older).await, "r1/a:x@1 r1/a:y@1");
    let after = chain(vec![key("r1"), F::CellsPerColumnLimitFilter(1), times(0, 2000)]);
    assert_eq!(w.left(after).await, "");
    let matching =
        chain(vec![value(b".*1000"), F::CellsPerColumnLimitFilter(1), key("r1"), family("b")]);
    assert_eq!(w.left(matching).await, "r1/b:x@1 r1/b:y@1");
    let first = chain(vec![F::CellsPerRowLimitFilter(5), family("b")]);
    assert_eq!(w.left(first).await, "r1/b:x@2 r2/b:x@2");
    // Duplicates count.
    let twice = interleave(vec![qualifier(b"x"), qualifier(b"x")]);
    let twice = chain(vec![key("r1"), family("a"), twice, F::CellsPerColumnLimitFilter(3)]);
    assert_eq!(w.left(twice).await, "r1/a:x@2 r1/a:x@2 r1/a:x@1");
    world.stop().await;
}

#[tokio::test]
async fn filters_are_combined() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = grid(dir.path()).await;
    let w = &mut world;
    let both = interleave(vec![family("a"), qualifier(b"x")]);
    let both = chain(vec![key("r1"), both, times(2000, 0)]);
    assert_eq!(w.left(both).await, "r1/a:x@2 r1/a:x@2 r1/a:y@2 r1/b:x@2");
    let get = interleave(vec![
        chain(vec![family("a"), qualifier(b"x"), times(0, 2000), F::CellsPerColumnLimitFilter(1)]),
        chain(vec![family("b"), qualifier(b"x"), F::CellsPerColumnLimitFilter(1)]),
    ]);
    assert_eq!(w.left(chain(vec![key("r2"), get])).await, "r2/a:x@1 r2/b:x@2");

    let has = chain(vec![family("a"), value(b"r1.*")]);
    let pick = |then, other| condition(has.clone(), then, other);
    let (a, b) = (|| Some(family("a")), || Some(chain(vec![family("b"), times(2000, 0)])));
    assert_eq!(
        w.left(chain(vec![times(2000, 0), pick(b(), a())])).await,
        "r1/b:x@2 r1/b:y@2 r2/a:x@2 r2/a:y@2"
    );
    assert_eq!(w.left(pick(b(), None)).await, "r1/b:x@2 r1/b:y@2");
    assert_eq!(w.left(pick(None, b())).await, "r2/b:x@2 r2/b:y@2");
    assert_eq!(w.left(pick(None, None)).await, "");
    // In an interleave within a chain, only the rows that match pass.
    let nested = interleave(vec![pick(b(), None), F::BlockAllFilter(true)]);
    assert_eq!(w.left(chain(vec![nested, qualifier(b"x")])).await, "r1/b:x@2");

    let sunk = interleave(vec![chain(vec![qualifier(b"y"), F::Sink(true)]), qualifier(b"x")]);
    let sunk = chain(vec![key("r1"), times(2000, 0), family("a"), sunk, F::BlockAllFilter(true)]);
    assert_eq!(w.left(sunk).await, "r1/a:y@2");
    world.stop().await;
}

#[tokio::test]
async fn cells_are_changed_and_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = grid(dir.path()).await;
    let label = |label: &str| F::ApplyLabelTransformer(label.to_owned());
    let some = || vec![key("r1"), family("a"), times(2000, 0)];
    let with = |f: F| chain(some().into_iter().chain([f]).collect());
    let stripped = world.filtered(filter(with(F::StripValueTransformer(true)))).await.unwrap();
    assert_eq!(stripped, ["r1/a:x@2000=", "r1/a:y@2000="]);
    let labelled = interleave(vec![label("one"), chain(vec![qualifier(b"x"), label("two-2")])]);
    let labelled = world.left(with(labelled)).await;
    assert_eq!(labelled, "r1/a:x@2#one r1/a:x@2#two-2 r1/a:y@2#one");
    assert_eq!(world.left(F::BlockAllFilter(true)).await, "");
    assert_eq!(world.left(with(F::PassAllFilter(true))).await, "r1/a:x@2 r1/a:y@2");
    for row in 0..200 {
        world.set(&format!("s{row}"), "a:x", 1000, "v").await;
    }
    let sampled = world.filtered(filter(F::RowSampleFilter(0.5))).await.unwrap().len();
    assert!((1..210).contains(&sampled), "{sampled}");
    world.stop().await;
}

#[tokio::test]
async fn names_and_patterns_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    for name in [&b"\x80\x80"[..], b"\x7f\x80", b"q\0\n.*\xff\x80", b"", "é".as_bytes()] {
        let cell = SetCell {
            family_name: "a".to_owned(),
            column_qualifier: name.to_vec().into(),
            timestamp_micros: 1000,
            value: name.to_vec().into(),
        };
        world.mutate("r", vec![mutation(Wire::SetCell(cell))]).await.unwrap();
    }
    let names = [
        (&b"\\x80\\x80"[..], "r/a:\\x80\\x80@1"),
        (b"\x80*", "r/a:@1 r/a:\\x80\\x80@1"),
        (b"[\x7f\x80]{2}", "r/a:\\x7f\\x80@1 r/a:\\x80\\x80@1"),
        (b"[\\x7f\\x80]{2}", "r/a:\\x7f\\x80@1 r/a:\\x80\\x80@1"),
        (b"\\C{2}", "r/a:\\x7f\\x80@1 r/a:\\x80\\x80@1 r/a:\\xc3\\xa9@1"),
        ("é".as_bytes(), "r/a:\\xc3\\xa9@1"),
        (b"|a", "r/a:@1"),
        (b"q\\x00\\n\\.\\*\xff\\x80", "r/a:q\\x00\\n.*\\xff\\x80@1"),
    ];
    for (pattern, expected) in names {
        assert_eq!(world.left(qualifier(pattern)).await, expected, "{}", pattern.escape_ascii());
        assert_eq!(world.left(value(pattern)).await, expected, "{}", pattern.escape_ascii());
    }
    let name = "q\0\n.*".as_bytes().iter().chain(b"\xff\x80").copied().collect::<Vec<_>>();
    let exact = F::ColumnRangeFilter(ColumnRange {
        family_name: "a".to_owned(),
        start_qualifier: Some(column_range::StartQualifier::StartQualifierClosed(
            name.clone().into(),
        )),
        end_qualifier: Some(column_range::EndQualifier::EndQualifierClosed(name.into())),
    });
    assert_eq!(world.left(exact).await, "r/a:q\\x00\\n.*\\xff\\x80@1");
    world.stop().await;
}

#[tokio::test]
async fn unsound_filters_are_refused_wherever_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let label = |label: &str| F::ApplyLabelTransformer(label.to_owned());
    let pass = || F::PassAllFilter(true);
    let deep = (0..20).fold(pass(), |inner, _| chain(vec![pass(), inner]));
    let unsound = vec![
        F::PassAllFilter(false),
        F::BlockAllFilter(false),
        F::Sink(false),
        F::StripValueTransformer(false),
        chain(vec![]),
        chain(vec![pass()]),
        interleave(vec![pass()]),
        key("*"),
        family("("),
        family("a:b"),
        qualifier(b"[a"),
        value(b"a)(b"),
        F::RowSampleFilter(0.0),
        F::RowSampleFilter(1.0),
        F::RowSampleFilter(f64::NAN),
        F::CellsPerRowLimitFilter(0),
        F::CellsPerRowOffsetFilter(-1),
        F::CellsPerColumnLimitFilter(-1),
        label("Foo!"),
        label(""),
        label("sixteen-letters-"),
        chain(vec![label("a"), label("b")]),
        condition(pass(), Some(F::Sink(true)), None),
        F::Condition(Box::default()),
        F::ColumnRangeFilter(ColumnRange::default()),
        times(2000, 1000),
        deep,
        value(&b"x".repeat(crate::filter::FILTER_BYTES_MAX)),
    ];
    for bad in unsound {
        let everywhere = [
            bad.clone(),
            chain(vec![pass(), bad.clone()]),
            interleave(vec![bad.clone(), pass()]),
            condition(bad.clone(), None, None),
            condition(pass(), None, Some(bad.clone())),
        ];
        for bad in everywhere {
            let shown = format!("{bad:?}").chars().take(200).collect::<String>();
            let got = world.filtered(filter(bad)).await;
            let code = got.as_ref().err().map(Status::code);
            assert_eq!(code, Some(Code::InvalidArgument), "{shown}: {got:?}");
        }
    }
    let deepest = (0..19).fold(pass(), |inner, _| chain(vec![pass(), inner]));
    world.filtered(filter(deepest)).await.unwrap();
    world.stop().await;
}
