//! Holds the puts of a draft, ordered by space and key. A draft numbers its spaces. Up to 16
//! puts lie in one sorted array, and the first of them in place. More lie in a tree for each space.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use fjall::Slice;
use smallvec::SmallVec;

/// Puts that lie in place: a row of two cells, of which one is observed, has five.
const IN_PLACE: usize = 6;
/// From this number on, trees are cheaper than moving the later entries on each insert.
const FEW_MAX: usize = 16;

/// The value to put under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// `None` removes the key.
    pub(super) value: Option<Slice>,
    /// The state of the key before the request.
    pub(super) before: Before,
}

/// The state of a key before the request, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Unknown,
    Absent,
    /// The key has a value. In an in-memory group, the map holds it.
    There,
    /// The key has a value in the keyspace, which the map of the in-memory group does not hold.
    Spilled,
}

#[derive(Debug)]
pub(super) struct Put {
    space: usize,
    key: Slice,
    written: Written,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be the allocation that this spares")]
pub(super) enum Ordered {
    /// Sorted by space and key.
    Few(SmallVec<[Put; IN_PLACE]>),
    /// A tree for each space.
    Many(Vec<BTreeMap<Slice, Written>>),
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered::Few(SmallVec::new())
    }
}

/// Iterates over some of the puts of a space, in order.
#[derive(Debug)]
pub(super) enum Iter<'p> {
    Few(std::slice::Iter<'p, Put>),
    Many(Option<btree_map::Range<'p, Slice, Written>>),
}

impl<'p> Iterator for Iter<'p> {
    type Item = (&'p Slice, &'p Option<Slice>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(puts) => puts.next().map(|put| (&put.key, &put.written.value)),
            Iter::Many(puts) => {
                let (key, written) = puts.as_mut()?.next()?;
                Some((key, &written.value))
            }
        }
    }
}

impl Ordered {
    pub(super) fn get(&self, space: usize, key: &[u8]) -> Option<&Option<Slice>> {
        match self {
            Ordered::Few(puts) => place(puts, space, key).ok().map(|at| &puts[at].written.value),
            Ordered::Many(trees) => trees.get(space)?.get(key).map(|written| &written.value),
        }
    }

    /// Puts a value under a key. `before` is the state of the key before the request. If the
    /// request has put something under the key already, the state known then stays.
    pub(super) fn insert(
        &mut self,
        space: usize,
        key: Slice,
        value: Option<Slice>,
        before: Before,
    ) {
        if let Ordered::Few(puts) = self {
            match place(puts, space, &key) {
                Ok(at) => return puts[at].written.value = value,
                Err(at) if puts.len() < FEW_MAX => {
                    let written = Written { value, before };
                    return puts.insert(at, Put { space, key, written });
                }
                Err(_) => {
                    let mut trees = Vec::new();
                    for Put { space, key, written } in std::mem::take(puts) {
                        tree_of(&mut trees, space).insert(key, written);
                    }
                    *self = Ordered::Many(trees);
                }
            }
        }
        let Ordered::Many(trees) = self else { return };
        match tree_of(trees, space).entry(key) {
            btree_map::Entry::Occupied(mut known) => known.get_mut().value = value,
            btree_map::Entry::Vacant(free) => drop(free.insert(Written { value, before })),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Ordered::Few(puts) => puts.len(),
            Ordered::Many(trees) => trees.iter().map(BTreeMap::len).sum(),
        }
    }

