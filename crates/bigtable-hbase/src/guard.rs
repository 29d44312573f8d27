//! Changes one row, with or without a condition on its cells.
//!
//! HBase can compare one cell, or apply one filter, before it changes a row. It has no "none of
//! these" and no second branch. So each row has a **guard**, a cell with random bytes that
//! every mutation of the row replaces. A change takes one of three ways:
//!
//! * **plain**: it has no condition, and its effect is blind. One request sends the mutations
//!   and a new guard.
//! * **filtered**: it has only a "then", all probes are at one timestamp, and its effect is
//!   blind. One request uses a filter as the condition.
//! * **guarded**: all other changes. One request reads the cells that decide. A second sends
//!   the mutations, which apply only if the guard is unchanged.
//!
//! # After a lost answer
//!
//! The server may apply a request long after the client has given it up. So a copy of the request
//! that is sent again may be answered first. The caller then writes the row again, and the first
//! copy undoes that write. A late deletion deletes a newer cell, and a late cell replaces it.
//!
//! | way | sent again after a lost answer |
//! |---|---|
//! | plain, filtered | never: nothing keeps the first copy from being applied later |
//! | guarded | while the row has the guard of before: only one of the copies can find it |
//!
//! The row's guard shows whether the request was applied, because no two changes have the same
//! guard. If another client has changed the row since, the outcome is unknown.
//!
//! No copy is sent after the request's deadline, on which
//! [`request_life_max`](crate::HbaseAddress::request_life_max) depends.

use bigtable::{ConditionalMutation, Error, Mutation, Probe, Qualifiers, Result, TimeRange};
use bytes::Bytes;
use tokio::time::Instant;

use crate::encode::{self, Effect, GUARD_FAMILY, GUARD_QUALIFIER};
use crate::failure::Failure;
use crate::proto::{
    CompareFilter, ComparingFilter, Condition, EQUAL, Filter, MUST_PASS_ALL, MUST_PASS_ONE,
    MultiRequest, MultiResponse, RegionAction, RegionSpecifier,
};
use crate::table::{HbaseTable, Wanted};

/// Most attempts at a change, if other clients change the row in between.
const LOST_RACES_MAX: u32 = 16;
/// Most times that a guarded request is sent.
const SETTLED_MAX: u32 = 4;

/// The guard of a row; empty if the row has none.
pub(crate) type Guard = Bytes;

/// The fate of a request whose answer was lost.
enum Fate {
    Applied,
    /// Not applied so far: the guard is still the earlier one.
    Open,
    /// Another client has changed the row since, so the fate cannot be known.
    Unknowable,
}

impl HbaseTable {
    /// Changes a row without a condition.
    pub(crate) async fn change(
        &self,
        row: &Bytes,
        mutations: &[Mutation],
        until: Instant,
    ) -> Result<()> {
        let effect = Effect::of(mutations);
        if effect.is_empty() {
            return Ok(());
        }
        if !effect.is_blind() {
            return self.guarded(row, &[], [&Effect::default(), &effect], until).await.map(drop);
        }
        self.plain(row, &effect, until).await
    }

    /// Changes a row depending on its cells. Returns true if the predicate held.
    pub(crate) async fn decide(
        &self,
        request: &ConditionalMutation,
        until: Instant,
    ) -> Result<bool> {
        let row = request.row.to_bytes();
        let (then, otherwise) = (Effect::of(&request.then), Effect::of(&request.otherwise));
        if request.predicate.is_empty() {
            self.change(&row, &request.otherwise, until).await?;
            return Ok(false);
        }
        if otherwise.is_empty()
            && !then.is_empty()
            && then.is_blind()
            && let Some(at) = one_moment(&request.predicate)
        {
            return self.filtered(&row, (&request.predicate, at), &then, until).await;
        }
        self.guarded(&row, &request.predicate, [&then, &otherwise], until).await
    }

    async fn plain(&self, row: &Bytes, effect: &Effect, until: Instant) -> Result<()> {
        let own = fresh();
        match self.send(row, effect, &own, None, until).await {
            Ok(_) => Ok(()),
            Err(Failure::Lost(why)) => self.settle(row, &own, why).await,
            Err(failure) => Err(failure.of_mutation()),
        }
    }

