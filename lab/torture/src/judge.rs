//! Judges the store after all kills, once all work is drained: checks everything that must
//! hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use percolator::{Column, Error, Snapshot, Table, Timestamp};
use percolator_cli::store::Commit;

use super::ledger::{Counts, Ledger, Work};
use super::world::{ACCOUNTS, BALANCE, COUNT, COUNTERS, ROWS, Stored, VALUE, World};
use super::world::{counter_row, number, row_name};
use crate::place::Place;

/// The longest time for the observers to catch up.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// The number of past moments at which the accounts are summed.
const MOMENTS: u64 = 50;
/// The most violations that are named.
const NAMED_MAX: usize = 50;

/// The result of the judgement.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) checks: u64,
    pub(crate) violations: usize,
    /// The first violations, in words.
    pub(crate) named: Vec<String>,
    pub(crate) begun: usize,
    pub(crate) committed: usize,
    /// The number of transactions that were begun and never acknowledged.
    pub(crate) unknown: usize,
    /// The counts of the children and of the judge's own clients.
    pub(crate) counts: Counts,
    /// The number of past moments at which the accounts were all there and were summed.
    pub(crate) moments: usize,
    /// The number of pages whose index entries were compared with a batch.
    pub(crate) documents: usize,
}

impl Judgement {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.violations += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(what());
            }
        }
    }
}

/// Opens the store that the children left, drains all work, and checks the result.
pub(crate) async fn judge(place: &Place, stored: &Stored) -> anyhow::Result<Judgement> {
    let ledger = Ledger::read(&place.ledger())?;
    let world = World::open(place, stored, Commit::OneStep).await?;
    let mut found = Judgement {
        begun: ledger.begun.len(),
        committed: ledger.committed.len(),
        unknown: ledger.unknown(),
        ..Judgement::default()
    };
    drain(&world, &mut found).await?;
    sums(&world, &ledger, &mut found).await?;
    receipts(&world, &ledger, &mut found).await?;
    newest_versions(&world, &ledger, &mut found).await?;
    observers(&world, &ledger, &mut found).await?;
    let verify = world.index.verify().await?;
    found.documents = verify.documents;
    for difference in &verify.named {
        found.check(false, || format!("web index: {difference}"));
    }
    found.check(verify.documents > 0, || "web index: it holds no documents".to_owned());
    found.check(verify.is_ok(), || format!("web index: {} differences", verify.differences));
    no_locks(&world, stored, &mut found).await?;
    let own = Counts::from(world.db.stats()) + Counts::from(world.index.database().stats());
    found.counts = ledger.counts + own;
    world.stop().await;
    Ok(found)
}

/// Drains all work: waits for the observers, and reads every cell. Reading resolves the locks
/// that the kills left. A transaction that is rolled forward makes new work for observers, so
/// this runs twice.
async fn drain(world: &World, found: &mut Judgement) -> anyhow::Result<()> {
    for _ in 0..2 {
        let report = world.db.wait_idle(Some(IDLE_MAX)).await?;
        found.check(report.idle, || format!("observers still have work after {IDLE_MAX:?}"));
        found.check(report.set_aside.is_empty(), || match report.set_aside.first() {
            Some(first) => format!(
                "{} changes are set aside, the first of {} on {}/{}: {}",
                report.set_aside.len(),
                first.observer,
                first.table,
                first.row,
                first.error,
            ),
            None => String::new(),
        });
        let snapshot = world.db.snapshot().await?;
        for name in world.db.table_names().await? {
            let table = world.db.table(&name).await?;
            let mut scan = snapshot.scan(&table);
            while scan.next().await?.is_some() {}
        }
    }
    world.db.wait_idle(Some(IDLE_MAX)).await?;
    let backlog = world.db.backlog().await?;
    found.check(backlog.is_empty(), || format!("notifications are left: {backlog:?}"));
    Ok(())
}

/// The cells of a column, by row.
async fn column(
    snapshot: &Snapshot,
    table: &Table,
    column: &Column,
) -> percolator::Result<BTreeMap<String, String>> {
    let rows = snapshot.scan(table).columns([column]).collect().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let cell = |(_, value): &(Column, _)| -> String { text(AsRef::<[u8]>::as_ref(value)) };
    let row = |row: &percolator::ScannedRow| {
        row.cells.first().map(|first| (text(row.row.as_bytes()), cell(first)))
    };
    Ok(rows.iter().filter_map(row).collect())
}

