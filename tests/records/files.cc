#include "files.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace trireme::records {

namespace {

// Reads every byte, so that a sanitizer notices a view that leads outside.
void touch(std::string_view text) {
  unsigned sum = 0;
  for (const char c : text) sum += static_cast<unsigned char>(c);
  [[maybe_unused]] volatile unsigned used = sum;
}

void touch_field(const Field& field) {
  touch(field.name);
  touch(field.text());
  uint64_t numbers = 1;
  for (const int64_t size : field.shape) {
    EXPECT_GE(size, 0) << field.name;
    numbers *= static_cast<uint64_t>(size);
  }
  if (!field.encoded) {
    EXPECT_EQ(field.bytes.size(), numbers * static_cast<uint64_t>(plan::bytes_of(field.dtype)))
        << field.name;
  }
}

void touch_reader(const Reader& reader) {
  touch(reader.content());
  for (const FieldSpec& field : reader.fields()) {
    touch(field.name);
    static_cast<void>(reader.largest(field.name));
  }
  for (const std::string& name : reader.class_names()) touch(name);
  for (const auto& [name, reason] : reader.doubtful_fields()) touch(name), touch(reason);
  const std::vector<int64_t> blocks = reader.blocks();
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), int64_t{0}), reader.size());
}

}  // namespace

DamagedReads read_damaged(const OpenOptions& options) {
  DamagedReads reads;
  const auto is_done = [&](auto action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
      ++reads.errors;
      return false;
    }
  };
  std::shared_ptr<const Reader> reader;
  if (!is_done([&] { reader = open_records(options); })) return reads;
  reads.size = reader->size();
  touch_reader(*reader);
  Record record;
  const auto read = [&](int64_t i) {
    is_done([&] { touch(reader->place(i)); });
    is_done([&] { static_cast<void>(reader->label(i)); });
    is_done([&] { static_cast<void>(reader->length(i)); });
    is_done([&] { static_cast<void>(reader->stamp(i)); });
    if (!is_done([&] { reader->read(i, record); })) return;
    ++reads.records;
    for (const Field& field : record.fields) touch_field(field);
    EXPECT_LE(record.memory.size() + record.sizes.size() * sizeof(int64_t),
              8 * static_cast<uint64_t>(options.memory_bytes));
  };
  for (int64_t i = 0; i < std::min<int64_t>(reads.size, 100); ++i) read(i);
  if (reads.size > 100) read(reads.size - 1);
  is_done([&] { reader->verify_files(); });
  return reads;
}

void read_all_damages(const Folder& folder, const std::string& name, const std::string& content,
                      const OpenOptions& options, int changes) {
  OpenOptions anew = options;
  anew.make_index_anew = true;
  // A small limit shows memory that is asked for before a size is checked.
  anew.memory_bytes = 1 << 20;
  OpenOptions keeping = anew;
  keeping.keeps_damaged = true;
  keeping.needed = names_of_fields;
  const auto read = [&] {
    read_damaged(anew);
    read_damaged(keeping);
  };
  for (size_t bytes = 0; bytes < content.size(); bytes += 1 + content.size() / 600) {
    folder.write(name, content.substr(0, bytes));
    read();
  }
  std::mt19937 random(1);
  for (int i = 0; i < changes; ++i) {
    std::string damaged = content;
    for (unsigned left = 1 + random() % 3; left > 0; --left)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    folder.write(name, damaged);
    read();
  }
}

}  // namespace trireme::records
