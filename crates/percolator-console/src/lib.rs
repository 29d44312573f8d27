//! Shows a Percolator database while it runs: a console in the browser, metrics for Prometheus,
//! health checks.
//!
//! ```no_run
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use percolator::{OpenOptions, Options, Percolator};
//! use percolator_console::{Console, Recorder};
//! use std::sync::Arc;
//!
//! let recorder = Arc::new(Recorder::new());
//! let client = Options { watch: Some(recorder.clone()), ..Options::default() };
//! let db = Percolator::open_with("data", OpenOptions { client, ..OpenOptions::default() }).await?;
//!
//! let console = Console::new(&db).recorder(recorder).listen("127.0.0.1:7090").await?;
//! println!("look at {}", console.url());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! ```text
//!   console    Console: settings, listening
//!   recorder   counts and keeps the client's events: counts, histograms, rings, the graph
//!   readiness  whether store and oracle answer
//!   survey     facts that only a look through the store finds, in the background
//!   why        the stored trace: what led to a write, and what it has set off
//!   verdict    one sentence about the whole, and advice
//!   metrics    /metrics
//!   process    the numbers of this process in /metrics
//!   server     the guard of each request, files, repeated POSTs
//!   api        the routes, and what they answer
//!   learn      the paper's Figure 4 to play with
//!   cells      names of cells, keys and values in JSON
//!   said       durations in words
//!   panel      the part of the console that an application adds
//! ```
//!
//! Invariants: a GET writes nothing and takes no timestamp. There is one exception: to show
//! rows and to search, the console reads rows, and any reader of the database resolves a dead
//! owner's lock. Each request passes the guard before its route runs. Everything that the console
//! keeps is bounded, and starts empty with the process.
//!
//! Not here: TLS. Beyond loopback, put the console behind a proxy that has it, or reach it through
//! `ssh -L`.

mod api;
mod cells;
mod console;
mod learn;
mod metrics;
mod panel;
mod problem;
mod process;
mod readiness;
mod recorder;
mod said;
mod server;
mod state;
mod survey;
mod verdict;
mod why;

pub use cells::Key;
pub use console::{Access, Bound, Console, ConsoleError, Listening};
pub use metrics::STORE_PRESSURE;
pub use panel::{Panel, PanelError};
pub use readiness::Readiness;
pub use recorder::Recorder;
pub use said::duration_text;
pub use state::Gauge;
pub use why::why_json;
