//! Tests connections: each is warmed up before its first use, and replaced before it is old.

use std::collections::BTreeSet;
use std::time::Duration;

use bigtable::Error;
use tonic::Status;

use super::script::{Script, open, open_with, scan};
use crate::client::pool::{AGAIN, AGE_MAX};
use crate::client::{Address, ClientOptions, GrpcStore};

fn peers(script: &Script) -> BTreeSet<std::net::SocketAddr> {
    script.play(|play| play.pinged.iter().copied().collect())
}

#[tokio::test]
async fn each_connection_is_warm_before_it_is_used() {
    let script = Script::default();
    let options = ClientOptions { connections: 3, ..ClientOptions::default() };
    let table = open_with(&script, options).await.unwrap();
    assert_eq!((peers(&script).len(), script.play(|play| play.pinged.len())), (3, 3));
    scan(&*table).await.unwrap();
    let methods = script.play(|play| play.headers.iter().map(|h| h.method).collect::<Vec<_>>());
    assert!(methods.iter().take(3).all(|method| *method == "ping_and_warm"), "{methods:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_warmed_up_is_used_and_one_that_refuses_is_not() {
    let script = Script::default();
    script.play(|play| play.ping = Some(Status::unimplemented("an older emulator")));
    open(&script).await.unwrap();
    for (refusal, unavailable) in [
        (Status::not_found("no such instance"), false),
        (Status::permission_denied("the certificate does not name ..."), false),
        (Status::internal("?"), true),
    ] {
        script.play(|play| play.ping = Some(refusal.clone()));
        let refused = open(&script).await.unwrap_err();
        assert!(refused.to_string().contains(refusal.message()), "{refused}");
        assert_eq!(matches!(refused, Error::Unavailable { .. }), unavailable, "{refused}");
    }
}

/// Advances the time at once. A longer pause of the clock would let time run ahead of the
/// network.
async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Advances the time until this many connections were warmed up.
async fn warmed(script: &Script, count: usize, step: Duration) {
    for _ in 0..30 {
        jump(step).await;
        for _ in 0..400 {
            if peers(script).len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    panic!("{} connections only", peers(script).len());
}

#[tokio::test]
async fn a_connection_is_replaced_before_it_is_old() {
    let script = Script::default();
    let options = ClientOptions { connections: 2, ..ClientOptions::default() };
    let table = open_with(&script, options.clone()).await.unwrap();
    assert_eq!(peers(&script).len(), 2);
    for count in [3, 4] {
        warmed(&script, count, AGE_MAX / 2).await;
        scan(&*table).await.unwrap();
    }
    // A connection that cannot be warmed up replaces no other, and the pool tries again.
    script.play(|play| play.ping = Some(Status::unavailable("it starts")));
    warmed(&script, 5, AGE_MAX / 2).await;
    for count in [6, 7] {
        scan(&*table).await.unwrap();
        warmed(&script, count, AGAIN).await;
    }
    script.play(|play| play.ping = None);
    warmed(&script, 8, AGAIN).await;
    scan(&*table).await.unwrap();
    // A dropped client opens no further connections.
    drop(table);
    script.play(|play| play.pinged.clear());
    jump(AGE_MAX).await;
    let _other = open_with(&script, options).await.unwrap();
    assert_eq!(peers(&script).len(), 2);
}

#[tokio::test]
async fn plain_text_to_another_machine_must_be_allowed() {
    let address: Address = "bigtable://192.0.2.1:1/p/i".parse().unwrap();
    let refused = GrpcStore::open(&address, ClientOptions::default()).await.unwrap_err();
    assert!(matches!(refused, Error::InvalidRequest(_)), "{refused}");
    assert!(refused.to_string().contains("certificates"), "{refused}");
}
