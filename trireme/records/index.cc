#include <trireme/records/index.h>

#include <fmt/format.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/records/damage.h>
#include <trireme/records/open.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>

namespace trireme::records {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "the index is mapped as it is");

constexpr std::string_view kMagic = "TRIRIDX1";
constexpr std::string_view kMakeAnew = "trireme data index";
constexpr size_t kMostDamaged = 10'000;

struct IndexHeader {
  std::array<char, 8> magic{};
  uint64_t fact_bytes = 0, entries = 0, name_bytes = 0;
  checkpoint::PieceDigest digest{};
};
static_assert(sizeof(IndexHeader) == 48);

checkpoint::PieceDigest digest_of_body(std::span<const std::byte> body) {
  checkpoint::Digest digest;
  digest.update(body);
  const auto pieces = digest.pieces();
  return checkpoint::digest_of_piece(std::as_bytes(std::span(pieces)));
}

void append(std::string& to, const void* bytes, size_t count) {
  to.append(static_cast<const char*>(bytes), count);
}

Json json_of(const FileIdentity& file) {
  return {file.name, file.bytes, file.mtime_ns, file.digest};
}

FileIdentity identity_of(const Json& json) {
  return {.name = json.at(0), .bytes = json.at(1), .mtime_ns = json.at(2), .digest = json.at(3)};
}

// Facts whose names begin with '_' are about the files' folders and times.
Json without_times(const Json& facts) {
  Json left = Json::object();
  for (const auto& [name, value] : facts.items())
    if (!name.starts_with('_')) left[name] = value;
  return left;
}

std::string content_of_index(const IndexRequest& request, const IndexContent& content,
                             std::span<const FileIdentity> files) {
  checkpoint::Digest digest;
  const std::string start =
      content_of(request.format, request.options, files) + without_times(content.facts).dump();
  digest.update(std::as_bytes(std::span(start)));
  std::vector<Entry> counted;
  if (request.counted)
    std::ranges::transform(content.entries, std::back_inserter(counted), request.counted);
  digest.update(std::as_bytes(std::span(request.counted ? counted : content.entries)));
  digest.update(std::as_bytes(std::span(content.names)));
  const std::string text = digest.text();
  return text.substr(text.find(':') + 1);
}

