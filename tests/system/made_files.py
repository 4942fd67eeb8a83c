"""Files of data that several tests write: pictures in folders of their classes, and documents."""

import json

from support import png


def picture(label, width, height, numbers):
    """Noise, brighter in the colour of the label."""
    pixels = bytearray(numbers.randbytes(width * height * 3))
    for place in range(label, len(pixels), 3):
        pixels[place] = min(255, pixels[place] // 2 + 128)
    return bytes(pixels)


def write_pictures(folder, numbers, sizes=((24, 20),)):
    """Writes 24 pictures for each of three classes; each has one of the sizes (width, height)."""
    for label, name in enumerate(["blue", "green", "red"]):
        (folder / name).mkdir(parents=True)
        for i in range(24):
            width, height = numbers.choice(sizes)
            (folder / name / f"{i:03}.png").write_bytes(
                png(picture(label, width, height, numbers), width, height))


def write_picture_job(file, pictures, stages, epochs, more=""):
    """Writes the configuration of a training on pictures. `more` are lines of its section data."""
    file.write_text(f"""
model: {{name: mlp, hidden: [16]}}
data:
  name: image_folder
  path: {pictures}
  batch: 16
  test_fraction: 0.25
  stages: {stages}
{more}
optimizer: {{name: sgd, lr: 0.02}}
train: {{epochs: {epochs}, dtype: float64}}
""")


def write_documents(file, numbers, count):
    """Writes documents of 2 to 19 tokens below 17, of which each tells the next one."""
    with file.open("w") as lines:
        for _ in range(count):
            first = numbers.randrange(17)
            tokens = [(first + 3 * i) % 17 for i in range(numbers.randrange(2, 20))]
            lines.write(json.dumps({"tokens": tokens}) + "\n")
