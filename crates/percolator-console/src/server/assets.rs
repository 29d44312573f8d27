//! Serves the files of the console from `assets/`: hand-written ES modules, and two libraries.
//!
//! Nothing is built or bundled, so building this crate needs no other tool than cargo. A debug
//! build reads the files of `PERCOLATOR_CONSOLE_ASSETS` instead, if that names a directory.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

macro_rules! assets {
    ($($name:literal $kind:ident,)*) => {
        /// Names, kinds and contents.
        pub(crate) const ASSETS: &[(&str, &str, &[u8])] = &[
            $(($name, $kind, include_bytes!(concat!("../../assets/", $name))),)*
        ];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

assets! {
    "index.html" HTML,
    "icon.svg" SVG,
    "style.css" CSS,
    "app.js" JS,
    "api.js" JS,
    "parts.js" JS,
    "chart.js" JS,
    "overview.js" JS,
    "observers.js" JS,
    "graph.js" JS,
    "cell.js" JS,
    "why.js" JS,
    "keys.js" JS,
    "locks.js" JS,
    "transactions.js" JS,
    "search.js" JS,
    "learn.js" JS,
    "vendor/preact.js" JS,
    "vendor/uplot.js" JS,
    "vendor/uplot.css" CSS,
}

/// A file, or the shell for every page of the console. Files are named by their paths below `base`,
/// so that the shell finds them from any page.
pub(crate) fn serve(base: &str, path: &str, headers: &HeaderMap) -> Response {
    let name = path.trim_start_matches('/');
    let found = ASSETS.iter().find(|(asset, ..)| *asset == name);
    // The browser draws the pages, so all have the same shell. The name of a file has a dot.
    let is_file = name.rsplit('/').next().is_some_and(|last| last.contains('.'));
    let Some((name, kind, content)) = found.or_else(|| ASSETS.first().filter(|_| !is_file)) else {
        return (StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    let content = current(name, content);
    let content = if *kind == HTML { below(base, &content) } else { content };
    let tag = format!("\"{}\"", &blake3::hash(&content).to_hex()[..32]);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|given| given == tag.as_str());
    let response = Response::builder()
        .header(header::CONTENT_TYPE, *kind)
        .header(header::ETAG, &tag)
        .header(header::CACHE_CONTROL, "no-cache");
    let (status, body) = if known {
        (StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        (StatusCode::OK, Body::from(content))
    };
    let response = response.status(status).body(body);
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// The shell, whose links begin at a base path.
fn below(base: &str, shell: &Bytes) -> Bytes {
    let text = String::from_utf8_lossy(shell);
    let text = text.replace("href=\"/", &format!("href=\"{base}/"));
    text.replace("src=\"/", &format!("src=\"{base}/")).into()
}

fn current(name: &str, built_in: &'static [u8]) -> Bytes {
    if cfg!(debug_assertions)
        && let Some(dir) = std::env::var_os("PERCOLATOR_CONSOLE_ASSETS")
        && let Ok(read) = std::fs::read(std::path::Path::new(&dir).join(name))
    {
        return read.into();
    }
    Bytes::from_static(built_in)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files(dir: &Path, under: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{under}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                files(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn the_table_names_every_file_and_no_other() {
        let mut found = BTreeSet::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets"), "", &mut found);
        found.retain(|name| !name.ends_with(".md") && !name.contains("LICENSE"));
        let named = ASSETS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(found, named);
    }

    #[test]
    fn our_own_scripts_are_small_and_insert_no_html() {
        let (mut lines, mut bytes) = (0, 0);
        for (name, kind, content) in ASSETS {
            bytes += content.len();
            if name.starts_with("vendor/") || *kind == SVG {
                continue;
            }
            let text = std::str::from_utf8(content).unwrap();
            lines += text.lines().count();
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("]
            {
                assert!(!text.contains(forbidden), "{name} has {forbidden}");
            }
            let dangerous =
                text.contains("dangerouslySetInnerHTML") || text.contains("new Function");
            assert!(!dangerous, "{name}");
        }
        assert!(lines <= 3_500, "{lines} lines");
        assert!(bytes <= 250_000, "{bytes} bytes");
    }

    #[test]
    fn the_libraries_are_those_that_the_readme_names() {
        let readme = include_str!("../../assets/vendor/README.md");
        for (name, _, content) in ASSETS.iter().filter(|(name, ..)| name.starts_with("vendor/")) {
            let hash = blake3::hash(content).to_hex();
            assert!(readme.contains(hash.as_str()), "{name} has checksum {hash}");
        }
    }

    #[test]
    fn pages_get_the_shell_and_known_files_are_not_sent_again() {
        let get = |path: &str, headers: &HeaderMap| serve("", path, headers);
        let shell = get("/cell/accounts/Bob/bal", &HeaderMap::new());
        assert_eq!(shell.status(), StatusCode::OK);
        assert_eq!(shell.headers()[header::CONTENT_TYPE], HTML);
        assert_eq!(get("/missing.js", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
        let mut headers = HeaderMap::new();
        let tag = get("/app.js", &headers).headers()[header::ETAG].clone();
        headers.insert(header::IF_NONE_MATCH, tag);
        assert_eq!(get("/app.js", &headers).status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn the_shell_finds_its_files_from_any_path_below_the_base() {
        let shell = below("/ops", &Bytes::from_static(ASSETS[0].2));
        let shell = std::str::from_utf8(&shell).unwrap();
        for file in ["/ops/app.js", "/ops/style.css", "/ops/vendor/uplot.js", "/ops/icon.svg"] {
            assert!(shell.contains(&format!("\"{file}\"")), "{file}: {shell}");
        }
        assert_eq!(shell.matches("=\"/").count(), shell.matches("=\"/ops/").count());
    }
}
