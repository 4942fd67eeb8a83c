#include <trireme/records/unpack.h>

#include <zlib.h>
#include <zstd.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <trireme/base/units.h>
#include <trireme/net/shared_memory.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace trireme::records {
namespace {

constexpr size_t kInputPiece = 1 << 20;
constexpr uint64_t kRatioCountsFrom = 16 << 20;

// The compressed bytes, piece by piece.
class PackedInput {
 public:
  explicit PackedInput(const DataFile& file) : file_(file) {}
  bool is_at_end() const { return at_ == file_.size(); }
  uint64_t taken() const { return at_; }
  std::span<const std::byte> next() {
    const auto piece = std::span(buffer_).first(std::min(kInputPiece, file_.size() - at_));
    file_.read(at_, piece);
    at_ += piece.size();
    return piece;
  }

 private:
  const DataFile& file_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::min(kInputPiece, file_.size()));
  uint64_t at_ = 0;
};

void check_growth(uint64_t packed, uint64_t unpacked, const UnpackLimits& limits) {
  const auto taken = static_cast<uint64_t>(limits.taken_bytes);
  if (unpacked + taken > static_cast<uint64_t>(limits.memory_bytes))
    throw Damage(
        fmt::format("it unpacks to more than {}{}, {}", format_bytes(limits.memory_bytes),
                    taken == 0 ? std::string()
                               : fmt::format(" together with the {} of the files before it",
                                             format_bytes(limits.taken_bytes)),
                    limits.memory_means),
        limits.remedy_of_memory + (taken == 0 ? ", or smaller files" : ", or the files unpacked"),
        ErrorCode::invalid_argument);
  if (limits.exceeds_ratio(packed, unpacked))
    throw Damage(fmt::format("{} compressed bytes become {} and more, over {} times as many",
                             packed, unpacked, limits.max_ratio),
                 limits.remedy_of_ratio());
}

Damage cut(std::string_view kind, uint64_t packed) {
  return Damage(fmt::format("the {} data is cut: {} bytes end before its end mark", kind, packed));
}

class Gunzip {
 public:
  Gunzip() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK)
      throw Damage("zlib does not start", {}, ErrorCode::internal);
  }
  ~Gunzip() { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;

  // Several members may follow each other.
  void run(PackedInput& input, Block& block, const UnpackLimits& limits) {
    bool is_in_member = true;
    while (!input.is_at_end()) {
      const auto piece = input.next();
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
      stream_.avail_in = static_cast<uInt>(piece.size());
      while (stream_.avail_in > 0 || (is_in_member && stream_.avail_out == 0)) {
        if (!is_in_member) inflateReset(&stream_);
        is_in_member = step(block, input.taken() - stream_.avail_in) != Z_STREAM_END;
        check_growth(input.taken(), block.bytes().size(), limits);
      }
    }
    if (is_in_member) throw cut("gzip", input.taken());
  }

 private:
  int step(Block& block, uint64_t at) {
    const auto room = block.room(1);
    const auto size = static_cast<uInt>(std::min<size_t>(room.size(), 1 << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = size;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    block.add(size - stream_.avail_out);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw Damage(fmt::format("the gzip data is damaged near byte {}: {}", at,
                               stream_.msg ? stream_.msg : "unknown reason"));
    return status;
  }

  z_stream stream_{};
};

void unzstd(PackedInput& input, Block& block, const UnpackLimits& limits) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (!stream) throw std::bad_alloc();
  // Not 0: a frame has not come to its end.
  size_t left = 1;
  while (!input.is_at_end()) {
    const auto piece = input.next();
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    for (bool is_full = false; in.pos < in.size || is_full;) {
      const auto room = block.room(1);
      ZSTD_outBuffer out{room.data(), room.size(), 0};
      left = ZSTD_decompressStream(stream.get(), &out, &in);
      if (ZSTD_isError(left))
        throw Damage(fmt::format("the zstd data is damaged near byte {}: {}",
                                 input.taken() - (in.size - in.pos), ZSTD_getErrorName(left)));
      block.add(out.pos);
      is_full = out.pos == out.size && left != 0;
      check_growth(input.taken(), block.bytes().size(), limits);
    }
  }
  if (left != 0) throw cut("zstd", input.taken());
}

}  // namespace

bool UnpackLimits::exceeds_ratio(uint64_t packed, uint64_t bytes) const {
  return bytes > kRatioCountsFrom && bytes / static_cast<uint64_t>(max_ratio) > packed;
}