/// Like `column`, with the cells as numbers.
async fn numbers(
    snapshot: &Snapshot,
    table: &Table,
    of: &Column,
) -> percolator::Result<BTreeMap<String, i64>> {
    let cells = column(snapshot, table, of).await?;
    cells.into_iter().map(|(row, value)| Ok((row, number(Some(value.as_bytes()))?))).collect()
}

/// Checks that the accounts together hold the money they were given, now and at past moments that
/// can still be read. At least one of these must be left.
async fn sums(world: &World, ledger: &Ledger, found: &mut Judgement) -> anyhow::Result<()> {
    let latest = world.db.snapshot().await?.timestamp().as_u64();
    let floor = world.db.services().store.floor().as_u64();
    // Before the first commit there is no money. A store without a floor would begin at zero.
    let oldest = ledger.committed.values().min().map_or(latest, |first| *first.min(&latest));
    let from = floor.max(oldest);
    let step = |n: u64| from + ((latest - from) as u128 * n as u128 / MOMENTS as u128) as u64;
    let mut moments: BTreeSet<u64> = (0..=MOMENTS).map(step).collect();
    moments.insert(latest);
    for moment in moments.into_iter().filter_map(Timestamp::new) {
        match sum_at(world, moment).await {
            Ok((accounts, sum)) => {
                found.moments += usize::from(accounts == ACCOUNTS && moment.as_u64() < latest);
                let expected = accounts as i64 * BALANCE;
                let whole = accounts == ACCOUNTS || accounts == 0 && moment.as_u64() < latest;
                found.check(whole && sum == expected, || {
                    format!("bank: {accounts} accounts hold {sum} at {moment}, not {expected}")
                });
            }
            // Garbage collection in the background has moved the safe point meanwhile.
            Err(Error::TooOld { .. }) if moment.as_u64() < latest => {}
            Err(error) => return Err(error.into()),
        }
    }
    let judged = found.moments;
    let any = judged > 0 || ledger.committed.is_empty();
    found.check(any, || "bank: no past moment could be read".to_owned());
    Ok(())
}

async fn sum_at(world: &World, moment: Timestamp) -> percolator::Result<(usize, i64)> {
    let snapshot = world.db.snapshot_at(moment).await?;
    let (mut accounts, mut sum) = (0, 0);
    for bank in &world.tables.banks {
        let balances = numbers(&snapshot, bank, &VALUE).await?;
        accounts += balances.len();
        sum += balances.values().sum::<i64>();
    }
    Ok((accounts, sum))
}

/// Checks the receipts of transfers in two ways. Each acknowledged transfer must have its
/// receipt, with its content and its commit timestamp. Balances and counters must equal the
/// result of all receipts, so no transfer was applied twice or in part.
async fn receipts(world: &World, ledger: &Ledger, found: &mut Judgement) -> anyhow::Result<()> {
    let (snapshot, tables) = (world.db.snapshot().await?, &world.tables);
    let receipts = column(&snapshot, &tables.receipts, &VALUE).await?;
    let (mut balances, mut counts) = ([BALANCE; ACCOUNTS], [0i64; COUNTERS]);
    for (id, receipt) in &receipts {
        let begun = ledger.begun.get(id);
        let as_begun = begun.is_some_and(|work| format!("{work:?}") == *receipt);
        found.check(as_begun, || {
            format!("receipt {id} is {receipt:?}, but the work began as {begun:?}")
        });
        if let Some(Work::Transfer { from, to, amount, counter }) = begun {
            balances[*from] -= amount;
            balances[*to] += amount;
            counts[*counter] += 1;
        }
    }
    for (account, expected) in balances.into_iter().enumerate() {
        let (table, row) = tables.account(account);
        let balance = number(snapshot.get(table, row.as_str(), &VALUE).await?.as_deref())?;
        found.check(balance == expected, || {
            format!("bank: {}/{row} holds {balance}, its receipts make {expected}", table.name())
        });
    }
    for (counter, expected) in counts.into_iter().enumerate() {
        let row = counter_row(counter);
        let count = snapshot.get(&tables.counters, row.as_str(), &VALUE).await?;
        let count = number(count.as_deref())?;
        found.check(count == expected, || {
            format!("counters/{row} is {count}, there are {expected} receipts")
        });
    }
    let transfers = ledger
        .committed
        .iter()
        .filter(|(id, _)| matches!(ledger.begun.get(*id), Some(Work::Transfer { .. })));
    for (id, ts) in transfers {
        found.check(receipts.contains_key(id), || {
            format!("transfer {id} was acknowledged with timestamp {ts}, and has no receipt")
        });
        let history = world.db.cell_history(&tables.receipts, id.as_str(), &VALUE).await?;
        let there = history.iter().any(|m| m.write.is_some() && m.timestamp.as_u64() == *ts);
        found.check(there, || format!("receipt {id} is not of timestamp {ts}: {history:?}"));
    }
    Ok(())
}

