// A reader whose records a test makes.
#pragma once
#include <trireme/base/error.h>
#include <trireme/records/record.h>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace trireme::data {

// Record i has a field "image" of bytes [channels, height, width], whose first byte is i, and a
// field "label", which is i % 10.
class MadeImages : public records::Reader {
 public:
  MadeImages(int64_t size, int64_t height, int64_t width)
      : size_(size),
        shape_{3, height, width},
        fields_{{.name = "image", .shape = shape_},
                {.name = "label", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}}} {}

  int64_t size() const override { return size_; }
  void read(int64_t index, records::Record& record) const override {
    record.clear();
    if (damaged.contains(index))
      throw Error(ErrorCode::corrupt, "data", place(index) + ": the checksum is wrong");
    const auto pixels = static_cast<size_t>(shape_[0] * shape_[1] * shape_[2]);
    record.memory.resize(pixels + sizeof(int64_t));
    for (size_t i = 0; i < pixels; ++i)
      record.memory[i] = static_cast<std::byte>(static_cast<size_t>(index) + 7 * i);
    const int64_t label = index % 10;
    std::memcpy(record.memory.data() + pixels, &label, sizeof label);
    const std::span<const std::byte> bytes(record.memory);
    record.fields.push_back({.name = "image", .bytes = bytes.first(pixels), .shape = shape_});
    record.fields.push_back(
        {.name = "label", .bytes = bytes.subspan(pixels), .dtype = plan::DType::int64});
  }
  std::string place(int64_t index) const override {
    return "made.bin, record " + std::to_string(index);
  }
  const std::vector<records::FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }

  std::set<int64_t> damaged;

 private:
  const int64_t size_;
  const std::vector<int64_t> shape_;
  const std::vector<records::FieldSpec> fields_;
  const std::string content_ = "made";
};

}  // namespace trireme::data
