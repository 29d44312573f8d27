//! Restricts a seed's world, to find out which of its parts a finding needs.
//!
//! Restrictions apply after the whole world was drawn. The events then differ from those of the
//! unrestricted run. So a finding may disappear only because the order of events has changed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use crate::schedule::Policy;
use crate::swarm::Swarm;
use crate::workload::{Kind, Mix};

macro_rules! parts {
    ($($variant:ident $name:literal: $swarm:ident => $off:expr,)*) => {
        /// A part of a world that can be left out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        enum World { $($variant,)* }

        impl World {
            const ALL: &'static [World] = &[$(World::$variant,)*];

            fn name(self) -> &'static str {
                match self { $(World::$variant => $name,)* }
            }

            fn leave_out(self, swarm: &mut Swarm) {
                match self { $(World::$variant => { let $swarm = swarm; $off; })* }
            }
        }
    };
}

parts! {
    LostRequests "lost-requests": s => s.weather.lose_request = 0,
    LostReplies "lost-replies": s => s.weather.lose_reply = 0,
    Duplicates "duplicates": s => s.weather.duplicate = 0,
    LateDuplicates "late-duplicates": s => s.weather.late_duplicate = 0,
    Slow "slow-messages": s => s.weather.tail = 0,
    Busy "busy-store": s => s.weather.busy = 0,
    Overload "overload": s => s.weather.overloaded = 0,
    Partitions "partitions": s => s.faults.partition = None,
    Pauses "pauses": s => s.faults.pause = None,
    Kills "kills": s => s.faults.kill = None,
    ClockSteps "clock-steps": s => s.faults.clock_step = None,
    StoreKills "store-kills": s => s.faults.store_kill = None,
    WriteFailures "write-failures": s => s.faults.write_failure = None,
    PowerCuts "power-cuts": s => s.faults.power_cut = None,
    ObserverPauses "observer-pauses": s => s.faults.observer_pause = None,
    Oracles "oracle-changes": s => s.faults.oracle = None,
    Sessions "lost-sessions": s => s.faults.session_loss = None,
    LockRestarts "lock-restarts": s => s.faults.lock_restart = None,
    TabletMoves "tablet-moves": s => s.faults.tablet_move = None,
    Garbage "garbage-collection": s => s.faults.floor = None,
    Ghosts "ghosts": s => s.faults.ghost = None,
    ReadAhead "read-ahead": s => s.options.read_ahead = false,
    Glances "glances": s => s.glances = false,
    StandBy "standing-by": s => s.stand_by = false,
    TableLocks "locks-in-the-store": s => s.table_locks = false,
    NoFloors "stores-without-floors": s => s.life = None,
    GroupSync "group-sync": s => s.sync_max = Duration::ZERO,
    SlowCommits "slow-commits": s => s.publish_max = Duration::ZERO,
    SmallPages "small-pages": s => s.page_rows_max = usize::MAX,
    SplitBatches "split-batches": s => s.splits_batches = false,
    BatchDelay "batch-delay": s => s.batch_delay = Duration::ZERO,
    HangUps "hang-ups": s => s.patience = None,
    DropsSuperseded "dropped-in-merges": s => s.drops_superseded = false,
    Drift "drift": s => (s.drift_ppm_max, s.wall_offset_ms_max) = (0, 0),
    Priorities "priorities": s => s.policy = Policy::Any,
}

/// A part of a seed's world, or of its clients' work, that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(Of);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    World(World),
    Work(Kind),
}

impl Part {
    /// Returns all parts that exist; a seed's world has some of them.
    pub fn all() -> impl Iterator<Item = Part> {
        let world = World::ALL.iter().map(|part| Part(Of::World(*part)));
        world.chain(Kind::value_variants().iter().map(|kind| Part(Of::Work(*kind))))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Of::World(part) => f.write_str(part.name()),
            Of::Work(kind) => write!(f, "work-{}", format!("{kind:?}").to_lowercase()),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Part::all().map(|part| part.to_string()).collect::<Vec<_>>().join(", ");
        let found = Part::all().find(|part| part.to_string() == name);
        found.ok_or_else(|| format!("there is no part {name:?}; the parts are {}", names()))
    }
}

/// The restrictions of a seed's world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// The parts that are left out.
    pub without: BTreeSet<Part>,
    /// The maximum number of pieces of work.
    pub transactions_max: Option<u64>,
    /// The maximum number of clients at the same time.
    pub clients_max: Option<u64>,
}

impl Restrictions {
    pub(crate) fn apply(&self, swarm: &mut Swarm, mix: &mut Mix) {
        for Part(of) in &self.without {
            match of {
                Of::World(part) => part.leave_out(swarm),
                Of::Work(kind) => mix.leave_out(*kind),
            }
        }
        swarm.transactions = swarm.transactions.min(self.transactions_max.unwrap_or(u64::MAX));
        swarm.clients = swarm.clients.min(self.clients_max.unwrap_or(u64::MAX));
    }

    /// Returns the options of `replay` that mean the same restrictions.
    pub fn options(&self) -> String {
        let mut options = String::new();
        self.without.iter().for_each(|part| options += &format!(" --without {part}"));
        let numbers = [("transactions", self.transactions_max), ("clients", self.clients_max)];
        for (name, number) in numbers {
            options += &number.map_or(String::new(), |number| format!(" --{name} {number}"));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::swarm::Intervals;

    #[test]
    fn every_part_has_a_name_of_its_own_that_is_understood() {
        let names: BTreeSet<_> = Part::all().map(|part| part.to_string()).collect();
        assert_eq!(names.len(), Part::all().count());
        assert!(Part::all().all(|part| part.to_string().parse() == Ok(part)));
        assert!("weather".parse::<Part>().unwrap_err().contains("lost-requests"));
    }

    #[test]
    fn without_everything_a_world_is_calm() {
        let mut rng = Rng::new(3);
        let (mut swarm, mut mix) = (Swarm::draw(&mut rng), Mix::draw(&mut rng));
        let without = Part::all().collect();
        let restrictions = Restrictions { without, transactions_max: Some(7), clients_max: None };
        restrictions.apply(&mut swarm, &mut mix);
        assert_eq!(format!("{:?}", swarm.faults), format!("{:?}", Intervals::default()));
        assert_eq!(swarm.transactions, 7);
        assert!(restrictions.options().ends_with("--transactions 7"));
    }
}