/// Checks the newest version of each cell that is overwritten. It must be the newest
/// acknowledged version, or a newer one whose reply the child did not get.
async fn newest_versions(
    world: &World,
    ledger: &Ledger,
    found: &mut Judgement,
) -> anyhow::Result<()> {
    let tables = &world.tables;
    for row in 0..ROWS {
        let blind = |work: &Work| match work {
            Work::Blind { row: of, delete } if *of == row => Some(*delete),
            _ => None,
        };
        newest(world, &tables.blind, row, ledger, blind, found).await?;
        let source = |work: &Work| match work {
            Work::Source { row: of, delete } if *of == row => Some(*delete),
            _ => None,
        };
        newest(world, &tables.source, row, ledger, source, found).await?;
        let poke =
            |work: &Work| matches!(work, Work::Poke { row: of } if *of == row).then_some(false);
        newest(world, &tables.todo, row, ledger, poke, found).await?;
    }
    Ok(())
}

async fn newest(
    world: &World,
    table: &Table,
    row: usize,
    ledger: &Ledger,
    deletes: impl Fn(&Work) -> Option<bool>,
    found: &mut Judgement,
) -> anyhow::Result<()> {
    let cell = format!("{}/{}", table.name(), row_name(row));
    let of_row = |id: &String| ledger.begun.get(id).and_then(&deletes);
    let told = ledger.committed.iter().filter(|(id, _)| of_row(id).is_some());
    let told = told.max_by_key(|(_, ts)| **ts);
    let history = world.db.cell_history(table, row_name(row), &VALUE).await?;
    let newest = history.iter().find_map(|m| Some((m.timestamp.as_u64(), m.write.as_ref()?)));
    let Some((ts, write)) = newest else {
        // Garbage collection may have removed the deletion together with the cell.
        let gone = told.is_none_or(|(id, _)| of_row(id) == Some(true));
        found.check(gone, || format!("{cell} has no version, but {told:?} was acknowledged"));
        return Ok(());
    };
    let at_least = told.map_or(0, |(_, ts)| *ts);
    found.check(ts >= at_least, || format!("{cell} is of {ts}, but {told:?} was acknowledged"));
    let value = world.db.snapshot().await?.get(table, row_name(row), &VALUE).await?;
    let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
    found.check(value.is_none() == write.delete, || format!("{cell} is {value:?} at {write:?}"));
    match (value, told) {
        (Some(value), _) => {
            let acknowledged = ledger.committed.get(&value);
            let right = of_row(&value) == Some(false) && acknowledged.is_none_or(|at| *at == ts);
            found.check(right, || {
                format!("{cell} is {value} of {ts}, which was acknowledged at {acknowledged:?}")
            });
        }
        (None, Some((id, at))) if *at == ts => {
            found.check(of_row(id) == Some(true), || format!("{cell} is gone, and {id} wrote it"));
        }
        (None, _) => {}
    }
    Ok(())
}

