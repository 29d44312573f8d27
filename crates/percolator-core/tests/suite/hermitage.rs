//! The anomalies of Hermitage, as snapshot isolation has them: all prevented but write skew.
//!
//! Each begins with x = 10 and y = 20. Writes are buffered, so where a locking database blocks, the
//! second to commit aborts here.

use percolator_core::{AbortReason, Client, Error, Table, Transaction};

use crate::world::{BAL, World, get, is_aborted, number, run, set};

struct Stage {
    client: Client,
    table: Table,
}

impl Stage {
    async fn new(world: &World) -> Self {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("x", "10"), ("y", "20")]).await;
        Stage { client, table }
    }

    async fn begin(&self) -> Transaction {
        self.client.begin().await.unwrap()
    }

    async fn read(&self, tx: &Transaction, row: &str) -> i64 {
        number(tx.get(&self.table, row, &BAL).await.unwrap())
    }

    fn write(&self, tx: &mut Transaction, row: &str, value: i64) {
        tx.set(&self.table, row, &BAL, value.to_string()).unwrap();
    }

    /// How many values there are that a number divides.
    async fn divisible(&self, tx: &Transaction, by: i64) -> usize {
        let rows = tx.scan(&self.table).collect().await.unwrap();
        let values = rows.into_iter().map(|row| number(Some(row.cells[0].1.clone())));
        values.filter(|value| value % by == 0).count()
    }

    async fn now(&self) -> (i64, i64) {
        let tx = self.begin().await;
        (self.read(&tx, "x").await, self.read(&tx, "y").await)
    }
}

#[test]
fn g0_write_cycles() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 11);
        t.write(&mut two, "x", 12);
        t.write(&mut one, "y", 21);
        one.commit().await.unwrap();
        t.write(&mut two, "y", 22);
        assert!(is_aborted(&two.commit().await));
        assert_eq!(t.now().await, (11, 21));
    });
}

#[test]
fn g1a_aborted_reads() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 101);
        assert_eq!(t.read(&two, "x").await, 10);
        let prewritten = one.prewrite().await.unwrap();
        drop(prewritten);
        assert_eq!(t.read(&two, "x").await, 10);
        assert_eq!(t.now().await, (10, 20));
    });
}

#[test]
fn g1b_intermediate_reads() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 101);
        assert_eq!(t.read(&two, "x").await, 10);
        t.write(&mut one, "x", 11);
        one.commit().await.unwrap();
        assert_eq!(t.read(&two, "x").await, 10);
        assert_eq!(t.now().await, (11, 20));
    });
}

#[test]
fn g1c_circular_information_flow() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 11);
        t.write(&mut two, "y", 22);
        assert_eq!(t.read(&one, "y").await, 20);
        assert_eq!(t.read(&two, "x").await, 10);
        one.commit().await.unwrap();
        two.commit().await.unwrap();
    });
}

#[test]
fn otv_observed_transaction_vanishes() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 11);
        t.write(&mut one, "y", 19);
        t.write(&mut two, "x", 12);
        one.commit().await.unwrap();
        let three = t.begin().await;
        assert_eq!(t.read(&three, "x").await, 11);
        t.write(&mut two, "y", 18);
        assert!(is_aborted(&two.commit().await));
        assert_eq!(t.read(&three, "y").await, 19);
        assert_eq!(t.read(&three, "x").await, 11);
    });
}

#[test]
fn pmp_predicates_with_many_preceders() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (one, mut two) = (t.begin().await, t.begin().await);
        assert_eq!(t.divisible(&one, 30).await, 0);
        t.write(&mut two, "z", 30);
        two.commit().await.unwrap();
        assert_eq!(t.divisible(&one, 3).await, 0);
        // Of a write: what the predicate chose was deleted by another.
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 20);
        t.write(&mut one, "y", 30);
        assert_eq!(t.divisible(&two, 20).await, 1);
        two.delete(&t.table, "y", &BAL).unwrap();
        one.commit().await.unwrap();
        assert!(is_aborted(&two.commit().await));
        assert_eq!(t.now().await, (20, 30));
    });
}

