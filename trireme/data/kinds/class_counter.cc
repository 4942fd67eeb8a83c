#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/class_counter.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/skipped_records.h>
#include <trireme/records/open.h>
#include <algorithm>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

const records::FieldSpec* spec_of_target(const records::Reader& reader,
                                         const FieldChoice& fields) {
  for (const records::FieldSpec& field : reader.fields())
    if (field.name == fields.target) return &field;
  return nullptr;
}

int64_t elements_of(const records::FieldSpec& field) {
  int64_t count = 1;
  for (const int64_t size : field.shape.value_or(std::vector<int64_t>{})) count *= size;
  return count;
}

// The numbers of one part: labels, or tokens.
class PartNumbers {
 public:
  PartNumbers(const DataOptions& options, const FieldChoice& fields, const CountedPart& part)
      : options_(options), fields_(fields), reader_(part.reader), part_(part) {}

  // Whether the reader's labels are those of the target. A zip of records is no format.
  bool has_labels_of_index() const {
    const auto format =
        std::ranges::find(records::formats(), options_.name, &records::Format::name);
    return fields_.target == "label" || fields_.target == "cls" ||
           (format != records::formats().end() && format->reads_columns);
  }

  // A list of labels may have numbers that no loss counts.
  bool has_single_labels() const {
    const records::FieldSpec* const target = spec_of_target(reader_, fields_);
    return target && target->shape && target->shape->empty();
  }

  // The largest label of all records. Each must be one of `classes`; 0: any from 0 on.
  int64_t most_label(int64_t classes) {
    if (const auto known = reader_.largest(fields_.target)) {
      if (classes > 0) check_labels(classes);
      return *known;
    }
    int64_t most = -1;
    for (int64_t i = 0; i < reader_.size(); ++i) {
      const int64_t label = label_of(i);
      if (label != -1 || !skips_bad_records(options_)) check_label(label, i, classes);
      most = std::max(most, label);
    }
    keep(fields_.target, most);
    return most;
  }

  // The same for tokens.
  int64_t most_token() {
    if (const auto known = reader_.largest(fields_.tokens)) return *known;
    int64_t most = 0, least = 0;
    for (int64_t i = 0; i < reader_.size(); ++i)
      for (const int64_t token : numbers_of(i, fields_.tokens)) {
        if (token < 0 && !may_change_tokens()) check_token(token, i, 0);
        most = std::max(most, token), least = std::min(least, token);
      }
    if (least >= 0) keep(fields_.tokens, most);
    return most;
  }

  // Checks the labels that are known without reading all records.
  void check_labels(int64_t classes) {
    const int64_t first = records::first_whole(reader_);
    if (first == reader_.size()) return;
    if (has_labels_of_index() && reader_.label(first)) {
      for (int64_t i = 0; i < records(); ++i)
        check_label(reader_.label(record_of(i)).value_or(0), record_of(i), classes);
      return;
    }
    if (!has_single_labels() || !may_be_outside(fields_.target, classes)) return;
    for (int64_t i = 0; i < records(); ++i)
      for (const int64_t label : numbers_of(record_of(i), fields_.target))
        check_label(label, record_of(i), classes);
  }

  // The same for tokens.
  void check_known_tokens(int64_t classes) {
    if (may_change_tokens() || !may_be_outside(fields_.tokens, classes)) return;
    for (int64_t i = 0; i < records(); ++i)
      for (const int64_t token : numbers_of(record_of(i), fields_.tokens))
        check_token(token, record_of(i), classes);
  }

 private:
  int64_t records() const { return part_.subset.empty() ? reader_.size() : part_.subset.size(); }
  int64_t record_of(int64_t i) const { return part_.subset.empty() ? i : part_.subset[i]; }

  // Functions of the user's own may give other tokens, or leave samples out.
  bool may_change_tokens() const { return std::ranges::any_of(part_.stages, calls_function); }

  // Whether some record has such a number, as the index knows. It may be one that does not count.
  bool may_be_outside(const std::string& field, int64_t classes) const {
    const auto largest = reader_.largest(field);
    return (largest && classes > 0 && *largest >= classes) || reader_.least(field);
  }

