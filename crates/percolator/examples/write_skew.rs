//! Shows write skew, which snapshot isolation permits, and how to prevent it.
//!
//! Two doctors are on call, and each may leave if the other stays. Both look at the same time,
//! and both leave. To prevent this, both write the same cell, so that their transactions
//! conflict.
//!
//! Run it with `cargo run -p percolator --example write_skew`.

use percolator::{Column, Error, Percolator, Result, Table, Transaction};

const ON_CALL: Column = Column::literal("on-call");
/// Written by every transaction that changes who is on call, so that two concurrent ones
/// conflict.
const GUARD: Column = Column::literal("guard");

async fn others_on_call(tx: &Transaction, doctors: &Table, me: &str) -> Result<bool> {
    let rows = tx.scan(doctors).columns([&ON_CALL]).collect().await?;
    let on_call = |row: &percolator::ScannedRow| row.cells[0].1 == "yes";
    Ok(rows.iter().any(|row| row.row != me.into() && on_call(row)))
}

/// Both doctors try to leave at the same moment. Returns how many are still on call.
async fn both_leave(guarded: bool) -> Result<usize> {
    let db = Percolator::in_memory().await?;
    let doctors = db.table("doctors").await?;
    db.transact(async |mut tx| {
        tx.set(&doctors, "Alice", &ON_CALL, "yes")?;
        tx.set(&doctors, "Bob", &ON_CALL, "yes")
    })
    .await?;
    let (mut alice, mut bob) = (db.begin().await?, db.begin().await?);
    for (tx, me) in [(&mut alice, "Alice"), (&mut bob, "Bob")] {
        if others_on_call(tx, &doctors, me).await? {
            tx.set(&doctors, me, &ON_CALL, "no")?;
            if guarded {
                tx.set(&doctors, "everyone", &GUARD, me)?;
            }
        }
    }
    alice.commit().await?;
    match bob.commit().await {
        // The two transactions write different cells, so nothing conflicts.
        Ok(_) if !guarded => {}
        // Bob would now run again, see that Alice has left, and stay.
        Err(Error::Aborted { .. }) if guarded => {}
        other => return other.map(|_| 0),
    }
    let rows = db.snapshot().await?.scan(&doctors).columns([&ON_CALL]).collect().await?;
    Ok(rows.iter().filter(|row| row.cells[0].1 == "yes").count())
}

/// Returns how many doctors are on call in the end, without a guard and with one.
pub async fn run() -> Result<(usize, usize)> {
    Ok((both_leave(false).await?, both_leave(true).await?))
}

#[tokio::main]
#[allow(dead_code, clippy::print_stdout, reason = "an example prints, and a test includes it")]
async fn main() -> Result<()> {
    let (skewed, guarded) = run().await?;
    println!("on call after both asked to leave: {skewed} without a guard, {guarded} with one");
    Ok(())
}
