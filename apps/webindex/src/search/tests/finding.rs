//! Tests of searches: which pages are found, in which order, and which snippets are shown.

use super::*;

#[test]
fn pages_are_found_by_title_text_and_anchors() {
    let (_dir, index) = open();
    let linked = IndexedPage { anchors: vec!["smoked eel".into()], ..page("", "other") };
    let batch = vec![
        update("t", 1, page("Eel soup", "a recipe")),
        update("x", 1, page("Soup", "with a little eel and many other things in it")),
        update("a", 1, linked),
        update("n", 1, page("Nothing", "of interest")),
    ];
    assert_eq!(index.apply(batch).unwrap(), counts(4, 0, 0));
    assert_eq!(index.pages().unwrap(), 4);
    assert_eq!(urls(&index, "EEL").first().map(String::as_str), Some("t"), "the title counts most");
    assert_eq!(sorted(&index, "EEL"), ["a", "t", "x"]);
    assert_eq!(urls(&index, "eel soup recipe"), ["t"], "all words must occur");
    assert_eq!(urls(&index, "title:soup -recipe"), ["x"]);
    assert_eq!(urls(&index, "\"smoked eel\""), ["a"]);
    assert!(urls(&index, "halibut").is_empty());
    assert!(index.search("eel", 0).unwrap().is_empty());
    assert_eq!(index.search("eel", usize::MAX).unwrap().len(), 3);
}

/// Makes an index of texts. Each text's name is its title and its URL on one site.
fn texts(texts: &[(&str, &str)]) -> (tempfile::TempDir, SearchIndex) {
    let (dir, index) = open();
    let batch = texts.iter().map(|(name, text)| update(name, 1, page("", text)));
    index.apply(batch.collect()).unwrap();
    (dir, index)
}

fn sorted(index: &SearchIndex, query: &str) -> Vec<String> {
    let mut found = urls(index, query);
    found.sort();
    found
}

#[test]
fn the_rank_decides_between_equals_and_not_against_words() {
    let (_dir, index) = open();
    let batch = vec![
        update("low", 1, page("Cod", "fish")),
        update("high", 1, page("Cod", "fish")),
        update("famous", 1, page("Whale", "unlike cod it is no fish at all")),
        update("unranked", 1, page("Carp", "fish")),
    ];
    index.apply(batch).unwrap();
    let ranks = [("low", 0.1), ("high", 0.8), ("famous", 1e9)];
    assert!(index.set_ranks(7, ranks.map(|(url, rank)| (url.into(), rank))).unwrap());
    let found = index.search("title:cod", 10).unwrap();
    assert_eq!(found.iter().map(|hit| hit.url.as_str()).collect::<Vec<_>>(), ["high", "low"]);
    assert_eq!(found[0].rank, 0.8);
    assert!(found[0].score > found[1].score && found[0].score < 2.0 * found[1].score);
    assert_eq!(urls(&index, "carp"), ["unranked"]);
    assert!(!index.set_ranks(7, [("low".into(), 0.9)]).unwrap(), "no newer state");
    assert_eq!(urls(&index, "title:cod"), ["high", "low"]);
    assert!(index.set_ranks(8, [("low".into(), 0.9)]).unwrap());
    assert_eq!(urls(&index, "title:cod"), ["low", "high"]);
}

#[test]
fn snippets_show_the_words_wherever_they_are_or_else_the_beginning() {
    let (_dir, index) = open();
    let filler = "lorem ipsum dolor ".repeat(3_000);
    let text = format!("{filler} the rare pike <b>bites</b> here {filler}");
    index.apply(vec![update("a", 1, page("Turbot", &text))]).unwrap();
    let hit = &index.search("pike", 1).unwrap()[0];
    assert!(hit.snippet.contains("pike <b>bites</b>"), "text as it is: {}", hit.snippet);
    assert_eq!(&hit.snippet[hit.highlights[0].clone()], "pike");
    let hit = &index.search("turbot", 1).unwrap()[0];
    assert!(hit.snippet.starts_with("lorem ipsum") && hit.highlights.is_empty());
}

