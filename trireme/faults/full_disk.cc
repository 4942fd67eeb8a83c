#include <trireme/faults/full_disk.h>
#include <cerrno>

namespace trireme {
namespace {

class FillableFile : public checkpoint::FileSystem::File {
 public:
  FillableFile(std::unique_ptr<checkpoint::FileSystem::File> file, std::filesystem::path path,
               std::atomic<bool>& full)
      : file_(std::move(file)), path_(std::move(path)), full_(full) {}

  size_t write(std::span<const std::byte> bytes) override {
    if (full_.exchange(false)) checkpoint::refuse_write(path_, ENOSPC, written_);
    const size_t count = file_->write(bytes);
    written_ += count;
    return count;
  }
  void sync() override { file_->sync(); }

 private:
  std::unique_ptr<checkpoint::FileSystem::File> file_;
  std::filesystem::path path_;
  std::atomic<bool>& full_;
  uint64_t written_ = 0;
};

}  // namespace

std::unique_ptr<checkpoint::FileSystem::File> FullDisk::create(const std::filesystem::path& path) {
  return std::make_unique<FillableFile>(files_.create(path), path, full_);
}

}  // namespace trireme
