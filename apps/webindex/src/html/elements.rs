//! Classifies HTML elements by what the sink does at their tags, in place of a tree builder's
//! tables.

/// The kinds of elements that the sink treats differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    A,
    Area,
    Base,
    Font,
    Img,
    Link,
    Meta,
    Plaintext,
    Script,
    Svg,
    Template,
    Textarea,
    Title,
    Xmp,
    /// Holds raw text that is not shown, such as `style`.
    HiddenText,
    /// Part of a line: `<b>wo</b>rd` is one word.
    Inline,
    /// A box or line of its own, a table cell or a control: words end at its edges.
    Block,
    /// Not an HTML element. Treated as inline, as browsers do.
    Unknown,
}

impl Element {
    /// Returns the element of a name in lower case.
    pub(super) fn of(name: &[u8]) -> Element {
        match name {
            b"a" => Element::A,
            b"area" => Element::Area,
            b"base" => Element::Base,
            b"font" => Element::Font,
            b"img" => Element::Img,
            b"link" => Element::Link,
            b"meta" => Element::Meta,
            b"plaintext" => Element::Plaintext,
            b"script" => Element::Script,
            b"svg" => Element::Svg,
            b"template" => Element::Template,
            b"textarea" => Element::Textarea,
            b"title" => Element::Title,
            b"xmp" => Element::Xmp,
            b"style" | b"iframe" | b"noembed" | b"noframes" | b"noscript" => Element::HiddenText,
            _ if is_inline(name) => Element::Inline,
            _ if is_block(name) => Element::Block,
            _ => Element::Unknown,
        }
    }

    /// Returns whether words end at the element's edges.
    pub(super) fn is_block(self) -> bool {
        use Element::{Area, Base, Block, Img, Link, Meta};
        matches!(self, Area | Base | Block | Img | Link | Meta)
    }

    /// Returns whether an index needs any of the element's attributes.
    pub(super) fn has_attributes(self) -> bool {
        use Element::{A, Area, Base, Font, Img, Link, Meta};
        matches!(self, A | Area | Base | Font | Img | Link | Meta)
    }
}

fn is_inline(name: &[u8]) -> bool {
    matches!(
        name,
        b"abbr"
            | b"acronym"
            | b"b"
            | b"bdi"
            | b"bdo"
            | b"big"
            | b"cite"
            | b"code"
            | b"data"
            | b"del"
            | b"dfn"
            | b"em"
            | b"i"
            | b"ins"
            | b"kbd"
            | b"label"
            | b"mark"
            | b"nobr"
            | b"q"
            | b"s"
            | b"samp"
            | b"small"
            | b"span"
            | b"strike"
            | b"strong"
            | b"sub"
            | b"sup"
            | b"time"
            | b"tt"
            | b"u"
            | b"var"
            | b"wbr"
    )
}

fn is_block(name: &[u8]) -> bool {
    matches!(
        name,
        b"address"
            | b"article"
            | b"aside"
            | b"audio"
            | b"blockquote"
            | b"body"
            | b"br"
            | b"button"
            | b"canvas"
            | b"caption"
            | b"center"
            | b"col"
            | b"colgroup"
            | b"dd"
            | b"details"
            | b"dialog"
            | b"dir"
            | b"div"
            | b"dl"
            | b"dt"
            | b"embed"
            | b"fieldset"
            | b"figcaption"
            | b"figure"
            | b"footer"
            | b"form"
            | b"frame"
            | b"frameset"
            | b"h1"
            | b"h2"
            | b"h3"
            | b"h4"
            | b"h5"
            | b"h6"
            | b"head"
            | b"header"
            | b"hr"
            | b"html"
            | b"input"
            | b"legend"
            | b"li"
            | b"listing"
            | b"main"
            | b"map"
            | b"menu"
            | b"nav"
            | b"object"
            | b"ol"
            | b"optgroup"
            | b"option"
            | b"p"
            | b"pre"
            | b"rp"
            | b"rt"
            | b"ruby"
            | b"search"
            | b"section"
            | b"select"
            | b"summary"
            | b"table"
            | b"tbody"
            | b"td"
            | b"tfoot"
            | b"th"
            | b"thead"
            | b"tr"
            | b"ul"
            | b"video"
    )
}

/// Returns whether a start tag shows that an open `svg` was never closed. These are the tags
/// at which the standard's rules for foreign content return to HTML. A `font` counts only with
/// an attribute for its look, which the caller checks.
pub(super) fn breaks_out_of_svg(name: &[u8]) -> bool {
    matches!(
        name,
        b"b" | b"big"
            | b"blockquote"
            | b"body"
            | b"br"
            | b"center"
            | b"code"
            | b"dd"
            | b"div"
            | b"dl"
            | b"dt"
            | b"em"
            | b"embed"
            | b"h1"
            | b"h2"
            | b"h3"
            | b"h4"
            | b"h5"
            | b"h6"
            | b"head"
            | b"hr"
            | b"i"
            | b"img"
            | b"li"
            | b"listing"
            | b"menu"
            | b"meta"
            | b"nobr"
            | b"ol"
            | b"p"
            | b"pre"
            | b"ruby"
            | b"s"
            | b"small"
            | b"span"
            | b"strike"
            | b"strong"
            | b"sub"
            | b"sup"
            | b"table"
            | b"tt"
            | b"u"
            | b"ul"
            | b"var"
    )
}
