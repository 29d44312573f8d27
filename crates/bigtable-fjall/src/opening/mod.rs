//! Opening a store. First of all: is everything there, and is it whole?
//!
//! The engine believes what it finds. It deletes a keyspace without a manifest, begins a missing
//! journal anew, and cuts a journal at the first entry that it cannot read, all without a word. So
//! this module looks first, and refuses a store that is damaged before anything in its directory
//! has changed.
//!
//! ```text
//!   survey.rs     reads all of it and changes nothing
//!   prepare.rs    mends what a crash may leave: cuts the torn batch off, gives journals names
//!   files.rs      opens the engine                tables.rs    opens tables in it
//!   inventory.rs  what must be there              damage.rs    what is not as it must be
//!   journal.rs    the engine's journals           runs.rs      its manifests and runs
//!   unsynced.rs   may a power cut have taken      recovery.rs  the report of what was cut
//!                 unsynced batches?
//!   check.rs      `check`, for a closed store     shadow.rs    a stand-in that the engine may
//!   repair.rs     `Repair`: what can be saved                  change
//!   rebuild.rs    manifests and names, made anew
//! ```
//!
//! If the newest journal has an unsound batch, there are three cases:
//!
//! | case | without a restart | after a restart with unsynced batches |
//! |---|---|---|
//! | no sound batch follows | cut there, and report | cut there, and report |
//! | sound batches follow | refuse | cut there, and report |
//! | its number does not rise, or the inventory says that it was whole | refuse | refuse |
//!
//! A sealed journal was synced before the next one was begun, so it must be sound to its end.

mod check;
mod damage;
mod files;
mod inventory;
mod journal;
mod prepare;
mod rebuild;
mod recovery;
mod repair;
mod runs;
mod shadow;
mod survey;
mod tables;
mod unsynced;

pub(crate) use check::check;
pub use check::{Checked, Problem};
pub(crate) use damage::Damage;
pub(crate) use files::open_files;
pub(crate) use inventory::{FILE as INVENTORY_FILE, Inventory};
#[cfg(test)]
pub(crate) use journal::tests::sample;
pub(crate) use journal::{JOURNALS_DIR, Journal, Tail, journal_file, list as list_journals};
pub(crate) use prepare::{Prepared, look};
pub use recovery::Recovery;
pub use repair::{Repair, Saved};
pub(crate) use runs::{Named, Runs, copy_summed};
pub(crate) use survey::{KEYSPACES_DIR, numbered};
pub(crate) use tables::{open_group, open_table};
pub(crate) use unsynced::{acknowledge_restart, mark, unmark};
