"""Images as Pillow and torchvision make them: decoded to the same bytes, resized, jittered and
normalised to the same numbers within 1/255. So are those of stages, whose random choices are found
in their results."""

import io
import math
import pathlib
import subprocess
import unittest

import numpy
import torch
from PIL import Image

from support import BIN, SystemTest, environment

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # A torchvision for CUDA has no compiled part beside a LibTorch for the CPU. Its transforms need
    # none, but the package registers shape functions for these operators when it is imported.
    operators = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def painting(height, width, seed=1):
    """Waves of colour with some noise."""
    y, x = numpy.mgrid[0:height, 0:width]
    waves = numpy.stack([128 + 70 * numpy.sin(x * a + y * b) + 40 * numpy.cos(x * y * 1e-4 + a)
                         for a, b in ((0.05, 0.03), (0.02, 0.08), (0.11, 0.01))], axis=-1)
    noise = numpy.random.default_rng(seed).normal(0, 6, waves.shape)
    return numpy.clip(waves + noise, 0, 255).astype(numpy.uint8)


def encoded(pixels, kind, mode=None, **options):
    image = Image.fromarray(pixels)
    if mode:
        image = image.convert(mode)
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def box_of(changed):
    """The smallest box (top, left, height, width) with all places that are True."""
    rows, columns = numpy.nonzero(changed)
    return (int(rows.min()), int(columns.min()), int(rows.max() - rows.min() + 1),
            int(columns.max() - columns.min() + 1))


def gap_between(a, b):
    """The largest difference between the distribution functions of two samples."""
    places = numpy.concatenate([a, b])
    shares = [numpy.searchsorted(numpy.sort(x), places, "right") / len(x) for x in (a, b)]
    return numpy.abs(shares[0] - shares[1]).max()


def tensor_of(pixels):
    return torch.from_numpy(numpy.array(pixels)).permute(2, 0, 1)


