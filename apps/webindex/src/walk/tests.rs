//! Tests of the walk on small trees, with the kinds of files that break naive walkers.

use super::*;

fn base() -> Base {
    Base::parse("https://example.org/d/").unwrap()
}

/// Creates files with the given relative names. Their content does not matter here.
fn tree(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "<p>").unwrap();
    }
    dir
}

/// Walks a directory. Returns the relative URLs and the problems' messages, in order, as one
/// list.
fn walk(dir: &Path, exclude: &[&str]) -> Vec<String> {
    let base = base();
    Walk::new(dir, &base, exclude)
        .unwrap()
        .map(|found| match found {
            Ok(found) => {
                assert!(fs::read(&found.path).is_ok());
                base.relative(&found.url).unwrap().to_string()
            }
            Err(problem) => format!("! {}", problem.to_string().replace(&display(dir), "DIR")),
        })
        .collect()
}

fn display(dir: &Path) -> String {
    dir.display().to_string()
}

#[test]
fn pages_come_in_path_order_and_other_files_not_at_all() {
    let dir = tree(&[
        "b.htm",
        "a/z.html",
        "a.html",
        "a/b/c.XHTML",
        "style.css",
        "a/notes.txt",
        "html",
        ".html",
        "B.HTML",
        "a-b.html",
        "ü.html",
        "x y/index.html",
    ]);
    assert_eq!(
        walk(dir.path(), &[]),
        [
            "B.HTML",
            "a-b.html",
            "a.html",
            "a/b/c.XHTML",
            "a/z.html",
            "b.htm",
            "x%20y/index.html",
            "%C3%BC.html"
        ]
    );
}

#[test]
fn excluded_names_count_at_the_top_only() {
    let dir = tree(&["core/a.html", "std/core/b.html", "c.html"]);
    assert_eq!(walk(dir.path(), &["core", "c.html"]), ["std/core/b.html"]);
}

#[test]
fn names_to_leave_out_that_nothing_has_are_known() {
    let dir = tree(&["core/a.html", "c.html"]);
    let walk = Walk::new(dir.path(), &base(), &["core", "nosuch", "a.html"]).unwrap();
    assert_eq!(walk.unmatched(), ["nosuch", "a.html"]);
}

#[test]
fn a_missing_directory_and_a_file_are_errors_that_name_them() {
    let dir = tree(&["a.html"]);
    for path in [dir.path().join("nowhere"), dir.path().join("a.html")] {
        let error = Walk::new(&path, &base(), &[]).unwrap_err().to_string();
        assert!(error.contains(&display(&path)), "{error}");
    }
}

#[test]
fn an_empty_directory_has_no_pages() {
    assert!(walk(tempfile::tempdir().unwrap().path(), &[]).is_empty());
}

#[test]
fn directories_may_be_named_like_pages() {
    let dir = tree(&["a.html/b.html"]);
    assert_eq!(walk(dir.path(), &[]), ["a.html/b.html"]);
}

#[test]
fn a_url_that_is_too_long_is_a_problem() {
    let long = vec!["d".repeat(250); 9].join("/");
    let dir = tree(&[&format!("{long}/a.html"), "b.html"]);
    let seen = walk(dir.path(), &[]);
    assert_eq!(seen[0], "b.html");
    assert!(seen[1].contains("at most 2000 are allowed"), "{seen:?}");
}

#[test]
fn nesting_beyond_the_limit_is_a_problem() {
    let deep = vec!["d"; DEPTH_MAX + 3].join("/");
    let dir = tree(&[&format!("{deep}/a.html"), "b.html"]);
    let seen = walk(dir.path(), &[]);
    assert_eq!(seen[0], "b.html");
    assert!(seen[1].contains("too deeply") && seen.len() == 2, "{seen:?}");
}

