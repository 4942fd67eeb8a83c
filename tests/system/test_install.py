"""Trireme is installed, and projects of users are built against it from outside."""

import concurrent.futures
import json
import re
import shlex
import sys
import unittest

from support import BIN, ROOT, SystemTest, environment

DIGITS_FILE = str(ROOT / "data" / "digits.csv.gz")


class Install(SystemTest):
    def configure(self, example, prefix):
        build = self.folder / f"build-{example}"
        # The packages of test_packages.py serve builds that are optimized.
        self.must("cmake", "-S", ROOT / "examples" / example, "-B", build, "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release",
                  "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        return build

    def build(self, example, prefix):
        build = self.configure(example, prefix)
        self.must("cmake", "--build", build, timeout=300)
        return build / example

    def options_of(self, example, source):
        """The compiler and its options for a source of an example that is configured."""
        commands = json.loads(
            (self.folder / f"build-{example}/compile_commands.json").read_text())
        (command,) = [one["command"] for one in commands if one["file"].endswith(f"/{source}")]
        return [word for word in shlex.split(command) if not word.endswith((".cc", ".o"))]

    def compare_examples_that_are_not_built(self, prefix):
        """They are compiled in Trireme's own build. Here they get the options of one that is
        built."""
        for example in ("transfer_learning", "from_libtorch"):
            self.configure(example, prefix)
        options = self.options_of("own_loop", "main.cc")
        self.assertEqual(self.options_of("transfer_learning", "main.cc"), options)
        sources = [path.name for path in (ROOT / "examples/from_libtorch").glob("*_after.cc")]
        self.assertGreaterEqual(len(sources), 6)
        for source in sources:
            self.assertEqual(self.options_of("from_libtorch", source), options)

    def train_by_a_strategy_of_ones_own(self, trireme, own_strategy):
        source = ROOT / "examples/own_strategy/main.cc"
        self.assertLessEqual(len(source.read_text().splitlines()), 80)

        def trained(folder, epochs):
            """Returns the step from which the run resumed, the hash of the parameters, and the
            accuracy."""
            code, out, err = self.run_to_end(trireme, "launch", "--workers", "2", "--no-prefix",
                                             "--", own_strategy, source.parent / "vote.yaml",
                                             f"data.path={DIGITS_FILE}", f"checkpoint.dir={folder}",
                                             f"train.epochs={epochs}")
            self.assertEqual(code, 0, err)
            said = re.search(r"resumed from step (\d+), parameters ([0-9a-f]{64}), "
                             r"accuracy ([0-9.]+)", out)
            self.assertIsNotNone(said, out)
            return int(said[1]), said[2], float(said[3])

        interrupted = self.folder / "interrupted"
        step, after_two, _ = trained(interrupted, 2)
        self.assertEqual(step, 0)
        step, resumed, accuracy = trained(interrupted, 4)
        self.assertGreater(step, 0)
        self.assertGreater(accuracy, 0.85)
        step, undisturbed, _ = trained(self.folder / "undisturbed", 4)
        self.assertEqual(step, 0)
        self.assertEqual(resumed, undisturbed)
        self.assertNotEqual(resumed, after_two)
        code, out, err = self.run_to_end(trireme, "ckpt", "verify", interrupted)
        self.assertEqual(code, 0, out + err)
        self.assertIn("whole", out)
        # Names that the programme has registered are choices; others are not.
        code, _, err = self.run_to_end(own_strategy, source.parent / "vote.yaml",
                                       "strategy.name=minority_vote")
        self.assertEqual(code, 2, err)
        self.assertIn("try: strategy.name=majority_vote", err)

    def train_by_a_model_library(self, trireme, library):
        code, out, err = self.run_to_end(
            trireme, "train", ROOT / "examples/own_model/waves.yaml", "--set",
            f"model.library={library}", "--set", "train.epochs=1", "--set",
            f"run.dir={self.folder}/waves")
        self.assertEqual(code, 0, out + err)
        self.assertIn("rmse", out)

    def run_a_programme_as_worker(self, prefix):
        """Links Trireme::worker, with whose sources no package of the machine is needed."""
        project = self.folder / "stand_in"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(stand_in LANGUAGES CXX)\n"
            "find_package(Trireme REQUIRED)\nadd_executable(stand_in main.cc)\n"
            "target_link_libraries(stand_in PRIVATE Trireme::worker)\n")
        (project / "main.cc").write_text(
            "#include <trireme/run/as_worker.h>\n"
            "int main(int argc, char** argv) {\n"
            "  trireme::run_as_worker(argc, argv);\n  return 7;\n}\n")
        self.assertNotIn("CLI11", "".join(file.read_text() for file in
                                          prefix.glob("lib/cmake/Trireme/*.cmake")))
        self.must("cmake", "-S", project, "-B", project / "build", "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={prefix}")
        self.must("cmake", "--build", project / "build", timeout=240)
        programme = project / "build" / "stand_in"
        self.assertEqual(self.run_to_end(programme, "doctor")[0], 7)
        code, out, err = self.run_to_end(programme, "--in-place-of-trireme-worker", "doctor")
        self.assertEqual(code, 0, out + err)
        self.assertIn("launcher", out)

    def test_examples_build_as_outside_projects_and_train(self):
        prefix = self.folder / "prefix"
        code, out, err = self.run_to_end("cmake", "--install", BIN.parent, "--prefix", prefix,
                                         timeout=120)
        self.assertEqual(code, 0, err)
        trireme = prefix / "bin" / "trireme"

        # A core of the two would idle while one example is compiled.
        with concurrent.futures.ThreadPoolExecutor(2) as builds:
            own_loop, trainer, own_strategy, own_model = builds.map(
                lambda example: self.build(example, prefix),
                ("own_loop", "trainer", "own_strategy", "own_model"))
        self.compare_examples_that_are_not_built(prefix)
        self.train_by_a_model_library(trireme, own_model.with_suffix(".so"))
        self.run_a_programme_as_worker(prefix)

        self.assertLessEqual(len((ROOT / "examples/own_loop/main.cc").read_text().splitlines()),
                             60)
        last_losses = []
        for words in ([own_loop, DIGITS_FILE], [trireme, "launch", "--workers", "2", "--no-prefix",
                                                "--", own_loop, DIGITS_FILE]):
            code, out, err = self.run_to_end(*words)
            self.assertEqual(code, 0, err)
            last_losses.append(float(out.split()[-1]))
        self.assertLess(last_losses[0], 0.1)
        self.assertAlmostEqual(last_losses[0], last_losses[1], delta=0.02 * last_losses[0] + 1e-3)
        code, out, err = self.run_to_end(sys.executable, "-m", "torch.distributed.run",
                                         "--standalone", "--nproc_per_node", 2, "--no_python",
                                         own_loop,
                                         DIGITS_FILE, env=environment(OMP_NUM_THREADS="1"))
        self.assertEqual(code, 0, err)

        for words in ([trainer, DIGITS_FILE, "one_device"], [trainer, DIGITS_FILE, "mirrored"],
                      [trireme, "launch", "--workers", "2", "--no-prefix", "--", trainer,
                       DIGITS_FILE, "multi_worker"]):
            code, out, err = self.run_to_end(*words)
            self.assertEqual(code, 0, err)
            self.assertGreater(float(out.split()[-1]), 0.9)

        self.train_by_a_strategy_of_ones_own(trireme, own_strategy)

        # The installed programmes find the data that ships without the source tree.
        code, out, err = self.run_to_end(trireme, "train", "--quiet", "--set", "train.steps=2")
        self.assertEqual(code, 0, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
