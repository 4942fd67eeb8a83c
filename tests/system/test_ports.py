"""LibTorch programmes before and after their few changed lines (examples/from_libtorch): they
compute the same bits alone, and the same training in several processes."""

import difflib
import gzip
import re
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

# Kernels of LibTorch and MKL may round by the size of the batch and by the processor. After some
# steps such a rounding decides which pixel is the largest of a pool, which makes a difference of
# 1e-4. So the bound of the later steps is wider; a wrong weight of a rank would show in the second
# one.
SAME_KERNELS = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                "MKL_ENABLE_INSTRUCTIONS": "AVX2", "MKL_CBWR": "AVX2,STRICT"}
STRICT_STEPS = 30

PROGRAMME = BIN / "ports"
EXAMPLES = ROOT / "examples" / "from_libtorch"
# The most lines that may be added or changed.
LIMITS = {"mnist": 6, "custom_dataset": 6, "dcgan": 8, "regression": 5,
          "transfer_learning": 8}
LINES_LESS = 30  # dist_mnist gets shorter.
LOSS = re.compile(r"epoch (\d+), step (\d+): loss (\S+) of (\d+) samples")


def lines_of(name):
    return (EXAMPLES / f"{name}.cc").read_text().splitlines()


def changed_lines(name):
    """Counts the lines of the programme after the change that were not there before."""
    before, after = (lines_of(f"{name}_{which}") for which in ("before", "after"))
    same = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(after) - sum(block.size for block in same)


