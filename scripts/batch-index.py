#!/usr/bin/env python3
"""Indexes a directory of HTML in one batch: what `percolator webindex load` and `rank` build, without them.

  pip install selectolax numpy
  scripts/batch-index.py SITE [--base URL] [--out FILE] [--against PERCOLATOR]

The script parses each page, finds duplicates (equal title and text; redirects; declared canonicals), ranks
the pages by PageRank, inverts the links (those of a duplicate also count for the page that is shown), and fills
an SQLite file with tables of pages and in-links and an FTS5 index of titles, anchors and texts. It holds all
pages in memory, makes nothing durable before its end, and does everything again when one page changes. It
prints what it counted and its CPU seconds (user and system). The bar for the script itself is 0.1 CPU-seconds
for each MB of HTML; above that it ends with 1.

With --against it also runs `load` and `rank` of that binary in a new store, beside FILE, and `stats` and
`verify` after them. It prints the CPU seconds of both programs and their ratio. It ends with 1 if the counts
differ, if `verify` finds a difference, or if the ratio is above 1.5.
"""
import argparse, hashlib, json, os, re, resource, sqlite3, subprocess, sys, tempfile
from urllib.parse import quote, urljoin

import numpy as np
from selectolax.lexbor import LexborHTMLParser

CPU_PER_MB_MAX, RATIO_MAX = 0.1, 1.5
ANCHORS_PER_LINK_MAX, ANCHORS_PER_PAGE_MAX, REDIRECT_SECONDS_MAX = 8, 64, 10
HIDDEN = ["script", "style", "template", "noscript", "iframe", "object", "svg", "select", "head"]
CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w-]+)|<\?xml[^>]+encoding=["']([\w-]+)""", re.I)
REFRESH = re.compile(r"""\s*(\d*)[\d.]*\s*[;,\s]\s*(?:url\s*=\s*)?["']?([^"']*)""", re.I)


def walk(top, path="", above=()):
    """Yields the path of each page below `top`; a symlink is a further page."""
    here = os.path.realpath(os.path.join(top, path))
    if here in above:
        return
    for entry in sorted(os.scandir(os.path.join(top, path)), key=lambda entry: entry.name):
        name = os.path.join(path, entry.name)
        if entry.is_dir():
            yield from walk(top, name, (*above, here))
        elif entry.is_file() and name.lower().endswith((".html", ".htm", ".xhtml")):
            yield name


def absolute(base, href):
    """Returns the URL that `href` means, without its fragment; None unless its scheme is http or https."""
    try:
        url = urljoin(base, href.strip().partition("#")[0])
    except ValueError:
        return None
    if not url.startswith(("http:", "https:")):
        return None
    return url if url.count("/") > 2 else url + "/"


def parse(url, content):
    """Returns a page's title, its text, its links as {target: anchors}, and the page that it stands for."""
    charset = CHARSET.search(content, 0, 1024)
    charset = (charset[1] or charset[2]).decode() if charset else "utf-8"
    try:
        tree = LexborHTMLParser(content.decode(charset, "replace"))
    except LookupError:
        tree = LexborHTMLParser(content.decode("utf-8", "replace"))
    title, base, other = tree.css_first("title"), tree.css_first("base[href]"), None
    title = " ".join(title.text().split()) if title else ""
    base = urljoin(url, base.attrs["href"]) if base else url
    for meta in tree.css('meta[http-equiv="refresh" i]'):
        refresh = REFRESH.match(meta.attributes.get("content") or "")
        if refresh and refresh[2] and int(refresh[1] or 0) <= REDIRECT_SECONDS_MAX:
            other = absolute(base, refresh[2])
    redirects = other is not None and other != url
    if not redirects and (link := tree.css_first('link[rel~="canonical" i][href]')):
        other = absolute(base, link.attrs["href"])
    targets, links = {}, {}
    for node in tree.css("a[href], area[href]"):
        href = (node.attrs["href"] or "").strip().partition("#")[0]
        target = targets.get(href)
        if target is None:
            target = targets[href] = absolute(base, href) or ""
        if target and target != url:
            anchor, anchors = " ".join(node.text().split()), links.setdefault(target, [])
            if anchor and anchor not in anchors and len(anchors) < ANCHORS_PER_LINK_MAX:
                anchors.append(anchor)
    tree.strip_tags(HIDDEN)
    text = " ".join(tree.body.text(separator=" ").split()) if tree.body else ""
    return title, text, links, other if other != url else None, redirects


def pagerank(pages, edges, damping=0.85):
    source, target = np.array(edges, np.int64).reshape(-1, 2).T
    degree = np.bincount(source, minlength=pages)
    rank, dangling = np.full(pages, 1 / pages), degree == 0
    for _ in range(150):
        share = rank / np.maximum(degree, 1)
        even = (1 - damping + damping * rank[dangling].sum()) / pages
        new = even + damping * np.bincount(target, weights=share[source], minlength=pages)
        change, rank = np.abs(new - rank).sum(), new
        if change < 1e-9:
            break
    return rank


