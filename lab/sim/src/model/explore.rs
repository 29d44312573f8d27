//! Explores every order of all events in a model, depth first.
//!
//! An execution cannot be taken back, so each new branch plays its choices again from the
//! start. Two techniques keep the search small, and lose no state:
//!
//! * A state that was reached before is not explored again.
//! * Of two neighbouring choices that touch no common object, only one order is explored. This
//!   is the method of sleep sets. A visit of a state leaves out choices that another order
//!   covers. For each state, the search keeps the choices that every visit so far has left out,
//!   because a later visit may have to explore them.

use std::collections::HashMap;

use percolator_core::Result;

use super::world::{Choice, Footprint, Model, World};
use crate::history::Finding;

/// The result of an exploration.
#[derive(Debug, Default)]
pub(super) struct Explored {
    /// Different states.
    pub(super) states: usize,
    /// Choices taken: edges between states.
    pub(super) steps: usize,
    /// Different ends that were checked.
    pub(super) ends: usize,
    /// Executions that were started.
    pub(super) executions: usize,
    /// The longest execution, in choices.
    pub(super) depth: usize,
    /// Whether everything within the bounds was explored.
    pub(super) exhausted: bool,
    /// The defects, each with the choices that lead there.
    pub(super) findings: Vec<(Finding, Vec<String>)>,
}

/// A state on the current path, with the choices that are still to be tried from it.
struct Frame {
    left: Vec<(Choice, Footprint)>,
    /// Choices that need not be tried here, because another order with the same effect was or
    /// will be explored.
    asleep: Vec<Footprint>,
    /// The choice that continues the current path.
    taken: Option<Choice>,
}

/// Explores a model until something is wrong, and at most `states_max` states.
pub(super) fn explore(model: &Model, states_max: usize) -> Result<Explored> {
    let mut search = Search {
        model,
        world: World::new(model)?,
        // The depth at which the world stands, in choices; `None` after a check has used the
        // world up.
        at: Some(0),
        frames: Vec::new(),
        visited: HashMap::new(),
        explored: Explored { executions: 1, ..Explored::default() },
    };
    search.visit(Vec::new())?;
    while let Some(frame) = search.frames.last_mut() {
        let Some((choice, footprint)) = frame.left.pop() else {
            search.frames.pop();
            continue;
        };
        if search.visited.len() >= states_max || !search.explored.findings.is_empty() {
            return Ok(search.explored);
        }
        let independent = |other: &&Footprint| other.is_independent(&footprint);
        let asleep = frame.asleep.iter().filter(independent).cloned().collect();
        frame.asleep.push(footprint);
        frame.taken = Some(choice.clone());
        search.step(&choice)?;
        search.visit(asleep)?;
    }
    search.explored.exhausted = search.explored.findings.is_empty();
    Ok(search.explored)
}

struct Search<'a> {
    model: &'a Model,
    world: World,
    at: Option<usize>,
    frames: Vec<Frame>,
    /// For each visited state, the choices that all its visits so far left out.
    visited: HashMap<u64, Vec<u64>>,
    explored: Explored,
}

impl Search<'_> {
    /// Takes a choice from the state of the last frame.
    fn step(&mut self, choice: &Choice) -> Result<()> {
        let depth = self.frames.len() - 1;
        if self.at != Some(depth) {
            self.explored.executions += 1;
            self.world = World::new(self.model)?;
            for frame in &self.frames[..depth] {
                let taken = frame.taken.as_ref().expect("a frame below another has led to it");
                self.world.apply(taken)?;
            }
        }
        self.world.apply(choice)?;
        self.at = Some(depth + 1);
        self.explored.steps += 1;
        self.explored.depth = self.explored.depth.max(depth + 1);
        Ok(())
    }

    /// Visits the state at which the world stands.
    fn visit(&mut self, asleep: Vec<Footprint>) -> Result<()> {
        let keys = |asleep: &[Footprint]| {
            let mut keys: Vec<u64> = asleep.iter().map(|footprint| footprint.key).collect();
            keys.sort_unstable();
            keys
        };
        let mut left = self.world.choices();
        match self.visited.get_mut(&self.world.fingerprint()) {
            None => {
                let stuck = left.is_empty() && !self.world.is_finished();
                self.visited.insert(self.world.fingerprint(), keys(&asleep));
                self.explored.states = self.visited.len();
                left.retain(|(_, footprint)| !asleep.iter().any(|a| a.key == footprint.key));
                if self.world.is_quiet() && (self.world.is_finished() || stuck) {
                    self.end(stuck)?;
                }
            }
            // Earlier visits explored all choices but those in `left_out`. Of these, this
            // visit tries the ones that are not asleep now.
            Some(left_out) => {
                let now = keys(&asleep);
                left.retain(|(_, footprint)| {
                    left_out.binary_search(&footprint.key).is_ok()
                        && now.binary_search(&footprint.key).is_err()
                });
                left_out.retain(|key| now.binary_search(key).is_ok());
            }
        }
        self.frames.push(Frame { left, asleep, taken: None });
        Ok(())
    }

    /// Checks an end state; the world cannot be used afterwards.
    fn end(&mut self, stuck: bool) -> Result<()> {
        self.explored.ends += 1;
        let mut findings = self.world.check()?;
        self.at = None;
        if stuck {
            let facts = "a transaction waits, and nothing can happen any more".to_owned();
            findings.push(Finding { property: "progress", facts });
        }
        let path = || self.frames.iter().filter_map(|frame| frame.taken.as_ref());
        for finding in findings {
            let path = path().map(|choice| format!("{choice:?}")).collect();
            self.explored.findings.push((finding, path));
        }
        Ok(())
    }
}
