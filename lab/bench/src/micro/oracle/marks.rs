//! Counts timestamps that came twice or went back.

/// The timestamps so far.
#[derive(Debug, Default)]
pub(super) struct Marks {
    highest: u64,
    count: u64,
    wrong: u64,
}

impl Marks {
    /// Adds the timestamps of one turn: each caller's, in the order in which it got them. All
    /// must lie above those of earlier turns, so that none of those can come again.
    pub(super) fn add(&mut self, callers: &[Vec<u64>]) {
        for timestamps in callers {
            let before = std::iter::once(&self.highest).chain(timestamps);
            self.wrong += before.zip(timestamps).filter(|(last, next)| next <= last).count() as u64;
        }
        let mut all = callers.concat();
        all.sort_unstable();
        self.wrong += all.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        self.count += all.len() as u64;
        self.highest = self.highest.max(all.last().copied().unwrap_or_default());
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn wrong(&self) -> u64 {
        self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_or_goes_back_is_noticed() {
        let wrong = |turns: &[&[&[u64]]]| {
            let mut marks = Marks::default();
            for turn in turns {
                let callers: Vec<Vec<u64>> = turn.iter().map(|caller| caller.to_vec()).collect();
                marks.add(&callers);
            }
            marks.wrong()
        };
        assert_eq!(wrong(&[&[&[1, 4, 70_000], &[2, 3]], &[&[70_001]]]), 0);
        assert_eq!(wrong(&[&[&[1, 3], &[2, 3]]]), 1, "twice");
        assert_eq!(wrong(&[&[&[2, 1]]]), 1, "backwards for one caller");
        assert_eq!(wrong(&[&[&[1, 9]], &[&[8]]]), 1, "below what was there before");
    }
}
