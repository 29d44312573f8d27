//! Implements the command `percolator` as a library, which other programs of this project share.
//!
//! ```text
//!   cli        the tree of commands
//!   cmd        one module for each group of commands
//!   program    the global options of a program, and the run of one command
//!   console    --console and --metrics: what a command shows of its database
//!   context    the surroundings of a command
//!   environment  variables that the program reads
//!   store      --data, --table: opening
//!   read_only  reading a directory that cannot be written
//!   patience   a command outlasts a restart of the table server
//!   owner      commands on a directory that another process has open
//!   keys       rows, columns and values as people write them
//!   script     the language of `percolator tx`
//!   service    reports to the service manager
//!   log        --log-format and --log-file of servers
//!   output     data to stdout (text, tables, JSON), all else to stderr
//!   private    directories and files that only their user may read
//!   progress   how far a command has come, on stderr
//!   interrupt  Ctrl-C
//!   exit       exit codes, and reports of errors: what, why and what next
//! ```
//!
//! Invariants:
//!
//! * Data alone goes to stdout.
//! * No output panics when the reader of a pipe has gone, as that of `println!` would.
//! * No command leaves a half-made transaction behind, however it ends. An interrupted `import` or
//!   `webindex load` keeps the transactions that have committed, and can be run again.

mod cli;
mod clock;
pub mod cmd;
mod console;
pub mod context;
mod environment;
mod events;
pub mod exit;
pub mod interrupt;
mod keys;
pub mod log;
pub mod output;
pub mod owner;
mod patience;
mod private;
pub mod program;
pub mod progress;
mod read_only;
mod script;
mod service;
pub mod store;

pub use cli::{command, run};
pub use console::WebPanel;
