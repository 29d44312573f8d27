//! Opens a store. Before that, it checks the inventory, the manifests and the journals, and
//! that the engine can open each run. Only `check`, a repair and a backup compare the
//! checksums of all runs. An opening does so for one small keyspace, that of the names.
//!
//! The engine trusts the files that it finds, and makes three repairs without any message. It
//! deletes a keyspace without a manifest. It replaces a missing journal with a new one. It
//! cuts a journal at the first unreadable entry. So this module checks first, and refuses a
//! damaged store before anything in the store's directory has changed.
//!
//! ```text
//!   survey.rs     finds damage in the directory, and changes nothing
//!   prepare.rs    repairs the traces of a crash: cuts the torn batch off, names journals
//!   files.rs      opens the engine                tables.rs    opens tables in it
//!   inventory.rs  the files that must exist       damage.rs    damage, by file
//!   journal.rs    the engine's journals           runs.rs      its manifests and runs
//!   unsynced.rs   may a power cut have destroyed  recovery.rs  reports on cuts of the journal
//!                 unsynced batches?
//!   check.rs      `check`, for a closed store     shadow.rs    a stand-in that the engine may
//!   repair.rs     `Repair`, into a new store                   change
//!   rebuild.rs    new manifests and lists of keyspaces
//!   stand_in.rs   reading a store that cannot be written
//! ```
//!
//! If the newest journal has an unsound batch, there are three cases:
//!
//! | case | without a restart | after a restart with unsynced batches |
//! |---|---|---|
//! | no sound batch follows | cut there, and report | cut there, and report |
//! | sound batches follow | refuse | cut there, and report |
//! | its number does not rise, or the inventory says that it held a later batch | refuse | refuse |
//!
//! A sealed journal was synced before the next one was begun, so it must be sound to its end.
//!
//! ADR-15 says what this design costs, and what would change it.

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
mod stand_in;
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
pub use stand_in::StandIn;
pub(crate) use survey::{KEYSPACES_DIR, numbered};
pub(crate) use tables::{open_group, open_table};
pub(crate) use unsynced::{acknowledge_restart, mark, unmark};
