// A reader of documents of tokens that a test makes.
#pragma once
#include <trireme/base/error.h>
#include <trireme/records/record.h>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace trireme::data {

// Document d has the tokens 100 d, 100 d + 1, ...
class MadeDocuments : public records::Reader {
 public:
  explicit MadeDocuments(std::vector<int64_t> lengths)
      : lengths_(std::move(lengths)), fields_{{.name = "tokens", .dtype = plan::DType::int64}} {}

  int64_t size() const override { return std::ssize(lengths_); }
  void read(int64_t index, records::Record& record) const override {
    record.clear();
    if (unreadable.contains(index) || known_damage.contains(index))
      throw Error(ErrorCode::corrupt, "data", place(index) + " is damaged");
    std::vector<int64_t> tokens(static_cast<size_t>(lengths_[static_cast<size_t>(index)]) +
                                (index == longer_than_known ? 1 : 0));
    std::iota(tokens.begin(), tokens.end(), 100 * index);
    record.memory.resize(tokens.size() * sizeof(int64_t));
    std::memcpy(record.memory.data(), tokens.data(), record.memory.size());
    record.sizes = {std::ssize(tokens)};
    record.fields.push_back({.name = "tokens",
                             .bytes = record.memory,
                             .dtype = plan::DType::int64,
                             .shape = record.sizes});
  }
  std::string place(int64_t index) const override {
    return "made.jsonl, line " + std::to_string(index + 1);
  }
  const std::vector<records::FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }
  std::optional<int64_t> length(int64_t index) const override {
    if (known_damage.contains(index)) return std::nullopt;
    return lengths_[static_cast<size_t>(index)];
  }
  std::vector<int64_t> damaged() const override {
    return {known_damage.begin(), known_damage.end()};
  }
  std::vector<int64_t> blocks() const override { return {3, size() - 3}; }

  int64_t longer_than_known = -1;
  std::set<int64_t> unreadable, known_damage;

 private:
  std::vector<int64_t> lengths_;
  std::vector<records::FieldSpec> fields_;
  std::string content_ = "made documents";
};

}  // namespace trireme::data
