"""Which LibTorch a build takes, and what it refuses. The folders of LibTorch are made here: a few
small libraries and the header with the version."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import zipfile

from support import ROOT, SystemTest, environment

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(Fake LANGUAGES {language})
set(found TAKEN)
include({root}/cmake/FindLibTorch.cmake)
"""
PROGRAMME = """add_executable(programme main.cc)
target_link_libraries(programme PRIVATE Trireme::torch)
target_link_options(programme BEFORE PRIVATE -Wl,--as-needed)
"""
# A function of the C++ library, as LibTorch 2.11 exports it too. This one says 99.
REMOVE_ALL = "_ZNSt10filesystem10remove_allERKNS_7__cxx114pathE"
MAIN = """#include <filesystem>
extern "C" int cpu();
int main() { return std::filesystem::remove_all("there is none") == 99 ? 99 : cpu(); }
"""
HEADER = "include/torch/headeronly/version.h"


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def write_header(folder, version):
    names = ("MAJOR", "MINOR", "PATCH")
    write(folder / HEADER, "".join(f"#define TORCH_VERSION_{name} {number}\n"
                                   for name, number in zip(names, version.split("."))))


def clean_environment(**extra):
    env = environment(**extra)
    for name in ("TORCH_DIR", "TRIREME_TORCH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
                 "CMAKE_PREFIX_PATH"):
        if name not in extra:
            env.pop(name, None)
    return env