// The bytes of the index file; `json` is all but entries and names.
std::string bytes_of_index(const Json& json, std::span<const Entry> entries,
                           std::string_view names) {
  std::string facts = json.dump();
  facts.resize((facts.size() + 7) / 8 * 8, ' ');
  IndexHeader header{
      .fact_bytes = facts.size(), .entries = entries.size(), .name_bytes = names.size()};
  std::memcpy(header.magic.data(), kMagic.data(), kMagic.size());
  std::string bytes;
  bytes.reserve(sizeof header + facts.size() + entries.size_bytes() + names.size());
  append(bytes, &header, sizeof header);
  bytes += facts;
  append(bytes, entries.data(), entries.size_bytes());
  bytes += names;
  header.digest = digest_of_body(std::as_bytes(std::span(bytes)).subspan(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Json json_of_index(std::string_view format, const Json& options, const std::string& content,
                   std::span<const FileIdentity> files, const Json& facts) {
  Json listed = Json::array();
  for (const FileIdentity& file : files) listed.push_back(json_of(file));
  return {{"format", format},
          {"options", options},
          {"content", content},
          {"files", listed},
          {"facts", facts}};
}

void add_numbers(const char* fact, const std::map<std::string, int64_t>& numbers,
                 std::span<const FileIdentity> files, Json& facts) {
  // JSON compares the names of an object with each other. Of more fields, keep_largest() keeps
  // those that somebody asks for.
  constexpr size_t kMostNames = 1000;
  if (numbers.size() > kMostNames) return;
  std::vector<int64_t> times;
  for (const FileIdentity& file : files) times.push_back(file.mtime_ns);
  for (const auto& [field, number] : numbers)
    facts[fact][field] = {{"number", number}, {"stamp", stamp_of_all(times)}};
}

// Reasons may quote bytes of a file that are no text.
Json utf8_of(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

void add_reasons(IndexContent& content) {
  for (const auto& [name, why] : content.doubtful)
    content.facts[kDoubtfulFact][name] = utf8_of(why);
  for (const auto& [number, found] : content.damaged)
    content.facts[kDamagedFact].push_back(
        {number, utf8_of(found.damage.what), found.damage.remedy});
}

void refuse_damaged(const IndexContent& content, const std::string& more_remedy) {
  if (content.damaged.empty()) return;
  const auto& [place, damage] = content.damaged.begin()->second;
  throw error_of_damage(fmt::format("{}: {}", place, damage.what), damage.remedy,
                        content.damaged.size(), more_remedy);
}

std::string make_index(const IndexRequest& request) {
  const std::vector<FileIdentity> files = request.identities();
  IndexContent content = request.make();
  // Without a file of the index, because the record will be mended.
  if (!request.keeps_damaged) refuse_damaged(content, request.remedy_of_damage);
  add_reasons(content);
  add_numbers(kLargestFact, content.largest, files, content.facts);
  add_numbers(kLeastFact, content.least, files, content.facts);
  if (content.entries.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' has no record", request.files.given), "other files");
  return bytes_of_index(
      json_of_index(request.format, request.options, content_of_index(request, content, files),
                    files, content.facts),
      content.entries, content.names);
}

// The part of the path that is left in the folder of the files.
std::string given_in_base(const DataFiles& files) {
  const std::string base = files.base.string();
  std::string_view given = files.given;
  if (given.starts_with(base)) given.remove_prefix(base.size());
  while (given.starts_with('/')) given.remove_prefix(1);
  return std::string(given);
}

std::string name_of_index(const IndexRequest& request, std::string_view more) {
  // The scans of earlier versions left out facts, so their indexes have other names.
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}", request.format, request.options.dump(),
                  given_in_base(request.files), more, find_format(request.format).scans);
  return fmt::format(".trireme-{}-{}.index", request.format, digest_of(text).substr(0, 16));
}

fs::path index_elsewhere(const IndexRequest& request) {
  std::error_code unknown;
  if (request.files.remote)
    return index_folder(request.folder) / name_of_index(request, request.files.remote->key());
  const fs::path base = request.files.base.empty() ? fs::path(".") : request.files.base;
  const fs::path whole = fs::weakly_canonical(base, unknown);
  return index_folder(request.folder) /
         name_of_index(request, unknown ? base.string() : whole.string());
}

Error changed(const Index& index, std::string_view what) {
  return Error(ErrorCode::corrupt, "data",
               fmt::format("{} after the index {} was made", what, index.path().string()),
               fmt::format("{}{}", kMakeAnew,
                           index.options().contains(kLengthOf)
                               ? " --length-of " + index.options()[kLengthOf].get<std::string>()
                               : ""));
}

// Throws Error if a file is not the one that was indexed.
void check_files(const Index& index, const IndexRequest& request) {
  const auto& known = index.files();
  const auto& names = request.files.names;
  if (!std::ranges::equal(known, names, {}, &FileIdentity::name))
    throw changed(index, fmt::format("the files of '{}' became {}, from {},", request.files.given,
                                     names.size(), known.size()));
  // A file on a server is compared when it is fetched.
  for (size_t i = 0; i < known.size() && !request.files.remote; ++i) {
    const fs::path path = request.files.path_of(i);
    with_place(
        [&] { return path.string(); },
        [&] {
          const DataFile file(path);
          if (static_cast<int64_t>(file.size()) != known[i].bytes)
            throw changed(index, fmt::format("{} became {} bytes, from {},", path.string(),
                                             file.size(), known[i].bytes));
          if (file.mtime_ns() != known[i].mtime_ns && file.identity().digest != known[i].digest)
            throw changed(index, fmt::format("{} was changed", path.string()));
        });
  }
  if (request.check) {
    try {
      request.check(index);
    } catch (const Damage& damage) {
      throw changed(index, damage.what);
    }
  }
}

std::shared_ptr<const Index> write_index(const IndexRequest& request) {
  std::string bytes;
  try {
    bytes = make_index(request);
  } catch (const Json::type_error&) {
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("a name in '{}' is not in UTF-8", request.files.given),
                "names in UTF-8");
  }
  const fs::path beside = index_beside(request);
  const fs::path folder = beside.parent_path().empty() ? fs::path(".") : beside.parent_path();
  if (!request.files.remote && ::access(folder.c_str(), W_OK) == 0) {
    try {
      write_file_atomically(beside, bytes);
      return std::make_shared<const Index>(beside);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
    }
  }
  const fs::path elsewhere = index_elsewhere(request);
  require_writable_folder(elsewhere.parent_path());
  write_file_atomically(elsewhere, bytes);
  return std::make_shared<const Index>(elsewhere);
}

}  // namespace

std::string or_else(const std::string& remedy, const std::string& more_remedy) {
  return more_remedy.empty() ? remedy : fmt::format("{}, or {}", remedy, more_remedy);
}

Error error_of_damage(const std::string& what, const std::string& remedy, size_t count,
                      const std::string& more_remedy) {
  return Error(ErrorCode::corrupt, "data",
               count == 1 ? what : fmt::format("{}; {} records are damaged", what, count),
               or_else(remedy, more_remedy));
}

void IndexContent::begin_file(uint64_t packed_bytes, const UnpackLimits& limits) {
  first_of_file_ = entries.size();
  packed_bytes_ = packed_bytes;
  limits_ = limits;
}

void IndexContent::add_range(const std::string& field, int64_t least_number,
                             int64_t largest_number) {
  if (least_number >= 0)
    largest[field] = largest_number;
  else
    least[field] = least_number;
}

void IndexContent::add(const Entry& entry) {
  entries.push_back(entry);
  check_count(entries.size() - first_of_file_);
}

// An empty line is a compressed bit, and 40 bytes of the index.
void IndexContent::check_count(size_t entries_of_file) const {
  if (packed_bytes_ == 0 || !limits_.exceeds_ratio(packed_bytes_, entries_of_file * sizeof(Entry)))
    return;
  throw Damage(fmt::format("{} compressed bytes have {} records and more, whose index has over {} "
                           "times as many bytes",
                           packed_bytes_, entries_of_file, limits_.max_ratio),
               limits_.remedy_of_ratio(), ErrorCode::invalid_argument);
}

void IndexContent::add_damaged(const Entry& entry, std::string place, const Damage& damage) {
  add(entry);
  damage_last(std::move(place), damage);
}

void IndexContent::damage_last(std::string place, const Damage& damage) {
  if (damaged.size() == kMostDamaged)
    throw Damage(fmt::format("more than {} records are damaged, such as {}: {}", kMostDamaged,
                             place, damage.what),
                 damage.remedy, ErrorCode::invalid_argument);
  damaged.insert_or_assign(std::ssize(entries) - 1, FoundDamage{std::move(place), damage});
}

int64_t stamp_of_all(std::span<const int64_t> times) {
  uint64_t all = 0;
  for (const int64_t time : times) all = mix64(all, static_cast<uint64_t>(time));
  return static_cast<int64_t>(all);
}

Index::Index(fs::path path) : path_(std::move(path)) {
  const auto damaged = [&](std::string_view what) {
    return Error(ErrorCode::corrupt, "data",
                 fmt::format("the index {} is damaged: {}", path_.string(), what), kMakeAnew);
  };
  with_place([&] { return path_.string(); }, [&] { map_ = std::make_unique<MappedFile>(path_); });
  const auto bytes = map_->bytes();
  IndexHeader header;
  if (bytes.size() < sizeof header) throw damaged(fmt::format("it has {} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic.data(), kMagic.size()) != kMagic)
    throw damaged("it does not begin as an index of this version");
  const auto body = bytes.subspan(sizeof header);
  const bool fits =
      header.fact_bytes % 8 == 0 && header.fact_bytes <= body.size() &&
      header.entries <= (body.size() - header.fact_bytes) / sizeof(Entry) &&
      header.name_bytes == body.size() - header.fact_bytes - header.entries * sizeof(Entry);
  if (!fits) throw damaged(fmt::format("its {} bytes are not those it should have", bytes.size()));
  if (digest_of_body(body) != header.digest) throw damaged("its digest does not fit its bytes");
  const auto text = [](std::span<const std::byte> part) {
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  };
  entries_ = {reinterpret_cast<const Entry*>(body.data() + header.fact_bytes), header.entries};
  names_ = text(body.last(header.name_bytes));
  try {
    const Json json = Json::parse(text(body.first(header.fact_bytes)));
    facts_ = json.at("facts");
    format_ = json.at("format");
    options_ = json.at("options");
    content_ = json.at("content");
    for (const Json& file : json.at("files")) files_.push_back(identity_of(file));
    for (const Json& each : facts_.value(kDamagedFact, Json::array()))
      damaged_.emplace(each.at(0).get<int64_t>(), Damage(each.at(1), each.at(2)));
  } catch (const Json::exception& error) {
    throw damaged(error.what());
  }
  if (entries_.empty()) throw damaged("it has no entry");
}

Entry Index::entry(int64_t number) const {
  const Entry found = entries_[static_cast<size_t>(number)];
  // The entry is read before the map is checked, so that a lost page is noticed.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  with_place([&] { return "the index " + path_.string(); },
             [&] {
               map_->check();
               // The index may have come with the data.
               if (found.file >= std::max<size_t>(1, files_.size()))
                 throw Damage(fmt::format("its entry {} is in a file that it has not", number),
                              std::string(kMakeAnew));
             });
  return found;
}

void Index::require_whole(int64_t number) const {
  const auto found = damaged_.find(number);
  if (found != damaged_.end()) throw found->second;
}

void Index::keep(const std::function<void(Json& facts)>& change) const {
  try {
    const Index now(path_);  // Another process may have kept something meanwhile.
    if (now.content_ != content_ || now.files_ != files_) return;
    Json facts = now.facts_;
    change(facts);
    write_file_atomically(path_, bytes_of_index(json_of_index(now.format_, now.options_,
                                                              now.content_, now.files_, facts),
                                                now.entries_, now.names_));
  } catch (const Error& error) {
    log_debug("nothing is kept in the index {}: {}", path_.string(), brief(error));
  }
}

fs::path index_beside(const IndexRequest& request) {
  return request.files.base / name_of_index(request, {});
}

fs::path index_folder(const fs::path& chosen) {
  if (!chosen.empty()) return chosen;
  const Environment environment = Environment::of_process();
  if (const auto cache = environment.get("XDG_CACHE_HOME"); cache && !cache->empty())
    return fs::path(*cache) / "trireme";
  const auto home = environment.get("HOME");
  if (!home || home->empty())
    throw Error(ErrorCode::io, "data",
                "the data's folder cannot be written, and there is no HOME for the index",
                "a folder for the index that can be written");
  return fs::path(*home) / ".cache" / "trireme";
}

std::shared_ptr<const Index> open_index(const IndexRequest& request) {
  if (!request.make_anew) {
    for (const fs::path& path : {index_beside(request), index_elsewhere(request)}) {
      if (path == index_beside(request) && request.files.remote) continue;
      if (!path_exists(path)) continue;
      auto index = std::make_shared<const Index>(path);
      check_files(*index, request);
      return index;
    }
  }
  return write_index(request);
}

std::string content_of(std::string_view format, const Json& options,
                       std::span<const FileIdentity> files) {
  std::string text = fmt::format("{}\n{}\n", format, options.dump());
  for (const FileIdentity& file : files) text += fmt::format("{} {}\n", file.bytes, file.digest);
  return digest_of(text);
}

}  // namespace trireme::records
