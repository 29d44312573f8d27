//! The observers that keep the index up to date (paper sections 3.1 and 2.4).
//!
//! ```text
//! doc:content --parse--> doc:page, doc:keys, doc:links
//! doc:keys ----register--> doc:member, by_target, clusters; settle, spread, elect   (cluster)
//!     settle, spread --> doc:member of pages that redirect or declare another page; elect
//!     elect --> the page shown for a cluster; export-page, attach
//! doc:links ---link--> inlinks, at home; export-anchors                             (invert)
//! attach --> forward --forward--> inlinks, at the cluster; relay --> export-anchors
//! export-page, export-anchors --export--> the search index                          (export)
//! export-anchors of a duplicate --export--> forward
//! export-ranks --ranks--> the ranks beside the search index
//! ```
//!
//! Two runs for one row may overlap, and the older run may commit last, with results that it
//! computed from older data. Therefore **runs that could overlap write a cell in common, even if
//! its value stays the same.** The later one conflicts and reads again. Such a cell is:
//!
//! * for elections, the cluster's row;
//! * for everything that places a page in a cluster, `doc:member`;
//! * for `forward`, the cell of a home row that says where the links are placed.

mod elect;
mod export;
mod forward;
mod link;
mod membership;
mod parse;
mod ranks;
mod register;
mod row_url;
mod settle;

#[cfg(test)]
mod tests;

pub(crate) use export::{Anchors, Exporter, link_anchors};
pub(crate) use parse::parse;

use std::sync::Arc;
use std::time::Duration;

use percolator::observe::{Batch, Observed, Strength};
use percolator::{Client, Column, Registration};

use crate::index::latency::Latency;
use crate::search::generations::Generation;
use crate::tables::{self, Tables};

/// The name of the first observer. The names of observers must never change, because
/// acknowledgements are stored under them.
pub(crate) const PARSE: &str = "parse";

/// The batches of `forward`.
const FORWARDS: Batch = Batch { changes_max: 256, interval: Duration::from_millis(200) };

/// The batches of the exporters. Pages are exported soon. Changed anchors are gathered until no
/// more change, for 40 seconds at most. While a site is loaded, the in-links of nearly all its
/// pages change all the time. Each export reads a page's in-links, and may index the page again.
const EXPORT_PAGES: Batch = Batch { changes_max: 500, interval: Duration::from_secs(1) };
const EXPORT_ANCHORS: Batch = Batch { changes_max: 500, interval: Duration::from_secs(40) };

/// The batches of the ranks' exporter. While the ranking job runs, ranks are exported now and
/// then.
const RANKS: Batch = Batch { changes_max: 16, interval: Duration::from_secs(10) };

/// The observers that feed the search index.
const EXPORT: &str = "export";
const RANKS_EXPORT: &str = "export-ranks";
const EXPORTS: [(Column, Batch); 2] =
    [(tables::EXPORT_PAGE, EXPORT_PAGES), (tables::EXPORT_ANCHORS, EXPORT_ANCHORS)];

/// The observers that keep the tables up to date, for `Client::observe`.
pub(crate) fn keepers(tables: &Tables, latency: &Arc<Latency>) -> Vec<Registration> {
    use tables::{
        ATTACH, CLUSTERS, CONTENT, DOCUMENTS, ELECT, FORWARD, INLINKS, KEYS, LINKS, LINKS_MORE,
        RELAY, SETTLE, SPREAD,
    };
    let links = || link::PlaceLinks::new(tables.clone());
    let forward = forward::Forward::new(tables.clone());
    let register = register::Register::new(tables.clone());
    vec![
        Registration::strong(PARSE, DOCUMENTS, &CONTENT, parse::Parse::new(latency.clone())),
        Registration::strong("register", DOCUMENTS, &KEYS, register),
        Registration::weak("settle", DOCUMENTS, &SETTLE, settle::Settle::new(tables.clone())),
        Registration::weak("spread", DOCUMENTS, &SPREAD, settle::Spread::new(tables.clone())),
        Registration::weak("show", CLUSTERS, &ELECT, elect::Elect::new(tables.clone())),
        Registration::weak("relay", CLUSTERS, &RELAY, elect::Relay::new(tables.clone())),
        Registration::strong("link", DOCUMENTS, &LINKS, links()),
        Registration::weak("link-more", DOCUMENTS, &LINKS_MORE, links()),
        Registration::weak("attach", DOCUMENTS, &ATTACH, forward::Attach::new(tables.clone())),
        Registration::batched("forward", INLINKS, &FORWARD, FORWARDS, forward),
    ]
}

/// The observers that feed a generation of the search index. They must run in the process that
/// can write to it.
pub(crate) fn exporters(
    db: &Client,
    tables: &Tables,
    shown: &Generation,
    latency: &Arc<Latency>,
) -> Vec<Registration> {
    let client = || db.downgrade();
    let exporter = || Exporter::new(client(), tables.clone(), shown.clone(), latency.clone());
    let register = |(column, batch)| {
        Registration::batched(EXPORT, tables::DOCUMENTS, &column, batch, exporter())
    };
    let ranks = ranks::ExportRanks::new(client(), tables.clone(), shown.clone());
    let (table, column) = (tables::RANKING, tables::EXPORT_RANKS);
    let ranks = Registration::batched(RANKS_EXPORT, table, &column, RANKS, ranks);
    EXPORTS.into_iter().map(register).chain([ranks]).collect()
}

/// The observer that gathers changed anchors while a site is loaded.
pub(crate) fn gathering() -> Observed {
    Observed {
        table: tables::DOCUMENTS.to_owned(),
        column: tables::EXPORT_ANCHORS,
        observer: EXPORT.to_owned(),
        strength: Strength::Weak,
    }
}

/// All observers, wherever they run.
pub(crate) fn declared(tables: &Tables, latency: &Arc<Latency>) -> Vec<Observed> {
    let keepers = keepers(tables, latency);
    let mut all: Vec<Observed> = keepers.iter().map(|keeper| keeper.observed().clone()).collect();
    all.extend(EXPORTS.map(|(column, _)| Observed {
        table: tables::DOCUMENTS.to_owned(),
        column,
        observer: EXPORT.to_owned(),
        strength: Strength::Weak,
    }));
    all.push(Observed {
        table: tables::RANKING.to_owned(),
        column: tables::EXPORT_RANKS,
        observer: RANKS_EXPORT.to_owned(),
        strength: Strength::Weak,
    });
    all
}
