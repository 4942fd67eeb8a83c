"""Jobs of tests whose state is in files."""

from support import SystemTest

# 12.7 million parameters: 51 MB, and three times as much for gradients and Adam's state.
LARGE = ("--set", "model.name=mlp", "--set", "model.hidden=[2048,2048,2048,2048]", "--set",
         "train.evaluate_every=0")


class OffloadTest(SystemTest):
    def offload(self, what):
        return ("--set", f"memory.offload={what}", "--set", f"memory.swap_dir={self.files()}")

    def files(self):
        folder = self.folder / "files"
        folder.mkdir(exist_ok=True)
        return folder

    def assert_same_bits_and_no_files(self, places, *words):
        for place, of_place in places.items():
            plain = self.train(*words, *of_place, name=f"{place} plain")
            for what in ("optimizer", "parameters"):
                with self.subTest(place, what=what):
                    report = self.train(*words, *of_place, *self.offload(what),
                                        name=f"{place} {what}")
                    self.assertEqual(report["loss_history"], plain["loss_history"])
                    self.assertEqual(report["parameters_sha256"], plain["parameters_sha256"])
        self.assertEqual(list(self.files().iterdir()), [])

    def assert_less_in_memory(self, places, *words):
        for place, of_place in places.items():
            with self.subTest(place):
                plain = self.train(*LARGE, *words, *of_place, name=f"{place} plain")
                files = self.train(*LARGE, *words, *of_place, *self.offload("parameters"),
                                   name=f"{place} files")
                self.assertEqual(files["loss_history"], plain["loss_history"])
                # The checkpoint at the end reads all of the files.
                self.assertLess(files["peak_pss_bytes"], plain["peak_pss_bytes"] - 80e6)
