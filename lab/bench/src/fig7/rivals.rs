//! Runs batch programs in cycles: each cycle takes the documents that arrived during the one
//! before.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use clustering::batch::{Batch, DeltaBatch, Files, RowBatch};
use clustering::{Corpus, Document, KEYS_AT_FIRST, rule};

use super::duckdb::{Carried, DuckDb};
use super::engine::Engine;
use crate::statistics::quantile;
use crate::system;

const CYCLES: usize = 3;
/// Divisor of the repository for the size of a bulk cycle, in programs that read only new
/// documents.
const NEW_PART: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The goals compare ours with this rival.
    Goal,
    /// Another way to do the same in batches.
    Peer,
    /// The goal's rival must not be slower than this, so that ours has no straw man beside it.
    /// Only its highest throughput is measured, without crawl rates.
    Yardstick,
    /// A lower bound on the cost of transactions. Only its highest throughput is measured,
    /// without crawl rates.
    Floor,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Traits {
    pub(super) label: &'static str,
    pub(super) purpose: Purpose,
    /// True if arrived documents stay for the next cycle. Otherwise each cycle begins with the
    /// same repository, whose size stays constant as in the paper.
    pub(super) keeps: bool,
}

impl Traits {
    /// True if the rival is measured at crawl rates.
    pub(super) fn is_swept(self) -> bool {
        matches!(self.purpose, Purpose::Goal | Purpose::Peer)
    }
}

pub(super) struct Rival {
    batch: Box<dyn Batch>,
    pub(super) traits: Traits,
    /// Processor time so far, of the process that does the work.
    cpu: Box<dyn Fn() -> Option<Duration>>,
    corpus: Corpus,
    documents: u64,
    /// The ids of the last cycle's arrivals, or of all arrivals if they stay.
    arrived: Range<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    /// Number of documents that the cycle processed.
    pub(super) documents: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Option<Duration>,
}

impl Cycle {
    pub(super) fn per_second(&self) -> f64 {
        self.documents as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn per_cpu_second(&self) -> Option<f64> {
        Some(self.documents as f64 / self.cpu?.as_secs_f64())
    }
}

#[derive(Debug)]
pub(super) struct Cycled {
    pub(super) per_second: f64,
    /// Seconds from the arrival of each document to the end of the cycle that took it, sorted.
    pub(super) delays: Vec<f64>,
    /// The median of each cycle, sorted.
    pub(super) medians: Vec<f64>,
}

impl Rival {
    pub(super) fn rows(
        dir: &Path,
        corpus: Corpus,
        documents: u64,
        threads: usize,
        files: Files,
    ) -> io::Result<Self> {
        let batch = RowBatch::create(dir, corpus, documents, threads, files)?;
        let (purpose, label) = match files {
            Files::New => {
                (Purpose::Goal, "three passes over rows, bodies carried (MapReduce's way)")
            }
            Files::Over => (Purpose::Peer, "the same, over its old files"),
        };
        Ok(Self::new(batch, Traits { label, purpose, keeps: false }, corpus, documents))
    }

    pub(super) fn delta(dir: &Path, corpus: Corpus, documents: u64) -> io::Result<Self> {
        let label = "batch of new documents alone, tables in memory";
        let traits = Traits { label, purpose: Purpose::Peer, keeps: true };
        Ok(Self::new(DeltaBatch::create(dir, corpus, documents)?, traits, corpus, documents))
    }

    pub(super) fn engine(dir: &Path, corpus: Corpus, documents: u64) -> io::Result<Self> {
        let label = "the same cells straight into the engine, two threads";
        let traits = Traits { label, purpose: Purpose::Floor, keeps: true };
        Ok(Self::new(Engine::create(dir, corpus, documents)?, traits, corpus, documents))
    }

    pub(super) fn duckdb(engine: DuckDb, corpus: Corpus, documents: u64) -> Self {
        let spent = engine.spent();
        let cpu = Box::new(move || spent.lock().ok().map(|spent| *spent));
        let (label, purpose) = match engine.carried {
            Carried::Keys => ("three passes over columns (DuckDB)", Purpose::Peer),
            Carried::Bodies => {
                ("three passes over rows, bodies carried (DuckDB)", Purpose::Yardstick)
            }
        };
        let traits = Traits { label, purpose, keeps: false };
        Rival { cpu, ..Self::new(engine, traits, corpus, documents) }
    }

    /// A batch program in this process.
    fn new(batch: impl Batch + 'static, traits: Traits, corpus: Corpus, documents: u64) -> Self {
        let (batch, cpu) = (Box::new(batch), Box::new(system::cpu_time));
        Rival { batch, traits, cpu, corpus, documents, arrived: documents..documents }
    }

