//! Draws a seed's world: whether each kind of fault occurs, and at which rate.
//!
//! This is "swarm testing": a run with few kinds of faults goes deeper than one with all of them.

use std::time::Duration;

use bigtable::Limits;
use percolator_core::{CommitPath, Options, Secondaries};

use crate::random::Rng;
use crate::schedule::Policy;

/// How messages are delayed, lost and copied. Rates are in ten thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) delay_min: Duration,
    pub(crate) delay_max: Duration,
    /// One message in this many takes four times as long, one in the square of it sixteen
    /// times, ...
    pub(crate) tail: u64,
    pub(crate) lose_request: u64,
    pub(crate) lose_reply: u64,
    pub(crate) duplicate: u64,
    pub(crate) late_duplicate: u64,
    pub(crate) late_max: Duration,
    pub(crate) busy: u64,
    /// The rate among requests that place locks.
    pub(crate) overloaded: u64,
    /// The rate among changes of a store like HBase that wait for its log (`log_waits.rs`).
    pub(crate) log_waits: u64,
}

/// A seed's world.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    pub(crate) weather: Weather,
    pub(crate) timeout: Duration,
    /// How long the store gathers mutations before it syncs them; zero to sync each by itself.
    pub(crate) sync_max: Duration,
    /// The longest time between a one-step commit's timestamp and its publication.
    pub(crate) publish_max: Duration,
    /// The maximum number of rows of a page, whatever limit the client names.
    pub(crate) page_rows_max: usize,
    /// Whether a store that is down refuses requests; otherwise it does not answer.
    pub(crate) refuses: bool,
    /// Whether each mutation of one request travels in a message of its own.
    pub(crate) splits_batches: bool,
    /// How long a process's conditional mutations, and its reads, wait for others to share a
    /// request with; zero if they do not wait.
    pub(crate) batch_delay: Duration,
    pub(crate) session_timeout: Duration,
    /// The largest drift of monotonic clocks, in parts per million.
    pub(crate) drift_ppm_max: u64,
    pub(crate) wall_offset_ms_max: u64,
    /// How many timestamps an oracle reserves at a time.
    pub(crate) window: u64,
    pub(crate) faults: Intervals,
    pub(crate) options: Options,
    pub(crate) clients: u64,
    pub(crate) transactions: u64,
    /// Whether store and oracle offer one-step commits.
    pub(crate) one_step: bool,
    /// Whether clients can `glance` at a column's contents without a request.
    pub(crate) glances: bool,
    /// Whether the store has no locality groups, so that notifications are in tables of their own.
    pub(crate) apart: bool,
    /// Whether there are several oracles that stand by for one another.
    pub(crate) stand_by: bool,
    /// Whether liveness tokens and advisory locks are in the store.
    pub(crate) table_locks: bool,
    /// The longest life of a request, in a store without a floor.
    pub(crate) life: Option<Duration>,
    pub(crate) policy: Policy,
    /// The largest requests that the store accepts.
    pub(crate) limits: Limits,
    /// The longest time that a client waits for a commit before it abandons it; each commit
    /// draws a time.
    pub(crate) patience: Option<Duration>,
    /// Whether the store drops superseded versions as soon as it may.
    pub(crate) drops_superseded: bool,
}

/// The mean time between two faults of a kind; `None` if the kind does not occur.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Intervals {
    pub(crate) partition: Option<Duration>,
    pub(crate) pause: Option<Duration>,
    pub(crate) kill: Option<Duration>,
    pub(crate) clock_step: Option<Duration>,
    pub(crate) store_kill: Option<Duration>,
    pub(crate) oracle: Option<Duration>,
    pub(crate) session_loss: Option<Duration>,
    pub(crate) lock_restart: Option<Duration>,
    pub(crate) tablet_move: Option<Duration>,
    pub(crate) floor: Option<Duration>,
    pub(crate) ghost: Option<Duration>,
    pub(crate) write_failure: Option<Duration>,
    pub(crate) power_cut: Option<Duration>,
    pub(crate) observer_pause: Option<Duration>,
}

