#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/sample_shape.h>
#include <trireme/images/decode.h>
#include <algorithm>

namespace trireme::data {

std::vector<int64_t> shape_of_samples(const records::Reader& reader, const FieldChoice& fields,
                                      const Stages& stages) {
  if (fields.image.empty() && fields.shape) return *fields.shape;
  records::Record record;
  reader.read(0, record);
  if (!fields.tokens.empty())
    return {std::max<int64_t>(0, count_of(record.at(fields.tokens)) - 1)};
  const records::Field& image = record.at(fields.image);
  int64_t channels = 0, height = 0, width = 0;
  if (image.encoded) {
    try {
      const images::Header header = images::read_header(image.bytes, {});
      channels = header.channels, height = header.height, width = header.width;
    } catch (const Error& error) {
      throw Error(error.code(), "data", fmt::format("{}: {}", reader.place(0), error.what()));
    }
  } else {
    channels = image.shape[0], height = image.shape[1], width = image.shape[2];
  }
  for (const Stage& stage : stages) {
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

}  // namespace trireme::data
