// Parquet and Arrow files: a record is a row, and a row group or a record batch is a block.
#include <fmt/format.h>
#include <trireme/records/block_cache.h>
#include <trireme/records/formats.h>
#include <trireme/records/index.h>
#include <trireme/records/indexed_reader.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <atomic>
#include <optional>

#include "arrow_set.h"

namespace trireme::records {
namespace {

class ArrowReader : public Reader {
 public:
  ArrowReader(const OpenOptions& options, const Format& format, ArrowFormat kind)
      : set_(options, format, kind),
        content_(content_of(format.name,
                            {{"columns", set_.choice().columns}, {"label", set_.choice().label}},
                            set_.identities())),
        groups_(options.memory_of_blocks()) {
    groups_.expect_blocks();
    if (set_.groups().empty())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' has no row", shown_path(options.path)), "files with rows");
    for (const FieldSpec& field : set_.fields()) {
      prototypes_.push_back({.name = field.name, .dtype = field.dtype, .encoded = field.encoded});
      has_lists_ |= !field.encoded && !field.shape;
      has_texts_ |= field.encoded;
      constexpr size_t kMostDimensions = 32;
      dimensions_ += field.encoded ? 0 : field.shape ? field.shape->size() : kMostDimensions;
    }
    labels_ = set_.labels(options);
    stated_bytes_ = set_.stated_bytes();
  }

  int64_t size() const override { return set_.groups().back().end; }
  const std::vector<FieldSpec>& fields() const override { return set_.fields(); }
  const std::string& content() const override { return content_; }
  std::vector<int64_t> blocks() const override {
    std::vector<int64_t> blocks;
    for (const ArrowGroupPlace& place : set_.groups()) blocks.push_back(place.end - place.first);
    return blocks;
  }
  int64_t stamp(int64_t index) const override {
    require_record(index, size());
    return set_.identities()[set_.group_of(index).file].mtime_ns;
  }
  std::optional<int64_t> label(int64_t index) const override {
    require_record(index, size());
    if (labels_.empty()) return std::nullopt;
    const int64_t label = labels_[static_cast<size_t>(index)];
    return label == kNoLabel ? std::nullopt : std::optional(label);
  }
  std::string place(int64_t index) const override {
    require_record(index, size());
    return place_in(set_.group_of(index), index);
  }

  void read(int64_t index, Record& record) const override {
    require_record(index, size());
    if (record.keeper == number_) {
      const auto& group = *static_cast<const ArrowGroup*>(record.keeps.get());
      const ArrowGroupPlace& place = group.place();
      if (index >= place.first && index < place.end) return read_from(group, index, record);
    }
    record.clear();
    const ArrowGroupPlace& place = set_.group_of(index);
    auto group =
        with_place([&] { return place_in(place, index); }, [&] { return group_at(place); });
    read_from(*group, index, record);
    record.keeps = std::move(group);
    record.keeper = number_;
  }

  int64_t reads_ahead() const override {
    return set_.fetches_ahead() ? set_.shards().reads_ahead(size()) : 0;
  }
  void announce(std::span<const int64_t> indices) const override {
    if (set_.fetches_ahead()) set_.shards().announce(files_of_records(indices));
  }
  void release(std::span<const int64_t> indices) const override {
    if (!set_.fetches_ahead()) return;
    for (const size_t file : files_of_records(indices)) set_.shards().release(file);
  }

  // The longest list, or else the longest text.
  std::optional<int64_t> length(int64_t index) const override {
    require_record(index, size());
    if (!has_lists_ && !has_texts_) return std::nullopt;
    const ArrowGroupPlace& place = set_.group_of(index);
    return with_place([&] { return place_in(place, index); },
                      [&] {
                        set_.check(place.file);
                        const auto group = group_at(place);
                        const auto [columns, row] = group->at(index - place.first);
                        int64_t longest = 0;
                        for (size_t i = 0; i < columns->size(); ++i) {
                          const FieldSpec& field = set_.fields()[i];
                          if (has_lists_ ? !field.encoded && !field.shape : field.encoded)
                            longest = std::max(longest, length_in(i, (*columns)[i], row));
                        }
                        return longest;
                      });
  }

 private:
  using SharedGroup = std::shared_ptr<const ArrowGroup>;

  std::vector<size_t> files_of_records(std::span<const int64_t> indices) const {
    std::vector<size_t> files;
    for (const int64_t index : indices) {
      require_record(index, size());
      files.push_back(set_.group_of(index).file);
    }
    return files;
  }

  std::string place_in(const ArrowGroupPlace& place, int64_t index) const {
    return fmt::format("{}, row {} ({})", set_.path(place.file),
                       place.row_in_file + index - place.first, set_.name_of(place));
  }

  SharedGroup group_at(const ArrowGroupPlace& place) const {
    return groups_.get(
        place.first, [&]() -> SharedGroup { return set_.read(place); },
        [](const ArrowGroup& group) { return group.held_bytes(); });
  }

  // Leaves what the record keeps as it is, unless it throws.
  void read_from(const ArrowGroup& group, int64_t index, Record& record) const {
    const ArrowGroupPlace place = group.place();  // The group may end with the record.
    with_place([&] { return place_in(place, index); },
               [&] {
                 std::optional<size_t> field;
                 try {
                   set_.check(place.file);
                   const auto [columns, row] = group.at(index - place.first);
                   // The record before has left its fields, whose values are now replaced.
                   if (record.keeper != number_ || record.fields.size() != prototypes_.size())
                     record.fields = prototypes_;
                   record.sizes.resize(dimensions_);
                   std::span<int64_t> sizes(record.sizes);
                   for (field = 0; *field < columns->size(); ++*field) {
                     const ArrowValues& values = (*columns)[*field];
                     if (!values.read_number(row, record.fields[*field]))
                       sizes = sizes.subspan(values.read(row, record.fields[*field], sizes));
                   }
                   // An epoch reads each row once. If the next one cannot find all groups in
                   // memory, this one's is better used for the next group.
                   if (group.is_used_up() && stated_bytes_ > groups_.limit())
                     groups_.forget(place.first);
                 } catch (const Damage& damage) {
                   record.clear();
                   throw field ? in_field(*field, damage) : damage;
                 }
               });
  }

  int64_t length_in(size_t field, const ArrowValues& values, int64_t row) const {
    try {
      return values.length(row);
    } catch (const Damage& damage) {
      throw in_field(field, damage);
    }
  }

  Damage in_field(size_t field, Damage damage) const {
    damage.what = fmt::format("column '{}': {}", set_.fields()[field].name, damage.what);
    return damage;
  }

  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  const uint64_t number_ = next_number();  // No other reader has it.
  ArrowSet set_;
  std::string content_;
  std::vector<Field> prototypes_;  // The fields without their values.
  size_t dimensions_ = 0;          // The most that a record's fields have together.
  bool has_lists_ = false, has_texts_ = false;
  std::vector<int64_t> labels_;
  int64_t stated_bytes_ = 0;  // The bytes of all groups, as files state them.
  mutable BlockCache<int64_t, ArrowGroup> groups_;  // By their first records.
};

}  // namespace

SharedReader open_parquet(const OpenOptions& options) {
  return std::make_shared<ArrowReader>(options, find_format("parquet"), ArrowFormat::parquet);
}

SharedReader open_arrow(const OpenOptions& options) {
  return std::make_shared<ArrowReader>(options, find_format("arrow"), ArrowFormat::ipc);
}

}  // namespace trireme::records
