"""Builds the site of the documents, in which each warning is an error, and follows its links."""

import html.parser
import re
import sys
import unittest
import urllib.parse

from support import ROOT, SystemTest

# Classes and functions that a user meets first, and the pages that describe them.
API = {"job": ["World", "Group", "Error", "ErrorCode"],
       "data": ["Loader", "Source", "Batch"],
       "parallel": ["DataParallel", "Distributed", "RankDataLoader"],
       "trainer": ["Trainer", "TrainerOptions", "Job", "Checkpoint", "LoopRecord", "Callback"],
       "servers": ["ParameterServer"]}
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"),
          ("source", "src"), ("object", "data")}


class Page(html.parser.HTMLParser):
    """The anchors, the links and the loaded files of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


class Site(SystemTest):
    def test_is_whole_searchable_and_needs_no_other_host(self):
        site = self.folder / "site"
        code, out, err = self.run_to_end(sys.executable, ROOT / "docs/site/build.py", site,
                                         timeout=300)
        self.assertEqual((code, out + err), (0, ""))
        pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
        for path, page in pages.items():
            for target in page.loaded + page.links:
                self.check_target(pages, path, target, target in page.loaded)
        for sheet in site.rglob("*.css"):
            self.assertNotRegex(sheet.read_text(), r"(url\(|@import)\s*['\"]?(https?:)?//")
        documents = sorted((ROOT / "docs").glob("*.md"))
        self.assertGreater(len(documents), 20)
        for document in documents:
            self.assertIn(site / "docs" / f"{document.stem}.html", pages)
        self.assertIn(site / "trireme/data/source.h.html", pages)
        self.assertIn('"docs/recovery"', (site / "searchindex.js").read_text())
        for page, names in API.items():
            anchors = pages[site / f"api/{page}.html"].anchors
            for name in names:
                self.assertTrue(any(re.search(rf"trireme\d+{name}E$", anchor)
                                    for anchor in anchors), f"api/{page}: {name}")
        self.assertIn("trireme_world_join", (site / "api/c.html").read_text())
        self.assertIn("trireme.distribute", pages[site / "api/python.html"].anchors)

    def check_target(self, pages, path, target, is_loaded):
        where = f"{path.name}: {target}"
        if re.match(r"[a-z]+:|//", target):
            self.assertFalse(is_loaded and not target.startswith("data:"), where)
            return
        name, _, anchor = target.partition("#")
        name = urllib.parse.unquote(name.partition("?")[0])
        found = (path.parent / name).resolve() if name else path
        self.assertTrue(found.is_file(), where)
        if found in pages:
            self.assertIn(urllib.parse.unquote(anchor), pages[found].anchors, where)


if __name__ == "__main__":
    unittest.main(verbosity=2)
