//! `webindex search|page|cluster|stats`: reads an index. The commands themselves write nothing.
//! But whoever opens the directory of an index runs its observers, which handle waiting changes.
//! `search` opens it only if the search index is missing, incomplete or outdated.

use clap::Args;
use serde_json::json;
use webindex::search::{Found, Hit};
use webindex::{ClusterView, IndexStats, PageView, WriterView};

use crate::cmd::webindex::{Index, search_only};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Out, grouped, printable};
use crate::store::StoreArgs;

/// Another worker replaces a writer of the search index that reports nothing for so many seconds.
const SILENT_MAX_S: u64 = 30;

/// Search titles, anchors and texts.
///
/// Only the search index is read, so a search works while other commands change the store. Pages
/// that wait to be indexed are not found yet.
#[derive(Debug, Args)]
#[command(after_help = "Queries:
  fresh fish                 pages with both words, in any of their English forms
  '\"fresh fish\"'             the words next to each other, in this form
  'cod OR ling'              one of them, or both
  'fish -smoked'             without this word
  'title:fish'               in the title
  'fish site:example.org'    of this host and of hosts below it
  'fish site:example.org/a'  whose address begins like this

Example:
  percolator webindex search 'borrow checker' --limit 5 --data D")]
pub(crate) struct Search {
    /// The query; see below.
    #[arg(allow_hyphen_values = true)]
    query: String,
    /// Show at most this many pages.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Leave out this many pages before the first one shown.
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    #[command(flatten)]
    store: StoreArgs,
}

impl Search {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let found = search_only(&self.store).await?.find(&self.query, self.offset, self.limit)?;
        if context.out.json {
            context.out.json(&json!(found))?
        } else {
            print_found(context.out, &found)?
        }
        Ok(if found.total == 0 { Exit::No } else { Exit::Done })
    }
}

/// Prints the hits of a search, and how many pages match.
fn print_found(out: Out, found: &Found) -> std::io::Result<()> {
    let Found { total, offset, hits } = found;
    if *total == 0 || !hits.is_empty() {
        print_hits(out, hits)?;
    }
    match (*total, hits.len()) {
        (0, _) => Ok(()),
        (total, 0) => out.line(&format!("{} match, none is shown", pages(total))),
        (total, shown) if shown == total => out.line(&format!("{} match", pages(total))),
        (total, shown) => out.line(&format!(
            "{} match, these are {} to {}",
            pages(total),
            grouped(*offset as u64 + 1),
            grouped((offset + shown) as u64),
        )),
    }
}

fn pages(count: usize) -> String {
    if count == 1 { "1 page".to_owned() } else { format!("{} pages", grouped(count as u64)) }
}

/// Prints pages that a search found.
pub(crate) fn print_hits(out: Out, hits: &[Hit]) -> std::io::Result<()> {
    if hits.is_empty() {
        out.note("no page matches");
    }
    for hit in hits {
        let title = if hit.title.is_empty() { "(no title)" } else { &hit.title };
        out.line(&format!("{}\n  {}", printable(title), printable(&hit.url)))?;
        let snippet = hit.snippet.split_whitespace().collect::<Vec<_>>().join(" ");
        if !snippet.is_empty() {
            out.line(&format!("  {}", printable(&snippet)))?;
        }
    }
    Ok(())
}

/// Show a page: its cluster, rank, and the links to it with their anchors.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex page https://example.org/a.html --data D")]
pub(crate) struct Page {
    /// The page.
    url: String,
    #[command(flatten)]
    store: StoreArgs,
}

impl Page {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        let page = index.page(&self.url).await?.ok_or_else(|| not_there(&self.url))?;
        if context.out.json {
            context.out.json(&json!(page))?
        } else {
            print_page(context.out, &page)?
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

fn print_page(out: Out, page: &PageView) -> std::io::Result<()> {
    let canonical =
        if page.canonical == page.url { "itself".to_owned() } else { printable(&page.canonical) };
    let indexed = match &page.skipped {
        Some(reason) => format!("not indexed: {}", printable(reason)),
        None => format!("{} bytes of text", grouped(page.text_bytes as u64)),
    };
    let rows = [
        ("url", printable(&page.url)),
        ("title", printable(&page.title)),
        ("content", indexed),
        ("canonical", canonical),
        ("rank", format!("{:.3e}", page.rank)),
        ("out-links", grouped(page.out_links as u64)),
        ("in-links", grouped(page.in_links as u64)),
    ];
    for (name, value) in rows {
        out.line(&format!("{name:<10} {value}"))?;
    }
    let row = |link: &webindex::AnchorView| {
        let target = if link.target == page.url { String::new() } else { printable(&link.target) };
        vec![printable(&link.source), printable(&link.anchors.join(" | ")), target]
    };
    let header =
        [Column::left("from"), Column::left("anchors"), Column::left("names the duplicate")];
    if page.anchors.is_empty() {
        Ok(())
    } else {
        out.table(&header, page.anchors.iter().map(row).collect())
    }
}

/// Show the duplicates of a page.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex cluster https://example.org/a.html --data D")]
pub(crate) struct Cluster {
    /// A page of the cluster.
    url: String,
    #[command(flatten)]
    store: StoreArgs,
}

impl Cluster {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        let cluster = index.cluster(&self.url).await?.ok_or_else(|| not_there(&self.url))?;
        if context.out.json {
            context.out.json(&json!(cluster))?
        } else {
            print_cluster(context.out, &cluster)?
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Prints a cluster, its canonical page first.
pub(crate) fn print_cluster(out: Out, cluster: &ClusterView) -> std::io::Result<()> {
    for member in &cluster.members {
        let kind = if member.url == cluster.canonical { "canonical" } else { "duplicate" };
        out.line(&format!(
            "{kind}  {}  rank {:.1e}  in-links {}",
            printable(&member.url),
            member.rank,
            grouped(member.in_links as u64),
        ))?;
    }
    Ok(())
}

/// Show the index in numbers.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex stats --json --data D")]
pub(crate) struct Stats {
    #[command(flatten)]
    store: StoreArgs,
}

impl Stats {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        let stats = index.stats().await?;
        if context.out.json {
            context.out.json(&json!(stats))?
        } else {
            print_stats(context.out, &stats)?
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Prints the counts of an index.
pub(crate) fn print_stats(out: Out, stats: &IndexStats) -> std::io::Result<()> {
    let rows = [
        ("pages", stats.pages as u64),
        ("hyperlinks", stats.links),
        ("distinct links", stats.edges as u64),
        ("redirects", stats.redirects as u64),
        ("clusters", stats.clusters as u64),
        ("duplicates", stats.duplicates as u64),
        ("searchable", stats.searchable as u64),
    ];
    for (name, value) in rows {
        out.line(&format!("{name:<15} {:>12}", grouped(value)))?;
    }
    for (reason, count) in &stats.skipped {
        out.line(&format!("{:<15} {:>12}  {reason}", "not indexed", grouped(*count as u64)))?;
    }
    if let Some(WriterView { worker, process, generation, silent_ms }) = &stats.writer {
        let silent = silent_ms / 1000;
        let hangs = if silent > SILENT_MAX_S { ": it hangs, or has ended" } else { "" };
        out.line(&format!(
            "search writer: worker {worker}, process {process}, generation {generation}, last \
             report {} s ago{hangs}",
            grouped(silent),
        ))?;
    }
    Ok(())
}

fn not_there(url: &str) -> anyhow::Error {
    Failure::no(
        format!("{url}: no such page in the index"),
        "`percolator webindex search WORDS` finds pages; write URLs in full",
    )
}
