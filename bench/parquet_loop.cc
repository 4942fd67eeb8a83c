// Arrow's own loop over a Parquet file, on one thread: the columns of each row beside each other.
//   parquet_loop PATH SECONDS read|mapped    how it gets the bytes of the file
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "record_loop.h"

namespace {

template <typename Value>
Value value_of(arrow::Result<Value> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "parquet_loop: %s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(result).ValueUnsafe();
}

// A column of a batch: the bytes of row i.
struct Column {
  explicit Column(const arrow::Array& array) {
    if (array.type_id() == arrow::Type::BINARY) {
      texts = static_cast<const arrow::BinaryArray*>(&array);
      return;
    }
    width = static_cast<size_t>(array.type()->byte_width());
    values = reinterpret_cast<const char*>(array.data()->buffers[1]->data()) +
             static_cast<size_t>(array.offset()) * width;
  }
  void put(int64_t row, bench::BatchMemory& memory) const {
    if (texts) {
      const std::string_view text = texts->GetView(row);
      memory.put(text.data(), text.size());
    } else {
      memory.put(values + static_cast<size_t>(row) * width, width);
    }
  }
  const arrow::BinaryArray* texts = nullptr;
  const char* values = nullptr;
  size_t width = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool is_mapped = std::string_view(argv[3]) == "mapped";
  bench::run_epochs(std::strtod(argv[2], nullptr), [&](bench::BatchMemory& memory, int64_t) {
    parquet::arrow::FileReaderBuilder builder;
    const arrow::Status opened = builder.OpenFile(argv[1], is_mapped);
    if (!opened.ok()) std::exit(1);
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(4096);
    const std::unique_ptr<parquet::arrow::FileReader> file =
        value_of(builder.properties(properties)->Build());
    const std::unique_ptr<arrow::RecordBatchReader> batches =
        value_of(file->GetRecordBatchReader());
    for (const auto& batch : *batches) {
      const std::shared_ptr<arrow::RecordBatch> rows = value_of(batch);
      std::vector<Column> columns;
      for (const auto& array : rows->columns()) columns.emplace_back(*array);
      for (int64_t row = 0; row < rows->num_rows(); ++row) {
        for (const Column& column : columns) column.put(row, memory);
        memory.end_record();
      }
    }
  });
  return 0;
}
