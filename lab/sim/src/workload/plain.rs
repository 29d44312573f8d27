//! Does work that the general checkers judge: any mixture of reads, writes, deletes and scans.

use futures::future::join;
use percolator_core::Result;

use crate::book::{Session, Tx};
use crate::workload::cell::cell;

const SET: u8 = 6;
const SKEW: u8 = 8;
const LARGE: u8 = 9;
const COLUMNS: u64 = 3;

/// Does a few steps of any kind on the cells of one table.
pub(super) async fn mixed(session: &Session, table: u8, rows: u64) -> Result<()> {
    let world = &session.world;
    let mut tx = session.begin().await?;
    for _ in 0..world.between(1, 5) {
        let at = cell(table, world.between(0, rows - 1), world.between(0, COLUMNS - 1) as u8);
        match world.between(0, 9) {
            0..=3 => drop(tx.get(at).await?),
            4..=6 => tx.set(at, &body(session))?,
            7 => tx.delete(at)?,
            _ => {
                let to = at.row + world.between(1, 40) as u16;
                let limit = if world.one_in(3) { world.between(1, 5) as usize } else { usize::MAX };
                drop(tx.scan(at, to, limit).await?);
            }
        }
    }
    tx.commit().await.map(drop)
}

/// Adds an element to the set, or reads all elements.
pub(super) async fn set(session: &Session) -> Result<()> {
    let mut tx = session.begin().await?;
    if session.world.one_in(3) {
        drop(tx.scan(cell(SET, 0, 0), u16::MAX, usize::MAX).await?);
    } else {
        let element = session.world.between(0, 5000);
        if tx.get(cell(SET, element, 0)).await?.is_none() {
            tx.set(cell(SET, element, 0), &body(session))?;
        }
    }
    tx.commit().await.map(drop)
}

/// Runs two transactions at the same time on two empty cells: each reads both and writes one.
pub(super) async fn skew(session: &Session) -> Result<()> {
    let row = session.world.between(0, 60_000);
    let (left, right) = (cell(SKEW, row, 0), cell(SKEW, row, 1));
    session.world.book().skew_probes.push((left, right));
    session.world.take_quota();
    let probe = async |own| {
        let mut tx = session.begin().await?;
        let taken = tx.get(left).await?.is_some() || tx.get(right).await?.is_some();
        if !taken {
            tx.set(own, b"")?;
        }
        tx.commit().await
    };
    let (first, second) = join(probe(left), probe(right)).await;
    first.and(second).map(drop)
}

/// Reads the same cells again and again, with pauses: a snapshot does not change. One time in
/// three it reads once, without a transaction.
pub(super) async fn long_reader(session: &Session) -> Result<()> {
    let world = &session.world;
    let cells: Vec<_> = (0..4).map(|_| any_cell(session)).collect();
    if world.one_in(3) {
        return session.view(&cells).await;
    }
    let mut tx = session.begin().await?;
    for _ in 0..world.between(2, 4) {
        for at in &cells {
            drop(tx.get(*at).await?);
        }
        let from = cell(world.between(0, 9) as u8, 0, 0);
        drop(tx.scan(from, u16::MAX, usize::MAX).await?);
        world.sleep_ms(world.between(1, 400)).await;
    }
    tx.commit().await.map(drop)
}

/// Writes and deletes many cells in several tables.
pub(super) async fn large(session: &Session) -> Result<()> {
    let world = &session.world;
    let mut tx = session.begin().await?;
    let (first, count) = (world.between(0, 40), world.between(10, 60));
    for n in 0..count {
        let table = if n % 16 == 0 { 0 } else { LARGE };
        let at = cell(table, (first + n / 2) % 48, (n % 2) as u8);
        if world.one_in(8) { tx.delete(at)? } else { tx.set(at, &body(session))? }
    }
    if world.one_in(3) {
        drop(tx.scan(cell(LARGE, 0, 0), u16::MAX, usize::MAX).await?);
    }
    tx.commit().await.map(drop)
}

/// Writes cells without reading them.
pub(super) async fn blind(session: &Session) -> Result<()> {
    let mut tx = session.begin().await?;
    blind_writes(session, &mut tx)?;
    tx.commit().await.map(drop)
}

fn blind_writes(session: &Session, tx: &mut Tx) -> Result<()> {
    let world = &session.world;
    for _ in 0..world.between(1, 3) {
        let at = cell(0, world.between(0, 5), world.between(0, COLUMNS - 1) as u8);
        tx.set(at, &body(session))?;
    }
    Ok(())
}

fn any_cell(session: &Session) -> crate::history::Cell {
    let world = &session.world;
    let table = world.between(0, 5) as u8;
    cell(table, world.between(0, 5), 0)
}

/// Returns some bytes. Short values are stored in lock and write records, longer ones in `data`.
fn body(session: &Session) -> Vec<u8> {
    vec![b'x'; session.world.between(0, 24) as usize]
}