#[cfg(unix)]
mod unix {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    #[test]
    fn symlinks_are_further_urls() {
        let dir = tree(&["en/a.html", "b.html"]);
        symlink("../en/a.html", dir.path().join("en/copy.html")).unwrap();
        symlink("en", dir.path().join("fr")).unwrap();
        assert_eq!(
            walk(dir.path(), &[]),
            ["b.html", "en/a.html", "en/copy.html", "fr/a.html", "fr/copy.html"]
        );
    }

    #[test]
    fn a_symlink_with_another_name_than_a_page_is_not_a_page() {
        let dir = tree(&["a.html"]);
        symlink("a.html", dir.path().join("latest")).unwrap();
        assert_eq!(walk(dir.path(), &[]), ["a.html"]);
    }

    #[test]
    fn cycles_are_cut_and_reported() {
        let dir = tree(&["a/x.html", "b/y.html"]);
        symlink("..", dir.path().join("a/up")).unwrap();
        symlink("../b", dir.path().join("a/b")).unwrap();
        symlink("../a", dir.path().join("b/a")).unwrap();
        symlink(".", dir.path().join("self")).unwrap();
        symlink("/", dir.path().join("slash")).unwrap();
        symlink("loop.html", dir.path().join("loop.html")).unwrap();
        let seen = walk(dir.path(), &[]);
        let pages: Vec<_> = seen.iter().filter(|line| !line.starts_with('!')).collect();
        assert_eq!(pages, ["a/b/y.html", "a/x.html", "b/a/x.html", "b/y.html"]);
        let cut = seen.iter().filter(|line| line.contains("leads back to")).count();
        assert_eq!(cut, 6, "{seen:#?}");
        assert_eq!(seen.iter().filter(|line| line.contains("loop.html")).count(), 1);
    }

    #[test]
    fn directories_that_link_to_each_other_do_not_multiply_without_end() {
        let names: Vec<String> = (0..12).map(|n| format!("d{n:02}")).collect();
        let dir = tree(
            &names
                .iter()
                .map(|n| format!("{n}/p.html"))
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
        for from in &names {
            for to in names.iter().filter(|to| *to != from) {
                symlink(format!("../{to}"), dir.path().join(from).join(to)).unwrap();
            }
        }
        let seen = walk(dir.path(), &[]);
        let pages = seen.iter().filter(|line| !line.starts_with('!')).count();
        assert_eq!(pages, names.len() * VISITS_MAX as usize);
    }

    #[test]
    fn dangling_links_fifos_and_unreadable_directories_are_problems() {
        let dir = tree(&["a.html", "locked/b.html", "z.html"]);
        symlink("gone.html", dir.path().join("dangling.html")).unwrap();
        symlink("gone.css", dir.path().join("dangling.css")).unwrap();
        let made = Command::new("mkfifo").arg(dir.path().join("pipe.html")).status();
        let has_fifo = made.is_ok_and(|status| status.success());
        let locked = dir.path().join("locked");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
        let is_locked = fs::read_dir(&locked).is_err();
        let seen = walk(dir.path(), &[]);
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(seen.first().map(String::as_str), Some("a.html"));
        assert_eq!(seen.last().map(String::as_str), Some("z.html"));
        let has = |text: &str| seen.iter().any(|line| line.starts_with('!') && line.contains(text));
        assert!(has("dangling.html") && !has("dangling.css"), "{seen:?}");
        assert_eq!(has("pipe.html is not a regular file"), has_fifo);
        // A privileged user reads everything.
        assert_eq!(has("locked"), is_locked);
    }

    #[test]
    fn names_that_are_not_utf_8_are_escaped_byte_by_byte() {
        let dir = tree(&[]);
        let name = OsStr::from_bytes(b"caf\xe9.html");
        if fs::write(dir.path().join(name), "<p>").is_err() {
            return; // A file system that insists on UTF-8.
        }
        assert_eq!(walk(dir.path(), &[]), ["caf%E9.html"]);
    }
}
