//! Tests of whole pages: small hand-written documents and random bytes.

use std::fmt::Write as _;

use super::*;

pub(super) fn page(html: &str) -> ParsedPage {
    page_at("https://example.org/dir/page.html", html)
}

fn page_at(url: &str, html: &str) -> ParsedPage {
    parse(&Url::parse(url).unwrap(), html.as_bytes()).unwrap()
}

pub(super) fn skip(bytes: &[u8]) -> Skip {
    parse(&Url::parse("https://example.org/").unwrap(), bytes).unwrap_err()
}

/// Returns the links as `url: anchor | anchor`, without the common start of the URLs.
fn links(html: &str) -> Vec<String> {
    let links = page(html).links.into_iter();
    let short = |url: String| url.replace("https://example.org/dir/", "");
    links.map(|link| format!("{}: {}", short(link.url), link.anchors.join(" | "))).collect()
}

#[test]
fn a_page_may_ask_not_to_be_indexed() {
    let robots = |attributes: &str| {
        let html = format!("<meta {attributes}><p>text");
        parse(&Url::parse("https://example.org/").unwrap(), html.as_bytes()).err()
    };
    for asks in ["noindex", "NOFOLLOW, NoIndex", "none", "noindex nofollow"] {
        assert_eq!(robots(&format!("name=Robots content='{asks}'")), Some(Skip::NoIndex), "{asks}");
    }
    for other in ["name=robots content=index", "name=googlebot content=noindex", "name=robots"] {
        assert_eq!(robots(other), None, "{other}");
    }
}

#[test]
fn a_whole_page() {
    let parsed = page(
        "<!DOCTYPE html><html><head><meta charset=utf-8><title> Fish &amp;\n  Chips </title>\n\
         <style>p { color: <b>red</b> }</style><script>if (a < b) document.write('<a href=x>')\
         </script><link rel=\"canonical stylesheet\" href=/fish></head><body><h1>Fish</h1><p>A \
         <b>wo</b>rd, <a href=\"cod.html#top\">the <i>cod</i></a>,<br>and&nbsp;more.</p></body>",
    );
    assert_eq!(parsed.title, "Fish & Chips");
    assert_eq!(parsed.text, "Fish A word, the cod, and more.");
    assert_eq!(parsed.links.len(), 1);
    assert_eq!(parsed.links[0].url, "https://example.org/dir/cod.html");
    assert_eq!(parsed.links[0].anchors, ["the cod"]);
    assert_eq!(parsed.hyperlinks, 1);
    assert_eq!(parsed.canonical.as_deref(), Some("https://example.org/fish"));
    assert_eq!(parsed.redirect, None);
    assert_eq!(parsed.encoding, "UTF-8");
    assert_eq!(parsed.content_hash, content_hash(&parsed.title, &parsed.text));
}

#[test]
fn words_end_at_blocks_and_not_at_inline_tags() {
    for (html, text) in [
        ("<p>a<p>b", "a b"),
        ("a<b>b</b>c<span>d</span>", "abcd"),
        ("a<br>b<hr>c", "a b c"),
        ("<table><tr><td>a<td>b</tr><tr><th>c", "a b c"),
        ("<ul><li>a</li><li>b</li></ul>c", "a b c"),
        ("<pre>a\n  b\t c</pre>", "a b c"),
        ("un<wbr>broken<custom-tag>word</custom-tag>", "unbrokenword"),
        ("a<img src=x>b<input>c", "a b c"),
        ("<p> a <i> b </i> c </p>", "a b c"),
        ("<p>a&#32;&#x20;b&thinsp;c\u{a0}d\u{3000}e", "a b c d e"),
        ("<p>a<!-- x -->b", "ab"),
        ("<p>a\u{b}b\u{c}c", "a b c"),
        ("<p>x\0y", "xy"),
    ] {
        let bytes = html.as_bytes();
        // A NUL is accepted only far behind the start.
        let padded = [b"<p>".as_slice(), &vec![b' '; BINARY_CHECK_CHARS], bytes].concat();
        let url = Url::parse("https://example.org/").unwrap();
        assert_eq!(parse(&url, &padded).unwrap().text, text, "{html}");
    }
}

