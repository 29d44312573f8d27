//! Holds the surroundings of a command: its output, its input, and the request to end.
//!
//! The process that has a directory open can run some commands for another process. Such a command
//! takes its input from its [`Context`], and prints only through it. It asks the user a question
//! only where it runs for its own process. Other commands may read standard input themselves:
//! `import` does, and it never runs for another process.

use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use crate::interrupt::Interrupt;
use crate::output::Out;

/// The surroundings of a command, besides its arguments.
#[derive(Debug)]
pub struct Context {
    /// Where the output goes.
    pub out: Out,
    /// The request of the user to end the command.
    pub interrupt: Interrupt,
    /// The input of the command.
    pub(crate) input: Input,
    /// Makes the tree of the program's commands.
    pub(crate) tree: fn() -> clap::Command,
}

/// The input of a command: a file, or standard input. The input is read as a whole, once, and
/// kept. So the command can still be sent to another process, with the same input.
#[derive(Debug, Default)]
pub(crate) struct Input(OnceLock<String>);

impl Input {
    /// Makes the input of a command that another process has sent here.
    #[cfg(unix)]
    pub(crate) fn sent(bytes: Vec<u8>) -> io::Result<Input> {
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Input(text.into()))
    }

    /// Reads a file, or standard input. A later call returns the same text.
    pub(crate) fn read(&self, file: Option<&Path>) -> io::Result<&str> {
        if let Some(text) = self.0.get() {
            return Ok(text);
        }
        let text = match file {
            Some(path) => std::fs::read_to_string(path)?,
            None => {
                let mut text = String::new();
                io::stdin().lock().read_to_string(&mut text)?;
                text
            }
        };
        Ok(self.0.get_or_init(|| text))
    }

    /// Returns the input that was read so far.
    #[cfg(unix)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.get().map_or(&[], String::as_bytes)
    }
}
