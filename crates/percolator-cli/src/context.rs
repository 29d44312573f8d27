//! The surroundings of a command: its output, what it reads, and the request to end.

use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use crate::interrupt::Interrupt;
use crate::output::Out;

/// What a command works with, besides its arguments.
#[derive(Debug)]
pub struct Context {
    /// Where its output goes.
    pub out: Out,
    /// Whether it is to end.
    pub interrupt: Interrupt,
    /// What it reads.
    pub(crate) input: Input,
}

/// What a command reads as a whole: a file, or standard input. It is read once and kept, so that
/// another process can run the command.
#[derive(Debug, Default)]
pub(crate) struct Input(OnceLock<String>);

impl Input {
    /// The input of a command that another process has begun.
    #[cfg(unix)]
    pub(crate) fn sent(bytes: Vec<u8>) -> io::Result<Input> {
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Input(text.into()))
    }

    /// Reads a file, or standard input.
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

    /// What was read so far.
    #[cfg(unix)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.get().map_or(&[], String::as_bytes)
    }
}