#[test]
fn forms_of_a_word_are_found_and_the_exact_form_comes_first() {
    let filler = "and other things of no interest";
    let (_dir, index) = texts(&[
        ("singular", &format!("a constraint {filler}")),
        ("plural", &format!("some constraints {filler}")),
        ("other", &format!("no constrained {filler}")),
    ]);
    assert_eq!(urls(&index, "constraint")[0], "singular");
    assert_eq!(urls(&index, "constraints")[0], "plural");
    assert_eq!(sorted(&index, "constraint"), ["plural", "singular"]);
    assert_eq!(urls(&index, "\"constraints\""), ["plural"], "a phrase is exact");
    assert_eq!(urls(&index, "constraint -constraints"), ["singular"], "what is excluded, too");
    assert_eq!(sorted(&index, "title:constraint"), Vec::<String>::new());
}

#[test]
fn accents_and_ligatures_do_not_matter() {
    let (_dir, index) = texts(&[
        ("plain", "naive file modulos strasse"),
        ("fancy", "na\u{ef}ve \u{fb01}le m\u{f3}dulos Stra\u{df}e"),
        ("decomposed", "nai\u{308}ve file mo\u{301}dulos STRASSE"),
    ]);
    for query in ["naive", "naïve", "nai\u{308}ve", "file", "ﬁle", "modulos", "MÓDULOS", "straße"]
    {
        assert_eq!(urls(&index, query).len(), 3, "{query}");
    }
    assert_eq!(sorted(&index, "\"naïve ﬁle\""), ["decomposed", "fancy", "plain"]);
}

#[test]
fn chinese_japanese_and_korean_words_are_found_wherever_they_stand() {
    let (_dir, index) = texts(&[
        ("ja", "Apacheの設定は環境変数で行います。ガイド"),
        ("zh", "基本配置和认证"),
        ("ko", "서버를 설정하려면 환경변수를 사용합니다"),
        (
            "decomposed",
            "\u{1109}\u{1165}\u{11af}\u{110c}\u{1165}\u{11bc} \u{30ab}\u{3099}イト\u{3099}",
        ),
        ("halfwidth", "ｶﾞｲﾄﾞ"),
        ("apart", "環境 変数"),
    ]);
    assert_eq!(urls(&index, "設定"), ["ja"]);
    assert_eq!(urls(&index, "環境変数"), ["ja"], "the characters are next to each other");
    assert_eq!(sorted(&index, "環境 変数"), ["apart", "ja"]);
    assert_eq!(urls(&index, "配置"), ["zh"]);
    assert_eq!(urls(&index, "配"), ["zh"], "a single character");
    assert_eq!(sorted(&index, "설정"), ["decomposed", "ko"]);
    assert_eq!(urls(&index, "설정하려면"), ["ko"]);
    assert_eq!(sorted(&index, "ガイド"), ["decomposed", "halfwidth", "ja"]);
    assert!(urls(&index, "カイト").is_empty(), "voice marks are no accents");
    assert_eq!(urls(&index, "apache の設定"), ["ja"]);
    assert_eq!(urls(&index, "\"Apacheの設定\""), ["ja"]);
    let hit = &index.search("環境変数", 1).unwrap()[0];
    assert_eq!(&hit.snippet[hit.highlights[0].clone()], "環境変数");
}

#[test]
fn alternatives_phrases_and_exclusions_select_pages() {
    let (_dir, index) = texts(&[
        ("cod", "fresh cod from the sea"),
        ("ling", "smoked ling from the sea"),
        ("eel", "smoked eel from the river"),
        ("tool", "the tool pg_dump of the sea"),
    ]);
    assert_eq!(sorted(&index, "cod OR eel"), ["cod", "eel"]);
    assert_eq!(sorted(&index, "cod OR eel OR tool sea"), ["cod", "tool"]);
    assert_eq!(urls(&index, "sea -smoked -pg_dump"), ["cod"]);
    assert_eq!(urls(&index, "sea -\"fresh cod\" -tool"), ["ling"]);
    assert_eq!(sorted(&index, "sea -\"the river\" -\"sea from\""), ["cod", "ling", "tool"]);
    assert!(urls(&index, "\"cod fresh\"").is_empty());
    assert_eq!(urls(&index, "pg_dump"), ["tool"]);
    assert!(urls(&index, "dump_pg").is_empty());
    // The syntax of tantivy's own query language has no effect.
    assert!(urls(&index, "text:[a TO z]").is_empty() && urls(&index, "text:cod").is_empty());
    assert!(urls(&index, "deleted:false").is_empty());
    assert!(matches!(index.search("*", 10), Err(Error::Query { .. })));
    assert_eq!(urls(&index, "cod* (cod cod^"), ["cod"]);
}