impl Weather {
    /// Returns weather with short delays only.
    pub(crate) fn fair() -> Self {
        Weather {
            delay_min: Duration::from_micros(50),
            delay_max: Duration::from_micros(300),
            ..Weather::default()
        }
    }

    fn draw(rng: &mut Rng) -> Self {
        Weather {
            delay_min: Duration::from_micros(rng.between(10, 200)),
            delay_max: Duration::from_micros(rng.between(200, 4000)),
            tail: *rng.pick(&[0, 6, 12, 30]).unwrap_or(&0),
            lose_request: rate(rng, 300),
            lose_reply: rate(rng, 300),
            duplicate: rate(rng, 500),
            late_duplicate: rate(rng, 200),
            late_max: Duration::from_millis(rng.between(200, 20_000)),
            busy: rate(rng, 200),
            overloaded: rate(rng, 200),
            log_waits: 0,
        }
    }
}

/// Whether a seed's store is like HBase: it keeps notifications in the rows that they are about,
/// and cannot compare a floor. These are an eighth of all seeds.
pub fn is_like_hbase(seed: u64) -> bool {
    seed % 8 == 7
}

impl Swarm {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        // Some worlds are calm, so that their findings cannot come from messages and faults.
        let calm = rng.below(16) == 0;
        let weather = if calm { Weather::fair() } else { Weather::draw(rng) };
        let faults = if calm { Intervals::default() } else { Intervals::draw(rng) };
        let mut swarm = Swarm {
            weather,
            timeout: Duration::from_millis(rng.between(50, 500)),
            sync_max: Duration::from_micros(*rng.pick(&[0, 300, 3000]).unwrap_or(&0)),
            publish_max: Duration::from_micros(*rng.pick(&[0, 300, 3000, 20_000]).unwrap_or(&0)),
            page_rows_max: *rng.pick(&[1, 3, 20, usize::MAX]).unwrap_or(&usize::MAX),
            refuses: rng.below(2) == 0,
            splits_batches: rng.below(2) == 0,
            batch_delay: Duration::from_micros(*rng.pick(&[0, 300, 3000]).unwrap_or(&0)),
            session_timeout: Duration::from_millis(rng.between(20, 3000)),
            drift_ppm_max: if rng.below(2) == 0 { 0 } else { rng.between(0, 50_000) },
            wall_offset_ms_max: if rng.below(2) == 0 { 0 } else { rng.between(0, 7_200_000) },
            window: *rng.pick(&[20, 200, 1_000_000]).unwrap_or(&200),
            faults,
            options: options(rng),
            clients: rng.between(2, 6),
            transactions: rng.between(100, 240),
            one_step: rng.below(2) == 0,
            apart: rng.below(2) == 0,
            stand_by: rng.below(2) == 0,
            table_locks: rng.below(2) == 0,
            life: None,
            policy: Policy::draw(rng),
            glances: rng.below(2) == 0,
            limits: Limits::default(),
            patience: None,
            drops_superseded: false,
        };
        if rng.below(3) == 0 {
            swarm.without_floors(life(rng));
        }
        // These draws use a copy of the generator. So the draws that follow are the same as
        // before these options existed, and older seeds keep their worlds.
        let mut rng = rng.clone();
        swarm.limits = limits(&mut rng);
        if rng.below(2) == 0 {
            swarm.patience = Some(Duration::from_micros(rng.between(1_000, 100_000)));
        }
        if !calm && rng.below(2) == 0 {
            swarm.faults.power_cut = Some(Duration::from_millis(rng.between(300, 4000)));
        }
        if !calm && rng.below(4) == 0 {
            swarm.faults.observer_pause = Some(Duration::from_millis(rng.between(50, 1000)));
        }
        swarm.drops_superseded = swarm.life.is_none() && rng.below(2) == 0;
        swarm
    }

    /// Returns how long conditional mutations and reads wait for others: not at all if batches
    /// are split.
    pub(crate) fn gather(&self) -> Duration {
        if self.splits_batches { Duration::ZERO } else { self.batch_delay }
    }

    /// Makes the store one like HBase. Draws from the seed itself, so that the rest of the world is
    /// as without this call.
    pub(crate) fn make_like_hbase(&mut self, seed: u64) {
        self.apart = false;
        // Each row is a request of its own.
        self.splits_batches = true;
        if self.life.is_none() {
            self.without_floors(life(&mut Rng::new(seed)));
        }
        self.weather.log_waits = rate(&mut Rng::new(!seed), 500);
    }

    /// Makes the store one that cannot compare a floor. No client then waits longer than a
    /// request lives.
    fn without_floors(&mut self, life: Duration) {
        self.life = Some(life);
        self.drops_superseded = false;
        self.one_step = false;
        self.timeout = self.timeout.min(life);
        self.weather.late_max = self.weather.late_max.min(life);
    }
}

