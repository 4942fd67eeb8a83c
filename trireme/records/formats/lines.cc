// Text files, of which each line is a record.
#include <fmt/format.h>
#include <trireme/records/formats.h>
#include "indexed_files.h"

namespace trireme::records {
namespace {

class LinesReader : public IndexedReader {
 public:
  explicit LinesReader(IndexedFiles files)
      : IndexedReader(std::move(files.shards), std::move(files.index),
                      {{.name = "text", .encoded = true}}) {}

 protected:
  void read_entry(const Entry& entry, Record& record) const override {
    record.fields.push_back({.name = "text",
                             .bytes = shards().read(entry.file, entry.offset, entry.bytes, record),
                             .encoded = true});
  }
  std::string name_of(const Entry& entry, int64_t) const override {
    return fmt::format("line {}", entry.extra);
  }
};

void scan_lines(uint32_t file, const Shards& shards, IndexContent& content) {
  Scanner scanner = shards.scanner(file);
  uint32_t number = 0;
  for (uint64_t at = 0; at < scanner.size();) {
    std::string_view line = scanner.line(at);
    const uint64_t next = at + line.size();
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    content.add({.offset = at,
                 .bytes = line.size(),
                 .length = static_cast<int64_t>(line.size()),
                 .file = file,
                 .extra = ++number});
    at = next;
  }
}

}  // namespace

SharedReader open_lines(const OpenOptions& options) {
  return std::make_shared<LinesReader>(
      index_files(options, "lines", shards_of(options, "lines"), Json::object(), scan_lines));
}

}  // namespace trireme::records