    /// The puts of a space from `from` to `to`, both included. `from` is not above `to`.
    pub(super) fn range(&self, space: usize, from: &[u8], to: &[u8]) -> Iter<'_> {
        match self {
            Ordered::Few(puts) => {
                let from = puts.partition_point(|put| (put.space, &*put.key) < (space, from));
                let to = puts.partition_point(|put| (put.space, &*put.key) <= (space, to));
                Iter::Few(puts[from..to].iter())
            }
            Ordered::Many(trees) => {
                let bounds = (Bound::Included(from), Bound::Included(to));
                Iter::Many(trees.get(space).map(|tree| tree.range::<[u8], _>(bounds)))
            }
        }
    }

    /// Makes the puts of a space from `from` to `to` remove their keys.
    pub(super) fn remove_range(&mut self, space: usize, from: &[u8], to: &[u8]) {
        match self {
            Ordered::Few(puts) => {
                let first = puts.partition_point(|put| (put.space, &*put.key) < (space, from));
                let within = |put: &&mut Put| (put.space, &*put.key) <= (space, to);
                puts[first..]
                    .iter_mut()
                    .take_while(within)
                    .for_each(|put| put.written.value = None);
            }
            Ordered::Many(trees) => {
                let bounds = (Bound::Included(from), Bound::Included(to));
                let tree = trees.get_mut(space);
                let range = tree.into_iter().flat_map(|tree| tree.range_mut::<[u8], _>(bounds));
                range.for_each(|(_, written)| written.value = None);
            }
        }
    }

    /// Passes the puts to `each`, in order, until it fails.
    pub(super) fn try_for_each<E>(
        &mut self,
        mut each: impl FnMut(usize, &Slice, &mut Written) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Ordered::Few(puts) => puts
                .iter_mut()
                .try_for_each(|Put { space, key, written }| each(*space, key, written)),
            Ordered::Many(trees) => trees.iter_mut().enumerate().try_for_each(|(space, tree)| {
                tree.iter_mut().try_for_each(|(key, written)| each(space, key, written))
            }),
        }
    }

    /// Passes the puts to `taker`, in order.
    pub(super) fn take(self, mut taker: impl FnMut(usize, Slice, Written)) {
        match self {
            Ordered::Few(puts) => {
                puts.into_iter().for_each(|Put { space, key, written }| taker(space, key, written));
            }
            Ordered::Many(trees) => {
                for (space, tree) in trees.into_iter().enumerate() {
                    tree.into_iter().for_each(|(key, written)| taker(space, key, written));
                }
            }
        }
    }
}

fn tree_of(
    trees: &mut Vec<BTreeMap<Slice, Written>>,
    space: usize,
) -> &mut BTreeMap<Slice, Written> {
    if trees.len() <= space {
        trees.resize_with(space + 1, BTreeMap::new);
    }
    &mut trees[space]
}

/// The position of a key, or the position where it would be inserted.
fn place(puts: &[Put], space: usize, key: &[u8]) -> Result<usize, usize> {
    puts.binary_search_by(|put| put.space.cmp(&space).then_with(|| (*put.key).cmp(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_what_a_tree_is() {
        for puts in [0, 1, 2, 5, IN_PLACE, FEW_MAX, 3 * FEW_MAX] {
            let (mut ordered, mut tree) = (Ordered::default(), BTreeMap::new());
            for n in 0..puts as u8 {
                let (space, key) = (usize::from(n % 3), (usize::from(n) * 23 % 41 % 40) as u8);
                let key = Slice::from([key]);
                let value = (n % 4 > 0).then(|| Slice::from([n]));
                let before = if n % 2 > 0 { Before::There } else { Before::Unknown };
                let first = tree.get(&(space, key.clone())).map(|known: &Written| known.before);
                let written = Written { value: value.clone(), before: first.unwrap_or(before) };
                tree.insert((space, key.clone()), written);
                ordered.insert(space, key, value, before);
            }
            assert_eq!(matches!(ordered, Ordered::Many(_)), tree.len() > FEW_MAX);
            assert_eq!(ordered.len(), tree.len());
            for space in 0..4 {
                for key in 0..41_u8 {
                    let known = tree.get(&(space, Slice::from([key]))).map(|known| &known.value);
                    assert_eq!(ordered.get(space, &[key]), known);
                    for to in key..41 {
                        let bounds = (space, Slice::from([key]))..=(space, Slice::from([to]));
                        let expected = tree.range(bounds).map(|((_, key), w)| (key, &w.value));
                        assert!(ordered.range(space, &[key], &[to]).eq(expected));
                    }
                }
            }
            ordered.remove_range(1, &[7], &[30]);
            let removed = tree.range_mut((1, Slice::from([7]))..=(1, Slice::from([30])));
            removed.for_each(|(_, written)| written.value = None);
            let mut seen = Vec::new();
            let each = |space, key: &Slice, written: &mut Written| {
                seen.push(((space, key.clone()), written.clone()));
                Ok::<(), ()>(())
            };
            ordered.try_for_each(each).unwrap();
            let mut taken = Vec::new();
            ordered.take(|space, key, written| taken.push(((space, key), written)));
            assert_eq!(seen, taken);
            assert!(taken.into_iter().eq(tree));
        }
    }
}
