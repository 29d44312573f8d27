//! Addresses: the one spelling of a URL under which a page is stored, and the URLs of files.
//!
//! Two links that reach the same page should name the same row, so every URL that enters the
//! index goes through [`canonical`]. [`Base::url_of`] makes a file's URL by the same rules. So
//! a link `a%20b.html` or `a b.html` on a page finds the file `a b.html`.
//!
//! The canonical form:
//!
//! * The scheme is http or https, the host is in lower case (and IDNA), the default port is
//!   dropped, and dot segments are resolved. The `url` crate, which implements the WHATWG
//!   standard, does all this.
//! * There is no fragment, no empty query, no user name and no password.
//! * In the path, exactly the characters that RFC 3986 forbids in a segment are escaped, with
//!   upper-case digits. Every other escape is undone (`%7E` becomes `~`), except for those
//!   that would change the meaning, such as `%2F` and `%25`. In the query only unreserved
//!   characters are unescaped, because `&`, `=` and `+` have a meaning there.
//!
//! Invariant: `canonical` is idempotent. Not here: dropping `index.html` or tracking
//! parameters, because a file system or server may serve different pages there. The index
//! clusters such duplicates by their content.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use url::Url;

use crate::Error;

/// The longest URL, in bytes, that is stored as a page or as the target of a link.
pub const URL_BYTES_MAX: usize = 2_000;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Returns the canonical form of a URL. `None` unless the URL is http or https and short
/// enough.
///
/// ```
/// use url::Url;
/// use webindex::address::canonical;
///
/// let url = Url::parse("HTTP://Example.ORG:80/a/../%7euser/?#top")?;
/// assert_eq!(canonical(&url).as_deref(), Some("http://example.org/~user/"));
/// assert_eq!(canonical(&Url::parse("mailto:a@example.org")?), None);
/// # Ok::<(), url::ParseError>(())
/// ```
pub fn canonical(url: &Url) -> Option<String> {
    let text = canonical_unbounded(url)?;
    (text.len() <= URL_BYTES_MAX).then_some(text)
}

/// Like [`canonical`], without a limit on the length.
pub(crate) fn canonical_unbounded(url: &Url) -> Option<String> {
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let mut out = String::with_capacity(url.as_str().len());
    out.push_str(url.scheme());
    out.push_str("://");
    out.push_str(url.host_str()?);
    if let Some(port) = url.port() {
        out.push(':');
        out.push_str(&port.to_string());
    }
    push_normalised(&mut out, url.path(), is_path_byte);
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        out.push('?');
        push_normalised(&mut out, query, is_unreserved);
    }
    Some(out)
}

/// Parses a URL that a user typed and returns its canonical form.
///
/// # Errors
///
/// [`Error::BadUrl`] unless it is an absolute http or https URL of at most [`URL_BYTES_MAX`]
/// bytes; the message shows an example.
pub fn canonicalize(given: &str) -> Result<String, Error> {
    let bad = |problem: String| Error::BadUrl { given: given.to_string(), problem };
    let url = Url::parse(given).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(format!("its scheme is `{}`", url.scheme())));
    }
    canonical(&url).ok_or_else(|| bad(format!("it is longer than {URL_BYTES_MAX} bytes")))
}

/// Copies `text`. Undoes the escapes of bytes that `plain` accepts, and escapes bytes that no
/// part of a URL may hold. A `%` that begins no escape is escaped itself.
fn push_normalised(out: &mut String, text: &str, plain: fn(u8) -> bool) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'%' {
            push_byte(out, byte, |b| is_path_byte(b) || b == b'/' || b == b'?');
            continue;
        }
        let digits = bytes.get(at).zip(bytes.get(at + 1));
        let escaped = digits.and_then(|(&high, &low)| Some((hex(high)?, hex(low)?)));
        match escaped {
            Some((high, low)) => {
                at += 2;
                push_byte(out, high << 4 | low, plain);
            }
            None => push_byte(out, b'%', plain),
        }
    }
}

fn push_byte(out: &mut String, byte: u8, plain: impl Fn(u8) -> bool) {
    if plain(byte) {
        out.push(char::from(byte));
    } else {
        out.push('%');
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// RFC 3986 `unreserved`.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986 `pchar` without escapes: the bytes that a path segment may hold unescaped.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';')
        || matches!(byte, b'=' | b':' | b'@')
}

/// The URL under which a directory of files is mounted.
///
/// ```
/// use std::path::Path;
/// use webindex::address::Base;
///
/// let base = Base::parse("https://example.org/docs/")?;
/// let url = base.url_of(Path::new("a b/100%.html")).expect("a relative path");
/// assert_eq!(url, "https://example.org/docs/a%20b/100%25.html");
/// assert_eq!(base.path_of(&url).as_deref(), Some(Path::new("a b/100%.html")));
/// # Ok::<(), webindex::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    canonical: String,
}

