//! Tests the client against a simulated Cloud Bigtable: tokens, two endpoints, profiles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::{ConditionalMutation, Error, Finding, Mutation, Timestamp, Verdict};
use tonic::Status;

use super::script::{FAMILY, Script, scan, table_of};
use crate::client::channel::Way;
use crate::client::credentials::{Credentials, Token, TokenSource};
use crate::client::{ClientOptions, GrpcStore};
use crate::proto::admin;

const SECRET: &str = "ya29.secret";

/// Returns a token, or an error if the flag is set.
#[derive(Default)]
struct Source(AtomicBool);

#[async_trait]
impl TokenSource for Arc<Source> {
    async fn token(&self) -> Result<Token, String> {
        if self.0.load(Ordering::SeqCst) {
            Err("the key was revoked".to_owned())
        } else {
            // Valid for no time, so that each request fetches another.
            Ok(Token { text: SECRET.to_owned(), valid_for: Duration::ZERO })
        }
    }
}

/// Opens a client of two servers, for data and for administration.
async fn store(
    data: &Script,
    admin: &Script,
    source: &Arc<Source>,
    address: &str,
) -> bigtable::Result<GrpcStore> {
    let url = async |script: &Script| format!("http://{}", script.serve().await);
    let (data, admin) = (url(data).await, url(admin).await);
    let way = Way::to_test(&data, &admin, Credentials::new(source.clone()))?;
    GrpcStore::open_by(way, &address.parse()?, ClientOptions::default()).await
}

#[tokio::test]
async fn every_request_carries_the_token_and_goes_where_it_belongs() {
    let (data, admin, source) = (Script::default(), Script::default(), Arc::default());
    let store = store(&data, &admin, &source, "bigtable://p/i?app_profile=batch").await.unwrap();
    let table = table_of(&store).await.unwrap();
    scan(&*table).await.unwrap();
    for (script, methods) in [
        (&data, &["ping_and_warm", "read_rows"][..]),
        (&admin, &["get_app_profile", "get_table"][..]),
    ] {
        let headers = script.play(|play| play.headers.clone());
        assert!(methods.iter().all(|method| headers.iter().any(|h| h.method == *method)));
        for headers in headers {
            assert!(methods.contains(&headers.method), "{headers:?}");
            assert_eq!(headers.authorization, format!("Bearer {SECRET}"));
            assert!(!headers.routing.contains("default"), "{headers:?}");
        }
    }
    assert!(data.headers_of("read_rows")[0].routing.ends_with("&app_profile_id=batch"));
    let shown = format!("{store:?} {table:?}");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn a_profile_that_is_not_shown_is_not_called_sound() {
    let profile = async |store: GrpcStore| {
        let findings: Vec<Finding> = store.examine().await.unwrap();
        findings.into_iter().find(|one| one.about == "application profile").unwrap()
    };
    for (hidden, verdict) in [
        (None, Verdict::Sound),
        (Some(Status::permission_denied("no role")), Verdict::Unknown),
        (Some(Status::unimplemented("no profiles")), Verdict::Unknown),
    ] {
        let (data, admin) = (Script::default(), Script::default());
        let why = hidden.as_ref().map(|status| status.message().to_owned());
        admin.play(|play| play.profile_hidden = hidden);
        let store = store(&data, &admin, &Arc::default(), "bigtable://p/i").await.unwrap();
        let found = profile(store).await;
        assert_eq!((found.verdict, found.help.is_some()), (verdict, why.is_some()), "{found:?}");
        assert!(found.found.contains(&why.unwrap_or_default()), "{found:?}");
    }
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_nothing_unknown() {
    let (data, admin) = (Script::default(), Script::default());
    let source = Arc::<Source>::default();
    let store = store(&data, &admin, &source, "bigtable://p/i").await.unwrap();
    let table = table_of(&store).await.unwrap();
    source.0.store(true, Ordering::SeqCst);
    let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, "v");
    let request = ConditionalMutation { otherwise: vec![set], ..ConditionalMutation::new("r") };
    match table.check_and_mutate_row(request).await {
        Err(Error::Unavailable { why }) => {
            assert!(why.contains("the key was revoked") && why.contains("gcloud"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(data.play(|play| play.mutated), 0);
}

#[tokio::test]
async fn who_may_not_warm_up_may_still_read() {
    let (data, admin, source) = (Script::default(), Script::default(), Arc::default());
    data.play(|play| play.ping = Some(Status::permission_denied("bigtable.instances.ping")));
    let store = store(&data, &admin, &source, "bigtable://p/i").await.unwrap();
    scan(&*table_of(&store).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn families_that_may_not_be_created_are_named() {
    let (data, admin, source) = (Script::default(), Script::default(), Arc::default());
    let store = store(&data, &admin, &source, "bigtable://p/i").await.unwrap();
    admin.play(|play| {
        play.families = Some(vec![("other", admin::ColumnFamily::default())]);
        play.may_not_change = true;
    });
    let refused = table_of(&store).await.unwrap_err().to_string();
    assert!(refused.contains("table t lacks families") && refused.contains("allow"), "{refused}");
    // With permission, the client adds the family beside the existing ones.
    admin.play(|play| play.may_not_change = false);
    table_of(&store).await.unwrap();
    assert_eq!(admin.headers_of("modify_column_families").len(), 2);
}
