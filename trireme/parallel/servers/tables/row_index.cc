#include <trireme/parallel/servers/tables/row_index.h>

#include <sys/mman.h>
#include <trireme/base/hash.h>
#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace trireme::servers {
namespace {

constexpr size_t kSmallestIndex = 16;
constexpr size_t kFetchAhead = 12;  // Rows whose entries are on their way.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLineOfMemory = 64;

// At most 7 of 10 places are taken.
bool is_too_full(size_t rows, size_t capacity) { return rows * 10 > capacity * 7; }

}  // namespace

void FreePages::operator()(void* memory) const noexcept {
  ::operator delete(memory, std::align_val_t{alignment});
}

Pages take_pages(size_t bytes, bool in_large_pages) {
  in_large_pages = in_large_pages && bytes >= kHugePage;
  const size_t alignment = in_large_pages ? kHugePage : kLineOfMemory;
  Pages pages(::operator new(bytes, std::align_val_t{alignment}), FreePages{alignment});
  // A hint: without large pages all works, slower.
  if (in_large_pages) ::madvise(pages.get(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return pages;
}

RowIndex::RowIndex(size_t rows) { take_memory(capacity_for(rows)); }

size_t RowIndex::capacity_for(size_t rows) {
  size_t capacity = std::max(kSmallestIndex, std::bit_ceil(rows));
  while (is_too_full(rows, capacity)) capacity *= 2;
  return capacity;
}

size_t RowIndex::bytes_for(size_t rows) const {
  return std::max(capacity_, capacity_for(rows)) * sizeof(Entry);
}

void RowIndex::take_memory(size_t capacity) {
  memory_ = take_pages(capacity * sizeof(Entry));
  capacity_ = capacity;
  size_ = 0;
  std::uninitialized_fill_n(at(0), capacity_, Entry{});
}

size_t RowIndex::home_of(int64_t row) const {
  return mix64(static_cast<uint64_t>(row)) & (capacity_ - 1);
}

size_t RowIndex::place_of(int64_t row) const {
  size_t place = home_of(row);
  while (at(place)->slot != kNoSlot && at(place)->row != row)
    place = (place + 1) & (capacity_ - 1);
  return place;
}

template <typename Visit>
void RowIndex::visit(std::span<const int64_t> rows, const Visit& visit) const {
  for (size_t i = 0; i < std::min(kFetchAhead, rows.size()); ++i)
    __builtin_prefetch(at(home_of(rows[i])));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kFetchAhead < rows.size()) __builtin_prefetch(at(home_of(rows[i + kFetchAhead])));
    visit(i, *at(place_of(rows[i])));
  }
}

uint32_t RowIndex::find(int64_t row) const { return at(place_of(row))->slot; }

void RowIndex::find(std::span<const int64_t> rows, uint32_t* slots) const {
  visit(rows, [slots](size_t i, const Entry& entry) { slots[i] = entry.slot; });
}

void RowIndex::find(std::span<const int64_t> rows, uint32_t* slots, uint32_t used) {
  visit(rows, [slots, used](size_t i, Entry& entry) {
    slots[i] = entry.slot;
    entry.used = used;  // In a free entry it means nothing.
  });
}

void RowIndex::grow() {
  const std::vector<Entry> all = entries();
  take_memory(capacity_ * 2);
  for (const Entry& entry : all) *at(place_of(entry.row)) = entry;
  size_ = all.size();
}

void RowIndex::add(int64_t row, uint32_t slot, uint32_t used) {
  if (is_too_full(size_ + 1, capacity_)) grow();
  *at(place_of(row)) = {row, slot, used};
  ++size_;
}

uint32_t RowIndex::find_or_add(int64_t row, uint32_t slot) {
  if (is_too_full(size_ + 1, capacity_)) grow();
  Entry& entry = *at(place_of(row));
  if (entry.slot == kNoSlot) {
    entry = {row, slot, 0};
    ++size_;
  }
  return entry.slot;
}

// Entries behind the gap move into it if the gap lies between their home and their place.
void RowIndex::remove(int64_t row) {
  const size_t mask = capacity_ - 1;
  size_t gap = place_of(row);
  for (size_t place = (gap + 1) & mask; at(place)->slot != kNoSlot; place = (place + 1) & mask) {
    const size_t home = home_of(at(place)->row);
    if (((place - home) & mask) >= ((place - gap) & mask))
      *at(std::exchange(gap, place)) = *at(place);
  }
  *at(gap) = Entry{};
  --size_;
}

void RowIndex::clear() {
  if (size_ > 0) std::fill_n(at(0), capacity_, Entry{});
  size_ = 0;
}

std::vector<RowIndex::Entry> RowIndex::entries() const {
  std::vector<Entry> all;
  all.reserve(size_);
  for (size_t place = 0; place < capacity_; ++place)
    if (at(place)->slot != kNoSlot) all.push_back(*at(place));
  return all;
}

}  // namespace trireme::servers
