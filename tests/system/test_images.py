"""Images as Pillow and torchvision make them: decoded to the same bytes, resized, jittered and
normalised to the same numbers within 1/255."""

import io
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


def tensor_of(pixels):
    return torch.from_numpy(numpy.array(pixels)).permute(2, 0, 1)


class Images(SystemTest):
    def setUp(self):
        super().setUp()
        self.tasks = []

    def ask(self, file, *steps):
        """Adds a task; returns the number of its result."""
        number = len(self.tasks)
        place = self.folder / f"{number}.image"
        place.write_bytes(file)
        self.tasks.append(" ".join([str(self.folder / f"{number}.npy"), str(place), *steps]))
        return number

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
