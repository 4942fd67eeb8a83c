#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/hash.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/kinds/zip_set.h>
#include <trireme/records/open.h>
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace trireme::data {
namespace {

class ZipReader : public records::Reader {
 public:
  explicit ZipReader(std::vector<NamedReader> readers) : readers_(std::move(readers)) {
    std::string contents;
    for (const auto& [name, reader] : readers_) {
      require_size(name, *reader);
      for (const records::FieldSpec& field : reader->fields()) add(name, field);
      contents += reader->content() + "\n";
    }
    content_ = sha256_hex(contents);
  }

  int64_t size() const override { return first().size(); }
  void read(int64_t index, records::Record& record) const override {
    const auto parts = std::make_shared<std::vector<records::Record>>(readers_.size());
    record.clear();
    for (size_t i = 0; i < readers_.size(); ++i) {
      records::Record& part = (*parts)[i];
      readers_[i].reader->read(index, part);
      record.fields.insert(record.fields.end(), part.fields.begin(), part.fields.end());
    }
    record.keeps = parts;
  }
  std::string place(int64_t index) const override {
    std::vector<std::string> places;
    for (const auto& [name, reader] : readers_) places.push_back(reader->place(index));
    return fmt::format("{}", fmt::join(places, " and "));
  }
  const std::vector<records::FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }
  // A block ends where one of a source ends, so each source is read in order within it.
  std::vector<int64_t> blocks() const override {
    std::set<int64_t> ends;
    for (const auto& [name, reader] : readers_) {
      int64_t end = 0;
      for (const int64_t block : reader->blocks()) ends.insert(end += block);
    }
    std::vector<int64_t> blocks;
    int64_t begin = 0;
    for (const int64_t end : ends) blocks.push_back(end - std::exchange(begin, end));
    return blocks;
  }
  std::optional<int64_t> label(int64_t index) const override {
    const records::Reader* const reader = with_labels();
    return reader ? reader->label(index) : std::nullopt;
  }
  std::optional<int64_t> largest(std::string_view field) const override {
    const records::Reader* const reader = with_field(field);
    return reader ? reader->largest(field) : std::nullopt;
  }
  std::optional<int64_t> least(std::string_view field) const override {
    const records::Reader* const reader = with_field(field);
    return reader ? reader->least(field) : std::nullopt;
  }
  void keep_largest(std::string_view field, int64_t number) const override {
    if (const records::Reader* const reader = with_field(field))
      reader->keep_largest(field, number);
  }
  std::map<std::string, std::string> doubtful_fields() const override {
    std::map<std::string, std::string> all;
    for (const auto& [name, reader] : readers_) all.merge(reader->doubtful_fields());
    return all;
  }
  std::vector<int64_t> damaged() const override {
    std::set<int64_t> all;
    for (const auto& [name, reader] : readers_)
      for (const int64_t number : reader->damaged()) all.insert(number);
    return {all.begin(), all.end()};
  }
  int64_t stamp(int64_t index) const override {
    uint64_t stamp = 0;
    for (const auto& [name, reader] : readers_)
      stamp = mix64(stamp, static_cast<uint64_t>(reader->stamp(index)));
    return static_cast<int64_t>(stamp);
  }
  std::optional<int64_t> length(int64_t index) const override {
    for (const auto& [name, reader] : readers_)
      for (const records::FieldSpec& field : reader->fields())
        if (!field.encoded && !field.shape) return reader->length(index);
    return std::nullopt;
  }
  std::vector<std::string> class_names() const override {
    const records::Reader* const reader = with_labels();
    return reader ? reader->class_names() : std::vector<std::string>{};
  }
  int64_t reads_ahead() const override {
    int64_t most = 0;
    for (const auto& [name, reader] : readers_) most = std::max(most, reader->reads_ahead());
    return most;
  }
  void warm(int64_t index) const override {
    for (const auto& [name, reader] : readers_) reader->warm(index);
  }
  void announce(std::span<const int64_t> indices) const override {
    for (const auto& [name, reader] : readers_) reader->announce(indices);
  }
  void release(std::span<const int64_t> indices) const override {
    for (const auto& [name, reader] : readers_) reader->release(indices);
  }
  void verify_files() const override {
    for (const auto& [name, reader] : readers_) reader->verify_files();
  }

 private:
  const records::Reader& first() const { return *readers_.front().reader; }

  void require_size(const std::string& name, const records::Reader& reader) const {
    if (reader.size() == first().size()) return;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("data.sources: source {} has {} records, and source {} has {}", name,
                            reader.size(), readers_.front().name, first().size()),
                "data sets of one size, whose records belong together");
  }

  void add(const std::string& name, const records::FieldSpec& field) {
    const auto has = std::ranges::find(fields_, field.name, &records::FieldSpec::name);
    if (has != fields_.end())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("data.sources: source {} has the field {}, which an earlier source "
                              "has too",
                              name, field.name),
                  "fields with other names, or files without it");
    fields_.push_back(field);
  }

  const records::Reader* with_labels() const {
    const records::Reader* const reader = with_field("label");
    return reader ? reader : with_field("cls");
  }

  const records::Reader* with_field(std::string_view name) const {
    for (const auto& [source, reader] : readers_)
      for (const records::FieldSpec& field : reader->fields())
        if (field.name == name) return reader.get();
    return nullptr;
  }

  std::vector<NamedReader> readers_;
  std::vector<records::FieldSpec> fields_;
  std::string content_;
};

