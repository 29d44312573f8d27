//! Generates a web site from a seed, for use when there is no documentation to index.
//!
//! The site has the features that make indexing interesting. Some pages have many links to
//! them, and others few. There are redirects, canonical URLs, a symlink, and the same content
//! under several URLs. The text is plausible nonsense, so that a search finds something.
//!
//! Invariants: the files depend only on the seed and the number of pages. A page's text
//! depends only on the seed and the page's number, so a larger site contains much of a smaller
//! one.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::prng::Prng;

/// The largest number of pages of a site, not counting copies and redirects.
pub const PAGES_MAX: usize = 1_000_000;

/// The number of articles in a directory.
const ARTICLES_PER_SECTION: usize = 100;

/// How many articles there are for each one that has copies, is the target of a redirect, or
/// has a print version.
const COPIED_EVERY: usize = 20;
const MOVED_EVERY: usize = 25;
const PRINTED_EVERY: usize = 30;

/// The exponent of the in-degrees: the larger it is, the more links lead to the first
/// articles.
const LINK_SKEW: i32 = 3;

const WORDS: &[&str] = &[
    "account",
    "anchor",
    "archive",
    "balance",
    "barrel",
    "basin",
    "beacon",
    "bridge",
    "bucket",
    "cabin",
    "canal",
    "candle",
    "cargo",
    "cedar",
    "chapter",
    "circle",
    "clover",
    "coast",
    "column",
    "copper",
    "coral",
    "cottage",
    "current",
    "delta",
    "distance",
    "drift",
    "ember",
    "engine",
    "estuary",
    "fable",
    "falcon",
    "feather",
    "ferry",
    "field",
    "filter",
    "forest",
    "fountain",
    "garden",
    "glacier",
    "granite",
    "gravel",
    "harbour",
    "hazel",
    "heron",
    "hollow",
    "horizon",
    "island",
    "ivory",
    "journal",
    "juniper",
    "kettle",
    "ladder",
    "lagoon",
    "lantern",
    "ledger",
    "lichen",
    "linen",
    "machine",
    "maple",
    "margin",
    "marsh",
    "meadow",
    "measure",
    "mirror",
    "morning",
    "mountain",
    "needle",
    "notebook",
    "oak",
    "orchard",
    "otter",
    "paddle",
    "paper",
    "pebble",
    "pepper",
    "percolator",
    "pillar",
    "pine",
    "plateau",
    "prairie",
    "quarry",
    "quartz",
    "raven",
    "reed",
    "reservoir",
    "ribbon",
    "ridge",
    "river",
    "saddle",
    "salmon",
    "sand",
    "schedule",
    "season",
    "shelter",
    "shore",
    "signal",
    "silver",
    "slate",
    "spring",
    "station",
    "steam",
    "stone",
    "stream",
    "summit",
    "tablet",
    "tannin",
    "thicket",
    "thunder",
    "tide",
    "timber",
    "tower",
    "trail",
    "tunnel",
    "valley",
    "velvet",
    "vessel",
    "village",
    "violet",
    "walnut",
    "water",
    "weather",
    "willow",
    "window",
    "winter",
    "wool",
    "yarrow",
    "zephyr",
];

const JOINS: &[&str] = &[
    "above", "after", "against", "and", "before", "beneath", "beside", "beyond", "carries",
    "crosses", "follows", "for", "from", "holds", "into", "leaves", "meets", "near", "of", "over",
    "reaches", "than", "the", "through", "toward", "under", "where", "while", "with", "without",
];

/// A site to generate.
///
/// ```
/// let site = webindex::generate::Site { pages: 200, seed: 7 };
/// assert_eq!(site, site.clone());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The number of articles, from 1 to [`PAGES_MAX`].
    pub pages: usize,
    /// The seed.
    pub seed: u64,
}

/// The counts of a generated site.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use webindex::generate::Site;
///
/// let made = Site { pages: 60, seed: 7 }.write(dir.path())?;
/// assert_eq!((made.articles, made.copies, made.redirects), (60, 6, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Articles, each with different content.
    pub articles: usize,
    /// Further files with the content of an article.
    pub copies: usize,
    /// Redirects to other pages.
    pub redirects: usize,
    /// Pages that declare another page as canonical.
    pub canonicals: usize,
    /// Symlinks to an article. Zero where the operating system has no symlinks.
    pub symlinks: usize,
    /// Different texts, without those of redirects: the number of pages that a search can
    /// find.
    pub texts: usize,
    /// The size of all files, in bytes.
    pub bytes: usize,
}

impl Made {
    /// Returns the number of URLs of the site, including the start page.
    pub fn urls(&self) -> usize {
        1 + self.articles + self.copies + self.redirects + self.canonicals + self.symlinks
    }
}

