//! Runs the sessions of the Figure 4 page. The page has a few accounts in a table of the live
//! store. A visitor can crash a client between any two steps of its commit.
//!
//! Each session is a client of its own, with a liveness token. *Crash* drops that client between
//! two steps. Its locks stay, its token goes, and the next reader resolves the locks. An open
//! transaction holds garbage collection back. So there are few sessions, and a session ends when
//! it has taken no step for a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use percolator::store::sync::locked;
use percolator::transaction::{Prewritten, PrimaryCommitted};
use percolator::{Column, Error, Options, Percolator, Result, Table, Timestamp, Transaction};
use tokio::sync::Mutex as AsyncMutex;

/// The table that the sessions write to.
pub(crate) const TABLE: &str = "percolator-learn";
/// The column of an account's balance, as in the paper.
pub(crate) const BALANCE: Column = Column::literal("bal");
/// The most sessions at a time.
const SESSIONS_MAX: usize = 8;
/// How long a session lives without a step.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a client waits for a lock of another one.
const READ_WAIT_MAX: Duration = Duration::from_secs(2);

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Step {
    Begin,
    Get { row: String },
    Set { row: String, value: String },
    Prewrite,
    CommitPrimary,
    CommitSecondaries,
    Crash,
}

/// A client, and the stage of its transaction.
struct Session {
    db: Percolator,
    at: Stage,
    touched: Instant,
}

enum Stage {
    Idle,
    Open(Box<Transaction>),
    Locked(Prewritten),
    Decided(PrimaryCommitted),
}

