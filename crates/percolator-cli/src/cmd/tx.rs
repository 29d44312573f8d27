//! `tx`: runs transactions step by step, from a script.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use percolator::transaction::{Prewritten, PrimaryCommitted};
use percolator::{AbortReason, Error, Percolator, RowKey, Table};
use percolator::{Timestamp, Transaction};
use serde_json::{Value, json};

use crate::cmd::read;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::owner::asked;
use crate::script::{self, Line, Step};
use crate::store::TableArgs;

/// Run transactions from a script, one command a line, and print the result of each.
///
/// The commands are begin, get ROW COL, set ROW COL VALUE, delete ROW COL, scan, scan PREFIX,
/// commit and abort. The paper's steps of a commit are prewrite, commit-primary and
/// commit-secondaries. The command crash ends the process on the spot, so that locks stay behind.
/// A name and a colon before a command (`t1: begin`) tell several transactions apart. A line that
/// begins with `#` is a comment. The value of `set` is the rest of its line. Write a space in a row
/// or column as \x20.
///
/// The exit status is 1 if a commit was aborted. With --json the result of each command is one
/// line.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator tx --data D <<'END'
  begin
  get Bob bal
  set Bob bal $3
  set Joe bal $9
  commit
  END")]
pub(crate) struct Tx {
    /// The script; `-`, or no file, means standard input.
    file: Option<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

impl Tx {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let lines = script::parse(self.text(context)?)?;
        let (db, table) = self.table.open().await?;
        let mut session = Session { db, table, open: BTreeMap::new(), aborted: false };
        for line in lines {
            if context.interrupt.requested() {
                return Ok(Exit::Interrupted);
            }
            let number = line.number;
            let answer = session.run(context, &line).await;
            let Some(answer) = answer.with_context(|| format!("line {number}"))? else {
                return Ok(Exit::Done);
            };
            answer.print(context, &line)?;
        }
        for (name, state) in &session.open {
            context.out.note(&state.left_open(name));
        }
        Ok(if session.aborted { Exit::No } else { Exit::Done })
    }

    fn text<'a>(&self, context: &'a Context) -> anyhow::Result<&'a str> {
        let path = self.file.as_deref().filter(|path| path.as_os_str() != "-");
        context.input.read(path).map_err(|error| {
            let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
            Failure::usage(
                format!("{name}: cannot read the script: {error}"),
                "name a file of commands in UTF-8, or pipe them in; `percolator tx --help` lists \
                 them",
            )
        })
    }
}

/// The transactions of a script.
struct Session {
    db: Percolator,
    table: Table,
    open: BTreeMap<String, State>,
    /// Whether a commit was aborted: the exit status depends on it.
    aborted: bool,
}

/// How far a transaction has come.
enum State {
    Running(Box<Transaction>),
    Prewritten(Prewritten),
    Decided(PrimaryCommitted),
}

impl State {
    fn left_open(&self, name: &str) -> String {
        let who = Session::who(name);
        match self {
            State::Running(_) => format!("{who} was left open: none of its writes was sent"),
            State::Prewritten(_) => {
                format!("{who} was left prewritten: its locks stay until another client finds them")
            }
            State::Decided(tx) => format!(
                "{who} was left without its secondaries: it committed @ {}, and the next client \
                 that finds their locks rolls them forward",
                tx.commit_ts()
            ),
        }
    }

    fn description(&self) -> &'static str {
        match self {
            State::Running(_) => "open",
            State::Prewritten(_) => "prewritten",
            State::Decided(_) => "past its commit point",
        }
    }
}

/// The result of a command, as text and as JSON.
struct Answer {
    text: String,
    json: Value,
}

impl Answer {
    fn new(text: impl Into<String>, json: Value) -> Self {
        Answer { text: text.into(), json }
    }

    fn ok() -> Self {
        Answer::new("ok", json!({ "ok": true }))
    }

    fn committed(commit_ts: Timestamp) -> Self {
        let json = json!({ "commit_ts": commit_ts.as_u64() });
        Answer::new(format!("committed @ {commit_ts}"), json)
    }

    fn print(&self, context: &Context, line: &Line) -> anyhow::Result<()> {
        if context.out.json {
            let mut object = self.json.clone();
            object["line"] = line.number.into();
            object["command"] = line.text.as_str().into();
            if !line.name.is_empty() {
                object["transaction"] = line.name.as_str().into();
            }
            context.out.line(&object.to_string())?;
            return Ok(());
        }
        let name = match line.name.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        context.out.line(&format!("{name}{} -> {}", line.text, self.text))?;
        Ok(())
    }
}

impl Session {
    fn who(name: &str) -> String {
        match name {
            "" => "the transaction".to_owned(),
            name => format!("transaction {name}"),
        }
    }

