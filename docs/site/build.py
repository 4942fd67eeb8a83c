#!/usr/bin/env python3
"""Makes the site from the documents: `build.py FOLDER` writes it into FOLDER (build/site).

The documents stay as code hosts show them. This script copies them into FOLDER.work at the places
that they have in the repository. To them it adds a page for each source file that a document links
to, and the pages of the API. The tables of docs/index.md give the order of the pages. Warnings are
errors.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import api

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md"]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".yaml": "yaml"}
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
REDIRECT = '<meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def documents():
    return [ROOT / name for name in DOCUMENTS] + sorted((ROOT / "docs").glob("*.md"))


class Pages:
    """The folder from which Sphinx makes the site."""

    def __init__(self, folder):
        self.folder = folder
        self.sources = set()  # Source files that get a page, relative to the repository.

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add_document(self, path):
        def to_page(found):
            return self.link(path, found)

        text, parts, end = path.read_text(), [], 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(to_page, text[end:fence.start()]), fence[0]]
            end = fence.end()
        parts.append(LINK.sub(to_page, text[end:]))
        name = path.relative_to(ROOT)
        text = "".join(parts)
        if str(name) == "docs/index.md":
            text += contents(text)
        self.write(name, text)

    def link(self, document, found):
        target = found[2]
        if re.match(r"[a-z]+:", target) or target.endswith((".md", ".svg")):
            return found[0]
        path = (document.parent / target).resolve()
        if not path.is_file():
            raise SystemExit(f"site: {document.name}: the target {target} of a link is no file")
        self.sources.add(path.relative_to(ROOT))
        return f"{found[1]}{target}.md)"

    def add_sources(self):
        for name in sorted(self.sources):
            text = (ROOT / name).read_text()
            language = LANGUAGES.get(name.suffix, "text")
            self.write(f"{name}.md", f"---\norphan: true\n---\n# {name}\n\n"
                                     f"`````{{code-block}} {language}\n{text}`````\n")


def contents(index):
    """The hidden tables of contents: one for each kind of page, with the pages that it links to."""
    result = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        pages = list(dict.fromkeys(re.findall(r"\]\(([^)#\s]+\.md)", body)))
        if title == "Reference":
            pages += [f"../api/{name}.md" for name in api.PAGES]
        lines = "\n".join(pages)
        result.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "".join(result)


def make(site):
    work = site.with_name(site.name + ".work")
    for folder in (site, work):
        shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(work)
    for path in documents():
        pages.add_document(path)
    pages.add_sources()
    shutil.copytree(ROOT / "docs" / "images", work / "docs" / "images")
    api.add_pages(pages)
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-c", HERE,
             "-d", work / "doctrees",
             "-D", f"breathe_projects.trireme={work / 'doxygen' / 'xml'}", work, site]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    code = subprocess.run(words, check=False, env=environment).returncode
    if code:
        raise SystemExit(code)
    (site / "index.html").write_text(REDIRECT)
    shutil.rmtree(work)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: build.py FOLDER")
    make(pathlib.Path(sys.argv[1]).resolve())
