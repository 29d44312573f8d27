//! Scans: of a snapshot against the store's own, and of notifications among clean cells.
//!
//! ```text
//! rows     a thousand rows in order: the store's own scan, a snapshot with one version of each
//!          cell, a snapshot above ten
//! notify   workers find dirty cells by scanning alone, among few clean cells and among many
//! report   figures and their bars
//! ```
//!
//! Workers are the shipped ones, with an observer that does nothing. What their scans take is
//! measured where they ask the store for a page; what they then do with each dirty cell is not part
//! of it.

mod notify;
mod report;
mod rows;

pub(crate) use report::{json, plot, print};

use std::path::PathBuf;
use std::time::Duration;

use crate::Turns;
use crate::system::Load;
use crate::turns::{Block, Measured};

use notify::World;
use percolator_cli::context::Context;
use percolator_cli::progress::Progress;
use rows::Rows;

/// Versions of each cell that nothing collects.
pub(crate) const VERSIONS: usize = 10;
/// Rows of one measured scan.
pub(crate) const ROWS_AT_ONCE: usize = 1000;

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) quick: bool,
    /// Cells of each table that is scanned.
    pub(crate) cells: usize,
    /// Clean cells, few and many.
    pub(crate) clean: [usize; 2],
    /// How many cells are dirty at a time.
    pub(crate) dirty: usize,
    /// Notifications that are processed before the last look.
    pub(crate) processed: usize,
    pub(crate) dir: PathBuf,
}

/// Whether everything was found once and as it was written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Check {
    /// Rows that scans returned, at the end and all along.
    pub(crate) rows: u64,
    pub(crate) wrong: u64,
    /// Notifications that were processed, and those that should have been.
    pub(crate) observed: u64,
    pub(crate) notified: u64,
}

impl Check {
    pub(crate) fn is_ok(&self) -> bool {
        self.wrong == 0 && self.observed == self.notified
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    arms: Vec<Measured>,
    load: [Load; 2],
    pub(crate) check: Check,
}

/// What a stage of the second part compares with: the same few clean cells, at the same time.
const STAGES: [[(&str, &str); 2]; 3] = [
    [
        ("notify_few", "dirty cells found among few clean ones, and visited"),
        ("notify_many", "the same among many"),
    ],
    [
        ("notify_few_again", "notify_few"),
        ("notify_many_reopened", "notify_many, after the store was closed and opened"),
    ],
    [
        ("notify_few_last", "notify_few"),
        ("notify_many_processed", "notify_many, after many notifications were processed"),
    ],
];

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let loading = Progress::new(context.out.quiet, None);
    loading.say(0, "loading rows");
    let mut check = Check::default();
    let mut arms = Vec::new();
    {
        let mut rows = Rows::create(settings).await?;
        let mut measured = rows::ARMS.map(|(name, operation)| Measured::new(name, operation));
        let progress = settings.turns.progress(context, measured.len());
        let turn = async |arm: usize| rows.turn(arm, settings.turns.block()).await;
        if !settings.turns.take(context, &progress, &mut measured, turn).await? {
            return Ok(None);
        }
        rows.check_all().await?;
        check.rows += rows.seen;
        check.wrong += rows.wrong;
        arms.extend(measured);
    }
    let [few, many] = settings.clean;
    loading.say(1, "loading clean cells");
    let mut worlds = Vec::new();
    for (name, clean) in [("few", few), ("many", many)] {
        let Some(world) = World::create(context, &settings.dir.join(name), clean).await? else {
            return Ok(None);
        };
        worlds.push(world);
    }
    for (number, stage) in STAGES.iter().enumerate() {
        match number {
            1 => {
                let old = worlds.remove(1);
                worlds.push(old.reopen().await?);
            }
            2 => {
                loading.say(2, "processing notifications");
                worlds[1].process(settings.processed).await?;
            }
            _ => {}
        }
        let mut measured = stage.map(|(name, operation)| Measured::new(name, operation));
        if !take(context, settings, &mut worlds, &mut measured).await? {
            return Ok(None);
        }
        arms.extend(measured);
    }
    for world in &mut worlds {
        world.check_all().await?;
        check.rows += world.seen;
        check.wrong += world.wrong;
        check.observed += world.observed();
        check.notified += world.notified;
    }
    Ok(Some(Outcome { arms, load: [before, Load::now()], check }))
}

/// Few and many take turns.
async fn take(
    context: &Context,
    settings: &Settings,
    worlds: &mut [World],
    measured: &mut [Measured; 2],
) -> anyhow::Result<bool> {
    let progress = settings.turns.progress(context, measured.len());
    let length: Duration = settings.turns.block();
    let turn = async |arm: usize| -> anyhow::Result<Block> {
        worlds[arm].turn(settings.dirty, length).await
    };
    settings.turns.take(context, &progress, measured, turn).await
}
