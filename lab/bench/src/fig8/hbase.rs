//! Runs Figure 8 over an HBase cluster: the paper's comparison on a distributed store.
//!
//! The raw operations are those of our client. A raw write is one Put, which also replaces the
//! row's guard. A transaction reads the row's guard and locks it, then commits: three requests, of
//! which two wait for the log.

use std::sync::Arc;

use bigtable_hbase::{HbaseAddress, HbaseOptions, HbaseStore};
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::output::grouped;
use percolator_torture::Servers;
use serde_json::json;

use super::bed::Bed;
use super::remote::tables_in;
use super::report::{PAPER_READ, PAPER_WRITE};
use super::{CALLERS_MAX, CELLS_MAX, TEN, measure};
use crate::flags::{Measure, within};
use crate::hbase::{own_namespace, servers_json};
use crate::micro::bed::{KEY_BYTES, VALUE_BYTES};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Report, Row, arm, figures, rate};
use crate::statistics::Estimate;
use crate::turns::Measured;

const RATES: [Row; 4] = [
    rate("get", "raw_get").at_least(0.9).paper(PAPER_READ),
    rate("get_many", "raw_get_many").paper(PAPER_READ),
    rate("tx", "raw_set").at_least(0.23).paper(PAPER_WRITE),
    rate("tx_many", "raw_set_many").paper(PAPER_WRITE),
];

/// Reads and writes of single cells over HBase, transactional over raw (the paper's Figure 8).
///
/// The arms take turns, as in `fig8`. The tables lie in a new namespace, which stays. The report
/// has HBase's version and the processes of its servers, as the cluster names them. The exit status
/// is 3 if a cell is not as it was written.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  scripts/hbase.sh sh -c 'percolator-bench fig8-hbase \"$PERCOLATOR_HBASE\" --out results'")]
pub(crate) struct Fig8Hbase {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The address of the cluster: hbase://HOST:PORT/NAMESPACE.
    store: HbaseAddress,
    /// The number of cells in each copy.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    cells: usize,
    /// The number of callers of the arms for many callers.
    #[arg(long, value_name = "N", default_value_t = 32)]
    callers: usize,
}

impl Fig8Hbase {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        within("callers", self.callers, 1..=CALLERS_MAX)?;
        within("cells", self.cells, self.callers.max(TEN)..=CELLS_MAX)?;
        let turns = self.measure.turns(10.0)?;
        let address = own_namespace(&self.store, "fig8");
        let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
        let servers = Servers::of(&store).await?;
        context.out.note(&servers.lines());
        let places = tables_in(Arc::new(store)).await?;
        let bed = Bed::over(places, (self.cells, self.callers), turns).await?;
        let (arms, check) = measure(context, turns, &bed).await?;
        let about = json!({
            "quick": self.measure.common.quick,
            "cells": self.cells,
            "key_bytes": KEY_BYTES,
            "value_bytes": VALUE_BYTES,
            "callers": self.callers,
            "hbase": servers_json(&servers),
        });
        let counts = json!({ "copies": check.copies, "cells": check.cells, "wrong": check.wrong });
        let wrong = format!("{} cells were not as they were written", check.wrong);
        Ok(Report::of_arms("fig8-hbase", about, turns, &arms, figures(turns, &arms, &RATES))
            .check_counts(counts, check.wrong == 0, &wrong)
            .plot("fig8-hbase.svg", self.plot(&arms, &servers)))
    }

    fn plot(&self, arms: &[Measured], servers: &Servers) -> String {
        let rate_of = |name: &str, share: f64| {
            let arm = arm(arms, name)?;
            let rate = arm.operations as f64 / arm.spent.elapsed.as_secs_f64();
            Some(Estimate::alone(rate * share))
        };
        let subtitle = format!(
            "{} cells of {KEY_BYTES} + {VALUE_BYTES} bytes at random, HBase {} with {} region servers. \
             The paper's bars are its own shares of our raw rates: {PAPER_READ} and {PAPER_WRITE}.",
            grouped(self.cells as u64),
            servers.version,
            servers.region_servers.len(),
        );
        let many = self.callers;
        let groups = [
            "Read/s".to_owned(),
            "Write/s".to_owned(),
            format!("Read/s, {many} callers"),
            format!("Write/s, {many} callers"),
        ];
        let of = |read: &str, write: &str, [of_read, of_write]: [f64; 2]| {
            [
                rate_of(read, of_read),
                rate_of(write, of_write),
                rate_of(&format!("{read}_many"), of_read),
                rate_of(&format!("{write}_many"), of_write),
            ]
        };
        let y = Axis::linear("operations a second", Unit::Plain);
        let title = "Figure 8 over HBase: single cells, transactional and raw";
        Plot::groups(groups, y, title, subtitle)
            .bars("raw", Role::Peer(0), of("raw_get", "raw_set", [1.0; 2]))
            .bars("Percolator", Role::Ours(0), of("get", "tx", [1.0; 2]))
            .bars(
                "the paper's share of raw",
                Role::Paper(0),
                of("raw_get", "raw_set", [PAPER_READ, PAPER_WRITE]),
            )
            .svg()
    }
}