#[test]
fn raw_text_is_raw_and_hidden_text_hidden() {
    for (html, text) in [
        ("<p>a<script>'<p>b</p>'</script>c", "ac"),
        ("<p>a<script><!-- <script> </script> --></script>c", "ac"),
        ("<p>a<style>x</p>y</style>c", "ac"),
        ("<p>a<noscript><p>b</p></noscript>c", "ac"),
        ("<p>a<iframe><p>b</iframe>c", "ac"),
        ("<p>a<noembed><p>b</noembed><noframes><p>b</noframes>c", "ac"),
        ("<p>a<textarea><p>b &lt;</textarea>c", "a <p>b < c"),
        ("<p>a<xmp><p>&lt;</xmp>c", "a <p>&lt; c"),
        ("<p>a<plaintext><p>b</plaintext>", "a <p>b</plaintext>"),
        ("<p>a<template><p>b<template>c</template></template>d", "ad"),
        ("<p>a<template><script></template></script>b</template>c", "ac"),
        ("<p>a<svg><text>b</text><title>c</title></svg>d", "ad"),
        ("<p>a<svg><style>.x>y{}</style></svg>b", "ab"),
        ("<p>a<svg/>b", "ab"),
        ("<p>a<svg><font color=red>b</font>", "ab"),
        ("<p>a<svg><font SIZE=1 face=x>b", "ab"),
        ("<p>a<svg><font style=x>b</font></svg>c", "ac"),
        ("<p>a<svg><path/><g>b<p>c", "a c"),
        ("<p>a<svg><foreignObject><p>b</p></foreignObject></svg>c", "ac"),
        ("<p>a<svg><![CDATA[<p>b]]></svg>c", "ac"),
        ("<p>a<svg><svg></svg>b</svg>c", "ac"),
        ("<p>a</svg></template></textarea>b", "ab"),
        ("<title>t</title><title>u</title><p>a", "a"),
        ("<p>a<script>b", "a"),
        ("<p>a<math><mi>x</mi></math>", "ax"),
    ] {
        assert_eq!(page(html).text, text, "{html}");
    }
}

#[test]
fn the_title_is_the_first_that_says_something() {
    for (html, title) in [
        ("<title></title><title>a</title><title>b</title>", "a"),
        ("<TITLE>a<b>c</TITLE>", "a<b>c"),
        ("<svg><title>a</title></svg><title>b</title>", "b"),
        ("<template><title>a</title></template><title>b</title>", "b"),
        ("<title>a", "a"),
        ("<p>no title", ""),
        ("<title>&nbsp;a &copy;\r\n b</title>", "a © b"),
    ] {
        assert_eq!(page(html).title, title, "{html}");
    }
    let long = page(&format!("<title>{}</title>", "ü ".repeat(1000))).title;
    assert_eq!(long.len(), 1022, "1023 would end in a space, 1024 within it");
}

#[test]
fn links_are_grouped_sorted_and_resolved() {
    assert_eq!(
        links(
            "<a href=b.html>first</a><a href='./b.html#x'>second</a><a href=a.html>A</a>\
             <a href=HTTPS://EXAMPLE.org/dir/b.html>first</a><a href=//other.org>O</a>"
        ),
        ["a.html: A", "b.html: first | second", "https://other.org/: O"]
    );
}

#[test]
fn only_http_links_to_other_pages_are_kept_but_own_ones_count() {
    let parsed = page(
        "<a href=#top>up</a><a href=page.html?>self</a><a href=>self</a><a name=x>no</a>\
         <a href=mailto:a@b>m</a><a href='javascript:void(0)'>j</a><a href=ftp://x/>f</a>\
         <a href='http://[bad'>b</a><a href='  x.html\n'>ok</a><a href=data:text/html,x>d</a>",
    );
    assert_eq!(parsed.links.len(), 1);
    assert_eq!(parsed.links[0].url, "https://example.org/dir/x.html");
    assert_eq!((parsed.hyperlinks, parsed.overlong_links), (4, 0));
}

