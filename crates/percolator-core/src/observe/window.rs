//! The window of a lane: the most runs of a column that are at work at a time, those that commit
//! included.
//!
//! Where commits share their syncs, observers run while the commits of others wait. Runs that wait
//! together do not see one another's changes. So they conflict if they change the same cells, and
//! all but one have run in vain. Many conflicts halve the window, and few widen it.

/// The widest window, for each observer that may run at a time.
pub(super) const WINDOW_MAX: usize = 16;
/// A window becomes narrower once as many runs have met a conflict as this part of it: one in this
/// many.
const NARROWS: usize = 4;
/// A window becomes wider if less than this part of the runs since the last change have met a
/// conflict: one in this many.
const WIDENS: usize = 8;

#[derive(Debug)]
pub(super) struct Window {
    least: usize,
    most: usize,
    now: usize,
    /// How many runs have committed or met a conflict since the window was set, and how many of
    /// these have met one.
    ended: usize,
    conflicts: usize,
}

impl Window {
    pub(super) fn new(least: usize, most: usize) -> Self {
        Window { least, most, now: most, ended: 0, conflicts: 0 }
    }

    /// The most runs at a time.
    pub(super) fn width(&self) -> usize {
        self.now
    }

    pub(super) fn committed(&mut self) {
        self.ended += 1;
        if self.ended >= self.now {
            if self.conflicts * WIDENS < self.ended {
                self.set(self.now + self.least);
            }
            (self.ended, self.conflicts) = (0, 0);
        }
    }

    pub(super) fn met_conflict(&mut self) {
        self.ended += 1;
        self.conflicts += 1;
        if self.conflicts * NARROWS >= self.now {
            self.set(self.now / 2);
        }
    }

    fn set(&mut self, width: usize) {
        self.now = width.clamp(self.least, self.most);
        (self.ended, self.conflicts) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_conflicts_halve_the_window_and_few_widen_it() {
        let mut window = Window::new(2, 16);
        for narrower in [8, 4, 2, 2] {
            for _ in 1..window.width().div_ceil(NARROWS) {
                let before = window.width();
                window.met_conflict();
                assert_eq!(window.width(), before);
            }
            window.met_conflict();
            assert_eq!(window.width(), narrower);
        }
        for wider in [4, 6, 8, 10, 12, 14, 16, 16] {
            (0..window.width()).for_each(|_| window.committed());
            assert_eq!(window.width(), wider);
        }
        // One conflict among sixteen runs changes nothing.
        for _ in 0..100 {
            window.met_conflict();
            (0..15).for_each(|_| window.committed());
            assert_eq!(window.width(), 16);
        }
    }
}
