// The index of a data set: where each record is. It is made once, and then every process maps it.
//
// The file (little-endian): "TRIRIDX1", the bytes of the facts, the number of entries and the
// bytes of the names (uint64 each), 16 bytes of XXH3 of everything behind them; the facts as JSON,
// filled up with spaces to a multiple of 8 bytes; the entries; the names. It is written under
// another name and renamed, so that two processes that make it at once do not disturb each other.
#pragma once
#include <trireme/base/json.h>
#include <trireme/records/damage.h>
#include <trireme/records/data_files.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/unpack.h>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>

namespace trireme::records {

inline constexpr int64_t kNoLabel = std::numeric_limits<int64_t>::min();

struct Entry {
  uint64_t offset = 0, bytes = 0;  // In the file, or in the block that it unpacks to.
  int64_t length = -1;             // -1: not known.
  int64_t label = kNoLabel;
  uint32_t file = 0;
  uint32_t extra = 0;  // The format's own: the number of a line, for example.
};
static_assert(sizeof(Entry) == 40);

// A record that is none.
struct FoundDamage {
  std::string place;  // With its file.
  Damage damage;
};

// What a format finds in the files.
struct IndexContent {
  // From now on, the entries that are added are those of another file, which has so many bytes if
  // it is packed, and otherwise 0.
  void begin_file(uint64_t packed_bytes, const UnpackLimits& limits);
  // Throws Damage if a packed file has too many entries for its bytes.
  void add(const Entry& entry);
  // Makes the check of add() for this number of entries of the file in hand.
  void check_count(size_t entries_of_file) const;
  // Gives a damaged record its number. Throws Damage if there are too many of them.
  void add_damaged(const Entry& entry, std::string place, const Damage& damage);
  // The same for the record that was added last.
  void damage_last(std::string place, const Damage& damage);

  // Keeps the largest of a field's numbers, or the least one if that is negative.
  void add_range(const std::string& field, int64_t least_number, int64_t largest_number);

  std::vector<Entry> entries;  // Those of a file follow each other, in the order of the files.
  std::string names;           // Texts that the format refers to by offset and length.
  Json facts = Json::object();
  // [field]: the largest of its numbers, if the format has seen all and none is negative.
  std::map<std::string, int64_t> largest = {};
  std::map<std::string, int64_t> least = {};         // The least one, if that is negative.
  std::map<std::string, std::string> doubtful = {};  // See Reader::doubtful_fields().
  std::map<int64_t, FoundDamage> damaged = {};       // By the numbers of the entries.

 private:
  size_t first_of_file_ = 0;
  uint64_t packed_bytes_ = 0;
  UnpackLimits limits_;
};

// A remedy, and a further one unless that is empty.
std::string or_else(const std::string& remedy, const std::string& more_remedy);
// The error of the first one of `count` damaged records.
Error error_of_damage(const std::string& what, const std::string& remedy, size_t count,
                      const std::string& more_remedy);

// The facts of an index about the largest and the least numbers of fields. They hold for files of
// the same times alone, while the index also holds for files that have another time and look the
// same.
inline constexpr const char* kLargestFact = "_largest";
inline constexpr const char* kLeastFact = "_least";
inline constexpr const char* kDoubtfulFact = "_doubtful";
inline constexpr const char* kDamagedFact = "_damaged";
// The option of an index that has lengths: the field that they are of.
inline constexpr const char* kLengthOf = "length_of";
// One number for the times of all files.
int64_t stamp_of_all(std::span<const int64_t> times);

class Index;

// A format's wish for an index.
struct IndexRequest {
  std::string format;
  const DataFiles& files;
  Json options = Json::object();  // Those that decide what is in the index.
  std::filesystem::path folder;   // For data in a folder that cannot be written; may be empty.
  bool make_anew = false;
  bool keeps_damaged = false;  // See OpenOptions.
  std::string remedy_of_damage = {};
  // The form in which the content counts an entry; empty: as it is.
  std::function<Entry(const Entry&)> counted = {};
  // The identities of the files. A format with many small files gives none and no names of files;
  // it has `check`.
  std::function<std::vector<FileIdentity>()> identities;
  std::function<IndexContent()> make;
  // Throws Damage saying what was changed, if the index does not fit the files. May be empty.
  std::function<void(const Index&)> check;
};

class Index {
 public:
  // Throws Error(corrupt) naming the file and the remedy, if it is damaged or cut.
  explicit Index(std::filesystem::path path);
  std::span<const Entry> entries() const { return entries_; }
  // An entry by its number, which is in the index. Throws Error(corrupt) if the index became
  // shorter after it was mapped.
  Entry entry(int64_t number) const;
  std::string_view names() const { return names_; }
  const Json& facts() const { return facts_; }
  const std::vector<FileIdentity>& files() const { return files_; }
  // Damaged records, by the numbers of their entries.
  const std::map<int64_t, Damage>& damaged() const { return damaged_; }
  // Throws Damage if the record is a damaged one.
  void require_whole(int64_t number) const;
  // A digest of everything but folders, names and times of files.
  const std::string& content() const { return content_; }
  const std::filesystem::path& path() const { return path_; }
  // Writes the file of the index anew with other facts, whose names begin with '_': about files
  // as they are, without an effect on the content. This object stays as it is. Does nothing, and
  // logs the reason, if the file cannot be written or is another index by now.
  void keep(const std::function<void(Json& facts)>& change) const;
  const Json& options() const { return options_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<MappedFile> map_;
  std::span<const Entry> entries_;
  std::string_view names_;
  std::string format_;
  Json facts_, options_;
  std::vector<FileIdentity> files_;
  std::map<int64_t, Damage> damaged_;
  std::string content_;
};

// Opens the index of the files, or makes it: beside the data, or in the folder for indexes if that
// cannot be written. Throws Error(corrupt) naming a file that changed after it was indexed, and
// the remedy; a damaged record, unless damaged ones are kept; and what `make` throws. Two calls at
// once make the same index.
std::shared_ptr<const Index> open_index(const IndexRequest& request);
// Where the index of the files is, if its folder can be written.
std::filesystem::path index_beside(const IndexRequest& request);
// The folder for indexes of data that cannot be written: `chosen`, or if it is empty
// $XDG_CACHE_HOME/trireme, or ~/.cache/trireme.
std::filesystem::path index_folder(const std::filesystem::path& chosen);

// The digest of a data set that has no index.
std::string content_of(std::string_view format, const Json& options,
                       std::span<const FileIdentity> files);

}  // namespace trireme::records
