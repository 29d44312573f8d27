//! Tests that each check fails on a small tree that breaks its rule, and passes on one that
//! does not.

use super::*;

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.add(path, *text);
    }
    tree
}

/// Returns the findings as a person sees them.
fn shown(findings: Vec<Finding>) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

const LAB: (&str, &str) = ("lab/sim/Cargo.toml", "[package]\nname = \"percolator-sim\"\n");

#[test]
fn a_product_that_depends_on_the_laboratory_is_found() {
    let ways = [
        "[dependencies]\npercolator-sim.workspace = true\n",
        "[dev-dependencies]\npercolator-sim = { path = \"../../lab/sim\" }\n",
        "[build-dependencies]\nsim = { package = \"percolator-sim\", version = \"1\" }\n",
        "[target.'cfg(unix)'.dependencies]\nsimulation.workspace = true\n",
    ];
    let root = "[workspace.dependencies]\n\
                simulation = { package = \"percolator-sim\", path = \"lab/sim\" }\n";
    for way in ways {
        let files = [("Cargo.toml", root), ("crates/bigtable/Cargo.toml", way), LAB];
        let found = shown(layers(&tree(&files)));
        assert_eq!(found.len(), 1, "{way}");
        let begin = "crates/bigtable/Cargo.toml:2: layers: depends on percolator-sim";
        assert!(found[0].starts_with(begin), "{}", found[0]);
        let files = [("Cargo.toml", root), ("lab/bench/Cargo.toml", way), LAB];
        assert_eq!(layers(&tree(&files)), []);
    }
}

/// Returns a package with four files, each of which imports from the next.
fn circle(last: &str) -> Tree {
    tree(&[
        ("crates/a/Cargo.toml", ""),
        ("crates/a/src/lib.rs", "mod one;\nmod two;\nmod three;\nmod four;\npub use two::Two;"),
        ("crates/a/src/one.rs", "use crate::Two;\npub struct One(Two);"),
        ("crates/a/src/two.rs", "pub struct Two;\nfn f() {\n    super::three::three();\n}"),
        ("crates/a/src/three.rs", "use crate::four::{self};\npub fn three() { four::four() }"),
        ("crates/a/src/four.rs", last),
    ])
}

#[test]
fn imports_that_lead_back_to_themselves_end() {
    let imports = "use super::{A as _, B as _, C as _};\nfn f() { x::y(); }\n";
    let files = [
        ("crates/a/Cargo.toml", ""),
        ("crates/a/src/lib.rs", "mod one;\nuse one::{A as _, B as _, C as _};\nfn f() { x::y(); }"),
        ("crates/a/src/one.rs", imports),
    ];
    assert_eq!(shown(circles(&tree(&files), &[])), [""; 0]);
}

#[test]
fn a_circle_of_four_files_is_found() {
    let round = circle("use super::one::One;\npub fn four() {}");
    let found = shown(circles(&round, &[]));
    assert_eq!(found.len(), 1);
    let begin = "crates/a/src/four.rs:1: circles: 4 files import each other";
    assert!(found[0].starts_with(begin), "{}", found[0]);
    for line in [
        "crates/a/src/one.rs:1 imports from crates/a/src/two.rs",
        "crates/a/src/two.rs:3 imports from crates/a/src/three.rs",
        "crates/a/src/three.rs:2 imports from crates/a/src/four.rs",
        "crates/a/src/four.rs:1 imports from crates/a/src/one.rs",
    ] {
        assert!(found[0].contains(line), "{line} is not in {}", found[0]);
    }
    assert_eq!(circles(&round, &[("crates/a", 4)]), []);
    assert_eq!(circles(&round, &[("crates/a", 5)]).len(), 1, "the list only shrinks");
    assert_eq!(circles(&round, &[("crates/a", 4), ("crates/b", 4)]).len(), 1, "no such package");
}

