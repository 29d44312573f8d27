//! `check`: compares the files of a closed store with what its program wrote. With `--repair` it
//! saves what can be saved.

pub(super) mod records;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bigtable::{Store as _, Timestamp};
use bigtable_fjall::{Checked, FjallStore, Options, Problem, Repair};
use clap::Args;
use percolator::cluster::WindowOracle;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use webindex::SEARCH_DIR;
use webindex::search::SearchIndex;

use crate::cmd::check::records::Records;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{Column, grouped};

/// Check the files of a store that no process has open, or of a backup, and change nothing.
///
/// The command reads every file, compares checksums, and reads every cell from a copy of the
/// store's structure among the temporary files. Without --repair, the exit status is 3 if something
/// is damaged or missing. An unfinished batch at the end of the journal counts: a crash may have
/// left it, and opening the store would cut it off.
///
/// With --repair the command writes what can be saved to a new directory and leaves the old
/// directory unchanged. The exit status is then 0, also if parts were lost, which the output names.
/// With --json one document says what the check found and, under `repaired`, what was lost. A
/// backup cannot be repaired. The timestamps of the new store begin above all timestamps found,
/// so earlier snapshots cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator check D && echo sound
  percolator check D --repair --to NEW")]
pub(crate) struct Check {
    /// The directory of the store, or of a backup.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Write what can be saved to a new store.
    #[arg(long, requires = "to")]
    repair: bool,
    /// The directory for the new store; it must be empty or not exist yet.
    #[arg(long, value_name = "NEW", requires = "repair")]
    to: Option<PathBuf>,
}

impl Check {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (dir, to) = (self.dir.clone(), self.to.clone());
        let out = context.out;
        let (checked, _) = tokio::task::spawn_blocking(move || check(&dir)).await??;
        if !out.json {
            for Problem { path, problem, .. } in &checked.problems {
                out.line(&format!("{}: {problem}", path.display()))?;
            }
            let number = |n: u64| grouped(n);
            let mut rows = vec![
                vec!["journals".to_owned(), number(checked.journals as u64)],
                vec!["files of runs and values".to_owned(), number(checked.files as u64)],
            ];
            let tables = checked.tables.iter();
            rows.extend(
                tables.map(|(name, cells)| vec![format!("cells of {name}"), number(*cells)]),
            );
            out.table(&[Column::left("read"), Column::right("")], rows)?;
        }
        let Some(to) = to else {
            if out.json {
                out.json(&as_json(&checked))?;
            }
            return Ok(match checked.problems.len() {
                0 => Exit::Done,
                count => {
                    out.warn(&format!(
                        "{count} problems were found; for a store, `--repair --to NEW` writes what \
                         can be saved to a new directory; for a backup, make another one"
                    ));
                    Exit::Violated
                }
            });
        };
        let dir = self.dir.clone();
        let note = move |text: &str| out.note(text);
        let repaired = tokio::task::spawn_blocking(move || repair(&dir, &to, note)).await??;
        if out.json {
            let mut all = as_json(&checked);
            all["repaired"] = repaired;
            out.json(&all)?;
        }
        Ok(Exit::Done)
    }
}

fn as_json(checked: &Checked) -> Value {
    json!({
        "problems": problems_as_json(&checked.problems),
        "journals": checked.journals,
        "files": checked.files,
        "tables": checked.tables,
        "newest_timestamp": checked.newest.as_u64(),
        "floor": checked.floor.as_u64(),
    })
}

fn problems_as_json(problems: &[Problem]) -> Value {
    let each = problems.iter().map(|Problem { path, problem, .. }| {
        json!({ "path": path.display().to_string(), "problem": problem })
    });
    each.collect()
}

/// Checks the store's files, its oracles' records, and its search index. Returns the records too,
/// if there are any. Call this from a thread that may block.
fn check(dir: &Path) -> anyhow::Result<(Checked, Option<Records>)> {
    let mut records = None;
    let mut checked = bigtable_fjall::check(dir, |store| {
        match Handle::current().block_on(records::read(store)) {
            Ok(read) => {
                records = read;
                Vec::new()
            }
            Err(error) => {
                vec![Problem::new(dir, format!("the oracle's record cannot be read: {error:#}"))]
            }
        }
    })?;
    let newest = checked.newest.max(checked.floor);
    if let Some(Records { issued, embedded: true }) = records
        && newest > issued
    {
        let problem = format!(
            "the oracle's record allows timestamps up to {issued}, but the store holds timestamp \
             {newest}"
        );
        checked.problems.push(Problem::new(dir, problem));
    }
    let search = SearchIndex::newest(&dir.join(SEARCH_DIR));
    if search.exists() {
        match SearchIndex::damaged_files(&search) {
            Ok(damaged) => checked.problems.extend(damaged.into_iter().map(|file| {
                Problem::new(&search.join(file), "the checksum of the search index does not match")
            })),
            Err(error) => checked.problems.push(Problem::new(&search, error.to_string())),
        }
    }
    Ok((checked, records))
}

/// Writes what can be saved of the store in `dir` to `to`. Reports first what is dropped. Returns
/// what was dropped, rebuilt and saved, as JSON.
fn repair(dir: &Path, to: &Path, note: impl Fn(&str)) -> anyhow::Result<Value> {
    let plan = Repair::plan(dir)?;
    for Problem { path, problem, .. } in plan.dropped() {
        note(&format!("dropped: {}: {problem}", path.display()));
    }
    for Problem { path, problem, .. } in plan.remade() {
        note(&format!("rebuilt: {}: {problem}", path.display()));
    }
    note(&format!("writing what can be saved to {}", to.display()));
    let [dropped, rebuilt] = [plan.dropped(), plan.remade()].map(problems_as_json);
    let saved = plan.write(to)?;
    drop(plan);
    let (checked, records) = check(to).context("checking the repaired store")?;
    let begin = match records {
        Some(records) => Some(begin_above(to, &checked, records)?),
        None => None,
    };
    note(&format!(
        "{} entries were written, {} could not be read",
        grouped(saved.entries),
        grouped(saved.unreadable)
    ));
    note(&match begin {
        Some(above) => format!("timestamps begin above {above}: restart all clients of the store"),
        None => "the store holds no oracle's record, so no timestamps were raised".to_owned(),
    });
    if dir.join(SEARCH_DIR).exists() {
        note(
            "the search index was left out: the next command that opens the web index rebuilds it \
             from the documents",
        );
    }
    Ok(json!({
        "dropped": dropped,
        "rebuilt": rebuilt,
        "entries": saved.entries,
        "unreadable": saved.unreadable,
        "timestamps_above": begin.map(Timestamp::as_u64),
    }))
}

/// Raises the records of a repaired store, so that new timestamps begin above all earlier ones.
/// Returns where they begin. Call this from a thread that may block.
fn begin_above(dir: &Path, checked: &Checked, records: Records) -> anyhow::Result<Timestamp> {
    // In a table server's store, the timestamps of other tables count as well: a start that is
    // too high costs nothing.
    let seen = checked.newest.max(checked.floor).max(records.issued);
    let above = WindowOracle::far_above(seen)?;
    let store = FjallStore::open(dir, Options::default())?;
    let embedded = records.embedded;
    Handle::current().block_on(async {
        records::raise(store.clone(), above).await?;
        // Earlier snapshots may lack what was dropped.
        if embedded { Ok(store.raise_floor(above).await?) } else { anyhow::Ok(()) }
    })?;
    Ok(above)
}
