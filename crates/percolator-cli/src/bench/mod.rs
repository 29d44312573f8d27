//! What is measured, and how.
//!
//! All arms of a benchmark run in one process and take turns in short blocks, so that whatever else
//! the machine does falls on all of them; ratios are taken within a round, and the median over the
//! rounds is reported with its 95 % interval.

mod bed;
pub(crate) mod fig7;
pub(crate) mod micro;
pub(crate) mod oracle;
mod plot;
pub(crate) mod report;
mod statistics;
mod system;
pub(crate) mod webindex;
