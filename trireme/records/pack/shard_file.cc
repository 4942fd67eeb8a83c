#include <trireme/records/pack/shard_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <cerrno>
#include <system_error>
#include <vector>

namespace trireme::records {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kZstdLevel = 3;
constexpr int kGzipWindow = 15 + 16;  // Of zlib: 16 asks for gzip's header.
constexpr int kGzipMemory = 8;

Error shard_refused(const std::filesystem::path& path, std::string_view doing, int reason) {
  return Error(ErrorCode::io, "data",
               fmt::format("cannot {} the shard {}: {}", doing, path.filename().string(),
                           std::generic_category().message(reason)),
               reason == ENOSPC || reason == EDQUOT
                   ? "more disk space, or an --output on another disk"
                   : "an --output that can be written");
}

void require_zstd(size_t code) {
  if (ZSTD_isError(code))
    throw Error(ErrorCode::internal, "data",
                fmt::format("zstd cannot compress a shard: {}", ZSTD_getErrorName(code)));
}

Error zlib_failed(int code) {
  return Error(ErrorCode::internal, "data",
               fmt::format("zlib cannot compress a shard: {}", zError(code)), "more memory");
}

}  // namespace

struct ShardFile::Packer {
  explicit Packer(Packing packing) {
    if (packing == Packing::zstd) {
      zstd.reset(ZSTD_createCCtx());
      if (!zstd) throw Error(ErrorCode::internal, "data", "zstd has not enough memory");
      require_zstd(ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_compressionLevel, kZstdLevel));
      require_zstd(ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_checksumFlag, 1));
    } else {
      const int code = deflateInit2(&gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow,
                                    kGzipMemory, Z_DEFAULT_STRATEGY);
      if (code != Z_OK) throw zlib_failed(code);
      is_gzip = true;
    }
  }
  ~Packer() {
    if (is_gzip) deflateEnd(&gzip);
  }

  // The compressed bytes that are ready.
  std::string pack(std::string_view bytes, bool is_end) {
    std::string packed;
    std::vector<char> room(kBufferBytes);
    if (zstd) {
      ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
      for (size_t left = 1; left > 0;) {
        ZSTD_outBuffer out{room.data(), room.size(), 0};
        left = ZSTD_compressStream2(zstd.get(), &out, &in, is_end ? ZSTD_e_end : ZSTD_e_continue);
        require_zstd(left);
        packed.append(room.data(), out.pos);
        if (!is_end && in.pos == in.size) break;
      }
      return packed;
    }
    gzip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    gzip.avail_in = static_cast<uInt>(bytes.size());
    int code = Z_OK;
    do {
      gzip.next_out = reinterpret_cast<Bytef*>(room.data());
      gzip.avail_out = static_cast<uInt>(room.size());
      code = deflate(&gzip, is_end ? Z_FINISH : Z_NO_FLUSH);
      // Without new bytes there is nothing to do, which zlib calls Z_BUF_ERROR.
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) throw zlib_failed(code);
      packed.append(room.data(), room.size() - gzip.avail_out);
    } while (gzip.avail_out == 0 && code != Z_STREAM_END);
    return packed;
  }

  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> zstd;
  z_stream gzip{};
  bool is_gzip = false;
};

ShardFile::ShardFile(std::filesystem::path path, Packing packing)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!file_) throw shard_refused(path_, "make", errno);
  if (packing != Packing::none) packer_ = std::make_unique<Packer>(packing);
}
ShardFile::~ShardFile() = default;
ShardFile::ShardFile(ShardFile&&) noexcept = default;
ShardFile& ShardFile::operator=(ShardFile&&) noexcept = default;

void ShardFile::write(std::span<const std::byte> bytes) {
  bytes_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {  // zlib takes no more than 4 GB at a time.
    const size_t count = std::min(bytes.size(), kBufferBytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), count);
    buffer_ += packer_ ? packer_->pack(text, false) : std::string(text);
    if (buffer_.size() >= kBufferBytes) flush();
    bytes = bytes.subspan(count);
  }
}

void ShardFile::flush() {
  for (std::string_view left = buffer_; !left.empty();) {
    const ssize_t written = ::write(file_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw shard_refused(path_, "write", errno);
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

void ShardFile::finish() {
  if (packer_) buffer_ += packer_->pack({}, true);
  flush();
  if (::fsync(file_.get()) != 0) throw shard_refused(path_, "write", errno);
  file_.reset();
}

}  // namespace trireme::records
