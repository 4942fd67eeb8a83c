// Arrow's own files and streams: a group is a record batch. A file is a stream between two magic
// words, and a footer that says where its messages are.
#include <arrow/ipc/message.h>
#include <arrow/ipc/reader.h>
#include <algorithm>
#include <cstring>
#include <map>

#include "arrow_file.h"

namespace trireme::records {
namespace {

constexpr std::string_view kMagic = "ARROW1";

// A message's place in the file; the bytes of its metadata begin with its prefix.
struct MessagePlace {
  int64_t offset = 0;
  int32_t metadata_bytes = 0;
};

// A dictionary, or an addition to one.
struct DictionaryPlace : MessagePlace {
  int64_t number = 0;  // Among all of the file.
  size_t base = 0;     // Among those of its id: the dictionary to which it and others are added.
};

struct BatchPlace : MessagePlace {
  int64_t rows = 0;
  int64_t dictionaries = 0;  // It knows so many, the first ones of the file.
};

// A number in a table of FlatBuffers whose bytes Arrow has verified. A field that is left out has
// its default, 0.
template <typename T>
T flat_number(const void* table, int field) {
  const auto* const begin = static_cast<const uint8_t*>(table);
  int32_t to_fields = 0;
  std::memcpy(&to_fields, begin, sizeof to_fields);
  const uint8_t* const fields = begin - to_fields;
  uint16_t fields_bytes = 0, offset = 0;
  std::memcpy(&fields_bytes, fields, sizeof fields_bytes);
  const int at = 4 + 2 * field;
  if (at + 2 > fields_bytes) return 0;
  std::memcpy(&offset, fields + at, sizeof offset);
  if (offset == 0) return 0;
  T number{};
  std::memcpy(&number, begin + offset, sizeof number);
  return number;
}

// Gives the messages of a batch, as if they were a stream of their own.
class MessagesOfBatch : public arrow::ipc::MessageReader {
 public:
  MessagesOfBatch(std::shared_ptr<SourceFile> file, std::vector<MessagePlace> places)
      : file_(std::move(file)), places_(std::move(places)) {}
  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
    if (next_ == places_.size()) return nullptr;
    const MessagePlace place = places_[next_++];
    return arrow::ipc::ReadMessage(place.offset, place.metadata_bytes, file_.get());
  }