def shown(urls, pages, number, rank):
    """Returns for each page the page of its cluster that is shown: no stub if possible, then rank, then URL."""
    parent, first, best = list(range(len(urls))), {}, {}

    def root(i):
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for i, (title, text, _, other, _) in enumerate(pages):
        if other in number:
            parent[root(i)] = root(number[other])
        elif other or text:
            # Pages that stand for one address are one cluster, even if there is no page.
            key = other or hashlib.blake2b(f"{title}\n{text}".encode()).digest()
            parent[root(i)] = root(first.setdefault(key, i))
    for i, page in enumerate(pages):
        mine = (page[3] is not None, -rank[i], urls[i], i)
        best[root(i)] = min(best.get(root(i), mine), mine)
    return [best[root(i)][3] for i in range(len(urls))]


def build(site, base, out):
    """Indexes the site into the file `out`; returns the megabytes of HTML and what there is of each kind."""
    size, urls, pages = 0, [], []
    for path in walk(site):
        with open(os.path.join(site, path), "rb") as file:
            content = file.read()
        size += len(content)
        urls.append(base + quote(path, safe="/-._~!$&'()*+,;=:@"))
        pages.append(parse(urls[-1], content))
    number = {url: i for i, url in enumerate(urls)}
    edges = [(i, number[target]) for i, (_, _, links, other, redirects) in enumerate(pages)
             for target in ([other] if redirects else links) if target in number]
    rank = pagerank(len(urls), edges)
    best = shown(urls, pages, number, rank)
    links, anchors = [], [{} for _ in urls]
    for i, page in enumerate(pages):
        for target, said in page[2].items():
            to = best[number[target]] if target in number else None
            links.append((target, target, urls[i], encoded := json.dumps(said)))
            if to is not None and urls[to] != target:
                links.append((urls[to], target, urls[i], encoded))
            if to is not None and len(anchors[to]) < ANCHORS_PER_PAGE_MAX:
                anchors[to].update(dict.fromkeys(said))
    links.sort()
    db = sqlite3.connect(out)
    db.executescript("""PRAGMA journal_mode=off; PRAGMA synchronous=off;
        CREATE TABLE pages(id INTEGER PRIMARY KEY, url TEXT UNIQUE, rank REAL, shown INTEGER);
        CREATE TABLE links(holder TEXT, target TEXT, source TEXT, anchors TEXT,
                           PRIMARY KEY(holder, target, source)) WITHOUT ROWID;
        CREATE VIRTUAL TABLE search USING fts5(title, anchors, text);""")
    db.executemany("INSERT INTO pages VALUES(?,?,?,?)", zip(range(len(urls)), urls, map(float, rank), best))
    db.executemany("INSERT INTO links VALUES(?,?,?,?)", links)
    db.executemany("INSERT INTO search(rowid, title, anchors, text) VALUES(?,?,?,?)",
                   ((i, page[0], "\n".join(anchors[i]), page[1]) for i, page in enumerate(pages) if best[i] == i))
    db.commit()
    db.close()
    return size / 1e6, {"pages": len(pages), "duplicates": sum(b != i for i, b in enumerate(best)),
                        "links": sum(len(page[2]) for page in pages), "in-links": len(links)}


def cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def run(percolator, store, *command):
    """Runs a command of the web index; returns its CPU seconds and what it says."""
    before = cpu(resource.RUSAGE_CHILDREN)
    command = [percolator, "webindex", *command, "--data", store, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    # 3 says that `verify` found differences, and its output says which.
    if done.returncode not in (0, 3):
        sys.exit(f"failed: {' '.join(command)} ended with {done.returncode}")
    return cpu(resource.RUSAGE_CHILDREN) - before, json.loads(done.stdout)


def compare(percolator, site, base, out, batch_cpu, batch_counts):
    """Builds the same index with `percolator`; returns what is wrong with it."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(out))) as store:
        load, _ = run(percolator, store, "load", site, "--base", base)
        rank, _ = run(percolator, store, "rank")
        stats, verify = run(percolator, store, "stats")[1], run(percolator, store, "verify")[1]
    counts = {"pages": stats["pages"], "duplicates": stats["duplicates"], "links": stats["edges"],
              "in-links": verify["verify"]["attached_links"]}
    ratio = (load + rank) / batch_cpu
    print(f"percolator: load {load:.2f} + rank {rank:.2f} = {load + rank:.2f} CPU s; {counts}")
    print(f"ratio: {ratio:.2f}, allowed {RATIO_MAX}")
    return [why for why, wrong in [("the counts differ", counts != batch_counts),
                                   ("verify found differences", not verify["verify_ok"]),
                                   (f"the ratio is above {RATIO_MAX}", ratio > RATIO_MAX)] if wrong]


def main():
    layout = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    options.add_argument("site")
    options.add_argument("--base", default="https://site.example/")
    options.add_argument("--out", default="batch-index.sqlite", metavar="FILE")
    options.add_argument("--against", metavar="PERCOLATOR")
    args = options.parse_args()
    if os.path.exists(args.out):
        sys.exit(f"{args.out} exists: remove it, or name another file with --out")
    megabytes, counts = build(args.site, args.base, args.out)
    used = cpu(resource.RUSAGE_SELF)
    print(f"batch: {used:.2f} CPU s for {megabytes:.1f} MB of HTML; {counts}")
    wrong = []
    if used > CPU_PER_MB_MAX * megabytes:
        wrong.append(f"the batch took more than {CPU_PER_MB_MAX} CPU s for each MB")
    if args.against:
        wrong += compare(args.against, args.site, args.base, args.out, used, counts)
    if wrong:
        sys.exit("failed: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
