//! Causes the faults beyond single messages. Each kind of fault has a task of its own, which
//! strikes at random intervals until the world is healed.

use std::sync::Arc;
use std::time::Duration;

use percolator_core::Timestamp;

use crate::executor::{ProcessId, WORLD};
use crate::names::row_key;
use crate::tally::Fault;
use crate::world::World;
use crate::{explained, pauses};

/// Starts the faults that the seed's swarm has switched on.
pub(crate) fn unleash(world: &Arc<World>) {
    let on = world.swarm.faults;
    every(world, on.partition, partition);
    every(world, on.pause, pause);
    every(world, on.kill, async |world| kill(&world));
    every(world, on.clock_step, async |world| step_clock(&world));
    every(world, on.store_kill, kill_store);
    every(world, on.write_failure, fail_write);
    every(world, on.oracle, replace_oracle);
    every(world, on.session_loss, async |world| lose_session(&world));
    every(world, on.lock_restart, async |world| restart_locks(&world));
    every(world, on.tablet_move, async |world| move_tablets(&world));
    every(world, on.power_cut, cut_power);
    if world.mix.observes()
        && let Some(interval) = on.observer_pause
    {
        world.executor.spawn(WORLD, Box::pin(pauses::pause_observers(world.clone(), interval)));
    }
    if world.swarm.life.is_some() {
        every(world, on.ghost, async |world| ghost(&world));
    } else if let Some(interval) = on.floor {
        world.executor.spawn(WORLD, Box::pin(raise_floors(world.clone(), interval)));
    }
}

fn every<F, W>(world: &Arc<World>, interval: Option<Duration>, strike: F)
where
    F: Fn(Arc<World>) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let Some(interval) = interval else { return };
    let own = world.clone();
    world.executor.spawn(
        WORLD,
        Box::pin(async move {
            loop {
                wait(&own, interval).await;
                if own.is_healed() {
                    return;
                }
                strike(own.clone()).await;
            }
        }),
    );
}

pub(crate) async fn wait(world: &World, mean: Duration) {
    let ms = mean.as_millis() as u64;
    world.sleep_ms(world.between(ms / 2, ms + ms / 2)).await;
}

fn note(world: &World, fault: Fault, of: ProcessId) {
    world.tally.fault(fault);
    world.executor.note("fault", (fault as u64, u64::from(of.0)), || {
        format!("{} of process {}", fault.name(), of.0)
    });
}

/// Returns a process of any kind.
fn anybody(world: &World) -> Option<ProcessId> {
    match world.between(0, 7) {
        0 => Some(world.store.process),
        1 => Some(world.locks.process),
        2 => world.oracles.newest(),
        _ => world.any_member().map(|member| member.process),
    }
}

async fn partition(world: Arc<World>) {
    let server = match world.between(0, 3) {
        0 => Some(world.locks.process),
        1 => world.oracles.newest(),
        _ => Some(world.store.process),
    };
    let (Some(server), Some(client)) = (server, anybody(&world)) else { return };
    let ways: &[(ProcessId, ProcessId)] = match world.between(0, 3) {
        0 => &[(client, server)],
        1 => &[(server, client)],
        _ => &[(client, server), (server, client)],
    };
    note(&world, if ways.len() == 1 { Fault::OneWay } else { Fault::Partition }, client);
    ways.iter().for_each(|(from, to)| world.transport.cut(*from, *to));
    world.sleep_ms(world.between(10, 1200)).await;
    ways.iter().for_each(|(from, to)| world.transport.mend(*from, *to));
}

async fn pause(world: Arc<World>) {
    let Some(process) = anybody(&world) else { return };
    note(&world, Fault::Pause, process);
    world.executor.pause(process);
    let longest = if process == world.store.process { 300 } else { 3000 };
    world.sleep_ms(world.between(5, longest)).await;
    world.executor.resume(process);
}

fn kill(world: &World) {
    let Some(member) = world.any_member() else { return };
    explained::compare(world);
    note(world, Fault::Kill, member.process);
    world.kill(member.process);
}

fn step_clock(world: &World) {
    let Some(member) = world.any_member() else { return };
    note(world, Fault::ClockStep, member.process);
    let hour = 3_600_000;
    member.clock.step(world.between(0, 2 * hour) as i64 - hour as i64);
}

async fn kill_store(world: Arc<World>) {
    note(&world, Fault::StoreKill, world.store.process);
    world.store.kill();
    world.sleep_ms(world.between(1, 300)).await;
    world.store.restart();
}

async fn fail_write(world: Arc<World>) {
    note(&world, Fault::WriteFailure, world.store.process);
    world.store.fail_next_write();
    world.sleep_ms(world.between(1, 300)).await;
    world.store.restart();
}

