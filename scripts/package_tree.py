"""What make_wheel.py and make_deb.py share: a folder with everything that `cmake --install` copies,
and what its programmes need."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILT = ("bin/trireme", "bin/trireme-worker", "bin/trireme-bench", "lib/libtrireme_c.so")
# A build without Apache Arrow has none. It needs Arrow, which no package contains.
ARROW_LIBRARY = "lib/libtrireme_arrow.so"
# Every Linux with the C++ library and Python has these.
SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|gomp|z)\.so|ld-linux)")


def stop(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(1)


def run(*words, **options):
    """Runs a tool; returns what it prints. Ends this programme if the tool fails."""
    done = subprocess.run([str(word) for word in words], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        stop(f"{words[0]} failed ({done.returncode}): {' '.join(map(str, words))}\n{done.stdout}"
             f"{done.stderr}")
    return done.stdout


def tool(name):
    """A programme of this Python's environment, or of the system."""
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        stop(f"the programme {name} was not found; try: scripts/setup package")
    return found


def arguments_of(description, product):
    """The build folder and the folder for the product, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", default=ROOT / "build", help="the build folder")
    parser.add_argument("--out", default=ROOT / "dist", help=f"the folder for the {product}")
    given = parser.parse_args()
    return Build(given.build), pathlib.Path(given.out)


class Build:
    """A build folder in which everything is built."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        for part in BUILT:
            if not (self.folder / part).exists():
                stop(f"there is no {part} in {self.folder}; try: make build")
        config = (self.folder / "TriremeConfig.cmake").read_text()
        self.torch = pathlib.Path(re.search(r'TRIREME_BUILT_WITH_TORCH "(.*)"', config)[1])
        self.torch_version = re.search(r"built with LibTorch ([0-9.]+),", config)[1]
        self.arrow_version = re.search(r'TRIREME_BUILT_WITH_ARROW "(.*)"', config)[1]
        versions = (self.folder / "TriremeConfigVersion.cmake").read_text()
        self.version = re.search(r'PACKAGE_VERSION "(.*)"', versions)[1]

    def install(self, prefix):
        run("cmake", "--install", self.folder, "--prefix", prefix)


def programmes_of(prefix):
    return [prefix / part for part in BUILT]


def arrow_libraries_of(prefix):
    return [file for file in [prefix / ARROW_LIBRARY] if file.exists()]


def set_rpath(file, rpath):
    if rpath:
        run(tool("patchelf"), "--set-rpath", rpath, file)
    else:
        run(tool("patchelf"), "--remove-rpath", file)


def needed_by(file):
    """The names of the shared libraries that a programme or library asks for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file))
