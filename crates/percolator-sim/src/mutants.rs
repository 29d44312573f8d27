//! Switching off one defence after the other, to see that each is missed.
//!
//! The switches exist only in a build with `--cfg mutants`, which this command makes for itself, in a
//! target directory of its own. A mutant goes through random seeds, then through all crash points,
//! then through the small models, until something is found wrong; what none of them can see has a test
//! of its own. A run that does not end within its time counts as found.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use percolator_core::mutants::Mutant;

/// How long one child may take.
const CHILD_MAX: Duration = Duration::from_secs(120);
/// The variable by which the tests of the core are told which defence is off.
const TEST_VARIABLE: &str = "PERCOLATOR_MUTANT";

/// By what means a mutant is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Means {
    /// Random seeds.
    Seeds,
    /// Every crash point.
    CrashPoints,
    /// The small models.
    Models,
}

/// How a mutant was caught.
#[derive(Debug, Clone)]
struct Caught {
    by: String,
    /// How many seeds it took; `None` when no seed did.
    seeds: Option<u64>,
}

/// The build with the switches.
struct Build {
    workspace: PathBuf,
    target: PathBuf,
    flags: String,
}

/// Goes through all mutants and prints the table; whether every one was caught, and nothing was found
/// with every defence in place.
pub(crate) fn run(seeds: u64) -> anyhow::Result<bool> {
    let build = Build::new()?;
    build.cargo(&["build", "-p", "percolator-sim"], None)?;
    if let Some(caught) = build.look(None, Means::Seeds, seeds)? {
        println!("with every defence in place: {} within {:?} seeds", caught.by, caught.seeds);
        return Ok(false);
    }
    println!("with every defence in place: nothing found in {seeds} seeds");
    let results = build.catch_all(seeds)?;
    println!("{:<10}{:<30}{:<34}seeds", "hazard", "mutant", "caught by");
    for (mutant, caught) in Mutant::ALL.iter().zip(&results) {
        let by = caught.as_ref().map_or("NOTHING", |caught| &caught.by);
        let count = caught.as_ref().and_then(|caught| caught.seeds);
        let count = count.map_or("-".to_owned(), |count| count.to_string());
        println!("{:<10}{:<30}{by:<34}{count}", mutant.hazards, mutant.name);
    }
    let caught = results.iter().flatten().count();
    println!("mutants {}, caught {caught}", results.len());
    Ok(caught == results.len())
}

