"""The pages of the API: one for each group of public headers, and one for the Python package."""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

# Headers that trireme.h reaches through others, and that a user reads: the options of its classes.
FURTHER = ["trireme/data/batch.h", "trireme/parallel/data_parallel_options.h",
           "trireme/parallel/own_steps.h", "trireme/parallel/optimizer.h",
           "trireme/parallel/model.h", "trireme/parallel/engine.h",
           "trireme/train/trainer_options.h",
           "trireme/train/callback.h", "trireme/train/metric.h", "trireme/train/report.h",
           "trireme/register.h"]
C_HEADER = "trireme/capi/trireme_c.h"
# The pages, and the rooms whose headers each of them has.
ROOMS = {"job": ("Errors, world and groups", ["base", "comm"]),
         "data": ("Data", ["data"]),
         "parallel": ("Engines and loops of one's own", ["parallel", "tensor"]),
         "trainer": ("The Trainer", ["train", "run", "monitor", "models", "register.h"]),
         "servers": ("Parameter servers", ["parallel/servers"]),
         "layers": ("Layers that ranks divide", ["parallel/nn"])}
PAGES = [*ROOMS, "c", "python"]


def headers():
    """The public headers: those that trireme.h includes, and FURTHER."""
    text = (ROOT / "trireme" / "trireme.h").read_text()
    return re.findall(r"#include <(trireme/[^>]+)>", text) + FURTHER


def page_of(header):
    """The page with the most exact room of a header."""
    fits = [(len(room), page) for page, (_, rooms) in ROOMS.items() for room in rooms
            if header.startswith(f"trireme/{room}")]
    return max(fits)[1]


def run_doxygen(folder):
    folder.mkdir(parents=True)
    if shutil.which("doxygen") is None:
        raise SystemExit("site: doxygen was not found; try: scripts/setup site")
    inputs = " ".join(str(ROOT / name) for name in [*headers(), C_HEADER])
    settings = (f"{(HERE / 'Doxyfile').read_text()}\nINPUT = {inputs}\n"
                f"OUTPUT_DIRECTORY = {folder}\nSTRIP_FROM_PATH = {ROOT}\n"
                f"INPUT_FILTER = \"{sys.executable} {HERE / 'filter.py'}\"\n")
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True,
                          check=False)
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"site: doxygen:\n{done.stderr}")
    for file in (folder / "xml").glob("*.xml"):  # Doxygen keeps the slashes before programmes.
        file.write_text(re.sub(r"(^|<verbatim>)///( |$)", r"\1", file.read_text(),
                               flags=re.MULTILINE))


def add_pages(pages):
    run_doxygen(pages.folder / "doxygen")
    for page, (title, _) in ROOMS.items():
        mine = [header for header in headers() if page_of(header) == page]
        pages.write(f"api/{page}.md", f"# {title}\n\n" + "".join(map(section_of, mine)))
    pages.write("api/c.md", "# The C library\n\n" + section_of(C_HEADER))
    pages.write("api/python.md", python_page())


def section_of(header):
    return (f"## {header}\n\n```{{eval-rst}}\n.. doxygenfile:: {pathlib.Path(header).name}\n"
            "   :sections: briefdescription detaileddescription innernamespace innerclass func enum"
            " typedef var define public-func public-attrib public-static-func public-type"
            " public-static-attrib user-defined\n```\n\n")


def python_page():
    """The package by its docstrings. It is not imported, because that needs the built library."""
    package = ROOT / "python" / "trireme"
    tree = ast.parse((package / "__init__.py").read_text())
    public = next(ast.literal_eval(node.value) for node in tree.body
                  if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    text = ["# The Python package\n\n```{eval-rst}\n.. py:module:: trireme\n\n",
            indented(ast.get_docstring(tree), 0)]
    nodes = {getattr(node, "name", None): node for file in sorted(package.glob("*.py"))
             for node in ast.parse(file.read_text()).body}
    for node in (nodes[name] for name in public):
        if isinstance(node, ast.FunctionDef):
            text.append(described("function", node, 0))
        else:
            text.append(f".. py:class:: {node.name}\n\n{indented(ast.get_docstring(node), 3)}")
            text += [described("method", method, 3) for method in node.body
                     if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")]
    return "".join(text) + "```\n"


def described(kind, node, margin):
    words = [argument for argument in ast.unparse(node.args).split(", ") if argument != "self"]
    name, arguments = node.name, f"({', '.join(words)})"
    if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        kind, arguments = "property", ""
    return (f"{' ' * margin}.. py:{kind}:: {name}{arguments}\n\n"
            f"{indented(ast.get_docstring(node), margin + 3)}")


def indented(docstring, margin):
    """A docstring as reStructuredText: names in backticks are code, and programmes are blocks."""
    text = re.sub(r"`([^`\n]+)`", r"``\1``", docstring or "")
    text = re.sub(r":\n\n    ", "::\n\n    ", text)
    return "".join(f"{' ' * margin}{line}".rstrip() + "\n" for line in text.splitlines()) + "\n"
