//! Passes the tokenizer's output to the sink: text as it comes, and tags once they are
//! complete.
//!
//! The tokenizer works on bytes and emits pieces, at times a single byte of a character. The
//! feed joins the pieces to text again. It drops comments, doctypes and most attributes before
//! they are copied anywhere.

use html5gum::{Emitter, Error, State, Tokenizer};

use super::limits::{ATTRIBUTES_PER_TAG_MAX, Skip};
use super::sink::{Found, Sink};
use super::tag::Tag;

/// Runs a whole document through the tokenizer.
pub(super) fn run(text: &str) -> Result<Found, Skip> {
    let feed = Feed::new(Sink::new(is_xml(text)));
    // A second byte order mark, behind the one that the decoder removes, is not text either.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Ok(ended) = Tokenizer::new_with_emitter(text, feed).next().transpose();
    ended.unwrap_or(End::Refused).into_found()
}

/// Returns whether the document declares itself XHTML, where `<script/>` has no content.
fn is_xml(text: &str) -> bool {
    text.trim_start().starts_with("<?xml")
}

/// The only token that the feed emits: how reading the document ended.
#[derive(Debug)]
enum End {
    Complete(Box<Found>),
    Refused,
}

impl End {
    fn into_found(self) -> Result<Found, Skip> {
        match self {
            End::Complete(found) => Ok(*found),
            End::Refused => Err(Skip::TooManyAttributes),
        }
    }
}

/// Receives the tokenizer's calls.
#[derive(Debug)]
struct Feed {
    sink: Sink,
    tag: Tag,
    /// The name of the element whose raw text is being read. Only its end tag ends the text.
    raw_name: Vec<u8>,
    /// The first bytes of a character whose last bytes have not come yet.
    cut: Vec<u8>,
    end: Option<End>,
}

impl Feed {
    fn new(sink: Sink) -> Self {
        Feed { sink, tag: Tag::new(), raw_name: Vec::new(), cut: Vec::new(), end: None }
    }

    /// Handles a piece that does not begin or end with a whole character.
    #[cold]
    fn characters_cut(&mut self, piece: &[u8]) {
        self.cut.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&self.cut) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        self.sink.characters(std::str::from_utf8(&self.cut[..whole]).unwrap_or_default());
        self.cut.drain(..whole);
    }
}

impl Emitter for Feed {
    type Token = End;

    fn pop_token(&mut self) -> Option<End> {
        self.end.take()
    }

    fn emit_eof(&mut self) {
        let found = self.sink.finish();
        self.end.get_or_insert_with(|| End::Complete(Box::new(found)));
    }

    fn emit_string(&mut self, piece: &[u8]) {
        if !self.sink.is_listening() {
            return;
        }
        match std::str::from_utf8(piece) {
            Ok(text) if self.cut.is_empty() => self.sink.characters(text),
            _ => self.characters_cut(piece),
        }
    }

    fn init_start_tag(&mut self) {
        self.tag.begin(false);
    }

    fn init_end_tag(&mut self) {
        self.tag.begin(true);
    }

    fn push_tag_name(&mut self, piece: &[u8]) {
        self.tag.name.extend_from_slice(piece);
    }

    fn set_self_closing(&mut self) {
        self.tag.is_self_closing = true;
    }

    fn init_attribute(&mut self) {
        self.tag.begin_attribute();
        if self.tag.attributes > ATTRIBUTES_PER_TAG_MAX {
            self.end = Some(End::Refused);
        }
    }

    fn push_attribute_name(&mut self, piece: &[u8]) {
        self.tag.push_attribute_name(piece);
    }

    fn push_attribute_value(&mut self, piece: &[u8]) {
        self.tag.push_attribute_value(piece);
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        self.tag.end_attribute_name();
        if self.tag.is_end {
            self.sink.end(&mut self.tag);
            return None;
        }
        let next = self.sink.start(&mut self.tag);
        if next.is_some() {
            self.raw_name.clone_from(&self.tag.name);
        }
        next
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.tag.is_end && self.tag.name == self.raw_name
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&mut self) -> bool {
        self.sink.has_sections()
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    // The other calls are ignored.

    fn set_last_start_tag(&mut self, _: Option<&[u8]>) {}
    fn emit_error(&mut self, _: Error) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn set_force_quirks(&mut self) {}
    fn emit_current_doctype(&mut self) {}
}
