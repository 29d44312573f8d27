//! The sink: takes the tokenizer's tokens and keeps what the index needs.

use std::cell::RefCell;

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult};
use html5ever::{LocalName, local_name};
use url::Url;

use super::elements::{Flow, breaks_out_of_svg, flow};
use super::links::{OpenAnchor, RawLinks};
use super::words::Words;
use super::{ATTRIBUTES_PER_TAG_MAX, REDIRECT_SECONDS_MAX, TITLE_BYTES_MAX, refresh};

type Next = TokenSinkResult<()>;

/// The tokenizer's view: it hands tokens to a shared reference, hence the cell.
#[derive(Debug)]
pub(super) struct Sink {
    reader: RefCell<Reader>,
}

/// What the feeder wants to know between two pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    /// How many tokens came so far. Parse errors do not count: they come inside a tag.
    pub(super) tokens: u64,
    /// Whether the last one ended a tag, comment or doctype.
    pub(super) closed: bool,
    /// Whether the element that is open holds raw text.
    pub(super) in_raw_text: bool,
    /// Whether `<![CDATA[` opens a section rather than a comment.
    pub(super) has_sections: bool,
    pub(super) too_many_attributes: bool,
}

/// What was found in a document, with links as written.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) title: Words,
    pub(super) text: Words,
    pub(super) links: RawLinks,
    pub(super) redirect: Option<String>,
    pub(super) canonical: Option<String>,
    pub(super) has_markup: bool,
    base: Option<String>,
}

impl Found {
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

#[derive(Debug)]
struct Reader {
    found: Found,
    status: Status,
    is_xml: bool,
    raw: Raw,
    /// How many `template` elements are open: their content is no part of the page.
    templates: u32,
    /// How many `svg` elements are open.
    svgs: u32,
    /// How many `foreignObject` elements are open inside: there, tags are HTML again.
    foreign_objects: u32,
    anchor: Option<OpenAnchor>,
    /// Whether a refresh was seen; only the first one counts.
    has_refresh: bool,
}

impl Sink {
    pub(super) fn new(is_xml: bool) -> Self {
        let found = Found {
            title: Words::new(TITLE_BYTES_MAX),
            text: Words::new(usize::MAX),
            links: RawLinks::default(),
            redirect: None,
            canonical: None,
            has_markup: false,
            base: None,
        };
        let reader = Reader {
            found,
            status: Status {
                tokens: 0,
                closed: true,
                in_raw_text: false,
                has_sections: false,
                too_many_attributes: false,
            },
            is_xml,
            raw: Raw::No,
            templates: 0,
            svgs: 0,
            foreign_objects: 0,
            anchor: None,
            has_refresh: false,
        };
        Sink { reader: RefCell::new(reader) }
    }

    pub(super) fn status(&self) -> Status {
        let reader = self.reader.borrow();
        Status {
            in_raw_text: reader.raw != Raw::No,
            has_sections: reader.has_sections(),
            ..reader.status
        }
    }

    pub(super) fn finish(self) -> Found {
        let mut reader = self.reader.into_inner();
        reader.close_anchor();
        reader.found
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> Next {
        if matches!(token, Token::ParseError(_)) {
            return Next::Continue;
        }
        let mut reader = self.reader.borrow_mut();
        reader.status.tokens += 1;
        reader.status.closed = false;
        match token {
            Token::CharacterTokens(text) => {
                reader.characters(&text);
                return Next::Continue;
            }
            // Dropped like the standard's parser does; it separates nothing.
            Token::NullCharacterToken | Token::EOFToken => {
                return Next::Continue;
            }
            _ => reader.status.closed = true,
        }
        let Token::TagToken(tag) = token else { return Next::Continue };
        reader.status.too_many_attributes |= tag.attrs.len() > ATTRIBUTES_PER_TAG_MAX;
        match tag.kind {
            TagKind::StartTag => reader.start(&tag),
            TagKind::EndTag => {
                reader.end(&tag.name);
                Next::Continue
            }
        }
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.reader.borrow().has_sections()
    }
}

impl Reader {
    fn is_hidden(&self) -> bool {
        self.templates > 0 || self.svgs > 0
    }

    fn has_sections(&self) -> bool {
        self.is_xml || (self.svgs > 0 && self.foreign_objects == 0)
    }

    fn characters(&mut self, text: &str) {
        match self.raw {
            Raw::Hidden => {}
            Raw::Title => self.found.title.push(text),
            Raw::No | Raw::Shown if self.is_hidden() => {}
            Raw::No | Raw::Shown => {
                self.found.text.push(text);
                if let Some(anchor) = &mut self.anchor {
                    anchor.text.push(text);
                }
            }
        }
    }

    fn gap(&mut self) {
        self.found.text.gap();
        if let Some(anchor) = &mut self.anchor {
            anchor.text.gap();
        }
    }

    fn start(&mut self, tag: &Tag) -> Next {
        if self.svgs > 0 && self.foreign_objects == 0 {
            if !breaks_out_of_svg(&tag.name) {
                self.start_in_svg(tag);
                return Next::Continue;
            }
            self.svgs = 0;
        }
        if let Some(next) = self.start_raw(tag) {
            return next;
        }
        match tag.name {
            local_name!("svg") => self.svgs += u32::from(!tag.self_closing),
            local_name!("template") if !(self.is_xml && tag.self_closing) => self.templates += 1,
            _ if !self.is_hidden() => self.start_visible(tag),
            _ => {}
        }
        Next::Continue
    }