class LibTorch(SystemTest):
    def library(self, folder, name, function, *needed):
        source = self.folder / f"{name}.cc"
        source.write_text(f"extern \"C\" int {function}() {{ return 7; }}\n"
                          f"extern \"C\" long {function}_all() __asm__(\"{REMOVE_ALL}\");\n"
                          f"long {function}_all() {{ return 99; }}\n")
        file = folder / f"lib{name}.so"
        subprocess.run(["c++", "-shared", "-fPIC", "-Wl,--no-as-needed,--disable-new-dtags,-rpath,"
                        "$ORIGIN/../../nvidia:$ORIGIN", f"-Wl,-soname,{file.name}", "-o", file,
                        source, *needed], check=True)
        return file

    def make_torch(self, name, version="2.12.1"):
        """A LibTorch for CUDA, with a library of the package nvidia that lies beside it."""
        folder = self.folder / name / "torch"
        write_header(folder, version)
        (folder / "lib").mkdir()
        (folder.parent / "nvidia").mkdir()
        runtime = self.library(folder.parent / "nvidia", "fake_cudart", "runtime")
        c10 = self.library(folder / "lib", "c10", "c10")
        cpu = self.library(folder / "lib", "torch_cpu", "cpu", runtime)
        cuda = self.library(folder / "lib", "torch_cuda", "cuda", runtime)
        self.library(folder / "lib", "torch", "torch", cpu, cuda)
        self.assertTrue(c10.exists())
        return folder

    def configure(self, *words, language="NONE", rest="", **variables):
        """Runs CMake on a project that has the finder; returns its exit code and what it says, in
        one line."""
        source = self.folder / "project"
        write(source / "CMakeLists.txt", PROJECT.format(language=language, root=ROOT) + rest)
        build = self.folder / "build"
        shutil.rmtree(build, ignore_errors=True)
        code, out, err = self.run_to_end("cmake", "-S", source, "-B", build, "-G", "Ninja", *words,
                                         env=clean_environment(**variables))
        return code, " ".join((out + err).split())

    def test_a_programme_loads_the_devices_of_a_libtorch_for_cuda(self):
        torch = self.make_torch("environment")
        write(self.folder / "project/main.cc", MAIN)
        code, said = self.configure(language="CXX", rest=PROGRAMME, TORCH_DIR=str(torch))
        self.assertEqual(code, 0, said)
        self.assertIn(f"LibTorch 2.12.1 (CUDA) in {torch}", said)
        code, out, err = self.run_to_end("cmake", "--build", self.folder / "build")
        self.assertEqual(code, 0, out + err)
        code, out, _ = self.run_to_end("ldd", self.folder / "build/programme")
        self.assertIn("libtorch_cuda.so =>", out)  # Though the programme calls nothing of it.
        self.assertEqual(self.run_to_end(self.folder / "build/programme")[0], 7)

        # Another version in the same folder configures the project anew, in any environment.
        write_header(torch, "2.13.0")
        code, out, err = self.run_to_end("cmake", "--build", self.folder / "build")
        self.assertIn("LibTorch 2.13.0 (CUDA)", out + err)

        # A package that pip should have installed with it is missing.
        shutil.rmtree(torch.parent / "nvidia")
        code, said = self.configure(TORCH_DIR=str(torch))
        self.assertEqual(code, 1, said)
        self.assertIn(f"LibTorch 2.13.0 in {torch} is a build for CUDA, and libraries that it "
                      "needs were not found: libfake_cudart.so.", said)
        self.assertIn("pip install torch==2.13.0 does", said)

    def test_torch_dir_alone_counts_and_the_message_says_what_it_lacks(self):
        other = self.make_torch("environment/lib/python3.11/site-packages")
        place = self.folder / "environment"
        for words, variables in (([], {"TORCH_DIR": str(place)}),
                                 ([f"-DTORCH_DIR={place}"], {})):
            code, said = self.configure(f"-DCMAKE_PREFIX_PATH={other}", *words, **variables)
            self.assertEqual(code, 1, said)
            self.assertIn(f"TORCH_DIR is {place}, and there is no LibTorch (no {HEADER})", said)
            self.assertIn(f"try: TORCH_DIR={other}", said)
        for inside in (other, other / "share/cmake", other / "share/cmake/Torch"):
            inside.mkdir(parents=True, exist_ok=True)
            code, said = self.configure(TORCH_DIR=str(inside))
            self.assertEqual(code, 0, said)
            self.assertIn(f"in {other} ", said)
        write_header(other, "2.10.2")
        code, said = self.configure(TORCH_DIR=str(other))
        self.assertEqual(code, 1, said)
        self.assertIn(f"LibTorch 2.10.2 in {other} is too old: 2.11 or newer is needed", said)
        write_header(other, "2.12.1")
        (other / "lib/libtorch_cpu.so").unlink()
        code, said = self.configure(TORCH_DIR=str(other))
        self.assertEqual(code, 1, said)
        self.assertIn("has no library torch_cpu in lib/", said)

    def copy_of_the_tree(self, name):
        """The parts of a source tree that look for LibTorch, without .venv."""
        tree = self.folder / name
        for file in ("scripts/setup", "cmake/FindLibTorch.cmake"):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tree / file)
        return tree

    def set_up(self, tree, code=0, **variables):
        actual, _, err = self.run_to_end(tree / "scripts/setup", cwd=self.folder, env=(
            clean_environment(TRIREME_SKIP_PACKAGES="1", **variables)))
        self.assertEqual(actual, code, err)
        return " ".join(err.split())

    def make_wheel_of_torch(self, folder, version):
        folder.mkdir()
        info = f"torch-{version}.dist-info"
        made = self.folder / "made"
        write_header(made, version)
        with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            wheel.write(made / HEADER, f"torch/{HEADER}")
            wheel.writestr("torch/lib/libtorch.so", "")
            wheel.writestr(f"{info}/METADATA",
                           f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                                            "Root-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    def test_set_up_takes_the_torch_of_the_active_environment_or_a_version_by_name(self):
        folder = pathlib.Path(subprocess.run(
            ["python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib', 'venv', "
             "{'base': '/place'}))"], capture_output=True, text=True, check=True).stdout.strip())
        active = self.folder / "active"
        torch = self.make_torch("active" / folder.relative_to("/place"))
        tree = self.copy_of_the_tree("tree")
        self.assertIn("must be a version of torch from 2.11.0", self.set_up(
            tree, code=2, TRIREME_TORCH="2.10.0"))
        said = self.set_up(tree, VIRTUAL_ENV=str(active))
        self.assertIn(f"using LibTorch 2.12.1 of the active environment: {torch}", said)
        link = tree / ".venv" / folder.relative_to("/place") / "torch"
        self.assertEqual(os.readlink(link), str(torch))
        # It stays, also where no environment is active.
        self.assertEqual(self.set_up(tree), "")
        self.assertEqual(os.readlink(link), str(torch))

        # Another one takes the place of the link, and the environment keeps its own.
        wheels = self.folder / "wheels"
        self.make_wheel_of_torch(wheels, "2.11.0")
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONSTRAINT": ""}
        said = self.set_up(tree, TRIREME_TORCH="2.11.0", VIRTUAL_ENV=str(active), **pip)
        self.assertIn("installing LibTorch (torch 2.11.0)", said)
        self.assertFalse(link.is_symlink())
        self.assertIn("MINOR 11", (link / HEADER).read_text())
        self.assertIn("MINOR 12", (torch / HEADER).read_text())
        self.assertEqual(self.set_up(tree, VIRTUAL_ENV=str(active), **pip), "")

    def test_without_set_up_cmake_takes_the_active_environment(self):
        torch = self.make_torch("active/lib/python3.11/site-packages")
        code, said = self.configure(VIRTUAL_ENV=str(self.folder / "active"))
        self.assertEqual(code, 0, said)
        # The .venv of this source tree comes first.
        self.assertNotIn(str(torch), said)
        tree = self.copy_of_the_tree("tree")
        write(tree / "CMakeLists.txt", PROJECT.format(language="NONE", root=tree))
        words = ["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja"]
        code, out, err = self.run_to_end(*words, env=clean_environment(
            VIRTUAL_ENV=str(self.folder / "active")))
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"LibTorch 2.12.1 (CUDA) in {torch}", out)
        # A later run stays with it, where no environment is active.
        code, out, err = self.run_to_end(*words, env=clean_environment())
        self.assertIn(f"LibTorch 2.12.1 (CUDA) in {torch}", out)
        code, out, err = self.run_to_end(*words, "-DTORCH_DIR=", env=clean_environment())
        self.assertEqual(code, 1, out + err)
        self.assertIn("LibTorch was not found. Run scripts/setup, or set TORCH_DIR",
                      " ".join(err.split()))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
