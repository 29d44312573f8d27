//! Measures transactions over a network against the requests that they consist of.
//!
//! ```text
//!   bare_commit  prewrite and commit of a transaction on one cell, as two requests made
//!                beforehand
//!   tx           begin, set, commit: the client makes the same requests
//!   tx_ten       begin, ten sets in ten rows, commit, with batches of conditional mutations
//!   tx_ten_each  the same as on a server without batches: each row's mutation is a request of
//!                its own
//!   bare_read    one ReadRows, made beforehand
//!   get          snapshot, get: the client makes the same request
//! ```
//!
//! The table server is a process of its own; the oracle is in this one. Each arm runs with one
//! caller, and again with as many as `--callers` says. No two callers share a cell, so nothing
//! conflicts. Each value contains its cell's number and the number of its writes, so that a
//! lost, repeated or misplaced write is noticed.

mod bed;
mod caller;
mod record;

use std::sync::Arc;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use serde_json::json;

use super::bed::{KEY_BYTES, VALUE_BYTES};
use crate::Turns;
use crate::callers::call;
use crate::fig8::CELLS_MAX;
use crate::flags::{Measure, within};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Report, Row, arm, figures, p50, p99, rate};
use crate::turns::{Measured, Others};

use bed::{Bed, Form};
use caller::{Caller, Work};

/// Number of cells that a transaction of `tx_ten` writes.
const TEN: usize = 10;

const TX: Work = Work::Commit { cells: 1, form: Form::Usual };
const TX_TEN: Work = Work::Commit { cells: TEN, form: Form::Usual };
const TX_TEN_EACH: Work = Work::Commit { cells: TEN, form: Form::EachAlone };

const MANY: &str = "the same, many callers";

/// All arms in the order of the report: name, repeated work, and one operation of it. Arms with
/// [`MANY`] have as many callers as the settings say, instead of one.
const ARMS: [(&str, Work, &str); 12] = [
    ("bare_commit", Work::BareCommit, "CheckAndMutateRow twice: prewrite and commit of a cell"),
    ("tx", TX, "begin, set, commit"),
    ("tx_ten", TX_TEN, "begin, ten sets in ten rows, commit"),
    ("tx_ten_each", TX_TEN_EACH, "the same, without batches"),
    ("bare_read", Work::BareRead, "one ReadRows: locks and newest write of a cell"),
    ("get", Work::Get, "snapshot, get"),
    ("bare_commit_many", Work::BareCommit, MANY),
    ("tx_many", TX, MANY),
    ("tx_ten_many", TX_TEN, MANY),
    ("tx_ten_each_many", TX_TEN_EACH, MANY),
    ("bare_read_many", Work::BareRead, MANY),
    ("get_many", Work::Get, MANY),
];

const ROWS: [Row; 8] = [
    rate("tx", "bare_commit").at_least(0.8),
    rate("tx_many", "bare_commit_many").at_least(0.8),
    rate("get", "bare_read").at_least(0.9),
    rate("get_many", "bare_read_many").at_least(0.9),
    p50("tx_ten", "tx").at_most(2.0),
    p99("tx_ten", "tx"),
    rate("tx_ten", "tx_ten_each"),
    rate("tx_ten_many", "tx_ten_each_many"),
];

/// Transactions against a table server over loopback, compared with the bare requests that they
/// make.
///
/// The server is a process of its own, and the oracle is in this one. Each arm runs with one
/// caller, and again with many. The arms take turns in blocks of at most half a second, in an
/// order drawn from the seed. A figure is the median over the rounds. At the end every cell is
/// read. The exit status is 3 unless each cell holds the number of transactions that wrote it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench micro rpc --callers 16 --json")]
pub(crate) struct Rpc {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The number of callers of the arms for many callers.
    #[arg(long, value_name = "N", default_value_t = 16)]
    callers: usize,
    /// The number of cells.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cells: usize,
}

impl Rpc {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let Rpc { callers: count, cells, .. } = *self;
        within("callers", count, 1..=1000)?;
        let least = count * TEN;
        if !(least..=CELLS_MAX).contains(&cells) {
            let help = format!("give {least} (ten for each caller) to {CELLS_MAX} cells");
            return Err(Failure::usage(format!("--cells {cells}"), help));
        }
        let turns = self.measure.turns(5.0)?;
        let bed = Arc::new(Bed::create(cells).await?);
        let mut callers = Caller::all(&bed, count, cells, turns.seed);
        for caller in &mut callers {
            caller.load().await?;
        }
        let turn = async |at: usize| {
            let (_, work, operation) = ARMS[at];
            let rest = callers.split_off(if operation == MANY { count } else { 1 });
            for caller in &mut callers {
                caller.prepare(work).await?;
            }
            let others = Others::Server(&bed.server);
            let called = call(others, std::mem::take(&mut callers), turns.block()).await?;
            callers = called.callers;
            callers.extend(rest);
            Ok(called.block)
        };
        let arms = ARMS.map(|(name, _, operation)| (name, operation));
        let arms = turns.measure(context, arms, turn).await?;
        let (mut read, mut wrong, mut transactions) = (0, 0, 0);
        for caller in &mut callers {
            read += caller.check().await?;
            wrong += caller.wrong;
            transactions += caller.committed;
        }
        let committed = bed.committed();
        let check = json!({
            "cells": read, "wrong": wrong, "transactions": transactions, "committed": committed,
        });
        let settings = json!({
            "callers": count,
            "cells": cells,
            "key_bytes": KEY_BYTES,
            "value_bytes": VALUE_BYTES,
            "secondaries": "background",
            "durability": "buffered",
            "processes": "one table server, one client with its oracle",
        });
        let report = Report::of_arms("rpc", settings, turns, &arms, figures(turns, &arms, &ROWS));
        let is_ok = wrong == 0 && transactions == committed;
        let why = format!("{wrong} cells or answers were wrong, or a commit was miscounted");
        let report = report.check_counts(check, is_ok, &why);
        Ok(report.plot("rpc.svg", plot(turns, &arms, count)))
    }
}

fn plot(turns: Turns, arms: &[Measured], many: usize) -> String {
    let rate = |name: &str| turns.rate(arm(arms, name)?);
    let rates = |[read, write]: [&str; 2]| {
        [read, &format!("{read}_many"), write, &format!("{write}_many")].map(rate)
    };
    let groups = ["a read", "a write"];
    let groups = groups.map(|one| [one.to_owned(), format!("{one}, {many} callers")]).concat();
    let y = Axis::linear("operations a second", Unit::Plain);
    let title = "Single cells over a network: transactions and bare requests";
    let subtitle = "Over loopback: a table server, and a client with its oracle.";
    Plot::groups(groups, y, title, subtitle)
        .bars("the requests alone", Role::Peer(0), rates(["bare_read", "bare_commit"]))
        .bars("Percolator", Role::Ours(0), rates(["get", "tx"]))
        .svg()
}
