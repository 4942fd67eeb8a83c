// Decodes and augments images as test_images.py asks, so that it can compare them with Pillow and
// torchvision. Each line of standard input is a task: the file of the result, the file of the
// image, and steps such as `decode=3`, `crop=TOP,LEFT,HEIGHT,WIDTH`, `resize=HEIGHT,WIDTH` or
// `row=1,0`. The result is an .npy file: bytes [height, width, channels], or the numbers of a row.
#include <trireme/base/error.h>
#include <trireme/images/colour.h>
#include <trireme/images/decode.h>
#include <trireme/images/resize.h>
#include <trireme/images/rows.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

using namespace trireme::images;  // NOLINT: a programme of one file.

namespace {

struct StepNumbers {
  std::vector<double> values;
  explicit StepNumbers(const std::string& text) {
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, ',');) values.push_back(std::stod(part));
  }
  int64_t whole(size_t i) const { return static_cast<int64_t>(values.at(i)); }
};

void write_npy(const std::string& path, const char* type, const std::vector<int64_t>& shape,
               const void* bytes, size_t count) {
  std::string header = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : shape) header += std::to_string(size) + ",";
  header += ")}";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  std::ofstream out(path, std::ios::binary);
  const auto length = static_cast<uint16_t>(header.size());
  out << "\x93NUMPY" << '\x01' << '\x00' << static_cast<char>(length & 255)
      << static_cast<char>(length >> 8) << header;
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
}

void apply_colours(const StepNumbers& numbers, Image& image) {
  Jitter jitter;
  for (size_t i = 0; i < 4; ++i) jitter.order[i] = static_cast<ColourChange>(numbers.whole(i));
  jitter.brightness = numbers.values.at(4);
  jitter.contrast = numbers.values.at(5);
  jitter.saturation = numbers.values.at(6);
  jitter.hue = numbers.values.at(7);
  apply_jitter(jitter, image);
}

// A row of ImageNet's usual normalisation; 1 flips it, and 2 makes it bfloat16.
void write_as_row(const StepNumbers& numbers, const Image& image, const std::string& result) {
  RowOptions options;
  options.mean = {0.485F, 0.456F, 0.406F, 0};
  options.std = {0.229F, 0.224F, 0.225F, 1};
  options.flip_horizontally = numbers.whole(0) != 0;
  const std::vector<int64_t> shape{image.channels, image.height, image.width};
  if (numbers.whole(1) == 0) {
    std::vector<float> row(image.pixels.size());
    write_row(image, options, row.data());
    write_npy(result, "<f4", shape, row.data(), row.size() * 4);
  } else {
    std::vector<uint16_t> row(image.pixels.size());
    write_row(image, options, row.data());
    write_npy(result, "<u2", shape, row.data(), row.size() * 2);
  }
}

void run_task(const std::string& line) {
  std::istringstream words(line);
  std::string result, file, word;
  words >> result >> file;
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  int channels = 3;
  std::optional<Crop> part;
  std::optional<Size> least;
  Image image, other;
  const auto decoded = [&] {
    if (!image.pixels.empty()) return;
    decode(std::as_bytes(std::span(bytes)), channels, {}, image, part, least);
  };
  while (words >> word) {
    const std::string step = word.substr(0, word.find('='));
    const StepNumbers numbers(word.substr(word.find('=') + 1));
    if (step == "channels") channels = static_cast<int>(numbers.whole(0));
    if (step == "crop")
      part = {numbers.whole(0), numbers.whole(1), numbers.whole(2), numbers.whole(3)};
    if (step == "least") least = {numbers.whole(0), numbers.whole(1)};
    if (step == "resize") {
      decoded();
      resize(image, {numbers.whole(0), numbers.whole(1)}, other);
      std::swap(image, other);
    }
    if (step == "colours") {
      decoded();
      apply_colours(numbers, image);
    }
    if (step == "row") {
      decoded();
      return write_as_row(numbers, image, result);
    }
  }
  decoded();
  write_npy(result, "|u1", {image.height, image.width, image.channels}, image.pixels.data(),
            image.pixels.size());
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) run_task(line);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
