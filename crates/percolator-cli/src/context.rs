//! The surroundings of a command: its output, and the request to end.

use crate::interrupt::Interrupt;
use crate::output::Out;

/// What a command works with, besides its arguments.
#[derive(Debug)]
pub struct Context {
    /// Where its output goes.
    pub out: Out,
    /// Whether it is to end.
    pub interrupt: Interrupt,
}
