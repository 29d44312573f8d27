//! Explores small models of the shipped protocol, to exhaustion or up to a number of states.
//!
//! A model is a handful of clients with short programs over one store in memory. Each of their
//! requests to store or oracle waits until the explorer lets it through, and the explorer
//! tries every order. Within the model's bounds it also tries these events:
//!
//! * messages that arrive twice or late,
//! * clients that die,
//! * clients that are believed dead although they live.
//!
//! The clients run the code of `percolator-core` itself, not a description of it.
//!
//! These bounds hold for all models:
//!
//! * Each transaction is tried once.
//! * There are no heartbeats.
//! * Time passes only as the loss of a liveness token.
//! * A reply arrives with its request. An event between the two could as well come after both.
//! * A waiting client looks again when something changes that it has looked at, or when
//!   nothing else can happen.

mod exchange;
mod explore;
mod parked;
#[cfg(test)]
mod tests;
mod world;

use std::io::{self, Write};

use crate::history::Cell;
use crate::logged::{Step, cell};
use explore::{Explored, explore};
use world::{Model, Program};

/// An exploration stops at this many states, and reports that it is not exhausted.
const STATES_MAX: usize = 150_000;

/// Explores all models and prints the results. Returns true if every model was exhausted and
/// nothing was found.
///
/// # Errors
/// Returns the errors of `out`, and an error for an execution that cannot be played.
pub fn run(out: &mut dyn Write) -> io::Result<bool> {
    let mut good = true;
    for model in models() {
        let explored = print(out, &model, STATES_MAX)?;
        good &= explored.exhausted;
    }
    Ok(good)
}

/// Explores the models until one shows a defect. Returns the number of findings.
///
/// # Errors
/// As for [`run`].
pub fn violations(out: &mut dyn Write) -> io::Result<usize> {
    for model in models() {
        match print(out, &model, STATES_MAX / 10)?.findings.len() {
            0 => {}
            violations => return Ok(violations),
        }
    }
    Ok(0)
}

fn print(out: &mut dyn Write, model: &Model, states_max: usize) -> io::Result<Explored> {
    let explored = explore(model, states_max)
        .map_err(|error| io::Error::other(format!("{}: {error}", model.name)))?;
    let Explored { states, steps, ends, executions, depth, exhausted, findings } = &explored;
    writeln!(
        out,
        "{}: {states} states, {steps} steps, {ends} ends checked, {executions} executions of at \
         most {depth} steps, {}, {} violations\n  bounds: {}",
        model.name,
        if *exhausted { "exhausted" } else { "not exhausted" },
        findings.len(),
        model.bounds
    )?;
    for (finding, path) in findings {
        writeln!(out, "  {}: {}", finding.property, finding.facts)?;
        for step in path {
            writeln!(out, "    {step}")?;
        }
    }
    Ok(explored)
}

const X: Cell = cell(0, 1);
const Y: Cell = cell(0, 2);
const Z: Cell = cell(0, 3);
/// A cell in another table.
const FAR: Cell = cell(1, 1);

fn models() -> Vec<Model> {
    vec![
        two_writers(),
        writers_and_reader(),
        three_cells(),
        two_observers(),
        two_workers(),
        dying_writer(),
        observer_apart(),
        workers_apart(),
    ]
}

fn transaction(steps: &[Step]) -> Program {
    Program::Transactions(vec![steps.to_vec()])
}

fn base(name: &'static str, bounds: &'static str, cells: &[Cell], programs: Vec<Program>) -> Model {
    Model {
        name,
        bounds,
        cells: cells.to_vec(),
        programs,
        copies: 0,
        mortal: Vec::new(),
        suspected: Vec::new(),
        worker_requests: 0,
        apart: false,
        tamper: |request| request,
    }
}

fn two_writers() -> Model {
    let write = [Step::Write(X), Step::Write(Y)];
    let programs = vec![transaction(&write), transaction(&write)];
    let bounds = "two transactions write both of two cells; one message arrives twice";
    Model { copies: 1, ..base("two writers", bounds, &[X, Y], programs) }
}

fn writers_and_reader() -> Model {
    let write = [Step::Write(X), Step::Write(Y)];
    let read = [Step::Read(Y), Step::Read(X)];
    let other = [Step::Write(Y)];
    let programs = vec![transaction(&write), transaction(&other), transaction(&read)];
    let bounds = "one transaction writes two cells, another one of them, one reads both; every \
                  message arrives once";
    base("writers and reader", bounds, &[X, Y], programs)
}

fn three_cells() -> Model {
    let write = [Step::Write(X), Step::Write(Y), Step::Write(Z)];
    let read = [Step::Read(Z), Step::Read(Y), Step::Read(X)];
    let programs = vec![transaction(&write), transaction(&read)];
    let bounds = "one transaction writes three cells, one reads them; one message arrives twice; the \
                  writer may be taken for dead at any point";
    Model { copies: 1, suspected: vec![0], ..base("three cells", bounds, &[X, Y, Z], programs) }
}

fn two_observers() -> Model {
    let programs = vec![transaction(&[Step::Write(X)]), Program::Worker(2)];
    let bounds = "one transaction writes one cell; one worker runs the two observers of its column, \
                  in forty requests";
    Model { worker_requests: 40, ..base("two observers", bounds, &[X], programs) }
}

fn two_workers() -> Model {
    let programs = vec![transaction(&[Step::Write(X)]), Program::Worker(1), Program::Worker(1)];
    let bounds = "one transaction writes a cell; two workers run the observer of its column, with \
                  nine requests each";
    Model { worker_requests: 9, ..base("two workers", bounds, &[X], programs) }
}

fn observer_apart() -> Model {
    let programs = vec![transaction(&[Step::Write(X), Step::Write(FAR)]), Program::Worker(1)];
    let bounds = "one transaction writes two cells, its client dies at any point, or is taken for dead \
                  and lives; one worker runs the observer of the second, whose notifications lie in a \
                  table of their own, in twenty requests; one message arrives twice";
    Model {
        worker_requests: 20,
        apart: true,
        copies: 1,
        mortal: vec![0],
        suspected: vec![0],
        ..base("observer apart", bounds, &[FAR, X], programs)
    }
}

fn workers_apart() -> Model {
    let model = two_workers();
    let bounds = "one transaction writes a cell; two workers run the observer of its column, whose \
                  notifications lie in a table of their own, with eleven requests each";
    Model { name: "two workers apart", bounds, worker_requests: 11, apart: true, ..model }
}

fn dying_writer() -> Model {
    let write = [Step::Write(X), Step::Write(Y)];
    let read = [Step::Read(Y), Step::Read(X)];
    let programs = vec![transaction(&write), transaction(&read)];
    let bounds = "a transaction writes two cells, its client dies at any point, or is taken for dead \
                  and lives; what it has sent arrives at any time or never; one reads the cells; one \
                  message arrives twice";
    Model {
        copies: 1,
        mortal: vec![0],
        suspected: vec![0],
        ..base("dying writer", bounds, &[X, Y], programs)
    }
}
