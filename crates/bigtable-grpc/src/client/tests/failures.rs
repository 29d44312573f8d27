//! Tests the client with missing, broken and wrong answers.

use bigtable::{ConditionalMutation, Error, Mutation, RowMutation, Timestamp, Verdict};
use tokio::net::TcpListener;
use tonic::Status;

use super::script::{End, FAMILY, Script, open, rows, scan, scanned, unavailable};
use crate::client::{Address, ClientOptions, GrpcStore};
use crate::proto::admin;
use crate::proto::admin::app_profile::{
    MultiClusterRoutingUseAny, RoutingPolicy, SingleClusterRouting,
};
use crate::proto::data;

/// The start of each read.
fn starts(script: &Script) -> Vec<String> {
    let start = |request: &data::ReadRowsRequest| {
        let range = &request.rows.as_ref().unwrap().row_ranges[0];
        format!("{:?}", range.start_key)
    };
    script.play(|play| play.asked.iter().map(start).collect())
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_the_last_row() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| {
        play.reads.push_back((vec![], unavailable()));
        play.reads.push_back((vec![rows(&["a"]), rows(&["b"])], unavailable()));
        play.reads.push_back((vec![scanned("k")], unavailable()));
        play.reads.push_back((vec![rows(&["m"])], End::Well));
    });
    assert_eq!(scan(&*table).await.unwrap(), ("abm".to_owned(), 2));
    let open = |key| format!(r#"Some(StartKeyOpen(b"{key}"))"#);
    assert_eq!(starts(&script), ["None".to_owned(), "None".to_owned(), open("b"), open("k")]);
}

#[tokio::test]
async fn a_read_is_repeated_a_few_times_and_only_if_that_may_help() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    script.play(|play| play.reads.extend((0..20).map(|_| (vec![], unavailable()))));
    assert!(matches!(scan(&*table).await, Err(Error::Unavailable { .. })));
    assert_eq!(script.play(|play| play.asked.len()), 6);
    script.play(|play| {
        play.reads = [(vec![], End::With(Status::invalid_argument("no such thing")))].into();
        play.asked.clear();
    });
    assert!(matches!(scan(&*table).await, Err(Error::InvalidRequest(_))));
    assert_eq!(script.play(|play| play.asked.len()), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_its_rules_is_no_answer() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let mut half = rows(&["a"]);
    half.chunks[0].row_status = None;
    for bad in [half, rows(&["b", "a"]), rows(&["a", "a"])] {
        script.play(|play| {
            play.reads.push_back((vec![bad], End::Well));
            play.asked.clear();
        });
        let refused = scan(&*table).await.unwrap_err().to_string();
        assert!(refused.contains("the stream is broken"), "{refused}");
        assert_eq!(script.play(|play| play.asked.len()), 1, "it is not repeated");
    }
}

#[tokio::test]
async fn a_conditional_mutation_is_sent_once() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let set = || Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request =
        || ConditionalMutation { otherwise: vec![set()], ..ConditionalMutation::new("r") };
    for (status, unknown) in [
        (Status::unavailable("?"), true),
        (Status::deadline_exceeded("?"), true),
        (Status::aborted("?"), true),
        (Status::internal("?"), true),
        (Status::unknown("?"), true),
        (Status::cancelled("?"), true),
        (Status::resource_exhausted("too much"), false),
        (Status::invalid_argument("no"), false),
        (Status::not_found("no"), false),
    ] {
        let code = status.code();
        script.play(|play| {
            play.mutations = [Err(status), Ok(true)].into();
            play.mutated = 0;
        });
        let outcome = table.check_and_mutate_row(request()).await;
        let is_unknown = matches!(outcome, Err(Error::Unknown { .. }));
        assert!(outcome.is_err() && is_unknown == unknown, "{code:?}: {outcome:?}");
        assert_eq!(script.play(|play| play.mutated), 1, "{code:?}");
    }
    script.play(|play| play.mutations = [Ok(false), Ok(true), Ok(false)].into());
    let outcomes = table.check_and_mutate_rows(vec![request(), request(), request()]).await;
    assert!(outcomes.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_mutation_that_names_its_times_is_repeated() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request = || RowMutation::new("r").mutation(set.clone());
    let lost = || Err(Status::unavailable("?"));
    script.play(|play| play.mutations = [lost(), lost(), Ok(true)].into());
    table.mutate_row(request()).await.unwrap();
    assert_eq!(script.play(|play| play.mutated), 3);
    // The first attempt may have been applied, so the outcome stays unknown whatever the next
    // one returns.
    script.play(|play| play.mutations = [lost(), Err(Status::not_found("gone"))].into());
    let outcome = table.mutate_row(request()).await;
    assert!(matches!(outcome, Err(Error::Unknown { .. })), "{outcome:?}");
    script.play(|play| play.mutations = [Err(Status::not_found("gone"))].into());
    let outcome = table.mutate_row(request()).await;
    assert!(matches!(outcome, Err(Error::InvalidRequest(_))), "{outcome:?}");
}

