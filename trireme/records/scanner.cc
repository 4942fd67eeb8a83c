#include <trireme/records/scanner.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>

namespace trireme::records {
namespace {

constexpr uint64_t kWindow = 1 << 20;

}  // namespace

Scanner::Scanner(std::shared_ptr<const DataFile> file, const UnpackLimits& limits)
    : file_(std::move(file)), size_(file_->size()), limits_(limits) {}

Scanner::Scanner(std::shared_ptr<const Block> block, const UnpackLimits& limits)
    : block_(std::move(block)),
      size_(block_->bytes().size()),
      limits_(limits),
      window_(block_->bytes()) {}

void Scanner::fill(uint64_t offset, uint64_t bytes) {
  const bool is_there = offset >= window_at_ && offset - window_at_ <= window_.size() &&
                        bytes <= window_.size() - (offset - window_at_);
  if (is_there) return;
  const uint64_t wanted = std::min(std::max(bytes, kWindow), size_ - offset);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  window_ = {};
  file_->read(offset, std::span(buffer_).first(wanted));
  window_ = std::span(buffer_).first(wanted);
  window_at_ = offset;
}

std::span<const std::byte> Scanner::at(uint64_t offset, uint64_t bytes) {
  if (offset > size_ || bytes > size_ - offset)
    throw Damage(fmt::format("{} bytes should follow byte {}, but the data ends at byte {}", bytes,
                             offset, size_));
  limits_.require_memory(bytes);
  fill(offset, bytes);
  return window_.subspan(offset - window_at_, bytes);
}

std::string_view Scanner::line(uint64_t offset) {
  uint64_t searched = 0;
  for (uint64_t wanted = std::min<uint64_t>(4096, size_ - offset);;) {
    const auto bytes = at(offset, std::min(wanted, size_ - offset));
    // All of the window that is there is searched.
    const auto there = window_.subspan(offset - window_at_);
    const void* const end = std::memchr(there.data() + searched, '\n', there.size() - searched);
    const auto* const text = reinterpret_cast<const char*>(there.data());
    if (end) return {text, static_cast<size_t>(static_cast<const char*>(end) - text) + 1};
    if (there.size() == size_ - offset) return {text, there.size()};
    searched = there.size();
    if (searched >= memory_bytes())
      throw Damage(fmt::format("the line at byte {} has more than the {} of memory for a record",
                               offset, format_bytes(limits_.memory_bytes)),
                   limits_.remedy_of_memory, ErrorCode::invalid_argument);
    wanted = std::min(std::max<uint64_t>(2 * bytes.size(), there.size() + 1), memory_bytes());
  }
}

}  // namespace trireme::records
