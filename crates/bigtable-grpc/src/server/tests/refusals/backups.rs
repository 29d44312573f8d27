//! Tests backups that an administrator asks for: those made while others write, and those refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bigtable::{
    Error, Family, Layout, LocalityGroup, RowKey, RowMutation, Selection, Store, TableSchema,
    TimeRange, Timestamp,
};
use bigtable_fjall::Restoring;

use super::authority::Authority;
use super::*;

const FAMILY: Family = Family::from_static("f");

fn making(dir: &Path) -> ServeOptions {
    ServeOptions { backups: Some(dir.join("backups")), ..ServeOptions::default() }
}

fn schema() -> TableSchema {
    TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] }
}

fn row(number: u64) -> RowMutation {
    let set = bigtable::Mutation::set(FAMILY, "c", Timestamp::ZERO, "value");
    RowMutation::new(format!("row{number}")).mutation(set)
}

async fn refusal(store: &GrpcStore, name: &str) -> String {
    match store.backup(name).await {
        Err(Error::InvalidRequest(why) | Error::Refused(why)) => why,
        other => panic!("{name:?}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_all_that_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), making(dir.path())).await;
    let store = Arc::new(ask(address, None).await.unwrap());
    let table = store.open_table("t", &schema()).await.unwrap();
    let before = 200;
    for number in 0..before {
        table.mutate_row(row(number)).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writes = {
        let (stop, table) = (stop.clone(), table.clone());
        tokio::spawn(async move {
            let mut number = before;
            while !stop.load(Ordering::Relaxed) {
                table.mutate_row(row(number)).await.unwrap();
                number += 1;
            }
            number - before
        })
    };
    let made = store.backup("weekly").await.unwrap();
    let again = store.backup("weekly").await.unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(writes.await.unwrap() > 0, "nothing was written meanwhile");
    assert_eq!(Some(made.store), store.id());
    assert!(made.new_files > 0 && again.new_files < again.files, "{made:?} {again:?}");
    let backup = dir.path().join("backups/weekly");
    assert_eq!(bigtable_fjall::check(&backup, |_| Vec::new()).unwrap().problems.len(), 0);
    let new = tempfile::tempdir().unwrap();
    Restoring::begin(&backup, new.path().join("data")).unwrap().finish().unwrap();
    let restored = ask(start(new.path(), ServeOptions::default()).await, None).await.unwrap();
    let table = restored.open_table("t", &schema()).await.unwrap();
    let select = Selection::default().family(FAMILY, TimeRange::ALL, 1);
    let keys: Vec<RowKey> = (0..before).map(|number| format!("row{number}").into()).collect();
    let rows = table.read_rows(&keys, &select).await.unwrap();
    assert!(rows.iter().all(|row| row.newest(&FAMILY, b"c").is_some()));
}

#[tokio::test]
async fn names_that_are_paths() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), making(dir.path())).await;
    let store = ask(address, None).await.unwrap();
    for name in ["", ".", "..", "../data", "/tmp/x", "a/b", ".hidden", "a b", &"x".repeat(129)] {
        let why = refusal(&store, name).await;
        assert!(why.contains("cannot name a backup"), "{why}");
    }
    store.backup(&"x".repeat(128)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_makes_none_and_a_directory_that_holds_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), ServeOptions::default()).await;
    let why = refusal(&ask(address, None).await.unwrap(), "weekly").await;
    assert!(why.contains("--backups"), "{why}");

    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), making(dir.path())).await;
    let store = ask(address, None).await.unwrap();
    std::fs::create_dir_all(dir.path().join("backups/photos")).unwrap();
    std::fs::write(dir.path().join("backups/photos/cat.jpg"), "a cat").unwrap();
    let why = refusal(&store, "photos").await;
    assert!(why.contains("photos"), "{why}");
    // The server goes on, also with other backups.
    store.backup("weekly").await.unwrap();
}

#[tokio::test]
async fn clients_that_are_no_administrators() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let options = ServeOptions { tls: Some(ours.tls(&[Role::Table])), ..making(dir.path()) };
    let address = start(dir.path(), options).await;
    for roles in [&[Role::Client][..], &[Role::Oracle]] {
        let store = ask(address, Some(ours.tls(roles))).await.unwrap();
        let why = refusal(&store, "weekly").await;
        assert!(why.contains("does not name admin.percolator.internal"), "{why}");
    }
    assert!(!dir.path().join("backups/weekly").exists());
    for roles in [&[Role::Admin][..], &[Role::Client, Role::Admin]] {
        let store = ask(address, Some(ours.tls(roles))).await.unwrap();
        store.backup("weekly").await.unwrap();
    }
}
