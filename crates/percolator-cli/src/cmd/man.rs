//! `man`: writes the manual pages of this program.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::context::Context;
use crate::exit::Exit;

/// Write the manual pages: one for the program, and one for each command.
///
/// Without a directory, the page of the program goes to stdout.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator man /usr/local/share/man/man1 && man percolator-webindex-load")]
pub(crate) struct Man {
    /// The directory for the pages; it is made if it does not exist.
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        // The command `help` needs no page.
        let tree = (context.tree)().disable_help_subcommand(true);
        let Some(dir) = &self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(tree).render(&mut page)?;
            context.out.bytes(page.trim_ascii_end())?;
            return Ok(Exit::Done);
        };
        let write = || {
            std::fs::create_dir_all(dir)?;
            clap_mangen::generate_to(tree, dir)
        };
        write().with_context(|| format!("writing manual pages to {}", dir.display()))?;
        Ok(Exit::Done)
    }
}