/// The sessions.
pub(crate) struct Sessions {
    db: Percolator,
    all: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Each session has a mutex of its own. A client that waits for a lock in the store thus
    /// delays no other session.
    sessions: BTreeMap<u64, Arc<AsyncMutex<Session>>>,
    next: u64,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LearnError {
    #[error("session {0} has ended: it was idle for a minute, or it has crashed")]
    Ended(u64),
    #[error("{SESSIONS_MAX} sessions are open: try again in a minute")]
    Full,
    #[error("{0}")]
    Order(&'static str),
    #[error("{0}")]
    Row(&'static str),
    #[error(transparent)]
    Database(#[from] Error),
}

impl Sessions {
    pub(crate) fn new(db: Percolator) -> Self {
        Sessions { db, all: Mutex::default() }
    }

    /// Ends the sessions that have taken no step for a minute. A session in the middle of a step
    /// stays.
    pub(crate) fn expire(&self) {
        locked(&self.all).sessions.retain(|_, session| {
            session.try_lock().map_or(true, |session| session.touched.elapsed() < IDLE_MAX)
        });
    }

    /// Begins a session: a new client, like that of another process.
    pub(crate) async fn begin(&self) -> std::result::Result<u64, LearnError> {
        self.expire();
        let options = Options { read_wait_max: READ_WAIT_MAX, ..self.db.options().clone() };
        let db = self.db.another_client_with(options, None).await?;
        let session = Session { db, at: Stage::Idle, touched: Instant::now() };
        let mut all = locked(&self.all);
        if all.sessions.len() >= SESSIONS_MAX {
            return Err(LearnError::Full);
        }
        all.next += 1;
        let id = all.next;
        all.sessions.insert(id, Arc::new(AsyncMutex::new(session)));
        Ok(id)
    }

    /// Takes a step, and returns its outcome in words.
    pub(crate) async fn step(
        &self,
        id: u64,
        step: Step,
    ) -> std::result::Result<String, LearnError> {
        if step == Step::Crash {
            // Dropping the client is a crash: locks stay, and the liveness token goes. A step in
            // progress still runs to its end.
            let crashed = locked(&self.all).sessions.remove(&id).ok_or(LearnError::Ended(id))?;
            drop(crashed);
            return Ok("crashed: its locks stay, and its liveness token is gone".to_owned());
        }
        let session = locked(&self.all).sessions.get(&id).cloned();
        let session = session.ok_or(LearnError::Ended(id))?;
        let mut session = session.lock().await;
        session.touched = Instant::now();
        let at = std::mem::replace(&mut session.at, Stage::Idle);
        let (at, answer) = take(&session.db, at, step).await;
        session.at = at;
        answer
    }
}

/// Checks the name of a row, which the visitor has chosen.
fn row_of(row: &str) -> std::result::Result<String, LearnError> {
    let fits = (1..=32).contains(&row.len()) && row.bytes().all(|b| b.is_ascii_alphanumeric());
    if fits {
        Ok(row.to_owned())
    } else {
        Err(LearnError::Row("a row has 1 to 32 letters or digits"))
    }
}

type Taken = (Stage, std::result::Result<String, LearnError>);

async fn take(db: &Percolator, at: Stage, step: Step) -> Taken {
    match (at, step) {
        (Stage::Idle, Step::Begin) => match db.begin().await {
            Ok(tx) => {
                let s = tx.start_ts();
                (Stage::Open(Box::new(tx)), Ok(format!("began: start_ts {s}")))
            }
            Err(error) => (Stage::Idle, Err(error.into())),
        },
        (Stage::Open(mut tx), step @ (Step::Get { .. } | Step::Set { .. })) => {
            let answer = read_or_write(db, &mut tx, step).await;
            (Stage::Open(tx), answer)
        }
        (Stage::Open(tx), Step::Prewrite) => match tx.prewrite().await {
            Ok(locked) => {
                (Stage::Locked(locked), Ok("prewritten: every written cell is locked".to_owned()))
            }
            Err(error) => (Stage::Idle, Err(error.into())),
        },
        (Stage::Locked(locked), Step::CommitPrimary) => match locked.commit_primary().await {
            Ok(decided) => {
                let c = decided.commit_ts();
                let text = format!("committed at {c}: the primary's write record decides");
                (Stage::Decided(decided), Ok(text))
            }
            Err(error) => (Stage::Idle, Err(error.into())),
        },
        (Stage::Decided(decided), Step::CommitSecondaries) => {
            decided.commit_secondaries().await;
            (Stage::Idle, Ok("every lock of the transaction is gone".to_owned()))
        }
        (at, _) => {
            let order = match &at {
                Stage::Idle => "no transaction is open: begin one first",
                Stage::Open(_) => "the transaction is open: get, set, or prewrite",
                Stage::Locked(_) => "the transaction is prewritten: commit the primary, or crash",
                Stage::Decided(_) => "the primary is committed: commit the secondaries, or crash",
            };
            (at, Err(LearnError::Order(order)))
        }
    }
}

async fn read_or_write(
    db: &Percolator,
    tx: &mut Transaction,
    step: Step,
) -> std::result::Result<String, LearnError> {
    let table = db.table(TABLE).await?;
    match step {
        Step::Get { row } => {
            let value = tx.get(&table, row_of(&row)?, &BALANCE).await?;
            let shown = value.map(|value| String::from_utf8_lossy(&value).into_owned());
            Ok(format!("{row} has {}", shown.as_deref().unwrap_or("nothing")))
        }
        Step::Set { row, value } => {
            if value.len() > 64 {
                return Err(LearnError::Row("a value has at most 64 bytes"));
            }
            tx.set(&table, row_of(&row)?, &BALANCE, value.clone())?;
            Ok(format!("{row} will have {value}: only this transaction sees it"))
        }
        _ => Err(LearnError::Order("get or set")),
    }
}

/// Returns the rows of the table, and the timestamp at which they were read. The reads resolve
/// locks, as those of any reader do.
pub(crate) async fn balances(db: &Percolator) -> Result<(Timestamp, Vec<(String, String)>)> {
    let table: Table = db.table(TABLE).await?;
    let snapshot = db.snapshot().await?;
    let mut scan = snapshot.scan(&table).limit(32);
    let mut rows = Vec::new();
    while let Some(row) = scan.next().await? {
        let value = row.get(&BALANCE).map(|value| String::from_utf8_lossy(value).into_owned());
        let key = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
        rows.push((key, value.unwrap_or_default()));
    }
    Ok((snapshot.timestamp(), rows))
}
