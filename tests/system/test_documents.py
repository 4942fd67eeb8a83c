"""Compares the documents with the sources: code, commands, options, keys, codes, links, and the
length of lines. It reads the blocks of YAML as configurations."""

import functools
import os
import re
import shlex
import statistics
import sys
import unittest

import yaml

from support import BIN, FENCE, ROOT, TRIREME, SystemTest, blocks_of, environment, png

NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")
DOCUMENTS = [ROOT / name for name in NAMES] + sorted((ROOT / "docs").glob("*.md"))
# `trireme plan` prints them, and some are wider than a line.
PICTURES = {ROOT / "docs" / name for name in ("collectives.md", "command_line.md")}
COLUMNS = 100
# In a block of code: lines of the source that are left out.
GAPS = {"cpp": "// ...", "c": "/* ... */", "java": "// ...", "csharp": "// ...", "rust": "// ..."}
COMMAND = re.compile(r"(build/bin/)?trireme (?!warning)\w|make \w|bench/run\.py \w")


def blocks(document):
    """Yields (language, lines) of each fenced block."""
    for _, language, text in blocks_of(document.read_text()):
        yield language, text.replace("\\\n", " ").splitlines()


def without_indentation(lines):
    return "\n".join(line.strip() for line in lines if line.strip())


def anchor(heading):
    """Returns the anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def commands(document):
    """Yields command lines of Trireme, make and the benchmarks, in blocks and as inline code."""
    lines = [line for language, block in blocks(document) if not language for line in block]
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", document.read_text()))
    for line in lines:
        line = re.sub(r"\s#.*$", "", line.strip())
        if COMMAND.match(line):
            yield re.sub(r"[\[\]]|\.\.\.", "", line)


def section(document, heading):
    """Returns the text below a heading of the second level."""
    return document.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows_with(text, *names):
    """Returns the rows of a text's tables that have each of these cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if set(names) <= set(row)]


def figures_of_benchmarks():
    """Returns (Trireme, peer) of each row of README.md's table, by what docs/benchmarks.md has."""
    def row(heading, *names):
        found = rows_with(section(ROOT / "docs/benchmarks.md", heading), *names)
        assert len(found) == 1, f"docs/benchmarks.md: {len(found)} rows of {names} in {heading}"
        return found[0]

    steps = section(ROOT / "docs/benchmarks.md", "Training step")
    mean = r"([\d.]+) \(tuned\), ([\d.]+) \(as shipped\)"
    tuned, shipped = re.search(rf"`shm`: .*?{mean}", " ".join(steps.split())).groups()
    as_it_stands = statistics.geometric_mean(
        float(cells[6]) for cells in rows_with(steps, "as it stands, shm", "DDP tuned"))
    mlp = row("Training step", "mlp", "ours, shm", "DDP tuned")
    start = row("Start", "mlp, 2 processes")
    lost = row("Recovery", "next step, one of 2 killed")
    save = row("Checkpoints", "added by a save", "torch.save")
    gloo, mpi = (row("all_reduce", "25 MB", "ours, shm", peer) for peer in ("c10d Gloo", "OpenMPI"))
    link = row("Links between hosts", "25 MB, 2 ranks on 2 hosts", "ours, tcp", "c10d Gloo")
    seconds = [cell.partition(" (")[0] for cell in (lost[1], lost[3])]
    return [(f"{mlp[3]} ms", f"{mlp[4]} ms"), (tuned, "1"), (shipped, "1"),
            (f"{as_it_stands:.2f}", "1"), (f"{start[3]} ms", f"{start[4]} ms"),
            (f"{seconds[0]} s, recovered {lost[2]} times",
             f"{seconds[1]} s, recovered {lost[4]} times"),
            (f"{save[1]} ms", f"{save[3]} ms"),
            (f"{gloo[3]} ms", f"{gloo[4]} ms: Gloo; {mpi[4]} ms"),
            (f"{link[3]} ms", f"{link[4]} ms")]