impl Base {
    /// Checks a base URL: http or https, no query, no fragment, and `/` at its end.
    ///
    /// # Errors
    ///
    /// [`Error::BadBase`] with what is wrong and an example of a good one.
    pub fn parse(given: &str) -> Result<Self, Error> {
        let bad = |problem| Error::BadBase { given: given.to_string(), problem };
        let url = Url::parse(given).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => bad("it has no scheme"),
            url::ParseError::EmptyHost => bad("it has no host"),
            _ => bad("it is not a URL"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("its scheme is neither http nor https"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it has a query or a fragment, which cannot stand before a file name"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it has a user name or a password"));
        }
        if !url.path().ends_with('/') {
            return Err(bad("it does not end in `/`"));
        }
        match canonical(&url) {
            Some(canonical) if canonical.len() <= URL_BYTES_MAX / 2 => Ok(Base { canonical }),
            _ => Err(bad("it is longer than 1000 bytes")),
        }
    }

    /// Returns the base in canonical form.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// Returns the canonical URL of a file, given its path below the mounted directory.
    ///
    /// Returns `None` for a path that is absolute or contains `..`. The result may be longer
    /// than [`URL_BYTES_MAX`]: check its length before you store it.
    pub fn url_of(&self, relative: &Path) -> Option<String> {
        let mut url = self.canonical.clone();
        let mut first = true;
        for component in relative.components() {
            let Component::Normal(segment) = component else { return None };
            if !first {
                url.push('/');
            }
            first = false;
            for &byte in segment.as_encoded_bytes() {
                push_byte(&mut url, byte, is_path_byte);
            }
        }
        Some(url)
    }

    /// Returns the file path below the mounted directory that a canonical URL names.
    ///
    /// Returns `None` for a URL outside of the base, for one with a query, and for one whose
    /// path no file can have. Such a path contains `..`, an escaped `/`, or bytes that are not
    /// UTF-8.
    pub fn path_of(&self, url: &str) -> Option<PathBuf> {
        let relative = self.relative(url)?;
        if relative.contains('?') {
            return None;
        }
        let mut path = PathBuf::new();
        for segment in relative.split('/').filter(|segment| !segment.is_empty()) {
            let name = unescape(segment)?;
            if name == "." || name == ".." || name.contains(['/', '\\', '\0']) {
                return None;
            }
            path.push(name);
        }
        Some(path)
    }

    /// Returns what follows the base in a canonical URL, still escaped.
    pub fn relative<'u>(&self, url: &'u str) -> Option<&'u str> {
        url.strip_prefix(self.canonical.as_str())
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

