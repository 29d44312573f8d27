//! The sink: takes tags and text and keeps what the index needs.

use html5gum::State;
use url::Url;

use super::elements::{Element, breaks_out_of_svg};
use super::limits::{REDIRECT_SECONDS_MAX, TITLE_BYTES_MAX};
use super::links::{OpenAnchor, RawLinks};
use super::refresh;
use super::tag::{Attribute, Tag};
use super::words::Words;

/// What was found in a document, with links as written.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) title: Words,
    pub(super) text: Words,
    pub(super) links: RawLinks,
    pub(super) redirect: Option<String>,
    pub(super) canonical: Option<String>,
    pub(super) has_markup: bool,
    /// Whether robots are asked not to index the page.
    pub(super) no_index: bool,
    base: Option<String>,
}

impl Found {
    fn new() -> Self {
        Found {
            title: Words::new(TITLE_BYTES_MAX),
            text: Words::new(usize::MAX),
            links: RawLinks::default(),
            redirect: None,
            canonical: None,
            has_markup: false,
            no_index: false,
            base: None,
        }
    }

    /// Returns the URL that links are relative to: `<base href>`, itself relative to the page.
    pub(super) fn base_of(&self, page: &Url) -> Url {
        let base = self.base.as_ref().and_then(|href| page.join(href).ok());
        base.filter(|base| !base.cannot_be_a_base()).unwrap_or_else(|| page.clone())
    }
}

/// What characters mean at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raw {
    /// Ordinary content.
    No,
    /// Inside an element of raw text that is shown, such as `textarea`.
    Shown,
    /// Inside an element whose text is not, such as `script`.
    Hidden,
    /// Inside `title`.
    Title,
}

/// What has been read, and what is open.
#[derive(Debug)]
pub(super) struct Sink {
    found: Found,
    is_xml: bool,
    raw: Raw,
    /// How many `template` elements are open: their content is no part of the page.
    templates: u32,
    /// How many `svg` elements are open.
    svgs: u32,
    /// How many `foreignObject` elements are open inside: there, tags are HTML again.
    foreign_objects: u32,
    anchor: OpenAnchor,
    /// Whether a refresh was seen; only the first one counts.
    has_refresh: bool,
}

impl Sink {
    pub(super) fn new(is_xml: bool) -> Self {
        Sink {
            found: Found::new(),
            is_xml,
            raw: Raw::No,
            templates: 0,
            svgs: 0,
            foreign_objects: 0,
            anchor: OpenAnchor::new(),
            has_refresh: false,
        }
    }

    /// Returns what was found, and begins anew.
    pub(super) fn finish(&mut self) -> Found {
        self.close_anchor();
        std::mem::replace(&mut self.found, Found::new())
    }

    fn is_hidden(&self) -> bool {
        self.templates > 0 || self.svgs > 0
    }

    /// Returns whether `<![CDATA[` opens a section rather than a comment.
    pub(super) fn has_sections(&self) -> bool {
        self.is_xml || (self.svgs > 0 && self.foreign_objects == 0)
    }

    /// Returns whether characters are for anything at the moment.
    pub(super) fn is_listening(&self) -> bool {
        match self.raw {
            Raw::Hidden => false,
            Raw::Title => true,
            Raw::No | Raw::Shown => !self.is_hidden(),
        }
    }

    /// Takes text, unless the sink is not listening.
    pub(super) fn characters(&mut self, text: &str) {
        if text.contains('\0') {
            // Dropped like the standard's parser does; it separates nothing.
            for part in text.split('\0') {
                self.characters(part);
            }
        } else if self.raw == Raw::Title {
            self.found.title.push(text);
        } else {
            self.found.text.push(text);
            if self.anchor.is_open {
                self.anchor.text.push(text);
            }
        }
    }

    fn gap(&mut self) {
        self.found.text.gap();
        if self.anchor.is_open {
            self.anchor.text.gap();
        }
    }

    /// Takes a start tag; returns how the tokenizer is to read what follows, unless as before.
    pub(super) fn start(&mut self, tag: &mut Tag) -> Option<State> {
        if self.svgs > 0 && self.foreign_objects == 0 {
            let is_font = tag.name == b"font" && tag.value(Attribute::Look).is_some();
            if !is_font && !breaks_out_of_svg(&tag.name) {
                self.start_in_svg(tag);
                return None;
            }
            self.svgs = 0;
        }
        let element = tag.element();
        match element {
            Element::Title if self.is_hidden() || !self.found.title.is_empty() => {
                self.start_raw(tag, Raw::Hidden, State::RcData)
            }
            Element::Title => self.start_raw(tag, Raw::Title, State::RcData),
            Element::Textarea => self.start_raw(tag, Raw::Shown, State::RcData),
            Element::Xmp => self.start_raw(tag, Raw::Shown, State::RawText),
            Element::Script => self.start_raw(tag, Raw::Hidden, State::ScriptData),
            Element::HiddenText => self.start_raw(tag, Raw::Hidden, State::RawText),
            Element::Plaintext => {
                self.found.has_markup = true;
                self.gap();
                self.raw = Raw::Shown;
                Some(State::PlainText)
            }
            Element::Svg => {
                self.svgs += u32::from(!tag.is_self_closing);
                None
            }
            Element::Template => {
                self.templates += u32::from(!(self.is_xml && tag.is_self_closing));
                None
            }
            _ => {
                if !self.is_hidden() {
                    self.start_visible(element, tag);
                }
                None
            }
        }
    }

