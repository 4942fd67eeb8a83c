#include "arrow_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <trireme/base/units.h>
#include <trireme/records/index.h>
#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>

#include "arrow_library.h"
#include "mapped_files.h"
#include "parquet_index.h"

namespace trireme::records {
namespace {

// A file while the library reads it. The library gets no exception through its C functions.
struct FileBeingRead {
  std::function<void(uint64_t offset, std::span<std::byte> bytes)> fill;
  std::optional<Damage> damage{};

  static bool read(void* self, int64_t offset, int64_t bytes, void* to) {
    auto& mine = *static_cast<FileBeingRead*>(self);
    try {
      mine.fill(static_cast<uint64_t>(offset),
                {static_cast<std::byte*>(to), static_cast<size_t>(bytes)});
      return true;
    } catch (const Damage& damage) {
      mine.damage = damage;
      return false;
    }
  }
};

Damage damage_of(const ArrowReply& reply, const FileBeingRead& reading,
                 const UnpackLimits& limits) {
  switch (reply.failure) {
    case ArrowFailure::source:
      if (reading.damage) return *reading.damage;
      break;
    case ArrowFailure::unsupported:
      return Damage(reply.text, "a file of another kind", ErrorCode::unsupported);
    case ArrowFailure::memory:
      return Damage(fmt::format("it needs too much memory: {}", reply.text),
                    limits.remedy_of_memory + ", or a file with fewer rows in a row group",
                    ErrorCode::invalid_argument);
    default: break;
  }
  return Damage(reply.text);
}

Damage in_column(std::string_view name, Damage damage) {
  damage.what = fmt::format("column '{}': {}", name, damage.what);
  return damage;
}

std::string name_of_column(const ArrowSchema& schema, int64_t column) {
  const char* const name = schema.children[column]->name;
  return name ? name : "";
}

std::vector<std::string> names_of_columns(const ArrowSchema& schema) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    names.push_back(name_of_column(schema, i));
    if (names.back().empty() || !known.insert(names.back()).second)
      throw Damage(fmt::format("the name '{}' of a column is empty or there twice", names.back()),
                   "a file whose columns have names of their own", ErrorCode::invalid_argument);
  }
  return names;
}

}  // namespace

ArrowGroup::ArrowGroup(const ArrowPlugin& plugin, void* handle, const ArrowGroupPlace& place,
                       const ArrowColumns& columns, std::shared_ptr<const MappedFile> map)
    : plugin_(plugin),
      map_(std::move(map)),
      handle_(handle),
      place_(place),
      held_bytes_(plugin.held_bytes(handle)) {
  try {
    int64_t end = 0;
    for (int64_t i = 0; i < plugin.parts(handle); ++i) {
      const ArrowArray& array = *plugin.part(handle, i);
      if (std::cmp_not_equal(array.n_children, columns.numbers.size()) || array.offset != 0)
        throw Damage("it has other columns than the file states");
      Part part{.end = end += array.length, .columns = {}};
      for (size_t field = 0; field < columns.types.size(); ++field) {
        const ArrowArray& column = *array.children[columns.slots[field]];
        if (column.length < array.length) throw Damage("a column has too few rows");
        part.columns.emplace_back(columns.types[field], column);
        held_bytes_ += part.columns.back().held_bytes();
      }
      parts_.push_back(std::move(part));
    }
  } catch (...) {
    parts_.clear();
    plugin_.drop(handle_);
    throw;
  }
}

std::pair<const std::vector<ArrowValues>*, int64_t> ArrowGroup::in_parts(int64_t row) const {
  const auto part = std::ranges::upper_bound(parts_, row, {}, &Part::end);
  if (part == parts_.end()) throw Damage("it has fewer rows than the file states");
  return {&part->columns, part == parts_.begin() ? row : row - std::prev(part)->end};
}

