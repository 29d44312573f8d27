//! Tests columns that are fetched together and kept for the transaction.

use percolator_core::{Client, Column, Options, Table};

use crate::world::{A, B, BAL, World, get_column, run, writing};

fn ahead() -> Options {
    Options { read_ahead: true, ..Options::default() }
}

fn columns(count: usize) -> Vec<Column> {
    (0..count).map(|n| Column::new(format!("f:{n:02}")).unwrap()).collect()
}

/// The length of a document's column. In the table "long", every fifth column has a long
/// value.
fn length(table: &Table, n: usize) -> usize {
    n + if table.name() == "long" && n.is_multiple_of(5) { 2000 } else { 10 }
}

/// Writes documents with these columns.
async fn documents(client: &Client, table: &Table, rows: usize, columns: &[Column]) {
    for row in 0..rows {
        let mut tx = client.begin().await.unwrap();
        for (n, column) in columns.iter().enumerate() {
            tx.set(table, row.to_string(), column, vec![b'x'; length(table, n)]).unwrap();
        }
        tx.commit().await.unwrap();
    }
}

/// Reads each document in a transaction of its own, and returns how many requests that took.
async fn read_all(client: &Client, table: &Table, rows: usize, columns: &[Column]) -> u64 {
    let before = client.stats().reads;
    for row in 0..rows {
        let tx = client.begin().await.unwrap();
        for (n, column) in columns.iter().enumerate() {
            let value = tx.get(table, row.to_string(), column).await.unwrap().unwrap();
            assert_eq!(value.len(), length(table, n));
        }
    }
    client.stats().reads - before
}

/// Paper section 2.5: "reduces the total number of Bigtable reads by a factor of 10".
#[test]
fn a_document_of_twenty_columns_takes_a_tenth_of_the_reads() {
    run(async |world| {
        let (plain, client) = (world.client().await, world.client_with(ahead()).await);
        let columns = columns(20);
        // Alone, each cell takes one request, and each of the four long values another.
        // Reading ahead, this holds for the first document only. Each later document takes one
        // request for all cells, and one for all long values.
        for (name, first, others) in [("short", 20, 1), ("long", 24, 2)] {
            let table = plain.table(name).await.unwrap();
            documents(&plain, &table, 80, &columns).await;
            let alone = read_all(&plain, &table, 80, &columns).await;
            let together = read_all(&client, &table, 80, &columns).await;
            assert_eq!((alone, together), (80 * first, first + 79 * others));
            assert!(together * 10 <= alone, "{name}: {together} of {alone}");
        }
        assert_eq!(client.stats().reads_saved, 2 * 79 * 19);
        assert_eq!(plain.stats().reads_saved, 0);
    });
}

/// Teaches a client that one column follows another.
async fn teach(client: &Client, table: &Table) {
    let tx = client.begin().await.unwrap();
    for column in [&A, &B] {
        tx.get(table, "taught", column).await.unwrap();
    }
}

/// The writer of the second column had committed before the reader began. Only its lock shows
/// that (H28).
#[test]
fn h28_what_is_fetched_ahead_passes_the_same_lock_check() {
    run(async |world: World| {
        let (writer, client) = (world.client().await, world.client_with(ahead()).await);
        let table = client.table("t").await.unwrap();
        teach(&client, &table).await;
        for value in ["1", "2"] {
            let mut tx = writing(&writer, &table, &[("p", value)]).await;
            tx.set(&table, "r", &B, value).unwrap();
            let decided = tx.prewrite().await.unwrap().commit_primary().await.unwrap();
            if value == "1" {
                decided.commit_secondaries().await;
            }
        }
        let tx = client.begin().await.unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap(), None);
        assert_eq!(tx.get(&table, "r", &B).await.unwrap().as_deref(), Some(&b"2"[..]));
    });
}

/// No reader waits for a lock on a column that it has not read.
#[test]
fn a_lock_on_a_column_that_is_fetched_ahead_holds_nobody_up() {
    run(async |world| {
        let (writer, client) = (world.client().await, world.client_with(ahead()).await);
        let table = client.table("t").await.unwrap();
        teach(&client, &table).await;
        let mut tx = writer.begin().await.unwrap();
        tx.set(&table, "r", &B, "1").unwrap();
        let prewritten = tx.prewrite().await.unwrap();
        let before = percolator_core::Runtime::now(&world.runtime);
        let tx = client.begin().await.unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap(), None);
        assert_eq!(percolator_core::Runtime::now(&world.runtime), before);
        drop(prewritten);
        world.declare_dead(&writer);
        assert_eq!(tx.get(&table, "r", &B).await.unwrap(), None);
    });
}

#[test]
fn what_is_kept_is_that_of_the_start_timestamp_below_own_writes() {
    run(async |world| {
        let (writer, client) = (world.client().await, world.client_with(ahead()).await);
        let table = client.table("t").await.unwrap();
        teach(&client, &table).await;
        let set = async |value: &'static str| {
            let mut tx = writer.begin().await.unwrap();
            tx.set(&table, "r", &A, value).unwrap();
            tx.set(&table, "r", &B, value).unwrap();
            tx.commit().await.unwrap()
        };
        set("1").await;
        let mut tx = client.begin().await.unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap().as_deref(), Some(&b"1"[..]));
        set("2").await;
        assert_eq!(tx.get(&table, "r", &B).await.unwrap().as_deref(), Some(&b"1"[..]));
        tx.set(&table, "r", &B, "own").unwrap();
        assert_eq!(tx.get(&table, "r", &B).await.unwrap().as_deref(), Some(&b"own"[..]));
        tx.delete(&table, "r", &A).unwrap();
        assert_eq!(tx.get(&table, "r", &A).await.unwrap(), None);
        tx.read_own_writes(false);
        assert_eq!(tx.get(&table, "r", &B).await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(get_column(&client, &table, "r", &B).await.as_deref(), Some("2"));
        // An absent cell is kept as absent.
        let tx = client.begin().await.unwrap();
        assert_eq!(tx.get(&table, "none", &A).await.unwrap(), None);
        let before = client.stats().reads;
        assert_eq!(tx.get(&table, "none", &B).await.unwrap(), None);
        assert_eq!(client.stats().reads, before);
        assert_eq!(tx.get(&table, "none", &BAL).await.unwrap(), None);
        assert_eq!(client.stats().reads, before + 1);
    });
}