class Documents(SystemTest):
    def test_the_figures_of_the_readme_are_those_of_the_benchmarks(self):
        rows = rows_with(section(ROOT / "README.md", "How fast it is"))[2:]
        self.assertEqual([(ours, peer.rpartition(":")[0]) for _, ours, peer in rows],
                         figures_of_benchmarks(), "README.md, docs/benchmarks.md")

    def test_code_is_an_excerpt_of_sources_that_are_compiled(self):
        examples = sorted((ROOT / "examples").glob("*/*.cc"))
        examples += sorted((ROOT / "examples/languages").glob("*/*"))
        tests = [file for kind in ("cc", "c") for file in (ROOT / "tests").glob(f"*/*.{kind}")]
        texts = {path: without_indentation(path.read_text().splitlines())
                 for path in examples + tests}
        for document in DOCUMENTS:
            sources = examples if document.name == "README.md" else examples + tests
            for language, lines in blocks(document):
                if language not in GAPS:
                    continue
                parts = [part.strip()
                         for part in without_indentation(lines).split(GAPS[language])]
                found = any(all(part in texts[path] for part in parts) for path in sources)
                self.assertTrue(found, f"{document.name}: no compiled source has this:\n"
                                       + "\n".join(lines))

    def test_yaml_is_a_configuration(self):
        # The files that some blocks name.
        (self.folder / "documents.jsonl").write_text('{"tokens": [1, 2, 3]}\n' * 256)
        (self.folder / "features.csv").write_text("height,width\n" + "1.5,2.5\n" * 256)
        (self.folder / "labels.csv").write_text("label\n" + "0\n1\n" * 128)
        for document in DOCUMENTS:
            for language, lines in blocks(document):
                text = "\n".join(lines)
                # test_tutorial.py trains by the one that needs a library.
                if language != "yaml" or "library:" in text:
                    continue
                manifest = yaml.safe_load(text)
                if "spec" in manifest:
                    self.check_kubernetes(manifest["spec"])
                    continue
                # The images that a block names by their folders.
                for path in re.findall(r"path: (photos/\w+)", text):
                    (self.folder / path / "class").mkdir(parents=True, exist_ok=True)
                    for i in range(256):
                        image = self.folder / path / "class" / f"{i}.png"
                        image.write_bytes(png(bytes(48), 4, 4))
                file = self.folder / "block.yaml"
                file.write_text(text)
                code, out, err = self.run_to_end(TRIREME, "plan", file, "--workers", "1")
                self.assertEqual(code, 0, f"{document.name}: {out}{err}\n{text}")

    def check_kubernetes(self, job):
        """Asks Trireme what it finds in a pod of an Indexed Job."""
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        self.assertEqual((job["completionMode"], job["parallelism"]),
                         ("Indexed", job["completions"]))
        variables = {one["name"]: one.get("value", "0123456789abcdef") for one in container["env"]}
        self.assertTrue(variables["MASTER_ADDR"].endswith(f"-0.{pod['subdomain']}"))
        self.assertIn("--workers", self.help_of(*container["command"][1:2]))
        code, out, err = self.run_to_end(
            TRIREME, "doctor", env=environment(JOB_COMPLETION_INDEX="1", **variables))
        self.assertEqual(code, 0, err)
        self.assertIn(f"worker 1 of {job['completions']} ", out)
        self.assertIn(f"coordinator at {variables['MASTER_ADDR']}:", out)

    def test_every_block_is_seen(self):
        for document in DOCUMENTS:
            self.assertNotIn("```", FENCE.sub("", document.read_text()), document.name)

    def test_cmake_is_in_projects_that_other_tests_build(self):
        texts = [path.read_text() for path in (ROOT / "examples").glob("*/CMakeLists.txt")]
        texts += [(ROOT / f"tests/system/test_{name}.py").read_text()
                  for name in ("install", "subproject")]
        # The names that a reader replaces, and what the projects of the tests have there.
        names = {"my_training": r"\w+", "mine": r"[\w${}]+", "third_party/trireme": ".+",
                 "GIT_REPOSITORY https://example.org/trireme.git GIT_TAG main": ".+"}
        count = 0
        for document in DOCUMENTS:
            for language, lines in blocks(document):
                for line in lines if language == "cmake" else []:
                    pattern = r"\s+".join(map(re.escape, line.split()))
                    for name, there in names.items():
                        pattern = pattern.replace(r"\s+".join(map(re.escape, name.split())), there)
                    self.assertTrue(any(re.search(pattern, text) for text in texts), line)
                    count += 1
        self.assertGreater(count, 8)

    def test_the_tables_of_codes_say_what_the_header_says(self):
        header = (ROOT / "trireme/base/error.h").read_text()
        exits = dict(re.findall(r"^  (kExit\w+) = (\d+),", header, re.MULTILINE))
        body = header.partition("enum class ErrorCode {")[2].partition("};")[0]
        codes = re.findall(r"^  (\w+),", body, re.MULTILINE)
        source = (ROOT / "trireme/base/error.cc").read_text().partition("int exit_code_of(")[2]
        cases = re.findall(r"((?:\s*case ErrorCode::\w+:)+)\s*return (\w+);", source)
        code_of = {code: exits[name] for labels, name in cases
                   for code in re.findall(r"ErrorCode::(\w+)", labels)}
        document = (ROOT / "docs/errors.md").read_text()
        rows = re.findall(r"(?m)^\| (\d+) \| `(\w+)` \|", document)
        self.assertEqual({name: number for number, name in rows}, exits)
        rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| (\d+) \|[^|]*\|$", document)
        self.assertEqual([code for code, _ in rows], codes)
        self.assertEqual(dict(rows), code_of)
        # A meaning is the comment of its code, as a part of a sentence.
        comments = dict(re.findall(r"^  (\w+)(?: = \d+)?,\s*// (.*)\.$", header, re.MULTILINE))
        meanings = dict(re.findall(r"(?m)^\| (?:\d+ \| )?`(\w+)` \| ([^|]*) \|", document))
        for name in [*codes, *exits]:
            self.assertEqual(meanings[name], comments[name][0].lower() + comments[name][1:], name)

    def test_the_page_of_the_command_line_is_what_help_prints(self):
        code, out, err = self.run_to_end(sys.executable, ROOT / "scripts/command_line.py", TRIREME)
        self.assertEqual(code, 0, err)
        self.assertEqual((ROOT / "docs/command_line.md").read_text(), out,
                         "try: scripts/command_line.py > docs/command_line.md")

    def test_the_table_of_keys_is_what_keys_prints(self):
        code, keys, _ = self.run_to_end(TRIREME, "train", "--keys")
        self.assertEqual(code, 0)
        self.assertIn(keys.strip(), (ROOT / "docs/configuration.md").read_text())

    def test_the_table_of_stages_is_what_the_command_prints(self):
        code, table, _ = self.run_to_end(TRIREME, "data", "stages")
        self.assertEqual(code, 0)
        self.assertIn(table.strip(), (ROOT / "docs/input.md").read_text())

    def test_the_map_names_every_page(self):
        text = (ROOT / "docs/index.md").read_text()
        for document in DOCUMENTS:
            if document.name != "index.md":
                name = str(document.relative_to(ROOT / "docs")) if document.parent.name == "docs" \
                    else f"../{document.relative_to(ROOT)}"
                self.assertEqual(text.count(f"]({name})"), 1, name)

    def test_the_readme_names_every_example(self):
        for example in [*(ROOT / "examples").glob("*/main.cc"),
                        *(ROOT / "examples/languages").glob("*/*")]:
            self.assertIn(f"({example.relative_to(ROOT)})",
                          (ROOT / "README.md").read_text())

    @functools.cache
    def help_of(self, *words):
        code, out, err = self.run_to_end(TRIREME, *words, "--help")
        self.assertEqual(code, 0, f"trireme {' '.join(words)} --help: {out}{err}")
        return out

    def test_commands_options_and_keys_exist(self):
        code, keys, _ = self.run_to_end(TRIREME, "train", "--keys")
        self.assertEqual(code, 0)
        for document in DOCUMENTS:
            for line in commands(document):
                with self.subTest(document=document.name, line=line):
                    program, *words = shlex.split(line)
                    if program == "make":
                        self.assertRegex((ROOT / "Makefile").read_text(), rf"(?m)^{words[0]}:")
                    elif program == "bench/run.py":
                        self.check_benchmark(words)
                    else:
                        self.check_command(words, keys)

    def test_runs_of_the_examples_can_be_planned(self):
        """Plans what the blocks of commands plan or train, if it needs no other files."""
        for name in ("examples", "data"):
            os.symlink(ROOT / name, self.folder / name)
        os.symlink(BIN.parent, self.folder / "build")
        lines = {re.sub(r"\s#.*$", "", line.strip()) for document in DOCUMENTS
                 for language, block in blocks(document) if not language for line in block}
        jobs = {line: words for line in lines if (words := self.words_of_plan(line))}
        self.assertGreater(len(jobs), 25)
        for line, code, out, err in self.run_each(jobs):
            self.assertEqual(code, 0, f"{line}\n{' '.join(jobs[line])}\n{out}{err}")

    def words_of_plan(self, line):
        """The plan of a command; none if the command is about other files, or says more than a
        plan has."""
        if not re.match(r"(build/bin/)?trireme (plan|train) ", line):
            return None
        words = shlex.split(line)[2:]
        configs = [word for word in words if word.endswith(".yaml")]
        if any(word.endswith(".json") or word.endswith(".yaml") and not (ROOT / word).exists()
               for word in words) or not (configs or "--schedule" in words):
            return None
        if "--svg" in words:
            words[words.index("--svg") + 1] = "picture.svg"
        if "--elastic" in words:  # The most workers.
            at = words.index("--elastic")
            most = words[at + 1].partition(":")[2]
            words[at:at + 2] = [] if "--workers" in words else ["--workers", most]
        if all(re.search(rf"{word}\b", self.help_of("plan")) for word in words
               if word.startswith("--")):
            return [TRIREME, "plan", *words]
        return None

    def check_benchmark(self, words):
        script = (ROOT / "bench" / "run.py").read_text()
        for before, word in zip(["", *words], words):
            is_value = word.isupper() or word.isdigit() or before == "--commit"
            self.assertTrue(is_value or f'"{word}"' in script, word)

    def check_command(self, words, keys):
        words = words[:words.index("--")] if "--" in words else words
        path = []
        while re.search(rf"(?m)^  {re.escape(words[0])} ", self.help_of(*path)):
            path.append(words.pop(0))
            if not words or words[0].startswith("-"):
                break
        self.assertTrue(path, "no such command")
        for word in words:
            if word.startswith("--"):
                self.assertRegex(self.help_of(*path), rf"{word}\b")
            elif re.match(r"\w+\.\w+=", word):
                self.assertIn(f"| {word.split('=')[0]} ", keys)
            elif word.startswith("examples/"):
                self.assertTrue((ROOT / word).exists(), word)

    def test_links_have_targets(self):
        anchors = {path: {anchor(line.lstrip("#")) for line in path.read_text().splitlines()
                          if line.startswith("#")} for path in DOCUMENTS}
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
                if re.match(r"https?:", target):
                    continue
                name, _, place = target.partition("#")
                path = (document.parent / name).resolve() if name else document
                self.assertTrue(path.exists(), f"{document.name}: {target}")
                if place:
                    self.assertIn(place, anchors[path], f"{document.name}: {target}")

    def test_lines_end_before_the_margin(self):
        for document in DOCUMENTS:
            text = document.read_text()
            lines = (FENCE.sub("", text) if document in PICTURES else text).splitlines()
            # Tables, and words longer than a line, cannot be wrapped.
            long = [line for line in lines if len(line) > COLUMNS and not line.startswith("|")
                    and " " in line[:COLUMNS].strip()]
            self.assertEqual(long, [], document.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
