//! The observers that keep the index up to date (paper sections 3.1 and 2.4).
//!
//! ```text
//! doc:content --parse--> doc:page, doc:keys, doc:links
//! doc:keys ----register--> doc:member, by_target, clusters; settle, spread, elect   (cluster)
//!     settle, spread --> doc:member of pages that stand for others; elect
//!     elect --> the page shown for a cluster; export-page, attach
//! doc:links ---link--> inlinks, at home; export-anchors                             (invert)
//! attach --> forward --forward--> inlinks, at the cluster; relay --> export-anchors
//! export-page, export-anchors --export--> the search index                          (export)
//!                  of a duplicate: --> forward
//! export-ranks --ranks--> the ranks beside the search index
//! ```
//!
//! Two runs for one row may overlap, and the older may commit last with what it computed from older
//! data. One of two rules makes them converge:
//!
//! * **Runs that could overlap write a cell in common, even if it stays the same.** The later one
//!   conflicts and reads again. So it is with elections (the cluster's row), and with all that
//!   places a page in a cluster (`doc:member`).
//! * **A run that changed anything notifies what it changed.** The last change is then always
//!   followed by a run that began after it, saw everything, and found nothing to change. So it is
//!   with `forward`.

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
use crate::search::SearchIndex;
use crate::tables::{self, Tables};

/// The name of the first observer; like the others' it must never change, because acknowledgements
/// are kept under it.
pub(crate) const PARSE: &str = "parse";

/// How home rows are forwarded.
const FORWARDS: Batch = Batch { changes_max: 256, interval: Duration::from_millis(200) };

/// How the exporter batches: pages soon, changed anchors less eagerly, because while a site is
/// loaded the in-links of its popular pages change all the time.
const EXPORT_PAGES: Batch = Batch { changes_max: 500, interval: Duration::from_secs(1) };
const EXPORT_ANCHORS: Batch = Batch { changes_max: 500, interval: Duration::from_secs(10) };

/// How ranks are exported: while the ranking job writes them, now and then.
const RANKS: Batch = Batch { changes_max: 16, interval: Duration::from_secs(10) };

/// The observers that the search index is fed by.
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

/// The observers that feed the search index. They belong where its writer is.
pub(crate) fn exporters(
    db: &Client,
    tables: &Tables,
    search: &Arc<SearchIndex>,
    latency: &Arc<Latency>,
) -> Vec<Registration> {
    let client = || db.downgrade();
    let exporter = || Exporter::new(client(), tables.clone(), search.clone(), latency.clone());
    let register = |(column, batch)| {
        Registration::batched(EXPORT, tables::DOCUMENTS, &column, batch, exporter())
    };
    let ranks = ranks::ExportRanks::new(client(), tables.clone(), search.clone());
    let (table, column) = (tables::RANKING, tables::EXPORT_RANKS);
    let ranks = Registration::batched(RANKS_EXPORT, table, &column, RANKS, ranks);
    EXPORTS.into_iter().map(register).chain([ranks]).collect()
}

/// All of them, wherever they run.
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
