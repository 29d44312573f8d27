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

#[derive(Debug, Clone, Copy)]
enum Form {
    Fjall,
    Packs,
    Raw { newest_apart: bool },
    TwoMutations,
    Transactions(Switches, fn() -> Options),
}

const DEFAULT: Form = Form::Transactions(Switches::ALL, Options::default);
const RECORDED: Form = Form::Transactions(Switches::ALL, recorded);
const PAPER: Form = Form::Transactions(Switches::PAPER, || two_phases(false));

/// The arms that can run alone, reads first.
const ARMS: [(&str, Form, Work); 16] = [
    ("fjall_get", Form::Fjall, Work::Get),
    ("raw_get", Form::Raw { newest_apart: true }, Work::Get),
    ("get", DEFAULT, Work::Get),
    ("get_recorded", RECORDED, Work::Get),
    ("paper_faithful_get", PAPER, Work::Get),
    ("fjall_insert", Form::Fjall, Work::Set),
    ("fjall_packs", Form::Packs, Work::Set),
    ("raw_set_blind", Form::Raw { newest_apart: false }, Work::Set),
    ("raw_set", Form::Raw { newest_apart: true }, Work::Set),
    ("tx", DEFAULT, Work::Set),
    ("tx_recorded", RECORDED, Work::Set),
    ("tx_ten", DEFAULT, Work::SetTen),
    ("two_mutations", Form::TwoMutations, Work::Set),
    ("two_phases", Form::Transactions(Switches::ALL, || two_phases(true)), Work::Set),
    ("with_memory", Form::Transactions(Switches::ALL, || two_phases(false)), Work::Set),
    ("paper_faithful", PAPER, Work::Set),
];

pub(crate) fn alone_names() -> impl Iterator<Item = &'static str> {
    ARMS.into_iter().map(|(name, ..)| name)
}

impl Form {
    async fn open(self, dir: &Path) -> anyhow::Result<Place> {
        match self {
            Form::Fjall => bare(dir, false),
            Form::Packs => packs(dir),
            Form::Raw { newest_apart } => {
                raw(&*Switches::ALL.open(dir)?, "cells", newest_apart).await
            }
            Form::TwoMutations => twice(&*Switches::ALL.open(dir)?, "cells").await,
            Form::Transactions(switches, options) => {
                let db = Percolator::over(switches.open(dir)?, options()).await?;
                transactions(&db, options(), "cells").await
            }
        }
    }
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
    let Some((_, form, work)) = ARMS.into_iter().find(|(known, ..)| *known == name) else {
        let known: Vec<&str> = alone_names().collect();
        anyhow::bail!("there is no arm {name}; choose from {}", known.join(", "))
    };
    let place = form.open(dir).await?;
    let mut random = SmallRng::seed_from_u64(seed);
    let cells = Cells::new(place, &Cells::keys(cells));
    cells.load(&mut random).await?;
    let cells = Arc::new(cells);
    let held = Held::default();
    let mut caller = Caller { cells: cells.clone(), work, number: 0, of: 1, done: 0, random, held };
    for _ in 0..operations / work.counts() {
        caller.one().await?;
    }
    cells.check_all().await?;
    Ok(cells.wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_arm_that_can_be_alone_works() {
        for name in alone_names() {
            let dir = tempfile::tempdir().unwrap();
            let wrong = alone(name, &dir.path().join("data"), TEN, 20, 1).await.unwrap();
            assert_eq!(wrong, 0, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("tx_99", dir.path(), TEN, 20, 1).await.is_err());
    }
}