    fn start_in_svg(&mut self, tag: &Tag) {
        // Self-closing tags are what they look like here, unlike in HTML.
        if tag.is_self_closing {
            return;
        }
        match tag.name.as_slice() {
            b"svg" => self.svgs += 1,
            b"foreignobject" => self.foreign_objects += 1,
            _ => {}
        }
    }

    /// Handles the elements whose content the tokenizer has to read differently.
    fn start_raw(&mut self, tag: &Tag, raw: Raw, state: State) -> Option<State> {
        self.found.has_markup = true;
        if raw == Raw::Shown {
            self.gap();
        }
        if self.is_xml && tag.is_self_closing {
            return None;
        }
        self.raw = raw;
        Some(state)
    }

    fn start_visible(&mut self, element: Element, tag: &Tag) {
        if element == Element::Unknown {
            return;
        }
        if element.is_block() {
            self.gap();
        }
        self.found.has_markup = true;
        match element {
            Element::A => self.start_anchor(tag),
            Element::Area => {
                if let Some(href) = tag.value(Attribute::Href) {
                    let alt = tag.value(Attribute::Alt).unwrap_or_default();
                    self.found.links.add_area(href, alt);
                }
            }
            Element::Img if self.anchor.is_open => {
                if let Some(alt) = tag.value(Attribute::Alt) {
                    self.anchor.alt.gap();
                    self.anchor.alt.push(alt);
                }
            }
            Element::Base if self.found.base.is_none() => {
                self.found.base = tag.value(Attribute::Href).map(str::to_string);
            }
            Element::Meta => self.meta(tag),
            Element::Link => self.link(tag),
            _ => {}
        }
    }

    fn start_anchor(&mut self, tag: &Tag) {
        self.close_anchor();
        if let Some(href) = tag.value(Attribute::Href) {
            self.anchor.open(href);
            if self.is_xml && tag.is_self_closing {
                self.close_anchor();
            }
        }
    }

    fn close_anchor(&mut self) {
        if self.anchor.is_open {
            self.anchor.is_open = false;
            self.found.links.add_anchor(&self.anchor);
        }
    }

    fn meta(&mut self, tag: &Tag) {
        let is_for_robots = tag
            .value(Attribute::Name)
            .is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case("robots"));
        let asks = tag.value(Attribute::Content).filter(|_| is_for_robots).unwrap_or_default();
        let mut words = asks.split(|c: char| c == ',' || c.is_ascii_whitespace());
        self.found.no_index |= words
            .any(|word| word.eq_ignore_ascii_case("noindex") || word.eq_ignore_ascii_case("none"));
        let is_refresh = tag
            .value(Attribute::HttpEquiv)
            .is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case("refresh"));
        let content = tag.value(Attribute::Content).filter(|_| is_refresh);
        if let Some(refresh) = content.and_then(refresh::parse).filter(|_| !self.has_refresh) {
            self.has_refresh = true;
            if refresh.seconds <= REDIRECT_SECONDS_MAX && !refresh.href.is_empty() {
                self.found.redirect = Some(refresh.href.to_string());
            }
        }
    }

    fn link(&mut self, tag: &Tag) {
        let is_canonical = tag.value(Attribute::Rel).is_some_and(|rel| {
            rel.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("canonical"))
        });
        let href = tag.value(Attribute::Href).map(str::trim_ascii);
        if let Some(href) = href.filter(|href| is_canonical && !href.is_empty()) {
            self.found.canonical.get_or_insert_with(|| href.to_string());
        }
    }

    /// Takes an end tag.
    pub(super) fn end(&mut self, tag: &mut Tag) {
        // In raw text, the tokenizer only lets the matching end tag through.
        if self.raw == Raw::Shown {
            self.gap();
        }
        if std::mem::replace(&mut self.raw, Raw::No) != Raw::No {
            return;
        }
        let element = tag.element();
        match element {
            Element::Template => self.templates = self.templates.saturating_sub(1),
            Element::Svg => {
                self.svgs = self.svgs.saturating_sub(1);
                self.foreign_objects *= u32::from(self.svgs > 0);
            }
            _ if self.svgs > 0 => {
                let closes = u32::from(tag.name == b"foreignobject");
                self.foreign_objects = self.foreign_objects.saturating_sub(closes);
            }
            _ if self.templates > 0 => {}
            Element::A => self.close_anchor(),
            _ if element.is_block() => self.gap(),
            _ => {}
        }
    }
}
