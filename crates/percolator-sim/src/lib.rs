//! Seeded, deterministic simulation of the shipped protocol: one thread, virtual time, faults, and
//! checkers of what came out.

pub mod check;
pub mod crash_points;
pub mod history;
mod logged;
pub mod model;
pub mod typed_ops;
