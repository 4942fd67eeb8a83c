#include <trireme/base/standard_error.h>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <climits>

namespace trireme {
namespace {

constexpr int kMillisecondsForRoom = 20;
std::atomic<int> dropped{0};

bool has_room() {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&room, 1, kMillisecondsForRoom) == 1 && (room.revents & POLLOUT) != 0;
}

}  // namespace

void write_to_standard_error(std::string line) {
  if (!has_room()) {
    ++dropped;
    return;
  }
  if (const int lost = dropped.exchange(0); lost > 0)
    line.insert(
        0, fmt::format(
               "trireme warning: {} messages were dropped here because no process read them\n",
               lost));
  // One write call takes a whole line, so that the lines of several processes do not mix. A pipe
  // with room takes PIPE_BUF bytes in one call.
  for (size_t at = 0; at < line.size() && (at == 0 || has_room()); at += PIPE_BUF)
    if (::write(STDERR_FILENO, line.data() + at, std::min<size_t>(PIPE_BUF, line.size() - at)) < 0)
      return;
}

}  // namespace trireme
