"""scripts/check_rooms.py notices each kind of breach, in a source tree made for the purpose."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "check_rooms.py"
ROOMS = ("trireme_room(base)\ntrireme_room(plan DEPENDS base)\n"
         "trireme_room(data TORCH PLAIN table.cc kinds/*.cc *_plain.cc DEPENDS plan)\n")


class CheckRooms(unittest.TestCase):
    def check(self, files):
        """Returns exit code and output for a tree of `files` (path below trireme/ -> text)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(ROOMS)
            for path, text in files.items():
                file = root / "trireme" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True,
                                  timeout=30)
            return done.returncode, done.stdout

    def assert_breach(self, files, words):
        code, output = self.check(files)
        self.assertEqual(code, 1, output)
        self.assertIn(words, output)

    def test_an_include_of_a_room_above_is_fine(self):
        code, output = self.check({"base/error.h": "",
                                   "plan/mesh.h": "#include <trireme/base/error.h>\n"})
        self.assertEqual(code, 0, output)

    def test_an_include_of_a_room_below_is_a_breach(self):
        self.assert_breach({"base/error.h": "\n#include <trireme/plan/mesh.h>\n",
                            "plan/mesh.h": ""},
                           "trireme/base/error.h:2: room 'base' includes trireme/plan/mesh.h")

    def test_a_room_without_a_place_in_the_order_is_a_breach(self):
        self.assert_breach({"cellar/wine.h": ""}, "room 'cellar' has no place in the order")

    def test_the_umbrella_header_may_include_every_room_but_no_room_may_include_it(self):
        code, output = self.check({"trireme.h": "#include <trireme/data/source.h>\n",
                                   "data/source.h": ""})
        self.assertEqual(code, 0, output)
        self.assert_breach({"trireme.h": "", "data/source.h": "#include <trireme/trireme.h>\n"},
                           "trireme/data/source.h:1")

    def test_torch_in_a_light_room_is_a_breach(self):
        self.assert_breach({"plan/mesh.cc": "#include <ATen/core/Tensor.h>\n"},
                           "must stay without torch")

    def test_torch_reached_through_a_header_by_a_plain_file_is_a_breach(self):
        self.assert_breach({"data/source.h": "#include <c10/core/ScalarType.h>\n",
                            "data/table.h": "#include <trireme/data/source.h>\n",
                            "data/table.cc": "#include <trireme/data/table.h>\n"},
                           "trireme/data/table.cc: must stay without torch, but includes "
                           "trireme/data/table.h -> trireme/data/source.h -> "
                           "c10/core/ScalarType.h")

    def test_torch_in_a_file_that_a_plain_pattern_matches_is_a_breach(self):
        self.assert_breach({"data/pixels_plain.cc": "#include <torch/nn.h>\n"},
                           "trireme/data/pixels_plain.cc: must stay without torch")

    def test_a_pattern_names_plain_files(self):
        self.assert_breach({"data/kinds/text.cc": "#include <c10/core/ScalarType.h>\n"},
                           "trireme/data/kinds/text.cc: must stay without torch")

    def test_torch_in_the_light_programme_is_a_breach_and_in_the_worker_it_is_not(self):
        self.assert_breach({"cli/main.cc": "#include <torch/nn.h>\n"},
                           "trireme/cli/main.cc: must stay without torch")
        code, output = self.check({"cli/worker/main.cc": "#include <torch/nn.h>\n"})
        self.assertEqual(code, 0, output)

    def test_a_header_with_all_of_torch_is_a_breach(self):
        self.assert_breach({"data/source.h": "#include <torch/torch.h>\n"},
                           "a header includes torch/torch.h")
        code, output = self.check({"data/source.cc": "#include <torch/torch.h>\n"})
        self.assertEqual(code, 0, output)

    def test_an_include_of_a_header_that_does_not_exist_is_a_breach(self):
        self.assert_breach({"plan/mesh.cc": "#include <trireme/base/gone.h>\n"},
                           "trireme/base/gone.h does not exist")


if __name__ == "__main__":
    unittest.main()
