"""The documents against the sources: code, commands, keys, links, and the length of lines."""

import functools
import re
import shlex
import unittest

from support import ROOT, TRIREME, SystemTest

DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
PICTURES = {ROOT / "docs" / "collectives.md"}  # `trireme plan` prints them, some wider than a line.
COLUMNS = 100
GAP = "// ..."  # In a block of code: lines of the source are left out here.


def blocks(document):
    """(language, lines) of each fenced block."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text.replace("\\\n", " ").splitlines()) for language, text in found]


def without_indentation(lines):
    return "\n".join(line.strip() for line in lines if line.strip())


def slug(heading):
    """The anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def commands(document):
    """Command lines of Trireme, make and the benchmarks: in blocks, and as inline code."""
    text = document.read_text()
    lines = [line for language, block in blocks(document) if not language for line in block]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    for line in lines:
        line = re.sub(r"^#\s*|\s#.*$", "", line.strip()).replace("[", "").replace("]", "").replace("...", "")
        if re.match(r"(build/bin/)?trireme (?!warning)\w|make \w|bench/run\.py \w", line):
            yield line


class Documents(SystemTest):
    def test_code_is_an_excerpt_of_sources_that_are_compiled(self):
        examples = sorted((ROOT / "examples").glob("*/*.cc"))
        tests = sorted((ROOT / "tests").glob("*/*.cc"))
        texts = {path: without_indentation(path.read_text().splitlines()) for path in examples + tests}
        for document in DOCUMENTS:
            sources = examples if document.name == "README.md" else examples + tests
            for lines in (lines for language, lines in blocks(document) if language == "cpp"):
                parts = without_indentation(lines).split(GAP)
                self.assertTrue(any(all(part.strip() in texts[path] for part in parts) for path in sources),
                                f"{document.name}: this is in no source that is compiled:\n" + "\n".join(lines))
        readme = (ROOT / "README.md").read_text()
        for example in examples:
            self.assertIn(f"(examples/{example.parent.name}/main.cc)", readme)

    @functools.lru_cache(maxsize=None)
    def help_of(self, *words):
        code, out, err = self.run_to_end(TRIREME, *words, "--help")
        self.assertEqual(code, 0, f"trireme {' '.join(words)} --help: {out}{err}")
        return out

    def test_commands_options_and_keys_exist(self):
        code, keys, _ = self.run_to_end(TRIREME, "train", "--keys")
        self.assertEqual(code, 0)
        makefile = (ROOT / "Makefile").read_text()
        bench = (ROOT / "bench" / "run.py").read_text()
        checked = 0
        for document in DOCUMENTS:
            for line in commands(document):
                with self.subTest(document=document.name, line=line):
                    self.check(line, keys, makefile, bench)
                    checked += 1
        self.assertGreater(checked, 50)

    def check(self, line, keys, makefile, bench):
        program, *words = shlex.split(line)
        if program == "make":
            self.assertRegex(makefile, rf"(?m)^{words[0]}:")
            return
        if program == "bench/run.py":
            for word in words:
                self.assertTrue(word.isupper() or word.isdigit() or f'"{word}"' in bench, word)
            return
        words = words[:words.index("--")] if "--" in words else words
        path = []
        while words and re.search(rf"(?m)^  {re.escape(words[0])} ", self.help_of(*path)):
            path.append(words.pop(0))
        self.assertTrue(path, "no such command")
        for word in words:
            if word.startswith("--"):
                self.assertRegex(self.help_of(*path), rf"{word}\b")
            elif re.match(r"\w+\.\w+=", word):
                self.assertRegex(keys, rf"(?m)^\W*{re.escape(word.split('=')[0])}\W")
            elif word.startswith(("examples/", "docs/", "data/")):
                self.assertTrue((ROOT / word).exists(), f"{word} does not exist")

    def test_links_lead_somewhere(self):
        headings = {path: {slug(line.lstrip("#")) for line in path.read_text().splitlines() if line.startswith("#")}
                    for path in DOCUMENTS}
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
                if re.match(r"https?:", target):
                    continue
                name, _, anchor = target.partition("#")
                path = (document.parent / name).resolve() if name else document
                self.assertTrue(path.exists(), f"{document.name}: {target}")
                if anchor:
                    self.assertIn(anchor, headings[path], f"{document.name}: {target}")

    def test_lines_end_before_the_margin(self):
        for document in DOCUMENTS:
            text = document.read_text()
            if document in PICTURES:
                text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
            long = [line for line in text.splitlines()
                    if len(line) > COLUMNS and not line.startswith("|") and " " in line[:COLUMNS].strip()]
            self.assertEqual(long, [], document.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
