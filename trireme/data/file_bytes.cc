#include <trireme/data/file_bytes.h>

#include <zlib.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <algorithm>
#include <cctype>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr size_t kInflateStep = 256 << 10;

Error corrupt(const fs::path& file, std::string_view what) {
  return Error(ErrorCode::corrupt, "data", fmt::format("{}: {}", file.string(), what),
               "fetching the file again");
}

class Inflater {
 public:
  Inflater() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK)
      throw Error(ErrorCode::internal, "data", "zlib does not start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;

  // Decompresses one gzip member from the front of `packed` and appends it to `out`. Returns the
  // number of bytes that the member takes.
  size_t member(std::string_view packed, std::string& out, const fs::path& file) {
    size_t fed = 0;
    stream_.avail_in = 0;
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      if (stream_.avail_in == 0) {
        // zlib counts in 32 bits.
        const size_t piece = std::min<size_t>(packed.size() - fed, 1 << 30);
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
        stream_.avail_in = static_cast<uInt>(piece);
        fed += piece;
      }
      stream_.next_out = reinterpret_cast<Bytef*>(step_.data());
      stream_.avail_out = kInflateStep;
      status = inflate(&stream_, Z_NO_FLUSH);
      out.append(step_.data(), kInflateStep - stream_.avail_out);
      if (status == Z_BUF_ERROR)
        throw corrupt(file,
                      fmt::format("the gzip data is truncated: {} compressed bytes end after "
                                  "{} decompressed ones, before the end mark",
                                  packed.size(), out.size()));
      if (status != Z_OK && status != Z_STREAM_END)
        throw corrupt(
            file, fmt::format("the gzip data is damaged near byte {}: {}", fed - stream_.avail_in,
                              stream_.msg ? stream_.msg : "unknown reason"));
    }
    inflateReset(&stream_);
    return fed - stream_.avail_in;
  }

 private:
  z_stream stream_{};
  std::string step_ = std::string(kInflateStep, '\0');
};

std::string gunzip(std::string_view packed, const fs::path& file) {
  Inflater inflater;
  std::string out;
  // Several members may follow each other.
  while (packed.starts_with(kGzipMagic)) packed.remove_prefix(inflater.member(packed, out, file));
  if (!packed.empty())
    throw corrupt(file, fmt::format("{} bytes follow the end of the gzip data", packed.size()));
  return out;
}

void require_regular_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(ErrorCode::not_found, "data",
                fmt::format("data file '{}' does not exist", file.string()),
                "the path of an existing file, absolute or relative to the current folder");
  if (status.type() == fs::file_type::directory)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' is a folder, but must be a file", file.string()),
                "the path of the file inside it");
  if (status.type() == fs::file_type::none)
    throw Error(
        ErrorCode::io, "data",
        fmt::format("data file '{}' cannot be examined: {}", file.string(), error.message()),
        "check the path, its links and its permissions");
  if (status.type() != fs::file_type::regular)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' is not a regular file", file.string()), "a copy of it on disk");
}

}  // namespace

std::string read_data_file(const fs::path& file) {
  require_regular_file(file);
  std::string content = read_file(file);
  if (content.empty()) throw corrupt(file, "the file is empty");
  if (!content.starts_with(kGzipMagic)) return content;
  std::string unpacked = gunzip(content, file);
  if (unpacked.empty()) throw corrupt(file, "the gzip file holds no data");
  return unpacked;
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 24;
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return !std::isprint(c); }, '?');
  return fmt::format("'{}{}'", shown, text.size() > kShown ? "..." : "");
}

}  // namespace trireme::data
