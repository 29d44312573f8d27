//! Settle and spread: find the clusters of pages that redirect or declare another page.
//!
//! Such a page has the cluster of its target, which may stand for a third page. So a cluster
//! is passed on from page to page, against the direction of the redirects:
//!
//! * **settle** runs for a page with a new target, and takes the target's cluster;
//! * **spread** runs for an address whose cluster has changed. It gives the cluster to the
//!   pages that stand for the address, at most [`PAGES_PER_SPREAD_MAX`] in one transaction.
//!
//! No page misses a change. Let the target's new cluster be committed at c, so that spread
//! runs after c. Spread finds every page that was recorded under the target before that run. If
//! a page is recorded later, settle runs for it later still, and reads the new cluster.
//!
//! Most addresses have nobody that stands for them, and need no spread. So an address for which
//! pages stand always has a record `doc:member`, also if it is not a page: settle writes an empty
//! one. A page that is new finds that record, or is the first to write it. If it is settled at the
//! same time, both transactions write the record, so the later one reads again.
//!
//! Pages that redirect in a circle need a rule of their own. Each would take its cluster from
//! the next, and an outdated cluster could go round forever. When the last redirect of a
//! circle is recorded, its page settles. All other redirects are recorded by then, so this
//! page finds the whole circle. It gives all pages of the circle one cluster in one
//! transaction, named after the address that sorts first.
//!
//! A page that redirects, or declares another page, has no text of its own in a cluster. The few
//! words of such pages are equal on whole sites, and would join all their targets.

use std::collections::BTreeSet;

use percolator::{Change, Error, Observer, Result, RowKey, RowRange, Transaction};

use super::membership::cluster_behind;
use super::row_url::row_url;
use crate::records::{Member, decode, decode_rank, encode};
use crate::tables::{ClusterId, MEMBER, RANK, SPREAD, Tables, by_target, target_and_source};

/// The most pages to which one spread gives a cluster.
const PAGES_PER_SPREAD_MAX: usize = 200;

/// The most redirects that are followed one after the other. A longer chain is a mistake of
/// the site. Its page fails to settle, is set aside and reported.
const STEPS_MAX: usize = 10_000;

/// Observes `settle`.
#[derive(Debug)]
pub(super) struct Settle {
    tables: Tables,
}

/// Observes `spread`.
#[derive(Debug)]
pub(super) struct Spread {
    tables: Tables,
}

/// A page on a way: its URL, its record, its rank.
type Step = (String, Member, f64);

/// The end of a way of redirects.
enum Way {
    /// The way leads back to its first page, over these pages.
    Circle(Vec<Step>),
    /// The way leads elsewhere. Holds the target's cluster.
    Out(Option<ClusterId>),
}

impl Settle {
    pub(super) fn new(tables: Tables) -> Self {
        Settle { tables }
    }

    /// Follows the redirects that begin at a page. Gives the first target a record if it has none.
    async fn way(&self, tx: &mut Transaction, first: Step) -> Result<Way> {
        let mut target = first.1.stands_for.clone();
        let mut seen = BTreeSet::new();
        let mut steps = vec![first];
        let mut out = None;
        while let Some(url) = target {
            if url == steps[0].0 {
                return Ok(Way::Circle(steps));
            }
            if steps.len() > STEPS_MAX {
                return Err(Error::application(format!(
                    "{} redirects more than {STEPS_MAX} times, over {url}: correct the site",
                    steps[0].0,
                )));
            }
            let (member, rank) = self.tables.member(tx, &url).await?;
            if steps.len() == 1 {
                out = cluster_behind(&url, member.as_ref());
                if member.is_none() {
                    let record = encode(&Member::default());
                    tx.set(&self.tables.documents, url.as_str(), &MEMBER, record)?;
                }
            }
            // A circle that this page is not part of gets its cluster from its own pages.
            let Some(member) = member.filter(|_| seen.insert(url.clone())) else { break };
            target = member.stands_for.clone();
            steps.push((url, member, rank));
        }
        Ok(Way::Out(out))
    }
}

impl Observer for Settle {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = row_url(change)?;
        let (member, rank) = self.tables.member(tx, &url).await?;
        let Some(member) = member.filter(|member| member.stands_for.is_some()) else {
            return Ok(());
        };
        match self.way(tx, (url.clone(), member.clone(), rank)).await? {
            Way::Out(cluster) => self.tables.follow(tx, &url, (member, rank), cluster).await,
            Way::Circle(steps) => {
                let first = steps.iter().map(|(url, ..)| url).min();
                let cluster = first.map(|first| ClusterId::of_address(first));
                for (url, member, rank) in steps {
                    self.tables.follow(tx, &url, (member, rank), cluster).await?;
                }
                Ok(())
            }
        }
    }
}

impl Spread {
    pub(super) fn new(tables: Tables) -> Self {
        Spread { tables }
    }

    /// Reads the next pages that stand for `url`, as keys of their documents.
    async fn next(&self, tx: &Transaction, url: &str, told: Option<&str>) -> Result<Vec<RowKey>> {
        let mut range = RowRange::prefix(by_target(url, ""));
        if let Some(told) = told {
            range = range.after(by_target(url, told));
        }
        let scan = tx.scan(&self.tables.by_target).range(range).limit(PAGES_PER_SPREAD_MAX);
        let rows = scan.collect().await?;
        let sources = rows.iter().filter_map(|row| target_and_source(&row.row));
        Ok(sources.map(|(_, source)| source.into()).collect())
    }
}

impl Observer for Spread {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = row_url(change)?;
        let documents = &self.tables.documents;
        let (member, _) = self.tables.member(tx, &url).await?;
        let cluster = cluster_behind(&url, member.as_ref());
        let told = member.as_ref().and_then(|member| member.told.as_deref());
        let pages = self.next(tx, &url, told).await?;
        if pages.is_empty() && told.is_none() {
            return Ok(());
        }
        let cells = tx.get_many(documents, &pages, &[MEMBER, RANK]).await?;
        for (page, cells) in pages.iter().zip(cells) {
            let [standing, rank] = &cells[..] else { continue };
            let Some(standing) = decode::<Member>(standing.clone())? else { continue };
            if standing.stands_for.as_deref() != Some(&url) {
                continue;
            }
            let page = String::from_utf8_lossy(page.as_bytes());
            let standing = (standing, decode_rank(rank.as_ref()));
            self.tables.follow(tx, &page, standing, cluster).await?;
        }
        let more = pages.last().filter(|_| pages.len() >= PAGES_PER_SPREAD_MAX);
        if more.is_some() {
            tx.notify(documents, url.as_str(), &SPREAD)?;
        }
        let told = more.map(|page| String::from_utf8_lossy(page.as_bytes()).into_owned());
        let member = Member { told, ..member.unwrap_or_default() };
        // Written even if it stays the same, so that two overlapping runs for one address
        // conflict. For an address that is no page, the record says that pages stand for it.
        tx.set(documents, url.as_str(), &MEMBER, encode(&member))
    }
}