#[test]
fn tests_comments_strings_and_smaller_circles_are_no_circle() {
    for last in [
        "pub fn four() {}",
        "use super::two::Two;\npub fn four() {}",
        "pub fn four() {}\n#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}",
        "pub fn four() {}\n// use crate::one::One;\n/* crate::one::One */",
        "pub fn four() { \"crate::one::One\"; r#\"\" crate::one::One\"#; '\"'; }",
        "pub(in crate::one) fn four() {}",
    ] {
        let found = circles(&circle(last), &[]);
        assert_eq!(found, [], "{last}");
        assert_eq!(circles(&circle(last), &[("crates/a", 4)]).len(), 1, "{last}");
    }
}

/// Returns a type in a folder, and files of another folder that extend it.
fn extended(files: usize) -> Tree {
    let mut tree = tree(&[
        ("crates/a/Cargo.toml", ""),
        ("crates/a/src/lib.rs", "mod base;\nmod far;\npub use base::Base;"),
        ("crates/a/src/base/mod.rs", "mod near;\npub struct Base<T>(T);"),
        ("crates/a/src/base/near.rs", "impl<T> super::Base<T> {}"),
    ]);
    let names: Vec<String> = (0..files).map(|index| format!("far{index}")).collect();
    let children: Vec<String> = names.iter().map(|name| format!("mod {name};\n")).collect();
    tree.add("crates/a/src/far/mod.rs", children.concat());
    for name in names {
        let text = "use crate::Base;\nimpl<T: Fn() -> u8> Base<T> {}\nimpl Clone for Base<u8> {}";
        tree.add(&format!("crates/a/src/far/{name}.rs"), text);
    }
    tree
}

#[test]
fn a_type_that_four_files_of_another_folder_extend_is_found() {
    assert_eq!(rooms(&extended(3), &[]), []);
    let found = shown(rooms(&extended(4), &[]));
    assert_eq!(found.len(), 1);
    let begin = "crates/a/src/base/mod.rs:1: rooms: 4 files outside of its folder extend Base";
    assert!(found[0].starts_with(begin), "{}", found[0]);
    assert!(found[0].contains("    crates/a/src/far/far2.rs:2"), "{}", found[0]);
    assert_eq!(rooms(&extended(4), &[("crates/a", "Base", 4)]), []);
    assert_eq!(rooms(&extended(4), &[("crates/a", "Base", 5)]).len(), 1, "the list only shrinks");
    assert_eq!(rooms(&extended(3), &[("crates/a", "Other", 5)]).len(), 1, "no such type");
}

#[test]
fn a_comment_of_101_columns_is_found() {
    for opening in ["// ", "/// ", "//! ", "    // ", "let ü = 1; // ", "/* "] {
        let of = |columns: usize| {
            let text = "x".repeat(columns - opening.chars().count());
            tree(&[("apps/a/src/lib.rs", &format!("\n{opening}{text}"))])
        };
        assert_eq!(comment_width(&of(100)), [], "{opening}");
        let found = shown(comment_width(&of(101)));
        assert_eq!(
            found,
            ["apps/a/src/lib.rs:2: comment-width: 101 columns: wrap the comment at 100"]
        );
    }
    let string = format!("let text = \"// {}\";", "x".repeat(100));
    assert_eq!(comment_width(&tree(&[("apps/a/src/lib.rs", &string)])), []);
}

#[test]
fn a_file_of_801_lines_is_found() {
    let of = |path: &str, lines| file_length(&tree(&[(path, &"fn f() {}\n".repeat(lines))]));
    assert_eq!(of("crates/a/src/lib.rs", 800), []);
    assert_eq!(of("crates/a/src/generated/lib.rs", 801), []);
    let found = shown(of("crates/a/src/lib.rs", 801));
    let message = "crates/a/src/lib.rs:801: file-length: 801 lines, at most 800 are allowed: split \
                   the file";
    assert_eq!(found, [message]);
}

#[test]
fn a_name_with_a_word_that_the_glossary_replaces_is_found() {
    let of = |text: &str| shown(names(&tree(&[("lab/a/src/lib.rs", text)])));
    for text in ["fn x_is_told() {}", "struct IsTold;", "mod tests {\n  const TOLD: u8 = 0; }"] {
        let found = of(text);
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].ends_with("holds told: write returned, reported, printed or named"));
    }
    for text in
        ["fn stolden() {}", "fn f() { let told = 1; } // fn told()", "const T: &str = \"fn told\";"]
    {
        assert_eq!(of(text), [""; 0], "{text}");
    }
}