#[test]
fn sites_are_hosts_or_beginnings_of_addresses() {
    let (_dir, index) = open();
    let pages = [
        "https://example.org/",
        "https://example.org/docs/api.html?q=1",
        "http://www.example.org/docs/",
        "https://example.org.evil.example/",
        "https://other.example:8080/docs/a",
        "https://[::1]/a",
    ];
    index.apply(pages.iter().map(|url| update(url, 1, page("", "cod"))).collect()).unwrap();
    let found = |query: &str| sorted(&index, query);
    assert_eq!(found("cod site:example.org"), [pages[2], pages[0], pages[1]]);
    assert_eq!(found("site:www.example.org"), [pages[2]]);
    assert_eq!(found("site:https://example.org/docs/a"), [pages[1]]);
    assert_eq!(found("site:example.org/docs/api.html?q"), [pages[1]]);
    assert_eq!(found("cod -site:example"), [pages[2], pages[5], pages[0], pages[1]]);
    assert_eq!(found("site:other.example"), [pages[4]]);
    assert_eq!(found("site:other.example:8080"), [pages[4]]);
    assert_eq!(found("site:other.example:8080/docs"), [pages[4]]);
    assert_eq!(found("site:[::1]"), [pages[5]]);
    assert_eq!(found("site:example.org/x OR site:[::1]"), [pages[5]]);
    let ranks = pages.map(String::from).into_iter().zip([0.1, 0.6, 0.3]);
    index.set_ranks(1, ranks).unwrap();
    assert_eq!(urls(&index, "site:example.org"), [pages[1], pages[2], pages[0]], "by rank");
}

#[test]
fn names_in_addresses_are_found_and_neighbours_come_first() {
    let (_dir, index) = open();
    let filler = "words of no interest ".repeat(20);
    let batch = vec![
        update("https://a.example/sql-vacuum.html", 1, page("", &filler)),
        update("https://a.example/x.html", 1, page("", &format!("fresh fish {filler}"))),
        update("https://a.example/y.html", 1, page("", &format!("fresh {filler} fish"))),
    ];
    index.apply(batch).unwrap();
    assert_eq!(urls(&index, "vacuum interest"), ["https://a.example/sql-vacuum.html"]);
    let near = ["https://a.example/x.html", "https://a.example/y.html"];
    assert_eq!(urls(&index, "fresh fish"), near);
}

#[test]
fn results_come_in_pages_that_fit_together_with_their_total() {
    let (_dir, index) = open();
    let batch = (0..25).map(|n| update(&format!("u{n}"), 1, page("", &"cod ".repeat(n + 1))));
    index.apply(batch.collect()).unwrap();
    let all = index.find("cod", 0, 100).unwrap();
    assert_eq!((all.total, all.hits.len()), (25, 25));
    let mut joined = Vec::new();
    for offset in [0, 10, 20, 30] {
        let found = index.find("cod", offset, 10).unwrap();
        assert_eq!((found.total, found.offset), (25, offset));
        joined.extend(found.hits);
    }
    assert_eq!(joined, all.hits);
    assert_eq!(index.find("cod", 0, 0).unwrap().total, 25);
    assert_eq!(index.find("ling", 0, 10).unwrap().total, 0);
    let error = index.find("cod", OFFSET_MAX + 1, 10).unwrap_err().to_string();
    assert!(error.contains("offset is 100001"), "{error}");
}

