//! The tag that the tokenizer is reading, with the few attributes that an index needs.

use super::elements::Element;

/// The attributes that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    Alt,
    Content,
    Href,
    HttpEquiv,
    /// `color`, `face` or `size`: the attributes of a `font` for its look.
    Look,
    Name,
    Rel,
}

/// The number of kinds of [`Attribute`].
const KINDS: usize = Attribute::Rel as usize + 1;

impl Attribute {
    /// Returns the attribute of a name in lower case.
    fn of(name: &[u8]) -> Option<Attribute> {
        match name {
            b"alt" => Some(Attribute::Alt),
            b"content" => Some(Attribute::Content),
            b"href" => Some(Attribute::Href),
            b"http-equiv" => Some(Attribute::HttpEquiv),
            b"name" => Some(Attribute::Name),
            b"rel" => Some(Attribute::Rel),
            b"color" | b"face" | b"size" => Some(Attribute::Look),
            _ => None,
        }
    }
}

/// A tag. One object serves all tags of a page, so that its buffers are allocated once.
#[derive(Debug)]
pub(super) struct Tag {
    pub(super) name: Vec<u8>,
    pub(super) is_end: bool,
    pub(super) is_self_closing: bool,
    element: Option<Element>,
    /// How many attributes have begun, whatever their names, repeated ones included.
    pub(super) attributes: usize,
    /// The name of the last attribute, if the attribute may be kept.
    attribute_name: Vec<u8>,
    /// Whether the end of that name is still to come.
    is_name_open: bool,
    /// The attribute to which the value being read belongs, if it is kept.
    current: Option<Attribute>,
    values: [Option<Vec<u8>>; KINDS],
}

impl Tag {
    pub(super) fn new() -> Self {
        Tag {
            name: Vec::new(),
            is_end: false,
            is_self_closing: false,
            element: None,
            attributes: 0,
            attribute_name: Vec::new(),
            is_name_open: false,
            current: None,
            values: [const { None }; KINDS],
        }
    }

    /// Begins another tag.
    pub(super) fn begin(&mut self, is_end: bool) {
        self.name.clear();
        self.is_end = is_end;
        self.is_self_closing = false;
        self.element = None;
        if self.attributes > 0 {
            self.attributes = 0;
            self.is_name_open = false;
            self.current = None;
            self.values = [const { None }; KINDS];
        }
    }

    /// Returns the element, once the name is complete.
    pub(super) fn element(&mut self) -> Element {
        *self.element.get_or_insert_with(|| Element::of(&self.name))
    }

    /// Begins an attribute.
    pub(super) fn begin_attribute(&mut self) {
        self.end_attribute_name();
        self.attributes += 1;
        self.current = None;
        self.is_name_open = !self.is_end && self.element().has_attributes();
        self.attribute_name.clear();
    }

    pub(super) fn push_attribute_name(&mut self, piece: &[u8]) {
        if self.is_name_open {
            self.attribute_name.extend_from_slice(piece);
        }
    }

    pub(super) fn push_attribute_value(&mut self, piece: &[u8]) {
        self.end_attribute_name();
        if let Some(value) = self.current.and_then(|kept| self.values[kept as usize].as_mut()) {
            value.extend_from_slice(piece);
        }
    }

    /// Ends the name of the last attribute, if it has not ended.
    pub(super) fn end_attribute_name(&mut self) {
        if std::mem::replace(&mut self.is_name_open, false) {
            // If two attributes have the same name, the first one counts.
            let kept = Attribute::of(&self.attribute_name);
            self.current = kept.filter(|&kept| self.values[kept as usize].is_none());
            if let Some(kept) = self.current {
                self.values[kept as usize] = Some(Vec::new());
            }
        }
    }

    /// Returns the value of an attribute, if the tag has it.
    pub(super) fn value(&self, attribute: Attribute) -> Option<&str> {
        let value = self.values[attribute as usize].as_deref()?;
        // The document is valid text and is cut at ASCII characters, so the value is valid
        // text, too.
        Some(std::str::from_utf8(value).unwrap_or_default())
    }
}
