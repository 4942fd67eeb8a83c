// What the two kinds of files have in common, inside libtrireme_arrow.so.
#pragma once
#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <trireme/records/arrow/plugin.h>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace trireme::records {

// Arrow's own memory, up to a limit: a size that a file states is refused when it is allocated.
class LimitedPool : public arrow::ProxyMemoryPool {
 public:
  explicit LimitedPool(int64_t bytes)
      : ProxyMemoryPool(arrow::default_memory_pool()), limit_(bytes) {}

  using MemoryPool::Allocate;
  using MemoryPool::Free;
  using MemoryPool::Reallocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override;
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                           uint8_t** memory) override;
  bool has_refused() const { return has_refused_; }

 private:
  arrow::Status refuse(int64_t size);
  int64_t limit_;
  std::atomic<bool> has_refused_{false};
};

// An exception with a failure of its own. It stays inside the library.
struct ArrowRefusal {
  ArrowFailure failure;
  std::string text;
};

// Throws ArrowRefusal unless the status is good.
void require(const arrow::Status& status);
template <typename T>
T value_of(arrow::Result<T> result) {
  require(result.status());
  return std::move(result).ValueUnsafe();
}

// The file that a source gives. `failed` becomes true if the source's function fails.
class SourceFile : public arrow::io::RandomAccessFile {
 public:
  SourceFile(const ArrowSource& source, arrow::MemoryPool* pool, bool& failed);
  arrow::Status Close() override;
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override;
  arrow::Result<int64_t> GetSize() override { return source_.bytes; }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override;

 private:
  ArrowSource source_;
  arrow::MemoryPool* pool_;
  bool& failed_;
  int64_t position_ = 0;
};

// An open file. Its functions throw ArrowRefusal, or what Arrow throws.
class ArrowFile {
 public:
  virtual ~ArrowFile() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  virtual int64_t groups() const = 0;
  virtual int64_t rows(int64_t group) const = 0;
  virtual int64_t stated_bytes(int64_t, const std::vector<int>&) const { return 0; }
  // The memory of what is returned is the pool's, or the map's.
  virtual std::vector<std::shared_ptr<arrow::RecordBatch>> read(
      const std::shared_ptr<SourceFile>& file, int64_t group, const std::vector<int>& columns,
      arrow::MemoryPool& pool) const = 0;
};

std::unique_ptr<ArrowFile> open_parquet_file(const std::shared_ptr<SourceFile>& file,
                                             int64_t memory_bytes, arrow::MemoryPool& pool);
std::unique_ptr<ArrowFile> open_ipc_file(const std::shared_ptr<SourceFile>& file,
                                         arrow::MemoryPool& pool);

}  // namespace trireme::records
