//! Tests CheckAndMutateRow.

use super::*;
use crate::proto::data::CheckAndMutateRowRequest;
use crate::proto::data::row_filter::Chain;

impl World {
    async fn check(
        &mut self,
        row: &str,
        predicate: Option<WireFilter>,
        then: Vec<Mutation>,
        other: Vec<Mutation>,
    ) -> Result<bool, Status> {
        let request = CheckAndMutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: row.to_owned().into(),
            predicate_filter: predicate.map(filter),
            true_mutations: then,
            false_mutations: other,
            ..Default::default()
        };
        self.data.check_and_mutate_row(request).await.map(|r| r.into_inner().predicate_matched)
    }
}

#[tokio::test]
async fn the_predicate_chooses_the_branch() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "write"]).await;
    let yes = || vec![set("a:yes", 1000, "v")];
    let no = || vec![set("a:no", 1000, "v")];
    assert!(!world.check("r", None, yes(), no()).await.unwrap(), "the row is absent");
    assert!(world.check("r", None, yes(), no()).await.unwrap(), "the row is there");
    assert_eq!(world.all().await, ["r/a:no@1000=v", "r/a:yes@1000=v"]);
    let key = |pattern: &'static str| Some(WireFilter::RowKeyRegexFilter(pattern.into()));
    assert!(world.check("r", key("r"), yes(), vec![]).await.unwrap());
    assert!(!world.check("r", key("R|rr"), yes(), vec![]).await.unwrap());
    assert!(world.check("r", Some(WireFilter::PassAllFilter(true)), yes(), no()).await.unwrap());
    let block = || Some(WireFilter::BlockAllFilter(true));
    let deletes = vec![delete_row(), set("write:q", 1000, "w")];
    assert!(!world.check("r", block(), yes(), deletes).await.unwrap());
    assert_eq!(world.all().await, ["r/write:q@1000=w"]);
    world.stop().await;
}

#[tokio::test]
async fn only_the_branch_that_is_taken_must_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let good = || vec![set("a:q", 1000, "v")];
    let bad = || vec![set("a:p", 1000, "v"), set("bogus:q", 1000, "v")];
    assert!(!world.check("r", None, bad(), good()).await.unwrap());
    refused(world.check("r", None, bad(), good()).await, Code::NotFound);
    assert_eq!(world.all().await, ["r/a:q@1000=v"], "nothing of the bad branch");
    refused(world.check("r", None, vec![], vec![]).await, Code::InvalidArgument);
    refused(world.check("", None, good(), vec![]).await, Code::InvalidArgument);
    let unsound = Some(WireFilter::PassAllFilter(false));
    refused(world.check("r", unsound, good(), vec![]).await, Code::InvalidArgument);
    world.stop().await;
}

/// Sends Percolator's prewrite as one request. In each round, 32 clients want the same two
/// cells.
#[tokio::test]
async fn of_concurrent_prewrites_exactly_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["data", "lock", "write"]).await;
    for round in 0..10 {
        let row = format!("r{round}");
        let attempts = (0..32).map(|owner| {
            let mut data = world.data.clone();
            let cells = |family: &str, value: &str| {
                ["p", "q"].map(|q| set(&format!("{family}:{q}"), (owner + 1) * 1000, value))
            };
            let name = owner.to_string();
            let lock = filter(WireFilter::FamilyNameRegexFilter("lock".to_owned()));
            let any = filter(WireFilter::PassAllFilter(true));
            let chain = WireFilter::Chain(Chain { filters: vec![lock, any] });
            let request = CheckAndMutateRowRequest {
                table_name: TABLE.to_owned(),
                row_key: row.clone().into(),
                predicate_filter: Some(filter(chain)),
                false_mutations: [cells("lock", &name), cells("data", &name)].concat(),
                ..Default::default()
            };
            async move { data.check_and_mutate_row(request).await.unwrap().into_inner() }
        });
        let outcomes = futures::future::join_all(attempts).await;
        let winners = outcomes.iter().filter(|outcome| !outcome.predicate_matched).count();
        assert_eq!(winners, 1);
        let request = ReadRowsRequest { rows: keys(&[&row]), ..Default::default() };
        let cells = world.read(request).await.unwrap();
        let values: Vec<_> = cells.iter().map(|cell| cell.rsplit('=').next()).collect();
        assert!(cells.len() == 4 && values.iter().all(|value| *value == values[0]), "{cells:?}");
    }
    world.stop().await;
}
