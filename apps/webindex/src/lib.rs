//! An incremental web index: the application that the Percolator paper was written for (§1, §3.1).
//!
//! The public modules know nothing of transactions. They read documents ([`charset`],
//! [`html`], [`address`], [`walk`]), rank them ([`pagerank`]), and search them ([`search`]).
//! They also make documents to index where there are none ([`corpus`], [`generate`],
//! [`recrawl`]). All of them are deterministic: the same bytes give the same answer.
//! [`WebIndex`] and [`Worker`] keep the index up to date by observers.
//!
//! Pages with equal title and text form a **cluster**, of which one page is shown. A page that
//! redirects to another page, or declares another page, **stands for** that page and joins its
//! cluster. The other pages of a cluster are duplicates. A link is stored in a row of its target,
//! the link's **home**. A link to a duplicate is also **placed** in a row of the target's cluster.
//! The **holder** of a row of links is that page or cluster.
//!
//! ```
//! use webindex::html;
//!
//! let page = url::Url::parse("https://example.org/a.html")?;
//! let parsed = html::parse(&page, b"<title>A</title><p>See <a href=b.html>the other</a>.")?;
//! assert_eq!(parsed.title, "A");
//! assert_eq!(parsed.links[0].url, "https://example.org/b.html");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
pub mod charset;
pub mod corpus;
mod cut;
mod error;
pub mod generate;
pub mod html;
mod index;
mod observers;
pub mod pagerank;
pub mod prng;
mod records;
pub mod recrawl;
pub mod search;
mod tables;
pub mod walk;
mod worker;
mod writer;

pub use error::Error;
pub use index::{
    AnchorView, ClusterView, HitCounts, IndexStats, LoadOptions, LoadReport, MemberView, Mirror,
    MirrorReport, PageView, Progress, Quantiles, RankReport, RecrawlReport, SEARCH_DIR, Skipped,
    VerifyReport, WebIndex,
};
pub use worker::Worker;
pub use writer::WriterView;