class Ports(SystemTest):
    def setUp(self):
        super().setUp()
        with gzip.open(ROOT / "data" / "digits.csv.gz", "rt") as packed:
            self.samples = packed.read().split()
        self.digits = self.folder / "digits.csv"
        self.digits.write_text("\n".join(self.samples) + "\n")

    def output_of(self, name, *words, processes=1):
        words = (PROGRAMME, name, *words)
        if processes > 1:
            words = (TRIREME, "launch", "--workers", processes, "--", *words)
        code, out, err = self.run_to_end(*words, env=environment(**SAME_KERNELS))
        self.assertEqual(code, 0, f"{name}, {processes} processes\n{out}\n{err}")
        self.assertNotIn("warning", err)
        return out

    def list_of_images(self):
        """Writes images, and a list that names them."""
        lines = []
        for number, sample in enumerate(self.samples[:600]):
            *pixels, digit = map(int, sample.split(","))
            image = self.folder / f"{number}.pgm"
            image.write_bytes(b"P5 8 8 16\n" + bytes(pixels))
            lines.append(f"{image} {digit} {'test' if number % 6 == 0 else 'train'}\n")
        path = self.folder / "list.txt"
        path.write_text("".join(lines))
        return path

    def assert_same_bits(self, name, *words):
        before, after = (self.output_of(f"{name}_{which}", *words) for which in ("before", "after"))
        self.assertGreater(len(before), 100)
        self.assertEqual(before, after)
        return after

    def test_few_lines_are_changed(self):
        for name, limit in LIMITS.items():
            with self.subTest(name):
                self.assertLessEqual(changed_lines(name), limit)
        self.assertLessEqual(len(lines_of("dist_mnist_after")),
                             len(lines_of("dist_mnist_before")) - LINES_LESS)

    def test_mnist(self):
        self.assert_same_bits("mnist", self.digits)
        alone = self.losses(self.output_of("mnist_before", self.digits, 0))
        self.assertGreaterEqual(len(alone), 50)
        self.assertLess(alone[49], 0.7 * alone[0])  # It learns, so the losses say something.
        for processes in (2, 3):
            with self.subTest(processes=processes):
                together = self.losses(
                    self.output_of("mnist_after", self.digits, 0, processes=processes))
                self.assertEqual(len(together), len(alone))
                self.assert_close(together, alone, 1e-5, count=STRICT_STEPS)
                self.assert_close(together, alone, 1e-2, count=50)

    def losses(self, out):
        """Returns the mean loss of each step over the samples of all ranks."""
        sums, counts = {}, {}
        for epoch, step, loss, samples in LOSS.findall(out):
            at = int(epoch), int(step)
            sums[at] = sums.get(at, 0) + float(loss) * int(samples)
            counts[at] = counts.get(at, 0) + int(samples)
        self.assertLessEqual(set(counts.values()), {64, 1617 % 64})
        return [sums[at] / counts[at] for at in sorted(sums)]

    def test_custom_dataset(self):
        images = self.list_of_images()
        self.assert_same_bits("custom_dataset", images)
        for processes in (2, 3):
            with self.subTest(processes=processes):
                out = self.output_of("custom_dataset_after", images, processes=processes)
                ends = re.findall(r"epoch 4: (.*)", out)
                self.assertEqual(len(ends), processes)
                self.assertEqual(len(set(ends)), 1)  # All ranks have the same parameters.
                self.assertGreater(float(ends[0].split()[-1]), 0.7)

    def test_dcgan(self):
        folders = [self.folder / name for name in ("alone", "2", "3")]
        for folder in folders:
            folder.mkdir()
        alone = self.last_losses(self.assert_same_bits("dcgan", self.digits, folders[0]))
        for processes, folder in ((2, folders[1]), (3, folders[2])):
            with self.subTest(processes=processes):
                together = self.last_losses(
                    self.output_of("dcgan_after", self.digits, folder, processes=processes))
                self.assertEqual(len(together), processes)
                for discriminator, generator, pixel in together:
                    # Their noise differs, so they are not the same.
                    self.assertAlmostEqual(discriminator, alone[0][0], delta=0.3)
                    self.assertAlmostEqual(generator, alone[0][1], delta=0.8)
                    self.assertAlmostEqual(pixel, 0.305, delta=0.06)  # As in the digits.
                self.assertEqual(sorted(file.name for file in folder.iterdir()),
                                 sorted(file.name for file in folders[0].iterdir()))

    def last_losses(self, out):
        return [tuple(map(float, losses)) for losses in re.findall(
            r"step 100: discriminator (\S+), generator (\S+), mean of a pixel (\S+)", out)]

    def polynomials(self, out):
        """Returns the factors that each rank printed under "learned" and "target"."""
        return ([[float(number) for number in re.findall(r"(\S+)(?: x| *$)", line)]
                 for line in re.findall(rf"{name}: y = (.*)", out)]
                for name in ("learned", "target"))

    def test_regression(self):
        self.assert_same_bits("regression", 5)
        for processes in (2, 3):
            with self.subTest(processes=processes):
                learned, target = self.polynomials(
                    self.output_of("regression_after", 5, processes=processes))
                self.assertEqual(learned, [learned[0]] * processes)
                self.assertEqual(target, [target[0]] * processes)
                self.assertEqual(len(learned[0]), 5)
                for one, other in zip(learned[0], target[0]):
                    self.assertAlmostEqual(one, other, delta=0.2)

    def test_transfer_learning(self):
        backbone, heads = self.folder / "backbone.pt", self.folder / "heads"
        heads.mkdir()
        self.output_of("backbone", backbone)
        words = ("transfer_learning_after", self.digits, backbone)
        alone = self.epochs(self.assert_same_bits("transfer_learning", self.digits, backbone,
                                                  heads / "alone.pt"))
        self.assertEqual(len(alone), 6)
        self.assertGreater(alone[-1][2], alone[0][2])
        self.assertGreater(alone[-1][2], 0.8)
        for processes in (2, 3):
            with self.subTest(processes=processes):
                out = self.output_of(*words, heads / f"{processes}.pt", processes=processes)
                together = self.epochs(out)
                self.assertEqual(len(together), 6 * processes)
                self.assertEqual(len(set(together)), 6)  # All ranks have the same head.
                for each, one in zip(sorted(set(together)), alone, strict=True):
                    self.assertEqual(each[0], one[0])
                    self.assertAlmostEqual(each[1], one[1], delta=0.01)
                    self.assertAlmostEqual(each[3], one[3], delta=1e-3 * one[3])
        self.assertEqual(sorted(file.name for file in heads.iterdir()),
                         ["2.pt", "3.pt", "alone.pt"])

    def epochs(self, out):
        """Each epoch: its number, its accuracy, that of its tests, and a sum over the head's
        weights."""
        return [tuple(map(float, each)) for each in re.findall(
            r"epoch (\d+): accuracy (\S+), of tests (\S+), weights (\S+)", out)]

    def test_a_job_that_sets_no_seed_draws_one_target(self):
        targets = []
        for _ in range(2):
            learned, target = self.polynomials(self.output_of("regression_after", processes=3))
            self.assertEqual(target, [target[0]] * 3)
            self.assertEqual(learned, [learned[0]] * 3)
            targets.append(target[0])
        self.assertNotEqual(*targets)

    def test_dist_mnist(self):
        out = self.output_of("dist_mnist_after", self.digits, processes=2)
        accuracies = re.findall(r"accuracy (\S+)", out)
        self.assertEqual(len(accuracies), 1)
        self.assertGreater(float(accuracies[0]), 0.8)
        ranks = [self.start(PROGRAMME, "dist_mnist_before", self.digits,
                            env=environment(RANK=str(rank), WORLD_SIZE="2", OMP_NUM_THREADS="1",
                                            MEETING=str(self.folder / "meeting")))
                 for rank in range(2)]
        outs = [rank.communicate(timeout=60) for rank in ranks]
        if ranks[0].returncode == 77:
            return  # The build has no Gloo.
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outs)
        self.assertGreater(float(outs[0][0].split()[-1]), 0.7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
