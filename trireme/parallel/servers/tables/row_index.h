// Finds the rows of a table in memory: an open-addressing hash table from the row's number to
// its slot (linear probing; Knuth 1998, "The Art of Computer Programming" 3, section 6.4,
// algorithms L and R).
//
// A large index is never in the cache, so the rows of a batch are looked up together: the entries
// of later rows are fetched while earlier ones are compared.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::servers {

// Memory without values, in pages of 2 MiB where the kernel has them: rows of a large table lie
// far apart, and each small page would cost a walk through the page table.
struct FreePages {
  size_t alignment = 0;
  void operator()(void* memory) const noexcept;
};
using Pages = std::unique_ptr<void, FreePages>;
Pages take_pages(size_t bytes, bool in_large_pages = true);

// Used under one lock.
class RowIndex {
 public:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Entry {
    int64_t row = 0;
    uint32_t slot = kNoSlot;
    uint32_t used = 0;  // When the row was used last, as the owner counts.
  };

  RowIndex() : RowIndex(16) {}
  // Room for so many rows, before it grows.
  explicit RowIndex(size_t rows);

  size_t size() const { return size_; }
  size_t bytes() const { return bytes_for(size_); }
  // The bytes of an index that has grown to so many rows.
  size_t bytes_for(size_t rows) const;

  // The slot of a row, or kNoSlot.
  uint32_t find(int64_t row) const;
  // The slots of several rows. The second one also sets when they were used.
  void find(std::span<const int64_t> rows, uint32_t* slots) const;
  void find(std::span<const int64_t> rows, uint32_t* slots, uint32_t used);
  // Adds a row that is not there.
  void add(int64_t row, uint32_t slot, uint32_t used);
  // The slot of the row, which becomes `slot` if it is new.
  uint32_t find_or_add(int64_t row, uint32_t slot);
  // Removes a row that is there.
  void remove(int64_t row);
  void clear();  // Keeps the memory.
  // All entries, in no order.
  std::vector<Entry> entries() const;

 private:
  Entry* at(size_t place) const { return static_cast<Entry*>(memory_.get()) + place; }
  size_t home_of(int64_t row) const;
  size_t place_of(int64_t row) const;  // Its place, or the free one where it would be.
  static size_t capacity_for(size_t rows);
  void take_memory(size_t capacity);
  void grow();
  template <typename Visit>
  void visit(std::span<const int64_t> rows, const Visit& visit) const;

  Pages memory_;
  size_t capacity_ = 0;  // A power of two.
  size_t size_ = 0;
};

}  // namespace trireme::servers
