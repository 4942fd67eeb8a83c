// The files of a data set in Parquet or Arrow: their columns, and the groups of their rows. Arrow
// files on a server are fetched when the set is opened, because no index knows their rows.
#pragma once
#include <trireme/records/arrow/plugin.h>
#include <trireme/records/damage.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/open.h>
#include <trireme/records/shards.h>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrow_type.h"
#include "arrow_values.h"

namespace trireme::records {

class Index;

// The columns of a file that are read, in the order of the fields.
struct ArrowColumns {
  std::vector<ArrowType> types;
  std::vector<int> numbers;   // In the file, ascending: as the library wants them.
  std::vector<size_t> slots;  // Of each field: its place in `numbers`.
};

struct ArrowGroupPlace {
  size_t file = 0;
  int64_t group = 0;           // In the file.
  int64_t row_in_file = 0;     // Of its first row.
  int64_t first = 0, end = 0;  // Its records.
};

// Rows that were read together. Any number of threads.
class ArrowGroup {
 public:
  // Takes `handle` over. `map` has the memory that it views, or is null.
  ArrowGroup(const ArrowPlugin& plugin, void* handle, const ArrowGroupPlace& place,
             const ArrowColumns& columns, std::shared_ptr<const MappedFile> map);
  ~ArrowGroup() { plugin_.drop(handle_); }
  ArrowGroup(const ArrowGroup&) = delete;

  // The values of the fields, of the part that has the row, and the row's number in that part.
  std::pair<const std::vector<ArrowValues>*, int64_t> at(int64_t row) const {
    if (parts_.size() == 1 && row < parts_.front().end) return {&parts_.front().columns, row};
    return in_parts(row);
  }
  int64_t held_bytes() const { return held_bytes_; }
  const ArrowGroupPlace& place() const { return place_; }
  // Counts a row that was read. True for the last one, if each is read once.
  bool is_used_up() const { return ++reads_ == place_.end - place_.first; }

 private:
  struct Part {
    int64_t end = 0;
    std::vector<ArrowValues> columns;
  };
  std::pair<const std::vector<ArrowValues>*, int64_t> in_parts(int64_t row) const;

  const ArrowPlugin& plugin_;
  std::shared_ptr<const MappedFile> map_;
  void* handle_;
  ArrowGroupPlace place_;
  std::vector<Part> parts_;
  mutable std::atomic<int64_t> reads_{0};
  int64_t held_bytes_ = 0;
};

// Any number of threads.
class ArrowSet {
 public:
  // Throws Error naming the file, and the column if one is wrong.
  ArrowSet(const OpenOptions& options, const Format& format, ArrowFormat kind);
  ~ArrowSet();
  ArrowSet(const ArrowSet&) = delete;

  const std::vector<FieldSpec>& fields() const { return fields_; }
  // The columns and the label of the options, or those that they have chosen.
  const ColumnChoice& choice() const { return choice_; }
  const std::vector<ArrowGroupPlace>& groups() const { return groups_; }  // All have rows.
  const ArrowGroupPlace& group_of(int64_t record) const;
  // Whether files are fetched when their rows are read; then announcing them helps.
  bool fetches_ahead() const { return footers_ != nullptr; }
  const Shards& shards() const { return *shards_; }
  // The bytes of all groups together, by what the files state.
  int64_t stated_bytes() const;
  const std::vector<FileIdentity>& identities() const { return identities_; }
  std::string path(size_t file) const { return shards_->path(file).string(); }
  // "row group 3", or "batch 3".
  std::string name_of(const ArrowGroupPlace& place) const;
  // The labels of all records, kNoLabel for a row without one; empty if the options name no column
  // of labels. Throws Error.
  std::vector<int64_t> labels(const OpenOptions& options) const;
  // Throws Damage.
  std::unique_ptr<const ArrowGroup> read(const ArrowGroupPlace& place) const {
    return read(place, files_[place.file].columns);
  }
  // Throws Damage if a mapped file has become shorter.
  void check(size_t file) const {
    if (files_[file].map) files_[file].map->check();
  }

 private:
  struct File {
    void* handle = nullptr;
    std::shared_ptr<const MappedFile> map;
    ArrowColumns columns, label;
  };
  void fetch();
  void open(size_t file, const OpenOptions& options);
  void close();
  static std::vector<FieldSpec> specs_of(const ArrowSchema& schema, const ArrowColumns& columns);
  ArrowColumns choose(const ArrowSchema& schema, const std::vector<std::string>& names) const;
  ArrowColumns choose_label(const ArrowSchema& schema, const std::string& name) const;
  void add_groups(size_t file);
  std::vector<int64_t> labels_of(size_t file) const;
  std::unique_ptr<const ArrowGroup> read(const ArrowGroupPlace& place,
                                         const ArrowColumns& columns) const;
  void* read_columns(const ArrowGroupPlace& place, const std::vector<int>& columns) const;
  Damage name_column(const ArrowGroupPlace& place, const std::vector<int>& columns,
                     Damage damage) const;
  void require_unchanged(const DataFile& opened, size_t file) const;

  const ArrowPlugin& plugin_;
  ArrowFormat kind_;
  int64_t memory_bytes_;
  std::shared_ptr<Shards> shards_;
  std::shared_ptr<const Index> footers_;  // The index of Parquet files on a server, or null.
  std::vector<FileIdentity> identities_;
  std::vector<File> files_;
  std::vector<FieldSpec> fields_;
  std::vector<ArrowGroupPlace> groups_;
  ColumnChoice choice_;
};

}  // namespace trireme::records