    /// Runs a command; `None` after a crash.
    async fn run(&mut self, context: &Context, line: &Line) -> anyhow::Result<Option<Answer>> {
        let name = line.name.as_str();
        let answer = match &line.step {
            Step::Begin => self.begin(name).await,
            Step::Get(row, column) => {
                let value = self.running(name)?.get(&self.table, row, column).await?;
                let text = value.as_ref().map_or("not there".to_owned(), keys::text);
                let value = value.as_ref().map(|value| keys::json(value));
                Ok(Answer::new(text, json!({ "value": value })))
            }
            Step::Set(row, column, value) => {
                let table = self.table.clone();
                self.running_mut(name)?.set(&table, row, column, value.clone())?;
                Ok(Answer::ok())
            }
            Step::Delete(row, column) => {
                let table = self.table.clone();
                self.running_mut(name)?.delete(&table, row, column)?;
                Ok(Answer::ok())
            }
            Step::Scan(prefix) => self.scan(name, prefix).await,
            Step::Abort => {
                self.running(name)?;
                self.open.remove(name);
                Ok(Answer::new("aborted", json!({ "ok": true })))
            }
            Step::Commit => {
                let result = self.take_running(name)?.commit().await;
                self.outcome(result.map(Answer::committed))
            }
            Step::Prewrite => {
                let result = self.take_running(name)?.prewrite().await;
                let result = result.map(|tx| self.keep(name, State::Prewritten(tx)));
                self.outcome(result.map(|()| Answer::new("locked", json!({ "ok": true }))))
            }
            Step::CommitPrimary => {
                let State::Prewritten(tx) = self.take(name, "prewrite")? else {
                    return Err(self.wrong_state(name, "prewrite"));
                };
                let result = tx.commit_primary().await.map(|tx| {
                    let commit_ts = tx.commit_ts();
                    self.keep(name, State::Decided(tx));
                    Answer::committed(commit_ts)
                });
                self.outcome(result)
            }
            Step::CommitSecondaries => {
                let State::Decided(tx) = self.take(name, "commit-primary")? else {
                    return Err(self.wrong_state(name, "commit-primary"));
                };
                tx.commit_secondaries().await;
                Ok(Answer::ok())
            }
            Step::Crash => {
                self.crash(context);
                return Ok(None);
            }
        };
        answer.map(Some)
    }

    async fn begin(&mut self, name: &str) -> anyhow::Result<Answer> {
        if let Some(state) = self.open.get(name) {
            return Err(Failure::usage(
                format!("{} is {} already", Session::who(name), state.description()),
                "end that transaction first, or give the new one a name, as in `t2: begin`",
            ));
        }
        let tx = self.db.begin().await?;
        let start_ts = tx.start_ts();
        self.keep(name, State::Running(Box::new(tx)));
        Ok(Answer::new(format!("begun @ {start_ts}"), json!({ "start_ts": start_ts.as_u64() })))
    }

    async fn scan(&self, name: &str, prefix: &RowKey) -> anyhow::Result<Answer> {
        let rows = self.running(name)?.scan(&self.table).prefix(prefix).collect().await?;
        let mut text = format!("{} rows", rows.len());
        for found in &rows {
            for (column, value) in &found.cells {
                text.push_str(&format!("\n  {}\t{column}\t{}", found.row, keys::text(value)));
            }
        }
        let rows: Vec<Value> = rows.iter().map(read::row_json).collect();
        Ok(Answer::new(text, json!({ "rows": rows })))
    }

    /// Turns an abort into a result of the script. Any other error ends the script.
    fn outcome(&mut self, result: Result<Answer, Error>) -> anyhow::Result<Answer> {
        match result {
            Err(Error::Aborted { reason, .. }) => {
                self.aborted = true;
                let conflict = match &reason {
                    AbortReason::Conflict(conflict) => json!({
                        "cell": conflict.cell.to_string(),
                        "winner_start_ts": conflict.winner_start_ts.as_u64(),
                        "winner_commit_ts": conflict.winner_commit_ts.map(Timestamp::as_u64),
                    }),
                    _ => Value::Null,
                };
                let json = json!({ "aborted": reason.to_string(), "conflict": conflict });
                Ok(Answer::new(format!("aborted: {reason}"), json))
            }
            result => Ok(result?),
        }
    }

    fn keep(&mut self, name: &str, state: State) {
        self.open.insert(name.to_owned(), state);
    }

    fn running(&self, name: &str) -> anyhow::Result<&Transaction> {
        match self.open.get(name) {
            Some(State::Running(tx)) => Ok(tx),
            _ => Err(self.wrong_state(name, "begin")),
        }
    }

    fn running_mut(&mut self, name: &str) -> anyhow::Result<&mut Transaction> {
        let error = self.wrong_state(name, "begin");
        match self.open.get_mut(name) {
            Some(State::Running(tx)) => Ok(tx),
            _ => Err(error),
        }
    }

    fn take_running(&mut self, name: &str) -> anyhow::Result<Transaction> {
        self.running(name)?;
        match self.open.remove(name) {
            Some(State::Running(tx)) => Ok(*tx),
            _ => Err(self.wrong_state(name, "begin")),
        }
    }

    fn take(&mut self, name: &str, before: &str) -> anyhow::Result<State> {
        let error = self.wrong_state(name, before);
        self.open.remove(name).ok_or(error)
    }

    /// Returns the error of a command that must come after `before`, and did not.
    fn wrong_state(&self, name: &str, before: &str) -> anyhow::Error {
        let state = self.open.get(name).map_or("not open", State::description);
        Failure::usage(
            format!("{} is {state}", Session::who(name)),
            format!("this command comes after `{before}` of the same transaction"),
        )
    }

    /// Ends the process as a crash does: nothing is cleaned up, and no lock is removed. In a
    /// process that runs the script for another one, only the client of the script ends.
    fn crash(&self, context: &Context) {
        let is_asked = asked::current().is_some();
        let ends = if is_asked { "client" } else { "process" };
        context.out.note(&format!("crash: the {ends} ends here, as the script asked"));
        for (name, state) in &self.open {
            context.out.note(&state.left_open(name));
        }
        if !is_asked {
            std::process::exit(Exit::Done as i32)
        }
    }
}