std::string UnpackLimits::remedy_of_ratio() const {
  if (ratio_name.empty()) return "the file unpacked, if it is not an attack";
  return fmt::format("a larger {}, if the file is not an attack", ratio_name);
}

void UnpackLimits::require_memory(uint64_t bytes) const {
  if (bytes > static_cast<uint64_t>(memory_bytes))
    throw Damage(
        fmt::format("it has {}, more than the {} of memory for a record",
                    format_bytes(static_cast<int64_t>(bytes)), format_bytes(memory_bytes)),
        remedy_of_memory, ErrorCode::invalid_argument);
}

UnpackLimits UnpackLimits::of_whole_file(int64_t max_ratio, std::string ratio_name) {
  return {.memory_bytes = net::available_memory_bytes(),
          .max_ratio = max_ratio,
          .ratio_name = std::move(ratio_name),
          .remedy_of_memory = "a host with more memory",
          .memory_means = "the memory that is free"};
}

void Block::free_memory() {
  if (has_pages_)
    ::munmap(memory_, capacity_);
  else
    std::free(memory_);
}

std::span<std::byte> Block::room(size_t more) {
  constexpr size_t kLeast = 256 << 10;
  if (capacity_ - size_ < more) {
    const size_t wanted = std::max({kLeast, size_ + more, capacity_ * 2});
    void* const grown =
        has_pages_ ? ::mremap(memory_, capacity_, wanted, MREMAP_MAYMOVE)
                   : ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                            /*fd=*/-1, /*offset=*/0);
    if (grown == MAP_FAILED) throw std::bad_alloc();
    auto* const memory = static_cast<std::byte*>(grown);
    if (!has_pages_ && size_ > 0) std::memcpy(memory, memory_, size_);
    if (!has_pages_) std::free(memory_);
    memory_ = memory, capacity_ = wanted, has_pages_ = true;
  }
  return {memory_ + size_, capacity_ - size_};
}

void Block::shrink() {
  constexpr size_t kSmall = 1 << 20;
  if (!has_pages_ || size_ == 0) return;
  if (size_ >= kSmall) {  // The system rounds the size up to pages.
    if (::mremap(memory_, capacity_, size_, /*flags=*/0) != MAP_FAILED) capacity_ = size_;
    return;
  }
  auto* const smaller = static_cast<std::byte*>(std::malloc(size_));
  if (!smaller) return;
  std::memcpy(smaller, memory_, size_);
  ::munmap(memory_, capacity_);
  memory_ = smaller, capacity_ = size_, has_pages_ = false;
}

std::string_view unpacked_name(std::string_view name) {
  for (const std::string_view end : kPackedEnds)
    if (!end.empty() && name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return name;
}

Packing packing_of(const DataFile& file) {
  std::array<std::byte, 4> bytes{};  // Zeros behind the end of a shorter file.
  file.read(0, std::span(bytes).first(std::min<uint64_t>(bytes.size(), file.size())));
  const auto is = [&](int place, unsigned value) {
    return std::to_integer<unsigned>(bytes[static_cast<size_t>(place)]) == value;
  };
  if (is(0, 0x1f) && is(1, 0x8b) && is(2, 8)) return Packing::gzip;
  if (is(0, 0x28) && is(1, 0xb5) && is(2, 0x2f) && is(3, 0xfd)) return Packing::zstd;
  const bool is_skippable = (std::to_integer<unsigned>(bytes[0]) & 0xf0) == 0x50 && is(1, 0x2a) &&
                            is(2, 0x4d) && is(3, 0x18);
  return is_skippable ? Packing::zstd : Packing::none;
}

std::shared_ptr<const Block> unpack(const DataFile& file, Packing packing,
                                    const UnpackLimits& limits) {
  auto block = std::make_shared<Block>();
  PackedInput input(file);
  if (packing == Packing::gzip)
    Gunzip().run(input, *block, limits);
  else
    unzstd(input, *block, limits);
  block->shrink();
  return block;
}

std::string read_unpacked(const std::filesystem::path& path, const UnpackLimits& limits) {
  return with_place([&] { return path.string(); },
                    [&] {
                      const DataFile file(path);
                      const Packing packing = packing_of(file);
                      std::string content;
                      if (packing == Packing::none) {
                        content.resize(file.size());
                        file.read(0, std::as_writable_bytes(std::span(content)));
                      } else {
                        const auto bytes = unpack(file, packing, limits);
                        content.assign(reinterpret_cast<const char*>(bytes->bytes().data()),
                                       bytes->bytes().size());
                      }
                      return content;
                    });
}

}  // namespace trireme::records
