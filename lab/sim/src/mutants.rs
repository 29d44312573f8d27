//! Switches off one defence after the other, to see that a check notices the loss of each.
//!
//! The switches exist only in a build with `--cfg mutants`, which this command makes for itself,
//! in a target directory of its own. Random runs seldom catch certain mutants. Such a mutant
//! names a test, and the command looks for it with that test alone. All mutants of the store on
//! disk name a test, because the simulator runs no line of that store. Every other mutant goes
//! through random seeds, then through all crash points, then through the small models, until a
//! check finds something.
//!
//! A finding, a panic, or a case without recovery counts as a catch. A world that cannot start
//! because of the mutant shows nothing. A difference between `explain` and a read shows nothing
//! either, because `explain` has no such switch. A search that exceeds its time is an error. A test
//! that exceeds its time has failed, since it takes milliseconds with every defence in place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bigtable::mutants::Mutant;
use bigtable::sync::locked;
use clap::ValueEnum;
#[cfg(mutants)]
use percolator_sim::{check::property, history::Finding};

/// The time limit of one child process.
const CHILD_MAX: Duration = Duration::from_secs(600);
/// How many of the properties that fail in a seed are named.
#[cfg(mutants)]
const PROPERTIES_MAX: usize = 3;
/// The time limit of a test; with every defence in place hardly any takes a second.
const TEST_MAX: Duration = Duration::from_secs(30);
/// The environment variable that names the defence to switch off in a test.
const TEST_VARIABLE: &str = "PERCOLATOR_MUTANT";
/// The environment variable that gives a test a store like HBase.
const STORE_VARIABLE: &str = "PERCOLATOR_LIKE_HBASE";

/// A crate whose defences can be switched off.
struct Mutated {
    package: &'static str,
    /// The arguments for cargo that select the crate's tests.
    targets: &'static [&'static str],
    mutants: &'static [Mutant],
}

const CRATES: [Mutated; 3] = [
    Mutated {
        package: "percolator-core",
        targets: &["--lib", "--test", "suite"],
        mutants: percolator_core::mutants::ALL,
    },
    Mutated {
        package: "bigtable-fjall",
        targets: &["--lib", "--test", "suite"],
        mutants: bigtable_fjall::mutants::ALL,
    },
    // The simulator's mutants name no tests.
    Mutated { package: "percolator-sim", targets: &[], mutants: percolator_sim::mutated::ALL },
];

/// Mutants of defences against what a store like HBase does not have, with its name.
const NOT_LIKE_HBASE: [(&str, &str); 7] = [
    ("collected-means-aborted", "a floor"),
    ("long-value-below-floor", "a floor"),
    ("prewrite-below-floor", "a floor"),
    ("read-below-floor", "a floor"),
    ("idle-over-pending", "commits in one step"),
    ("unknown-step-means-aborted", "commits in one step"),
    ("notify-apart-after-commit", "notifications in tables of their own"),
];

/// A means of looking for a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Means {
    /// Random seeds.
    Seeds,
    /// Random seeds whose store is like HBase.
    SeedsLikeHbase,
    /// Every crash point.
    CrashPoints,
    /// The small models.
    Models,
}

impl Means {
    /// The means that look for a mutant without a test, one after the other.
    const USUAL: [Means; 3] = [Means::Seeds, Means::CrashPoints, Means::Models];
}

/// How a mutant was caught.
#[derive(Debug, Clone)]
struct Caught {
    by: String,
    /// How many seeds it took; `None` if no seed caught it.
    seeds: Option<u64>,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    Passed,
    Failed,
    /// The test was still running at its time limit.
    NoEnd,
}

/// The build that has the switches.
struct Build {
    workspace: PathBuf,
    target: PathBuf,
    flags: String,
    /// The programs with the tests of each crate, in the order of [`CRATES`].
    tests: Vec<Vec<PathBuf>>,
    /// The means that were checked to find nothing with every defence in place.
    unmutated: Mutex<BTreeMap<Means, ()>>,
}

