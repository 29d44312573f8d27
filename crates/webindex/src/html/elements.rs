//! What the sink has to know of each element: the tables that a tree builder would have.

use html5ever::{LocalName, local_name};

/// How an element's edges separate words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// A part of the line: `<b>wo</b>rd` is one word.
    Inline,
    /// A box or line of its own, a table cell, a control: words end at its edges.
    Block,
    /// Not an HTML element; treated as inline, as browsers do.
    Unknown,
}

/// Returns how an element's edges separate words, and whether it is HTML at all.
pub(super) fn flow(name: &LocalName) -> Flow {
    if is_inline(name) {
        Flow::Inline
    } else if is_block(name) || is_table_part(name) {
        Flow::Block
    } else {
        Flow::Unknown
    }
}

fn is_inline(name: &LocalName) -> bool {
    matches!(
        *name,
        local_name!("a")
            | local_name!("abbr")
            | local_name!("acronym")
            | local_name!("b")
            | local_name!("bdi")
            | local_name!("bdo")
            | local_name!("big")
            | local_name!("cite")
            | local_name!("code")
            | local_name!("data")
            | local_name!("del")
            | local_name!("dfn")
            | local_name!("em")
            | local_name!("font")
            | local_name!("i")
            | local_name!("ins")
            | local_name!("kbd")
            | local_name!("label")
            | local_name!("mark")
            | local_name!("nobr")
            | local_name!("q")
            | local_name!("s")
            | local_name!("samp")
            | local_name!("small")
            | local_name!("span")
            | local_name!("strike")
            | local_name!("strong")
            | local_name!("sub")
            | local_name!("sup")
            | local_name!("time")
            | local_name!("tt")
            | local_name!("u")
            | local_name!("var")
            | local_name!("wbr")
    )
}

fn is_block(name: &LocalName) -> bool {
    matches!(
        *name,
        local_name!("address")
            | local_name!("area")
            | local_name!("article")
            | local_name!("aside")
            | local_name!("audio")
            | local_name!("base")
            | local_name!("blockquote")
            | local_name!("body")
            | local_name!("br")
            | local_name!("button")
            | local_name!("canvas")
            | local_name!("center")
            | local_name!("dd")
            | local_name!("details")
            | local_name!("dialog")
            | local_name!("dir")
            | local_name!("div")
            | local_name!("dl")
            | local_name!("dt")
            | local_name!("embed")
            | local_name!("fieldset")
            | local_name!("figcaption")
            | local_name!("figure")
            | local_name!("footer")
            | local_name!("form")
            | local_name!("frame")
            | local_name!("frameset")
            | local_name!("h1")
            | local_name!("h2")
            | local_name!("h3")
            | local_name!("h4")
            | local_name!("h5")
            | local_name!("h6")
            | local_name!("head")
            | local_name!("header")
            | local_name!("hr")
            | local_name!("html")
            | local_name!("img")
            | local_name!("input")
            | local_name!("legend")
            | local_name!("li")
            | local_name!("link")
            | local_name!("listing")
            | local_name!("main")
            | local_name!("map")
            | local_name!("menu")
            | local_name!("meta")
            | local_name!("nav")
            | local_name!("object")
            | local_name!("ol")
            | local_name!("optgroup")
            | local_name!("option")
            | local_name!("p")
            | local_name!("pre")
            | local_name!("rp")
            | local_name!("rt")
            | local_name!("ruby")
            | local_name!("search")
            | local_name!("section")
            | local_name!("select")
            | local_name!("summary")
            | local_name!("ul")
            | local_name!("video")
    )
}

fn is_table_part(name: &LocalName) -> bool {
    matches!(
        *name,
        local_name!("caption")
            | local_name!("col")
            | local_name!("colgroup")
            | local_name!("table")
            | local_name!("tbody")
            | local_name!("td")
            | local_name!("tfoot")
            | local_name!("th")
            | local_name!("thead")
            | local_name!("tr")
    )
}

/// Returns whether a start tag shows that an open `svg` was never closed: the tags at which the
/// standard's rules for foreign content go back to HTML.
pub(super) fn breaks_out_of_svg(name: &LocalName) -> bool {
    matches!(
        *name,
        local_name!("b")
            | local_name!("big")
            | local_name!("blockquote")
            | local_name!("body")
            | local_name!("br")
            | local_name!("center")
            | local_name!("code")
            | local_name!("dd")
            | local_name!("div")
            | local_name!("dl")
            | local_name!("dt")
            | local_name!("em")
            | local_name!("embed")
            | local_name!("h1")
            | local_name!("h2")
            | local_name!("h3")
            | local_name!("h4")
            | local_name!("h5")
            | local_name!("h6")
            | local_name!("head")
            | local_name!("hr")
            | local_name!("i")
            | local_name!("img")
            | local_name!("li")
            | local_name!("listing")
            | local_name!("menu")
            | local_name!("meta")
            | local_name!("nobr")
            | local_name!("ol")
            | local_name!("p")
            | local_name!("pre")
            | local_name!("ruby")
            | local_name!("s")
            | local_name!("small")
            | local_name!("span")
            | local_name!("strong")
            | local_name!("strike")
            | local_name!("sub")
            | local_name!("sup")
            | local_name!("table")
            | local_name!("tt")
            | local_name!("u")
            | local_name!("ul")
            | local_name!("var")
    )
}
