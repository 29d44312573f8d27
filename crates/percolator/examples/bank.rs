//! Figure 4 of the paper: Bob pays Joe 7 dollars, with a crash at each step.
//!
//! Run it with `cargo run -p percolator --example bank`.

use percolator::{Column, Error, Percolator, Result, Table, Transaction};

const BAL: Column = Column::literal("bal");

/// The step after which the paying client dies.
#[derive(Debug, Clone, Copy)]
enum Crash {
    BeforePrewrite,
    AfterPrewrite,
    AfterPrimary,
    Never,
}

async fn balance(tx: &Transaction, accounts: &Table, who: &str) -> Result<i64> {
    let value = tx.get(accounts, who, &BAL).await?.unwrap_or_default();
    String::from_utf8_lossy(&value).parse().map_err(Error::application)
}

/// Moves 7 from Bob to Joe through a second client, which dies at `crash`.
async fn pay(db: &Percolator, crash: Crash) -> Result<()> {
    let client = db.another_client().await?;
    let accounts = client.table("accounts").await?;
    let mut tx = client.begin().await?;
    let (bob, joe) = (balance(&tx, &accounts, "Bob").await?, balance(&tx, &accounts, "Joe").await?);
    tx.set(&accounts, "Bob", &BAL, (bob - 7).to_string())?;
    tx.set(&accounts, "Joe", &BAL, (joe + 7).to_string())?;
    if matches!(crash, Crash::BeforePrewrite) {
        return Ok(());
    }
    let prewritten = tx.prewrite().await?;
    if matches!(crash, Crash::AfterPrewrite) {
        return Ok(());
    }
    let decided = prewritten.commit_primary().await?;
    if !matches!(crash, Crash::AfterPrimary) {
        decided.commit_secondaries().await;
    }
    // Dropping the client here removes its liveness token, as the end of a process does.
    Ok(())
}

/// Pays once for each crash, each time starting at 10 and 2. Returns the balances that a
/// reader then finds.
pub async fn run() -> Result<Vec<(String, i64, i64)>> {
    let mut found = Vec::new();
    for crash in [Crash::BeforePrewrite, Crash::AfterPrewrite, Crash::AfterPrimary, Crash::Never] {
        let db = Percolator::in_memory().await?;
        let accounts = db.table("accounts").await?;
        db.transact(async |mut tx| {
            tx.set(&accounts, "Bob", &BAL, "10")?;
            tx.set(&accounts, "Joe", &BAL, "2")
        })
        .await?;
        pay(&db, crash).await?;
        // The reader finds the locks that the dead client left, and resolves them.
        let tx = db.begin().await?;
        let bob = balance(&tx, &accounts, "Bob").await?;
        let joe = balance(&tx, &accounts, "Joe").await?;
        assert_eq!(bob + joe, 12, "money was made or lost by a crash {crash:?}");
        assert!(db.held_locks(10).await?.is_empty());
        found.push((format!("{crash:?}"), bob, joe));
    }
    Ok(found)
}

#[tokio::main]
#[allow(dead_code, clippy::print_stdout, reason = "an example prints, and a test includes it")]
async fn main() -> Result<()> {
    for (crash, bob, joe) in run().await? {
        println!("crash {crash:<15} Bob {bob:>2}  Joe {joe:>2}");
    }
    Ok(())
}
