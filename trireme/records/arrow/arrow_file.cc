#include "arrow_file.h"

#include <cstring>

namespace trireme::records {

arrow::Status LimitedPool::refuse(int64_t size) {
  has_refused_ = true;
  return arrow::Status::OutOfMemory("it needs ", size, " bytes more than the ", bytes_allocated(),
                                    " that it has, and may have ", limit_);
}

arrow::Status LimitedPool::Allocate(int64_t size, int64_t alignment, uint8_t** out) {
  if (size > limit_ - bytes_allocated()) return refuse(size);
  return ProxyMemoryPool::Allocate(size, alignment, out);
}

arrow::Status LimitedPool::Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                                      uint8_t** memory) {
  if (new_size - old_size > limit_ - bytes_allocated()) return refuse(new_size - old_size);
  return ProxyMemoryPool::Reallocate(old_size, new_size, alignment, memory);
}

void require(const arrow::Status& status) {
  if (status.ok()) return;
  const ArrowFailure failure = status.IsOutOfMemory()      ? ArrowFailure::memory
                               : status.IsNotImplemented() ? ArrowFailure::unsupported
                                                           : ArrowFailure::damaged;
  throw ArrowRefusal{failure, status.message()};
}

SourceFile::SourceFile(const ArrowSource& source, arrow::MemoryPool* pool, bool& failed)
    : source_(source), pool_(pool), failed_(failed) {}

arrow::Status SourceFile::Close() { return arrow::Status::OK(); }

arrow::Status SourceFile::Seek(int64_t position) {
  if (position < 0 || position > source_.bytes)
    return arrow::Status::IOError("byte ", position, " is outside of the file");
  position_ = position;
  return arrow::Status::OK();
}

arrow::Result<int64_t> SourceFile::ReadAt(int64_t position, int64_t bytes, void* out) {
  if (position < 0 || bytes < 0 || position > source_.bytes)
    return arrow::Status::IOError("byte ", position, " is outside of the file");
  bytes = std::min(bytes, source_.bytes - position);
  if (source_.map) {
    std::memcpy(out, static_cast<const char*>(source_.map) + position, static_cast<size_t>(bytes));
  } else if (!source_.read(source_.file, position, bytes, out)) {
    failed_ = true;
    return arrow::Status::IOError("the file cannot be read");
  }
  return bytes;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> SourceFile::ReadAt(int64_t position, int64_t bytes) {
  if (position < 0 || bytes < 0 || position > source_.bytes)
    return arrow::Status::IOError("byte ", position, " is outside of the file");
  bytes = std::min(bytes, source_.bytes - position);
  if (source_.map)
    return std::make_shared<arrow::Buffer>(static_cast<const uint8_t*>(source_.map) + position,
                                           bytes);
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer,
                        arrow::AllocateBuffer(bytes, pool_));
  ARROW_RETURN_NOT_OK(ReadAt(position, bytes, buffer->mutable_data()));
  return buffer;
}

arrow::Result<int64_t> SourceFile::Read(int64_t bytes, void* out) {
  ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(position_, bytes, out));
  position_ += count;
  return count;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> SourceFile::Read(int64_t bytes) {
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, ReadAt(position_, bytes));
  position_ += buffer->size();
  return buffer;
}

}  // namespace trireme::records
