//! Implements `percolator-tidy lines [DIR]`, which counts a tree's lines of Rust by their purpose.
//!
//! DIR is the root of this repository at any commit, such as `git worktree add DIR COMMIT`
//! creates. The default is the current directory. The checks of the tree are tests of this
//! package.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use percolator_tidy::{Tree, lines};

const USAGE: &str = "usage: percolator-tidy lines [DIR]";

fn main() -> io::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let (command, dir) = (arguments.next(), arguments.next());
    if command.is_none_or(|command| command != "lines") || arguments.next().is_some() {
        writeln!(io::stderr(), "{USAGE}")?;
        return Ok(ExitCode::from(2));
    }
    let dir = dir.map_or_else(|| PathBuf::from("."), PathBuf::from);
    let tree = Tree::read(&dir)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))?;
    let counted = lines(&tree);
    let mut out = io::stdout().lock();
    for (kind, count) in &counted {
        writeln!(out, "{kind:<14}{count:>8}")?;
    }
    writeln!(out, "{:<14}{:>8}", "all", counted.values().sum::<usize>())?;
    Ok(ExitCode::SUCCESS)
}
