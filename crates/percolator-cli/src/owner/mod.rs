//! Runs commands on a directory that another process has open, through that process's socket.
//!
//! One process at a time has a directory open: its *owner*. An owner that is the command
//! `percolator` listens at a Unix socket in the directory. A command that finds the directory
//! open becomes an *asker*. The asker sends the owner its arguments, and what it has read from
//! its standard input. The owner parses the arguments with the same tree of commands and runs the
//! command on its open database. It sends back standard output, standard error and the exit code.
//!
//! ```text
//!   command                                  owner
//!     | connects                               |
//!     | <------------------------------- hello | version, pid, command line; or: full
//!     | argument*  input*  ask --------------> |
//!     | <---------------- stdout*  stderr*     | event* if the command has --events
//!     | interrupt ---------------------------> | Ctrl-C
//!     | <-------------------------------- exit |
//! ```
//!
//! ```text
//!   frame      the frames           place     where the socket lies
//!   hello      the first frames     listen    the owner's end: accepting
//!   find       finding the owner    session   the owner's end: one command
//!   ask        the command's end    asked     the surroundings of a command in the owner
//! ```
//!
//! Invariants:
//!
//! * The same code parses, runs and prints a command, in whichever process it runs.
//! * A command in the owner has a client of its own. When its connection ends, the owner drops
//!   the command and closes its client. To the database this is the end of a process.
//! * The owner buffers no output for an asker that does not read. It cuts that asker off after a
//!   minute.
//! * The owner answers only its own user and the superuser.
//!
//! ADR-20 says what this design costs, and what would change it.

#[cfg_attr(not(unix), allow(dead_code, reason = "nobody asks where there are no Unix sockets"))]
pub(crate) mod asked;
#[cfg_attr(not(unix), allow(dead_code, reason = "as above"))]
mod frame;
#[cfg_attr(not(unix), allow(dead_code, reason = "as above"))]
pub(crate) mod hello;

#[cfg(unix)]
pub(crate) mod ask;
#[cfg(unix)]
pub(crate) mod find;
#[cfg(unix)]
pub(crate) mod listen;
#[cfg(unix)]
mod open;
#[cfg(unix)]
mod place;
#[cfg(unix)]
pub(crate) mod session;

#[cfg(unix)]
pub use listen::Listener;
#[cfg(unix)]
pub use open::listen;
