//! Chooses which of the ready tasks runs next.
//!
//! Most seeds draw one ready task each time. Such a schedule seldom delays one task for long while
//! others make progress, and some mistakes show only then. So other seeds use *probabilistic
//! concurrency testing* (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010):
//!
//! * Every task draws a priority when it is spawned, and the ready task with the highest one runs.
//! * At a few moments, drawn beforehand, the task that would run next falls behind all others.
//!
//! A mistake that needs `d` tasks in a certain order needs no more than `d - 1` such moments.
//!
//! Time stands still while any task is ready. So a low priority delays a task only within one
//! moment of virtual time, and starves none.

use crate::random::Rng;

/// How a seed schedules its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Any ready task, drawn each time.
    Any,
    /// By priority, with this many changes within the first `steps` choices.
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

/// The scheduler of one run.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// `None` if any task may run.
    priorities: Option<Priorities>,
}

#[derive(Debug, Default)]
struct Priorities {
    /// The priority of each task, by the task's slot.
    of: Vec<u64>,
    /// The numbers of the choices at which a task falls behind, the last one first.
    changes: Vec<u64>,
    choices: u64,
}

/// Every drawn priority is at least this; tasks that have fallen behind are below it.
const FALLEN_MAX: u64 = 1 << 10;

impl Schedule {
    pub(crate) fn new(policy: Policy, rng: &mut Rng) -> Self {
        let Policy::Priorities { changes, steps } = policy else { return Schedule::default() };
        let mut changes: Vec<u64> =
            (0..changes.min(FALLEN_MAX)).map(|_| rng.between(1, steps)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Schedule { priorities: Some(Priorities { changes, ..Priorities::default() }) }
    }

    /// Gives a new task its priority. An earlier task may have used the same slot.
    pub(crate) fn spawned(&mut self, task: usize, rng: &mut Rng) {
        if let Some(Priorities { of, .. }) = &mut self.priorities {
            of.resize(of.len().max(task + 1), u64::MAX);
            of[task] = FALLEN_MAX + (rng.next() >> 1);
        }
    }

    /// Returns the position in `ready`, which is not empty, of the task that runs next.
    pub(crate) fn choose(&mut self, ready: &[usize], rng: &mut Rng) -> usize {
        let Some(Priorities { of, changes, choices }) = &mut self.priorities else {
            return rng.below(ready.len() as u64) as usize;
        };
        // Tasks spawned before the seed's policy was set have the highest priority.
        let priority = |of: &Vec<u64>, task: usize| of.get(task).copied().unwrap_or(u64::MAX);
        let highest = |of: &Vec<u64>| {
            let places = 0..ready.len();
            places.max_by_key(|place| (priority(of, ready[*place]), ready[*place])).unwrap_or(0)
        };
        *choices += 1;
        while changes.pop_if(|at| *at <= *choices).is_some() {
            let task = ready[highest(of)];
            of.resize(of.len().max(task + 1), u64::MAX);
            // A later fall leads to a lower priority.
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
        // The change comes with the first choice: the task that would have run falls behind
        // both others.
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