    pub(super) fn name(&self) -> &'static str {
        self.batch.name()
    }

    /// Runs one cycle at full speed over the whole repository. If the rival reads only new
    /// documents, it gets a twentieth of that number.
    pub(super) fn bulk(&mut self) -> io::Result<Cycle> {
        let new = if self.traits.keeps { self.documents / NEW_PART } else { 0 };
        self.cycle(new).map(|(cycle, _)| cycle)
    }

    /// Runs a cycle with this many arrivals. Also returns the time of its end.
    pub(super) fn cycle(&mut self, arrivals: u64) -> io::Result<(Cycle, Instant)> {
        let from = if self.traits.keeps { self.arrived.end } else { self.documents };
        let arriving = from..from + arrivals;
        self.arrived =
            if self.traits.keeps { self.documents..arriving.end } else { arriving.clone() };
        let documents: Vec<Document> = arriving.map(|id| self.corpus.document(id)).collect();
        let (started, cpu) = (Instant::now(), (self.cpu)());
        self.batch.cycle(&documents)?;
        let ended = Instant::now();
        let cpu = (self.cpu)().zip(cpu).map(|(now, then)| now.saturating_sub(then));
        let base = if self.traits.keeps { 0 } else { self.documents };
        Ok((Cycle { documents: base + arrivals, elapsed: ended - started, cpu }, ended))
    }

    /// Runs cycles while documents arrive at a rate, for at least this long and at least three
    /// cycles.
    pub(super) fn cycles(&mut self, per_second: f64, least: Duration) -> io::Result<Cycled> {
        // The documents that arrive during this cycle belong to the first measured one.
        let started = Instant::now();
        let due = |n: u64| Duration::from_secs_f64(n as f64 / per_second);
        self.cycle(0)?;
        let mut taken = 0;
        let (mut delays, mut medians) = (Vec::new(), Vec::new());
        while medians.len() < CYCLES || started.elapsed() < least {
            // Waits until at least one document has arrived.
            std::thread::sleep(due(taken + 1).saturating_sub(started.elapsed()));
            let arrived = (started.elapsed().as_secs_f64() * per_second) as u64;
            let arrived = arrived.max(taken + 1);
            let (_, ended) = self.cycle(arrived - taken)?;
            let ended = ended - started;
            let delay = |n: u64| ended.saturating_sub(due(n + 1)).as_secs_f64();
            let cycle: Vec<f64> = (taken..arrived).rev().map(delay).collect();
            medians.extend(quantile(&cycle, 0.5));
            delays.extend(cycle);
            taken = arrived;
        }
        delays.sort_unstable_by(f64::total_cmp);
        medians.sort_unstable_by(f64::total_cmp);
        Ok(Cycled { per_second, delays, medians })
    }

    /// Number of documents whose cluster differs from the rule's.
    pub(super) fn wrong(&mut self) -> io::Result<u64> {
        let ids = (0..self.documents).chain(self.arrived.clone());
        let documents: Vec<Document> = ids.map(|id| self.corpus.document(id)).collect();
        let expected = rule::passes(&documents, KEYS_AT_FIRST);
        let found = self.batch.clusters()?;
        let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        Ok((wrong + found.len().abs_diff(expected.len())) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_take_what_arrived_before_and_stay_exact() {
        let (dir, corpus) = (tempfile::tempdir().unwrap(), Corpus::new(2000, 1));
        let mut rivals = [
            Rival::rows(&dir.path().join("rows"), corpus, 2000, 2, Files::New).unwrap(),
            Rival::rows(&dir.path().join("over"), corpus, 2000, 2, Files::Over).unwrap(),
            Rival::delta(&dir.path().join("delta"), corpus, 2000).unwrap(),
            Rival::engine(&dir.path().join("engine"), corpus, 2000).unwrap(),
        ];
        for rival in &mut rivals {
            assert!(rival.bulk().unwrap().documents > 0);
            let cycled = rival.cycles(200.0, Duration::from_millis(50)).unwrap();
            assert!(cycled.medians.len() >= CYCLES && cycled.delays.is_sorted());
            assert!(cycled.delays.len() >= CYCLES, "{cycled:?}");
            assert!(cycled.delays[0] > 0.0 && !rival.arrived.is_empty());
            assert_eq!(rival.wrong().unwrap(), 0, "{}", rival.name());
            rival.corpus = Corpus::new(2000, 2);
            assert!(rival.wrong().unwrap() > 0, "{}", rival.name());
        }
    }
}
