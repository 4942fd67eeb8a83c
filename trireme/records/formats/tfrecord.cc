// TFRecord files of tf.train.Example. A record is: its length (uint64), the masked CRC-32C of
// that, the bytes, the masked CRC-32C of them.
#include <fmt/format.h>
#include <trireme/records/crc32c.h>
#include <trireme/records/formats.h>
#include <trireme/records/seen_fields.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include "indexed_files.h"
#include "wire.h"

namespace trireme::records {
namespace {

constexpr uint64_t kLengthBytes = 8, kCrcBytes = 4;
constexpr uint64_t kHeadBytes = kLengthBytes + kCrcBytes;
constexpr size_t kMostFeatures = 256;

template <typename T>
T little_endian_at(std::span<const std::byte> bytes, size_t at) {
  T number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

bool has_right_length(std::span<const std::byte> head) {
  return masked_crc(crc32c(head.first(kLengthBytes))) ==
         little_endian_at<uint32_t>(head, kLengthBytes);
}

// The kinds of lists, by their numbers in tf.train.Feature.
enum class ListKind : uint64_t { none = 0, bytes = 1, floats = 2, integers = 3 };

struct Feature {
  std::string_view name;
  ListKind kind = ListKind::none;
  std::span<const std::byte> list;  // The message of the list.
  size_t count = 0;
};

std::string_view text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls visit(field) for each field 1 of a list: its values, or several of them packed.
template <typename Visit>
void for_each_value(std::span<const std::byte> list, Visit visit) {
  for (WireReader reader(list); !reader.is_at_end();)
    if (const WireField field = reader.next(); field.number == 1) visit(field);
}

size_t count_values(const Feature& feature) {
  size_t count = 0;
  for_each_value(feature.list, [&](const WireField& field) {
    if (feature.kind == ListKind::bytes || field.type != 2)
      ++count;
    else if (feature.kind == ListKind::floats)
      count += field.bytes.size() / sizeof(float);
    else  // Each number ends with a byte below 0x80.
      count += static_cast<size_t>(std::ranges::count_if(
          field.bytes, [](std::byte byte) { return (byte & std::byte{0x80}) == std::byte{0}; }));
  });
  return count;
}

// An entry of the map: the name and the feature, in which the last list counts.
Feature parse_feature(std::span<const std::byte> entry) {
  Feature feature;
  for (WireReader reader(entry); !reader.is_at_end();) {
    const WireField field = reader.next();
    if (field.type != 2) continue;
    if (field.number == 1) feature.name = text_of_bytes(field.bytes);
    if (field.number != 2) continue;
    for (WireReader lists(field.bytes); !lists.is_at_end();) {
      const WireField list = lists.next();
      if (list.type != 2 || list.number < 1 || list.number > 3) continue;
      feature.kind = static_cast<ListKind>(list.number);
      feature.list = list.bytes;
    }
  }
  feature.count = count_values(feature);
  return feature;
}

using Features = std::array<Feature, kMostFeatures>;

// One of two values would count for some readers, and the other one for others.
void require_different_names(std::span<const Feature> features) {
  thread_local std::vector<std::string_view> names;
  names.clear();
  for (const Feature& feature : features) names.push_back(feature.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    throw Damage(fmt::format("the feature '{}' is there twice", *twice),
                 "examples with one value for each name");
}

size_t parse_example(std::span<const std::byte> message, Features& features) {
  size_t count = 0;
  for (WireReader example(message); !example.is_at_end();) {
    const WireField field = example.next();
    if (field.number != 1 || field.type != 2) continue;
    for (WireReader map(field.bytes); !map.is_at_end();) {
      const WireField entry = map.next();
      if (entry.number != 1 || entry.type != 2) continue;
      if (count == kMostFeatures)
        throw Damage(fmt::format("it has more than {} features", kMostFeatures),
                     "examples of fewer features", ErrorCode::unsupported);
      features[count++] = parse_feature(entry.bytes);
    }
  }
  require_different_names(std::span(features).first(count));
  return count;
}

// Writes the numbers of a list to `to`, which has room for all of them.
template <typename T>
void write_numbers(const Feature& feature, std::byte* to) {
  const auto put = [&](T number) {
    std::memcpy(to, &number, sizeof number);
    to += sizeof number;
  };
  for_each_value(feature.list, [&](const WireField& field) {
    if constexpr (std::is_same_v<T, float>) {
      const size_t whole = field.bytes.size() / sizeof(float) * sizeof(float);
      if (whole != 0 && field.type != 1) std::memcpy(to, field.bytes.data(), whole);
      if (field.type != 1) to += whole;
    } else if (field.type == 2) {
      for (WireReader packed(field.bytes); !packed.is_at_end();)
        put(static_cast<int64_t>(packed.varint()));
    } else if (field.type == 0) {
      put(static_cast<int64_t>(field.value));
    }
  });
}

void check_types(const Feature& feature) {
  const int single = feature.kind == ListKind::floats ? 5 : 0;
  for_each_value(feature.list, [&](const WireField& field) {
    const bool is_right = field.type == 2
                              ? feature.kind != ListKind::floats || field.bytes.size() % 4 == 0
                              : feature.kind != ListKind::bytes && field.type == single;
    if (!is_right)
      throw Damage(
          fmt::format("the feature '{}' has values of another type than its list", feature.name));
  });
}

// The message of a record, whose checksums are compared. Throws Damage.
std::span<const std::byte> message_of(std::span<const std::byte> whole) {
  const auto message = whole.subspan(kHeadBytes, whole.size() - kHeadBytes - kCrcBytes);
  if (!has_right_length(whole.first(kHeadBytes)) ||
      little_endian_at<uint64_t>(whole, 0) != message.size())
    throw Damage("its length is damaged (wrong CRC-32C)");
  if (masked_crc(crc32c(message)) != little_endian_at<uint32_t>(whole, whole.size() - kCrcBytes))
    throw Damage("its bytes are damaged (wrong CRC-32C)");
  return message;
}

class TfRecordReader : public IndexedReader {
 public:
  TfRecordReader(IndexedFiles files, std::string measured)
      : IndexedReader(std::move(files.shards), std::move(files.index), {}),
        measured_(std::move(measured)) {
    // The records of the first file are at hand also if the files are on a server.
    const auto entries = index().entries();
    const int64_t first = std::min(first_whole(*this), size() - 1);
    const auto end = std::ranges::upper_bound(entries, entries[static_cast<size_t>(first)].file,
                                              {}, &Entry::file);
    specs_ = seen_fields(*this, end - entries.begin(), SeenIn::all);
    // The records that were looked at may have one length by chance.
    for (FieldSpec& spec : specs_)
      if (spec.name == measured_) spec.shape.reset();
  }
  const std::vector<FieldSpec>& fields() const override { return specs_; }
  std::string_view measured_field() const override { return measured_; }

 protected:
  void read_entry(const Entry& entry, Record& record) const override {
    if (entry.bytes < kHeadBytes + kCrcBytes)
      throw Damage("the index has too few bytes for it", "trireme data index");
    fill(message_of(shards().read(entry.file, entry.offset, entry.bytes, record)), record);
  }

 private:
  // The views of the features are of the message, which room() would end. The numbers therefore
  // have memory of their own.
  void fill(std::span<const std::byte> message, Record& record) const {
    thread_local Features features;
    const size_t count = parse_example(message, features);
    size_t words = 0, lists = 0;
    for (const Feature& feature : std::span(features).first(count)) {
      check_types(feature);
      lists += feature.kind == ListKind::bytes ? feature.count : 1;
      if (feature.kind != ListKind::bytes) words += feature.count;
      // The bytes of a list with several values get names of their own.
      if (feature.kind == ListKind::bytes && feature.count > 1)
        words += feature.count * (feature.name.size() + kNumberDigits) / sizeof(int64_t) + 1;
    }
    if (words * sizeof(int64_t) > static_cast<uint64_t>(shards().memory_bytes()) ||
        lists > kMostFeatures)
      throw Damage(fmt::format("it has {} values, more than the limit", words + lists),
                   "smaller records, or " + shards().limits().remedy_of_memory,
                   ErrorCode::unsupported);
    // Sizes come first, then numbers and names, in memory that is allocated once for all of them.
    record.sizes.resize(kMostFeatures + words);
    auto* numbers = reinterpret_cast<std::byte*>(record.sizes.data() + kMostFeatures);
    size_t sizes = 0;
    for (const Feature& feature : std::span(features).first(count)) {
      if (feature.kind == ListKind::bytes) {
        numbers = add_texts(feature, numbers, record);
        continue;
      }
      if (feature.kind == ListKind::none) continue;
      const bool are_floats = feature.kind == ListKind::floats;
      const size_t bytes = feature.count * (are_floats ? sizeof(float) : sizeof(int64_t));
      if (are_floats)
        write_numbers<float>(feature, numbers);
      else
        write_numbers<int64_t>(feature, numbers);
      record.sizes[sizes] = static_cast<int64_t>(feature.count);
      // A list of one value is a number, as a label is.
      const size_t dimensions = feature.count == 1 ? 0 : 1;
      record.fields.push_back({.name = feature.name,
                               .bytes = {numbers, bytes},
                               .dtype = are_floats ? plan::DType::float32 : plan::DType::int64,
                               .shape = std::span(record.sizes).subspan(sizes, dimensions)});
      ++sizes;
      numbers += (bytes + 7) / 8 * 8;
    }
  }

  // Adds the values of a list of bytes: NAME, or NAME.0, NAME.1 and so on. Returns the place
  // behind their names.
  static std::byte* add_texts(const Feature& feature, std::byte* names, Record& record) {
    size_t number = 0;
    std::byte* const start = names;
    for_each_value(feature.list, [&](const WireField& field) {
      std::string_view name = feature.name;
      if (feature.count > 1) {
        auto* const text = reinterpret_cast<char*>(names);
        char* const end =
            fmt::format_to_n(text, name.size() + kNumberDigits, "{}.{}", name, number++).out;
        name = {text, end};
        names += name.size();
      }
      record.fields.push_back({.name = name, .bytes = field.bytes, .encoded = true});
    });
    return start + (names - start + 7) / 8 * 8;
  }

  static constexpr size_t kNumberDigits = 8;
  const std::string measured_;
  std::vector<FieldSpec> specs_;
};

// The bytes of the record at `at`, with its head and checksums. Throws Damage.
uint64_t bytes_of_record(Scanner& scanner, uint64_t at) {
  if (scanner.size() - at < kHeadBytes) throw Damage("it is cut");
  const auto head = scanner.at(at, kHeadBytes);
  if (!has_right_length(head)) throw Damage("it has a damaged length (wrong CRC-32C)");
  const auto bytes = little_endian_at<uint64_t>(head, 0);
  const uint64_t left = scanner.size() - at - kHeadBytes;
  if (left < kCrcBytes || bytes > left - kCrcBytes)
    throw Damage(fmt::format("it has {} bytes, but the file ends before", bytes));
  scanner.limits().require_memory(bytes);
  return kHeadBytes + bytes + kCrcBytes;
}

// The number of values that a record has in the list of that name. Throws Damage.
int64_t length_in(std::span<const std::byte> whole, std::string_view name) {
  thread_local Features features;
  const auto found = std::span(features).first(parse_example(message_of(whole), features));
  const auto list = std::ranges::find(found, name, &Feature::name);
  if (list == found.end() || list->kind == ListKind::none)
    throw Damage(fmt::format("it has no feature '{}'", name), "examples that have it");
  if (list->kind == ListKind::bytes)
    throw Damage(fmt::format("its feature '{}' is a text or a file, and no list of numbers", name),
                 "a feature of numbers", ErrorCode::invalid_argument);
  check_types(*list);
  return static_cast<int64_t>(list->count);
}

// Behind a record whose length is not known, no other one can be found.
void scan_tfrecord(uint32_t file, const Shards& shards, IndexContent& content,
                   std::string_view length_of) {
  Scanner scanner = shards.scanner(file);
  for (uint64_t at = 0, number = 0; at < scanner.size(); ++number) {
    const auto place = [&] { return fmt::format("record {} at byte {}", number, at); };
    const auto require_corrupt = [&](const Damage& damage) {
      if (damage.code != ErrorCode::corrupt)
        throw Damage(fmt::format("{}: {}", place(), damage.what), damage.remedy, damage.code);
    };
    const auto place_with_file = [&] {
      return fmt::format("{}, {}", shards.path(file).string(), place());
    };
    Entry entry{.offset = at, .file = file};
    try {
      entry.bytes = bytes_of_record(scanner, at);
    } catch (const Damage& damage) {
      require_corrupt(damage);
      return content.add_damaged(entry, place_with_file(), damage);
    }
    content.add(entry);
    try {
      if (!length_of.empty())
        content.entries.back().length = length_in(scanner.at(at, entry.bytes), length_of);
    } catch (const Damage& damage) {
      require_corrupt(damage);
      content.damage_last(place_with_file(), damage);
    }
    at += entry.bytes;
  }
}

}  // namespace

SharedReader open_tfrecord(const OpenOptions& options) {
  auto shards = shards_of(options, "tfrecord");
  // The length of the first record may look like the beginning of a packed file.
  for (size_t file = 0; file < shards->count() && !shards->is_remote(); ++file) {
    if (!shards->is_packed(file)) continue;
    with_place([&] { return shards->path(file).string(); },
               [&] {
                 std::array<std::byte, kHeadBytes> head{};
                 const DataFile opened(shards->path(file));
                 if (opened.size() < head.size()) return;
                 opened.read(0, head);
                 if (has_right_length(head)) shards->set_plain(file);
               });
  }
  const auto scan = [&](uint32_t file, const Shards& of_files, IndexContent& content) {
    scan_tfrecord(file, of_files, content, options.length_of);
  };
  return std::make_shared<TfRecordReader>(
      index_files(options, "tfrecord", std::move(shards), options_of_lengths(options), scan),
      options.length_of);
}

}  // namespace trireme::records
