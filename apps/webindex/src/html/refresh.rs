//! Parses `<meta http-equiv=refresh content="0; URL=...">` by the standard's "shared
//! declarative refresh steps", which accept every spelling that browsers accept.

/// A refresh that names a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refresh<'a> {
    /// The delay. Fractions are dropped, as browsers do.
    pub(super) seconds: u64,
    /// The target as written, without quotes. Empty if the page only reloads itself.
    pub(super) href: &'a str,
}

/// Parses the `content` attribute. `None` if it is not a refresh.
pub(super) fn parse(content: &str) -> Option<Refresh<'_>> {
    let content = content.trim_ascii_start();
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    let (time, rest) = content.split_at(digits);
    if digits == 0 && !rest.starts_with('.') {
        return None;
    }
    // A delay with more digits than a u64 holds never passes.
    let seconds = if digits == 0 { 0 } else { time.parse().unwrap_or(u64::MAX) };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let separates = |c: char| c == ';' || c == ',' || c.is_ascii_whitespace();
    if !rest.is_empty() && !rest.starts_with(separates) {
        return None;
    }
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix([';', ',']).unwrap_or(rest).trim_ascii_start();
    Some(Refresh { seconds, href: unquote(strip_url_equals(rest)) })
}

/// Drops `URL =`. A target that merely begins with these letters stays whole.
fn strip_url_equals(rest: &str) -> &str {
    let named = rest.get(..3).filter(|name| name.eq_ignore_ascii_case("url"));
    let after = named.and_then(|_| rest.get(3..)?.trim_ascii_start().strip_prefix('='));
    after.map_or(rest, str::trim_ascii_start)
}

/// Drops an opening quote, and everything from the closing quote on.
fn unquote(href: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = href.strip_prefix(quote) {
            return inner.split(quote).next().unwrap_or(inner);
        }
    }
    href
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_redirect_is_read() {
        for content in [
            "0;url=a.html",
            "0; URL=a.html",
            "0 ; url = a.html",
            "  0,URL='a.html'",
            "0 url=\"a.html\" trailing",
            "0;a.html",
            "0 a.html",
            "0;'a.html'",
            "0.5; url=a.html",
            ".9;url=a.html",
            "0;url='a.html",
        ] {
            assert_eq!(parse(content), Some(Refresh { seconds: 0, href: "a.html" }), "{content}");
        }
    }

    #[test]
    fn delays_and_reloads_are_distinguished() {
        assert_eq!(parse("300"), Some(Refresh { seconds: 300, href: "" }));
        assert_eq!(parse("5;"), Some(Refresh { seconds: 5, href: "" }));
        assert_eq!(parse("5;url="), Some(Refresh { seconds: 5, href: "" }));
        let never = "99999999999999999999999;url=a";
        assert_eq!(parse(never), Some(Refresh { seconds: u64::MAX, href: "a" }));
    }

    #[test]
    fn names_that_begin_with_url_stay_whole() {
        assert_eq!(parse("0;urls.html").map(|r| r.href), Some("urls.html"));
        assert_eq!(parse("0;ur").map(|r| r.href), Some("ur"));
        assert_eq!(parse("0;üüü").map(|r| r.href), Some("üüü"));
    }

    #[test]
    fn what_is_no_refresh_is_none() {
        for content in ["", "url=a", "a;url=b", "-1;url=a", "0x;url=a"] {
            assert_eq!(parse(content), None, "{content}");
        }
    }
}
