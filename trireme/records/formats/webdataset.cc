// WebDataset: tar files, in which files that differ only in their extension are a record.
#include <fmt/format.h>
#include <trireme/base/text.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>
#include "indexed_files.h"
#include "npy_header.h"
#include "tar.h"

namespace trireme::records {
namespace {

constexpr size_t kMostFields = 64;
constexpr size_t kMostKeyBytes = 4096;
constexpr size_t kMostSizes = 256;  // Of all arrays of a record together.
constexpr std::string_view kKey = "__key__";

// The record's key and the extension, which begins at the first dot of the last part. Both are
// empty for a name without one of them.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t start = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', start);
  if (dot == std::string_view::npos || dot == start) return {};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_before_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::lexicographical_compare(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) < std::tolower(y); });
}

std::string lower(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

bool is_number_of_class(std::string_view extension) {
  return extension == "cls" || extension == "cls2" || extension == "index" || extension == "inx" ||
         extension == "id";
}

std::string no_member(std::string_view name) { return fmt::format("no member '.{}'", name); }

bool is_array_name(std::string_view extension) {
  return extension == "npy" || extension.ends_with(".npy");
}

int64_t parse_class(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text =
      trimmed({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    throw Damage(
        fmt::format("member '{}' must be a whole number, but is '{}'", name, text.substr(0, 24)));
  return number;
}

void require_short_key(std::string_view key) {
  if (key.size() > kMostKeyBytes)
    throw Damage(
        fmt::format("a member's name has {} bytes, more than {}", key.size(), kMostKeyBytes),
        "shorter names", ErrorCode::unsupported);
}

// Python would execute these to read them.
bool is_pickle(std::string_view extension) {
  const std::string_view last = extension.substr(extension.rfind('.') + 1);
  constexpr std::array<std::string_view, 7> kPickles{"pkl", "pickle", "pyd",   "pth",
                                                     "pt",  "dill",   "joblib"};
  return std::ranges::find(kPickles, last) != kPickles.end();
}

// The bytes of a record's members, as a source for a walk.
struct TarRange {
  std::span<const std::byte> bytes;
  uint64_t size() const { return bytes.size(); }
  std::span<const std::byte> at(uint64_t offset, uint64_t count) const {
    if (offset > bytes.size() || count > bytes.size() - offset)
      throw Damage("the record's members are not where they were when it was indexed",
                   "trireme data index");
    return bytes.subspan(offset, count);
  }
};

class WebDatasetReader : public IndexedReader {
 public:
  WebDatasetReader(IndexedFiles files, std::vector<FieldSpec> specs,
                   std::vector<std::string> needed, std::string measured)
      : IndexedReader(std::move(files.shards), std::move(files.index), std::move(specs)),
        extensions_(index().facts().at("extensions").get<std::vector<std::string>>()),
        needed_(std::move(needed)),
        measured_(std::move(measured)) {}
  std::string_view measured_field() const override { return measured_; }

 protected:
  void read_entry(const Entry& entry, Record& record) const override {
    constexpr size_t kRoom = kMostFields * sizeof(int64_t) + kMostKeyBytes;
    const auto [bytes, room] =
        shards().read_with_room(entry.file, entry.offset, entry.bytes, kRoom, record);
    record.sizes.reserve(kMostSizes);
    const TarRange range{bytes};
    TarWalk walk;
    TarHeader member;
    size_t numbers = 0;
    while (record.fields.size() < kMostFields && member.end() < bytes.size() &&
           walk.next(range, member)) {
      const auto [key, extension] = split_name(member.name);
      if (key.empty()) continue;
      if (record.fields.empty()) add_key(key, room.last(kMostKeyBytes), record);
      Field field{.name = name_of_extension(extension),
                  .bytes = bytes.subspan(member.data, member.bytes),
                  .encoded = true};
      if (is_number_of_class(field.name)) {
        const auto place = room.subspan(numbers++ * sizeof(int64_t), sizeof(int64_t));
        const int64_t number = parse_class(field.bytes, member.name);
        std::memcpy(place.data(), &number, sizeof number);
        field = {.name = field.name, .bytes = place, .dtype = plan::DType::int64};
      } else if (is_array_name(field.name)) {
        view_array(field, record);
      }
      record.fields.push_back(field);
    }
    for (const std::string& name : needed_)
      if (!record.find(name)) throw Damage(no_member(name), "a member for it");
  }

 private:
  // The walk's memory, which has the name, does not live as long as the record.
  static void add_key(std::string_view key, std::span<std::byte> room, Record& record) {
    require_short_key(key);
    std::memcpy(room.data(), key.data(), key.size());
    record.fields.push_back({.name = kKey, .bytes = room.first(key.size()), .encoded = true});
  }
  std::string_view name_of_extension(std::string_view extension) const {
    // They are sorted.
    const auto known = std::ranges::lower_bound(extensions_, extension, is_before_in_any_case);
    if (known != extensions_.end() && !is_before_in_any_case(extension, *known)) return *known;
    throw Damage(fmt::format("the record has a member '.{}' that it had not when it was indexed",
                             extension),
                 "trireme data index");
  }
  static void view_array(Field& field, Record& record) {
    const NpyHeader header = parse_npy_header(field.bytes, field.bytes.size());
    const size_t at = record.sizes.size();
    if (at + header.shape.size() > record.sizes.capacity())
      throw Damage("the record has too many arrays", "fewer arrays in a record",
                   ErrorCode::unsupported);
    record.sizes.insert(record.sizes.end(), header.shape.begin(), header.shape.end());
    field = {.name = field.name,
             .bytes = field.bytes.subspan(header.data, header.bytes),
             .dtype = header.dtype,
             .shape = std::span(record.sizes).subspan(at)};
  }

  std::vector<std::string> extensions_;
  std::vector<std::string> needed_;  // Those without which a record is damaged.
  const std::string measured_;
};

// The extensions that whole records have.
class SeenExtensions {
 public:
  struct Seen {
    uint64_t count = 0;
    std::string first_without;  // The first record that lacks it.
  };
  template <typename Place>
  void add_record(const std::vector<std::string>& extensions, const Place& place) {
    if (records_++ == 0) first_record_ = place();
    for (const std::string& extension : extensions)
      if (++seen_[extension].count == 1 && records_ > 1)
        seen_[extension].first_without = first_record_;
    if (seen_.size() > kMostFields) return;
    for (auto& [extension, seen] : seen_)
      if (seen.first_without.empty() &&
          std::ranges::find(extensions, extension) == extensions.end())
        seen.first_without = place();
  }
  bool is_everywhere(const Seen& seen) const { return seen.count == records_; }
  bool is_doubtful(const Seen& seen) const {
    return !is_everywhere(seen) && seen.count >= records_ / 2 && !seen.first_without.empty();
  }
  const std::map<std::string, Seen>& all() const { return seen_; }
  bool has(const std::string& extension) const { return seen_.contains(extension); }

 private:
  std::map<std::string, Seen> seen_;
  uint64_t records_ = 0;
  std::string first_record_;
};

// Finds the records of one tar file.
class TarScan {
 public:
  // `measured` is the member whose length the records have; empty: none.
  TarScan(uint32_t file, const Shards& shards, IndexContent& content, SeenExtensions& seen,
          std::string_view measured)
      : file_(file),
        shards_(shards),
        memory_bytes_(static_cast<uint64_t>(shards.memory_bytes())),
        content_(content),
        seen_(seen),
        measured_(measured) {}

  void run(Scanner scanner) {
    TarWalk walk;
    TarHeader member;
    try {
      while (walk.next(scanner, member)) add(scanner, member);
    } catch (const Damage& damage) {
      // The record in hand may have more members, which nobody finds.
      if (damage.code != ErrorCode::corrupt || in_record_.empty()) throw;
      is_damaged_ = true;
      content_.damage_last(place(), damage);
    }
    end_record();
  }

 private:
  std::string place() const {
    return fmt::format("{}, record {} at byte {}", shards_.path(file_).string(), number_,
                       content_.entries.back().offset);
  }
  void end_record() {
    if (in_record_.empty()) return;
    check_member([&] {
      if (!measured_.empty() && !is_damaged_ && content_.entries.back().length < 0)
        throw Damage(no_member(measured_), "a member for it");
    });
    if (is_damaged_)
      content_.entries.back().length = -1;
    else
      seen_.add_record(in_record_, [&] {
        return fmt::format("{}: record {}", shards_.files().names[file_], number_);
      });
    ++number_;
    in_record_.clear();
    is_damaged_ = false;
  }
  // The walk goes on behind a member that is damaged by itself.
  template <typename Action>
  void check_member(Action action) {
    try {
      action();
    } catch (const Damage& damage) {
      if (damage.code != ErrorCode::corrupt) throw;
      is_damaged_ = true;
      content_.damage_last(place(), damage);
    }
  }
  void add(Scanner& scanner, const TarHeader& member) {
    const auto [key, extension] = split_name(member.name);
    if (key.empty()) return;
    require_short_key(key);
    const std::string small = lower(extension);
    if (is_pickle(small))
      throw Damage(fmt::format("member '{}' is a pickle, which is never read, because it may "
                               "execute anything",
                               member.name),
                   "shards with numbers as .npy, .json or .cls", ErrorCode::unsupported);
    if (key != key_ || in_record_.empty()) {
      end_record();
      key_ = key;
      content_.add({.offset = member.begin, .file = file_});
    }
    Entry& entry = content_.entries.back();
    if (in_record_.size() + 1 >= kMostFields)
      throw Damage(fmt::format("the record '{}' has more than {} members", key_, kMostFields - 2),
                   "members with other keys", ErrorCode::invalid_argument);
    const std::string name(member.name);
    const bool is_there = std::ranges::find(in_record_, small) != in_record_.end();
    in_record_.push_back(small);
    entry.bytes = member.data + member.bytes - entry.offset;
    check_member([&] {
      if (is_there)
        throw Damage(fmt::format("member '{}' at byte {} is there twice in its record", name,
                                 member.begin));
      if (small == "cls") entry.label = parse_class(scanner.at(member.data, member.bytes), name);
      if (!is_array_name(small)) return;
      const NpyHeader header = header_of(scanner, member, name);
      if (small == measured_) entry.length = length_of(header, member, name);
    });
    if (entry.bytes > memory_bytes_)
      throw Damage(
          fmt::format("the record '{}' at byte {} has {} bytes, more than the {} of memory "
                      "for a record",
                      key_, entry.offset, entry.bytes, memory_bytes_),
          shards_.limits().remedy_of_memory, ErrorCode::invalid_argument);
  }

  static int64_t length_of(const NpyHeader& header, const TarHeader& member,
                           const std::string& name) {
    if (header.shape.size() == 1) return header.shape[0];
    throw Damage(fmt::format("member '{}' at byte {} has {} dimensions, and no length", name,
                             member.begin, header.shape.size()),
                 "arrays of one dimension", ErrorCode::invalid_argument);
  }

  static NpyHeader header_of(Scanner& scanner, const TarHeader& member, const std::string& name) {
    try {
      return parse_npy_header(scanner.at(member.data, std::min<uint64_t>(member.bytes, 64 << 10)),
                              member.bytes);
    } catch (Damage& damage) {
      damage.what = fmt::format("member '{}' at byte {}: {}", name, member.begin, damage.what);
      throw;
    }
  }

  uint32_t file_;
  const Shards& shards_;
  uint64_t memory_bytes_;
  IndexContent& content_;
  SeenExtensions& seen_;
  std::string_view measured_;
  // The record in hand: its number in the file, its key and the extensions of its members.
  uint64_t number_ = 0;
  std::string key_;
  std::vector<std::string> in_record_;
  bool is_damaged_ = false;
};

void finish_tar(const SeenExtensions& seen, IndexContent& content) {
  Json all = Json::array(), everywhere = Json::array();
  for (const auto& [name, of_records] : seen.all()) {
    all.push_back(name);
    if (seen.is_everywhere(of_records)) everywhere.push_back(name);
    if (seen.is_doubtful(of_records))
      content.doubtful[name] = fmt::format("{} has {}", of_records.first_without, no_member(name));
  }
  content.facts = {{"extensions", all}, {"everywhere", everywhere}};
}

std::vector<FieldSpec> specs_of_tar(const Json& facts, const std::vector<std::string>& needed) {
  std::vector<FieldSpec> specs{{.name = std::string(kKey), .encoded = true}};
  std::vector<std::string> names = facts.at("everywhere");
  names.insert(names.end(), needed.begin(), needed.end());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (is_number_of_class(name))
      specs.push_back(
          {.name = name, .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}});
    else
      specs.push_back({.name = name, .encoded = !is_array_name(name)});
  }
  return specs;
}

// Members of most records whose lack damages a record.
std::vector<std::string> needed_members(const OpenOptions& options, const Json& facts) {
  std::vector<std::string> doubtful;
  const Json reasons = facts.value(kDoubtfulFact, Json::object());
  for (const auto& [name, why] : reasons.items()) doubtful.push_back(name);
  const auto needed = needed_of(options, specs_of_tar(facts, doubtful));
  std::erase_if(doubtful, [&](const std::string& name) { return !needed.contains(name); });
  return doubtful;
}

}  // namespace

SharedReader open_webdataset(const OpenOptions& options) {
  SeenExtensions seen;
  const auto scan = [&](uint32_t file, const Shards& shards, IndexContent& content) {
    TarScan(file, shards, content, seen, options.length_of).run(shards.scanner(file));
  };
  if (const std::string& name = options.length_of; !name.empty() && !is_array_name(name))
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{} is '{}', and only arrays have a length",
                            options.name_of("length_of"), name),
                "a member .npy");
  const auto finish = [&](IndexContent& content) {
    finish_tar(seen, content);
    if (const std::string& name = options.length_of; !name.empty() && !seen.has(name))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}': no record that is whole has a member '.{}'",
                              shown_path(options.path), name),
                  "a member .npy that the records have");
  };
  IndexedFiles files = index_files(options, "webdataset", shards_of(options, "webdataset"),
                                   options_of_lengths(options), scan, finish);
  const Json& facts = files.index->facts();
  std::vector<std::string> needed = needed_members(options, facts);
  auto specs = specs_of_tar(facts, needed);
  return std::make_shared<WebDatasetReader>(std::move(files), std::move(specs), std::move(needed),
                                            options.length_of);
}

}  // namespace trireme::records
