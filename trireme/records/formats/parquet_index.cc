#include "parquet_index.h"

#include <fmt/format.h>
#include <trireme/records/damage.h>
#include <trireme/records/index.h>
#include <algorithm>
#include <array>
#include <cstring>

#include "indexed_files.h"

namespace trireme::records {
namespace {

// The magic in front; and the end, of which Arrow reads so much at once.
constexpr uint64_t kMagicBytes = 4, kKeptEnd = 64 << 10, kLastBytes = 8;

// The bytes from the beginning of the footer on, or more of them.
uint64_t end_to_keep(const DataFile& file, int64_t memory_bytes) {
  std::array<std::byte, kLastBytes> last{};
  file.read(file.size() - kLastBytes, last);
  uint32_t footer = 0;
  std::memcpy(&footer, last.data(), sizeof footer);
  // A footer that is too large is an error when the file is opened.
  const uint64_t most = static_cast<uint64_t>(memory_bytes) / 16;
  return std::min(file.size(), std::max(kKeptEnd, footer > most ? 0 : footer + kLastBytes));
}

// The bytes are an entry of the file.
void keep_bytes(uint32_t file, std::string_view bytes, IndexContent& content) {
  content.add({.offset = content.names.size(), .bytes = bytes.size(), .file = file});
  content.names += bytes;
}

void keep_footer(uint32_t number, const Shards& files, IndexContent& content) {
  const auto file = files.open(number);
  if (file->size() < kMagicBytes + kLastBytes)
    throw Damage(fmt::format("it has {} bytes, too few for Parquet", file->size()));
  const uint64_t end = end_to_keep(*file, files.memory_bytes());
  std::string kept(kMagicBytes + end, '\0');
  const auto bytes = std::as_writable_bytes(std::span(kept));
  file->read(0, bytes.first(kMagicBytes));
  file->read(file->size() - end, bytes.subspan(kMagicBytes));
  keep_bytes(number, kept, content);
}

Damage wrong_index() {
  return Damage("its index is damaged", "trireme data index, which makes it anew");
}

}  // namespace

std::shared_ptr<const Index> index_of_footers(const OpenOptions& options,
                                              const std::shared_ptr<Shards>& files) {
  return index_files(options, "parquet", files, {{"kept", "footers"}}, keep_footer).index;
}

bool read_kept(const Index& footers, size_t file, uint64_t offset, std::span<std::byte> bytes) {
  footers.require_whole(static_cast<int64_t>(file));
  if (file >= footers.entries().size()) throw wrong_index();
  const Entry entry = footers.entry(static_cast<int64_t>(file));
  const auto names = std::as_bytes(std::span(footers.names()));
  const auto size = static_cast<uint64_t>(footers.files().at(file).bytes);
  if (entry.bytes < kMagicBytes || entry.bytes - kMagicBytes > size ||
      entry.offset > names.size() || entry.bytes > names.size() - entry.offset)
    throw wrong_index();
  const auto kept = names.subspan(entry.offset, entry.bytes);
  const uint64_t begin = size - (entry.bytes - kMagicBytes);
  if (offset > size || bytes.size() > size - offset) return false;
  if (offset + bytes.size() <= kMagicBytes)
    std::ranges::copy(kept.subspan(offset, bytes.size()), bytes.begin());
  else if (offset >= begin)
    std::ranges::copy(kept.subspan(kMagicBytes + offset - begin, bytes.size()), bytes.begin());
  else
    return false;
  return true;
}

std::vector<int64_t> kept_labels(const OpenOptions& options, const std::shared_ptr<Shards>& files,
                                 std::span<const FileIdentity> identities,
                                 const std::string& column, const ReadLabels& read) {
  const auto keep = [&](uint32_t file, const Shards&, IndexContent& content) {
    const std::vector<int64_t> labels = read(file);
    keep_bytes(file,
               {reinterpret_cast<const char*>(labels.data()), labels.size() * sizeof(int64_t)},
               content);
  };
  const auto open = [&](const OpenOptions& wish) {
    const Json about{{"kept", "labels"}, {"column", column}};
    auto index = index_files(wish, "parquet", files, about, keep).index;
    files->expect(identities);
    return index;
  };
  auto index = open(options);
  if (!std::ranges::equal(index->files(), identities)) {  // The footers were indexed anew.
    OpenOptions anew = options;
    anew.make_index_anew = true;
    index = open(anew);
  }
  std::vector<int64_t> labels(index->names().size() / sizeof(int64_t));
  if (!labels.empty())
    std::memcpy(labels.data(), index->names().data(), labels.size() * sizeof(int64_t));
  return labels;
}

}  // namespace trireme::records