ArrowSet::ArrowSet(const OpenOptions& options, const Format& format, ArrowFormat kind)
    : plugin_(arrow_library()),
      kind_(kind),
      memory_bytes_(options.memory_bytes),
      shards_(std::make_shared<Shards>(files_of(options, format.ends), options.unpack_limits(),
                                       options.memory_of_blocks(), /*may_be_packed=*/false)),
      files_(shards_->count()),
      choice_{options.columns, options.label} {
  if (shards_->is_remote() && kind_ == ArrowFormat::parquet) {
    footers_ = index_of_footers(options, shards_);
    identities_ = footers_->files();
  } else if (shards_->is_remote()) {
    fetch();
  } else {
    identities_ = shards_->identities();
  }
  shards_->expect(identities_);
  try {
    for (size_t file = 0; file < files_.size(); ++file)
      with_place([&] { return path(file); }, [&] { open(file, options); });
  } catch (...) {
    close();
    throw;
  }
}

ArrowSet::~ArrowSet() { close(); }

void ArrowSet::close() {
  for (const File& file : files_)
    if (file.handle) plugin_.close(file.handle);
}

void ArrowSet::fetch() {
  shards_->files().remote->ask_for_changes();
  for (size_t file = 0; file < files_.size(); ++file)
    with_place([&] { return path(file); },
               [&] {
                 DataFile opened = open_to_stay(shards_->files(), file);
                 identities_.push_back(opened.identity());
                 identities_.back().name = shards_->name(file);
                 files_[file].map = std::make_shared<const MappedFile>(std::move(opened));
               });
}

void ArrowSet::open(size_t file, const OpenOptions& options) {
  File& mine = files_[file];
  if (kind_ == ArrowFormat::ipc && !mine.map)
    mine.map = std::make_shared<const MappedFile>(shards_->path(file));
  FileBeingRead reading{[&](uint64_t offset, std::span<std::byte> bytes) {
    if (!footers_ || !read_kept(*footers_, file, offset, bytes))
      shards_->open(file)->read(offset, bytes);
  }};
  ArrowSource source{
      .bytes = identities_[file].bytes, .file = &reading, .read = FileBeingRead::read};
  if (mine.map) source.map = mine.map->bytes().data();
  if (mine.map && source.bytes == 0) throw Damage("it is empty");
  ArrowReply reply;
  mine.handle = plugin_.open(&source, kind_, memory_bytes_, &reply);
  if (!mine.handle) throw damage_of(reply, reading, shards_->limits());
  const ArrowSchema& schema = *plugin_.schema(mine.handle);
  if (file == 0 && options.choose)
    choice_ = options.choose(specs_of(schema, choose(schema, options.columns)));
  mine.columns = choose(schema, choice_.columns);
  if (!choice_.label.empty()) mine.label = choose_label(schema, choice_.label);

  const std::vector<FieldSpec> fields = specs_of(schema, mine.columns);
  if (file == 0) fields_ = fields;
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto same = [](const FieldSpec& a, const FieldSpec& b) {
      return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
             a.encoded == b.encoded;
    };
    if (fields.size() != fields_.size() || !same(fields[i], fields_[i]))
      throw Damage(fmt::format("its column '{}' is not as in {}", fields[i].name, path(0)),
                   "files with the same columns", ErrorCode::invalid_argument);
  }
  add_groups(file);
}

std::vector<FieldSpec> ArrowSet::specs_of(const ArrowSchema& schema, const ArrowColumns& columns) {
  std::vector<FieldSpec> fields;
  for (size_t i = 0; i < columns.types.size(); ++i)
    fields.push_back(spec_of_arrow(name_of_column(schema, columns.numbers[columns.slots[i]]),
                                   columns.types[i]));
  return fields;
}