impl Build {
    fn new() -> anyhow::Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let own = std::env::current_exe().context("where this program lies")?;
        let target = own.ancestors().nth(2).context("a program outside a target directory")?;
        let given = std::env::var("RUSTFLAGS").unwrap_or_default();
        let flags = format!("{given} --cfg mutants").trim().to_owned();
        Ok(Build { workspace, target: target.join("mutants"), flags })
    }

    /// Runs cargo, quietly unless it fails.
    fn cargo(&self, arguments: &[&str], mutant: Option<&Mutant>) -> anyhow::Result<()> {
        let (command, rest) = arguments.split_first().context("no command for cargo")?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.workspace).env("RUSTFLAGS", &self.flags);
        cargo.arg(command).args(["--release", "--target-dir"]).arg(&self.target).args(rest);
        match mutant {
            Some(mutant) => cargo.env(TEST_VARIABLE, mutant.name),
            None => cargo.env_remove(TEST_VARIABLE),
        };
        let output = cargo.output().context("running cargo")?;
        if !output.status.success() {
            let (out, err) = (&output.stdout, &output.stderr);
            let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].concat();
            bail!("cargo {}: {text}", arguments.join(" "));
        }
        Ok(())
    }

    /// Looks for every mutant, several at once.
    fn catch_all(&self, seeds: u64) -> anyhow::Result<Vec<Option<Caught>>> {
        let results = Mutex::new(vec![None; Mutant::ALL.len()]);
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let jobs = std::thread::available_parallelism()?.get();
        let work = || {
            while let Some(mutant) = Mutant::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                let index = Mutant::ALL.iter().position(|other| other == mutant);
                match self.catch(mutant, seeds) {
                    Ok(caught) => {
                        if let (Some(index), Ok(mut results)) = (index, results.lock()) {
                            results[index] = caught;
                        }
                    }
                    Err(error) => failure.lock().map_or((), |mut slot| *slot = Some(error)),
                }
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
        match failure.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(results.into_inner().unwrap_or_default()),
        }
    }

    fn catch(&self, mutant: &Mutant, seeds: u64) -> anyhow::Result<Option<Caught>> {
        for means in [Means::Seeds, Means::CrashPoints, Means::Models] {
            // One that has a test of its own need not be waited for as long.
            let seeds = if mutant.test.is_some() { seeds / 4 } else { seeds };
            if mutant.test.is_some() && means == Means::Models {
                continue;
            }
            if let Some(caught) = self.look(Some(mutant), means, seeds)? {
                return Ok(Some(caught));
            }
        }
        let Some(test) = mutant.test else { return Ok(None) };
        let arguments = ["test", "-p", "percolator-core", "--test", "suite", test];
        // The test must pass before its failure says anything.
        self.cargo(&arguments, None)?;
        let failed = self.cargo(&arguments, Some(mutant)).is_err();
        let by = format!("test {}", test.split('_').next().unwrap_or(test));
        Ok(failed.then_some(Caught { by, seeds: None }))
    }

    /// Runs a child that looks for one mutant by one means.
    fn look(
        &self,
        mutant: Option<&Mutant>,
        means: Means,
        seeds: u64,
    ) -> anyhow::Result<Option<Caught>> {
        let mut command = Command::new(self.target.join("release/percolator-sim"));
        command.arg("run-mutant").args(["--seeds", &seeds.to_string()]);
        let name = means.to_possible_value().context("a means without a name")?;
        command.args(["--means", name.get_name()]);
        if let Some(mutant) = mutant {
            command.args(["--mutant", mutant.name]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if mutant.is_some() && started.elapsed() > CHILD_MAX {
                child.kill()?;
                child.wait()?;
                return Ok(Some(Caught {
                    by: format!("no end, {}", name.get_name()),
                    seeds: None,
                }));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut text = String::new();
        child.stdout.take().context("a child without output")?.read_to_string(&mut text)?;
        match text.lines().last().and_then(|line| line.split_once('\t')) {
            Some(("", _)) if status.success() => Ok(None),
            Some((by, count)) if status.success() => {
                Ok(Some(Caught { by: by.to_owned(), seeds: count.parse().ok() }))
            }
            _ => bail!("{command:?} ended with {status}: {text}"),
        }
    }
}

/// What the child does: looks for one mutant, and prints on one line what found it.
#[cfg(mutants)]
pub(crate) fn look(mutant: Option<&str>, means: Means, seeds: u64) -> anyhow::Result<bool> {
    if let Some(name) = mutant
        && !percolator_core::mutants::switch_off(name)
    {
        bail!("there is no mutant {name}");
    }
    // A panic is a finding like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let (by, count) = match means {
        Means::Seeds => look_by_seeds(seeds),
        Means::CrashPoints => {
            let found = guarded(|| percolator_sim::crash_points::first(&mut std::io::sink()));
            (label("crash points", found), None)
        }
        Means::Models => {
            let found = guarded(|| percolator_sim::model::violations(&mut std::io::sink()));
            (label("models", found), None)
        }
    };
    println!("{by}\t{}", count.map_or("-".to_owned(), |count| count.to_string()));
    Ok(true)
}

#[cfg(mutants)]
fn look_by_seeds(seeds: u64) -> (String, Option<u64>) {
    for seed in 0..seeds {
        let property = match guarded(|| percolator_sim::run_seed(seed, false)) {
            Some(report) => report.findings.first().map(|finding| finding.property),
            None => Some("panic"),
        };
        if let Some(property) = property {
            return (property.to_owned(), Some(seed + 1));
        }
    }
    (String::new(), Some(seeds))
}

/// `None` when it panics.
#[cfg(mutants)]
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok()
}

#[cfg(mutants)]
fn label(means: &str, found: Option<std::io::Result<usize>>) -> String {
    match found {
        Some(Ok(0)) => String::new(),
        Some(Ok(_)) => means.to_owned(),
        Some(Err(_)) => format!("{means}: no recovery"),
        None => format!("{means}: panic"),
    }
}
