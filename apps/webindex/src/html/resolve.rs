//! Resolves an `href` to its URL, with a fast path for the links that most pages have.
//!
//! Most documentation links are relative paths of plain characters, such as
//! `../option/enum.Option.html`. Such a link needs no parsing, escaping or canonical form: its
//! path is appended to the page's directory. Every other link goes through the `url` crate.
//! Both ways must give the same URL.

use url::Url;

use crate::address::{canonical_unbounded, is_unreserved};

/// Resolves the links of one page.
#[derive(Debug)]
pub(super) struct Resolver<'b> {
    base: &'b Url,
    /// The directory of the base in canonical form, such as `https://example.org/dir/`, if it
    /// has one.
    directory: Option<String>,
    /// The index in `directory` behind the first slash of the path.
    root_end: usize,
}

impl<'b> Resolver<'b> {
    pub(super) fn new(base: &'b Url) -> Self {
        let directory = directory_of(base);
        let root_end = directory.as_deref().and_then(root_end).unwrap_or_default();
        Resolver { base, directory, root_end }
    }

    /// Returns the canonical URL, of any length. `None` unless it is http or https.
    pub(super) fn resolve(&self, href: &str) -> Option<String> {
        match self.append(href) {
            Some(url) => Some(url),
            None => canonical_unbounded(&self.base.join(href).ok()?),
        }
    }

    /// Takes the fast path. `None` if the `href` does not fit it.
    fn append(&self, href: &str) -> Option<String> {
        let directory = self.directory.as_deref()?;
        let mut end = directory.len();
        let mut rest = href;
        if let Some(path) = rest.strip_prefix('/') {
            end = self.root_end;
            rest = path;
        }
        loop {
            if let Some(below) = rest.strip_prefix("../") {
                // The parent of the root is the root.
                let path = directory[self.root_end..end].strip_suffix('/');
                let above = path.and_then(|path| path.rfind('/'));
                end = self.root_end + above.map_or(0, |slash| slash + 1);
                rest = below;
            } else if let Some(below) = rest.strip_prefix("./") {
                rest = below;
            } else {
                break;
            }
        }
        if href.is_empty() || !is_plain(rest) {
            return None;
        }
        let mut url = String::with_capacity(end + rest.len());
        url.push_str(&directory[..end]);
        url.push_str(rest);
        Some(url)
    }
}

/// Returns whether a path can be appended unchanged: unreserved characters, and no dot
/// segments.
fn is_plain(path: &str) -> bool {
    let mut last = b'/';
    for byte in path.bytes() {
        let is_plain = is_unreserved(byte) || byte == b'/';
        if !is_plain || (last == b'/' && matches!(byte, b'.' | b'/')) {
            return false;
        }
        last = byte;
    }
    true
}

fn directory_of(base: &Url) -> Option<String> {
    let mut directory = canonical_unbounded(base)?;
    let path_end = directory.find('?').unwrap_or(directory.len());
    let end = directory[..path_end].rfind('/')? + 1;
    directory.truncate(end);
    Some(directory)
}

fn root_end(directory: &str) -> Option<usize> {
    let host = directory.find("://")? + "://".len();
    Some(host + directory[host..].find('/')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASES: [&str; 6] = [
        "https://example.org",
        "https://user:pw@Example.org:81/a/b%2fc/%7ed/e.html?q=/x/y#z",
        "http://example.org/a//b/",
        "http://[::1]/a/b",
        "http://example.org/x/?",
        "ftp://example.org/a/b",
    ];

    fn long_way(base: &Url, href: &str) -> Option<String> {
        base.join(href).ok().as_ref().and_then(canonical_unbounded)
    }

    #[test]
    fn both_ways_lead_to_the_same_place() {
        let hrefs = "a a.html a/b.html ../a ../../a ../../../../a/b/ ./a ./../a .././a ../ ./ / /a \
                     /../a /a/../b // //a /./a . .. ... .a a. a/. a/.. a/./b a/..b ..a ../.. ../.a \
                     a//b a/ ~a a_b-c.d http://x/y HTTP:a https:a mailto:a a:b a%20b %2e%2e/a a%2e \
                     ?q a?q # ü \\a a\\b a;b a\tb";
        for base in BASES.map(|base| Url::parse(base).unwrap()) {
            let resolver = Resolver::new(&base);
            for href in hrefs.split(' ').chain([""]) {
                assert_eq!(resolver.resolve(href), long_way(&base, href), "{href} at {base}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn both_ways_lead_to_the_same_place_at_random(
            href in "/{0,1}(\\.\\./|\\./|[a-z.]{1,2}/){0,4}[a-zA-Z0-9._~:%-]{0,4}",
            base in 0..BASES.len(),
        ) {
            let base = Url::parse(BASES[base]).unwrap();
            let resolved = Resolver::new(&base).resolve(&href);
            proptest::prop_assert_eq!(resolved, long_way(&base, &href));
        }
    }
}
