"""The parts of bench/run.py about input: the bare loop makes the numbers of the data, and the
tables say what was measured."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, SystemTest, wait_until

sys.path.insert(0, str(ROOT / "bench"))
import input_memory  # noqa: E402
import input_scale  # noqa: E402
from programmes import compiled  # noqa: E402

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def mean_of(pixels):
    """The mean of the normalised pixels; each channel is a list of bytes."""
    rows = [[(byte / 255 - mean) / deviation for byte in channel]
            for channel, mean, deviation in zip(pixels, MEAN, DEVIATION, strict=True)]
    numbers = [number for row in rows for number in row]
    return sum(numbers) / len(numbers)


class BenchInput(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder_of_programme = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder_of_programme.cleanup)
        cls.programme = compiled("input_bound", pathlib.Path(cls.folder_of_programme.name),
                                 "-ljpeg")

    def bare_loop(self, kind, threads):
        words = [self.programme, kind, self.folder, "0.5", "4", threads]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              timeout=60, check=True)
        figures = json.loads(done.stdout)
        self.assertGreater(figures["samples_per_second"], 0)
        return figures["mean"]

    def test_the_bare_loop_normalises_bytes(self):
        numbers = random.Random(1)
        images = [numbers.randbytes(3072) for _ in range(9)]
        (self.folder / "data_batch_1.bin").write_bytes(b"".join(b"\x07" + each
                                                                for each in images))
        channels = [b"".join(each[1024 * c:1024 * (c + 1)] for each in images) for c in range(3)]
        self.assertAlmostEqual(self.bare_loop("memory", 1), mean_of(channels), delta=1e-5)

    def test_the_bare_loop_decodes_files(self):
        from PIL import Image

        channels = [b"", b"", b""]
        for number in range(8):
            place = self.folder / str(number % 2)
            place.mkdir(exist_ok=True)
            colours = bytes((x * 5 + y * 3 + 40 * c + number) % 256
                            for y in range(32) for x in range(32) for c in range(3))
            Image.frombytes("RGB", (32, 32), colours).save(place / f"{number}.jpg", quality=95)
            with Image.open(place / f"{number}.jpg") as image:
                decoded = image.convert("RGB").tobytes()
            channels = [before + decoded[c::3] for c, before in enumerate(channels)]
        # Pillow has a libjpeg of its own.
        for kind, threads in (("files", 1), ("files", 2), ("bytes", 2)):
            self.assertAlmostEqual(self.bare_loop(kind, threads), mean_of(channels), delta=0.01)

    def test_rows_of_an_order_compare_the_whole_epoch(self):
        index, seek = input_scale.rows_of_figures([{"index_s": 50e-9, "seek_s": 1e-3}],
                                                  [{"table_s": 10.0}])
        self.assertEqual(index.cells()[3:5], ("0.05", "0.1"))
        self.assertEqual(index.cells()[6], "2.00")
        self.assertEqual(seek.cells()[3:5], ("1", "100000"))

    def test_rows_of_memory_say_how_often_the_data_counts(self):
        row = input_memory.row("bytes", "eight tables", 100e6, [800e6, 810e6, 790e6])
        self.assertEqual(row, ("bytes", "eight tables", "100", "800", "8.00", "7.90 to 8.10"))

    def test_memory_that_grows_has_not_settled(self):
        self.assertFalse(input_memory.is_settled([100] * 8))
        self.assertTrue(input_memory.is_settled([10, 50, 90, 95, 98, 100, 100, 100, 100]))
        self.assertFalse(input_memory.is_settled([10, 20, 30, 40, 50, 60, 70, 80, 90]))

    def test_the_memory_of_a_job_is_that_of_all_its_processes(self):
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
        job = self.start(sys.executable, "-c", code, "import time; time.sleep(60)")

        def both_count():
            shares = [input_memory.share_of(pid) for pid in input_memory.processes_of([job.pid])]
            return len(shares) == 2 and min(shares) > 1e6

        wait_until(both_count, 30, "a child whose memory counts")


if __name__ == "__main__":
    unittest.main()
