#include <trireme/checkpoint/snapshot.h>

#include <sys/mman.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/parallel.h>
#include <algorithm>
#include <cstring>
#include <new>

namespace trireme::checkpoint {
namespace {

constexpr size_t kHugePage = 2 << 20;

// The plan from which a file's image is put together.
class Assembly {
 public:
  Assembly(const SafetensorsLayout& layout, const std::vector<TensorView>& tensors,
           std::span<std::byte> image)
      : image_(image), digests_(digest_pieces(image.size())) {
    add(std::as_bytes(std::span(layout.header)));
    for (const size_t i : layout.order) add(tensors[i].bytes);
  }
  size_t pieces() const { return digests_.size(); }

  // Any thread may call it, once for each piece.
  void copy_and_hash(size_t piece) {
    const size_t begin = piece * kDigestPiece, end = std::min(image_.size(), begin + kDigestPiece);
    auto part = std::partition_point(parts_.begin(), parts_.end(), [&](const Part& each) {
      return each.at + each.from.size() <= begin;
    });
    for (size_t at = begin; at < end; ++part) {
      const auto from = part->from.subspan(at - part->at);
      const size_t count = std::min(from.size(), end - at);
      std::memcpy(image_.data() + at, from.data(), count);
      at += count;
    }
    digests_[piece] = digest_of_piece(image_.subspan(begin, end - begin));
  }
  std::vector<PieceDigest> digests() { return std::move(digests_); }

 private:
  struct Part {
    size_t at;  // The place in the image.
    std::span<const std::byte> from;
  };
  void add(std::span<const std::byte> from) {
    if (from.empty()) return;
    parts_.push_back({bytes_, from});
    bytes_ += from.size();
  }

  std::span<std::byte> image_;
  std::vector<Part> parts_;
  std::vector<PieceDigest> digests_;
  size_t bytes_ = 0;
};

}  // namespace

PageBuffer::~PageBuffer() {
  if (start_ != nullptr) ::munmap(start_, capacity_);
}

std::span<std::byte> PageBuffer::resize(size_t bytes) {
  if (bytes > capacity_) {
    const size_t capacity = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* start =
        ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    // This is only a hint, and the system may refuse it.
    ::madvise(start, capacity, MADV_HUGEPAGE);
    if (start_ != nullptr) ::munmap(start_, capacity_);
    start_ = static_cast<std::byte*>(start);
    capacity_ = capacity;
  }
  size_ = bytes;
  return {start_, size_};
}

void Snapshot::take(const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer,
                    int threads) {
  const SafetensorsLayout model_layout = lay_out_model(model),
                          optimizer_layout = lay_out(optimizer);
  Assembly first(model_layout, model, model_.image.resize(model_layout.bytes));
  Assembly second(optimizer_layout, optimizer, optimizer_.image.resize(optimizer_layout.bytes));
  in_parallel(first.pieces() + second.pieces(), threads, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      i < first.pieces() ? first.copy_and_hash(i) : second.copy_and_hash(i - first.pieces());
  });
  model_.pieces = first.digests();
  optimizer_.pieces = second.digests();
  has_model_ = !model.empty();
}

std::vector<OutgoingFile> Snapshot::files(int part) const {
  std::vector<OutgoingFile> files = {
      {file_of_part(kOptimizerFile, part), {optimizer_.image.bytes()}, optimizer_.pieces}};
  if (part == 0 || has_model_)
    files.insert(files.begin(),
                 {file_of_part(kModelFile, part), {model_.image.bytes()}, model_.pieces});
  return files;
}

}  // namespace trireme::checkpoint
