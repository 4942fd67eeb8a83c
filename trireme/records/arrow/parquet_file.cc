// Parquet files: a group is a row group.
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <algorithm>
#include <cstring>
#include <limits>

#include "arrow_file.h"

namespace trireme::records {
namespace {

// The footer's length, by the last 8 bytes of the file.
int64_t footer_bytes(SourceFile& file) {
  const int64_t bytes = value_of(file.GetSize());
  constexpr int64_t kLeast = 12;
  if (bytes < kLeast)
    throw ArrowRefusal{ArrowFailure::damaged,
                       "it has " + std::to_string(bytes) + " bytes, too few for Parquet"};
  char head[4], tail[8];
  value_of(file.ReadAt(0, sizeof head, head));
  value_of(file.ReadAt(bytes - 8, sizeof tail, tail));
  const std::string first(head, 4), last(tail + 4, 4);
  if (first == "PARE" || last == "PARE")
    throw ArrowRefusal{ArrowFailure::unsupported, "its footer is encrypted"};
  if (first != "PAR1")
    throw ArrowRefusal{ArrowFailure::damaged, "it does not begin with the magic PAR1"};
  if (last != "PAR1")
    throw ArrowRefusal{ArrowFailure::damaged, "it does not end with the magic PAR1: it is cut"};
  uint32_t length = 0;
  std::memcpy(&length, tail, sizeof length);
  if (length > bytes - kLeast)
    throw ArrowRefusal{ArrowFailure::damaged, "its footer should have " + std::to_string(length) +
                                                  " bytes, more than the file has"};
  return length;
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

class ParquetFile : public ArrowFile {
 public:
  ParquetFile(const std::shared_ptr<SourceFile>& file, int64_t memory_bytes,
              arrow::MemoryPool& pool) {
    const int64_t footer = footer_bytes(*file);
    if (footer > memory_bytes / 16)
      throw ArrowRefusal{ArrowFailure::memory,
                         "its footer has " + std::to_string(footer) +
                             " bytes, more than a sixteenth of the memory for a record"};
    // No list of the footer has more members than the footer has bytes.
    footer_limit_ =
        static_cast<int32_t>(std::min<int64_t>(footer, parquet::kDefaultThriftContainerSizeLimit));
    auto reader = make_reader(file, pool);
    metadata_ = reader->parquet_reader()->metadata();
    if (metadata_->is_encryption_algorithm_set())
      throw ArrowRefusal{ArrowFailure::unsupported, "it is encrypted"};
    require(reader->GetSchema(&schema_));
    for (const auto& field : reader->manifest().schema_fields) {
      leaves_.emplace_back();
      add_leaves(field, leaves_.back());
    }
    check_rows();
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  int64_t groups() const override { return metadata_->num_row_groups(); }
  int64_t rows(int64_t group) const override { return rows_[static_cast<size_t>(group)]; }

  int64_t stated_bytes(int64_t group, const std::vector<int>& columns) const override {
    const auto row_group = metadata_->RowGroup(static_cast<int>(group));
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    int64_t total = 0;
    for (const int leaf : leaves_of(columns)) {
      const int64_t bytes = row_group->ColumnChunk(leaf)->total_uncompressed_size();
      if (bytes < 0) throw ArrowRefusal{ArrowFailure::damaged, "its footer states a size below 0"};
      total = bytes > kMost - total ? kMost : total + bytes;
    }
    return total;
  }

  std::vector<std::shared_ptr<arrow::RecordBatch>> read(const std::shared_ptr<SourceFile>& file,
                                                        int64_t group,
                                                        const std::vector<int>& columns,
                                                        arrow::MemoryPool& pool) const override {
    auto reader = make_reader(file, pool);
    const auto table = value_of(reader->ReadRowGroup(static_cast<int>(group), leaves_of(columns)));
    if (table->num_rows() != rows(group))
      throw ArrowRefusal{ArrowFailure::damaged, "it has " + std::to_string(table->num_rows()) +
                                                    " rows, but the footer states " +
                                                    std::to_string(rows(group))};
    std::vector<std::shared_ptr<arrow::RecordBatch>> parts;
    arrow::TableBatchReader batches(*table);
    for (std::shared_ptr<arrow::RecordBatch> batch;;) {
      require(batches.ReadNext(&batch));
      if (!batch) return parts;
      parts.push_back(batch);
    }
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> make_reader(const std::shared_ptr<SourceFile>& file,
                                                          arrow::MemoryPool& pool) const {
    parquet::ReaderProperties properties(&pool);
    properties.set_thrift_container_size_limit(footer_limit_);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);  // It would read on threads of Arrow's own.
    arrow_properties.set_batch_size(std::numeric_limits<int32_t>::max());
    return value_of(parquet::arrow::FileReader::Make(
        &pool, parquet::ParquetFileReader::Open(file, properties, metadata_), arrow_properties));
  }

  void check_rows() {
    int64_t total = 0;
    for (int group = 0; group < metadata_->num_row_groups(); ++group) {
      const int64_t rows = metadata_->RowGroup(group)->num_rows();
      if (rows < 0 || rows > metadata_->num_rows() - total)
        throw ArrowRefusal{ArrowFailure::damaged,
                           "its footer states " + std::to_string(rows) + " rows in row group " +
                               std::to_string(group) + " and " +
                               std::to_string(metadata_->num_rows()) + " rows in all"};
      total += rows;
      rows_.push_back(rows);
    }
    if (total != metadata_->num_rows())
      throw ArrowRefusal{ArrowFailure::damaged,
                         "its footer states " + std::to_string(metadata_->num_rows()) +
                             " rows, but its row groups have " + std::to_string(total)};
  }

  std::vector<int> leaves_of(const std::vector<int>& columns) const {
    std::vector<int> all;
    for (const int column : columns) {
      const auto& leaves = leaves_.at(static_cast<size_t>(column));
      all.insert(all.end(), leaves.begin(), leaves.end());
    }
    return all;
  }

  int32_t footer_limit_ = parquet::kDefaultThriftContainerSizeLimit;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::vector<int>> leaves_;  // Of each column: its columns in Parquet's sense.
  std::vector<int64_t> rows_;
};

}  // namespace

std::unique_ptr<ArrowFile> open_parquet_file(const std::shared_ptr<SourceFile>& file,
                                             int64_t memory_bytes, arrow::MemoryPool& pool) {
  return std::make_unique<ParquetFile>(file, memory_bytes, pool);
}

}  // namespace trireme::records
