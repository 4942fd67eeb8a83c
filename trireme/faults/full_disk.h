// A disk that is full for the next write of a checkpoint, for the fault disk-full.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <atomic>

namespace trireme {

// Passes everything on to `files`, except the first write after fill(): that one fails as on a
// disk without space.
class FullDisk : public checkpoint::FileSystem {
 public:
  explicit FullDisk(checkpoint::FileSystem& files = checkpoint::disk()) : files_(files) {}
  void fill() { full_ = true; }  // Any thread.

  std::unique_ptr<File> create(const std::filesystem::path& path) override;
  void make_folder(const std::filesystem::path& path) override { files_.make_folder(path); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    files_.rename(from, to);
  }
  void remove(const std::filesystem::path& path) override { files_.remove(path); }
  void remove_tree(const std::filesystem::path& path) override { files_.remove_tree(path); }
  void sync_folder(const std::filesystem::path& path) override { files_.sync_folder(path); }
  std::vector<Entry> list(const std::filesystem::path& folder) override {
    return files_.list(folder);
  }
  std::unique_ptr<Lock> try_lock(const std::filesystem::path& file, std::string_view mine,
                                 std::string& holder) override {
    return files_.try_lock(file, mine, holder);
  }

 private:
  checkpoint::FileSystem& files_;
  std::atomic<bool> full_{false};
};

}  // namespace trireme