class Images(SystemTest):
    def setUp(self):
        super().setUp()
        self.tasks = []

    def ask(self, file, *steps):
        """Adds a task for a file, or for a list of files; returns the number of its result."""
        number = len(self.tasks)
        places = []
        for i, one in enumerate(file if isinstance(file, list) else [file]):
            places.append(str(self.folder / f"{number}.{i}.image"))
            pathlib.Path(places[-1]).write_bytes(one)
        self.tasks.append(" ".join([str(self.folder / f"{number}.npy"), ",".join(places), *steps]))
        return number

    def ask_stages(self, files, stages, seed=1):
        """Adds a task for the batch that stages make of images, as float32."""
        return self.ask(files, f"stages={seed}," + stages.replace(" ", ""))

    def target(self, number):
        return torch.from_numpy(numpy.load(self.folder / f"{number}.npy.target.npy"))

    def results(self):
        done = subprocess.run([BIN / "image_steps"], input="\n".join(self.tasks) + "\n", text=True,
                              capture_output=True, timeout=60, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [numpy.load(self.folder / f"{number}.npy") for number in range(len(self.tasks))]

    def assert_close(self, ours, theirs, most, name):
        self.assertEqual(ours.shape, theirs.shape, name)
        difference = numpy.abs(ours.astype(numpy.float64) - theirs.astype(numpy.float64)).max()
        self.assertLessEqual(difference, most, name)

    def test_files_are_decoded_to_the_bytes_of_pillow(self):
        pixels = painting(91, 123)
        alpha = numpy.dstack([pixels, pixels[..., :1]])
        # Both call the same libraries with the same settings. Only inks are converted by code of
        # their own.
        files = {
            "jpeg": (encoded(pixels, "JPEG", quality=90), 0),
            "jpeg 4:4:4": (encoded(pixels, "JPEG", subsampling=0), 0),
            "jpeg 4:2:2": (encoded(pixels, "JPEG", subsampling=1), 0),
            "jpeg progressive": (encoded(pixels, "JPEG", progressive=True), 0),
            "jpeg grey": (encoded(pixels, "JPEG", "L"), 0),
            "jpeg inks": (encoded(pixels, "JPEG", "CMYK", quality=95), 1),
            "png": (encoded(pixels, "PNG"), 0),
            "png palette": (encoded(pixels, "PNG", "P"), 0),
            "png alpha": (encoded(alpha, "PNG"), 0),
            "png grey alpha": (encoded(pixels, "PNG", "LA"), 0),
            "png black and white": (encoded(pixels, "PNG", "1"), 0),
            "webp": (encoded(pixels, "WEBP", quality=80), 0),
            "webp lossless": (encoded(pixels, "WEBP", lossless=True), 0),
            "webp alpha": (encoded(alpha, "WEBP", quality=80), 0),
        }
        for file, _ in files.values():
            self.ask(file)
        for ours, (name, (file, most)) in zip(self.results(), files.items()):
            theirs = numpy.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
            with self.subTest(name):
                self.assert_close(ours, theirs, most, name)

    def test_grey_is_that_of_pillow(self):
        pixels = painting(40, 60)
        files = [encoded(pixels, "PNG"), encoded(pixels, "WEBP", lossless=True)]
        for file in files:
            self.ask(file, "channels=1")
        for ours, file in zip(self.results(), files):
            theirs = numpy.asarray(Image.open(io.BytesIO(file)).convert("L"))[..., None]
            self.assert_close(ours, theirs, 0, "grey")

    def test_an_orientation_in_exif_is_ignored(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        self.ask(encoded(painting(30, 50), "JPEG", exif=exif))
        self.assertEqual(self.results()[0].shape, (30, 50, 3))

    def test_resized_crops_have_the_bits_of_torchvision(self):
        file = encoded(painting(214, 320), "JPEG")
        whole = numpy.asarray(Image.open(io.BytesIO(file)))
        cases = [((0, 0, 214, 320), (56, 56)), ((13, 27, 150, 101), (112, 112)),
                 ((3, 5, 30, 40), (64, 48)), ((64, 96, 64, 64), (64, 64)),
                 ((100, 1, 114, 319), (37, 224))]
        for part, size in cases:
            self.ask(file, "crop={},{},{},{}".format(*part), "resize={},{}".format(*size))
        for ours, (part, size) in zip(self.results(), cases):
            theirs = functional.resized_crop(tensor_of(whole), *part, list(size), antialias=True)
            self.assert_close(ours, theirs.permute(1, 2, 0).numpy(), 0, (part, size))

    def test_a_scaled_decode_is_near_a_resize_of_the_whole_image(self):
        file = encoded(painting(427, 640, seed=3), "JPEG")
        whole = numpy.asarray(Image.open(io.BytesIO(file)))
        self.ask(file, "least=100,150", "resize=100,150")
        theirs = functional.resize(tensor_of(whole), [100, 150], antialias=True)
        difference = numpy.abs(self.results()[0].astype(float) - theirs.permute(1, 2, 0).numpy())
        self.assertLess(difference.mean(), 1.5)

    def test_colours_are_jittered_like_torchvisions(self):
        file = encoded(painting(64, 96), "PNG")
        noise = numpy.random.default_rng(2).integers(0, 256, (64, 96, 3), dtype=numpy.uint8)
        changes = [functional.adjust_brightness, functional.adjust_contrast,
                   functional.adjust_saturation, functional.adjust_hue]
        neutral = [1, 1, 1, 0]
        cases = []
        for change, factors in enumerate([(0, 0.3, 1.7), (0, 0.4, 2.5), (0, 0.6, 1.9),
                                          (-0.5, -0.2, 0.05, 0.31, 0.5)]):
            for factor in factors:
                values = list(neutral)
                values[change] = factor
                cases.append((change, factor, values))
        for source in (file, encoded(noise, "PNG")):
            for _, _, values in cases:
                self.ask(source, "colours=0,1,2,3," + ",".join(map(str, values)))
        results = self.results()
        for pixels, part in ((numpy.asarray(Image.open(io.BytesIO(file))), results[:len(cases)]),
                             (noise, results[len(cases):])):
            for ours, (change, factor, _) in zip(part, cases):
                theirs = changes[change](tensor_of(pixels), factor).permute(1, 2, 0).numpy()
                self.assert_close(ours, theirs, 1, (changes[change].__name__, factor))

    def test_changes_of_colour_follow_each_other_in_their_order(self):
        pixels = painting(48, 64)
        self.ask(encoded(pixels, "PNG"), "colours=3,1,0,2,1.2,0.8,1.3,0.1")
        theirs = functional.adjust_hue(tensor_of(pixels), 0.1)
        theirs = functional.adjust_contrast(theirs, 0.8)
        theirs = functional.adjust_brightness(theirs, 1.2)
        theirs = functional.adjust_saturation(theirs, 1.3).permute(1, 2, 0).numpy()
        # A difference of 1 after one step is at most 2 after the next ones.
        self.assert_close(self.results()[0], theirs, 2, "all changes")

    def test_rows_are_normalised_like_torchvisions(self):
        pixels = painting(50, 70)
        file = encoded(pixels, "PNG")
        for row in ("0,0", "1,0", "1,1"):
            self.ask(file, f"row={row}")
        plain, flipped, halves = self.results()
        tensor = functional.to_dtype(tensor_of(pixels), torch.float32, scale=True)
        theirs = functional.normalize(tensor, MEAN, STD)
        self.assert_close(plain, theirs.numpy(), 1e-6, "float32")
        theirs = functional.horizontal_flip(theirs)
        self.assert_close(flipped, theirs.numpy(), 1e-6, "flipped")
        bits = torch.from_numpy(flipped).to(torch.bfloat16).view(torch.uint16)
        self.assertTrue(numpy.array_equal(halves, bits.numpy()))

    def test_an_image_is_flipped_vertically_like_torchvisions(self):
        pixels = painting(50, 70)
        self.ask_stages([encoded(pixels, "PNG")], "decode | flip_vertically(1) | normalise")
        theirs = functional.vertical_flip(tensor_of(pixels)).numpy() / 255
        self.assert_close(self.results()[0][0], theirs, 1e-6, "flipped")

    def test_random_crops_have_the_frames_of_torchvision(self):
        pixels = painting(20, 30)
        # A crop that has the size of the image with its frame has but one place.
        cases = [([4], 0, "constant"), ([3, 5], 0, "constant"), ([1, 2, 3, 4], 0, "constant"),
                 ([1, 2, 3, 4], 200, "constant"), ([6], [10, 250, 128], "constant"),
                 ([1, 2, 3, 4], 0, "edge"), ([1, 2, 3, 4], 0, "reflect"),
                 ([19, 18], 0, "reflect"), ([1, 2, 3, 4], 0, "symmetric"),
                 ([30, 20], 0, "symmetric")]
        frames = []
        for padding, fill, mode in cases:
            frames.append(functional.pad(tensor_of(pixels), padding, fill, mode).numpy())
            _, height, width = frames[-1].shape
            sides = ":".join(map(str, padding))
            colour = ":".join(map(str, fill)) if isinstance(fill, list) else fill
            self.ask_stages([encoded(pixels, "PNG")],
                            f"decode | random_crop({height}:{width}, {sides}, fill={colour}, "
                            f"padding_mode={mode}) | normalise")
        for ours, theirs, case in zip(self.results(), frames, cases):
            with self.subTest(case):
                self.assert_close(ours[0], theirs / 255, 1e-6, case)

    def test_random_crops_are_parts_of_the_image_with_its_frame(self):
        pixels = painting(20, 30)
        cases = [("random_crop(16, 4)", 16, v2.RandomCrop(16, 4)),
                 ("random_crop(16, 1:2:3:4, padding_mode=reflect)", 16,
                  v2.RandomCrop(16, (1, 2, 3, 4), padding_mode="reflect")),
                 ("random_crop(26, pad_if_needed=true, fill=9)", 26,
                  v2.RandomCrop(26, pad_if_needed=True, fill=9))]
        seeds = range(1, 9)
        for stage, _, _ in cases:
            for seed in seeds:
                self.ask_stages([encoded(pixels, "PNG")], f"decode | {stage} | normalise", seed)
        results = iter(self.results())
        for stage, size, transform in cases:
            chosen = transform.make_params([tensor_of(pixels)])
            frame = tensor_of(pixels)
            if chosen["needs_pad"]:
                frame = functional.pad(frame, chosen["padding"], transform.fill,
                                       transform.padding_mode)
            parts = numpy.lib.stride_tricks.sliding_window_view(frame.numpy(), (size, size), (1, 2))
            places = set()
            for _ in seeds:
                ours = numpy.rint(next(results)[0] * 255)
                found = numpy.argwhere((parts == ours[:, None, None]).all((0, 3, 4)))
                self.assertGreaterEqual(len(found), 1, stage)
                places.add(tuple(found[0]))
            self.assertGreater(len(places), 3, stage)

    def test_the_middle_of_a_resized_image_is_that_of_torchvision(self):
        cases = [(painting(91, 123), 56), (painting(123, 91), 56), (painting(214, 320), 112),
                 (painting(20, 31), 28), (painting(128, 86), 84)]
        for pixels, size in cases:
            self.ask_stages([encoded(pixels, "PNG")],
                            f"decode | center_of_resized({size}) | normalise")
        for ours, (pixels, size) in zip(self.results(), cases):
            theirs = v2.CenterCrop(size)(v2.Resize(size * 8 // 7)(tensor_of(pixels)))
            self.assert_close(ours[0], theirs.numpy() / 255, 1e-6, (pixels.shape, size))

    def test_boxes_are_erased_like_torchvisions(self):
        file = encoded(painting(160, 180), "PNG")
        rest = "decode | normalise(imagenet)"
        self.ask_stages([file] * 4, rest)
        values = {"0.3": [0.3], "0.3:-4:5": [0.3, -4, 5], "random": None}
        for value in values:
            self.ask_stages([file] * 4, f"{rest} | erase(1, scale=0.2:0.33, value={value})")
        plain, *erased = self.results()
        noise = []
        for ours, (name, value) in zip(erased, values.items()):
            for image, before, numbers in zip(ours, plain, erased[0]):
                # The box does not depend on the value that stands in it.
                top, left, height, width = box_of((numbers != before).any(0))
                inside = image[:, top:top + height, left:left + width]
                if value is None:
                    noise.append(inside)
                    filling = torch.from_numpy(inside.copy())
                else:
                    filling = torch.tensor(value)[:, None, None]
                theirs = functional.erase(torch.from_numpy(before), top, left, height, width,
                                          filling)
                self.assert_close(image, theirs.numpy(), 0 if value is None else 1e-6, name)
                share = height * width / (160 * 180)
                self.assertTrue(0.19 < share < 0.34 and 0.29 < height / width < 3.4)
        for channels in noise:
            # At least 5760 numbers for each channel: seven deviations of their mean are 0.09.
            for channel in channels:
                self.assertLess(abs(channel.mean()), 0.09)
                self.assertLess(abs(channel.std() - 1), 0.07)
            between = numpy.corrcoef(channels.reshape(3, -1)) - numpy.eye(3)
            self.assertLess(abs(between).max(), 0.09)
        self.assertLess(gap_between(numpy.concatenate([x.ravel() for x in noise]),
                                    torch.randn(50000, generator=torch.Generator().manual_seed(1))
                                    .numpy()), 0.02)

    def test_batches_are_mixed_like_torchvisions(self):
        files = [encoded(painting(24, 32, seed), "PNG") for seed in range(5)]
        rest = "decode | normalise(imagenet)"
        seeds = range(1, 7)
        self.ask_stages(files, rest)
        for stage in ("mixup(0.8)", "cutmix(1)"):
            for seed in seeds:
                self.ask_stages(files, f"{rest} | {stage}", seed)
        plain, *results = map(torch.from_numpy, self.results())
        labels = torch.arange(5)
        weights, sizes = set(), set()
        for number, ours in enumerate(results, start=1):
            target = self.target(number)
            weight = float(target[0, 0])
            given = {"labels": labels, "batch_size": 5}
            if number <= len(seeds):
                transform = v2.MixUp(num_classes=5)
                given["lam"] = weight
                weights.add(weight)
            else:
                transform = v2.CutMix(num_classes=5)
                changed = (ours != plain).any(1).any(0).numpy()
                top, left, height, width = box_of(changed) if changed.any() else (0, 0, 0, 0)
                self.assertAlmostEqual(weight, 1 - height * width / (24 * 32), places=6)
                given |= {"box": (left, top, left + width, top + height), "lam_adjusted": weight}
                sizes.add((height, width))
            # A sample is mixed with the one before it in the batch, as there.
            self.assert_close(ours.numpy(), transform.transform(plain, given).numpy(), 1e-6, number)
            self.assert_close(target.numpy(), transform.transform(labels, given).numpy(), 1e-6,
                              number)
        self.assertEqual(len(weights), len(seeds))
        self.assertGreater(len(sizes), 3)

    def test_random_resized_crops_are_distributed_like_torchvisions(self):
        count = 8000
        shapes = [(427, 640), (500, 333), (60, 400)]  # The last one often gets its middle.
        for height, width in shapes:
            self.ask(b"", f"boxes={height},{width},{count}")
        torch.manual_seed(5)
        for ours, (height, width) in zip(self.results(), shapes):
            transform, image = v2.RandomResizedCrop(224), torch.empty(3, height, width)
            drawn = [transform.make_params([image]) for _ in range(count)]
            theirs = numpy.array([[box[name] for name in ("top", "left", "height", "width")]
                                  for box in drawn])
            measures = {
                "area": lambda box: box[:, 2] * box[:, 3] / (height * width),
                "ratio": lambda box: numpy.log(box[:, 3] / box[:, 2]),
                "row": lambda box: (box[:, 0] + box[:, 2] / 2) / height,
                "column": lambda box: (box[:, 1] + box[:, 3] / 2) / width}
            for name, measure in measures.items():
                a, b = measure(ours), measure(theirs)
                with self.subTest(shape=(height, width), measure=name):
                    # Two equal distributions differ by more than this once in ten million times.
                    self.assertLess(gap_between(a, b), 2.9 * math.sqrt(2 / count))
                    self.assertLess(abs(a.mean() - b.mean()),
                                    5.3 * math.sqrt((a.var() + b.var()) / count))
                    self.assertLess(numpy.abs(numpy.quantile(a, (0.1, 0.5, 0.9)) -
                                              numpy.quantile(b, (0.1, 0.5, 0.9))).max(),
                                    0.06 * (b.max() - b.min()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