#[test]
fn anchors_are_text_or_else_images() {
    assert_eq!(
        links(
            "<a href=a><img alt=' Pic  1 '><img alt=two></a><a href=b><img alt=x> text</a>\
             <a href=c></a><a href=d>a<p>b</p></a><a href=e>&lt;e&gt;<svg><text>no</text></svg></a>\
             <map><area href=f alt=area><area href=g></map><img alt=outside>"
        ),
        ["a: Pic 1 two", "b: text", "c: ", "d: a b", "e: <e>", "f: area", "g: "]
    );
}

#[test]
fn an_open_anchor_ends_at_the_next_or_with_the_page() {
    assert_eq!(links("<a href=a>one <a href=b>two <p>three"), ["a: one", "b: two three"]);
    assert_eq!(links("<a href=a>one <a name=x>two</a>"), ["a: one"]);
    assert_eq!(links("<a href=a>x<template></a><a href=b>y</a></template>z</a>"), ["a: xz"]);
}

#[test]
fn links_in_hidden_content_are_none() {
    assert!(links("<p><template><a href=a>a</a></template><svg><a href=b>b</a></svg>").is_empty());
    assert!(links("<noscript><a href=a>a</a></noscript><!-- <a href=b> -->").is_empty());
}

#[test]
fn anchors_are_limited_in_number_and_length() {
    let mut html = String::new();
    for n in 0..20 {
        write!(html, "<a href=a>n{n}</a><a href='./a#{n}'>n{n}</a><a href=b></a>").unwrap();
    }
    assert_eq!(links(&html), ["a: n0 | n1 | n2 | n3 | n4 | n5 | n6 | n7", "b: "]);
    let html = format!("<a href=a>{}</a>", "ü".repeat(500));
    assert_eq!(page(&html).links[0].anchors[0].chars().count(), ANCHOR_CHARS_MAX);
}

#[test]
fn anchors_of_two_spellings_come_in_document_order() {
    assert_eq!(
        links("<a href=./a>1</a><a href=a>2</a><a href=./a>3</a><a href=a>4</a><a href=a>1</a>"),
        ["a: 1 | 2 | 3 | 4"]
    );
}

#[test]
fn the_first_base_with_a_usable_url_applies_to_all_links() {
    assert_eq!(
        links("<a href=x>x</a><base target=_top><base href=../other/><base href=/no/>"),
        ["https://example.org/other/x: x"]
    );
    assert_eq!(links("<base href=data:x><a href=x>x</a>"), ["x: x"]);
    let own = page("<base href=https://example.org/dir/page.html><a href=#a>a</a>");
    assert!(own.links.is_empty() && own.hyperlinks == 1);
}

#[test]
fn redirects_are_found_and_resolved() {
    for (content, target) in [
        ("0; url=new.html", Some("https://example.org/dir/new.html")),
        ("0;URL='../new.html#frag'", Some("https://example.org/new.html")),
        ("10;https://other.org", Some("https://other.org/")),
        ("11;url=slow.html", None),
        ("5", None),
        ("0;url=page.html", None),
        ("0;url=#top", None),
        ("0;url=mailto:a@b", None),
        ("0;url=http://[bad", None),
    ] {
        let html = format!("<meta HTTP-EQUIV=Refresh content=\"{content}\">");
        assert_eq!(page(&html).redirect.as_deref(), target, "{content}");
    }
    let hidden = "<noscript><meta http-equiv=refresh content='0;a'></noscript><p>";
    assert_eq!(page(hidden).redirect, None);
    let second = "<meta http-equiv=refresh content=60><meta http-equiv=refresh content='0;a'>";
    assert_eq!(page(second).redirect, None);
    assert_eq!(page("<meta name=refresh content='0;a'>").redirect, None);
}

