//! Which of the tasks that are ready runs next.
//!
//! Most seeds draw one of them each time. That seldom keeps a task waiting for long while others do
//! much, which some mistakes need. So other seeds use *probabilistic concurrency testing*
//! (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010): every task has a priority that
//! was drawn when it was spawned, the highest of those that are ready runs, and at a few moments
//! drawn beforehand the task whose turn it is falls behind all others. A mistake that takes `d`
//! tasks to be ordered in one way needs no more than `d - 1` such moments.
//!
//! Time stands still while anything is ready, so that a low priority delays a task within a moment
//! and starves none.

use crate::random::Rng;

/// How a seed schedules its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Any task, each time.
    Any,
    /// By priority, with so many changes within the first `steps` choices.
    Priorities { changes: u64, steps: u64 },
}

impl Policy {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.below(3) {
            0 => Policy::Priorities { changes: rng.between(0, 8), steps: rng.between(500, 20_000) },
            _ => Policy::Any,
        }
    }
}

/// The choices of one run.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// `None`: any task.
    priorities: Option<Priorities>,
}

#[derive(Debug, Default)]
struct Priorities {
    /// By the tasks' places.
    of: Vec<u64>,
    /// The choices at which a task falls behind, the last one first.
    changes: Vec<u64>,
    choices: u64,
}

/// Every drawn priority is above those of tasks that have fallen behind.
const FALLEN_MAX: u64 = 1 << 10;

impl Schedule {
    pub(crate) fn new(policy: Policy, rng: &mut Rng) -> Self {
        let Policy::Priorities { changes, steps } = policy else { return Schedule::default() };
        let mut changes: Vec<u64> =
            (0..changes.min(FALLEN_MAX)).map(|_| rng.between(1, steps)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Schedule { priorities: Some(Priorities { changes, ..Priorities::default() }) }
    }

    /// A task begins, in a place that another may have left.
    pub(crate) fn spawned(&mut self, task: usize, rng: &mut Rng) {
        if let Some(Priorities { of, .. }) = &mut self.priorities {
            of.resize(of.len().max(task + 1), u64::MAX);
            of[task] = FALLEN_MAX + (rng.next() >> 1);
        }
    }

    /// Where in `ready`, which is not empty, the task is whose turn it is.
    pub(crate) fn choose(&mut self, ready: &[usize], rng: &mut Rng) -> usize {
        let Some(Priorities { of, changes, choices }) = &mut self.priorities else {
            return rng.below(ready.len() as u64) as usize;
        };
        // Tasks that were there before the seed's policy was known come first.
        let priority = |of: &Vec<u64>, task: usize| of.get(task).copied().unwrap_or(u64::MAX);
        let highest = |of: &Vec<u64>| {
            let places = 0..ready.len();
            places.max_by_key(|place| (priority(of, ready[*place]), ready[*place])).unwrap_or(0)
        };
        *choices += 1;
        while changes.pop_if(|at| *at <= *choices).is_some() {
            let task = ready[highest(of)];
            of.resize(of.len().max(task + 1), u64::MAX);
            // Who falls later falls lower.
            of[task] = changes.len() as u64;
        }
        highest(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_priority_runs_until_a_change_puts_it_last() {
        let mut rng = Rng::new(1);
        let mut schedule = Schedule::new(Policy::Priorities { changes: 1, steps: 1 }, &mut rng);
        (0..3).for_each(|task| schedule.spawned(task, &mut rng));
        let ready = [2, 0, 1];
        // The change comes with the first choice: whoever would have run is behind both others now.
        let second = ready[schedule.choose(&ready, &mut rng)];
        assert_eq!(ready[schedule.choose(&ready, &mut rng)], second);
        let others: Vec<_> = ready.into_iter().filter(|task| *task != second).collect();
        let third = others[schedule.choose(&others, &mut rng)];
        let first: Vec<_> = others.into_iter().filter(|task| *task != third).collect();
        assert_eq!(schedule.choose(&first, &mut rng), 0);
    }

    #[test]
    fn without_priorities_every_task_has_its_turn() {
        let mut rng = Rng::new(1);
        let mut schedule = Schedule::new(Policy::Any, &mut rng);
        let chosen: std::collections::BTreeSet<_> =
            (0..100).map(|_| schedule.choose(&[5, 6, 7], &mut rng)).collect();
        assert_eq!(chosen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
