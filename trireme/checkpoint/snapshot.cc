#include <trireme/checkpoint/snapshot.h>

#include <sys/mman.h>
#include <trireme/checkpoint/parallel.h>
#include <algorithm>
#include <cstring>
#include <new>

namespace trireme::checkpoint {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kCopyPiece = 1 << 20;  // What a thread copies at a time.

struct Copy {
  std::byte* to;
  std::span<const std::byte> from;
};

void plan_copies(const SafetensorsLayout& layout, const std::vector<TensorView>& tensors, std::span<std::byte> image,
                 std::vector<Copy>& copies) {
  std::memcpy(image.data(), layout.header.data(), layout.header.size());
  std::byte* to = image.data() + layout.header.size();
  for (const size_t i : layout.order) {
    const auto from = tensors[i].bytes;
    for (size_t at = 0; at < from.size(); at += kCopyPiece)
      copies.push_back({to + at, from.subspan(at, std::min(kCopyPiece, from.size() - at))});
    to += from.size();
  }
}

}  // namespace

PageBuffer::~PageBuffer() {
  if (start_ != nullptr) ::munmap(start_, capacity_);
}

std::span<std::byte> PageBuffer::resize(size_t bytes) {
  if (bytes > capacity_) {
    const size_t capacity = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* start = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    ::madvise(start, capacity, MADV_HUGEPAGE);  // Only advice: it may be refused.
    if (start_ != nullptr) ::munmap(start_, capacity_);
    start_ = static_cast<std::byte*>(start);
    capacity_ = capacity;
  }
  size_ = bytes;
  return {start_, size_};
}

void Snapshot::take(const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer, int threads) {
  const SafetensorsLayout model_layout = lay_out_model(model), optimizer_layout = lay_out(optimizer);
  std::vector<Copy> copies;
  plan_copies(model_layout, model, model_.resize(model_layout.bytes), copies);
  plan_copies(optimizer_layout, optimizer, optimizer_.resize(optimizer_layout.bytes), copies);
  in_parallel(copies.size(), threads, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) std::memcpy(copies[i].to, copies[i].from.data(), copies[i].from.size());
  });
}

std::vector<OutgoingFile> Snapshot::files(int part) const {
  std::vector<OutgoingFile> files = {{file_of_part(kOptimizerFile, part), {optimizer_.bytes()}}};
  if (part == 0) files.insert(files.begin(), {kModelFile, {model_.bytes()}});
  return files;
}

}  // namespace trireme::checkpoint