impl Intervals {
    fn draw(rng: &mut Rng) -> Self {
        let mut some = |low_ms, high_ms| {
            let drawn = Duration::from_millis(rng.between(low_ms, high_ms));
            (rng.below(2) == 0).then_some(drawn)
        };
        Intervals {
            partition: some(50, 1000),
            pause: some(50, 1000),
            kill: some(50, 1500),
            clock_step: some(50, 1000),
            store_kill: some(100, 2000),
            oracle: some(300, 4000),
            session_loss: some(50, 1000),
            lock_restart: some(200, 3000),
            tablet_move: some(20, 500),
            floor: some(20, 500),
            ghost: some(20, 500),
            write_failure: some(200, 3000),
            power_cut: None,
            observer_pause: None,
        }
    }
}

/// Draws the longest life of a request. If it is short, so are the retentions, and a pause outlasts
/// them.
fn life(rng: &mut Rng) -> Duration {
    let longest = if rng.below(2) == 0 { 30 } else { 250 };
    Duration::from_millis(rng.between(10, longest))
}

/// Returns no limits in half of the worlds. In the others the limits are small, but large
/// enough for every protocol action of these workloads.
fn limits(rng: &mut Rng) -> Limits {
    if rng.below(2) == 0 {
        return Limits::default();
    }
    Limits {
        mutations_max: Some(rng.between(64, 1000) as usize),
        request_bytes_max: Some(rng.between(16, 64) as usize * 1024),
        predicate_bytes_max: Some(rng.between(3200, 20_480) as usize),
        ..Limits::default()
    }
}

/// Returns zero in half of the worlds, else a rate of up to `max`.
fn rate(rng: &mut Rng, max: u64) -> u64 {
    if rng.below(2) == 0 { 0 } else { rng.between(1, max) }
}

fn options(rng: &mut Rng) -> Options {
    Options {
        lock_lifetime: Duration::from_millis(rng.between(60, 2000)),
        transaction_life_max: Duration::from_secs(rng.between(2, 30)),
        read_wait_max: Duration::from_millis(rng.between(50, 5000)),
        // Some deadlines pass after one lost reply. Outcomes are then unknown although the
        // store can be reached.
        commit_deadline: Duration::from_millis(match rng.below(4) {
            0 => rng.between(1, 20),
            _ => rng.between(20, 4000),
        }),
        read_ahead: rng.below(2) == 0,
        short_value_bytes_max: {
            // This draw has no use: it keeps the later draws of each seed in their places.
            rng.below(2);
            *rng.pick(&[0, 5, 255]).unwrap_or(&255)
        },
        backlog_max: 2_000,
        backlog_of_store: false,
        admit_wait_max: Duration::from_secs(60),
        attempts_max: 12,
        commit_path: CommitPath::OneStep,
        watch: None,
        trace: percolator_core::Sampling::Off,
        secondaries: match rng.below(2) {
            0 => Secondaries::Awaited,
            _ => Secondaries::Background,
        },
    }
}
