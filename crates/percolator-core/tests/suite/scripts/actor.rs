//! Defines an actor of a script: a process with at most one transaction, and the steps of that
//! transaction.

use futures::channel::oneshot::Receiver;
use percolator_core::{
    Column, Error, Prewritten, PrimaryCommitted, Result, RowKey, RowRange, Snapshot, Table,
    Transaction,
};

use crate::world::{Process, number};

/// The state of an actor's transaction.
pub(super) enum State {
    Nothing,
    Open(Transaction),
    Past(Snapshot),
    Prewritten(Prewritten),
    Decided(PrimaryCommitted),
}

/// The result of a step: the new state, the text for the script, and facts for the judgement
/// of anomalies.
pub(super) struct Done {
    pub(super) state: State,
    pub(super) text: String,
    pub(super) facts: Vec<(String, String)>,
}

/// A process and its transaction.
pub(super) struct Actor {
    pub(super) process: Process,
    pub(super) table: Table,
    pub(super) state: State,
    /// A step that is blocked.
    pub(super) pending: Option<Pending>,
}

pub(super) struct Pending {
    pub(super) result: Receiver<Done>,
    pub(super) since: std::time::Duration,
}

/// A step of a transaction.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Begin,
    Snapshot(u64),
    OwnWrites(bool),
    Get(String, String),
    Scan { from: Option<String>, to: Option<String>, divisor: Option<i64> },
    Set(String, String, String),
    Delete(String, String),
    Notify(String, String),
    Prewrite,
    CommitPrimary,
    CommitSecondaries,
    Commit,
}

fn column(name: &str) -> Column {
    Column::new(name.to_owned()).unwrap()
}

fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

impl Step {
    /// Takes the step. The step owns its data, so that it can be dropped half-way.
    pub(super) async fn take(self, process: Process, table: Table, state: State) -> Done {
        match self {
            Step::Begin | Step::Snapshot(_) => self.start(&process).await,
            Step::Get(..) | Step::Scan { .. } => self.read(&table, state).await,
            Step::Prewrite | Step::CommitPrimary | Step::CommitSecondaries | Step::Commit => {
                self.commit(state).await
            }
            Step::OwnWrites(_) | Step::Set(..) | Step::Delete(..) | Step::Notify(..) => {
                self.write(&table, state)
            }
        }
    }

    async fn start(self, process: &Process) -> Done {
        let started = match self {
            Step::Snapshot(ts) => {
                let ts = percolator_core::Timestamp::new(ts).unwrap();
                let snapshot = process.client.snapshot_at(ts).await;
                snapshot.map(|snapshot| (State::Past(snapshot), format!("reads at {ts}")))
            }
            _ => process.client.begin().await.map(|tx| {
                let text = format!("begins at {}", tx.start_ts());
                (State::Open(tx), text)
            }),
        };
        match started {
            Ok((state, text)) => Done { state, text, facts: Vec::new() },
            Err(error) => failed(State::Nothing, &error),
        }
    }

    async fn read(self, table: &Table, state: State) -> Done {
        let read = match (self, &state) {
            (Step::Get(row, column_name), State::Open(_) | State::Past(_)) => {
                let (key, column) = (RowKey::from(row.as_str()), column(&column_name));
                let value = match &state {
                    State::Open(tx) => tx.get(table, key, &column).await,
                    State::Past(snapshot) => snapshot.get(table, key, &column).await,
                    _ => unreachable!("matched above"),
                };
                value.map(|value| {
                    let value = value.map_or("nothing".to_owned(), |value| shown(&value));
                    (format!("{row}.{column} = {value}"), (row, value))
                })
            }
            (Step::Scan { from, to, divisor }, State::Open(_) | State::Past(_)) => {
                let scan = match &state {
                    State::Open(tx) => tx.scan(table),
                    State::Past(snapshot) => snapshot.scan(table),
                    _ => unreachable!("matched above"),
                };
                collect(scan, from, to, divisor).await
            }
            (step, _) => panic!("{step:?} without a transaction"),
        };
        match read {
            Ok((text, fact)) => Done { state, text, facts: vec![fact] },
            Err(error) => failed(state, &error),
        }
    }

    fn write(self, table: &Table, mut state: State) -> Done {
        let State::Open(tx) = &mut state else { panic!("{self:?} without a transaction") };
        let result = match self {
            Step::Set(row, name, value) => tx.set(table, row.as_str(), &column(&name), value),
            Step::Delete(row, name) => tx.delete(table, row.as_str(), &column(&name)),
            Step::Notify(row, name) => tx.notify(table, row.as_str(), &column(&name)),
            Step::OwnWrites(yes) => {
                tx.read_own_writes(yes);
                Ok(())
            }
            step => panic!("{step:?} is no write"),
        };
        match result {
            Ok(()) => Done { state, text: String::new(), facts: Vec::new() },
            Err(error) => failed(state, &error),
        }
    }

    async fn commit(self, state: State) -> Done {
        let result = match (self, state) {
            (Step::Prewrite, State::Open(tx)) => tx
                .prewrite()
                .await
                .map(|prewritten| (State::Prewritten(prewritten), "prewritten".to_owned(), None)),
            (Step::CommitPrimary, State::Prewritten(prewritten)) => {
                prewritten.commit_primary().await.map(|decided| {
                    let text = format!("committed at {}", decided.commit_ts());
                    (State::Decided(decided), text, Some("committed"))
                })
            }
            (Step::CommitSecondaries, State::Decided(decided)) => {
                decided.commit_secondaries().await;
                Ok((State::Nothing, String::new(), None))
            }
            (Step::Commit, State::Open(tx)) => tx.commit().await.map(|commit_ts| {
                (State::Nothing, format!("committed at {commit_ts}"), Some("committed"))
            }),
            (step, _) => panic!("{step:?} out of order"),
        };
        match result {
            Ok((state, text, fact)) => {
                let facts = fact.map(|fact| (String::new(), fact.to_owned()));
                Done { state, text, facts: facts.into_iter().collect() }
            }
            Err(error) => {
                let mut done = failed(State::Nothing, &error);
                let fact = match error {
                    Error::Aborted { .. } => "aborted",
                    Error::Unknown { .. } => "unknown",
                    _ => "failed",
                };
                done.facts.push((String::new(), fact.to_owned()));
                done
            }
        }
    }
}

fn failed(state: State, error: &Error) -> Done {
    Done { state, text: format!("error: {error}"), facts: Vec::new() }
}

/// The rows of a scan, one a line. With a divisor, only rows whose first value is divisible by
/// it.
async fn collect(
    scan: percolator_core::Scan<'_>,
    from: Option<String>,
    to: Option<String>,
    divisor: Option<i64>,
) -> Result<(String, (String, String))> {
    use std::ops::Bound;
    let start = from.map_or(Bound::Unbounded, |from| Bound::Included(RowKey::from(from.as_str())));
    let end = to.map_or(Bound::Unbounded, |to| Bound::Excluded(RowKey::from(to.as_str())));
    let mut rows = scan.range(RowRange { start, end }).collect().await?;
    rows.retain(|row| divisor.is_none_or(|by| number(Some(row.cells[0].1.clone())) % by == 0));
    let lines = rows.iter().map(|row| {
        let cells = row.cells.iter().map(|(column, value)| format!(" {column}={}", shown(value)));
        format!("{}{}", row.row, cells.collect::<String>())
    });
    let text =
        if rows.is_empty() { "nothing".to_owned() } else { lines.collect::<Vec<_>>().join("\n") };
    Ok((text.clone(), ("scan".to_owned(), text.replace('\n', ", "))))
}
