// The files of formats with records of fixed size, which are views of the mapped files.
#pragma once
#include <trireme/records/damage.h>
#include <trireme/records/data_files.h>
#include <trireme/records/index.h>
#include <trireme/records/indexed_reader.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/open.h>
#include <algorithm>
#include <span>
#include <vector>

namespace trireme::records {

struct MappedFiles {
  DataFiles files;
  std::vector<std::unique_ptr<MappedFile>> maps;
  std::vector<FileIdentity> identities;

  std::string path(size_t file) const { return files.path_of(file).string(); }
};

// Opens a file that is mapped as long as its reader lives.
inline DataFile open_to_stay(const DataFiles& files, size_t file) {
  return files.remote ? files.remote->open_to_stay(file) : files.open(file);
}

// Files that are packed by gzip or zstd are unpacked into memory, together as one block. Throws
// Error naming the file that cannot be opened.
inline MappedFiles map_files(DataFiles files, UnpackLimits limits) {
  MappedFiles mapped{
      .files = without_packed_twins(std::move(files)), .maps = {}, .identities = {}};
  // No index knows which version is the right one.
  if (mapped.files.remote) mapped.files.remote->ask_for_changes();
  for (size_t file = 0; file < mapped.files.names.size(); ++file)
    with_place([&] { return mapped.path(file); },
               [&] {
                 mapped.maps.push_back(
                     std::make_unique<MappedFile>(open_to_stay(mapped.files, file), limits));
                 limits.taken_bytes += mapped.maps.back()->unpacked_bytes();
                 mapped.identities.push_back(mapped.maps.back()->file().identity());
                 mapped.identities.back().name = mapped.files.names[file];
               });
  return mapped;
}

// The blocks of files whose first records have these numbers.
inline std::vector<int64_t> blocks_of_files(std::span<const int64_t> first, int64_t size) {
  std::vector<int64_t> blocks;
  for (size_t file = 0; file < first.size(); ++file) {
    const int64_t end = file + 1 < first.size() ? first[file + 1] : size;
    if (end > first[file]) blocks.push_back(end - first[file]);
  }
  return blocks;
}

// Of the files when they were opened. Those of a server have no times, but numbers of their bytes.
inline int64_t newest_time(const MappedFiles& mapped) {
  int64_t newest = 0;
  for (const FileIdentity& file : mapped.identities)
    newest = mapped.files.remote ? newest ^ file.mtime_ns : std::max(newest, file.mtime_ns);
  return newest;
}

}  // namespace trireme::records
