//! Holds the puts of a draft in one space, ordered by key. A space is the keyspace of a group,
//! or that of its history. One or two puts lie in place, up to 16 in a sorted array, and more
//! in a tree.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use fjall::Slice;
use smallvec::SmallVec;

/// A key and the value to put under it, or `None` to remove the key.
type Put = (Slice, Option<Slice>);

const IN_PLACE: usize = 2;
/// From this number on, a tree is cheaper than moving the later entries on each insert.
const FEW_MAX: usize = 16;

#[derive(Debug)]
pub(super) enum Ordered {
    /// Sorted by key.
    Few(SmallVec<[Put; IN_PLACE]>),
    Many(BTreeMap<Slice, Option<Slice>>),
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered::Few(SmallVec::new())
    }
}

/// Iterates over some of the puts, in order.
#[derive(Debug)]
pub(super) enum Iter<'p> {
    Few(std::slice::Iter<'p, Put>),
    Many(btree_map::Range<'p, Slice, Option<Slice>>),
}

impl<'p> Iterator for Iter<'p> {
    type Item = (&'p Slice, &'p Option<Slice>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(puts) => puts.next().map(|(key, value)| (key, value)),
            Iter::Many(puts) => puts.next(),
        }
    }
}

impl Ordered {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Slice>> {
        match self {
            Ordered::Few(puts) => place(puts, key).ok().map(|at| &puts[at].1),
            Ordered::Many(puts) => puts.get(key),
        }
    }

    /// Puts a value under a key; returns whether something was put there before.
    pub(super) fn insert(&mut self, key: Slice, value: Option<Slice>) -> bool {
        match self {
            Ordered::Few(puts) => match place(puts, &key) {
                Ok(at) => {
                    puts[at].1 = value;
                    true
                }
                Err(at) if puts.len() < FEW_MAX => {
                    puts.insert(at, (key, value));
                    false
                }
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = std::mem::take(puts).into_iter().collect();
                    tree.insert(key, value);
                    *self = Ordered::Many(tree);
                    false
                }
            },
            Ordered::Many(puts) => puts.insert(key, value).is_some(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Ordered::Few(puts) => puts.len(),
            Ordered::Many(puts) => puts.len(),
        }
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        match self {
            Ordered::Few(puts) => Iter::Few(puts.iter()),
            Ordered::Many(puts) => Iter::Many(puts.range::<[u8], _>(..)),
        }
    }

    /// The puts from `from` to `to`, both included. `from` is not above `to`.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> Iter<'_> {
        match self {
            Ordered::Few(puts) => {
                let from = puts.partition_point(|(key, _)| **key < *from);
                let to = puts.partition_point(|(key, _)| **key <= *to);
                Iter::Few(puts[from..to].iter())
            }
            Ordered::Many(puts) => {
                let bounds = (Bound::Included(from), Bound::Included(to));
                Iter::Many(puts.range::<[u8], _>(bounds))
            }
        }
    }

    /// Passes the puts to `taker`, in order.
    pub(super) fn take(self, mut taker: impl FnMut(Slice, Option<Slice>)) {
        match self {
            Ordered::Few(puts) => puts.into_iter().for_each(|(key, value)| taker(key, value)),
            Ordered::Many(puts) => puts.into_iter().for_each(|(key, value)| taker(key, value)),
        }
    }
}

/// The position of a key, or the position where it would be inserted.
fn place(puts: &[Put], key: &[u8]) -> Result<usize, usize> {
    puts.binary_search_by(|(known, _)| (**known).cmp(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_what_a_tree_is() {
        for puts in [0, 1, 2, 5, FEW_MAX, 3 * FEW_MAX] {
            let (mut ordered, mut tree) = (Ordered::default(), BTreeMap::new());
            for n in 0..puts as u8 {
                let key = Slice::from([(usize::from(n) * 23 % 41 % 40) as u8]);
                let value = (n % 3 > 0).then(|| Slice::from([n]));
                let again = tree.insert(key.clone(), value.clone()).is_some();
                assert_eq!(ordered.insert(key, value), again);
            }
            assert_eq!(matches!(ordered, Ordered::Many(_)), tree.len() > FEW_MAX);
            assert!(ordered.iter().eq(tree.iter()));
            for key in 0..41_u8 {
                assert_eq!(ordered.get(&[key]), tree.get(&[key][..]));
                for to in key..41 {
                    let expected = tree.range::<[u8], _>((
                        Bound::Included(&[key][..]),
                        Bound::Included(&[to][..]),
                    ));
                    assert!(ordered.range(&[key], &[to]).eq(expected));
                }
            }
            assert_eq!(ordered.len(), tree.len());
            let mut taken = Vec::new();
            ordered.take(|key, value| taken.push((key, value)));
            assert!(taken.into_iter().eq(tree));
        }
    }
}
