//! Tests that this repository passes every check.

use std::path::Path;

use percolator_tidy::{
    Finding, Tree, circles, comment_width, decisions, document_length, file_length, hazards,
    headless, layers, links, names, rooms, sentence_length,
};

/// Packages whose largest import circle has more than three files, with its size. If you make
/// a circle smaller, lower its number.
const CIRCLES: &[(&str, usize)] = &[];

/// Types that more than three files outside of their folder extend, with the number of files.
const ROOMS: &[(&str, &str, usize)] = &[];

#[test]
fn this_repository_passes_every_check() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .expect("the sources can be read");
    let checks = [
        layers,
        comment_width,
        file_length,
        names,
        hazards,
        decisions,
        document_length,
        links,
        headless,
        sentence_length,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(&tree)).collect();
    findings.extend(circles(&tree, CIRCLES));
    findings.extend(rooms(&tree, ROOMS));
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
}
