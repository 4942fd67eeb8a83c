#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/pipeline/image_limits.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/sample_shape.h>
#include <trireme/images/decode.h>
#include <algorithm>
#include <utility>

namespace trireme::data {

namespace {

std::vector<int64_t> shape_of_record(const records::Reader& reader, int64_t index,
                                     const FieldChoice& fields,
                                     const images::DecodeLimits& limits) {
  records::Record record;
  reader.read(index, record);
  if (!fields.tokens.empty())
    return {std::max<int64_t>(0, count_of(record.at(fields.tokens)) - 1)};
  if (fields.image.empty()) {  // One input of another length in each record.
    const records::Field& input = record.at(fields.inputs.at(0));
    return {input.shape.begin(), input.shape.end()};
  }
  const records::Field& image = record.at(fields.image);
  if (!image.encoded) return {image.shape.begin(), image.shape.end()};
  try {
    const images::Header header = images::read_header(image.bytes, limits);
    return {header.channels, header.height, header.width};
  } catch (const Error& error) {
    const auto [what, remedy] = parts_of(error);
    throw Error(error.code(), "data", fmt::format("{}: {}", reader.place(index), what), remedy);
  }
}

// The values with a number for each channel.
constexpr std::pair<std::string_view, std::string_view> kOfChannels[] = {
    {"normalise", "mean"}, {"normalise", "std"}, {"random_crop", "fill"}, {"erase", "value"}};

void require_channels(const Stage& stage, int64_t channels) {
  for (const auto& [of_stage, name] : kOfChannels) {
    if (of_stage != stage.form->name) continue;
    const int64_t numbers = std::ssize(stage.numbers(name));
    if (numbers <= 1 || numbers == channels) continue;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("data.stages: {} has {} numbers for {}, and the images have {} "
                            "channels",
                            of_stage, numbers, name, channels),
                "a number for each channel, or one for all");
  }
}

std::vector<int64_t> shape_in_files(const records::Reader& reader, const FieldChoice& fields,
                                    const images::DecodeLimits& limits, bool skip) {
  for (int64_t index = 0;; ++index) {
    try {
      return shape_of_record(reader, index, fields, limits);
    } catch (const Error&) {
      if (!skip || index + 1 >= reader.size()) throw;
    }
  }
}

}  // namespace

std::vector<int64_t> shape_of_samples(const records::Reader& reader, const FieldChoice& fields,
                                      const Stages& stages, bool skip, int64_t image_bytes) {
  if (fields.image.empty() && fields.shape) return *fields.shape;
  const Stage* const decode = find_stage(stages, "decode");
  const auto decoded = decode ? static_cast<int64_t>(decode->number("channels")) : 3;
  const std::vector<int64_t> shape =
      shape_in_files(reader, fields, image_limits(image_bytes, decoded), skip);
  if (fields.image.empty()) return shape;
  int64_t channels = shape[0], height = shape[1], width = shape[2];
  bool is_known = true;  // A function may change the channels.
  for (const Stage& stage : stages) {
    is_known = is_known && !calls_function(stage);
    if (is_known) require_channels(stage, channels);
    if (stage.form->name == "decode") channels = static_cast<int64_t>(stage.number("channels"));
    const bool has_size =
        !stage.form->parameters.empty() && stage.form->parameters.front().name == "size";
    if (!has_size) continue;
    const std::vector<double>& size = stage.numbers("size");
    const auto first = static_cast<int64_t>(size.front());
    const bool is_shorter_side = stage.form->name == "resize" && size.size() == 1;
    if (!is_shorter_side) {
      height = first, width = static_cast<int64_t>(size.back());
    } else if (height <= width) {
      width = std::max<int64_t>(1, first * width / height), height = first;
    } else {
      height = std::max<int64_t>(1, first * height / width), width = first;
    }
  }
  return {channels, height, width};
}

plan::DType type_of_samples(const Stages& stages) {
  const Stage* const normalise = find_stage(stages, "normalise");
  return normalise ? plan::dtype_from_string(normalise->word("type")) : plan::DType::float32;
}

}  // namespace trireme::data