ArrowColumns ArrowSet::choose(const ArrowSchema& schema,
                              const std::vector<std::string>& chosen) const {
  const std::vector<std::string> names = names_of_columns(schema);
  ArrowColumns columns;
  std::vector<int> numbers;
  for (const std::string& name : chosen.empty() ? names : chosen) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      throw Damage(fmt::format("there is no column '{}'", name),
                   fmt::format("one of {}", fmt::join(names, ", ")), ErrorCode::invalid_argument);
    numbers.push_back(static_cast<int>(found - names.begin()));
    try {
      columns.types.push_back(type_of_arrow(*schema.children[numbers.back()]));
    } catch (const Damage& damage) {
      throw in_column(name, damage);
    }
  }
  if (numbers.empty())
    throw Damage("it has no column", "a file with columns", ErrorCode::invalid_argument);
  columns.numbers = numbers;
  std::ranges::sort(columns.numbers);
  for (const int number : numbers)
    columns.slots.push_back(static_cast<size_t>(std::ranges::lower_bound(columns.numbers, number) -
                                                columns.numbers.begin()));
  return columns;
}

ArrowColumns ArrowSet::choose_label(const ArrowSchema& schema, const std::string& name) const {
  ArrowColumns label = choose(schema, {name});
  using plan::DType;
  const DType dtype = label.types[0].dtype;
  const bool is_whole = label.types[0].kind == ArrowType::Kind::number &&
                        dtype != DType::float16 && dtype != DType::float32 &&
                        dtype != DType::float64;
  if (!is_whole && label.types[0].kind != ArrowType::Kind::boolean)
    throw in_column(name,
                    Damage(fmt::format("labels are whole numbers, but its type is {}",
                                       describe_arrow_type(*schema.children[label.numbers[0]])),
                           "labels as numbers", ErrorCode::invalid_argument));
  return label;
}

void ArrowSet::add_groups(size_t file) {
  constexpr int64_t kMostRecords = int64_t{1} << 53;
  int64_t rows_before = 0;
  for (int64_t group = 0; group < plugin_.groups(files_[file].handle); ++group) {
    const int64_t rows = plugin_.rows(files_[file].handle, group);
    if (rows == 0) continue;
    const int64_t first = groups_.empty() ? 0 : groups_.back().end;
    if (rows < 0 || rows > kMostRecords - first)
      throw Damage(fmt::format("it states {} rows in one group", rows));
    groups_.push_back({.file = file,
                       .group = group,
                       .row_in_file = rows_before,
                       .first = first,
                       .end = first + rows});
    rows_before += rows;
  }
}

const ArrowGroupPlace& ArrowSet::group_of(int64_t record) const {
  return *std::ranges::upper_bound(groups_, record, {}, &ArrowGroupPlace::end);
}

int64_t ArrowSet::stated_bytes() const {
  int64_t left = std::numeric_limits<int64_t>::max();
  for (const ArrowGroupPlace& place : groups_) {
    const File& file = files_[place.file];
    const auto& columns = file.columns.numbers;
    left -= std::min(
        left, plugin_.stated_bytes(file.handle, place.group, columns.data(), std::ssize(columns)));
  }
  return std::numeric_limits<int64_t>::max() - left;
}

std::string ArrowSet::name_of(const ArrowGroupPlace& place) const {
  return fmt::format("{} {}", kind_ == ArrowFormat::parquet ? "row group" : "batch", place.group);
}

std::vector<int64_t> ArrowSet::labels(const OpenOptions& options) const {
  if (choice_.label.empty()) return {};
  std::vector<int64_t> labels;
  if (footers_) {
    labels = kept_labels(options, shards_, identities_, choice_.label,
                         [this](size_t file) { return labels_of(file); });
  } else {
    for (size_t file = 0; file < files_.size(); ++file)
      std::ranges::copy(labels_of(file), std::back_inserter(labels));
  }
  if (std::cmp_not_equal(labels.size(), groups_.empty() ? 0 : groups_.back().end))
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("the index of the column '{}' of {} has {} labels for {} rows",
                            choice_.label, path(0), labels.size(), groups_.back().end),
                "trireme data index, which makes it anew");
  return labels;
}

