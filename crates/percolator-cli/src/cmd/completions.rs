//! `completions`: prints the script that completes this program's commands in a shell.

use clap::{Args, ValueEnum};

use crate::context::Context;
use crate::exit::Exit;

/// A shell whose script of completions a test checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// Bash.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}

/// Print the script that completes commands and options in a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator completions bash > /etc/bash_completion.d/percolator
  percolator completions zsh > ~/.zfunc/_percolator
  percolator completions fish > ~/.config/fish/completions/percolator.fish")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let mut tree = (context.tree)();
        let name = tree.get_name().to_owned();
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut tree, name, &mut script);
        context.out.bytes(script.trim_ascii_end())?;
        Ok(Exit::Done)
    }
}
