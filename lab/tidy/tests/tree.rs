//! Tests that this repository passes every check.

use std::path::Path;

use percolator_tidy::{Finding, Tree};

/// Packages whose largest import circle has more than three files, with its size. If you make
/// a circle smaller, lower its number.
const CIRCLES: &[(&str, usize)] = &[];

/// Types that more than three files outside of their folder extend, with the number of files.
const ROOMS: &[(&str, &str, usize)] = &[];

fn tree() -> Tree {
    Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .expect("the sources can be read")
}

fn pass(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_product_does_not_depend_on_the_laboratory() {
    pass(percolator_tidy::layers(&tree()));
}

#[test]
fn import_circles_are_small() {
    pass(percolator_tidy::circles(&tree(), CIRCLES));
}

#[test]
fn types_are_extended_in_their_rooms() {
    pass(percolator_tidy::rooms(&tree(), ROOMS));
}

#[test]
fn comments_fit_into_100_columns() {
    pass(percolator_tidy::comment_width(&tree()));
}

#[test]
fn files_have_at_most_800_lines() {
    pass(percolator_tidy::file_length(&tree()));
}

#[test]
fn names_hold_the_words_of_the_glossary() {
    pass(percolator_tidy::names(&tree()));
}

#[test]
fn every_hazard_that_the_code_names_has_a_row() {
    pass(percolator_tidy::hazards(&tree()));
}

#[test]
fn every_decision_that_the_code_names_has_a_file() {
    pass(percolator_tidy::decisions(&tree()));
}

#[test]
fn the_first_documents_are_short() {
    pass(percolator_tidy::document_length(&tree()));
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    pass(percolator_tidy::links(&tree()));
}

#[test]
fn sentences_of_comments_begin_with_their_subject() {
    pass(percolator_tidy::headless(&tree()));
}

#[test]
fn sentences_of_comments_have_at_most_25_words() {
    pass(percolator_tidy::sentence_length(&tree()));
}
