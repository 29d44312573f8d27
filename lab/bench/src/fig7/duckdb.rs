//! Runs DuckDB as a batch program, in a Python process of its own.
//!
//! DuckDB clusters in two ways:
//!
//! * By columns, DuckDB reads only keys: no pass uses the bodies, so they are left out of the
//!   file. That is the strongest recomputation from scratch.
//! * By rows, each pass also reads and writes the bodies, as our row-wise batch does. This way
//!   tests our row-wise batch, which must be at least as fast to be a fair rival.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clustering::batch::Batch;
use clustering::{BODY_BYTES, Corpus, Document, KEYS_AT_FIRST};
use serde_json::{Value, json};

use crate::processes::Driver;

const PROGRAM: &str = include_str!("duckdb.py");
/// Most memory that DuckDB may take.
const MEMORY: &str = "4GB";
/// The remedy if DuckDB is missing.
const REMEDY: &str = "`python3 -m venv duckdb && duckdb/bin/pip install duckdb` gets it; then give \
                      --python duckdb/bin/python";

/// The name of the batch over rows.
pub(super) const ROWS_OF_DUCKDB: &str = "rows of DuckDB";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    Keys,
    Bodies,
}

#[derive(Debug)]
pub(super) struct DuckDb {
    pub(super) carried: Carried,
    driver: Driver,
    dir: PathBuf,
    spent: Arc<Mutex<Duration>>,
}

impl DuckDb {
    /// DuckDB's version, or the reason why it cannot be used and the remedy.
    pub(super) fn version(python: &str) -> Result<String, String> {
        let import = ["-c", "import duckdb; print(duckdb.__version__)"];
        let output = Command::new(python).args(import).stdin(Stdio::null()).output();
        let why = match output {
            Ok(output) if output.status.success() => {
                return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                said.lines().last().unwrap_or("it said nothing").to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(format!("{python}: {why}; {REMEDY}"))
    }

    /// Starts DuckDB with the repository with which each cycle begins.
    pub(super) fn start(
        mut python: Command,
        dir: &Path,
        corpus: Corpus,
        documents: u64,
        threads: usize,
        carried: Carried,
    ) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let body_bytes = if carried == Carried::Bodies { BODY_BYTES } else { 0 };
        python.args(["-c", PROGRAM, &threads.to_string(), MEMORY]);
        python.arg(dir).arg(body_bytes.to_string());
        let driver = Driver::over(python).map_err(io::Error::other)?;
        let mut engine = DuckDb { carried, driver, dir: dir.to_owned(), spent: Arc::default() };
        let csv = engine.file("base.csv");
        write_csv(&csv, (0..documents).map(|id| corpus.document(id)))?;
        engine.ask(&json!({ "base": csv, "parquet": engine.file("base.parquet") }))?;
        Ok(engine)
    }

    /// The processor time spent until its last answer.
    pub(super) fn spent(&self) -> Arc<Mutex<Duration>> {
        self.spent.clone()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn ask(&mut self, request: &Value) -> io::Result<()> {
        let answer = self.driver.ask(request).map_err(io::Error::other)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(io::Error::other(format!("DuckDB: {error}")));
        }
        if let (Some(cpu), Ok(mut spent)) = (answer["cpu"].as_f64(), self.spent.lock()) {
            *spent = Duration::try_from_secs_f64(cpu).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Batch for DuckDb {
    fn name(&self) -> &'static str {
        match self.carried {
            Carried::Keys => "columns",
            Carried::Bodies => ROWS_OF_DUCKDB,
        }
    }

    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()> {
        let csv = self.file("arrivals.csv");
        write_csv(&csv, arrivals.iter().copied())?;
        let given = (!arrivals.is_empty()).then_some(csv);
        self.ask(&json!({ "cycle": given, "out": self.file("clusters.parquet") }))
    }

    fn clusters(&mut self) -> io::Result<Vec<u64>> {
        let csv = self.file("clusters.csv");
        self.ask(&json!({ "read": self.file("clusters.parquet"), "csv": csv }))?;
        let number = |line: io::Result<String>| line?.trim().parse().map_err(io::Error::other);
        BufReader::new(File::open(csv)?).lines().map(number).collect()
    }
}

fn write_csv(path: &Path, documents: impl Iterator<Item = Document>) -> io::Result<()> {
    let mut csv = BufWriter::new(File::create(path)?);
    for Document { id, keys } in documents {
        write!(csv, "{id}")?;
        for key in &keys[..KEYS_AT_FIRST] {
            write!(csv, ",{key}")?;
        }
        writeln!(csv)?;
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use clustering::rule;

    use super::*;

    #[test]
    fn a_missing_rival_is_named_with_the_remedy() {
        let error = DuckDb::version("/nonexistent/python").unwrap_err();
        assert!(error.contains("/nonexistent/python") && error.contains("pip install"), "{error}");
    }

    /// A module in the place of DuckDB that draws on stdout, as DuckDB does during long
    /// queries.
    #[test]
    fn what_is_drawn_on_stdout_is_no_answer() {
        const DRAWS: &str = "import os\nclass Error(Exception): pass\n\
            class connect:\n    def execute(self, *given): os.write(1, b'\\r 82% drawn')\n";
        if Command::new("python3").arg("--version").output().is_err() {
            let _ = writeln!(std::io::stderr(), "SKIPPED: there is no python3");
            return;
        }
        let (dir, corpus) = (tempfile::tempdir().unwrap(), Corpus::new(3, 1));
        fs::write(dir.path().join("duckdb.py"), DRAWS).unwrap();
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", dir.path());
        let mut engine =
            DuckDb::start(python, &dir.path().join("data"), corpus, 3, 1, Carried::Keys).unwrap();
        engine.cycle(&[]).unwrap();
        assert!(*engine.spent.lock().unwrap() > Duration::ZERO);
    }

    #[test]
    fn it_agrees_with_the_rule() {
        let python = std::env::var("PERCOLATOR_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        if let Err(why) = DuckDb::version(&python) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
            return;
        }
        for carried in [Carried::Keys, Carried::Bodies] {
            let (dir, corpus) = (tempfile::tempdir().unwrap(), Corpus::new(3000, 4));
            let command = Command::new(&python);
            let mut engine = DuckDb::start(command, dir.path(), corpus, 3000, 2, carried).unwrap();
            for arrivals in [0, 500, 1] {
                let arrivals: Vec<_> =
                    (3000..3000 + arrivals).map(|id| corpus.document(id)).collect();
                engine.cycle(&arrivals).unwrap();
                let base = (0..3000).map(|id| corpus.document(id));
                let all: Vec<Document> = base.chain(arrivals).collect();
                assert_eq!(engine.clusters().unwrap(), rule::passes(&all, 3), "{carried:?}");
            }
            assert!(*engine.spent.lock().unwrap() > Duration::ZERO);
            let clusters = fs::metadata(engine.file("clusters.parquet")).unwrap().len();
            let bodies = 3001 * BODY_BYTES as u64;
            assert_eq!(clusters > bodies, carried == Carried::Bodies, "{clusters} bytes");
            let error = engine.ask(&json!({ "read": "/nonexistent", "csv": "x" })).unwrap_err();
            assert!(error.to_string().starts_with("DuckDB: "), "{error}");
        }
    }
}
