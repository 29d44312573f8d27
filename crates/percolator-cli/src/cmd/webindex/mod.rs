//! `webindex`: runs the paper's application, an incremental web index.

mod ask;
mod load;
mod open;
mod work;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;
use crate::owner::asked;
use crate::program::Elsewhere;

pub(crate) use ask::{print_cluster, print_hits};
pub(crate) use load::warn_of;
pub use open::Index;
use open::search_only;
pub(crate) use open::{is_in, search_dir};
pub use work::{drive, wait};

/// An incremental web index: load pages, rank, search, inspect and verify them.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator webindex load site/ --base https://example.org/ --data D
  percolator webindex rank --data D
  percolator webindex search 'borrow checker' --data D")]
pub(crate) enum Webindex {
    Load(Box<load::Load>),
    Remove(load::Remove),
    Rank(work::Rank),
    Recrawl(work::Recrawl),
    Verify(work::Verify),
    Search(ask::Search),
    Page(ask::Page),
    Cluster(ask::Cluster),
    Stats(ask::Stats),
    Generate(work::Generate),
}

impl Webindex {
    /// Where the command runs if another process has its directory open.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Webindex::Search(_) | Webindex::Page(_) | Webindex::Cluster(_) | Webindex::Stats(_) => {
                Elsewhere::Reads
            }
            // These commands change or read the whole index, and wait for observers of their own
            // process.
            Webindex::Load(_)
            | Webindex::Remove(_)
            | Webindex::Rank(_)
            | Webindex::Recrawl(_)
            | Webindex::Verify(_)
            | Webindex::Generate(_) => Elsewhere::Nowhere,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        // A process that runs the command for another one keeps its own setting of memory.
        if asked::current().is_none() {
            use_small_pages();
        }
        match self {
            Webindex::Load(load) => load.run(context).await,
            Webindex::Remove(remove) => remove.run(context).await,
            Webindex::Rank(rank) => rank.run(context).await,
            Webindex::Recrawl(recrawl) => recrawl.run(context).await,
            Webindex::Verify(verify) => verify.run(context).await,
            Webindex::Search(search) => search.run(context).await,
            Webindex::Page(page) => page.run(context).await,
            Webindex::Cluster(cluster) => cluster.run(context).await,
            Webindex::Stats(stats) => stats.run(context).await,
            Webindex::Generate(generate) => generate.run(context),
        }
    }
}

/// Has the system give this process its memory in small pages. A load holds each text only for a
/// moment, on changing threads. With huge pages, clearing them would take a tenth of the load's
/// CPU time, and the process a third more memory.
fn use_small_pages() {
    // A failure costs speed and memory, and nothing else.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
