//! Checks the source tree for rules that neither the compiler nor clippy checks.
//!
//! ```text
//! layers    no package in crates/ or apps/ depends on one in lab/
//! circles   import circles of files, by the graph of imports (imports)
//! rooms     files that extend a type outside of its room, the folder where it is defined
//! text      the width of comments, the length of files, the numbers of hazards and decisions
//! sentences how a comment's sentences begin, and how long they are
//! documents the length of README.md and ARCHITECTURE.md, and the links of all documents
//! names     names of items with words that the glossary replaces
//! ```
//!
//! `lines` counts lines by their purpose; the program `percolator-tidy` prints the counts.
//!
//! `tests/tree.rs` runs every check on this repository, and holds the lists of today's exceptions.
//! A list only shrinks: an exception that is larger than needed fails, too.
//!
//! The checks read source text, not the compiler's view of it. `source` blanks comments,
//! strings and test code. `modules` reads the modules and imports of the rest. A name that a
//! macro creates counts as one of the file that calls the macro.

mod circles;
mod documents;
mod finding;
mod imports;
mod layers;
mod lines;
mod modules;
mod names;
mod rooms;
mod sentences;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use circles::circles;
pub use documents::{document_length, links};
pub use finding::Finding;
pub use layers::layers;
pub use lines::{Kind, lines};
pub use names::names;
pub use rooms::rooms;
pub use sentences::{headless, sentence_length};
pub use text::{comment_width, decisions, file_length, hazards};
pub use tree::Tree;