    async fn filtered(
        &self,
        row: &Bytes,
        (probes, at): (&[Probe], TimeRange),
        then: &Effect,
        until: Instant,
    ) -> Result<bool> {
        let own = fresh();
        let condition = Condition {
            row: row.clone(),
            time_range: Some(encode_time(at)),
            filter: Some(any_of(probes)),
            ..Condition::default()
        };
        match self.send(row, then, &own, Some(condition), until).await {
            Ok(held) => Ok(held),
            // Only the guard of this request proves that the predicate held.
            Err(Failure::Lost(why)) => self.settle(row, &own, why).await.map(|()| true),
            Err(failure) => Err(failure.of_mutation()),
        }
    }

    /// Finds out whether a request that is never repeated was applied. `Unknown` if the row has
    /// another guard.
    async fn settle(&self, row: &Bytes, own: &[u8; 16], why: String) -> Result<()> {
        match self.guard(row).await {
            Ok(guard) if guard[..] == *own => Ok(()),
            _ => Err(Error::Unknown { why }),
        }
    }

    async fn guarded(
        &self,
        row: &Bytes,
        probes: &[Probe],
        [then, otherwise]: [&Effect; 2],
        until: Instant,
    ) -> Result<bool> {
        for _ in 0..LOST_RACES_MAX {
            let (cells, guard) = self.look(row, probes, [then, otherwise], until).await?;
            let held = probes.iter().any(|probe| cells.iter().any(|cell| finds(probe, cell)));
            let effect = if held { then } else { otherwise };
            if effect.is_empty() {
                return Ok(held);
            }
            let effect = if effect.is_blind() { effect.clone() } else { effect.exact(&cells) };
            if self.replace(row, &effect, &guard, until).await? {
                return Ok(held);
            }
        }
        let why =
            format!("other clients changed the row {LOST_RACES_MAX} times during the request");
        Err(Error::Unavailable { why })
    }

    /// Reads the cells that decide, as of one moment: the probed cells, those in deleted
    /// ranges, and the guard.
    async fn look(
        &self,
        row: &Bytes,
        probes: &[Probe],
        effects: [&Effect; 2],
        until: Instant,
    ) -> Result<(Vec<bigtable::Cell>, Guard)> {
        let mut wanted = Wanted::default();
        for Probe { family, qualifiers, time, .. } in probes {
            wanted.add(family, qualifiers, *time);
        }
        for effect in effects.into_iter().filter(|effect| !effect.is_blind()) {
            for (family, qualifier, ranges) in effect.deleted() {
                for time in ranges {
                    wanted.add(family, &Qualifiers::Is(qualifier.clone()), *time);
                }
            }
        }
        self.cells_and_guard(row, &wanted, until).await.map_err(Failure::of_read)
    }

    /// Reads the guard. This has a deadline of its own, because a lost answer often means that
    /// the request's time is over.
    async fn guard(&self, row: &Bytes) -> Result<Guard, Failure> {
        let until = self.client().deadline();
        let (_, guard) = self.cells_and_guard(row, &Wanted::default(), until).await?;
        Ok(guard)
    }

    /// Applies the effect if the guard is still `seen`. Returns true if it was.
    async fn replace(
        &self,
        row: &Bytes,
        effect: &Effect,
        seen: &Guard,
        until: Instant,
    ) -> Result<bool> {
        let own = fresh();
        let condition = has_guard(row, seen);
        let mut lost = None;
        for _ in 0..SETTLED_MAX {
            match self.send(row, effect, &own, Some(condition.clone()), until).await {
                Ok(true) => return Ok(true),
                Ok(false) if lost.is_none() => return Ok(false),
                Ok(false) => {}
                Err(Failure::Lost(why)) => lost = Some(why),
                Err(failure) if lost.is_none() => return Err(failure.of_mutation()),
                Err(_) => {}
            }
            match self.fate(row, &own, seen).await {
                Fate::Applied => return Ok(true),
                Fate::Open if Instant::now() < until => {}
                Fate::Open | Fate::Unknowable => break,
            }
        }
        Err(Error::Unknown { why: lost.unwrap_or_default() })
    }