/// Goes through the named mutants, or all if none is named. Prints a table, each row as soon
/// as it is known. Returns true if every mutant was caught; an error if something was found
/// with every defence in place. With `like_hbase` it looks for them over stores like HBase: with
/// their tests that pass over such a store, and else in seeds.
pub(crate) fn run(seeds: u64, only: &[String], like_hbase: bool) -> anyhow::Result<bool> {
    let started = Instant::now();
    let all =
        || CRATES.iter().enumerate().flat_map(|(of, c)| c.mutants.iter().map(move |m| (of, m)));
    if let Some(unknown) = only.iter().find(|name| all().all(|(_, mutant)| mutant.name != **name)) {
        bail!("there is no mutant {unknown}; docs/hazards.md names them all");
    }
    // The simulator runs no line of the store on disk.
    let on_disk = |of: usize| CRATES[of].package == "bigtable-fjall";
    let chosen = |mutant: &Mutant| only.is_empty() || only.iter().any(|name| name == mutant.name);
    let lacks = |mutant: &Mutant| NOT_LIKE_HBASE.iter().find(|(name, _)| *name == mutant.name);
    let wanted: Vec<_> = all()
        .filter(|(_, mutant)| chosen(mutant))
        .filter(|(of, mutant)| !like_hbase || !on_disk(*of) && lacks(mutant).is_none())
        .collect();
    let mut build = Build::new()?;
    build.make()?;
    println!("built after {:.0} s", started.elapsed().as_secs_f64());
    println!("{:<10}{:<30}{:<66}seeds", "hazard", "mutant", "caught by");
    for (name, what) in NOT_LIKE_HBASE.iter().filter(|_| like_hbase) {
        println!("{:<10}{name:<30}left out: a store like HBase does not have {what}", "");
    }
    std::io::stdout().flush()?;
    let means: &[Means] = if like_hbase { &[Means::SeedsLikeHbase] } else { &Means::USUAL };
    let caught = build.catch_all(&wanted, seeds, means)?;
    println!("mutants {}, caught {caught}", wanted.len());
    println!("{:.0} s", started.elapsed().as_secs_f64());
    Ok(caught == wanted.len())
}

fn print_row(mutant: &Mutant, caught: Option<&Caught>) -> std::io::Result<()> {
    let by = caught.map_or("NOTHING", |caught| &caught.by);
    let count = caught.and_then(|caught| caught.seeds);
    let count = count.map_or("-".to_owned(), |count| count.to_string());
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<10}{:<30}{by:<66}{count}", mutant.hazards, mutant.name)?;
    out.flush()
}