fn unescape(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = hex(rest.next()?)?;
            bytes.push(high << 4 | hex(rest.next()?)?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(given: &str) -> String {
        canonicalize(given).unwrap()
    }

    #[test]
    fn spellings_of_one_page_become_one() {
        for (given, expected) in [
            ("HTTPS://Example.ORG", "https://example.org/"),
            ("https://example.org:443/a", "https://example.org/a"),
            ("https://example.org:8443/a", "https://example.org:8443/a"),
            ("http://example.org/a/./b/../c.html#frag", "http://example.org/a/c.html"),
            ("http://example.org/%7Eu/%41", "http://example.org/~u/A"),
            ("http://example.org/a%2fb", "http://example.org/a%2Fb"),
            ("http://example.org/f%28x%29.html", "http://example.org/f(x).html"),
            ("http://example.org/a[1]|^.html", "http://example.org/a%5B1%5D%7C%5E.html"),
            ("http://example.org/ü b", "http://example.org/%C3%BC%20b"),
            ("http://example.org/100%", "http://example.org/100%25"),
            ("http://example.org/100%zz", "http://example.org/100%25zz"),
            ("http://example.org/?", "http://example.org/"),
            ("http://example.org/?a=%26&b=%7e", "http://example.org/?a=%26&b=~"),
            ("http://user:secret@example.org/", "http://example.org/"),
            ("http://bücher.example/", "http://xn--bcher-kva.example/"),
            ("http://example.org/A/Index.html", "http://example.org/A/Index.html"),
            ("http://[::1]:80/x", "http://[::1]/x"),
            ("http:\\\\example.org\\a", "http://example.org/a"),
        ] {
            assert_eq!(canon(given), expected);
            assert_eq!(canon(expected), expected, "not idempotent");
        }
    }

    #[test]
    fn what_is_no_page_is_refused_with_an_example() {
        for given in ["", "example.org", "/a.html", "ftp://example.org/", "mailto:a@b", "http://"] {
            let error = canonicalize(given).unwrap_err().to_string();
            assert!(error.contains("https://example.org/a.html"), "{error}");
        }
    }

    #[test]
    fn the_length_limit_holds_for_the_canonical_form() {
        let fits = format!("http://example.org/{}", "a".repeat(URL_BYTES_MAX - 19));
        assert_eq!(canon(&fits).len(), URL_BYTES_MAX);
        assert!(canonicalize(&format!("{fits}a")).is_err());
        assert!(canonicalize(&format!("http://example.org/{}", " x".repeat(900))).is_err());
    }

    #[test]
    fn a_bad_base_is_refused_with_the_reason() {
        for (given, reason) in [
            ("example.org/", "no scheme"),
            ("ftp://example.org/", "neither http nor https"),
            ("https://example.org/docs", "does not end"),
            ("https://example.org/?q=/", "query"),
            ("https://example.org/#/", "fragment"),
            ("https://", "no host"),
            ("https://a:b@example.org/", "password"),
            ("https://exa mple.org/", "not a URL"),
            ("file:///tmp/", "neither"),
        ] {
            let error = Base::parse(given).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("https://example.org/"), "{error}");
        }
        let long = format!("https://example.org/{}/", "a".repeat(1_000));
        assert!(Base::parse(&long).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn a_base_is_canonical() {
        assert_eq!(Base::parse("HTTP://Example.org:80").unwrap().as_str(), "http://example.org/");
        assert_eq!(Base::parse("https://a.b/%7Ex/").unwrap().to_string(), "https://a.b/~x/");
    }

    #[test]
    fn files_get_the_url_that_a_link_to_them_resolves_to() {
        let base = Base::parse("https://example.org/d/").unwrap();
        let page = Url::parse("https://example.org/d/index.html").unwrap();
        for (file, href) in [
            ("index.html", "index.html"),
            ("a b.html", "a b.html"),
            ("a b.html", "a%20b.html"),
            ("x/ü.html", "x/%c3%bc.html"),
            ("x/ü.html", "./x/ü.html"),
            ("op(1)[2].html", "op%281%29[2].html"),
            ("100%.html", "100%25.html"),
            ("q?.html", "q%3F.html"),
            ("a#b.html", "a%23b.html#c"),
            ("tab\there.html", "tab%09here.html"),
            ("std::vec.html", "./std::vec.html"),
            ("back\\slash.html", "back%5Cslash.html"),
        ] {
            let linked = canonical(&page.join(href).unwrap()).unwrap();
            assert_eq!(base.url_of(Path::new(file)).unwrap(), linked, "{href}");
        }
    }

    #[test]
    fn paths_that_leave_the_directory_have_no_url() {
        let base = Base::parse("https://example.org/").unwrap();
        assert_eq!(base.url_of(Path::new("/etc/passwd")), None);
        assert_eq!(base.url_of(Path::new("a/../../b")), None);
        assert_eq!(base.path_of("https://example.org/a%2F..%2Fb"), None);
        assert_eq!(base.path_of("https://example.org/a?b"), None);
        assert_eq!(base.path_of("https://example.com/a"), None);
        assert_eq!(base.path_of("https://example.org/%FF"), None);
    }

    proptest::proptest! {
        #[test]
        fn canonical_is_idempotent(path in "\\PC{0,40}", query in "\\PC{0,20}") {
            if let Ok(url) = Url::parse(&format!("http://example.org/{path}?{query}")) {
                let once = canonical_unbounded(&url).expect("an http URL");
                let again = Url::parse(&once).expect("canonical parses");
                proptest::prop_assert_eq!(canonical_unbounded(&again).expect("http"), once);
            }
        }

        #[test]
        fn paths_come_back(names in proptest::collection::vec("[^/\\\\\\x00]{1,12}", 1..4)) {
            let base = Base::parse("https://example.org/d/").expect("a good base");
            let path: PathBuf = names.iter().filter(|n| *n != "." && *n != "..").collect();
            let url = base.url_of(&path).expect("a relative path");
            proptest::prop_assert_eq!(base.path_of(&url), Some(path));
            let parsed = Url::parse(&url).expect("file URLs parse");
            proptest::prop_assert_eq!(canonical_unbounded(&parsed), Some(url));
        }
    }
}
