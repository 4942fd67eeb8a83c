"""Code of first tries that cannot compile: the message says what to write instead."""

import json
import pathlib
import re
import shlex
import unittest

from support import BIN, SystemTest

SOURCE = pathlib.Path(__file__).with_name("first_tries.cc")


class FirstTries(SystemTest):
    def test_the_compiler_says_what_to_write(self):
        commands = json.loads((BIN.parent / "compile_commands.json").read_text())
        words = next(shlex.split(each["command"]) for each in commands
                     if "written_loops" in each["file"] or "written_loops" in each["command"])
        flags = [word for i, word in enumerate(words)
                 if word.startswith(("-I", "-std=", "-D")) or word == "-idirafter"
                 or words[i - 1] == "-idirafter"]
        compiler = next(word for word in words if word.endswith("c++"))
        code, _, err = self.run_to_end(compiler, "-fsyntax-only", *flags, SOURCE, timeout=200)
        self.assertNotEqual(code, 0)
        for part in ("std::make_shared<Net>()", "trireme::Distributed<torch::optim::SGD> takes",
                     "trireme::make_data_loader(world, dataset, batch)",
                     "Distributed is the optimizer, and makes it", "not a pointer to it",
                     "Distributed takes the World first",
                     "make_data_loader takes the World first",
                     "a DistributedSampler would share them a second time",
                     "Distributed takes the type of an optimizer: trireme::Distributed<",
                     "DataParallel takes no torch::jit::script::Module",
                     "and the Trainer no torch::jit::script::Module",
                     "Loader takes no sampler of torch::data", "from_dataset takes no sampler"):
            self.assertIn(part, err)
        # The sentence stands alone.
        self.assertEqual(re.findall(r".*error: .*(?:seven|SGDOptions>).*", err), [])


if __name__ == "__main__":
    unittest.main()
