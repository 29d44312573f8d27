//! Runs one arm on a copy of its own, for a given number of operations. The process does
//! nothing else, so that their cost can be counted.

use std::path::Path;
use std::sync::Arc;

use percolator::{Options, Percolator};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::caller::{Caller, TEN, Work};
use super::cells::{Cells, Held, Place};
use super::embedded::{Switches, bare, packs, raw, recorded, transactions, twice, two_phases};

/// The arms that can run alone, reads first.
pub(crate) const ALONE: [&str; 16] = [
    "fjall_get",
    "raw_get",
    "get",
    "get_recorded",
    "paper_faithful_get",
    "fjall_insert",
    "fjall_packs",
    "raw_set_blind",
    "raw_set",
    "tx",
    "tx_recorded",
    "tx_ten",
    "two_mutations",
    "two_phases",
    "with_memory",
    "paper_faithful",
];

/// The place of an arm's cells, in an empty directory, and the arm's operation.
async fn arm(name: &str, dir: &Path) -> anyhow::Result<(Place, Work)> {
    let sets_raw =
        async |newest_apart| raw(&*Switches::ALL.open(dir)?, "cells", newest_apart).await;
    let in_transactions = async |switches: Switches, options: Options| {
        let db = Percolator::over(switches.open(dir)?, options.clone()).await?;
        transactions(&db, options, "cells").await
    };
    let by_default = || in_transactions(Switches::ALL, Options::default());
    let with_recorder = || in_transactions(Switches::ALL, recorded());
    let paper = || in_transactions(Switches::PAPER, two_phases(false));
    Ok(match name {
        "fjall_get" => (bare(dir, false)?, Work::Get),
        "raw_get" => (sets_raw(true).await?, Work::Get),
        "get" => (by_default().await?, Work::Get),
        "get_recorded" => (with_recorder().await?, Work::Get),
        "paper_faithful_get" => (paper().await?, Work::Get),
        "fjall_insert" => (bare(dir, false)?, Work::Set),
        "fjall_packs" => (packs(dir)?, Work::Set),
        "raw_set_blind" => (sets_raw(false).await?, Work::Set),
        "raw_set" => (sets_raw(true).await?, Work::Set),
        "tx" => (by_default().await?, Work::Set),
        "tx_recorded" => (with_recorder().await?, Work::Set),
        "tx_ten" => (by_default().await?, Work::SetTen),
        "two_mutations" => (twice(&*Switches::ALL.open(dir)?, "cells").await?, Work::Set),
        "two_phases" => (in_transactions(Switches::ALL, two_phases(true)).await?, Work::Set),
        "with_memory" => (in_transactions(Switches::ALL, two_phases(false)).await?, Work::Set),
        "paper_faithful" => (paper().await?, Work::Set),
        other => anyhow::bail!("there is no arm {other}; choose from {}", ALONE.join(", ")),
    })
}

/// Loads cells and does operations, and reads every cell at the end. Returns the number of
/// wrong reads. Ten cells in a transaction count as ten operations.
pub(crate) async fn alone(
    name: &str,
    dir: &Path,
    cells: usize,
    operations: u64,
    seed: u64,
) -> anyhow::Result<u64> {
    anyhow::ensure!(cells >= TEN, "{cells} cells; give {TEN} or more");
    let (place, work) = arm(name, dir).await?;
    let mut random = SmallRng::seed_from_u64(seed);
    let cells = Cells::new(place, &Cells::keys(cells));
    cells.load(&mut random).await?;
    let cells = Arc::new(cells);
    let held = Held::default();
    let mut caller = Caller { cells: cells.clone(), number: 0, of: 1, random, held };
    for _ in 0..operations / work.counts() {
        caller.one(work).await?;
    }
    cells.check_all().await?;
    Ok(cells.wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_arm_that_can_be_alone_works() {
        for name in ALONE {
            let dir = tempfile::tempdir().unwrap();
            let wrong = alone(name, &dir.path().join("data"), TEN, 20, 1).await.unwrap();
            assert_eq!(wrong, 0, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("tx_99", dir.path(), TEN, 20, 1).await.is_err());
    }
}
