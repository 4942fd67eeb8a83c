#include "files.h"

#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <random>

namespace trireme::records {

std::string gzipped(std::string_view content) {
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd_of(std::string_view content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

void read_damaged(const OpenOptions& options) {
  const auto expect_named = [](auto action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    }
  };
  OpenOptions keeping = options;
  keeping.keeps_damaged = true;
  keeping.needed.emplace();
  for (const OpenOptions& each : {options, keeping})
    expect_named([&] {
      const auto reader = open_records(each);
      Record record;
      for (int64_t i = 0; i < std::min<int64_t>(reader->size(), 100); ++i)
        expect_named([&] { reader->read(i, record); });
    });
}

void read_all_damages(const Folder& folder, const std::string& name, const std::string& content,
                      const OpenOptions& options, int changes) {
  OpenOptions anew = options;
  anew.make_index_anew = true;
  // A small limit shows memory that is asked for before a size is checked.
  anew.memory_bytes = 1 << 20;
  for (size_t bytes = 0; bytes < content.size(); bytes += 1 + content.size() / 600) {
    folder.write(name, content.substr(0, bytes));
    read_damaged(anew);
  }
  std::mt19937 random(1);
  for (int i = 0; i < changes; ++i) {
    std::string damaged = content;
    for (unsigned left = 1 + random() % 3; left > 0; --left)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    folder.write(name, damaged);
    read_damaged(anew);
  }
}

}  // namespace trireme::records
