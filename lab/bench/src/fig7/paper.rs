//! Lists the paper's own points: read from its text, and from its Figure 7 to about a pixel.

use crate::plot::Point;

/// Runs of the paper's three passes an hour: they took 20 minutes.
const PASSES_AN_HOUR: f64 = 3.0;
/// Rate at which the paper's Percolator no longer keeps up, in repositories an hour.
const KNEE_AN_HOUR: f64 = 0.40;
/// The throughput of the paper's Percolator over that of its MapReduces.
pub(super) const RATIO: f64 = 0.133;
/// The delay of the paper's MapReduces over that of its Percolator, at 1 % an hour.
pub(super) const DELAY_RATIO: f64 = 1000.0;
/// Operations on the paper's store for each document.
pub(super) const OPERATIONS: f64 = 50.0;

/// Converts a crawl rate from percent of the repository an hour to percent during three passes.
fn share(percent_an_hour: f64) -> f64 {
    percent_an_hour / PASSES_AN_HOUR
}

/// The knee, in percent during three passes.
pub(super) fn knee() -> f64 {
    share(KNEE_AN_HOUR * 100.0)
}

/// A point at this percentage of the repository an hour.
fn at(percent_an_hour: f64, median: f64) -> Point {
    Point::at(share(percent_an_hour), median)
}

/// The paper's Percolator: the median, with the 5th and 95th percentile where the figure shows
/// them.
pub(super) fn percolator() -> Vec<Point> {
    vec![
        at(1.0, 2.0),
        at(5.0, 4.0),
        at(18.0, 4.0),
        at(30.0, 29.0).between(29.0, 109.0),
        at(35.0, 65.0).between(17.0, 202.0),
    ]
}

/// The paper's MapReduces: the median of three runs, with the least and the most.
pub(super) fn map_reduce() -> Vec<Point> {
    vec![
        at(0.1, 2231.0).between(1932.0, 2273.0),
        at(6.0, 2193.0).between(2121.0, 2222.0),
        at(35.0, 2315.0).between(2256.0, 2938.0),
    ]
}