#[test]
fn the_canonical_url_is_the_first_one() {
    for (html, canonical) in [
        ("<link rel=CANONICAL href=a>", Some("https://example.org/dir/a")),
        (
            "<link rel='x canonical' href=a><link rel=canonical href=b>",
            Some("https://example.org/dir/a"),
        ),
        ("<link rel=canonical href=page.html#x>", Some("https://example.org/dir/page.html")),
        (
            "<link rel=canonical href=' '><link rel=canonical href=b>",
            Some("https://example.org/dir/b"),
        ),
        ("<link rel=canonical>", None),
        ("<link rel=alternate href=a>", None),
        ("<link rel=canonical href=ftp://a/>", None),
    ] {
        assert_eq!(page(html).canonical.as_deref(), canonical, "{html}");
    }
}

#[test]
fn xhtml_may_close_what_html_may_not() {
    let parsed = page(
        "<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"><head><title/>\
         <script src=\"x\"/><style/></head><body><template/><a href=\"a\"/>b<textarea/>\
         <![CDATA[<c>]]></body></html>",
    );
    assert_eq!(parsed.text, "b <c>");
    assert!(parsed.links[0].anchors.is_empty());
    assert_eq!(page("<script src=x/>a</script><p>b").text, "b", "HTML has no such thing");
}

#[test]
fn equal_content_has_equal_hashes_whatever_the_markup() {
    let a = page("<title>t</title><p>some <b>text</b>");
    let b = page_at("https://other.org/", "<html><title> t </title><div>some\n\ntext</div>");
    assert_eq!(a.content_hash, b.content_hash);
    assert_ne!(a.content_hash, page("<title>t2</title><p>some text").content_hash);
    assert_eq!(page("<title>t</title><img>").content_hash, None);
}

#[test]
fn truncated_pages_are_pages() {
    let whole = "<!DOCTYPE html><title>Tü</title><p>one <a href=\"a?b=&amp;\">two</a> &eacute;";
    for end in 1..whole.len() {
        let result = parse(&Url::parse("https://example.org/").unwrap(), &whole.as_bytes()[..end]);
        let expect_page = end > "<!DOCTYPE html><title".len();
        assert_eq!(
            result.is_ok(),
            expect_page,
            "{}",
            String::from_utf8_lossy(&whole.as_bytes()[..end])
        );
    }
}

