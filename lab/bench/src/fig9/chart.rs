//! Draws the plot of `percolator-bench fig9`: Trade-Results a second over cores, on the paper's
//! axes.

use percolator_cli::output::grouped;

use crate::plot::{Axis, Chart, Point, Role, Series, Unit};
use crate::statistics::Estimate;

use super::report::{PAPER, cores_used, trade_results_per_s};
use super::{Arm, Fig9, Outcome, Store};

impl Store {
    /// The store's name in the plot, and its role there.
    fn legend(self) -> (&'static str, Role) {
        match self {
            Store::Embedded => ("embedded, on one core and on two", Role::Ours(0)),
            Store::Small => ("embedded, an eighth of the customers", Role::Ours(1)),
            Store::Rpc => ("over RPC", Role::Ours(2)),
            Store::Postgres => ("PostgreSQL, functions in PL/pgSQL", Role::Peer(0)),
        }
    }
}

/// Draws the plot. The paper's points lie at thousands of cores, so both axes are logarithmic,
/// as in the paper.
pub(super) fn chart(settings: &Fig9, outcome: &Outcome) -> Chart {
    let paper = PAPER.map(|(cores, rate)| Point::at(cores as f64, rate as f64));
    let mut series = vec![Series::dashed("Percolator, 2010", Role::Paper(0), paper.to_vec())];
    for stored in &outcome.stores {
        let arms = outcome.arms.iter().filter(|arm| arm.store == stored.store);
        let points: Vec<Point> = arms.filter_map(|arm| point(settings.common.seed, arm)).collect();
        let (name, role) = stored.store.legend();
        series.push(match points.len() {
            2.. => Series::line(name, role, points),
            _ => Series::points(name, role, points),
        });
    }
    Chart {
        title: "Figure 9: Trade-Results a second over cores".to_owned(),
        subtitle: format!(
            "TPC-E-like, {} customers, durability buffered; cores are the processor time of all processes by \
             time. Not comparable with published TPC-E results",
            grouped(settings.customers()),
        ),
        x: Axis::log("cores", Unit::Plain),
        y: Axis::log("Trade-Results a second", Unit::Plain),
        series,
        references: Vec::new(),
    }
}

/// The point of an arm; `None` if processor time cannot be measured.
fn point(seed: u64, arm: &Arm) -> Option<Point> {
    let rate = Estimate::of(&arm.each(trade_results_per_s), seed)?;
    let cores = Estimate::of(&arm.each(cores_used), seed)?;
    Some(Point::at(cores.median, rate.median).between(rate.low, rate.high))
}
