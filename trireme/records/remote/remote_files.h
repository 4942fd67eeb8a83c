// The files of a data set on a server: each is fetched once for all processes of a host, when it
// is needed or ahead of need, into a folder of bounded size.
#pragma once
#include <trireme/records/data_file.h>
#include <trireme/records/remote/fetch.h>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::records {

// Any number of threads.
class RemoteFiles {
 public:
  // Throws Error(invalid_argument) naming an address or an option that is wrong.
  RemoteFiles(std::vector<std::string> addresses, DownloadOptions options);
  ~RemoteFiles();
  RemoteFiles(const RemoteFiles&) = delete;

  // A digest of the addresses, with what is behind their '?'.
  const std::string& key() const;
  const DownloadOptions& options() const;
  const std::string& address(size_t file) const;
  // Whether the file is in the folder.
  bool is_here(size_t file) const;
  // Opens the file, and fetches it before if it is not in the folder. While it is open, it is not
  // removed from there. Its mtime_ns() is of its bytes, and not a time. Throws Damage.
  DataFile open(size_t file) const;
  // The same for a file that stays open together with all others.
  DataFile open_to_stay(size_t file) const;

  // From now on the server is asked once for each file whether it has another version. If it
  // cannot be reached for one that stays open, the copies of earlier runs are used for all.
  void ask_for_changes();
  // From now on a file with another size or other bytes is an error. In the files' order.
  void expect(std::span<const FileIdentity> identities);

  // Announces files that are needed soon, in this order: they are fetched in the background, as
  // far as no announced file must go for them. Each announcement is taken back by one release().
  void announce(std::span<const size_t> files) const;
  // Returns true if no announcement of the file is left.
  bool release(size_t file) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::records