    fn start_in_svg(&mut self, tag: &Tag) {
        // Self-closing tags are what they look like here, unlike in HTML.
        if tag.self_closing {
            return;
        }
        match &*tag.name {
            "svg" => self.svgs += 1,
            "foreignobject" => self.foreign_objects += 1,
            _ => {}
        }
    }

    /// Handles the elements whose content the tokenizer has to read differently.
    fn start_raw(&mut self, tag: &Tag) -> Option<Next> {
        let (raw, kind) = match tag.name {
            local_name!("title") if self.is_hidden() || !self.found.title.is_empty() => {
                (Raw::Hidden, RawKind::Rcdata)
            }
            local_name!("title") => (Raw::Title, RawKind::Rcdata),
            local_name!("textarea") => (Raw::Shown, RawKind::Rcdata),
            local_name!("xmp") => (Raw::Shown, RawKind::Rawtext),
            local_name!("script") => (Raw::Hidden, RawKind::ScriptData),
            local_name!("style")
            | local_name!("iframe")
            | local_name!("noembed")
            | local_name!("noframes")
            | local_name!("noscript") => (Raw::Hidden, RawKind::Rawtext),
            local_name!("plaintext") => {
                self.found.has_markup = true;
                self.gap();
                self.raw = Raw::Shown;
                return Some(Next::Plaintext);
            }
            _ => return None,
        };
        self.found.has_markup = true;
        if raw == Raw::Shown {
            self.gap();
        }
        if self.is_xml && tag.self_closing {
            return Some(Next::Continue);
        }
        self.raw = raw;
        Some(Next::RawData(kind))
    }

    fn start_visible(&mut self, tag: &Tag) {
        match flow(&tag.name) {
            Flow::Unknown => return,
            Flow::Inline => {}
            Flow::Block => self.gap(),
        }
        self.found.has_markup = true;
        match tag.name {
            local_name!("a") => self.start_anchor(tag),
            local_name!("area") => {
                if let Some(href) = attribute(tag, &local_name!("href")) {
                    let alt = attribute(tag, &local_name!("alt")).unwrap_or_default();
                    self.found.links.add_area(href, alt);
                }
            }
            local_name!("img") => {
                let alt = attribute(tag, &local_name!("alt"));
                if let (Some(anchor), Some(alt)) = (&mut self.anchor, alt) {
                    anchor.alt.gap();
                    anchor.alt.push(alt);
                }
            }
            local_name!("base") => {
                if let (None, Some(href)) = (&self.found.base, attribute(tag, &local_name!("href")))
                {
                    self.found.base = Some(href.to_string());
                }
            }
            local_name!("meta") => self.meta(tag),
            local_name!("link") => self.link(tag),
            _ => {}
        }
    }

    fn start_anchor(&mut self, tag: &Tag) {
        self.close_anchor();
        if let Some(href) = attribute(tag, &local_name!("href")) {
            self.anchor = Some(OpenAnchor::new(href));
            if self.is_xml && tag.self_closing {
                self.close_anchor();
            }
        }
    }

    fn close_anchor(&mut self) {
        if let Some(anchor) = self.anchor.take() {
            self.found.links.add_anchor(anchor);
        }
    }

    fn meta(&mut self, tag: &Tag) {
        let is_refresh = attribute(tag, &local_name!("http-equiv"))
            .is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case("refresh"));
        let content = attribute(tag, &local_name!("content")).filter(|_| is_refresh);
        if let Some(refresh) = content.and_then(refresh::parse).filter(|_| !self.has_refresh) {
            self.has_refresh = true;
            if refresh.seconds <= REDIRECT_SECONDS_MAX && !refresh.href.is_empty() {
                self.found.redirect = Some(refresh.href.to_string());
            }
        }
    }

    fn link(&mut self, tag: &Tag) {
        let is_canonical = attribute(tag, &local_name!("rel")).is_some_and(|rel| {
            rel.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("canonical"))
        });
        let href = attribute(tag, &local_name!("href")).map(str::trim_ascii);
        if let Some(href) = href.filter(|href| is_canonical && !href.is_empty()) {
            self.found.canonical.get_or_insert_with(|| href.to_string());
        }
    }

    fn end(&mut self, name: &LocalName) {
        // In raw text, the tokenizer only lets the matching end tag through.
        if self.raw == Raw::Shown {
            self.gap();
        }
        if std::mem::replace(&mut self.raw, Raw::No) != Raw::No {
            return;
        }
        match *name {
            local_name!("template") => self.templates = self.templates.saturating_sub(1),
            local_name!("svg") => {
                self.svgs = self.svgs.saturating_sub(1);
                self.foreign_objects *= u32::from(self.svgs > 0);
            }
            _ if self.svgs > 0 => {
                let closes = u32::from(&**name == "foreignobject");
                self.foreign_objects = self.foreign_objects.saturating_sub(closes);
            }
            _ if self.templates > 0 => {}
            local_name!("a") => self.close_anchor(),
            _ if flow(name) == Flow::Block => self.gap(),
            _ => {}
        }
    }
}

fn attribute<'t>(tag: &'t Tag, name: &LocalName) -> Option<&'t str> {
    tag.attrs.iter().find(|attr| attr.name.local == *name).map(|attr| &*attr.value)
}