#[test]
fn what_is_no_page_is_skipped_with_its_reason() {
    for (bytes, name) in [
        (&b""[..], "empty"),
        (b" \r\n\t", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0", "binary"),
        (b"\x1f\x8b\x08\x01\x02\x03\x04\x05\x06\x07<p>", "binary"),
        (b"just text, a < b > c", "no-markup"),
        (b"{\"json\": [1, 2]}", "no-markup"),
        (b"fn f(v: Vec<String>) {}", "no-markup"),
        (b"<!-- nothing -->", "no-markup"),
    ] {
        let reason = skip(bytes);
        assert_eq!(reason.name(), name, "{}", String::from_utf8_lossy(bytes));
        assert!(!reason.to_string().is_empty());
    }
    let too_large = vec![b' '; PAGE_BYTES_MAX + 1];
    assert_eq!(skip(&too_large), Skip::TooLarge { bytes: PAGE_BYTES_MAX + 1 });
}

#[test]
fn utf_16_pages_with_a_mark_are_not_binary() {
    let bytes: Vec<u8> = "\u{feff}<p>hello".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let url = Url::parse("https://example.org/").unwrap();
    assert_eq!(parse(&url, &bytes).unwrap().text, "hello");
}

#[test]
fn links_up_to_the_limit_are_indexed_and_one_more_is_not() {
    let mut html = String::from("<p>");
    for n in 0..LINKS_PER_PAGE_MAX {
        write!(html, "<a href={n}>{n}</a>").unwrap();
    }
    assert_eq!(page(&html).links.len(), LINKS_PER_PAGE_MAX);
    html.push_str("<a href=one-more>");
    assert_eq!(skip(html.as_bytes()), Skip::TooManyLinks { links: LINKS_PER_PAGE_MAX + 1 });
}

#[test]
fn many_links_to_few_pages_are_no_problem() {
    let mut html = String::from("<p>");
    for n in 0..=2 * LINKS_PER_PAGE_MAX {
        write!(html, "<a href=a#{n}>{n}</a>").unwrap();
    }
    let parsed = page(&html);
    assert_eq!((parsed.links.len(), parsed.hyperlinks), (1, 2 * LINKS_PER_PAGE_MAX + 1));
}

#[test]
fn overlong_targets_are_left_out_and_counted() {
    let long = "x".repeat(URL_BYTES_MAX_FOR_TESTS);
    let huge = "x".repeat(100_000);
    let parsed = page(&format!(
        "<a href={long}>a</a><a href={huge}>b</a><a href=data:text/html,{huge}>c</a><a href=d>d</a>\
         <link rel=canonical href={long}><meta http-equiv=refresh content=0;{long}>"
    ));
    assert_eq!((parsed.links.len(), parsed.hyperlinks, parsed.overlong_links), (1, 3, 2));
    assert_eq!((parsed.canonical, parsed.redirect), (None, None));
}

const URL_BYTES_MAX_FOR_TESTS: usize = crate::address::URL_BYTES_MAX;

#[test]
fn odd_ascii_is_what_the_check_by_characters_has() {
    for byte in 0..=0x7f_u8 {
        let c = char::from(byte);
        let odd = c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}');
        assert_eq!(is_odd_ascii(byte), odd, "{byte}");
    }
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2_000)
    ) {
        let url = Url::parse("https://example.org/").unwrap();
        let _ = parse(&url, &bytes);
    }

    #[test]
    fn screening_says_what_parsing_says(
        label in "|<p>|\u{feff}|<meta charset=(utf-8|euc-kr|utf-16|iso-2022-jp|x-user-defined)>",
        units in proptest::collection::vec(
            ("[ \u{a0}\u{85}]|[ -~é🦀]|\\PC|[\x01-\x1f]", 1..9_000_usize), 0..3
        ),
        tail in proptest::collection::vec(proptest::num::u8::ANY, 0..3),
    ) {
        let mut bytes = label.into_bytes();
        for (unit, count) in units {
            bytes.extend(unit.repeat(count).into_bytes());
        }
        bytes.extend(tail);
        let parsed = parse(&Url::parse("https://example.org/").unwrap(), &bytes).err();
        let expected = parsed.filter(|skip| matches!(skip, Skip::Empty | Skip::Binary));
        proptest::prop_assert_eq!(screen(&bytes).err(), expected);
    }

    #[test]
    fn tag_soup_never_panics_and_is_normalised(
        soup in "(<[/!?]{0,1}(a href=|svg|title|script|template|p|textarea|img alt=|foreignObject|\
                 plaintext|meta http-equiv=refresh content=0;|link rel=canonical href=|base href=|\
                 !\\[CDATA\\[|!--)[ ='\"/a-z:#?%ü.]{0,9}[>]{0,1}[ \t\n\r\u{a0}a-z&;]{0,9}){0,30}"
    ) {
        let url = Url::parse("https://example.org/").unwrap();
        let html = format!("<p>{soup}");
        let parsed = parse(&url, html.as_bytes()).unwrap();
        let again = parse(&url, html.as_bytes()).unwrap();
        proptest::prop_assert_eq!(&parsed, &again);
        let anchors = parsed.links.iter().flat_map(|link| &link.anchors);
        for words in anchors.chain([&parsed.title, &parsed.text]) {
            let joined = words.split_whitespace().collect::<Vec<_>>().join(" ");
            proptest::prop_assert_eq!(words, &joined);
        }
        proptest::prop_assert!(parsed.links.is_sorted_by(|a, b| a.url < b.url));
        let targets = parsed.links.iter().map(|link| &link.url);
        for url in targets.chain(&parsed.redirect).chain(&parsed.canonical) {
            let reparsed = Url::parse(url).ok().as_ref().and_then(canonical);
            proptest::prop_assert_eq!(reparsed.as_ref(), Some(url));
        }
    }
}
