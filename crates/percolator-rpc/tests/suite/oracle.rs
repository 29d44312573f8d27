//! Tests the timestamp oracle: batches, redirection, fail-over and refusals (H09, H41, H45).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bigtable::MemoryStore;
use percolator::cluster::Oracle;
use percolator::{Error, Timestamp};
use percolator_rpc::oracle::{OracleServerOptions, RemoteOracle, RemoteOracleOptions};

use crate::world::{client, start, start_with};

async fn next(oracle: &RemoteOracle) -> Timestamp {
    oracle.timestamp().await.unwrap().timestamp
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_several_clients_get_each_timestamp_once_and_in_real_time_order() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    let highest = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let oracle = Arc::new(client([process.address()]));
        for n in 0..100 {
            let (oracle, highest) = (oracle.clone(), highest.clone());
            tasks.push(tokio::spawn(async move {
                let mut got = Vec::new();
                for round in 0..50 {
                    let before = highest.load(Ordering::SeqCst);
                    if (n + round) % 25 == 0 {
                        assert!(oracle.peek().await.unwrap().as_u64() >= before);
                        continue;
                    }
                    let timestamp = next(&oracle).await.as_u64();
                    assert!(timestamp > before, "{timestamp} after {before} was there");
                    highest.fetch_max(timestamp, Ordering::SeqCst);
                    got.push(timestamp);
                }
                got
            }));
        }
    }
    let mut seen = BTreeSet::new();
    for task in tasks {
        for timestamp in task.await.unwrap() {
            assert!(seen.insert(timestamp), "{timestamp} twice");
        }
    }
    assert_eq!(seen.len(), 3 * 100 * 48);
}

#[tokio::test]
async fn looking_allocates_nothing_and_a_raised_version_is_in_every_later_reply() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    let (a, b) = (client([process.address()]), client([process.address()]));
    let first = next(&a).await;
    for _ in 0..10 {
        assert_eq!(b.peek().await.unwrap(), first);
        assert_eq!(b.schema_version().await.unwrap(), 0);
    }
    a.raise_schema_version(4).await.unwrap();
    b.raise_schema_version(3).await.unwrap();
    let stamp = b.timestamp().await.unwrap();
    assert_eq!(stamp.schema_version, 4);
    assert_eq!(stamp.timestamp.as_u64(), first.as_u64() + 1);
    assert_eq!(a.schema_version().await.unwrap(), 4);
}

#[tokio::test]
async fn a_standby_sends_clients_to_the_leader() {
    let store = Arc::new(MemoryStore::new());
    let leader = start(&store).await;
    leader.leads().await;
    let standby = start(&store).await;
    // This client knows only the standby.
    let oracle = client([standby.address()]);
    let first = next(&oracle).await;
    let last = next(&client([leader.address()])).await;
    assert!(last > first);
    assert!(next(&oracle).await > last);
}

#[tokio::test(flavor = "multi_thread")]
async fn h41_when_the_leader_dies_another_answers_within_three_seconds_and_higher() {
    let store = Arc::new(MemoryStore::new());
    let first = start(&store).await;
    first.leads().await;
    let (second, third) = (start(&store).await, start(&store).await);
    let oracle = client([first.address(), second.address(), third.address()]);
    let last = next(&oracle).await;
    let died = Instant::now();
    drop(first);
    let new = next(&oracle).await;
    let took = died.elapsed();
    assert!(new > last);
    assert!(took < Duration::from_secs(3), "{took:?}");
    // A process that is stopped properly hands over at once.
    let (leader, other) = match second.server.node().role() {
        percolator::cluster::OracleRole::Leads(_) => (second, third),
        percolator::cluster::OracleRole::StandsBy { .. } => (third, second),
    };
    let stopped = Instant::now();
    leader.server.stop().await.unwrap();
    assert!(next(&oracle).await > new);
    assert!(stopped.elapsed() < Duration::from_secs(2), "{:?}", stopped.elapsed());
    assert!(other.leads().await.timestamp().await.unwrap().timestamp > new);
}

/// A leader that is cut off from the store, or paused, answers with errors once its lease may
/// have expired.
#[tokio::test(flavor = "multi_thread")]
async fn h41_a_leader_that_lost_the_store_refuses_and_its_clients_go_to_the_next() {
    let store = Arc::new(MemoryStore::new());
    let first = start(&store).await;
    first.leads().await;
    let second = start(&store).await;
    let patience = RemoteOracleOptions {
        deadline: Duration::from_millis(200),
        ..RemoteOracleOptions::default()
    };
    let only_first = RemoteOracle::new(vec![first.address()], patience).unwrap();
    let both = client([first.address(), second.address()]);
    let last = next(&both).await;
    next(&only_first).await;
    first.cut.store(true, Ordering::SeqCst);
    second.leads().await;
    let error = only_first.timestamp().await.unwrap_err();
    assert!(matches!(&error, Error::Oracle(why) if why.contains("cut off")), "{error}");
    assert!(next(&both).await > last);
    // Once the process can read the record again, it names the new leader to its clients.
    first.cut.store(false, Ordering::SeqCst);
    let new = next(&both).await;
    loop {
        match only_first.timestamp().await {
            Ok(stamp) => break assert!(stamp.timestamp > new),
            Err(error) => assert!(matches!(error, Error::Oracle(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn an_oracle_that_is_not_there_is_reported_with_address_and_remedy() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = RemoteOracleOptions {
        deadline: Duration::from_millis(50),
        ..RemoteOracleOptions::default()
    };
    let oracle = RemoteOracle::new(vec![unused.into()], options).unwrap();
    let error = oracle.timestamp().await.unwrap_err().to_string();
    assert!(error.contains(&unused.to_string()), "{error}");
    assert!(error.contains("percolator serve oracle"), "{error}");
    assert!(RemoteOracle::new(Vec::new(), RemoteOracleOptions::default()).is_err());
}

#[tokio::test]
async fn clients_beyond_the_limit_are_refused_with_a_reason() {
    let options = OracleServerOptions { clients_max: 1, ..OracleServerOptions::default() };
    let process = start_with(&Arc::new(MemoryStore::new()), options).await;
    let first = client([process.address()]);
    next(&first).await;
    let options = RemoteOracleOptions {
        deadline: Duration::from_millis(50),
        ..RemoteOracleOptions::default()
    };
    let second = RemoteOracle::new(vec![process.address()], options).unwrap();
    let error = second.timestamp().await.unwrap_err().to_string();
    assert!(error.contains("its maximum number of clients"), "{error}");
    drop(first);
    while second.timestamp().await.is_err() {}
}

/// A caller that gives up does not disturb others, and a dropped client leaves nobody waiting.
#[tokio::test]
async fn h45_callers_that_give_up_do_not_disturb_others() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    let oracle = Arc::new(client([process.address()]));
    let mut last = next(&oracle).await;
    for _ in 0..200 {
        let given_up = oracle.timestamp();
        let polled = tokio::time::timeout(Duration::ZERO, given_up).await;
        let timestamp = next(&oracle).await;
        assert!(timestamp > last);
        assert!(polled.is_err() || polled.is_ok_and(|stamp| stamp.is_ok()));
        last = timestamp;
    }
}