    async fn fate(&self, row: &Bytes, own: &[u8; 16], before: &Guard) -> Fate {
        match self.guard(row).await {
            Ok(guard) if guard[..] == *own => Fate::Applied,
            Ok(guard) if guard == *before => Fate::Open,
            _ => Fate::Unknowable,
        }
    }

    /// Sends the effect with a new guard, under a condition. Returns true if the condition
    /// held.
    async fn send(
        &self,
        row: &Bytes,
        effect: &Effect,
        guard: &[u8; 16],
        condition: Option<Condition>,
        until: Instant,
    ) -> Result<bool, Failure> {
        let action = effect.actions(row, guard);
        let request = |region: &crate::regions::Region| MultiRequest {
            region_action: vec![RegionAction {
                region: RegionSpecifier::named(&region.name),
                atomic: Some(true),
                action: action.clone(),
                condition: condition.clone(),
            }],
        };
        let place = (self.id(), &row[..]);
        let (answer, _): (MultiResponse, _) =
            self.client().on_region(place, "Multi", request, false, until).await?;
        let Some(result) = answer.region_action_result.first() else {
            return Err(Failure::Lost("the server's answer has no result".to_owned()));
        };
        // Without a condition, the request always applies.
        if condition.is_none() {
            return Ok(true);
        }
        result.processed.ok_or_else(|| {
            Failure::Lost("the server's answer does not say whether the condition held".to_owned())
        })
    }
}

/// The condition that a row has this guard; that it has none, if the guard is empty.
pub(crate) fn has_guard(row: &Bytes, guard: &Guard) -> Condition {
    Condition {
        row: row.clone(),
        family: Some(Bytes::from_static(GUARD_FAMILY)),
        qualifier: Some(Bytes::from_static(GUARD_QUALIFIER)),
        compare_type: Some(EQUAL),
        // For a row without a guard, HBase compares with the empty value.
        comparator: Some(encode::binary_comparator(guard.clone())),
        ..Condition::default()
    }
}

/// Random bytes, which no other guard has.
fn fresh() -> [u8; 16] {
    rand::random()
}

fn finds(probe: &Probe, cell: &bigtable::Cell) -> bool {
    let named = match &probe.qualifiers {
        Qualifiers::All => true,
        Qualifiers::Is(qualifier) => *qualifier == cell.qualifier,
    };
    let prefix = probe.value_prefix.as_deref().unwrap_or_default();
    named
        && probe.family == cell.family
        && probe.time.contains(cell.timestamp)
        && cell.value.starts_with(prefix)
}

/// The single timestamp of all probes, if there is one.
fn one_moment(probes: &[Probe]) -> Option<TimeRange> {
    let first = probes.first()?.time;
    let same = first.from == first.to && probes.iter().all(|probe| probe.time == first);
    same.then_some(first)
}

pub(crate) fn encode_time(time: TimeRange) -> crate::proto::TimeRange {
    crate::proto::TimeRange { from: Some(time.from.as_u64()), to: Some(time.to.as_u64() + 1) }
}

/// A filter that passes a cell if any of the probes matches it.
fn any_of(probes: &[Probe]) -> Filter {
    let each = probes.iter().map(|probe| {
        let family = encode::binary_comparator(encode::family(&probe.family));
        let mut parts = vec![comparing("FamilyFilter", family)];
        if let Qualifiers::Is(qualifier) = &probe.qualifiers {
            let qualifier = encode::binary_comparator(encode::qualifier(qualifier));
            parts.push(comparing("QualifierFilter", qualifier));
        }
        if let Some(prefix) = probe.value_prefix.clone().filter(|prefix| !prefix.is_empty()) {
            parts.push(comparing("ValueFilter", encode::prefix_comparator(prefix)));
        }
        encode::list(MUST_PASS_ALL, parts)
    });
    encode::list(MUST_PASS_ONE, each.collect())
}

fn comparing(class: &str, comparator: crate::proto::Comparator) -> Filter {
    let compare = CompareFilter { compare_op: EQUAL, comparator: Some(comparator) };
    encode::filter(class, &ComparingFilter { compare })
}
