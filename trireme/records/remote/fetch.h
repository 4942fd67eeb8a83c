// Fetches one file from a server into the folder of downloads, once for all processes of a host.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/records/remote/download_folder.h>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

namespace trireme::records {

struct DownloadOptions {
  // Empty: the folder downloads in the user's cache (index_folder()).
  std::filesystem::path folder = {};
  // The most that the folder holds; -1: half of the disk space that is free or taken by it.
  int64_t bytes = -1;
  // A server that sends nothing for so long is asked again.
  Milliseconds timeout{30'000};
  int tries = 5;  // So many in a row that bring nothing new end in an error.
};

enum class FetchNeed {
  now,    // Files that are not in use make room, and if need be the folder grows beyond its limit.
  stays,  // The file stays open beside others, so the folder must have room for it.
  ahead,  // A file for later: it is left out if there is no room or another process fetches it.
};

struct FetchWish {
  std::string address;
  std::string shown;  // For messages.
  std::string name;   // In the folder.
  FetchNeed need = FetchNeed::now;
  int64_t bytes = -1;  // The size that it must have; -1: any.
  int64_t stamp = 0;   // Its bytes must have this stamp_of(); 0: any.
  // Whether the server is to be asked if the file in the folder is still the same.
  std::function<bool()> ask = {};
  // The files of the folder that are needed soon. They are removed last.
  std::function<bool(const std::string& name)> keep = {};
  // Called when another thread or process was at the file and has left it unfetched. May throw.
  std::function<void()> was_left = {};
  // Whether the file that was fetched earlier may be used, if the server cannot be reached.
  std::function<bool()> may_use_old = {};
  // Called when the server was asked and has sent another file than the one that was fetched
  // earlier, or one that was not there.
  std::function<void()> is_renewed = {};
  std::stop_token stop = {};
};

// A number that differs if the bytes of the file do.
int64_t stamp_of(const FetchedFacts& facts);

// Returns nothing only if it was asked to stop, or could not fetch the file ahead. Any thread.
// Throws Damage: not_found, io, timeout, corrupt if the file is not the one that it must be, and
// invalid_argument if the folder has no room for it.
std::optional<FetchedFile> fetch(const DownloadFolder& folder, const DownloadOptions& options,
                                 const FetchWish& wish);

}  // namespace trireme::records