std::vector<int64_t> ArrowSet::labels_of(size_t file) const {
  std::vector<int64_t> labels;
  for (const ArrowGroupPlace& place :
       std::ranges::equal_range(groups_, file, {}, &ArrowGroupPlace::file)) {
    with_place([&] { return fmt::format("{}, {}", path(place.file), name_of(place)); },
               [&] {
                 const auto group = read(place, files_[place.file].label);
                 for (int64_t row = 0; row < place.end - place.first; ++row) {
                   const auto [columns, number] = group->at(row);
                   labels.push_back((*columns)[0].whole_number(number).value_or(kNoLabel));
                 }
               });
  }
  return labels;
}

std::unique_ptr<const ArrowGroup> ArrowSet::read(const ArrowGroupPlace& place,
                                                 const ArrowColumns& columns) const {
  const int64_t stated = plugin_.stated_bytes(files_[place.file].handle, place.group,
                                              columns.numbers.data(), std::ssize(columns.numbers));
  if (stated > memory_bytes_)
    throw Damage(fmt::format("{} states {}, more than the {} of memory for a record",
                             name_of(place), format_bytes(stated), format_bytes(memory_bytes_)),
                 shards_->limits().remedy_of_memory + ", or a file with fewer rows in a row group",
                 ErrorCode::invalid_argument);
  void* group = nullptr;
  try {
    group = read_columns(place, columns.numbers);
  } catch (const Damage& damage) {
    throw name_column(place, columns.numbers, damage);
  }
  return std::make_unique<const ArrowGroup>(plugin_, group, place, columns,
                                            files_[place.file].map);
}

// The reason is not always the same when the columns are read one by one, but then it is known
// which one is wrong.
Damage ArrowSet::name_column(const ArrowGroupPlace& place, const std::vector<int>& columns,
                             Damage damage) const {
  if (damage.code != ErrorCode::corrupt && damage.code != ErrorCode::unsupported) return damage;
  for (const int column : columns) {
    try {
      plugin_.drop(read_columns(place, {column}));
    } catch (const Damage& alone) {
      return in_column(name_of_column(*plugin_.schema(files_[place.file].handle), column), alone);
    }
  }
  return damage;
}

void* ArrowSet::read_columns(const ArrowGroupPlace& place, const std::vector<int>& columns) const {
  const File& mine = files_[place.file];
  std::shared_ptr<const DataFile> opened;
  if (!mine.map) opened = shards_->open(place.file);
  const DataFile& file = mine.map ? mine.map->file() : *opened;
  require_unchanged(file, place.file);
  FileBeingRead reading{
      [&](uint64_t offset, std::span<std::byte> bytes) { file.read(offset, bytes); }};
  ArrowSource source{
      .bytes = identities_[place.file].bytes, .file = &reading, .read = FileBeingRead::read};
  if (mine.map) source.map = mine.map->bytes().data();
  ArrowReply reply;
  // Arrow needs the packed bytes and the unpacked ones at once for a while.
  void* const group = plugin_.read(mine.handle, &source, place.group, columns.data(),
                                   std::ssize(columns), 2 * memory_bytes_, &reply);
  if (!group) throw damage_of(reply, reading, shards_->limits());
  return group;
}

// What is known of the file, such as the places of its columns, must hold when a group is read.
void ArrowSet::require_unchanged(const DataFile& opened, size_t file) const {
  const FileIdentity& known = identities_[file];
  struct stat status {};
  if (::fstat(opened.descriptor(), &status) != 0)
    throw Damage(fmt::format("it cannot be examined: {}", std::generic_category().message(errno)),
                 "check the file and its disk", ErrorCode::io);
  if (status.st_size != known.bytes)
    throw Damage(fmt::format("the file had {} bytes when it was opened, and now has {}",
                             known.bytes, status.st_size),
                 "leave the file alone while it is read");
  if (shards_->is_remote()) return;  // Nobody writes into a file that was fetched.
  const int64_t time = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (time != known.mtime_ns && opened.identity().digest != known.digest)
    throw Damage("the file was changed after it was opened",
                 "leave the file alone while it is read");
}

}  // namespace trireme::records
