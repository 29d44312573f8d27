//! Plays every crash and every late message of a transaction of three cells, alone and in pairs.
//!
//! A client, the victim, runs the transaction. A second client, the recoverer, is the first to
//! meet what the victim leaves. Each of their requests to store and oracle suffers every fate that
//! a request of its kind can have. Each pair of requests suffers every pair of fates. Afterwards
//! these steps follow:
//!
//! * another client recovers,
//! * late messages arrive, and stalled clients go on,
//! * the store is audited.
//!
//! The audit demands that the cells agree and that clients received true outcomes. No lock is
//! left, no tomb stands beside a record, and the observed cell is notified.

mod case;
pub(crate) mod recover;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

use std::io::{self, Write};

use case::{Case, Placement, Report};
use recover::Recoverer;
use wire::{Fault, Tamper};

/// Counts of cases, by their result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    cases: usize,
    committed: usize,
    rolled_back: usize,
    /// Cases whose victim's client did not learn the outcome.
    untold: usize,
    inconsistent: usize,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        self.cases += 1;
        match report.committed {
            Some(_) => self.committed += 1,
            None => self.rolled_back += 1,
        }
        self.untold += usize::from(!report.told);
        self.inconsistent += usize::from(!report.findings.is_empty());
    }

    fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.untold += other.untold;
        self.inconsistent += other.inconsistent;
    }
}

/// Runs all cases and prints a summary. Returns how many cases ended inconsistently.
///
/// # Errors
/// Returns the errors of `out`, and an error for a case that cannot be played to its end.
pub fn run(out: &mut dyn Write) -> io::Result<usize> {
    run_some(out, Scope { tamper: |request| request, every: 1, inconsistent_max: usize::MAX })
}

/// Runs cases until one ends inconsistently. Returns 1 if one did, else 0.
///
/// # Errors
/// As for [`run`].
pub fn first(out: &mut dyn Write) -> io::Result<usize> {
    run_some(out, Scope { tamper: |request| request, every: 1, inconsistent_max: 1 })
}

/// Selects the cases to run, and how the wire tampers with their requests.
#[derive(Debug, Clone, Copy)]
struct Scope {
    tamper: Tamper,
    /// Of the pairs, only each `every`th is played.
    every: usize,
    /// The run ends as soon as this many cases were inconsistent.
    inconsistent_max: usize,
}

fn run_some(out: &mut dyn Write, scope: Scope) -> io::Result<usize> {
    let mut sum = Tally::default();
    for placement in Placement::ALL {
        for recoverer in Recoverer::ALL {
            let case = Case { placement, recoverer, faults: Vec::new(), tamper: scope.tamper };
            let plain = play(&case)?;
            let (requests, of_victim) = (plain.requests.len(), plain.of_victim);
            writeln!(
                out,
                "{placement:?}, {recoverer:?}: {of_victim} requests of the transaction, {} of the \
                 recoverer without faults",
                requests - of_victim
            )?;
            let (mut alone, mut pairs) = (Tally::default(), Tally::default());
            for first in faults_after(None, &plain) {
                let single = Case { faults: vec![first], ..case.clone() };
                let report = play(&single)?;
                alone.count(&report);
                explain(out, &single, &report)?;
                pairs.add(second_faults(&single, &report, scope.every, out)?);
                if sum.inconsistent + alone.inconsistent + pairs.inconsistent
                    >= scope.inconsistent_max
                {
                    return Ok(scope.inconsistent_max);
                }
            }
            for (what, tally) in [("single faults", alone), ("pairs", pairs)] {
                print(out, what, tally)?;
                sum.add(tally);
            }
        }
    }
    print(out, "all", sum)?;
    Ok(sum.inconsistent)
}

/// Plays, after a single fault, every fate of every request that then follows.
fn second_faults(
    single: &Case,
    alone: &Report,
    every: usize,
    out: &mut dyn Write,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let first = single.faults[0];
    for second in faults_after(Some(first), alone).into_iter().step_by(every) {
        let pair = Case { faults: vec![first, second], ..single.clone() };
        let report = play(&pair)?;
        tally.count(&report);
        explain(out, &pair, &report)?;
    }
    Ok(tally)
}

/// Returns the faults of all requests that a case made after the given fault.
fn faults_after(fault: Option<Fault>, report: &Report) -> Vec<Fault> {
    let next = fault.map_or(0, |(number, _)| number + 1);
    let requests = report.requests.iter().enumerate().skip(next);
    requests
        .flat_map(|(number, kind)| kind.fates().iter().map(move |fate| (number, *fate)))
        .collect()
}

fn play(case: &Case) -> io::Result<Report> {
    case.run().map_err(|error| io::Error::other(format!("{case:?}: {error}")))
}

fn explain(out: &mut dyn Write, case: &Case, report: &Report) -> io::Result<()> {
    let Case { placement, recoverer, faults, .. } = case;
    for finding in &report.findings {
        let (property, facts) = (finding.property, &finding.facts);
        writeln!(out, "{placement:?}, {recoverer:?}, faults {faults:?}: {property}: {facts}")?;
    }
    Ok(())
}

fn print(out: &mut dyn Write, what: &str, tally: Tally) -> io::Result<()> {
    let Tally { cases, committed, rolled_back, untold, inconsistent } = tally;
    writeln!(
        out,
        "  {what}: {cases} cases, {committed} committed, {rolled_back} rolled back; unknown to their \
         client {untold}, inconsistent {inconsistent}"
    )
}
