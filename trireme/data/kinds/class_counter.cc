#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/class_counter.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/records/open.h>
#include <algorithm>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

class ClassCounter {
 public:
  ClassCounter(const DataOptions& options, const records::Reader& reader,
               const FieldChoice& fields)
      : options_(options), reader_(reader), fields_(fields) {}

  int64_t count() {
    if (!fields_.tokens.empty()) return options_.classes > 0 ? options_.classes : most_token() + 1;
    if (fields_.decoded) return stated_classes();
    const records::FieldSpec* target = spec_of_target();
    if (!target) return 0;
    if (!is_whole(target->dtype)) return std::max<int64_t>(1, elements(*target));
    if (options_.classes > 0) {
      check_labels();
      return options_.classes;
    }
    if (const auto names = reader_.class_names(); !names.empty() && is_of_index())
      return std::ssize(names);
    return most_label() + 1;
  }

 private:
  int64_t stated_classes() const {
    if (options_.classes > 0) return options_.classes;
    throw Error(
        ErrorCode::invalid_argument, "data",
        "data.classes is auto, and the targets are those of the function of decode_record, "
        "which are not known before the run",
        "data.classes: the number of classes, or of the values in a target");
  }

  const records::FieldSpec* spec_of_target() const {
    for (const records::FieldSpec& field : reader_.fields())
      if (field.name == fields_.target) return &field;
    return nullptr;
  }

  static int64_t elements(const records::FieldSpec& field) {
    int64_t count = 1;
    for (const int64_t size : field.shape.value_or(std::vector<int64_t>{})) count *= size;
    return count;
  }

  // Whether the reader's labels are those of the target. A zip of records is no format.
  bool is_of_index() const {
    const auto format =
        std::ranges::find(records::formats(), options_.name, &records::Format::name);
    return fields_.target == "label" || fields_.target == "cls" ||
           (format != records::formats().end() && format->reads_columns);
  }

  // The index may know it; otherwise the record is read. -1: it cannot be read, and is left out
  // later.
  int64_t label_of(int64_t index, records::Record& record) {
    if (is_of_index())
      if (const auto label = reader_.label(index)) return *label;
    const std::vector<int64_t> numbers = numbers_of(index, fields_.target, record);
    return numbers.empty() ? -1 : *std::ranges::max_element(numbers);
  }

  std::vector<int64_t> numbers_of(int64_t index, const std::string& name,
                                  records::Record& record) {
    has_read_ = true;
    try {
      reader_.read(index, record);
      const records::Field* const field = record.find(name);
      if (!field || field->encoded) return {};
      std::vector<int64_t> numbers(static_cast<size_t>(count_of(*field)));
      copy_numbers(*field, numbers.data());
      return numbers;
    } catch (const Error&) {
      if (options_.on_bad_record != "skip") throw;
      has_skipped_ = true;
      return {};
    }
  }

  void check_labels() const {
    const int64_t first = records::first_whole(reader_);
    if (!is_of_index() || first == reader_.size() || !reader_.label(first)) return;
    for (int64_t i = 0; i < reader_.size(); ++i) check_label(reader_.label(i).value_or(0), i);
  }

  void check_label(int64_t label, int64_t index) const {
    if (label >= 0 && (options_.classes <= 0 || label < options_.classes)) return;
    throw Error(
        ErrorCode::invalid_argument, "data",
        label < 0
            ? fmt::format("{}: the label is {}, below 0", reader_.place(index), label)
            : fmt::format("{}: the label is {}, outside 0..{} (data.classes={})",
                          reader_.place(index), label, options_.classes - 1, options_.classes),
        "labels from 0 on, and the right data.classes");
  }

  int64_t most_label() {
    if (const auto known = reader_.largest(fields_.target)) return *known;
    records::Record record;
    int64_t most = -1;
    for (int64_t i = 0; i < reader_.size(); ++i) {
      const int64_t label = label_of(i, record);
      if (label != -1 || options_.on_bad_record != "skip") check_label(label, i);
      most = std::max(most, label);
    }
    keep(fields_.target, most);
    return most;
  }

  int64_t most_token() {
    if (const auto known = reader_.largest(fields_.tokens)) return *known;
    records::Record record;
    int64_t most = 0, least = 0;
    for (int64_t i = 0; i < reader_.size(); ++i)
      for (const int64_t number : numbers_of(i, fields_.tokens, record))
        most = std::max(most, number), least = std::min(least, number);
    if (least >= 0) keep(fields_.tokens, most);
    return most;
  }

  // Later openings need not read the records. What cannot be read now may be read then.
  void keep(const std::string& field, int64_t most) const {
    if (has_read_ && !has_skipped_) reader_.keep_largest(field, most);
  }

  const DataOptions& options_;
  const records::Reader& reader_;
  const FieldChoice& fields_;
  bool has_read_ = false, has_skipped_ = false;  // Some record.
};

}  // namespace

int64_t count_classes(const DataOptions& options, const records::Reader& reader,
                      const FieldChoice& fields) {
  return ClassCounter(options, reader, fields).count();
}

}  // namespace trireme::data
