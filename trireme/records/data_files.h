// The files of a data set, as a path, a folder, a pattern or addresses name them.
#pragma once
#include <trireme/records/data_file.h>
#include <trireme/records/remote/remote_files.h>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

struct DataFiles {
  std::filesystem::path base;      // The folder that has all the files.
  std::vector<std::string> names;  // Below `base`, sorted.
  std::string given;               // The path that named them, without secrets.
  // Files on a server; otherwise null. `base` is then a part of their addresses.
  std::shared_ptr<RemoteFiles> remote = nullptr;

  // The path, or the address as messages show it.
  std::filesystem::path path_of(size_t file) const { return base / names[file]; }
  // Opens the file; one on a server is fetched before, if need be. Throws Damage.
  DataFile open(size_t file) const {
    return remote ? remote->open(file) : DataFile(path_of(file));
  }
};

// `path` is a file, a folder, or a pattern with *, {0000..0127} or {train,test}. A folder means
// its files whose names end in one of `ends` (any file, if there are none), but not those in
// folders below it; names that begin with a dot do not count. Throws Error(not_found) if there is
// no such file, or if one of the braces' files is missing, and Error(unsupported) for commands
// ("pipe:") and addresses, because only files are read.
DataFiles find_files(const std::string& path, std::span<const std::string_view> ends = {});

// The same files without packed ones whose unpacked twin is there too, as `gunzip -k` leaves them.
DataFiles without_packed_twins(DataFiles files);

// The files of one address, or of a pattern with {0000..0127} or {train,test}, which has no *. No
// server is asked. Throws Error(invalid_argument) naming what is wrong.
DataFiles find_remote_files(const std::string& address, const DownloadOptions& options);

// The paths that the braces of a pattern stand for, in order. Throws Error(invalid_argument) for
// more than a million, and for a range that is none.
std::vector<std::string> expand_braces(const std::string& pattern);

// True if `name` does not stay in the folder to which it is relative: if it is absolute, empty, or
// its ".." leads out.
bool leads_outside(std::string_view name);
// Throws Error(invalid_argument) if it does. `where` says who gave the name.
void require_inside(std::string_view name, std::string_view where);

}  // namespace trireme::records
