"""Trireme as a part of a project of somebody's: by add_subdirectory, by FetchContent from a folder
and from a repository, and by find_package in a plugin. The project keeps its own ways."""

import importlib.util
import json
import pathlib
import unittest

from support import BIN, ROOT, SystemTest, dead_links, environment, links_of_documents

TORCH = pathlib.Path(importlib.util.find_spec("torch").origin).parent

# A project in C++17. Only the target that links Trireme is compiled as C++20.
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(theirs LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
{how}
add_library(theirs17 STATIC theirs17.cc)
add_executable(theirs theirs.cc)
target_link_libraries(theirs PRIVATE theirs17 Trireme::base)
add_executable(with_torch EXCLUDE_FROM_ALL with_torch.cc)
target_link_libraries(with_torch PRIVATE theirs17 Trireme::comm)
enable_testing()
add_test(NAME theirs COMMAND theirs)
"""
THEIRS17 = """
static_assert(__cplusplus < 202002L, "C++17");
const char* word_of_theirs() { return "theirs"; }
"""
# The unused variable and the shadowed one are warnings that the project did not ask for.
THEIRS = """
#include <trireme/base/error.h>
#include <trireme/base/version.h>
#include <iostream>
static_assert(__cplusplus >= 202002L, "C++20");
const char* word_of_theirs();
int main(int count, char**) {
  int unused;
  { int count = 1; (void)count; }
  try {
    throw trireme::Error(trireme::ErrorCode::io, "theirs", word_of_theirs());
  } catch (const trireme::Error& error) {
    std::cout << trireme::version() << ' ' << error.what() << '\\n';
  }
  return count - 1;
}
"""

WITH_TORCH = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <trireme/comm/group.h>
#include <trireme/comm/world.h>
#include <iostream>
const char* word_of_theirs();
int main() {
  auto world = trireme::World::join();
  at::Tensor numbers = at::ones({3});
  world.make_groups()[0]->all_reduce(numbers);
  std::cout << numbers.sum().item<float>() << ' ' << word_of_theirs() << '\\n';
  world.leave();
}
"""

PLUGIN_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(plugins LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
find_package(Trireme REQUIRED)
add_library(theirs17 STATIC theirs17.cc)
add_executable(with_torch with_torch.cc)
target_link_libraries(with_torch PRIVATE theirs17 Trireme::comm)
foreach(name one two)
  add_library(${name} MODULE plugin.cc)
  set_target_properties(${name} PROPERTIES PREFIX "")
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PRIVATE Trireme::plan)
endforeach()
add_library(open MODULE plugin.cc)
set_target_properties(open PROPERTIES PREFIX "")
target_link_libraries(open PRIVATE Trireme::plan)
add_executable(host host.cc)
target_link_libraries(host PRIVATE Trireme::base ${CMAKE_DL_LIBS})
"""
PLUGIN = """
#include <trireme/base/error.h>
#include <trireme/plan/data_plan.h>
#include <trireme/base/units.h>
struct Worse : trireme::Error {
  using Error::Error;
};
extern "C" [[gnu::visibility("default")]] void complain() {
  trireme::parse_bytes("a plugin's nonsense");
}
extern "C" [[gnu::visibility("default")]] void complain_more() {
  throw Worse(trireme::ErrorCode::io, "plugin", "worse");
}
"""
# An Error that a plugin throws is caught as an Error by its host, whose code is another copy. So is
# one of a class that only the plugin has.
HOST = """
#include <dlfcn.h>
#include <trireme/base/error.h>
#include <iostream>
int main(int, char** words) {
  for (int number = 1; number <= 3; ++number) {
    void* plugin = dlopen(words[number], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return std::cerr << dlerror() << '\\n', 3;
    for (const char* name : {"complain", "complain_more"}) {
      try {
        reinterpret_cast<void (*)()>(dlsym(plugin, name))();
      } catch (const trireme::Error& error) {
        std::cout << to_string(error.code()) << ": " << error.what() << '\\n';
      }
    }
  }
}
"""


class Subproject(SystemTest):
    def write(self, name, **files):
        folder = self.folder / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file.replace("__", ".")).write_text(text)
        return folder

    def configure(self, name, how):
        source = self.write(name, CMakeLists__txt=PROJECT.format(how=how), theirs17__cc=THEIRS17,
                            theirs__cc=THEIRS, with_torch__cc=WITH_TORCH)
        build = self.folder / f"build-{name}"
        self.must("cmake", "-S", source, "-B", build, "-G", "Ninja",
                  "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                  f"-DTORCH_DIR={TORCH}")
        return source, build

    def compile(self, build, *sources):
        """Compiles sources of the project alone: the rooms of Trireme that they link are compiled
        in Trireme's own build, and once more in the test of a subdirectory."""
        objects = [f"CMakeFiles/{source}.dir/{source}.cc.o" for source in sources]
        self.must("ninja", "-C", build, *objects)

    def test_a_subdirectory_leaves_the_project_its_ways(self):
        source, build = self.configure("sub", f"add_subdirectory({ROOT} trireme)")
        self.must("cmake", "--build", build, "--target", "theirs")
        self.assertIn(" theirs", self.must(build / "theirs"))
        self.compile(build, "with_torch")
        commands = {pathlib.Path(entry["file"]): entry["command"] for entry in
                    json.loads((build / "compile_commands.json").read_text())}
        own = commands[source / "theirs.cc"]
        for flag in ("-Wall", "-Wshadow", "-Werror", "-fpch-preprocess", "-O1", "-O3"):
            self.assertNotIn(flag, own)
        self.assertIn("-O2", own)
        self.assertNotIn("std=", own.replace("-std=gnu++20", ""))
        self.assertNotIn("++20", commands[source / "theirs17.cc"])
        # The project's tests, installed files and `all` are its own.
        self.assertIn("Total Tests: 1", self.must("ctest", "-N", cwd=build))
        prefix = self.folder / "prefix"
        self.must("cmake", "--install", build, "--prefix", prefix)
        self.assertFalse(prefix.exists())
        plan = self.must("ninja", "-C", build, "-t", "commands", "all")
        self.assertIn("libtrireme_base.a", plan)
        for unused in ("libtrireme_comm.a", "trireme-worker", "test_base"):
            self.assertNotIn(unused, plan)

    def test_fetch_content_takes_a_folder_or_a_repository(self):
        # The sources as they are now, in a repository of their own.
        sources, repository = self.folder / "sources", self.folder / "sources.git"
        git = ["git", f"--git-dir={repository}", f"--work-tree={ROOT}", "-c", "user.name=test",
               "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
        self.must("git", "init", "-q", "--bare", repository)
        for words in (["add", "-A", "."], ["commit", "-q", "-m", "The sources"],
                      ["branch", "-f", "now"]):
            self.must(*git, *words, cwd=ROOT)
        self.must("git", "clone", "-q", "--branch", "now", repository, sources)
        for name, place in (("folder", f"SOURCE_DIR {sources}"),
                            ("repository", f"GIT_REPOSITORY file://{repository} GIT_TAG now")):
            with self.subTest(name):
                _, build = self.configure(name, "include(FetchContent)\n"
                                          f"FetchContent_Declare(Trireme {place})\n"
                                          "FetchContent_MakeAvailable(Trireme)")
                plan = self.must("ninja", "-C", build, "-t", "commands", "theirs")
                self.assertIn("libtrireme_base.a", plan)
                self.assertNotIn("libtrireme_comm.a", plan)
                self.compile(build, "theirs", "theirs17")

    def test_an_installed_tree_serves_plugins_and_hides_in_them(self):
        prefix = self.folder / "prefix"
        self.must("cmake", "--install", BIN.parent, "--prefix", prefix)
        self.assertEqual(dead_links(prefix), [])
        targets = [target for _, target in links_of_documents(prefix)]
        for place in ("share/doc/trireme/docs", "share/trireme/examples", "include/trireme"):
            self.assertTrue(any(target.is_relative_to(prefix / place) for target in targets), place)
        source = self.write("plugins", CMakeLists__txt=PLUGIN_PROJECT, plugin__cc=PLUGIN,
                            host__cc=HOST, theirs17__cc=THEIRS17, with_torch__cc=WITH_TORCH)
        build = self.folder / "build"
        self.must("cmake", "-S", source, "-B", build, "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={prefix}")
        self.must("cmake", "--build", build)
        self.assertEqual(self.run_to_end(build / "with_torch"), (0, "3 theirs\n", ""))
        # Kinds of nm's: T is code of a source or an archive; the others come from headers.
        shown = {name: [(line.split()[-2], line.split()[-1]) for line in self.must(
                     "nm", "-D", "--defined-only", build / f"{name}.so").splitlines()]
                 for name in ("one", "two", "open")}
        for name, symbols in shown.items():
            self.assertIn(("T", "complain"), symbols)
            ours = {kind for kind, symbol in symbols if "7trireme" in symbol}
            self.assertLessEqual(ours, set("WVu") if name == "open" else set(), symbols)
        out = self.must(build / "host", *(build / f"{name}.so" for name in shown))
        self.assertEqual(out.count("invalid_argument: "), 3, out)
        self.assertEqual(out.count("io: [plugin] worse"), 3, out)

        # The packages that a machine lacks are named, all of them.
        code, _, err = self.run_to_end("cmake", "-S", source, "-B", self.folder / "lacking", "-G",
                                       "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
                                       "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON",
                                       "-DCMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON")
        self.assertNotEqual(code, 0)
        self.assertIn("apt-get install libfmt-dev libyaml-cpp-dev", " ".join(err.split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
