//! Exploring every order of everything that can happen in a model.
//!
//! Depth first. There is no going back in an execution, so that each new branch plays its choices
//! again from the start. Two means keep it small, and lose no state: a state that was met before is
//! not explored twice, and of two neighbouring choices that do not touch each other only one order
//! is (sleep sets, with what the state's first visit left out remembered beside it).

use std::collections::HashMap;

use percolator_core::Result;

use super::world::{Choice, Footprint, Model, World};
use crate::history::Finding;

/// What an exploration came to.
#[derive(Debug, Default)]
pub(super) struct Explored {
    /// Different states.
    pub(super) states: usize,
    /// Choices taken: edges between states.
    pub(super) steps: usize,
    /// Different ends that were checked.
    pub(super) ends: usize,
    /// Executions that were begun.
    pub(super) executions: usize,
    /// The longest execution, in choices.
    pub(super) depth: usize,
    /// Whether everything within the bounds was explored.
    pub(super) exhausted: bool,
    /// What is wrong, each with the choices that lead there.
    pub(super) findings: Vec<(Finding, Vec<String>)>,
}

/// A state on the current path, with what is still to be tried from it.
struct Frame {
    left: Vec<(Choice, Footprint)>,
    /// Choices that need not be tried here: another order of the same was or will be explored.
    asleep: Vec<Footprint>,
    /// The choice that leads on along the current path.
    taken: Option<Choice>,
}

/// Explores a model; at most this many states, and until something is wrong.
pub(super) fn explore(model: &Model, states_max: usize) -> Result<Explored> {
    let mut search = Search {
        model,
        world: World::new(model)?,
        // Where the world stands, in choices; `None` when it was used up.
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
    /// What was left out at each state that was visited.
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

    /// Looks at the state where the world stands.
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
            // What the first visit left out and this one must not: the rest was explored.
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

    /// Checks an end; the world cannot be used any more afterwards.
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
