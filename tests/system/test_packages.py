"""The wheel and the Debian package of this build, each in a clean folder: an example is built
against it and trains, and another LibTorch is refused."""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import pyarrow
import pyarrow.parquet

from support import BIN, ROOT, SystemTest, blocks_of, dead_links, environment

TORCH = pathlib.Path(importlib.util.find_spec("torch").origin).parent
# The machine's own packages must not be found, so that a project shows what the wheel lacks.
NO_PACKAGES = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON"
               for name in ("OpenSSL", "ZLIB", "fmt", "nlohmann_json", "yaml-cpp", "JPEG", "PNG",
                            "CURL", "MPI")]
CLEAN = {"OMP_NUM_THREADS": "1"}


def clean_environment(**extra):
    env = environment(**CLEAN, **extra)
    for name in ("PYTHONPATH", "TORCH_DIR", "TRIREME_BIN", "TRIREME_LIB", "VIRTUAL_ENV",
                 "LD_LIBRARY_PATH"):
        if name not in extra:
            env.pop(name, None)
    return env


def make_other_torch(folder):
    """A LibTorch that says 9.8.7, made of links to the one of this environment."""
    headers = folder / "include/torch/headeronly"
    headers.mkdir(parents=True)
    for part in ("lib", "__init__.py"):
        (folder / part).symlink_to(TORCH / part)
    lines = (TORCH / "include/torch/headeronly/version.h").read_text()
    for part, number in (("MAJOR", 9), ("MINOR", 8), ("PATCH", 7)):
        lines = re.sub(rf"(define TORCH_VERSION_{part}) \d+", rf"\1 {number}", lines)
    (headers / "version.h").write_text(lines)
    (folder / "version.py").write_text("__version__ = '9.8.7+cpu'\n")
    return folder


