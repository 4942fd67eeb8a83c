// The entry of libtrireme_arrow.so: every exception becomes a reply.
#include <trireme/records/arrow/plugin.h>

#include <arrow/c/bridge.h>
#include <arrow/config.h>
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "arrow_file.h"

namespace trireme::records {
namespace {

struct OpenFile {
  LimitedPool pool;
  std::unique_ptr<ArrowFile> file;
  ArrowSchema schema{};

  explicit OpenFile(int64_t memory_bytes) : pool(memory_bytes) {}
  ~OpenFile() {
    if (schema.release) schema.release(&schema);
  }
};

struct Group {
  LimitedPool pool;  // Lives longer than the arrays.
  std::vector<ArrowArray> parts;

  explicit Group(int64_t memory_bytes) : pool(memory_bytes) {}
  ~Group() {
    for (ArrowArray& part : parts)
      if (part.release) part.release(&part);
  }
};

void reply_with(ArrowReply* reply, ArrowFailure failure, std::string_view text) {
  reply->failure = failure;
  text = text.substr(0, text.find('\n'));
  const size_t bytes = std::min(text.size(), sizeof reply->text - 1);
  std::memcpy(reply->text, text.data(), bytes);
  reply->text[bytes] = '\0';
}

// Runs `action`. Returns null and fills the reply if it throws.
template <typename Action>
auto* answer(ArrowReply* reply, const LimitedPool& pool, const bool& source_failed,
             Action action) noexcept {
  decltype(action()) none = nullptr;
  const auto failure_of = [&](ArrowFailure failure) {
    if (source_failed) return ArrowFailure::source;
    return pool.has_refused() ? ArrowFailure::memory : failure;
  };
  try {
    return action();
  } catch (const ArrowRefusal& refusal) {
    reply_with(reply, failure_of(refusal.failure), refusal.text);
  } catch (const std::bad_alloc&) {
    reply_with(reply, failure_of(ArrowFailure::memory), "this machine has not enough memory");
  } catch (const std::exception& error) {
    reply_with(reply, failure_of(ArrowFailure::damaged), error.what());
  } catch (...) {
    reply_with(reply, failure_of(ArrowFailure::damaged), "Arrow fails without a reason");
  }
  return none;
}

void* open_file(const ArrowSource* source, ArrowFormat format, int64_t memory_bytes,
                ArrowReply* reply) {
  auto opened = std::make_unique<OpenFile>(memory_bytes);
  bool failed = false;
  return answer(reply, opened->pool, failed, [&]() -> void* {
    const auto file = std::make_shared<SourceFile>(*source, &opened->pool, failed);
    opened->file = format == ArrowFormat::parquet
                       ? open_parquet_file(file, memory_bytes, opened->pool)
                       : open_ipc_file(file, opened->pool);
    require(arrow::ExportSchema(*opened->file->schema(), &opened->schema));
    return opened.release();
  });
}

void close_file(void* file) { delete static_cast<OpenFile*>(file); }

const OpenFile& file_of(const void* file) { return *static_cast<const OpenFile*>(file); }

std::vector<int> columns_of(const int* columns, int64_t count) {
  return {columns, columns + count};
}

int64_t stated_bytes(const void* file, int64_t group, const int* columns, int64_t count) noexcept {
  try {
    return file_of(file).file->stated_bytes(group, columns_of(columns, count));
  } catch (...) {
    return 0;  // Reading the group will tell.
  }
}

void* read_group(const void* file, const ArrowSource* source, int64_t group, const int* columns,
                 int64_t count, int64_t memory_bytes, ArrowReply* reply) {
  auto read = std::make_unique<Group>(memory_bytes);
  bool failed = false;
  return answer(reply, read->pool, failed, [&]() -> void* {
    const auto parts =
        file_of(file).file->read(std::make_shared<SourceFile>(*source, &read->pool, failed), group,
                                 columns_of(columns, count), read->pool);
    read->parts.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      // The sizes of all buffers fit the lengths, and lists end inside of their members.
      require(parts[i]->Validate());
      require(arrow::ExportRecordBatch(*parts[i], &read->parts[i]));
    }
    return read.release();
  });
}

const Group& group_of(const void* group) { return *static_cast<const Group*>(group); }

}  // namespace
}  // namespace trireme::records

extern "C" __attribute__((visibility("default"))) const trireme::records::ArrowPlugin*
trireme_arrow_plugin() {
  using namespace trireme::records;
  static const ArrowPlugin plugin{
      .version = kArrowPluginVersion,
      .arrow_version = ARROW_VERSION_STRING,
      .open = open_file,
      .close = close_file,
      .schema = [](const void* file) { return &file_of(file).schema; },
      .groups = [](const void* file) { return file_of(file).file->groups(); },
      .rows = [](const void* file, int64_t group) { return file_of(file).file->rows(group); },
      .stated_bytes = stated_bytes,
      .read = read_group,
      .parts =
          [](const void* group) { return static_cast<int64_t>(group_of(group).parts.size()); },
      .part = [](const void* group, int64_t part) -> const ArrowArray* {
        return &group_of(group).parts[static_cast<size_t>(part)];
      },
      .held_bytes = [](const void* group) { return group_of(group).pool.bytes_allocated(); },
      .drop = [](void* group) { delete static_cast<Group*>(group); }};
  return &plugin;
}