/// Cuts the power of the store's machine. In worlds with oracles that stand by, a lull
/// precedes most cuts: one such oracle keeps the record that it saw before.
async fn cut_power(world: Arc<World>) {
    let lull = if world.swarm.stand_by && !world.one_in(3) { lull(&world).await } else { None };
    if !world.is_healed() {
        note(&world, Fault::PowerCut, world.store.process);
        world.store.cut_power();
        world.sleep_ms(world.between(1, 300)).await;
        world.store.restart();
        if world.one_in(4) {
            // The store is killed once more before its silence is over.
            world.sleep_ms(world.between(0, 1000)).await;
            if !world.is_healed() {
                kill_store(world.clone()).await;
            }
        }
        while world.store.is_down() && !world.is_healed() {
            world.sleep_ms(20).await;
        }
    }
    let Some(Lull { leader, stands_by, cut_off }) = lull else { return };
    world.sleep_ms(world.between(0, 50)).await;
    world.executor.resume(stands_by);
    if cut_off {
        world.sleep_ms(world.between(100, 1500)).await;
        world.transport.mend(leader, world.store.process);
        world.transport.mend(world.store.process, leader);
    }
}

/// A time in which only renewals of the oracle's lease are written.
struct Lull {
    leader: ProcessId,
    /// A paused oracle that stands by.
    stands_by: ProcessId,
    /// Whether the leader is cut off from the store.
    cut_off: bool,
}

/// Makes a power cut dangerous for the oracles:
///
/// ```text
///   leader     R1 (synced)    R2   R3   R4   R5                  serves on, by the lease of R5
///   stands by       sees R1   | paused, longer than a lease |    sees R1 unchanged, takes over
///   store                     R2 to R5 stay unsynced        lost
/// ```
///
/// No other process reaches the store, because any synced change would sync the renewals, too.
/// No other process reaches the leader, because a renewal that extends the window is synced.
/// When the store answers again, the leader is mostly cut off from it. Otherwise the leader
/// would write over R1 first.
async fn lull(world: &World) -> Option<Lull> {
    let (leader, _) = world.oracles.leader()?;
    if world.oracles.beside(leader).is_none() {
        world.start_oracle();
    }
    let stands_by = world.oracles.beside(leader)?;
    let store = world.store.process;
    world.transport.only(Some(vec![store, leader, stands_by]));
    world.sleep_ms(world.between(300, 1200)).await;
    if world.is_healed() {
        return None;
    }
    world.executor.pause(stands_by);
    world.sleep_ms(world.between(1500, 3500)).await;
    let cut_off = !world.is_healed() && !world.one_in(4);
    if cut_off {
        world.transport.cut(leader, store);
        world.transport.cut(store, leader);
    }
    world.transport.only(None);
    Some(Lull { leader, stands_by, cut_off })
}

async fn replace_oracle(world: Arc<World>) {
    let (old, server) = match world.oracles.leader() {
        Some((old, server)) if world.swarm.stand_by => (old, Some(server)),
        _ => match world.oracles.newest() {
            Some(old) => (old, None),
            None => return,
        },
    };
    match world.between(0, 2 + u64::from(server.is_some())) {
        0 => {
            note(&world, Fault::OracleKill, old);
            world.executor.kill(old);
            world.sleep_ms(world.between(0, 200)).await;
            if !world.is_healed() {
                world.start_oracle();
            }
        }
        1 => {
            note(&world, Fault::OraclePause, old);
            world.executor.pause(old);
            world.start_oracle();
            world.sleep_ms(world.between(50, 6000)).await;
            world.executor.resume(old);
        }
        2 => {
            note(&world, Fault::OracleRival, old);
            world.start_oracle();
        }
        _ => {
            note(&world, Fault::OracleResigned, old);
            server.iter().for_each(|server| server.resign());
            world.start_oracle();
        }
    }
}

fn lose_session(world: &World) {
    if world.swarm.table_locks {
        return;
    }
    let Some(member) = world.any_member() else { return };
    note(world, Fault::SessionLoss, member.process);
    world.locks.end_sessions(member.process, Duration::from_millis(world.between(5, 800)));
}

fn restart_locks(world: &World) {
    if world.swarm.table_locks {
        return;
    }
    note(world, Fault::LockRestart, world.locks.process);
    world.locks.restart(Duration::from_millis(world.between(5, 800)));
}

fn move_tablets(world: &World) {
    let mut rows: Vec<u16> =
        (0..world.between(0, 4)).map(|_| world.between(0, 300) as u16).collect();
    rows.sort_unstable();
    rows.dedup();
    note(world, Fault::TabletMove, world.store.process);
    world.store.set_boundaries(rows.into_iter().map(row_key).collect());
}

fn ghost(world: &World) {
    note(world, Fault::Ghost, world.store.process);
    world.store.ghost(|count| world.between(0, count as u64 - 1) as usize);
}

/// Raises the floor to a timestamp up to 60 below the latest, also in worlds that collect no
/// garbage.
async fn raise_floors(world: Arc<World>, interval: Duration) {
    let collector = world.new_process();
    let client = world.client(&collector).await;
    loop {
        wait(&world, interval).await;
        if world.is_healed() {
            return;
        }
        let Ok(latest) = client.oracle().peek().await else { continue };
        let behind = world.between(0, 60);
        let floor = Timestamp::new(latest.as_u64().saturating_sub(behind)).unwrap_or(latest);
        note(&world, Fault::FloorRaised, collector.process);
        // A lost raise does no harm, because the next one follows soon.
        drop(client.services().store.raise_floor(floor).await);
    }
}
