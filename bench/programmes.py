"""C++ programmes of the benchmark: peers, and bounds. Each is compiled when a part needs it."""

import subprocess

from contenders import PYTHON, ROOT, TIMEOUT_S, progress

# As the loops in trireme/ over many bytes.
WORDS = ("c++", "-O3", "-std=c++20", f"-I{ROOT}", "-pthread")


def compiled(name, folder, *libraries, needs=""):
    """Returns the programme of bench/NAME.cc, or None if it cannot be compiled here: `needs` is
    what it then lacks."""
    source, programme = ROOT / f"bench/{name}.cc", folder / name
    words = [*WORDS, "-o", programme, source, *libraries]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    if done.returncode == 0:
        return programme
    progress(f"{name} is left out, because it cannot be compiled here ({needs}):\n"
             f"{done.stderr[:500]}")
    return None


def arrow_libraries():
    """The words that compile and link with the libraries in the Python package pyarrow."""
    packages = next((PYTHON.parent.parent / "lib").glob("python3*/site-packages"))
    place = packages / "pyarrow"
    libraries = [next(place.glob(f"lib{name}.so.[0-9]*"), "") for name in ("parquet", "arrow")]
    return ["-isystem", place / "include", *filter(None, libraries), f"-Wl,-rpath,{place}"]
