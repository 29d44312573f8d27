//! Measures how well searches find the right page:
//! `cargo run --release -p webindex --example search_quality -- [--root DIR] [--at-least MRR]`.
//!
//! Loads the documentation of two Debian packages, ranks it, and runs the queries beside this
//! file. Then prints for each corpus the mean reciprocal rank (MRR) of the pages that answer
//! them. It is 1 if each page comes first, and 0.5 if each comes second. Lists the queries
//! whose answer is not first. With `--at-least` the exit status is 1 if a corpus is below that
//! value. Two further sets of queries, in the files `*-more.txt`, are harder, and are only
//! reported.
//!
//! Afterwards the program takes some Japanese, Chinese and Korean words. It counts the texts
//! of `apache2-doc` that contain a word, and those of them that a search for the word finds.
//!
//! The packages are `postgresql-doc-15`, `python3.11-doc` and `apache2-doc` of Debian 12.
//! Install them, or unpack them below DIR:
//! `apt-get download postgresql-doc-15 python3.11-doc apache2-doc`, then `dpkg -x FILE DIR`.

#![allow(clippy::print_stdout, reason = "the numbers are what this program is for")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use percolator::{Percolator, WorkerOptions};
use webindex::address::Base;
use webindex::search::{IndexedPage, SearchIndex, Update};
use webindex::walk::Walk;
use webindex::{LoadOptions, Progress, WebIndex, html};

/// How many hits are considered. An answer further down counts as not found.
const HITS: usize = 10;

const BASE: &str = "https://doc.example.org/";

/// The directory of the pages of `apache2-doc`, and words in the languages of some of them.
const APACHE: &str = "usr/share/doc/apache2-doc/manual";
const WORDS: [&str; 5] = ["設定", "認証", "配置", "環境変数", "설정"];

/// Pages, and queries with the pages that answer them.
struct Corpus {
    package: &'static str,
    /// The directory of the pages, below the root.
    dir: &'static str,
    queries: &'static str,
    /// Further queries, which do not count for `--at-least`.
    more: &'static str,
}

const CORPORA: [Corpus; 2] = [
    Corpus {
        package: "postgresql-doc-15",
        dir: "usr/share/doc/postgresql-doc-15/html",
        queries: include_str!("postgresql.txt"),
        more: include_str!("postgresql-more.txt"),
    },
    Corpus {
        package: "python3.11-doc",
        dir: "usr/share/doc/python3.11/html",
        queries: include_str!("python.txt"),
        more: include_str!("python-more.txt"),
    },
];

/// The sum of reciprocal ranks over some queries.
#[derive(Default)]
struct Score {
    sum: f64,
    queries: usize,
    first: usize,
}

impl Score {
    fn add(&mut self, position: Option<usize>) {
        self.queries += 1;
        self.first += usize::from(position == Some(0));
        self.sum += position.map_or(0.0, |position| 1.0 / (position as f64 + 1.0));
    }

    fn mean(&self) -> f64 {
        self.sum / self.queries.max(1) as f64
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (mut root, mut at_least) = (PathBuf::from("/"), 0.0);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--root", Some(dir)) => root = dir.into(),
            ("--at-least", Some(bar)) => at_least = bar.parse()?,
            _ => return Err("usage: search_quality [--root DIR] [--at-least MRR]".into()),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let mut missed = false;
    for corpus in &CORPORA {
        let dir = root.join(corpus.dir);
        if !dir.is_dir() {
            println!(
                "SKIPPED {}: {} is not there; install the package, or unpack it and give --root",
                corpus.package,
                dir.display()
            );
            continue;
        }
        let mean = runtime.block_on(measure(corpus, &dir))?;
        missed |= mean < at_least;
    }
    let apache = root.join(APACHE);
    if apache.is_dir() {
        count_words(&apache)?
    } else {
        println!("SKIPPED apache2-doc: {} is not there", apache.display())
    }
    std::process::exit(i32::from(missed));
}

/// Loads and ranks a corpus, runs its queries, and returns the mean over all of them.
async fn measure(corpus: &Corpus, dir: &Path) -> Result<f64, Box<dyn std::error::Error>> {
    let search = tempfile::tempdir()?;
    let db = Percolator::in_memory().await?;
    let index = WebIndex::open(db, search.path(), WorkerOptions::default()).await?;
    let (options, progress) = (LoadOptions::default(), Progress::default());
    let loaded = index.load(dir, &Base::parse(BASE)?, &options, &progress).await?;
    index.wait(None).await?;
    index.rank(&Progress::default()).await?;
    index.wait(None).await?;
    println!("{}: {} pages", corpus.package, loaded.loaded);
    let all = ask(&index, corpus.package, corpus.queries).await?;
    let more = format!("{}, more queries", corpus.package);
    ask(&index, &more, corpus.more).await?;
    index.stop().await;
    Ok(all.mean())
}

/// Runs queries, and prints the scores of those above the line "held out", of those below it,
/// and of all. `name` labels the queries in the output.
async fn ask(
    index: &WebIndex,
    name: &str,
    queries: &str,
) -> Result<Score, Box<dyn std::error::Error>> {
    let (mut all, mut part) = (Score::default(), Score::default());
    let report = |which: &str, score: &Score| {
        println!(
            "{name} {which}: MRR {:.3}, {} of {} first",
            score.mean(),
            score.first,
            score.queries
        );
    };
    for line in queries.lines() {
        if line == "# held out" {
            report("tuned", &std::mem::take(&mut part));
        }
        let Some((query, answer)) = line.split_once(" = ").filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        let hits = index.search(query, HITS).await?;
        let found = hits.iter().map(|hit| hit.url.trim_start_matches(BASE));
        let answers: Vec<&str> = answer.split_whitespace().collect();
        let position = found.into_iter().position(|page| answers.contains(&page));
        if position != Some(0) {
            let found =
                position.map_or("not found".to_owned(), |position| format!("{}", position + 1));
            let first = hits.first().map_or("nothing", |hit| hit.url.trim_start_matches(BASE));
            println!("  {query} = {answer}: {found}; first is {first}");
        }
        all.add(position);
        part.add(position);
    }
    report("held out", &part);
    report("all", &all);
    Ok(all)
}

/// Indexes each different text of a directory. Prints how many texts contain a word, and how
/// many of these a search for the word finds.
fn count_words(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut texts = BTreeMap::new();
    for found in Walk::new(dir, &Base::parse(BASE)?, &[])?.flatten() {
        let parsed = html::parse(&url::Url::parse(&found.url)?, &std::fs::read(&found.path)?);
        if let Ok(page) = parsed {
            texts.entry(page.text).or_insert((found.url, page.title));
        }
    }
    let scratch = tempfile::tempdir()?;
    let index = SearchIndex::open(scratch.path())?;
    let page = |text: &String, title: &String| IndexedPage {
        title: title.clone(),
        text: text.clone(),
        ..IndexedPage::default()
    };
    let updates = texts.iter().map(|(text, (url, title))| Update {
        url: url.clone(),
        seq: 1,
        page: Some(page(text, title)),
    });
    index.apply(updates.collect())?;
    println!("apache2-doc: {} different texts", texts.len());
    for word in WORDS {
        let hits = index.search(word, webindex::search::HITS_MAX)?;
        let holds = |(text, (url, _)): (&String, &(String, String))| {
            text.contains(word).then(|| hits.iter().any(|hit| hit.url == *url))
        };
        let found: Vec<bool> = texts.iter().filter_map(holds).collect();
        let count = found.iter().filter(|found| **found).count();
        println!("  {word}: found {count} of {} texts that contain it", found.len());
    }
    Ok(())
}
