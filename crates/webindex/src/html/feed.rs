//! Feeding the tokenizer, in pieces small enough to notice when it gets stuck in a tag.
//!
//! The tokenizer compares each attribute of a tag with all before it, so a tag that never ends
//! takes quadratic time, without a token by which the sink could notice. A comment that never
//! ends looks the same from outside and is harmless, as is a picture in an attribute. To tell them
//! apart, a document in which tokens cease to come for [`STALL_BYTES`] is read again in pieces that
//! end after `>`, where a tag or comment can only be complete: then [`Progress`] knows what is
//! open. Such small pieces cost a sixth of the speed, so not every document is read in them.

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};

use super::Skip;
use super::sink::{Found, Sink};
use super::stall::{Progress, STALL_BYTES};
use crate::cut;

/// Where the pieces of a document end, at the latest after [`STALL_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    Large,
    AfterTags,
}

/// Runs a whole document through the tokenizer.
pub(super) fn run(text: &str) -> Result<Found, Skip> {
    match attempt(text, Pieces::Large)? {
        Some(found) => Ok(found),
        None => attempt(text, Pieces::AfterTags)?.ok_or(Skip::TooManyAttributes),
    }
}

/// Reads a document; `None` if the tokenizer is stuck, or may be.
fn attempt(text: &str, pieces: Pieces) -> Result<Option<Found>, Skip> {
    let tokenizer = Tokenizer::new(Sink::new(is_xml(text)), TokenizerOpts::default());
    let document = StrTendril::from_slice(text);
    let queue = BufferQueue::default();
    let mut progress = Progress::default();
    let mut start = 0;
    while start < text.len() {
        let end = piece_end(text, start, pieces);
        queue.push_back(document.subtendril(to_u32(start), to_u32(end - start)));
        // The sink never asks to stop, so the tokenizer takes all it is given.
        let _ = tokenizer.feed(&queue);
        let status = tokenizer.sink.status();
        if status.too_many_attributes {
            return Err(Skip::TooManyAttributes);
        }
        if progress.is_stuck(text, start..end, status, pieces == Pieces::AfterTags) {
            return Ok(None);
        }
        start = end;
    }
    tokenizer.end();
    Ok(Some(tokenizer.sink.finish()))
}

/// Returns where the piece from `start` ends.
fn piece_end(text: &str, start: usize, pieces: Pieces) -> usize {
    let bytes = text.as_bytes();
    let limit = (start + STALL_BYTES).min(bytes.len());
    let tag_end = match pieces {
        Pieces::Large => None,
        Pieces::AfterTags => bytes[start..limit].iter().position(|&b| b == b'>'),
    };
    let cut = || start + cut::at_bytes(&text[start..], limit - start).len();
    tag_end.map_or_else(cut, |at| start + at + 1)
}

/// Returns whether the document says that it is XHTML, where `<script/>` has no content.
fn is_xml(text: &str) -> bool {
    text.trim_start().starts_with("<?xml")
}

fn to_u32(position: usize) -> u32 {
    u32::try_from(position).expect("pages are far below 4 GiB")
}
