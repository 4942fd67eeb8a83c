#include <trireme/records/indexed_reader.h>

#include <fmt/format.h>
#include <trireme/records/damage.h>
#include <algorithm>

namespace trireme::records {
namespace {

// Each file is a block, wherever it is and whether it is packed or not, so that copies of a data
// set have one order.
std::vector<int64_t> blocks_of_entries(std::span<const Entry> entries) {
  std::vector<int64_t> blocks;
  for (size_t i = 0; i < entries.size();) {
    const size_t first = i;
    while (i < entries.size() && entries[i].file == entries[first].file) ++i;
    blocks.push_back(static_cast<int64_t>(i - first));
  }
  return blocks;
}

}  // namespace

std::vector<int64_t> numbers_of_damaged(const Index& index) {
  std::vector<int64_t> numbers;
  for (const auto& [number, damage] : index.damaged()) numbers.push_back(number);
  return numbers;
}

IndexedReader::IndexedReader(std::shared_ptr<const Shards> shards,
                             std::shared_ptr<const Index> index, std::vector<FieldSpec> fields)
    : shards_(std::move(shards)),
      index_(std::move(index)),
      fields_(std::move(fields)),
      blocks_(blocks_of_entries(index_->entries())) {
  for (size_t file = 0; file < shards_->count(); ++file)
    stamps_.push_back(shards_->is_remote() ? index_->files()[file].mtime_ns
                                           : time_of_file(shards_->path(file)));
}

std::optional<int64_t> IndexedReader::number_of_fact(const char* fact,
                                                     std::string_view field) const {
  const Json& facts = index_->facts();
  const auto kept = facts.find(fact);
  if (kept == facts.end()) return std::nullopt;
  const auto number = kept->find(field);
  if (number == kept->end() || number->at("stamp") != stamp_of_all(stamps_)) return std::nullopt;
  return number->at("number").get<int64_t>();
}

std::map<std::string, std::string> IndexedReader::doubtful_fields() const {
  const Json& facts = index_->facts();
  const auto kept = facts.find(kDoubtfulFact);
  return kept == facts.end() ? std::map<std::string, std::string>()
                             : kept->get<std::map<std::string, std::string>>();
}

void IndexedReader::keep_largest(std::string_view field, int64_t number) const {
  index_->keep([&](Json& facts) {
    facts[kLargestFact][std::string(field)] = {{"number", number},
                                               {"stamp", stamp_of_all(stamps_)}};
  });
}

int64_t IndexedReader::reads_ahead() const { return shards_->reads_ahead(size()); }

void IndexedReader::announce(std::span<const int64_t> indices) const {
  std::vector<size_t> files;
  for (const int64_t index : indices) files.push_back(entry_of(index).file);
  shards_->announce(files);
}

void IndexedReader::release(std::span<const int64_t> indices) const {
  if (!shards_->is_remote()) return;
  for (const int64_t index : indices) shards_->release(entry_of(index).file);
}

Entry IndexedReader::entry_of(int64_t index) const {
  require_record(index, size());
  return index_->entry(index);
}

void IndexedReader::read(int64_t index, Record& record) const {
  const Entry entry = entry_of(index);
  record.clear();
  with_place([&] { return place(index); },
             [&] {
               index_->require_whole(index);
               read_entry(entry, record);
             });
}

std::string IndexedReader::place(int64_t index) const {
  const Entry entry = entry_of(index);
  // A damaged record without bytes is all that is left of its file.
  if (entry.bytes == 0 && index_->damaged().contains(index))
    return fmt::format("{}, from byte {} on", shards_->path(entry.file).string(), entry.offset);
  const auto entries = index_->entries();
  const auto first = std::ranges::lower_bound(entries, entry.file, {}, &Entry::file);
  return fmt::format("{}, {} at byte {}", shards_->path(entry.file).string(),
                     name_of(entry, index - (first - entries.begin())), entry.offset);
}

std::string IndexedReader::name_of(const Entry&, int64_t number_in_file) const {
  return fmt::format("record {}", number_in_file);
}

std::optional<int64_t> IndexedReader::label(int64_t index) const {
  const int64_t label = entry_of(index).label;
  return label == kNoLabel ? std::nullopt : std::optional(label);
}

std::optional<int64_t> IndexedReader::length(int64_t index) const {
  const int64_t length = entry_of(index).length;
  return length < 0 ? std::nullopt : std::optional(length);
}

void refuse_record_number(int64_t index, int64_t size) {
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("record {} is outside 0..{}", index, size - 1));
}

}  // namespace trireme::records