impl Build {
    fn new() -> anyhow::Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let own = std::env::current_exe().context("finding this program's own file")?;
        let target =
            own.ancestors().nth(2).context("this program is not in cargo's target directory")?;
        let given = std::env::var("RUSTFLAGS").unwrap_or_default();
        let flags = format!("{given} --cfg mutants").trim().to_owned();
        let target = target.join("mutants");
        let (tests, unmutated) = (Vec::new(), Mutex::default());
        Ok(Build { workspace, target, flags, tests, unmutated })
    }

    /// Builds the simulator and the tests with the switches.
    fn make(&mut self) -> anyhow::Result<()> {
        self.cargo(&["build", "-p", "percolator-sim"])?;
        for Mutated { package, targets, .. } in CRATES.iter().filter(|c| !c.targets.is_empty()) {
            let arguments = [&["test", "-p", package], *targets, &["--no-run"]].concat();
            let text = self.cargo(&arguments)?;
            let executable = |line: &str| {
                let (_, path) = line.trim().strip_prefix("Executable ")?.split_once('(')?;
                Some(self.workspace.join(path.strip_suffix(')')?))
            };
            let programs: Vec<_> = text.lines().filter_map(executable).collect();
            if programs.is_empty() {
                bail!("cargo reported no test programs of {package}");
            }
            self.tests.push(programs);
        }
        Ok(())
    }

    /// Runs cargo, quietly unless it fails. Returns its messages.
    fn cargo(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let (command, rest) = arguments.split_first().context("no command for cargo")?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.workspace).env("RUSTFLAGS", &self.flags);
        cargo.arg(command).args(["--release", "--target-dir"]).arg(&self.target).args(rest);
        let output = cargo.output().context("running cargo")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("cargo {}: {text}", arguments.join(" "));
        }
        Ok(text)
    }

    /// Looks for several mutants at a time, each given with the position of its crate. Returns
    /// how many were caught.
    fn catch_all(
        &self,
        wanted: &[(usize, &'static Mutant)],
        seeds: u64,
        means: &[Means],
    ) -> anyhow::Result<usize> {
        let (next, caught) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let failure = Mutex::new(None);
        let jobs = std::thread::available_parallelism()?.get();
        let work = || {
            while let Some((of, mutant)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = self.catch(*of, mutant, seeds, means).and_then(|result| {
                    caught.fetch_add(usize::from(result.is_some()), Ordering::Relaxed);
                    Ok(print_row(mutant, result.as_ref())?)
                });
                if let Err(error) = result {
                    next.store(wanted.len(), Ordering::Relaxed);
                    *locked(&failure) = Some(error);
                }
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(caught.into_inner()),
        }
    }

    fn catch(
        &self,
        of: usize,
        mutant: &Mutant,
        seeds: u64,
        means: &[Means],
    ) -> anyhow::Result<Option<Caught>> {
        let like_hbase = means == [Means::SeedsLikeHbase];
        if let Some(test) = mutant.test {
            match self.catch_by_test(of, mutant, test, like_hbase)? {
                // The test may need a floor. Seeds may catch its mutant.
                None if like_hbase => {}
                caught => return Ok(caught),
            }
        }
        for means in means.iter().copied() {
            self.expect_nothing(means, seeds)?;
            if let Some(caught) = self.look(Some(mutant), means, seeds)? {
                return Ok(Some(caught));
            }
        }
        Ok(None)
    }

    /// Looks for a mutant with its test.
    fn catch_by_test(
        &self,
        of: usize,
        mutant: &Mutant,
        test: &str,
        like_hbase: bool,
    ) -> anyhow::Result<Option<Caught>> {
        // The test must pass with every defence in place, or its failure would prove nothing.
        if self.run_test(of, test, None, like_hbase)? != Tested::Passed {
            if like_hbase {
                return Ok(None);
            }
            bail!("{test} does not pass with every defence in place");
        }
        let by = match self.run_test(of, test, Some(mutant), like_hbase)? {
            Tested::Passed => return Ok(None),
            Tested::Failed => "test",
            Tested::NoEnd => "no end of test",
        };
        let by = format!("{by} {}", test.split('_').next().unwrap_or(test));
        Ok(Some(Caught { by, seeds: None }))
    }

    /// Runs a test of a crate, with one defence off or with none.
    fn run_test(
        &self,
        of: usize,
        test: &str,
        mutant: Option<&Mutant>,
        like_hbase: bool,
    ) -> anyhow::Result<Tested> {
        let package = CRATES[of].package;
        let directory = self.workspace.join("crates").join(package);
        let mut holding = None;
        for program in &self.tests[of] {
            let mut command = Command::new(program);
            command.current_dir(&directory).args([test, "--list"]);
            let list = command.output().with_context(|| format!("listing {package}'s tests"))?;
            if String::from_utf8_lossy(&list.stdout).contains(test) {
                holding = Some(program);
            }
        }
        let Some(program) = holding else { bail!("{package} has no test {test}") };
        let mut command = Command::new(program);
        command.current_dir(&directory).arg(test);
        match mutant {
            Some(mutant) => command.env(TEST_VARIABLE, mutant.name),
            None => command.env_remove(TEST_VARIABLE),
        };
        command.env_remove(STORE_VARIABLE);
        if like_hbase {
            command.env(STORE_VARIABLE, "");
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(match ends_within(&mut child, TEST_MAX)? {
            Some(status) if status.success() => Tested::Passed,
            Some(_) => Tested::Failed,
            None => Tested::NoEnd,
        })
    }

    /// Makes sure, once, that a means finds nothing with every defence in place.
    fn expect_nothing(&self, means: Means, seeds: u64) -> anyhow::Result<()> {
        let mut unmutated = locked(&self.unmutated);
        if let Entry::Vacant(unknown) = unmutated.entry(means) {
            if let Some(Caught { by, .. }) = self.look(None, means, seeds)? {
                bail!("a check found something with every defence in place: {by}");
            }
            unknown.insert(());
        }
        Ok(())
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
        let Some(status) = ends_within(&mut child, CHILD_MAX)? else {
            bail!("{command:?} did not end within {CHILD_MAX:?}");
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

/// Waits for a child, and kills it at the time limit.
fn ends_within(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Switches off the defence with this name, if a name is given.
#[cfg(mutants)]
pub(crate) fn switch_off(mutant: Option<&str>) -> anyhow::Result<()> {
    match mutant {
        Some(name)
            if !percolator_sim::mutated::switch_off(name)
                && !percolator_core::mutants::switch_off(name)
                && !bigtable_fjall::mutants::switch_off(name) =>
        {
            bail!("there is no mutant {name}")
        }
        _ => Ok(()),
    }
}

/// Looks for one mutant, in the child process, and prints on one line what caught it. Findings
/// go to standard error in words.
#[cfg(mutants)]
pub(crate) fn look(mutant: Option<&str>, means: Means, seeds: u64) -> anyhow::Result<bool> {
    switch_off(mutant)?;
    // A panic is a finding like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let (by, count) = match means {
        Means::Seeds => look_by_seeds(0..seeds),
        Means::SeedsLikeHbase => {
            let like_hbase = (0..).filter(|seed| percolator_sim::is_like_hbase(*seed));
            look_by_seeds(like_hbase.take(seeds as usize))
        }
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

/// Stops at the first seed with a finding, and names properties that fail in it. A world that
/// did not reach its storm does not count.
#[cfg(mutants)]
#[allow(clippy::print_stderr, reason = "for whoever runs the child by hand")]
fn look_by_seeds(seeds: impl Iterator<Item = u64>) -> (String, Option<u64>) {
    let mut tried = 0;
    for seed in seeds {
        tried += 1;
        let Some(report) = guarded(|| percolator_sim::run_seed(seed, false)) else {
            return ("panic".to_owned(), Some(tried));
        };
        let mut findings = report.findings;
        // `explain` has no such switch, so it differs from the mutated reader. The difference
        // is no harm.
        findings.retain(|finding| finding.property != property::EXPLAINED);
        findings.iter().for_each(|f| eprintln!("seed {seed}: {}: {}", f.property, f.facts));
        let mut properties: Vec<&str> = Vec::new();
        for Finding { property, .. } in &findings {
            if !properties.contains(property) {
                properties.push(property);
            }
        }
        if !properties.is_empty() && !properties.contains(&property::SET_UP) {
            properties.truncate(PROPERTIES_MAX);
            return (properties.join(", "), Some(tried));
        }
    }
    (String::new(), Some(tried))
}

/// Runs the work; `None` if it panics.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mutants_that_are_left_out_exist() {
        let all: Vec<_> = CRATES.iter().flat_map(|of| of.mutants).map(|of| of.name).collect();
        for (name, _) in NOT_LIKE_HBASE {
            assert!(all.contains(&name), "{name}");
        }
    }
}
