// Messages between the ranks of a host, through one ring of bytes in shared memory for each ordered
// pair.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace trireme::comm {

// One rank's view; one thread at a time. Every wait ends in Error(timeout | peer_lost | aborted).
class Mailboxes {
 public:
  Mailboxes(std::shared_ptr<HostTeam> team, Milliseconds timeout);  // COLLECTIVE.
  ~Mailboxes();

  // Copies what fits into the ring at once, the rest while this rank waits below. `data` must live
  // until wait_sent() of the number returned.
  uint64_t post(int to, int tag, const void* data, size_t bytes);
  void wait_sent(int to, uint64_t number);
  // The next message of `from` with this tag; between equal tags, order is kept.
  std::vector<std::byte> take(int from, int tag);

 private:
  struct Ring;
  struct Outgoing {
    std::vector<std::byte> header;
    const std::byte* data;
    size_t bytes, written = 0;  // `written` counts the header's bytes too.
  };
  struct Incoming {
    std::vector<std::byte> header, data;
    size_t received = 0;  // Of header and data.
  };
  Ring& ring(int from, int to) const;
  std::atomic<uint32_t>& bell(int rank) const;
  bool progress();  // Moves what can be moved; true if something was.
  bool push(int to);
  bool pull(int from);
  template <typename Done>
  void wait_until(Done done, const std::string& what);

  std::shared_ptr<HostTeam> team_;
  const Milliseconds timeout_;
  std::shared_ptr<net::SharedMemory> memory_;
  std::vector<std::deque<Outgoing>> outgoing_;  // By receiver.
  std::vector<uint64_t> posted_, sent_;         // By receiver: messages so far.
  std::vector<Incoming> incoming_;              // By sender: the message whose bytes are arriving.
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> arrived_;  // By (sender, tag).
};

}  // namespace trireme::comm
