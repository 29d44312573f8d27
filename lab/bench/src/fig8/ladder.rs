//! Lists the steps from the paper's form of a write to the default, one optimisation at a time.
//! Counts the store operations of a transaction on one cell at each step.

use std::path::Path;

use percolator::transaction::CommitPath;
use percolator::{Bytes, Column, Options, Percolator};
use serde_json::{Value, json};

use super::embedded::{Switches, two_phases};
use crate::spy::{Operations, Spy};

const COUNTED: u64 = 64;

/// A step of the ladder: an arm, and the optimisation that it adds to the one before.
#[derive(Debug)]
pub(super) struct Step {
    arm: &'static str,
    gains: &'static str,
    /// The store operations of the counted transactions.
    asked: Operations,
}

/// The arm, its gain, its store, whether it takes two phases, and whether records hold short
/// values.
type Form = (&'static str, &'static str, Switches, bool, bool);

const FORMS: [Form; 5] = [
    ("paper_faithful", "nothing: the paper's form", Switches::PAPER, true, false),
    (
        "with_newest_apart",
        "newest write records lie apart from older ones",
        Switches { newest_apart: true, ..Switches::PAPER },
        true,
        false,
    ),
    ("with_memory", "the committer remembers newest write records", Switches::ALL, true, false),
    ("two_phases", "short values travel in lock and write records", Switches::ALL, true, true),
    ("tx", "both phases in one step", Switches::ALL, false, true),
];

pub(super) async fn count(dir: &Path) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::with_capacity(FORMS.len());
    for (arm, gains, switches, phases, short_values) in FORMS {
        let (spy, seen) = Spy::on(switches.open(&dir.join("counted").join(arm))?);
        let options = if phases { two_phases(short_values) } else { Options::default() };
        debug_assert_eq!(phases, options.commit_path == CommitPath::TwoPhases);
        let db = Percolator::over(spy, options).await?;
        let (table, column) = (db.table("cells").await?, Column::literal("v"));
        // The first transaction also reads the schema of observers, so it is not counted.
        write(&db, &table, &column, 0).await?;
        let before = seen.operations();
        for n in 1..=COUNTED {
            write(&db, &table, &column, n).await?;
        }
        steps.push(Step { arm, gains, asked: seen.operations().since(before) });
    }
    Ok(steps)
}

async fn write(
    db: &Percolator,
    table: &percolator::Table,
    column: &Column,
    n: u64,
) -> anyhow::Result<()> {
    let mut tx = db.begin().await?;
    tx.set(table, n.to_be_bytes().to_vec(), column, Bytes::from(vec![7; 100]))?;
    tx.commit().await?;
    Ok(())
}

impl Step {
    pub(super) fn json(&self) -> Value {
        let Operations { reads, scans, writes, conditions, cells, .. } = self.asked;
        let each = |count: u64| count as f64 / COUNTED as f64;
        json!({
            "arm": self.arm,
            "gains": self.gains,
            "per_transaction": {
                "reads": each(reads + scans),
                "writes": each(writes),
                "conditions": each(conditions),
                "cells_changed": each(cells),
            },
        })
    }
}
