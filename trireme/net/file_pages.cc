#include <trireme/net/file_pages.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <utility>

namespace trireme::net {
namespace {

struct Pages {
  size_t from = 0, bytes = 0;
};

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// The whole pages that hold a range of the memory.
Pages pages_of(const SharedMemory& memory, size_t from, size_t bytes) {
  const size_t page = page_bytes();
  const size_t end = std::min(memory.bytes(), from + bytes);
  if (from >= end) return {};
  const size_t first = from / page * page;
  return {first, (end + page - 1) / page * page - first};
}

void write_pages(const SharedMemory& memory, const Pages& pages, unsigned how) {
  ::sync_file_range(memory.descriptor(), static_cast<off64_t>(pages.from),
                    static_cast<off64_t>(pages.bytes), how);
}

}  // namespace

void read_ahead(const SharedMemory& memory, size_t from, size_t bytes) {
  const Pages pages = pages_of(memory, from, bytes);
  if (pages.bytes > 0) ::madvise(memory.data() + pages.from, pages.bytes, MADV_WILLNEED);
}

void drop(const SharedMemory& memory, size_t from, size_t bytes, bool is_written) {
  const Pages pages = pages_of(memory, from, bytes);
  if (pages.bytes == 0) return;
  if (is_written)
    write_pages(memory, pages,
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  // A mapped page stays in the system's cache, so the mapping lets go of it first.
  ::madvise(memory.data() + pages.from, pages.bytes, MADV_DONTNEED);
  ::posix_fadvise(memory.descriptor(), static_cast<off_t>(pages.from),
                  static_cast<off_t>(pages.bytes), POSIX_FADV_DONTNEED);
}

void discard(const SharedMemory& memory, size_t from, size_t bytes) {
  const size_t page = page_bytes();
  const size_t first = (from + page - 1) / page * page;
  const size_t end = std::min(memory.bytes(), from + bytes) / page * page;
  if (first >= end) return;
  ::madvise(memory.data() + first, end - first, MADV_DONTNEED);
  ::fallocate(memory.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(first), static_cast<off_t>(end - first));
}

void bring_neighbours(const SharedMemory& memory, bool on) {
  ::madvise(memory.data(), memory.bytes(), on ? MADV_NORMAL : MADV_RANDOM);
}

PageTrail::PageTrail(std::shared_ptr<const SharedMemory> memory, size_t most_bytes)
    : memory_(std::move(memory)), most_bytes_(most_bytes) {}

void PageTrail::wrote(size_t from, size_t bytes) {
  write_pages(*memory_, pages_of(*memory_, from, bytes), SYNC_FILE_RANGE_WRITE);
  ranges_.emplace_back(from, bytes);
  bytes_ += bytes;
  while (bytes_ - ranges_.front().second >= most_bytes_) {
    const auto [begin, oldest] = ranges_.front();
    drop(*memory_, begin, oldest, /*is_written=*/true);
    bytes_ -= oldest;
    ranges_.pop_front();
  }
}

void PageTrail::end() {
  for (const auto& [begin, bytes] : ranges_) drop(*memory_, begin, bytes, /*is_written=*/true);
  ranges_.clear();
  bytes_ = 0;
}

PageWalk::PageWalk(std::shared_ptr<const SharedMemory> memory, size_t window_bytes)
    : memory_(std::move(memory)), window_(window_bytes) {}

void PageWalk::use(size_t from, size_t bytes) {
  if (!walks_ || from < end_ || from - end_ > window_) {
    end();
    walks_ = true;
    begin_ = from;
    read_ahead(*memory_, from, 2 * window_);
  }
  end_ = from + bytes;
  if (end_ - begin_ >= window_) turn();
}

// The window that ended begins to leave, and the one before it has time until now.
void PageWalk::turn() {
  let_go();
  leaving_begin_ = begin_;
  // The next write to a page on its way would wait for the disk.
  leaving_end_ = begin_ = end_ / page_bytes() * page_bytes();
  write_pages(*memory_, pages_of(*memory_, leaving_begin_, leaving_end_ - leaving_begin_),
              SYNC_FILE_RANGE_WRITE);
  read_ahead(*memory_, end_ + window_, window_);
}

void PageWalk::let_go() {
  drop(*memory_, leaving_begin_, leaving_end_ - leaving_begin_, /*is_written=*/true);
  leaving_begin_ = leaving_end_ = 0;
}

void PageWalk::end() {
  let_go();
  drop(*memory_, begin_, end_ - begin_, /*is_written=*/true);
  begin_ = end_;
  walks_ = false;
}

}  // namespace trireme::net