// A stage works on the whole record.
void check_zip_set(const DataOptions& options) {
  parse_stages("data.stages", options.stages);
  parse_stages("data.test_stages", options.test_stages);
  check_cache(options);
  for (const SourceOptions& source : sources_of(options))
    with_source(source.name, [&] {
      const DataOptions& own = source.options;
      if (!find_kind(own.name)->uses("data.stages"))
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("its name is {}, which gives samples and no records", own.name),
                    "a format of files, as trireme data reads it");
      for (const auto& [key, value, shared] :
           {std::tuple{"stages", text_to_agree("stages", own.stages),
                       text_to_agree("stages", options.stages)},
            std::tuple{"test_stages", text_to_agree("test_stages", own.test_stages),
                       text_to_agree("test_stages", options.test_stages)},
            std::tuple{"cache", own.cache, options.cache},
            std::tuple{"inputs", own.inputs, options.inputs},
            std::tuple{"target", own.target, options.target}})
        if (value != shared)
          throw Error(ErrorCode::invalid_argument, "data",
                      fmt::format("it has {}, which belong to the record of all sources", key),
                      fmt::format("data.{}", key));
      find_kind(own.name)->check(own);
      return 0;
    });
}

Dataset read_zip_set(const DataOptions& options) {
  check_zip_set(options);
  std::vector<NamedReader> trains, tests;
  for (const SourceOptions& source : sources_of(options)) {
    with_source(source.name, [&] {
      trains.push_back({source.name, open_train_part(source.options)});
      if (SharedReader test = open_test_part(source.options))
        tests.push_back({source.name, std::move(test)});
      return 0;
    });
    if (!tests.empty() && tests.size() != trains.size())
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("data.sources: source {} has {} test part, and another source has {}",
                      source.name, tests.back().name == source.name ? "a" : "no",
                      tests.back().name == source.name ? "none" : "one"),
          "a test_path for each source, or for none");
  }
  const SharedReader test = tests.empty() ? nullptr : zip_readers(std::move(tests));
  return read_parts(options, zip_readers(std::move(trains)), test);
}

}  // namespace

std::shared_ptr<const records::Reader> zip_readers(std::vector<NamedReader> readers) {
  return std::make_shared<const ZipReader>(std::move(readers));
}

DataKind zip_kind() {
  DataKind kind{.name = "zip",
                .about = "the fields of several data sets of records beside each other",
                .path = "nothing; data.sources has the paths.",
                .keys = {"data.sources"},
                .holder = "data.sources has",
                .has_blocks = true,
                .check = check_zip_set,
                .read = read_zip_set};
  for (const DataKind& other : record_kinds())
    for (const std::string_view key : other.keys)
      if (!kind.uses(key) && key != "data.test_path") kind.keys.push_back(key);
  return kind;
}

}  // namespace trireme::data
