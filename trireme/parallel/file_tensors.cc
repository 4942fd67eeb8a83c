#include <trireme/parallel/file_tensors.h>

#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <system_error>

namespace trireme {
namespace {

constexpr size_t kLeastTensor = 64 << 10;
constexpr size_t kTrail = 8 << 20;
// Addresses are not used again, so a file has more of them than the disk has space.
constexpr size_t kAddressesForAByte = 4, kMostAddresses = size_t{1} << 40;

size_t addresses_in(const std::string& folder) {
  std::error_code error;
  const auto free = std::filesystem::space(folder, error).available;
  // create_in() names the folder that cannot be used.
  if (error) return kLeastTensor;
  return std::clamp<size_t>(std::min<size_t>(free, kMostAddresses) * kAddressesForAByte,
                            kLeastTensor, kMostAddresses);
}

size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

FileTensors::FileTensors(const std::string& folder)
    : memory_(std::make_shared<net::SharedMemory>(
          net::SharedMemory::create_in(folder, addresses_in(folder), "tensors of a model"))),
      trail_(memory_, kTrail) {
  net::bring_neighbours(*memory_, false);  // A tensor is written once.
}

void* FileTensors::try_allocate(size_t bytes) {
  // The allocator's header ends where the tensor begins, which is the beginning of a page.
  const size_t head = whole_pages(kBlockHeaderBytes), whole = head + whole_pages(bytes);
  if (bytes < kLeastTensor || memory_->bytes() - end_ < whole) return nullptr;
  if (newest_bytes_ > 0) trail_.wrote(newest_, newest_bytes_);
  memory_->reserve(end_, whole);
  newest_ = end_ + head;
  newest_bytes_ = bytes;
  end_ += whole;
  const std::lock_guard lock(mutex_);
  bytes_at_[newest_] = bytes;
  return memory_->data() + newest_;
}

void FileTensors::give_back(void* data) {
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(data) - memory_->data());
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    bytes = bytes_at_.extract(offset).mapped();
  }
  const size_t head = whole_pages(kBlockHeaderBytes);
  net::discard(*memory_, offset - head, head + whole_pages(bytes));
}

TensorsInFiles::TensorsInFiles(const std::string& folder) {
  if (folder.empty()) return;
  install_cpu_allocator();
  scope_.emplace(std::make_shared<FileTensors>(folder));
}

}  // namespace trireme