 private:
  std::shared_ptr<SourceFile> file_;
  std::vector<MessagePlace> places_;
  size_t next_ = 0;
};

class IpcFile : public ArrowFile {
 public:
  IpcFile(const std::shared_ptr<SourceFile>& file, arrow::MemoryPool& pool) {
    const int64_t bytes = value_of(file->GetSize());
    char head[8] = {};
    value_of(file->ReadAt(0, std::min<int64_t>(bytes, sizeof head), head));
    const std::string_view first(head, sizeof head);
    if (first.starts_with("FEA1"))
      throw ArrowRefusal{ArrowFailure::unsupported,
                         "it is a Feather file of version 1, which is not Arrow's format"};
    const bool is_file = first.starts_with(kMagic);
    int64_t end = bytes;
    if (is_file) end = check_end(*file, bytes);
    find_messages(*file, is_file ? 8 : 0, end);
    if (is_file) check_footer(file, pool);
    const auto reader = value_of(arrow::ipc::RecordBatchStreamReader::Open(
        std::make_unique<MessagesOfBatch>(file, std::vector{schema_place_}), options(pool, {})));
    schema_ = reader->schema();
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  int64_t groups() const override { return static_cast<int64_t>(batches_.size()); }
  int64_t rows(int64_t group) const override { return batches_[static_cast<size_t>(group)].rows; }

  std::vector<std::shared_ptr<arrow::RecordBatch>> read(const std::shared_ptr<SourceFile>& file,
                                                        int64_t group,
                                                        const std::vector<int>& columns,
                                                        arrow::MemoryPool& pool) const override {
    const BatchPlace& batch = batches_[static_cast<size_t>(group)];
    std::vector<MessagePlace> places{schema_place_};
    add_dictionaries(batch.dictionaries, places);
    places.push_back(batch);
    const auto reader = value_of(arrow::ipc::RecordBatchStreamReader::Open(
        std::make_unique<MessagesOfBatch>(file, std::move(places)), options(pool, columns)));
    std::shared_ptr<arrow::RecordBatch> read;
    require(reader->ReadNext(&read));
    if (!read || read->num_rows() != batch.rows)
      throw ArrowRefusal{ArrowFailure::damaged, "it has another number of rows than it states"};
    return {read};
  }

 private:
  static arrow::ipc::IpcReadOptions options(arrow::MemoryPool& pool,
                                            const std::vector<int>& columns) {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = &pool;
    options.use_threads = false;
    options.included_fields = columns;
    return options;
  }

  // Where the messages of a file end.
  static int64_t check_end(SourceFile& file, int64_t bytes) {
    char tail[10] = {};
    constexpr int64_t kLeast = 8 + sizeof tail;
    if (bytes >= kLeast) value_of(file.ReadAt(bytes - 10, sizeof tail, tail));
    if (std::string_view(tail + 4, kMagic.size()) != kMagic)
      throw ArrowRefusal{ArrowFailure::damaged,
                         "it does not end with the magic ARROW1: it is cut"};
    int32_t footer = 0;
    std::memcpy(&footer, tail, sizeof footer);
    if (footer <= 0 || footer > bytes - kLeast)
      throw ArrowRefusal{ArrowFailure::damaged,
                         "its footer should have " + std::to_string(footer) +
                             " bytes, but the file has " + std::to_string(bytes)};
    return bytes - 10 - footer;
  }

  void find_messages(SourceFile& file, int64_t at, int64_t end) {
    bool has_schema = false;
    for (; at < end;) {
      const auto place = message_at(file, at, end);
      if (!place) break;
      const auto message =
          value_of(arrow::ipc::ReadMessage(place->offset, place->metadata_bytes, &file));
      const int64_t left = end - place->offset - place->metadata_bytes;
      if (message->body_length() < 0 || message->body_length() > left) throw cut(at, "message");
      const auto type = message->type();
      if (has_schema != (type != arrow::ipc::MessageType::SCHEMA))
        throw ArrowRefusal{ArrowFailure::damaged,
                           "its schema is not its first message, or there "
                           "twice"};
      if (type == arrow::ipc::MessageType::SCHEMA) {
        schema_place_ = *place;
        has_schema = true;
      } else if (type == arrow::ipc::MessageType::DICTIONARY_BATCH) {
        add_dictionary(*place, message->header());
      } else if (type == arrow::ipc::MessageType::RECORD_BATCH) {
        const auto rows = flat_number<int64_t>(message->header(), 0);
        if (rows < 0) throw ArrowRefusal{ArrowFailure::damaged, "a batch has less than 0 rows"};
        batches_.push_back({*place, rows, dictionary_count_});
      } else {
        throw ArrowRefusal{ArrowFailure::unsupported, "it has tensors, and not only batches"};
      }
      at = place->offset + place->metadata_bytes + message->body_length();
    }
    if (!has_schema) throw ArrowRefusal{ArrowFailure::damaged, "it has no schema"};
  }

  void add_dictionary(const MessagePlace& place, const void* header) {
    auto& same_id = dictionaries_[flat_number<int64_t>(header, 0)];
    const bool is_addition = flat_number<uint8_t>(header, 2) != 0;
    const size_t base = !is_addition ? same_id.size() : same_id.empty() ? 0 : same_id.back().base;
    same_id.push_back({place, dictionary_count_++, base});
  }

  // Adds the messages of the dictionaries that hold after the first `count` ones, in the file's
  // order.
  void add_dictionaries(int64_t count, std::vector<MessagePlace>& places) const {
    for (const auto& [id, same_id] : dictionaries_) {
      const auto end = std::ranges::lower_bound(same_id, count, {}, &DictionaryPlace::number);
      if (end == same_id.begin()) continue;
      const auto base = same_id.begin() + static_cast<std::ptrdiff_t>(std::prev(end)->base);
      places.insert(places.end(), base, end);
    }
    std::ranges::sort(places, {}, &MessagePlace::offset);
  }

  // The message whose prefix is at `at`; nothing at the mark of the stream's end.
  static std::optional<MessagePlace> message_at(SourceFile& file, int64_t at, int64_t end) {
    constexpr uint32_t kContinues = 0xffffffff;
    uint32_t words[2] = {};
    if (end - at < 4) throw cut(at, "prefix of a message");
    value_of(file.ReadAt(at, std::min<int64_t>(8, end - at), words));
    // Before Arrow 0.15 there was no first word.
    const bool is_new = words[0] == kContinues;
    const int64_t prefix = is_new ? 8 : 4;
    if (end - at < prefix) throw cut(at, "prefix of a message");
    const uint32_t bytes = is_new ? words[1] : words[0];
    if (bytes == 0) return std::nullopt;
    if (bytes > 0x7ffffff0 || bytes > end - at - prefix) throw cut(at, "metadata of a message");
    return MessagePlace{at, static_cast<int32_t>(bytes + prefix)};
  }

  static ArrowRefusal cut(int64_t at, const std::string& part) {
    return {ArrowFailure::damaged,
            "the " + part + " at byte " + std::to_string(at) + " is cut, or no message of Arrow"};
  }

  void check_footer(const std::shared_ptr<SourceFile>& file, arrow::MemoryPool& pool) {
    const auto reader = value_of(arrow::ipc::RecordBatchFileReader::Open(file, options(pool, {})));
    if (reader->num_record_batches() != groups())
      throw ArrowRefusal{ArrowFailure::damaged,
                         "its footer states " + std::to_string(reader->num_record_batches()) +
                             " batches, but it has " + std::to_string(groups())};
    // In a file a dictionary may stand behind batches that use it.
    for (BatchPlace& batch : batches_) batch.dictionaries = dictionary_count_;
  }

  MessagePlace schema_place_;
  std::vector<BatchPlace> batches_;
  std::map<int64_t, std::vector<DictionaryPlace>> dictionaries_;  // By their ids.
  int64_t dictionary_count_ = 0;
  std::shared_ptr<arrow::Schema> schema_;
};

}  // namespace

std::unique_ptr<ArrowFile> open_ipc_file(const std::shared_ptr<SourceFile>& file,
                                         arrow::MemoryPool& pool) {
  return std::make_unique<IpcFile>(file, pool);
}

}  // namespace trireme::records
