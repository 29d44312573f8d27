//! `/search`: the application's search as a page that the server writes, for browsers without
//! JavaScript and for everybody who is shown the search alone.
//!
//! The page contains data, and a browser sends no token when it opens a page. So the server writes
//! the page only if the search needs no token and values are shown. Otherwise it sends the
//! console's page without data. A script in that page fetches the data with the token.
//! Invariant: every text from the store or the request is written by [`Page::text`].

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::panel::{Panel, PanelError};
use crate::server::assets;
use crate::state::App;

/// Hits of a page.
const HITS: usize = 10;
/// The last page.
const PAGE_MAX: usize = 100;

/// A search, or one of the things that were found.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    q: String,
    /// Of this site alone.
    #[serde(default)]
    site: String,
    /// Which page of hits, from one.
    page: Option<usize>,
    /// One thing, in place of hits.
    open: Option<String>,
}

/// The answer of [`Panel::search`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Found {
    total: usize,
    hits: Vec<Hit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hit {
    url: String,
    title: String,
    snippet: String,
    highlights: Vec<std::ops::Range<usize>>,
    rank: f64,
    in_links: Option<u64>,
    duplicates: Option<u64>,
    counted_max: Option<u64>,
}

impl Hit {
    /// A count in words.
    fn count(&self, n: u64) -> String {
        let more = self.counted_max.is_some_and(|max| n >= max);
        if more { format!("{n} or more") } else { n.to_string() }
    }
}

