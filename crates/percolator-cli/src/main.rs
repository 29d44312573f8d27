//! The command `percolator`: a store's rows, transactions, locks and observers at the command line,
//! and its benchmarks.
//!
//! ```text
//!   cli      the tree of commands and the global options; runs one command
//!   cmd      one module for each group of commands
//!   context  the surroundings of a command
//!   bench    what is measured, and how
//!   torture  what is killed, and what must hold afterwards
//!   store    --data, --table: opening
//!   keys     rows, columns and values as people write them
//!   script   the language of `percolator tx`
//!   output   data to stdout (text, tables, JSON), all else to stderr
//!   exit     exit codes, and errors told as what, why and what next
//! ```
//!
//! Invariants: stdout carries data alone; nothing is printed by macros that panic when the reader of
//! a pipe has gone; no command leaves a half-made change behind, however it ends.

mod bench;
mod cli;
mod clock;
mod cmd;
mod context;
mod events;
mod exit;
mod interrupt;
mod keys;
mod output;
mod progress;
mod script;
mod store;
mod torture;

/// Many small buffers are allocated on one thread and freed on another; with the system's allocator
/// that alone takes a quarter of the time of `demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
