// Decodes and augments images as test_images.py asks, so that it can compare them with Pillow and
// torchvision. Each line of standard input is a task: the file of the result, the file of the
// image, and steps such as `channels=3`, `crop=TOP,LEFT,HEIGHT,WIDTH`, `resize=HEIGHT,WIDTH` or
// `row=1,0`. The result is an .npy file: bytes [height, width, channels], or the numbers of a row.
//
// `stages=SEED,STAGES` gives the batch of several images, whose files have commas between them, as
// a pipeline makes it: RESULT is its data, and RESULT.target.npy its target. Image i has class i.
// `boxes=HEIGHT,WIDTH,COUNT` gives the parts that random_resized_crop draws for an image of this
// size: [count, (top, left, height, width)].
#include <ATen/core/Tensor.h>
#include <trireme/base/error.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/images/colour.h>
#include <trireme/images/decode.h>
#include <trireme/images/regions.h>
#include <trireme/images/resize.h>
#include <trireme/images/rows.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
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

std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The images of a task as records of a data set.
class ImageFiles : public trireme::records::Reader {
 public:
  explicit ImageFiles(const std::string& paths) {
    std::istringstream in(paths);
    for (std::string path; std::getline(in, path, ',');) files_.push_back(bytes_of_file(path));
  }
  int64_t size() const override { return std::ssize(files_); }
  void read(int64_t index, trireme::records::Record& record) const override {
    record.clear();
    record.memory.resize(sizeof index);
    std::memcpy(record.memory.data(), &index, sizeof index);
    const std::string& file = files_.at(static_cast<size_t>(index));
    record.fields.push_back(
        {.name = "image", .bytes = std::as_bytes(std::span(file)), .encoded = true});
    record.fields.push_back({.name = "label",
                             .bytes = std::span<const std::byte>(record.memory),
                             .dtype = trireme::plan::DType::int64});
  }
  std::string place(int64_t index) const override { return "image " + std::to_string(index); }
  const std::vector<trireme::records::FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }

 private:
  std::vector<std::string> files_;
  const std::vector<trireme::records::FieldSpec> fields_{
      {.name = "image", .encoded = true},
      {.name = "label", .dtype = trireme::plan::DType::int64, .shape = std::vector<int64_t>{}}};
  const std::string content_ = "files";
};

void write_tensor(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kFloat).contiguous();
  write_npy(path, "<f4", numbers.sizes().vec(), numbers.const_data_ptr(), numbers.nbytes());
}

void write_batch(const std::string& text, const std::string& files, const std::string& result) {
  const size_t comma = text.find(',');
  auto reader = std::make_shared<ImageFiles>(files);
  trireme::Draws draws;
  draws.seed = std::stoull(text.substr(0, comma));
  draws.indices.resize(static_cast<size_t>(reader->size()));
  std::iota(draws.indices.begin(), draws.indices.end(), 0);
  const auto source = trireme::data::make_pipeline(
      reader, {.stages = trireme::data::parse_stages("stages", text.substr(comma + 1)),
               .classes = std::max<int64_t>(2, reader->size())});
  const trireme::Example batch = source->get_batch(draws);
  write_tensor(result, batch.data);
  write_tensor(result + ".target.npy", batch.target);
}

void write_boxes(const StepNumbers& numbers, const std::string& result) {
  std::vector<int64_t> boxes;
  for (int64_t i = 0; i < numbers.whole(2); ++i) {
    Random random(static_cast<uint64_t>(i));
    const Crop box = random_resized_crop({numbers.whole(0), numbers.whole(1)}, 0.08, 1, 3.0 / 4,
                                         4.0 / 3, random);
    boxes.insert(boxes.end(), {box.top, box.left, box.height, box.width});
  }
  write_npy(result, "<i8", {numbers.whole(2), 4}, boxes.data(), boxes.size() * sizeof(int64_t));
}

void run_task(const std::string& line) {
  std::istringstream words(line);
  std::string result, file, word;
  words >> result >> file;
  std::string bytes;
  int channels = 3;
  std::optional<Crop> part;
  std::optional<Size> least;
  Image image, other;
  const auto decoded = [&] {
    if (!image.pixels.empty()) return;
    bytes = bytes_of_file(file);
    decode(std::as_bytes(std::span(bytes)), channels, {}, image, part, least);
  };
  while (words >> word) {
    const std::string step = word.substr(0, word.find('='));
    const std::string values = word.substr(word.find('=') + 1);
    if (step == "stages") return write_batch(values, file, result);
    const StepNumbers numbers(values);
    if (step == "boxes") return write_boxes(numbers, result);
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
