//! Tests of documents that try to keep a parser busy: the time must stay linear.

use std::time::Instant;

use super::tests::{page, skip};
use super::*;

#[test]
fn deep_nesting_is_only_long() {
    let n = 50_000;
    for tag in ["div", "a href=x", "svg", "template", "b", "table", "foreignObject"] {
        let open = format!("<{tag}>").repeat(n);
        let html = format!("<p>{open}x{}", "</div>".repeat(n));
        page(&html);
    }
}

/// Makes a page of half the largest size by repeating `unit`.
fn flood(start: &str, unit: impl Fn(usize) -> String) -> String {
    let mut html = String::from(start);
    let mut n = 0;
    while html.len() < 4 << 20 {
        html.push_str(&unit(n));
        n += 1;
    }
    html
}

#[test]
fn tags_with_too_many_attributes_are_refused_soon() {
    let attribute = |n: usize| format!(" a{n}");
    let quoted = |n: usize| format!(" a{n}=\">\"b\"");
    let tags = |n: usize| match n % 1_100 {
        0 => String::from("><p"),
        _ => format!(" a{n}"),
    };
    let floods = [
        flood("<p", attribute),
        flood("<p>text</p", attribute),
        flood("<p>text <!-- x --><p ", quoted),
        flood("<p>text <script><!-- </script ", attribute),
        flood("<p>text <svg><![CDATA[ <!-- ]]><a", attribute),
        flood("<p", tags),
    ];
    for html in &floods {
        assert_eq!(skip(html.as_bytes()), Skip::TooManyAttributes, "{}", &html[..60]);
    }
}

#[test]
fn long_comments_attributes_and_scripts_are_no_problem() {
    let words = "word > word ".repeat(40_000);
    for html in [
        format!("<p>a<!-- {words} <p x y z -->b"),
        format!("<p>a<!DOCTYPE {}>b", words.replace('>', "")),
        format!("<p>a<script><!-- {words} </script>b"),
        format!("<p>a<? {} >b", words.replace('>', "")),
        format!("<p>a<!-- {words} --><!-- {words} --><i title='{words}'></i>b"),
        format!("<p>a<img src=data:{}>b", "x/".repeat(200_000)).replace("img", "i"),
        format!("<p>a<svg><![CDATA[ {words} ]]></svg>b"),
    ] {
        assert_eq!(page(&html).text, "ab", "{}", &html[..20]);
    }
}

#[test]
fn the_limit_is_for_the_attributes_of_one_tag() {
    let tag = |attributes: usize| format!("<p{}>", " a".repeat(attributes));
    let fits = tag(ATTRIBUTES_PER_TAG_MAX);
    assert_eq!(page(&format!("{fits}a{fits}b")).text, "a b");
    assert_eq!(skip(tag(ATTRIBUTES_PER_TAG_MAX + 1).as_bytes()), Skip::TooManyAttributes);
}

/// Hostile documents of about `bytes` bytes, each with a description.
fn hostile(bytes: usize) -> Vec<(&'static str, String)> {
    let fill = |start: &str, unit: &str| {
        let end = if start.contains("CDATA") { "]]" } else { "" };
        format!("<p>x{start}{}{end}", unit.repeat(bytes / unit.len()))
    };
    let numbered = |start: &str, unit: fn(usize) -> String| {
        format!("<p>x{start}{}", (0..bytes / 16).map(unit).collect::<String>())
    };
    vec![
        ("attributes", numbered("<i ", |n| format!(" a{n}='{n}'"))),
        ("an unterminated tag name", fill("<", "i")),
        ("an unterminated attribute name", fill("<a ", "h")),
        ("an unterminated href", fill("<a href='", "x&amp;ü")),
        ("an unterminated end tag", fill("</i", "i")),
        ("an unterminated comment", fill("<!--", "- <!-- --!")),
        ("dashes", fill("<!--", "-")),
        ("an unterminated doctype", fill("<!doctype ", "html \"")),
        ("an unterminated section", fill("<svg><![CDATA[", "]] ]>]")),
        ("a section that is a comment", fill("<![CDATA[", "]]")),
        ("a script in comments", fill("<script>", "<!--<script></scrip")),
        ("end tags in raw text", fill("<textarea>", "</textare")),
        ("long end tags in raw text", fill("<style></style", "e")),
        ("angle brackets", fill("", "<")),
        ("angle brackets and letters", fill("", "<ü<")),
        ("slashes", fill("<i ", "/")),
        ("ampersands", fill("", "&")),
        ("ambiguous ampersands", fill("&", "ambiguous")),
        ("digits of a reference", fill("&#", "9")),
        ("NULs", fill("", "a\0")),
        ("carriage returns", fill("", "\r\r\n")),
        ("nested elements", fill("", "<div>")),
        ("nested links", numbered("", |n| format!("<a href={n}>"))),
        ("nested svg", fill("", "<svg>")),
        ("nested foreign objects", fill("<svg>", "<foreignObject><svg>")),
        ("nested templates", fill("", "<template>")),
        ("a word", fill("", "w")),
        ("white space", fill("", " \u{a0}\n")),
    ]
}

#[test]
fn time_is_linear_whatever_the_bytes() {
    let url = Url::parse("https://example.org/").unwrap();
    for (what, html) in hostile(2 << 20) {
        let start = Instant::now();
        let _ = parse(&url, html.as_bytes());
        // Parsing takes some tenths of a second even when not optimised, so there is room for
        // slow machines. Quadratic time would be minutes to hours.
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 10.0, "{what}: {seconds} s");
    }
}
