//! Several CheckAndMutateRow in one request.

use super::*;
use crate::proto::extension::check_and_mutate_rows_request::Entry;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_client::ExtensionClient;
use crate::proto::extension::{CheckAndMutateRowsRequest, DescribeRequest};

impl World {
    async fn check_all(&self, table: &str, entries: Vec<Entry>) -> Result<Vec<Outcome>, Status> {
        let mut client = ExtensionClient::new(self.channel.clone());
        let request = CheckAndMutateRowsRequest { table_name: table.to_owned(), entries };
        client.check_and_mutate_rows(request).await.map(|answer| answer.into_inner().outcomes)
    }
}

fn entry(row: &str, then: Vec<Mutation>, otherwise: Vec<Mutation>) -> Entry {
    Entry {
        row_key: row.to_owned().into(),
        predicate_filter: Some(filter(WireFilter::PassAllFilter(true))),
        true_mutations: then,
        false_mutations: otherwise,
    }
}

fn code(outcome: &Outcome) -> Option<Code> {
    outcome.status.as_ref().map(|status| Code::from_i32(status.code))
}

#[tokio::test]
async fn each_entry_is_as_if_it_were_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let good = |q: &str| vec![set(&format!("a:{q}"), 1000, "v")];
    let bad = || vec![set("a:p", 1000, "v"), set("bogus:q", 1000, "v")];
    world.mutate("there", good("old")).await.unwrap();
    let mut unsound = entry("unsound", good("q"), vec![]);
    unsound.predicate_filter = Some(filter(WireFilter::PassAllFilter(false)));
    let entries = vec![
        entry("there", good("then"), good("otherwise")),
        entry("absent", good("then"), good("otherwise")),
        entry("bogus", good("q"), bad()),
        entry("untaken", bad(), good("q")),
        entry("", good("q"), good("q")),
        unsound,
        entry("empty", vec![], vec![]),
        entry("there", good("again"), vec![]),
    ];
    let outcomes = world.check_all(TABLE, entries).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(code).collect();
    let (not_found, invalid) = (Some(Code::NotFound), Some(Code::InvalidArgument));
    assert_eq!(codes, [None, None, not_found, None, invalid, invalid, invalid, None]);
    let matched: Vec<_> = outcomes.iter().map(|outcome| outcome.predicate_matched).collect();
    assert_eq!(matched, [true, false, false, false, false, false, false, true]);
    assert_eq!(
        world.all().await,
        [
            "absent/a:otherwise@1000=v",
            "there/a:again@1000=v",
            "there/a:old@1000=v",
            "there/a:then@1000=v",
            "untaken/a:q@1000=v"
        ]
    );
    world.stop().await;
}

#[tokio::test]
async fn a_request_beyond_the_limits_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let mut client = ExtensionClient::new(world.channel.clone());
    let described = client.describe(DescribeRequest {}).await.unwrap().into_inner();
    let max = described.entries_max as usize;
    let one = |i: usize| entry(&format!("r{i:06}"), vec![], vec![set("a:q", 1000, "v")]);
    let over = world.check_all(TABLE, (0..=max).map(one).collect()).await;
    refused(over.map(|_| ()), Code::InvalidArgument);
    let many = entry("r", vec![], vec![set("a:q", 1000, "v"); limits::MUTATIONS_MAX]);
    let over = world.check_all(TABLE, vec![many.clone(), one(0)]).await;
    refused(over.map(|_| ()), Code::InvalidArgument);
    refused(world.check_all(TABLE, vec![]).await.map(|_| ()), Code::InvalidArgument);
    let elsewhere = format!("{INSTANCE}/tables/nowhere");
    refused(world.check_all(&elsewhere, vec![one(0)]).await.map(|_| ()), Code::NotFound);
    assert!(world.all().await.is_empty());
    let outcomes = world.check_all(TABLE, (0..max).map(one).collect()).await.unwrap();
    assert!(outcomes.len() == max && outcomes.iter().all(|o| code(o).is_none()));
    assert_eq!(world.all().await.len(), max);
    let outcomes = world.check_all(TABLE, vec![many]).await.unwrap();
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), [None]);
    world.stop().await;
}
