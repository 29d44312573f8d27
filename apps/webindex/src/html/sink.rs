//! The sink: receives tags and text, and keeps the parts that the index needs.

use html5gum::State;
use url::Url;

use super::elements::{Element, breaks_out_of_svg};
use super::limits::{REDIRECT_SECONDS_MAX, TITLE_BYTES_MAX};
use super::links::{OpenAnchor, RawLinks};
use super::refresh;
use super::tag::{Attribute, Tag};
use super::words::Words;

/// The parts of a document that were found, with links as written.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) title: Words,
    pub(super) text: Words,
    pub(super) links: RawLinks,
    pub(super) redirect: Option<String>,
    pub(super) canonical: Option<String>,
    pub(super) has_markup: bool,
    /// Whether the page asks robots not to index it.
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

    /// Returns the base of the page's links: `<base href>`, which is itself relative to the
    /// page.
    pub(super) fn base_of(&self, page: &Url) -> Url {
        let base = self.base.as_ref().and_then(|href| page.join(href).ok());
        base.filter(|base| !base.cannot_be_a_base()).unwrap_or_else(|| page.clone())
    }
}

/// How characters are treated at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raw {
    /// Ordinary content.
    No,
    /// Inside an element whose raw text is shown, such as `textarea`.
    Shown,
    /// Inside an element whose raw text is not shown, such as `script`.
    Hidden,
    /// Inside `title`.
    Title,
}

/// The results so far, and the elements that are open.
#[derive(Debug)]
pub(super) struct Sink {
    found: Found,
    is_xml: bool,
    raw: Raw,
    /// How many `template` elements are open. Their content is not part of the page.
    templates: u32,
    /// How many `svg` elements are open.
    svgs: u32,
    /// How many `foreignObject` elements are open inside. Tags in them are HTML again.
    foreign_objects: u32,
    anchor: OpenAnchor,
    /// Whether a refresh was seen. Only the first one counts.
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

    /// Returns the results, and begins a new document.
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

    /// Returns whether characters are used at the moment.
    pub(super) fn is_listening(&self) -> bool {
        match self.raw {
            Raw::Hidden => false,
            Raw::Title => true,
            Raw::No | Raw::Shown => !self.is_hidden(),
        }
    }

    /// Takes text. Call this only while the sink is listening.
    pub(super) fn characters(&mut self, text: &str) {
        if text.contains('\0') {
            // A NUL is dropped, as the standard's parser does, and separates nothing.
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

    /// Takes a start tag. Returns the tokenizer's next state, or `None` if it does not change.
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
        // In SVG, unlike in HTML, a self-closing tag has no content.
        if tag.is_self_closing {
            return;
        }
        match tag.name.as_slice() {
            b"svg" => self.svgs += 1,
            b"foreignobject" => self.foreign_objects += 1,
            _ => {}
        }
    }

    /// Handles an element whose content the tokenizer must read differently.
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
        // In raw text, the tokenizer only passes the matching end tag.
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
