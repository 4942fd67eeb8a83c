// The folder of fetched files, which all processes of a host share. It knows no network.
//
// A whole file is NAME.shard with its facts in NAME.json; one that is being fetched is NAME.part
// with NAME.part.json. The process that fetches a file has an exclusive lock (flock) on NAME.part,
// and renames it when it is whole and synchronised. A process that reads NAME.shard has a shared
// lock on it, so that no other removes it to make room. A process that removes files, or gives one
// its final name, has an exclusive lock on .room. All locks end with their process.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme::records {

// What is known of a fetched file.
struct FetchedFacts {
  int64_t bytes = -1;
  std::string version;  // See net::DownloadHead.
  std::string digest;   // XXH3 of all bytes; empty: it is not whole.
};

struct FetchedFile {
  Descriptor descriptor;  // For reading, with the shared lock.
  FetchedFacts facts;
};

// By what an opened file is known again.
struct KnownFile {
  uint64_t device = 0, number = 0;
  int64_t bytes = -1;
};

struct PartialFile {
  Descriptor descriptor;  // For writing, with the exclusive lock.
  int64_t bytes = 0;      // Those that are there, of the version of `facts`.
  FetchedFacts facts;
};

// Any number of threads and processes.
class DownloadFolder {
 public:
  // Makes the folder, and on a network file system one of this host in it. Throws Error(io).
  explicit DownloadFolder(std::filesystem::path folder);
  const std::filesystem::path& path() const { return folder_; }

  bool has(const std::string& name) const;
  // The file, if it is there and whole; it counts as used now.
  std::optional<FetchedFile> open(const std::string& name) const;
  // The same file again, quickly: nothing if it is another one now.
  Descriptor reopen(const std::string& name, const KnownFile& known) const;
  // The file that is to be fetched, or nothing if another process is at it.
  std::optional<PartialFile> begin(const std::string& name) const;
  // The bytes of a file that another process fetches; -1 if there is none.
  int64_t progress(const std::string& name) const;
  // Forgets the bytes that are there, and notes the facts of those that will follow. Throws
  // Damage.
  void restart(PartialFile& part, const std::string& name, FetchedFacts facts) const;
  // Gives up a part that nobody needs.
  void drop(PartialFile part, const std::string& name) const;
  // Notes the digest of a part that has all its bytes. Throws Damage.
  void note_digest(PartialFile& part) const;
  // Makes a whole file of it. Returns it as open() does. Throws Damage.
  FetchedFile finish(PartialFile part, const std::string& name) const;

  // Takes disk space for `bytes` more bytes of `part`, so that all files have at most `most` (-1:
  // half of the disk space that is free or taken by them). Removes files that are not in use,
  // those that were used the longest time ago first, but none for which `keep` is true. Returns
  // false if that is not enough; then nothing is taken.
  bool make_room(PartialFile& part, int64_t bytes, int64_t most,
                 const std::function<bool(const std::string& name)>& keep) const;
  // The bytes that the files may have together.
  int64_t limit(int64_t most) const;
  // Takes the disk space without regard to a limit.
  void reserve(PartialFile& part, int64_t bytes) const;

 private:
  std::filesystem::path file(const std::string& name, const char* end) const;
  std::filesystem::path folder_;
};

KnownFile known_file(const Descriptor& file);

}  // namespace trireme::records