#[test]
fn lines_are_counted_by_what_they_are_for() {
    let code = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
    let counted = lines(&tree(&[
        ("crates/a/src/lib.rs", code),
        ("crates/a/src/b/tests.rs", code),
        ("crates/a/src/generated/c.rs", code),
        ("crates/percolator-sim/src/lib.rs", code),
        ("crates/webindex/src/lib.rs", code),
        ("lab/a/tests/it.rs", code),
    ]));
    let counted: Vec<_> = counted.into_iter().collect();
    let product = [(Kind::Product, 2), (Kind::Tests, 14), (Kind::Laboratory, 12)];
    assert_eq!(counted, [&product[..], &[(Kind::Applications, 2), (Kind::Generated, 6)]].concat());
}

#[test]
fn a_hazard_without_a_row_is_found() {
    let rows = "| Hazard | Defence |\n|---|---|\n| H07 | `a.rs` |\n";
    let list = format!("* **H07** A lock is lost.\n\n{rows}");
    let table = ("docs/hazards.md", &*list);
    let of = |number: &str| {
        let text = format!("\n// A lost lock ({number}).\nlet {number}0 = \"{number}_\";\n");
        shown(hazards(&tree(&[table, ("crates/a/src/lib.rs", &text)])))
    };
    assert_eq!(of("H07"), [""; 0]);
    // The number is in two parts, because the check reads this file, too.
    let unknown = format!("H{}", "08");
    let message = format!(
        "crates/a/src/lib.rs:2: hazards: {unknown} has no row in docs/hazards.md: add the row, or \
         correct the number"
    );
    assert_eq!(of(&unknown), [message]);
    let message = "docs/hazards.md:1: hazards: H07 has a row and no sentence: add it to the list";
    assert_eq!(shown(hazards(&tree(&[("docs/hazards.md", rows)]))), [message]);
}

#[test]
fn a_decision_without_a_file_is_found() {
    let decision = ("docs/decisions/0007-leases.md", "");
    let of = |number: u32| {
        let text = format!("// Why: ADR-{number}.\n");
        shown(decisions(&tree(&[decision, ("crates/a/src/lib.rs", &text)])))
    };
    assert_eq!(of(7), [""; 0]);
    let message = format!(
        "crates/a/src/lib.rs:1: decisions: ADR-{} has no file in docs/decisions/: write it, or \
         correct the number",
        8
    );
    assert_eq!(of(8), [message]);
}

#[test]
fn a_long_readme_is_found() {
    let short = [("README.md", "a\n"), ("ARCHITECTURE.md", "a\n")];
    assert_eq!(document_length(&tree(&short)), []);
    let long = "a\n".repeat(111);
    let found = shown(document_length(&tree(&[("README.md", &long), ("ARCHITECTURE.md", &long)])));
    assert_eq!(
        found,
        ["README.md:111: document-length: 111 lines, at most 110 are allowed: \
                        shorten it"]
    );
    assert_eq!(document_length(&tree(&[])).len(), 2);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let target = "# A *title*: of `two` parts\n\n## Part\n\n```sh\n# Code\n```\n\n## Part\n";
    let found = |text: &str| {
        let files = [("docs/a.md", text), ("docs/book/b.md", target), ("crates/a.rs", "")];
        links(&tree(&files)).len()
    };
    for link in [
        "book/b.md",
        "book/b.md#a-title-of-two-parts",
        "book/b.md#part-1",
        "book",
        "book/",
        "../crates/a.rs",
        "../docs/a.md",
        "https://example.org/#nothing",
    ] {
        assert_eq!(found(&format!("See [it]({link}), and [more]({link}).")), 0, "{link}");
    }
    for link in ["b.md", "book/b.md#code", "book/b.md#part-2", "#part", "../../a.md", "boo"] {
        assert_eq!(found(&format!("See [it]({link}).")), 1, "{link}");
        assert_eq!(found(&format!("See `[it]({link})`.\n```\n[it]({link})\n```\n")), 0);
    }
}