/// The answer of [`Panel::page`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Opened {
    page: Thing,
    cluster: Option<Cluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Thing {
    url: String,
    title: String,
    excerpt: String,
    canonical: String,
    rank: f64,
    in_links: u64,
    out_links: u64,
    anchors: Vec<Anchor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Anchor {
    source: String,
    anchors: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cluster {
    members: Vec<Member>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    url: String,
    rank: f64,
    in_links: u64,
}

pub(crate) async fn page(
    State(app): State<App>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Response {
    let base = &app.settings.base_path;
    let panel = match app.panel.as_deref() {
        Some(panel) if app.policy.opens_search() && !app.settings.hide_values => panel,
        _ => return assets::serve(base, "/search", &headers),
    };
    let mut page = Page::begin(base, &app.settings.title, &asked);
    let written = match &asked.open {
        Some(key) => open(&mut page, panel, key).await,
        None if asked.q.trim().is_empty() => Ok(StatusCode::OK),
        None => search(&mut page, panel, &asked).await,
    };
    let status = written.unwrap_or_else(|error| {
        let (status, why) = match error {
            PanelError::Asked(why) => (StatusCode::BAD_REQUEST, why),
            PanelError::Failed(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        };
        page.raw("<p class=\"oops\" role=\"alert\">").text(&why).raw("</p>");
        status
    });
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.end()).into_response()
}

async fn search(
    page: &mut Page,
    panel: &dyn Panel,
    asked: &Asked,
) -> Result<StatusCode, PanelError> {
    let number = asked.page.unwrap_or(1).clamp(1, PAGE_MAX);
    let offset = (number - 1) * HITS;
    let found = panel.search(&asked.query(), offset, HITS).await?;
    let found: Found = read(found)?;
    let matched = if found.total == 1 { "page matches" } else { "pages match" };
    page.raw("<p class=\"dim\" role=\"status\">");
    page.text(&format!("{} {matched}", found.total)).raw("</p>");
    page.raw(&format!("<ol class=\"hits\" start=\"{}\">", offset + 1));
    for hit in &found.hits {
        page.hit(hit);
    }
    page.raw("</ol><p>");
    if number > 1 {
        page.link("rel=\"prev\"", &asked.at(number - 1), "earlier").raw(" ");
    }
    if offset + HITS < found.total && number < PAGE_MAX {
        page.link("rel=\"next\"", &asked.at(number + 1), "more");
    }
    page.raw("</p>");
    Ok(StatusCode::OK)
}

async fn open(page: &mut Page, panel: &dyn Panel, key: &str) -> Result<StatusCode, PanelError> {
    let Some(found) = panel.page(key).await? else {
        page.raw("<p>").text(&format!("{key:?} is not stored.")).raw("</p>");
        return Ok(StatusCode::NOT_FOUND);
    };
    let Opened { page: thing, cluster } = read(found)?;
    page.raw("<h2>")
        .text(thing.name())
        .raw("</h2><p class=\"url\">")
        .out(&thing.url)
        .raw("</p><p>");
    page.text(&thing.excerpt).raw("</p><p class=\"dim\">");
    page.text(&format!(
        "rank {:.6} · {} out-links · {} in-links",
        thing.rank, thing.out_links, thing.in_links
    ));
    page.raw("</p>");
    if thing.canonical != thing.url && !thing.canonical.is_empty() {
        page.raw("<p>A duplicate: the cluster is shown as ").thing(&thing.canonical).raw("</p>");
    }
    let members = cluster.unwrap_or_default().members;
    if members.len() > 1 {
        page.raw("<h3>Duplicates, the best first</h3><ol>");
        for member in &members {
            page.raw("<li>").thing(&member.url).raw(" <span class=\"dim\">");
            page.text(&format!("rank {:.6}, {} in-links", member.rank, member.in_links));
            page.raw("</span></li>");
        }
        page.raw("</ol>");
    }
    if !thing.anchors.is_empty() {
        page.raw("<h3>Pages that link here</h3><ul>");
        for anchor in &thing.anchors {
            page.raw("<li>").thing(&anchor.source);
            for text in &anchor.anchors {
                page.raw(" “").text(text).raw("”");
            }
            page.raw("</li>");
        }
        page.raw("</ul>");
    }
    Ok(StatusCode::OK)
}

fn read<T: for<'d> Deserialize<'d>>(value: serde_json::Value) -> Result<T, PanelError> {
    serde_json::from_value(value).map_err(|error| PanelError::Failed(error.to_string()))
}

impl Thing {
    fn name(&self) -> &str {
        if self.title.is_empty() { &self.url } else { &self.title }
    }
}

impl Asked {
    /// The query, with its site as a part of it.
    fn query(&self) -> String {
        match self.site.trim() {
            "" => self.q.clone(),
            site => format!("{} site:{}", self.q, site.split_whitespace().next().unwrap_or(site)),
        }
    }

    /// The parameters of another page of the same search.
    fn at(&self, number: usize) -> String {
        let mut query = format!("q={}", encoded(&self.q));
        if !self.site.is_empty() {
            query.push_str(&format!("&site={}", encoded(&self.site)));
        }
        format!("{query}&page={number}")
    }
}

/// A text as the value of a parameter in a URL.
fn encoded(text: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let byte =
        |byte: u8| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}

/// A page that is being written.
struct Page {
    base: String,
    html: String,
}

impl Page {
    fn begin(base: &str, title: &str, asked: &Asked) -> Page {
        let mut page = Page { base: base.to_owned(), html: String::with_capacity(8 << 10) };
        page.raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        page.raw("<meta name=\"color-scheme\" content=\"light dark\"><title>");
        page.text(if asked.q.is_empty() { "Search" } else { &asked.q }).raw(" · ").text(title);
        page.raw(&format!(
            "</title><link rel=\"icon\" href=\"{base}/icon.svg\" type=\"image/svg+xml\">\
             <link rel=\"stylesheet\" href=\"{base}/style.css\"></head><body><header>\
             <span class=\"brand\">Percolator</span><nav aria-label=\"pages\">\
             <a href=\"{base}/search\" aria-current=\"page\">Search</a>\
             <a href=\"{base}/\">Console</a></nav></header><main><h1>Search</h1>\
             <form class=\"find\" role=\"search\" method=\"get\" action=\"{base}/search\">\
             <label>search <input type=\"search\" name=\"q\" maxlength=\"500\" value=\""
        ));
        page.text(&asked.q)
            .raw("\"></label> <label>site <input name=\"site\" maxlength=\"200\" value=\"");
        page.text(&asked.site).raw("\"></label> <button>search</button></form>");
        page
    }

    fn end(mut self) -> String {
        self.raw("</main></body></html>\n");
        self.html
    }

    /// Writes HTML of ours.
    fn raw(&mut self, html: &str) -> &mut Self {
        self.html.push_str(html);
        self
    }

    /// Writes a text, whatever is in it.
    fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.html.push_str("&amp;"),
                '<' => self.html.push_str("&lt;"),
                '>' => self.html.push_str("&gt;"),
                '"' => self.html.push_str("&quot;"),
                '\'' => self.html.push_str("&#39;"),
                c => self.html.push(c),
            }
        }
        self
    }

    /// Writes a link to this page with other parameters.
    fn link(&mut self, attributes: &str, query: &str, text: &str) -> &mut Self {
        let base = self.base.clone();
        self.raw(&format!("<a {attributes} href=\"{base}/search?")).text(query).raw("\">");
        self.text(text).raw("</a>")
    }

    /// Writes a link to one of the things that are stored.
    fn thing(&mut self, url: &str) -> &mut Self {
        self.link("", &format!("open={}", encoded(url)), url)
    }

    /// Writes an address, as a link if it is one of the web. The other side learns nothing of us.
    fn out(&mut self, url: &str) -> &mut Self {
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return self.text(url);
        }
        self.raw("<a rel=\"noopener noreferrer nofollow\" href=\"").text(url).raw("\">");
        self.text(url).raw("</a>")
    }

    fn hit(&mut self, hit: &Hit) {
        let title = if hit.title.is_empty() { &hit.url } else { &hit.title };
        self.raw("<li class=\"hit\">");
        self.link("class=\"title\"", &format!("open={}", encoded(&hit.url)), title);
        self.raw("<div class=\"url\">").out(&hit.url).raw("</div><div>");
        self.marked(&hit.snippet, &hit.highlights);
        self.raw("</div><div class=\"dim\">").text(&format!("rank {:.6}", hit.rank));
        if let Some(n) = hit.in_links {
            self.text(&format!(" · {} in-links", hit.count(n)));
        }
        if let Some(n) = hit.duplicates.filter(|n| *n > 0) {
            self.text(&format!(" · {} duplicates", hit.count(n)));
        }
        self.raw("</div></li>");
    }

    /// Writes a text with ranges of its bytes marked. A range that is none of it is left out.
    fn marked(&mut self, text: &str, ranges: &[std::ops::Range<usize>]) {
        let mut at = 0;
        for range in ranges {
            let (Some(before), Some(marked)) = (text.get(at..range.start), text.get(range.clone()))
            else {
                continue;
            };
            self.text(before).raw("<mark>").text(marked).raw("</mark>");
            at = range.end;
        }
        self.text(text.get(at..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page { base: "/ops".into(), html: String::new() }
    }

    #[test]
    fn texts_and_addresses_stay_texts_and_addresses() {
        let hostile = "\"><script>'&";
        let mut of = page();
        of.text(hostile).out("javascript:alert(1)").thing(hostile).out("http://a/\"onx=1");
        assert!(!of.html.contains("<script") && !of.html.contains("href=\"javascript"));
        assert!(!of.html.contains("\"onx"), "{}", of.html);
        assert!(of.html.starts_with("&quot;&gt;&lt;script&gt;&#39;&amp;"), "{}", of.html);
        assert!(of.html.contains("/ops/search?open=%22%3E%3Cscript%3E%27%26"), "{}", of.html);
    }

    #[test]
    fn ranges_mark_bytes_and_wrong_ones_are_left_out() {
        let mut of = page();
        of.marked("naïve fish", &[0..6, 2..3, 7..11, 20..30]);
        assert_eq!(of.html, "<mark>naïve</mark> <mark>fish</mark>");
        let mut of = page();
        of.marked("naïve", &[3..4, 4..20]);
        assert_eq!(of.html, "naïve");
    }

    #[test]
    fn a_site_is_a_part_of_the_query_and_stays_on_the_next_page() {
        let asked =
            Asked { q: "cod & ling".into(), site: " a.example x".into(), ..Asked::default() };
        assert_eq!(asked.query(), "cod & ling site:a.example");
        assert_eq!(asked.at(2), "q=cod%20%26%20ling&site=%20a.example%20x&page=2");
    }
}
