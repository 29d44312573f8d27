//! `percolator-torture`: a mixed workload in a child process that is killed again and again, and
//! the judgement.
//!
//! ```text
//!   parent  starts the child, kills it, starts it again; judges at the end
//!   work    the child: opens the store, transfers, writes, deletes, notifies, loads web pages
//!   world   tables, columns, observers; opening, for both
//!   ledger  what was begun, and what became of it, in a file that survives kill -9
//!   place   the directory of a run, and where things are in it
//!   strike  kills what a script names, once
//!   judge   what must hold, whatever the kills have done
//! ```
//!
//! Invariants: a line of the ledger is one write, made before a transaction begins and after its
//! commit has returned, so that the file never claims more than the child was told, nor less than
//! it has tried.

mod cli;
mod judge;
mod ledger;
mod parent;
mod place;
mod strike;
mod work;
mod world;

/// Many small buffers are allocated on one thread and freed on another; with the system's allocator
/// that alone takes a quarter of the time of `percolator demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::program::run::<cli::Cli>()
}