#[test]
fn queries_of_any_syntax_are_answered_or_refused() {
    let (_dir, index) = texts(&[("a", "fish and chips")]);
    for query in [
        "cod AND",
        "nofield:cod",
        "https://example.org/a?b=c",
        "cod^",
        "[a TO",
        "rank:[0 TO 1]",
        "std::vec::Vec<T>",
        "ü\u{0}",
        "site:((",
        "site:/",
        &"設".repeat(QUERY_BYTES_MAX / 3),
        &"a OR ".repeat(100),
        &"a \"b c\" ".repeat(60),
    ] {
        index.search(query, 10).unwrap();
    }
    for query in ["", " ", "\"", "(", "\\", "*", "-cod", &"(".repeat(2_000), &"ü".repeat(2_000)] {
        assert!(matches!(index.search(query, 10), Err(Error::Query { .. })), "{query}");
    }
    assert_eq!(urls(&index, "\"fish and"), ["a"]);
}

#[test]
fn a_word_counts_as_frequent_in_a_title_as_it_is_in_texts() {
    let (_dir, index) = open();
    let filler = |n: usize| update(&format!("f{n}"), 1, page("Notes", "operator manual"));
    let mut batch: Vec<Update> = (0..30).map(filler).collect();
    batch.extend([
        update("title", 1, page("Operator", "some words, and precedence among many more of them")),
        update("text", 1, page("Lexis", "operator precedence and precedence of another operator")),
    ]);
    index.apply(batch).unwrap();
    assert_eq!(urls(&index, "operator precedence")[0], "text");
    assert_eq!(urls(&index, "title:operator"), ["title"], "which is in no other title");
}

#[test]
fn words_that_no_text_has_are_found_in_titles_anchors_and_addresses() {
    let (_dir, index) = open();
    let anchors = vec!["halibut".into(), "Heilbutt".into()];
    let linked = IndexedPage { anchors, ..page("Turbot", "some fish") };
    index.apply(vec![update("https://a.example/flatfish.html", 1, linked)]).unwrap();
    for query in ["turbot", "halibut", "flatfish", "turbot heilbutt flatfish", "\"turbot\""] {
        assert_eq!(urls(&index, query).len(), 1, "{query}");
    }
}

#[test]
fn pages_of_links_come_behind_the_pages_that_they_lead_to() {
    let (_dir, index) = open();
    let titles = "Fresh cod, Fresh ling, Smoked eel, Grilled bream";
    let contents = IndexedPage { hyperlinks: 4, ..page("Fresh fish and fresh cod", titles) };
    let text = "How fresh cod is bought, kept and cooked in a kitchen by the sea or elsewhere";
    let cod = IndexedPage { hyperlinks: 1, ..page("Cod", text) };
    let batch = |links: u64, seq: u64| {
        let contents = IndexedPage { hyperlinks: links, ..contents.clone() };
        vec![update("contents", seq, contents), update("cod", seq, cod.clone())]
    };
    index.apply(batch(0, 1)).unwrap();
    assert_eq!(urls(&index, "fresh cod"), ["contents", "cod"], "by its words alone");
    let applied = index.apply(batch(4, 2)).unwrap();
    assert_eq!((applied.written, applied.unchanged), (1, 1), "the digest covers the links");
    assert_eq!(urls(&index, "fresh cod"), ["cod", "contents"]);
    assert_eq!(urls(&index, "smoked"), ["contents"], "it is found all the same");
}

#[test]
fn any_number_of_links_is_bounded_in_what_it_costs() {
    let (_dir, index) = open();
    let linked = |hyperlinks: u64, text: &str| IndexedPage { hyperlinks, ..page("Cod", text) };
    let batch = vec![
        update("none", 1, linked(0, "a")),
        update("many", 1, linked(u64::MAX, "a")),
        update("empty", 1, linked(7, "")),
    ];
    index.apply(batch).unwrap();
    let found = index.search("cod", 10).unwrap();
    assert_eq!((found.len(), found[0].url.as_str()), (3, "none"));
    assert!(found.iter().all(|hit| hit.score > found[0].score / 4.0), "{found:?}");
}
