//! Does work with a total, which shows whether an update was lost or done twice.

use std::collections::BTreeMap;

use bigtable::Timestamp;
use bytes::Bytes;
use percolator_core::Result;

use crate::book::{Log, Session};
use crate::history::{Cell, Finding};
use crate::workload::cell::cell;
use crate::workload::mix::Kind;

const BANKS: [u8; 2] = [2, 3];
const ACCOUNTS: u64 = 6;
const MONEY: i64 = 100;
const COUNTERS: u8 = 4;
const LISTS: u8 = 5;
const LISTS_COUNT: u64 = 4;

/// Gives every account its money.
pub(super) async fn fund(session: &Session) -> Result<()> {
    let mut tx = session.begin().await?;
    for table in BANKS {
        for account in 0..ACCOUNTS {
            tx.set(cell(table, account, 0), &MONEY.to_be_bytes())?;
        }
    }
    tx.commit().await.map(drop)
}

/// Transfers money, or checks the total.
pub(super) async fn bank(session: &Session) -> Result<()> {
    let world = &session.world;
    if world.one_in(5) {
        let wrong = audit(session).await?;
        world.book().findings.extend(wrong);
        return Ok(());
    }
    let account = || cell(BANKS[world.between(0, 1) as usize], world.between(0, ACCOUNTS - 1), 0);
    let (from, to) = (account(), account());
    if from == to {
        return Ok(());
    }
    let mut tx = session.begin().await?;
    let (rich, poor) = (number(tx.get(from).await?), number(tx.get(to).await?));
    let amount = world.between(1, 20) as i64;
    tx.set(from, &(rich - amount).to_be_bytes())?;
    tx.set(to, &(poor + amount).to_be_bytes())?;
    tx.commit().await.map(drop)
}

/// Returns a finding if the accounts do not hold all the money.
async fn audit(session: &Session) -> Result<Option<Finding>> {
    let (mut tx, whole) = (session.begin().await?, 2 * ACCOUNTS as i64 * MONEY);
    let mut sum = 0;
    for table in BANKS {
        let accounts = tx.scan(cell(table, 0, 0), u16::MAX, usize::MAX).await?;
        sum += accounts.into_iter().map(|(_, body)| number(Some(body))).sum::<i64>();
    }
    let start_ts = tx.start_ts();
    tx.commit().await?;
    let facts = format!("{sum} of {whole} found at {start_ts}");
    Ok((sum != whole).then_some(Finding { property: "bank", facts }))
}

/// Adds one to a counter, in the core's own retry loop.
pub(super) async fn count(session: &Session) -> Result<()> {
    let counter = cell(COUNTERS, session.world.between(0, 3), 0);
    let table = &session.tables[usize::from(COUNTERS)];
    session
        .client
        .transact(async |mut tx| {
            let mut log = Log::of(&session.world, &tx);
            let old = number(log.get(&tx, table, counter).await?);
            log.set(&mut tx, table, counter, &(old + 1).to_be_bytes())
        })
        .await
}

/// Adds an element to a list.
pub(super) async fn append(session: &Session) -> Result<()> {
    let list = cell(LISTS, session.world.between(0, LISTS_COUNT - 1), 0);
    let mut tx = session.begin().await?;
    let mut elements = tx.get(list).await?.unwrap_or_default().to_vec();
    elements.extend_from_slice(&tx.start_ts().as_u64().to_be_bytes());
    tx.set(list, &elements)?;
    tx.commit().await.map(drop)
}

fn number(body: Option<Bytes>) -> i64 {
    let bytes = body.as_deref().and_then(|body| body.try_into().ok());
    i64::from_be_bytes(bytes.unwrap_or_default())
}

/// Checks that the total of money is unchanged, and that every committed increment and element
/// counts once.
pub(super) async fn verify(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mix = &session.world.mix;
    if mix.has(Kind::Bank) {
        findings.extend(audit(session).await?);
    }
    let mut writers: BTreeMap<Cell, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
    for record in &session.world.store.journal().records {
        writers.entry(record.cell).or_default().push((record.commit_ts, record.start_ts));
    }
    for (at, mut records) in writers {
        records.sort_unstable();
        let elements: Vec<u64> = records.iter().map(|(_, start)| start.as_u64()).collect();
        if at.table == COUNTERS {
            let found = number(session.begin().await?.get(at).await?);
            if found != elements.len() as i64 {
                let facts = format!("{at:?} is {found} after {} increments", elements.len());
                findings.push(Finding { property: "counter", facts });
            }
        }
        if at.table == LISTS {
            let list = session.begin().await?.get(at).await?.unwrap_or_default();
            let list: Vec<u64> = list
                .chunks_exact(8)
                .map(|chunk| u64::from_be_bytes(chunk.try_into().unwrap_or_default()))
                .collect();
            if list != elements {
                let facts = format!("{at:?} holds {list:?}, committed were {elements:?}");
                findings.push(Finding { property: "append", facts });
            }
        }
    }
    Ok(findings)
}
