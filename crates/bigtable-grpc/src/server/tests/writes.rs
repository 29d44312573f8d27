//! Tests MutateRow, MutateRows and ReadModifyWriteRow: their effects, their refusals, and that
//! a refused request changes nothing.

use super::*;
use crate::proto::data::read_modify_write_rule::Rule;
use crate::proto::data::{
    MutateRowsRequest, ReadModifyWriteRowRequest, ReadModifyWriteRule, mutate_rows_request,
};

impl World {
    async fn mutate_rows(
        &mut self,
        entries: Vec<(&str, Vec<Mutation>)>,
    ) -> Result<Vec<i32>, Status> {
        let entry = |(row, mutations): (&str, Vec<Mutation>)| mutate_rows_request::Entry {
            row_key: row.to_owned().into(),
            mutations,
            ..Default::default()
        };
        let entries = entries.into_iter().map(entry).collect();
        let table_name = TABLE.to_owned();
        let request = MutateRowsRequest { table_name, entries, ..Default::default() };
        let mut stream = self.data.mutate_rows(request).await?.into_inner();
        let mut codes = Vec::new();
        while let Some(message) = stream.message().await? {
            for entry in message.entries {
                assert_eq!(usize::try_from(entry.index), Ok(codes.len()));
                codes.push(entry.status.expect("a status").code);
            }
        }
        Ok(codes)
    }

    async fn modify_row(&mut self, rules: Vec<(&str, Rule)>) -> Result<Vec<String>, Status> {
        let rule = |(column, rule): (&str, Rule)| {
            let (family, qualifier) = column.split_once(':').expect("family:qualifier");
            ReadModifyWriteRule {
                family_name: family.to_owned(),
                column_qualifier: qualifier.to_owned().into(),
                rule: Some(rule),
            }
        };
        let request = ReadModifyWriteRowRequest {
            table_name: TABLE.to_owned(),
            row_key: "r".into(),
            rules: rules.into_iter().map(rule).collect(),
            ..Default::default()
        };
        let row = self.data.read_modify_write_row(request).await?.into_inner().row.expect("a row");
        let mut cells = Vec::new();
        for family in &row.families {
            for column in &family.columns {
                for cell in &column.cells {
                    assert!(cell.timestamp_micros % 1000 == 0 && cell.timestamp_micros > 0);
                    let qualifier = column.qualifier.escape_ascii();
                    let value = cell.value.escape_ascii();
                    cells.push(format!("{}:{qualifier}={value}", family.name));
                }
            }
        }
        Ok(cells)
    }
}

#[tokio::test]
async fn mutations_apply_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["a", "write", "lock"] {
        let dir = dir.path().join(family);
        let mut world = World::with_table(&dir, &[family, "z"]).await;
        let column = &*format!("{family}:q");
        let other = &*format!("{family}:other");
        world.mutate("r", vec![set(column, 1000, "v"), set(column, 1000, "w")]).await.unwrap();
        assert_eq!(world.all().await, [format!("r/{column}@1000=w")]);
        let all = vec![set(other, 0, "x"), delete_family(family), set(column, 2000, "after")];
        world.mutate("r", all).await.unwrap();
        assert_eq!(world.all().await, [format!("r/{column}@2000=after")]);
        let all =
            vec![set("z:q", 0, "x"), set(column, 3000, "y"), delete_row(), set("z:q", 1000, "z")];
        world.mutate("r", all).await.unwrap();
        assert_eq!(world.all().await, ["r/z:q@1000=z"]);
        let all = vec![set(column, 1000, "v"), delete_column(column, None), delete_row()];
        world.mutate("r", all).await.unwrap();
        assert!(world.all().await.is_empty());
        world.stop().await;
    }
}

#[tokio::test]
async fn versions_are_deleted_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    for at in [1000, 2000, 3000] {
        world.set("r", "a:q", at, "v").await;
    }
    let mut delete = async |range| world.mutate("r", vec![delete_column("a:q", Some(range))]).await;
    refused(delete((2000, 1000)).await, Code::InvalidArgument);
    refused(delete((1500, 2000)).await, Code::InvalidArgument);
    refused(delete((-1000, 2000)).await, Code::InvalidArgument);
    delete((1000, 2000)).await.unwrap();
    delete((3000, 0)).await.unwrap();
    let missing = world.mutate("r", vec![delete_column("x:q", None)]).await;
    refused(missing, Code::NotFound);
    assert_eq!(world.all().await, ["r/a:q@2000=v"]);
    world.stop().await;
}

#[tokio::test]
async fn times_are_milliseconds_or_the_servers() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    for bad in [-2, -1000, 1, 1500, crate::time::MICROS_MAX + 1000, i64::MAX, i64::MIN] {
        let result = world.mutate("r", vec![set("a:q", bad, "v")]).await;
        refused(result, Code::InvalidArgument);
    }
    world.set("r", "a:q", crate::time::MICROS_MAX, "last").await;
    world.set("r", "a:q", 0, "first").await;
    world.set("r", "a:now", -1, "v").await;
    let cells = world.all().await;
    let now: i64 = cells[0].trim_start_matches("r/a:now@").trim_end_matches("=v").parse().unwrap();
    assert!(now % 1000 == 0 && now > 1_600_000_000_000_000, "{now}");
    let last = format!("r/a:q@{}=last", crate::time::MICROS_MAX);
    assert_eq!(cells[1..], [last.as_str(), "r/a:q@0=first"]);
    world.stop().await;
}