class Packages(SystemTest):
    def must(self, *words, timeout=120, **options):
        options.setdefault("env", clean_environment())
        return super().must(*words, timeout=timeout, **options)

    def make(self, script):
        """Runs a script that makes a package; returns its file."""
        out = self.folder / script
        self.must(sys.executable, ROOT / f"scripts/make_{script}.py", "--build", BIN.parent,
                  "--out", out)
        files = list(out.iterdir())
        self.assertEqual(len(files), 1, files)
        return files[0]

    def build(self, source, name, *words):
        build = self.folder / f"build-{name}"
        self.must("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  *words)
        self.must("cmake", "--build", build, timeout=300)
        return build / source.name

    def install_wheel(self):
        """Makes the wheel and an environment that has it beside a link to torch; returns the
        environment's folder for programmes and the one for packages."""
        place = self.folder / "environment"
        self.must(sys.executable, "-m", "venv", "--without-pip", place)
        (packages,) = place.glob("lib/python3*/site-packages")
        self.must(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python",
                  place / "bin/python", "install", "--no-deps", "--no-index", "--no-compile",
                  self.make("wheel"))
        (packages / "torch").symlink_to(TORCH)
        (packages / "rest.pth").write_text(f"{TORCH.parent}\n")  # What torch itself imports.
        return place / "bin", packages

    def train_a_step(self, trireme, share, name, **variables):
        report = self.folder / f"{name}.json"
        self.must(trireme, "train", share / "examples/digits.yaml", "--workers", "2", "--quiet",
                  "--set", "train.steps=1", "--set", f"run.dir={self.folder / name}", "--report",
                  report, env=clean_environment(**variables))
        self.assertEqual(json.loads(report.read_text())["steps"], 1)

    def read_parquet(self, trireme, library):
        """The library of a package finds the Arrow of the Python environment."""
        if not (BIN.parent / "lib/libtrireme_arrow.so").exists():
            self.assertFalse(library.exists())
            return
        file = self.folder / "x.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"x": [17]}), file)
        out = self.must(trireme, "data", "head", file,
                        env=clean_environment(TRIREME_ARROW_PLUGIN=str(library),
                                              TORCH_DIR=str(TORCH)))
        self.assertIn("int64: 17", out)

    def both_named(self, code, text):
        self.assertNotEqual(code, 0, text)
        self.assertRegex(text, r"built with LibTorch 2\.\d+\.\d+")
        self.assertRegex(text, r"torch[^\n]* is (Lib)?[tT]orch 9\.8\.7|LibTorch\s+9\.8\.7")

    def look_for_another_torch(self, programmes, packages, prefix):
        (packages / "torch").unlink()
        other = make_other_torch(packages / "torch")
        code, out, err = self.run_to_end(programmes / "trireme", "train", "--quiet", "--set",
                                         "train.steps=1", env=clean_environment())
        self.both_named(code, out + err)
        self.assertEqual(code, 2, err)
        self.assertIn("pip install torch==", err)
        self.assertEqual(list(self.folder.glob("runs")), [])  # Nothing was written.
        code, out, err = self.run_to_end(programmes / "python", "-c", "import trireme",
                                         env=clean_environment())
        self.both_named(code, err)
        self.assertIn("ImportError", err)
        code, out, err = self.run_to_end("cmake", "-S", ROOT / "examples/own_loop", "-B",
                                         self.folder / "refused", "-G", "Ninja",
                                         f"-DCMAKE_PREFIX_PATH={prefix}",
                                         env=clean_environment())
        self.both_named(code, err)
        shutil.rmtree(other)

    def try_the_wheel(self):
        programmes, packages = self.install_wheel()
        prefix = self.must(programmes / "python", "-m", "trireme", "--cmake-prefix").strip()
        share = pathlib.Path(self.must(programmes / "python", "-m", "trireme", "--share").strip())
        self.assertEqual(pathlib.Path(prefix), packages / "trireme")
        self.assertEqual(dead_links(packages / "trireme"), [])
        self.train_a_step(programmes / "trireme", share, "run")
        own_loop = self.build(share / "examples/own_loop", "wheel",
                              f"-DCMAKE_PREFIX_PATH={prefix}", *NO_PACKAGES)
        out = self.must(programmes / "trireme", "launch", "--workers", "2", "--no-prefix", "--",
                        own_loop, share / "data/digits.csv.gz")
        self.assertLess(float(out.split()[-1]), 0.1, out)
        out = self.must(programmes / "python", "-W", "ignore", "-c",
                        "import trireme; print(trireme.join().size)")
        self.assertEqual(out.strip(), "1")
        self.compile_plain_c(programmes)
        for file in (packages / "trireme/bin").iterdir():  # Nothing of this machine is in it.
            said = subprocess.run(["readelf", "-d", file], capture_output=True, text=True,
                                  check=True).stdout
            self.assertIn("[$ORIGIN/../lib:$ORIGIN/../../torch/lib]", said)
        self.read_parquet(programmes / "trireme", packages / "trireme/lib/libtrireme_arrow.so")
        self.look_for_another_torch(programmes, packages, prefix)

    def compile_plain_c(self, programmes):
        """Runs the commands of docs/languages.md."""
        (commands,) = [code for _, _, code in blocks_of((ROOT / "docs/languages.md").read_text())
                       if "cc train.c" in code]
        shutil.copy(ROOT / "tests/system/capi_loop.c", self.folder / "train.c")
        self.must("bash", "-ec", commands,
                  env=clean_environment(PATH=f"{programmes}:{os.environ['PATH']}"))
        self.assertEqual(json.loads(self.must(self.folder / "train"))["ranks"], 1)

    def train_by_a_loop_of_libtorch(self, trireme, programme, digits):
        changed = (ROOT / "examples/libtorch_loop/main.cc").read_text().count("// Trireme:")
        self.assertEqual(changed, 5)
        for words in ([programme], [trireme, "launch", "--workers", "3", "--no-prefix", "--",
                                    programme]):
            out = self.must(*words, digits)
            self.assertGreater(float(out.split()[-1]), 0.95, out)

    def try_the_debian_package(self):
        file = self.make("deb")
        depends = self.must("dpkg-deb", "--field", file, "Depends")
        self.assertIn("libyaml-cpp0", depends)
        self.assertNotIn("mpi", depends)
        root = self.folder / "root"
        self.must("dpkg-deb", "-x", file, root)
        self.assertEqual(dead_links(root), [])
        trireme, share = root / "usr/bin/trireme", root / "usr/share/trireme"
        self.train_a_step(trireme, share, "run", TORCH_DIR=str(TORCH))
        self.read_parquet(trireme, root / "usr/lib/libtrireme_arrow.so")
        loop = self.build(share / "examples/libtorch_loop", "deb",
                          f"-DCMAKE_PREFIX_PATH={root / 'usr'}", f"-DTORCH_DIR={TORCH}")
        self.train_by_a_loop_of_libtorch(trireme, loop, share / "data/digits.csv.gz")
        out = self.must(sys.executable, "-c", "import trireme; print(trireme.join().size)",
                        env=clean_environment(
                            PYTHONPATH=str(root / "usr/lib/python3/dist-packages")))
        self.assertEqual(out.strip(), "1")

        words = [trireme, "train", "--quiet", "--set", "train.steps=1"]
        other = make_other_torch(self.folder / "other")
        code, out, err = self.run_to_end(*words, env=clean_environment(TORCH_DIR=str(other)))
        self.both_named(code, out + err)
        code, out, err = self.run_to_end(*words, env=clean_environment(TORCH_DIR=str(root)))
        self.assertEqual(code, 2, err)
        self.assertIn(f"TORCH_DIR is {root}, and there is no LibTorch", err)

    def test_an_example_builds_against_each_package_and_trains(self):
        # A core of the two would idle while one example is compiled.
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            for tried in [both.submit(self.try_the_wheel),
                          both.submit(self.try_the_debian_package)]:
                tried.result()


if __name__ == "__main__":
    unittest.main(verbosity=2)