  // The index may know it; otherwise the record is read. -1: it cannot be read, and is left out
  // later.
  int64_t label_of(int64_t index) {
    if (has_labels_of_index())
      if (const auto label = reader_.label(index)) return *label;
    const std::vector<int64_t> numbers = numbers_of(index, fields_.target);
    return numbers.empty() ? -1 : *std::ranges::max_element(numbers);
  }

  std::vector<int64_t> numbers_of(int64_t index, const std::string& name) {
    has_read_ = true;
    try {
      reader_.read(index, record_);
      const records::Field* const field = record_.find(name);
      if (!field || field->encoded) return {};
      std::vector<int64_t> numbers(static_cast<size_t>(count_of(*field)));
      copy_numbers(*field, numbers.data());
      return numbers;
    } catch (const Error& error) {
      if (!skips_bad_records(options_) || !is_of_bad_record(error.code()))
        throw in_its_place(reader_, index, error);
      has_skipped_ = true;
      return {};
    }
  }

  void check_label(int64_t label, int64_t index, int64_t classes) const {
    if (label >= 0 && (classes <= 0 || label < classes)) return;
    const std::string outside =
        options_.classes > 0
            ? fmt::format("outside 0..{} (data.classes={})", classes - 1, classes)
            : fmt::format("outside 0..{}, the labels of the training part", classes - 1);
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: the label is {}, {}", reader_.place(index), label,
                            label < 0 ? "below 0" : outside),
                "labels from 0 on, and the right data.classes");
  }

  void check_token(int64_t token, int64_t index, int64_t classes) const {
    check_tokens({&token, 1}, classes, [&] { return reader_.place(index); });
  }

  // Later openings need not read the records. What cannot be read now may be read then.
  void keep(const std::string& field, int64_t most) const {
    if (has_read_ && !has_skipped_) reader_.keep_largest(field, most);
  }

  const DataOptions& options_;
  const FieldChoice& fields_;
  const records::Reader& reader_;
  const CountedPart& part_;
  records::Record record_;
  bool has_read_ = false, has_skipped_ = false;  // Some record.
};

class ClassCounter {
 public:
  ClassCounter(const DataOptions& options, const FieldChoice& fields, const CountedPart& train,
               const std::optional<CountedPart>& test)
      : options_(options), fields_(fields), train_(train), train_numbers_(options, fields, train) {
    if (!test) return;
    test_numbers_.emplace(options, fields, *test);
    has_own_test_ = &test->reader != &train.reader;
  }

  int64_t count() {
    if (!fields_.tokens.empty()) return count_tokens();
    if (fields_.decoded) return stated_classes();
    const records::FieldSpec* target = spec_of_target(train_.reader, fields_);
    if (!target) return 0;
    if (!is_whole(target->dtype)) return std::max<int64_t>(1, elements_of(*target));
    const int64_t classes = count_labels();
    if (test_numbers_ && options_.classes > 0)
      test_numbers_->check_labels(classes);
    else if (has_own_test_ && test_numbers_->has_single_labels())
      test_numbers_->most_label(classes);
    return classes;
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

  int64_t count_labels() {
    if (options_.classes > 0) {
      train_numbers_.check_labels(options_.classes);
      return options_.classes;
    }
    if (const auto names = train_.reader.class_names();
        !names.empty() && train_numbers_.has_labels_of_index())
      return std::ssize(names);
    return train_numbers_.most_label(0) + 1;
  }

  int64_t count_tokens() {
    if (options_.classes > 0) {
      train_numbers_.check_known_tokens(options_.classes);
      if (test_numbers_) test_numbers_->check_known_tokens(options_.classes);
      return options_.classes;
    }
    int64_t most = train_numbers_.most_token();
    if (has_own_test_) most = std::max(most, test_numbers_->most_token());
    return most + 1;
  }

  const DataOptions& options_;
  const FieldChoice& fields_;
  const CountedPart& train_;
  PartNumbers train_numbers_;
  std::optional<PartNumbers> test_numbers_;
  bool has_own_test_ = false;
};

}  // namespace

int64_t count_classes(const DataOptions& options, const FieldChoice& fields,
                      const CountedPart& train, const std::optional<CountedPart>& test) {
  return ClassCounter(options, fields, train, test).count();
}

}  // namespace trireme::data
