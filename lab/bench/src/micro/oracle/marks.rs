//! Marks each timestamp that a caller got, to find repeated ones.

use std::collections::BTreeMap;

/// Timestamps in one page of marks.
const PAGE: u64 = 64 * 1024;

/// The marks of all timestamps so far.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pages: BTreeMap<u64, Vec<u64>>,
    highest: u64,
    count: u64,
    wrong: u64,
}

impl Marks {
    /// Marks the timestamps of one turn: each caller's, in the order in which it got them. All
    /// must lie above those of earlier turns.
    pub(super) fn add(&mut self, callers: &[Vec<u64>]) {
        let before = self.highest;
        for timestamps in callers {
            let mut last = before;
            for &timestamp in timestamps {
                let page = self.pages.entry(timestamp / PAGE);
                let page = page.or_insert_with(|| vec![0; (PAGE / 64) as usize]);
                let (word, bit) = ((timestamp % PAGE / 64) as usize, 1 << (timestamp % 64));
                let twice = page[word] & bit != 0;
                self.wrong += u64::from(twice || timestamp <= last);
                page[word] |= bit;
                last = timestamp;
                self.count += 1;
                self.highest = self.highest.max(timestamp);
            }
        }
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