#[test]
fn p4_lost_update() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        let (a, b) = (t.read(&one, "x").await, t.read(&two, "x").await);
        t.write(&mut one, "x", a + 1);
        t.write(&mut two, "x", b + 1);
        let (one_s, commit_ts) = (one.start_ts(), one.commit().await.unwrap());
        let Err(Error::Aborted { reason: AbortReason::Conflict(conflict), .. }) =
            two.commit().await
        else {
            panic!("the second must lose");
        };
        assert_eq!(conflict.cell.to_string(), "t/x/bal");
        assert_eq!((conflict.winner_start_ts, conflict.winner_commit_ts), (one_s, Some(commit_ts)));
        assert_eq!(conflict.winner_owner, None);
        // Against a lock it names the owner instead.
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        t.write(&mut one, "x", 0);
        t.write(&mut two, "x", 0);
        let one_s = one.start_ts();
        let prewritten = one.prewrite().await.unwrap();
        let Err(Error::Aborted { reason: AbortReason::Conflict(conflict), .. }) =
            two.commit().await
        else {
            panic!("the second must lose");
        };
        assert_eq!((conflict.winner_start_ts, conflict.winner_commit_ts), (one_s, None));
        assert_eq!(conflict.winner_owner, Some(t.client.incarnation()));
        prewritten.commit_primary().await.unwrap();
        // And run again it loses nothing.
        for _ in 0..2 {
            t.client
                .transact(async |mut tx| crate::world::add(&mut tx, &t.table, "x", &BAL, 1).await)
                .await
                .unwrap();
        }
        assert_eq!(get(&t.client, &t.table, "x").await.as_deref(), Some("2"));
    });
}

#[test]
fn g_single_read_skew() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (one, mut two) = (t.begin().await, t.begin().await);
        assert_eq!(t.read(&one, "x").await, 10);
        t.write(&mut two, "x", 12);
        t.write(&mut two, "y", 18);
        two.commit().await.unwrap();
        assert_eq!(t.read(&one, "y").await, 20);
        // By a predicate.
        let (one, mut two) = (t.begin().await, t.begin().await);
        assert_eq!(t.divisible(&one, 5).await, 0);
        t.write(&mut two, "x", 15);
        two.commit().await.unwrap();
        assert_eq!(t.divisible(&one, 3).await, 2, "12 and 18, not yet 15");
        // By a write of what was read.
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        assert_eq!(t.read(&one, "x").await, 15);
        t.write(&mut two, "x", 1);
        t.write(&mut two, "y", 2);
        two.commit().await.unwrap();
        one.delete(&t.table, "y", &BAL).unwrap();
        assert!(is_aborted(&one.commit().await));
    });
}

/// Possible under snapshot isolation, and so documented: a test that expects it says so.
#[test]
fn g2_write_skew_commits_both() {
    run(async |world| {
        let t = Stage::new(&world).await;
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        for tx in [&one, &two] {
            assert_eq!((t.read(tx, "x").await, t.read(tx, "y").await), (10, 20));
        }
        t.write(&mut one, "x", 11);
        t.write(&mut two, "y", 21);
        one.commit().await.unwrap();
        two.commit().await.unwrap();
        // Of a predicate: both insert what the other did not see.
        let (mut one, mut two) = (t.begin().await, t.begin().await);
        assert_eq!((t.divisible(&one, 30).await, t.divisible(&two, 30).await), (0, 0));
        t.write(&mut one, "z1", 30);
        t.write(&mut two, "z2", 60);
        one.commit().await.unwrap();
        two.commit().await.unwrap();
        assert_eq!(t.divisible(&t.begin().await, 30).await, 2);
    });
}