/// Checks that the observers' results equal the cells that they observe, and that no observer
/// ran more often than there were changes.
async fn observers(world: &World, ledger: &Ledger, found: &mut Judgement) -> anyhow::Result<()> {
    let (snapshot, tables) = (world.db.snapshot().await?, &world.tables);
    for (from, to) in
        [(&tables.source, &tables.copy), (&tables.copy, &tables.tail), (&tables.todo, &tables.done)]
    {
        let left = column(&snapshot, from, &VALUE).await?;
        let right = column(&snapshot, to, &VALUE).await?;
        for row in (0..ROWS).map(row_name) {
            let (source, copy) = (left.get(&row), right.get(&row));
            found.check(source == copy, || {
                format!("{}/{row} is {source:?}, {} has {copy:?}", from.name(), to.name())
            });
        }
    }
    let changes = numbers(&snapshot, &tables.source, &COUNT).await?;
    let runs = numbers(&snapshot, &tables.copy, &COUNT).await?;
    for row in 0..ROWS {
        let of_row = |work: &Work| matches!(work, Work::Source { row: of, .. } if *of == row);
        let begun = ledger.begun.values().filter(|work| of_row(work)).count() as i64;
        let told = ledger.committed.keys().filter_map(|id| ledger.begun.get(id));
        let told = told.filter(|work| of_row(work)).count() as i64;
        let of = |counts: &BTreeMap<String, i64>| counts.get(&row_name(row)).copied().unwrap_or(0);
        let (changes, runs) = (of(&changes), of(&runs));
        found.check((told..=begun).contains(&changes), || {
            format!(
                "source/{} was changed {changes} times, but {told} to {begun} changes were \
                 reported",
                row_name(row)
            )
        });
        found.check((changes.min(1)..=changes).contains(&runs), || {
            format!("copy/{} was made {runs} times for {changes} changes", row_name(row))
        });
    }
    Ok(())
}

/// Checks that no lock is left, on disk after a collection up to the present. HBase allows no such
/// collection, because a request may still be in flight.
async fn no_locks(world: &World, stored: &Stored, found: &mut Judgement) -> anyhow::Result<()> {
    if !stored.is_remote() {
        let report = world.db.gc(Duration::ZERO).await?;
        found.check(report.blocked_by.is_none(), || {
            format!("a lock stays: {:?}", report.blocked_by)
        });
    }
    world.db.wait_idle(Some(IDLE_MAX)).await?;
    let locks = world.db.held_locks(NAMED_MAX).await?;
    found
        .check(locks.is_empty(), || format!("{} locks are left: {:?}", locks.len(), locks.first()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Line, Writer};
    use percolator_cli::store::Durability;

    const TRANSFER: Work = Work::Transfer { from: 0, to: 1, amount: 50, counter: 3 };

    /// Judges an empty store with a ledger of this work, which was acknowledged or not.
    fn judged(begun: &[Work], acknowledged: bool) -> Judgement {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = Place::new(dir.path());
        let ledger = Writer::open(&place.ledger()).expect("the ledger opens");
        for (n, work) in begun.iter().enumerate() {
            let id = format!("1-0-{n}");
            let commit = acknowledged.then(|| Line::Commit(id.clone(), 9));
            for line in std::iter::once(Line::Begin(id, *work)).chain(commit) {
                ledger.line(&line).expect("the line is written");
            }
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime
            .block_on(judge(&place, &Stored::OnDisk(Durability::Buffered)))
            .expect("the store is judged")
    }

    fn names(judgement: &Judgement, what: &str) -> bool {
        judgement.named.iter().any(|named| named.contains(what))
    }

    #[test]
    fn what_was_acknowledged_and_is_not_there_is_named() {
        for (work, what) in [
            (TRANSFER, "transfer 1-0-0 was acknowledged"),
            (Work::Blind { row: 4, delete: false }, "blind/row04 has no version"),
            (Work::Source { row: 4, delete: true }, "source/row04 was changed 0 times"),
        ] {
            let judgement = judged(&[work], true);
            assert!(names(&judgement, what), "{:?}", judgement.named);
        }
    }

    #[test]
    fn what_was_never_acknowledged_may_be_missing() {
        let judgement = judged(&[TRANSFER, Work::Blind { row: 4, delete: false }], false);
        // The store has no web site either.
        assert_eq!(judgement.named, ["web index: it holds no documents"]);
        assert_eq!((judgement.begun, judgement.unknown), (2, 2));
    }
}
