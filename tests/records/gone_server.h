// Files of a server that is gone, as an earlier run has fetched them.
#pragma once
#include <trireme/base/hash.h>
#include <trireme/records/remote/download_folder.h>
#include <unistd.h>
#include <cstdlib>

#include "files.h"

namespace trireme::records {

class GoneServer {
 public:
  GoneServer() : downloads_(disk_.path("downloads")) {
    ::setenv("no_proxy", "127.0.0.1", 1);  // Nothing listens at the port, so tries fail at once.
  }

  // The address of a file, with a user whose password no message may have.
  static std::string address(const std::string& name) {
    return "http://me:secret@127.0.0.1:1/data/" + name;
  }
  // Keeps a copy of the file.
  std::string put(const std::string& name, const std::string& content) const {
    const std::string key = sha256_hex("http://127.0.0.1:1/data/" + name).substr(0, 32);
    auto part = downloads_.begin(key);
    EXPECT_TRUE(part);
    const auto size = static_cast<int64_t>(content.size());
    downloads_.restart(*part, key, {.bytes = size, .version = "\"1\"", .digest = {}});
    EXPECT_EQ(::pwrite(part->descriptor.get(), content.data(), content.size(), 0), size);
    part->bytes = size;
    downloads_.finish(std::move(*part), key);
    return address(name);
  }
  OpenOptions options(std::string format, std::string path) const {
    OpenOptions options;
    options.format = std::move(format);
    options.path = std::move(path);
    options.index_dir = disk_.path("index");
    options.download = {.folder = downloads_.path(), .tries = 1};
    return options;
  }

 private:
  Folder disk_;
  DownloadFolder downloads_;
};

// The error of opening the files, which has no secret.
inline std::string refusal_without_secret(const OpenOptions& options, ErrorCode code) {
  const std::string said = message_of(code, [&] { open_records(options); });
  EXPECT_EQ(said.find("secret"), std::string::npos) << said;
  return said;
}

// Both have the same records and the same content.
inline void expect_same_records(const Reader& one, const Reader& other) {
  ASSERT_EQ(one.size(), other.size());
  EXPECT_EQ(one.content(), other.content());
  for (int64_t i = 0; i < one.size(); ++i) {
    const Record a = read_record(one, i), b = read_record(other, i);
    ASSERT_EQ(a.fields.size(), b.fields.size());
    for (size_t f = 0; f < a.fields.size(); ++f) {
      EXPECT_EQ(a.fields[f].name, b.fields[f].name);
      EXPECT_TRUE(std::ranges::equal(a.fields[f].bytes, b.fields[f].bytes)) << i;
    }
    EXPECT_EQ(one.label(i), other.label(i));
  }
}

}  // namespace trireme::records