impl Site {
    /// Writes the site into a directory, which must be empty or missing.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDirectory`] if the directory is not empty, [`Error::OutOfRange`] if the
    /// number of pages is not allowed, [`Error::Io`] if a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<Made, Error> {
        if self.pages == 0 || self.pages > PAGES_MAX {
            let given = u64::try_from(self.pages).unwrap_or(u64::MAX);
            let allowed = format!("1 to {PAGES_MAX}");
            return Err(Error::OutOfRange { what: "the number of pages", given, allowed });
        }
        let mut out = Output::new(dir)?;
        out.text("index.html", &self.start_page())?;
        for article in 0..self.pages {
            self.write_article(&mut out, article)?;
        }
        Ok(Made { texts: out.texts.len(), ..out.made })
    }

    fn write_article(&self, out: &mut Output<'_>, article: usize) -> Result<(), Error> {
        let name = name_of(article);
        let html = self.article(article, "");
        out.made.articles += 1;
        out.text(&name, &html)?;
        if article.is_multiple_of(COPIED_EVERY) {
            out.made.copies += 2;
            out.text(&path_in("mirror", article), &html)?;
            out.text(&path_in("archive", article), &html)?;
        }
        if article % MOVED_EVERY == 1 {
            out.made.redirects += 1;
            out.page(&format!("old/{article}.html"), &redirect(&name))?;
        }
        if article % PRINTED_EVERY == 2 {
            let head = format!("<link rel=\"canonical\" href=\"../../{name}\">\n");
            out.made.canonicals += 1;
            out.page(&path_in("print", article), &self.article(article, &head))?;
        }
        if article == 0 {
            out.symlink(&format!("../../{name}"), "latest/news/article.html")?;
        }
        Ok(())
    }

    fn title(&self, article: usize) -> String {
        let mut prng = Prng::for_item(self.seed, item(article) * 2);
        let mut title = String::from("The ");
        for word in 0..3 {
            let separator = if word == 0 { "" } else { " " };
            write!(title, "{separator}{}", pick(&mut prng, WORDS)).expect("writing to a string");
        }
        title
    }

    fn article(&self, article: usize, head: &str) -> String {
        let mut prng = Prng::for_item(self.seed, item(article) * 2 + 1);
        let title = self.title(article);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <title>{title}</title>\n{head}</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for _ in 0..3 + prng.below(6) {
            html.push_str("<p>");
            for _ in 0..2 + prng.below(4) {
                self.sentence(&mut html, &mut prng);
            }
            html.push_str("</p>\n");
        }
        html.push_str("</body>\n</html>\n");
        html
    }

    /// Writes a sentence. About every second one has a link.
    fn sentence(&self, html: &mut String, prng: &mut Prng) {
        let words = 6 + prng.below(10);
        let linked = prng.percent(50).then(|| prng.below(words));
        for word in 0..words {
            let list = if word % 2 == 0 { WORDS } else { JOINS };
            let text = pick(prng, list);
            if linked == Some(word) {
                let target = self.popular(prng);
                let (name, title) = (name_of(target), self.title(target));
                write!(html, "<a href=\"../../{name}\">{title}</a>").expect("writing to a string");
            } else {
                html.push_str(text);
            }
            html.push(if word + 1 == words { '.' } else { ' ' });
        }
        html.push(' ');
    }

    /// Returns the number of an article: the first ones far more often than the last.
    fn popular(&self, prng: &mut Prng) -> usize {
        let position = prng.unit().powi(LINK_SKEW) * self.pages as f64;
        // Truncation is intended. The product is below the number of pages.
        (position as usize).min(self.pages - 1)
    }

    fn start_page(&self) -> String {
        let mut html = String::from(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <title>A generated site</title>\n</head>\n<body>\n<h1>A generated site</h1>\n<ul>\n",
        );
        for article in 0..self.pages.min(ARTICLES_PER_SECTION) {
            let (name, title) = (name_of(article), self.title(article));
            writeln!(html, "<li><a href=\"{name}\">{title}</a></li>").expect("writing to a string");
        }
        html.push_str("</ul>\n</body>\n</html>\n");
        html
    }
}

/// The directory that the files are written to, and what was written so far.
struct Output<'d> {
    dir: &'d Path,
    made: Made,
    /// The hashes of the documents that a search can find.
    texts: HashSet<[u8; 32]>,
}

impl<'d> Output<'d> {
    fn new(dir: &'d Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|source| Error::io("make the directory", dir, source))?;
        let mut entries =
            fs::read_dir(dir).map_err(|source| Error::io("list the directory", dir, source))?;
        if entries.next().is_some() {
            let expected = "place for a generated site";
            return Err(Error::ForeignDirectory { path: dir.to_path_buf(), expected });
        }
        Ok(Output { dir, made: Made::default(), texts: HashSet::new() })
    }

