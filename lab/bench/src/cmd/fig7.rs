//! `percolator-bench fig7`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;
use percolator_cli::store::Durability;

use crate::fig7::{self, Served, Settings};

use super::common::Common;

/// The smallest and the largest repository.
const DOCUMENTS: (u64, u64) = (10_000, 20_000_000);

/// How often throughput is measured: fewer rounds are too few for a median with an interval.
const ROUNDS: usize = 10;

/// A repository of documents clustered as they arrive, against batches (the paper's Figure 7).
///
/// Delays at crawl rates up to where documents arrive faster than they are clustered; how many
/// documents a second at most, in turns with the batch programs; and what a fourth clustering key
/// costs that is added to the running repository. Every run ends with a comparison of all clusters
/// with what the rule says. Exit status 3, and no result, when one differs or when the generator of
/// arrivals was late.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig7 --quick --out results
  percolator-bench fig7 --python duckdb/bin/python --json --out results")]
pub(crate) struct Fig7 {
    #[command(flatten)]
    common: Common,
    /// How many documents the repository begins with [default: 2000000, or 100000 with --quick].
    #[arg(long, value_name = "N")]
    documents: Option<u64>,
    /// The longest time at one crawl rate, in seconds [default: 60, or 4 with --quick].
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// How often everyone has a turn.
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
    /// When a commit counts as durable. The batches are never synced.
    #[arg(long, value_enum, default_value = "buffered", value_name = "LEVEL")]
    durability: Durability,
    /// How many documents are clustered at a time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    workers: usize,
    /// How many documents are written at a time when it is to go as fast as it can.
    #[arg(long, value_name = "N", default_value_t = 16)]
    loaders: u64,
    /// A Python with the module `duckdb`, for the batch over columns.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Where the data goes, 5 KB for each document at most; it is removed at the end.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Fig7 {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let data = self.data.as_deref();
        let dir = match data {
            Some(parent) => tempfile::Builder::new().prefix("fig7-").tempdir_in(parent),
            None => tempfile::Builder::new().prefix("percolator-fig7-").tempdir(),
        };
        let dir = dir.map_err(|error| {
            let place = data.map_or("the temporary directory".into(), Path::to_string_lossy);
            Failure::usage(
                format!("{place}: {error}"),
                "name a directory that is there with --data",
            )
        })?;
        let settings = self.settings(dir.path().to_owned())?;
        self.common.prepare(context)?;
        let Some(result) = fig7::run(context, &settings).await? else {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        };
        let json = fig7::json(&settings, &result);
        self.common.write("fig7", &json, fig7::plots(&settings, &result))?;
        if context.out.json {
            context.out.json(&json)?
        } else {
            fig7::print(context.out, &settings, &result)?
        }
        for missing in &result.missing {
            context.out.warn(&format!("left out: {missing}"));
        }
        let broken: Vec<String> =
            result.broken().map(|c| format!("\n  {}: {}", c.name, c.found)).collect();
        if !broken.is_empty() {
            return Err(Failure::error(
                Exit::Violated,
                format!("the figures are void:{}", broken.concat()),
                "a late generator wants an idle machine; anything else please report, with the settings",
            ));
        }
        Ok(Exit::Done)
    }

    fn settings(&self, dir: PathBuf) -> anyhow::Result<Settings> {
        let Common { quick, seed, .. } = self.common;
        let documents = self.documents.unwrap_or(self.common.sized(100_000, 2_000_000));
        let seconds = self.seconds.unwrap_or(self.common.sized(4.0, 60.0));
        let rounds = self.rounds;
        let (least, most) = DOCUMENTS;
        let range = |what: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let range = format!("give {} to {}", grouped(least as u64), grouped(most as u64));
            Err(Failure::usage(format!("{what} {value}"), range))
        };
        range("--documents", documents as f64, least as f64, most as f64)?;
        range("--seconds", seconds, 0.1, 3600.0)?;
        range("--rounds", rounds as f64, 1.0, 1000.0)?;
        range("--workers", self.workers as f64, 1.0, 1024.0)?;
        range("--loaders", self.loaders as f64, 1.0, 1024.0)?;
        Ok(Settings {
            documents,
            served: Served {
                durability: self.durability,
                workers: self.workers,
                loaders: self.loaders,
            },
            rounds,
            window: Duration::from_secs_f64(seconds),
            warm: Duration::from_secs_f64(self.common.sized(1.0_f64, 5.0).min(seconds / 2.0)),
            python: self.python.clone(),
            seed,
            quick,
            dir,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn settings_depend_on_quick_and_are_checked() {
        let settings = |line: &str| {
            let command = Fig7::augment_args(Command::new("fig7").no_binary_name(true));
            let matches = command.try_get_matches_from(line.split_whitespace()).unwrap();
            Fig7::from_arg_matches(&matches).unwrap().settings(PathBuf::from("d"))
        };
        let quick = settings("--quick").unwrap();
        assert_eq!((quick.documents, quick.rounds, quick.window.as_secs()), (100_000, 10, 4));
        let full = settings("").unwrap();
        assert_eq!((full.documents, full.rounds, full.window.as_secs()), (2_000_000, 10, 60));
        assert_eq!(settings("--quick --documents 20000").unwrap().documents, 20_000);
        for (wrong, names) in [
            ("--documents 9999", "--documents 9999"),
            ("--seconds 0.05", "--seconds 0.05"),
            ("--seconds nan", "--seconds NaN"),
            ("--rounds 0", "--rounds 0"),
            ("--workers 0", "--workers 0"),
            ("--loaders 2000", "--loaders 2000"),
        ] {
            assert!(settings(wrong).unwrap_err().to_string().contains(names), "{wrong}");
        }
    }
}