#[tokio::test]
async fn requests_carry_their_headers_and_deadlines() {
    let script = Script::default();
    let table = open(&script).await.unwrap();
    scan(&*table).await.unwrap();
    let set = || Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request = ConditionalMutation { otherwise: vec![set()], ..ConditionalMutation::new("r") };
    table.check_and_mutate_row(request).await.unwrap();
    table.mutate_row(RowMutation::new("r").mutation(set())).await.unwrap();
    table.tablets().await.unwrap();
    let instance = "projects%2Fp%2Finstances%2Fi";
    let name = format!("name={instance}&app_profile_id=default");
    let get = format!("name={instance}%2Ftables%2Ft");
    let rows = format!("table_name={instance}%2Ftables%2Ft&app_profile_id=default");
    for (method, routing) in [
        ("ping_and_warm", &name),
        ("get_app_profile", &format!("name={instance}%2FappProfiles%2Fdefault")),
        ("get_table", &get),
        ("read_rows", &rows),
        ("check_and_mutate_row", &rows),
        ("mutate_row", &rows),
        ("sample_row_keys", &rows),
    ] {
        let sent = script.headers_of(method);
        assert!(!sent.is_empty(), "{method}");
        for headers in sent {
            assert_eq!(headers.routing, *routing, "{method}");
            assert!(!headers.features.is_empty() && !headers.deadline.is_empty(), "{method}");
            assert_eq!(headers.authorization, "", "{method}");
        }
    }
}

#[tokio::test]
async fn tables_that_lose_data_are_refused() {
    let script = Script::default();
    let gc_rule = Some(admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(1)) });
    let ruled = admin::ColumnFamily { gc_rule, ..Default::default() };
    script.play(|play| play.families = Some(vec![("f", ruled)]));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(
        refused.contains("garbage collection rule") && refused.contains("remove it"),
        "{refused}"
    );
    // Other tables may have rules: only Percolator's own are wrong.
    let address: Address = format!("bigtable://{}/p/i", script.serve().await).parse().unwrap();
    let store = GrpcStore::open(&address, ClientOptions::default()).await.unwrap();
    let found = store.examine().await.unwrap();
    let wrong: Vec<_> = found.iter().filter(|one| one.verdict == Verdict::Wrong).collect();
    let [wrong] = wrong[..] else { panic!("{found:?}") };
    assert_eq!(wrong.about, "table percolator.meta");
    assert!(wrong.found.contains("cbt setgcpolicy percolator.meta f never"), "{wrong:?}");

    let script = Script::default();
    let several = RoutingPolicy::MultiClusterRoutingUseAny(MultiClusterRoutingUseAny::default());
    script.play(|play| play.profile = Some(several));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(refused.contains("several clusters"), "{refused}");
    let single = RoutingPolicy::SingleClusterRouting(SingleClusterRouting::default());
    script.play(|play| play.profile = Some(single));
    let refused = open(&script).await.unwrap_err().to_string();
    assert!(refused.contains("single-row transactions"), "{refused}");
}

#[tokio::test]
async fn nobody_there_is_no_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let address: Address = format!("bigtable://{address}/p/i").parse().unwrap();
    let outcome = GrpcStore::open(&address, ClientOptions::default()).await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
}