    /// Returns the path of a file, and creates its directory.
    fn place(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .map_err(|source| Error::io("make the directory", parent, source))?;
        }
        Ok(path)
    }

    /// Writes a page that a search can find by its text.
    fn text(&mut self, name: &str, html: &str) -> Result<(), Error> {
        self.texts.insert(*blake3::hash(html.as_bytes()).as_bytes());
        self.page(name, html)
    }

    fn page(&mut self, name: &str, html: &str) -> Result<(), Error> {
        let path = self.place(name)?;
        self.made.bytes += html.len();
        fs::write(&path, html).map_err(|source| Error::io("write", &path, source))
    }

    #[cfg(unix)]
    fn symlink(&mut self, target: &str, name: &str) -> Result<(), Error> {
        let path = self.place(name)?;
        self.made.symlinks += 1;
        std::os::unix::fs::symlink(target, &path)
            .map_err(|source| Error::io("make the symlink", &path, source))
    }

    #[cfg(not(unix))]
    fn symlink(&mut self, _target: &str, _name: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns the path of an article.
fn name_of(article: usize) -> String {
    path_in("articles", article)
}

/// Returns the path of an article or of a copy. It is always two directories deep, so that
/// relative links mean the same in each copy.
fn path_in(top: &str, article: usize) -> String {
    format!("{top}/section-{:03}/article-{article:05}.html", article / ARTICLES_PER_SECTION)
}

fn redirect(name: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url=../{name}\">\n\
         <title>Moved</title>\n<p>This page has <a href=\"../{name}\">moved</a>.</p>\n"
    )
}

fn pick<'w>(prng: &mut Prng, words: &[&'w str]) -> &'w str {
    prng.pick(words).copied().expect("the word lists are not empty")
}

fn item(article: usize) -> u64 {
    u64::try_from(article).expect("article numbers are small")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashMap};

    use url::Url;

    use super::*;
    use crate::address::Base;
    use crate::html::{ParsedPage, parse};
    use crate::walk::Walk;

    fn make(pages: usize, seed: u64) -> (tempfile::TempDir, Made) {
        let dir = tempfile::tempdir().unwrap();
        let made = Site { pages, seed }.write(dir.path()).unwrap();
        (dir, made)
    }

    fn read(dir: &Path) -> BTreeMap<String, ParsedPage> {
        let base = Base::parse("https://example.org/site/").unwrap();
        let found = Walk::new(dir, &base, &[]).unwrap().map(Result::unwrap);
        found
            .map(|found| {
                let page = parse(&Url::parse(&found.url).unwrap(), &fs::read(&found.path).unwrap());
                (found.url, page.unwrap())
            })
            .collect()
    }

    fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let base = Base::parse("https://example.org/").unwrap();
        let found = Walk::new(dir, &base, &[]).unwrap().map(Result::unwrap);
        found.map(|found| (found.url, fs::read(found.path).unwrap())).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        let (a, made) = make(120, 7);
        let (b, again) = make(120, 7);
        let (c, _) = make(120, 8);
        assert_eq!(made, again);
        assert_eq!(files(a.path()), files(b.path()));
        assert_ne!(files(a.path()), files(c.path()));
    }

    #[test]
    fn the_site_has_what_an_index_has_to_deal_with() {
        let (dir, made) = make(300, 1);
        let pages = read(dir.path());
        assert_eq!(pages.len(), made.urls());
        let redirects: Vec<_> = pages.values().filter_map(|page| page.redirect.as_ref()).collect();
        let canonicals: Vec<_> =
            pages.values().filter_map(|page| page.canonical.as_ref()).collect();
        assert_eq!((redirects.len(), made.redirects), (12, 12));
        assert_eq!((canonicals.len(), made.canonicals), (10, 10));
        let linked = pages.values().flat_map(|page| &page.links).map(|link| &link.url);
        for url in linked.clone().chain(redirects).chain(canonicals) {
            assert!(pages.contains_key(url), "{url} dangles");
        }
        let mut in_degrees: HashMap<&String, usize> = HashMap::new();
        for url in linked {
            *in_degrees.entry(url).or_default() += 1;
        }
        let most = in_degrees.values().max().copied().unwrap();
        assert!(most > 60 && in_degrees.len() > 150, "{most}, {}", in_degrees.len());
        let mut contents: HashMap<_, usize> = HashMap::new();
        for page in pages.values() {
            *contents.entry(page.content_hash.unwrap()).or_default() += 1;
        }
        let shown = pages.iter().filter(|(url, page)| {
            page.redirect.is_none() && page.canonical.as_ref().is_none_or(|other| other == *url)
        });
        let texts: BTreeSet<_> = shown.map(|(_, page)| (&page.title, &page.text)).collect();
        assert_eq!((made.texts, texts.len()), (301, 301));
        let clusters = contents.values().filter(|&&size| size > 1).count();
        // Fifteen articles have two copies each, and ten have a print version. Some articles
        // have both.
        assert!((15..=26).contains(&clusters), "{clusters}");
    }

    #[test]
    fn a_directory_in_use_and_silly_sizes_are_refused() {
        let (dir, _) = make(1, 1);
        let error = Site { pages: 1, seed: 1 }.write(dir.path()).unwrap_err();
        assert!(matches!(error, Error::ForeignDirectory { .. }), "{error}");
        for pages in [0, PAGES_MAX + 1] {
            let error = Site { pages, seed: 1 }.write(&dir.path().join("x")).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
        }
    }
}