#[tokio::test]
async fn a_refused_request_has_changed_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let good = || set("a:q", 1000, "v");
    let bad = || set("x:q", 1000, "v");
    refused(world.mutate("r", vec![good(), bad()]).await, Code::NotFound);
    refused(world.mutate("r", vec![good(), set("a:q", 1, "v")]).await, Code::InvalidArgument);
    refused(world.mutate("r", vec![good(), Mutation::default()]).await, Code::InvalidArgument);
    let message = refused(world.mutate("r", vec![]).await, Code::InvalidArgument);
    assert_eq!(message, "No mutations provided");
    refused(world.mutate("", vec![good()]).await, Code::InvalidArgument);
    refused(world.mutate(&"x".repeat(4097), vec![good()]).await, Code::InvalidArgument);
    let long = set(&format!("a:{}", "x".repeat(16 * 1024 + 1)), 0, "v");
    refused(world.mutate("r", vec![good(), long]).await, Code::InvalidArgument);
    refused(world.mutate("r", vec![good(); 100_001]).await, Code::InvalidArgument);
    refused(world.mutate_rows(vec![]).await, Code::InvalidArgument);
    refused(
        world.mutate_rows(vec![("r", vec![good()]), ("s", vec![])]).await,
        Code::InvalidArgument,
    );
    refused(world.mutate_rows(vec![("r", vec![good(); 100_001])]).await, Code::InvalidArgument);
    assert!(world.all().await.is_empty());
    // The longest names are accepted.
    let (row, qualifier) = ("x".repeat(4096), "y".repeat(16 * 1024));
    world.mutate(&row, vec![set(&format!("a:{qualifier}"), 0, "v")]).await.unwrap();
    assert_eq!(world.all().await, [format!("{row}/a:{qualifier}@0=v")]);
    world.stop().await;
}

#[tokio::test]
async fn each_entry_has_its_own_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let good = |value: &str| vec![set("a:q", 1000, value)];
    let entries = vec![
        ("r", good("1")),
        ("s", vec![set("a:q", 1000, "v"), set("x:q", 0, "v")]),
        ("", good("2")),
        ("r", good("3")),
        ("t", good("4")),
    ];
    let (ok, not_found, invalid) = (0, Code::NotFound as i32, Code::InvalidArgument as i32);
    let codes = world.mutate_rows(entries).await.unwrap();
    assert_eq!(codes, [ok, not_found, invalid, ok, ok]);
    assert_eq!(world.all().await, ["r/a:q@1000=3", "t/a:q@1000=4"]);
    world.stop().await;
}

#[tokio::test]
async fn rules_compose_and_count() {
    use Rule::{AppendValue, IncrementAmount};
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "b"]).await;
    let append = |value: &'static str| AppendValue(value.into());
    let rules = vec![
        ("b:q", append("b")),
        ("a:y", append("a")),
        ("a:y", append("b")),
        ("a:x", append("c")),
    ];
    assert_eq!(world.modify_row(rules).await.unwrap(), ["a:x=c", "a:y=ab", "b:q=b"]);
    let counted = world.modify_row(vec![("a:n", IncrementAmount(258))]).await.unwrap();
    assert_eq!(counted, [r"a:n=\x00\x00\x00\x00\x00\x00\x01\x02"]);
    let counted = world.modify_row(vec![("a:n", IncrementAmount(-259))]).await.unwrap();
    assert_eq!(counted, [r"a:n=\xff\xff\xff\xff\xff\xff\xff\xff"]);
    let before = world.all().await;
    let rules = vec![("a:x", append("more")), ("a:y", IncrementAmount(1))];
    refused(world.modify_row(rules).await, Code::FailedPrecondition);
    // An empty value exists, but is no number.
    let rules = vec![("a:empty", append("")), ("a:empty", IncrementAmount(1))];
    refused(world.modify_row(rules).await, Code::FailedPrecondition);
    refused(world.modify_row(vec![("x:q", append("v"))]).await, Code::NotFound);
    refused(world.modify_row(vec![]).await, Code::InvalidArgument);
    assert_eq!(world.all().await, before);
    // A version from the future counts as the newest, so the rule modifies it.
    world.set("r", "a:f", crate::time::MICROS_MAX, "old").await;
    assert_eq!(world.modify_row(vec![("a:f", append("+"))]).await.unwrap(), ["a:f=old+"]);
    world.stop().await;
}

#[tokio::test]
async fn counters_lose_nothing_to_concurrency() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_table(dir.path(), &["a"]).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mut data = world.data.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    let request = ReadModifyWriteRowRequest {
                        table_name: TABLE.to_owned(),
                        row_key: "r".into(),
                        rules: vec![ReadModifyWriteRule {
                            family_name: "a".to_owned(),
                            column_qualifier: "n".into(),
                            rule: Some(Rule::IncrementAmount(1)),
                        }],
                        ..Default::default()
                    };
                    data.read_modify_write_row(request).await.expect("counted");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut world = world;
    let newest = world.filtered(filter(WireFilter::CellsPerColumnLimitFilter(1))).await.unwrap();
    assert!(newest[0].ends_with(r"=\x00\x00\x00\x00\x00\x00\x00\xc8"), "{newest:?}");
    world.stop().await;
}
