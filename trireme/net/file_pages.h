// Which pages of a file mapping are in memory. They are only advice to the system: no content
// depends on it, and a page that left comes back with the next access.
#pragma once
#include <trireme/net/shared_memory.h>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

namespace trireme::net {

// Begins to read a range into memory, and does not wait for it. A range may end behind the memory.
void read_ahead(const SharedMemory& memory, size_t from, size_t bytes);
// The pages of a range leave this process. What was written before goes to the disk first if
// `is_written`; other writes stay in memory. Pages that no process has mapped leave memory too.
void drop(const SharedMemory& memory, size_t from, size_t bytes, bool is_written);

// The content of a range is needed no more: its whole pages are zero from now on, and take no
// space on the disk where the file system can give it back.
void discard(const SharedMemory& memory, size_t from, size_t bytes);
// Whether the system brings the pages around one that is accessed along with it. Without them, the
// caller reads ahead, or writes whole pages. It is so at first.
void bring_neighbours(const SharedMemory& memory, bool on);

// Follows a thread that writes ranges of a file mapping in any order, and needs none of them soon:
// each begins its way to the disk at once, and leaves memory when `most_bytes` came behind it.
// Used by one thread.
class PageTrail {
 public:
  PageTrail(std::shared_ptr<const SharedMemory> memory, size_t most_bytes);
  void wrote(size_t from, size_t bytes);
  // All ranges leave memory.
  void end();

 private:
  std::shared_ptr<const SharedMemory> memory_;
  size_t most_bytes_, bytes_ = 0;
  std::deque<std::pair<size_t, size_t>> ranges_;  // Begin and bytes.
};

// Follows a thread that reads and writes a part of a file mapping in order: pages ahead of it are
// read, and pages behind it are written and leave memory. It keeps about five windows in memory.
// Used by one thread; several threads may walk through parts of one memory.
class PageWalk {
 public:
  PageWalk(std::shared_ptr<const SharedMemory> memory, size_t window_bytes);

  // The thread has used this range. Ranges come in order. Behind a gap of a window, or in front of
  // the last range, the walk begins anew.
  void use(size_t from, size_t bytes);
  // All that was used leaves memory.
  void end();

 private:
  void turn();
  void let_go();

  std::shared_ptr<const SharedMemory> memory_;
  size_t window_;
  bool walks_ = false;
  size_t begin_ = 0, end_ = 0;                  // Used since the last turn.
  size_t leaving_begin_ = 0, leaving_end_ = 0;  // On its way to the disk.
};

}  // namespace trireme::net
